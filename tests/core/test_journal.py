"""The journal of a run: nothing is lost without MLflow, nothing arrives twice."""

from __future__ import annotations

import json
import logging
import random
import socket
import sqlite3
import time
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from app.cli import main
from core import journal as module
from core.files import InputError
from core.journal import Journal, find_waiting, sync
from core.json_files import read_json
from tests.fakes.tracking import Server


def points(run: str, key: str = "loss") -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in MlflowClient().get_metric_history(run, key)]


def test_what_a_run_records_arrives_once(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b\n")
    with Journal(runs / "above", "paper", "all seeds"):
        pass
    with Journal(runs / "a", "paper", "seed 0", {"kind": "test"}, parent=runs / "above") as own:
        own.params({"model.lr": 0.1, "long": "x" * 900})
        own.params({"model.lr": 0.2})  # the first value stays
        own.tags({"seed": "0"})
        own.metrics({"loss": 3.0, "dev/f1 (strict)": 0.5}, 1)
        own.metric("loss", float("nan"), 2)
        own.artifact(tmp_path / "table.csv")
        own.end()
    run = mlflow.get_run(own.run_id)
    assert run.info.run_name == "seed 0" and run.info.status == "FINISHED"
    assert run.data.params == {"model.lr": "0.1", "long": "x" * 900}
    assert run.data.tags["seed"] == "0" and run.data.tags["kind"] == "test"
    assert run.data.tags["mlflow.parentRunId"] == module.run_id_in(runs / "above") != ""
    assert points(own.run_id, "dev/f1__strict_") == [(1, 0.5)] and [
        s for s, _ in points(own.run_id)
    ] == [1, 2]
    assert [f.path for f in MlflowClient().list_artifacts(own.run_id)] == ["table.csv"]
    assert find_waiting() == [] and own.history("loss")[0] == (1, 3.0)


def test_a_resumed_run_resumes_and_no_step_comes_twice(runs: Path) -> None:
    first = Journal(runs / "a", "paper", "seed 0")
    for step in range(5):
        first.metric("loss", step, step)
    first.deliver()
    first.metric("loss", 5, 5)  # recorded, not delivered
    with open(runs / "a" / "journal.jsonl", "ab") as handle:
        handle.write(b'{"metric": "loss", "val')  # the process was killed here
    first._handle.close()
    with Journal(runs / "a", "paper", "seed 0") as again:
        for step in range(3, 8):  # from the checkpoint of step 3
            again.metric("loss", step + 1e-7, step)
        again.metric("score", 1, 0)
        again.metric("score", 2, 0, again=True)
    assert points(again.run_id) == [(s, s + 1e-7 * (s > 5)) for s in range(8)]
    assert (
        mlflow.get_run(again.run_id).data.metrics["score"] == 2
        and len(MlflowClient().search_runs(["1"])) == 1
    )


@pytest.mark.parametrize("seed", range(3))
def test_each_record_arrives_once_whatever_is_cut(
    runs: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Connections that fail before a request, or after it and before its answer is noted."""
    draw = random.Random(seed)
    # SQLite's store would forgive a metric that comes twice, others keep both
    arrived: list[tuple[str, int]] = []
    for name in ("create_run", "log_batch", "get_metric_history", "set_terminated"):
        real = getattr(MlflowClient, name)

        def cut(self: MlflowClient, *args: object, real: object = real, **kwargs: object) -> object:
            if draw.random() < 0.3:
                raise MlflowException("connection refused")
            answer = real(self, *args, **kwargs)  # type: ignore[operator]
            arrived.extend((metric.key, metric.step) for metric in kwargs.get("metrics") or ())  # type: ignore[attr-defined]
            if draw.random() < 0.3:
                raise OSError("connection reset")
            return answer

        monkeypatch.setattr(MlflowClient, name, cut)
    monkeypatch.setattr(module, "BATCH", 4)
    step = 0
    for _ in range(3):  # as often killed and begun again
        own = Journal(runs / "a", "paper", "seed 0")
        for _ in range(10):
            own.metric("loss", step * 0.5, step)
            own.params({f"p{step}": step})
            step += 1
            own.deliver()
        own._handle.close()
    own = Journal(runs / "a", "paper", "seed 0")
    own.end()
    while not own.deliver():
        pass
    own.close()
    monkeypatch.undo()
    mlflow.set_tracking_uri(f"sqlite:///{runs.parent / 'mlflow.db'}")
    (run,) = MlflowClient().search_runs(
        [e.experiment_id for e in MlflowClient().search_experiments()]
    )
    assert sorted(points(run.info.run_id)) == [(s, s * 0.5) for s in range(30)]
    assert sorted(arrived) == [("loss", s) for s in range(30)]
    assert len(run.data.params) == 30 and run.info.status == "FINISHED"


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch, runs: Path) -> str:
    """The address of a server that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    mlflow.set_tracking_uri(f"http://127.0.0.1:{port}")
    return f"http://127.0.0.1:{port}"


def test_without_a_server_work_continues_and_says_so_once(
    away: str,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Journal(runs / "a", "paper", "seed 0") as own:
        for step in range(3):
            own.metric("loss", step, step)
            assert not own.deliver()
    told = [
        r.message
        for r in caplog.records
        if r.levelno >= logging.WARNING and r.name == "core.journal"
    ]
    assert (
        len(told) == 1 and f"MLflow at {away} does not answer" in told[0] and "kepl sync" in told[0]
    )
    assert own.run_id == "" and find_waiting() == [runs / "a"]
    with pytest.raises(InputError, match="does not answer .*nothing is lost"):
        sync()
    store = f"sqlite:///{runs.parent / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    mlflow.set_tracking_uri(store)
    busy = Journal(runs / "b", "paper", "seed 1")  # a run that is active is left to itself
    assert (
        main(["sync"]) == 0
        and "4 records of 1 runs delivered; 1 still running" in capsys.readouterr().out
    )
    busy._handle.close()
    assert points(read_json(runs / "a" / "mlflow.json")["run_id"]) == [
        (s, float(s)) for s in range(3)
    ]


def test_a_store_that_fails_is_reported_in_one_line(
    runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """MLflow itself would print the traceback of every statement that fails."""
    with Journal(runs / "a", "paper", "seed 0") as own:
        assert own.deliver()
        with sqlite3.connect(runs.parent / "mlflow.db") as database:
            database.execute("drop table metrics")
        own.metric("loss", 1.0, 0)
        assert not own.deliver()
    said = capfd.readouterr()
    assert (
        "Traceback" not in said.err
        and "Traceback" not in said.out
        and "does not answer" in said.err
    )


def test_a_run_that_mlflow_lost_is_made_again(runs: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Journal(runs / "a", "paper", "seed 0") as own:
        own.metric("loss", 1, 1)
    first = own.run_id
    path = runs / "a" / "mlflow.json"
    path.write_text(path.read_text().replace(first, "0" * 32))
    with Journal(runs / "a", "paper", "seed 0") as own:
        own.metric("loss", 2, 2)
    assert "no longer has this run" in caplog.text and points(own.run_id) == [(1, 1.0), (2, 2.0)]


def test_a_broken_journal_is_reported(runs: Path) -> None:
    (runs / "a").mkdir(parents=True)
    (runs / "a" / "journal.jsonl").write_text("no json\n")
    with pytest.raises(InputError, match="not a line of a journal"):
        Journal(runs / "a", "paper", "seed 0")


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back_has_everything_once(
    runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = Server(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address)
    mlflow.set_tracking_uri(server.address)
    monkeypatch.setattr(module, "PAUSE", 0.1)
    server.start()
    ids = []
    for name, disturbed in (("whole", False), ("cut", True)):
        with Journal(runs / name, "paper", name) as own:
            own.deliver()
            own.start()
            for step in range(60):
                own.metric("loss", step / 7, step)
                time.sleep(0.02)
                if disturbed and step == 20:
                    server.kill()
                if disturbed and step == 40:
                    server.start()
            own.end()
        ids.append(own.run_id)
    assert (
        points(ids[0]) == points(ids[1]) == [(s, s / 7) for s in range(60)] and find_waiting() == []
    )
    server.kill()


def test_values_that_mlflow_cannot_hold_are_cut_with_a_mark(runs: Path) -> None:
    with Journal(runs / "a", "paper", "seed 0", {"early": "e" * 9_000}) as own:
        own.params({"long": "p" * 7_000, "fits": "f" * 6_000})
        own.tags({"late": "t" * 8_001, "fits": "g" * 8_000})
        own.end()
    run = mlflow.get_run(own.run_id)
    assert run.data.params["fits"] == "f" * 6_000 and run.data.tags["fits"] == "g" * 8_000
    for value, letter, whole, most in (
        (run.data.params["long"], "p", "7,000", 6_000),
        (run.data.tags["late"], "t", "8,001", 8_000),
        (run.data.tags["early"], "e", "9,000", 8_000),
    ):
        assert len(value) == most and value.startswith(letter * 5_000)
        assert value.endswith(f" … (cut; {whole} characters in the journal)")
    assert "p" * 7_000 in (runs / "a" / "journal.jsonl").read_text()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("no such file"), "FAILED"),
        (ValueError("internal"), "FAILED"),
        (KeyboardInterrupt(), "KILLED"),
        (SystemExit(143), "KILLED"),
        (SystemExit(2), "FAILED"),
    ],
)
def test_a_run_has_the_status_of_how_it_ended(
    error: BaseException, status: str, runs: Path
) -> None:
    with (
        pytest.raises(type(error)),
        Journal(runs / "a", "paper", "seed 0") as own,
    ):
        own.metric("loss", 1.0, 0)
        raise error
    assert mlflow.get_run(own.run_id).info.status == status
    with Journal(runs / "a", "paper", "seed 0") as again:
        again.deliver()
        assert mlflow.get_run(own.run_id).info.status == "RUNNING"
        again.end()
    assert again.run_id == own.run_id
    assert mlflow.get_run(own.run_id).info.status == "FINISHED"


def test_who_started_a_run_and_what_it_reads(runs: Path) -> None:
    with Journal(runs / "a", "paper", "seed 0") as own:
        own.dataset("graph", "a" * 64, "/data/graph")
        own.dataset("graph", "a" * 64, "/data/graph")
        own.end()
    written = (runs / "a" / "journal.jsonl").read_text().splitlines()
    assert sum('"dataset"' in line for line in written) == 1  # a resumed run says it again
    found = mlflow.get_run(own.run_id)
    assert found.data.tags["mlflow.user"] == module.user_name() != ""
    assert found.data.tags["mlflow.source.type"] == "LOCAL"
    assert len(found.data.tags["mlflow.source.git.commit"]) in (7, 40)
    (given,) = found.inputs.dataset_inputs
    assert (given.dataset.name, given.dataset.digest) == ("graph", "a" * 36)


@pytest.mark.parametrize(("length", "said"), [(160, "x" * 160), (161, "x" * 160 + "…")])
def test_a_server_s_reason_is_cut_after_160_characters(
    runs: Path, monkeypatch: pytest.MonkeyPatch, length: int, said: str
) -> None:
    with Journal(runs / "a", "paper", "seed 0") as journal:
        journal.metric("test/f1", 0.5, 0)
    (runs / "a" / module.KNOWN).unlink()  # as if nothing had been delivered

    def refuse(*_: object) -> int:
        raise MlflowException("x" * length)

    monkeypatch.setattr(module, "_send", refuse)
    with pytest.raises(module.Away) as caught:
        module.deliver_lines(runs / "a", unsure=False)
    assert str(caught.value) == said


def test_a_record_has_the_time_in_milliseconds(runs: Path) -> None:
    before = time.time_ns() // 1_000_000
    with Journal(runs / "a", "paper", "seed 0") as journal:
        journal.metric("test/f1", 0.5, 0)
    recorded = [json.loads(line) for line in (runs / "a" / module.JOURNAL).open()]
    after = time.time_ns() // 1_000_000
    assert recorded and all(before <= line["time"] <= after for line in recorded)


def test_values_without_a_step_are_of_step_0_and_many_parameters_arrive(
    runs: Path, tmp_path: Path
) -> None:
    with Journal(runs / "a", "paper", "seed 0") as journal:
        journal.metrics({"loss": 1.0})
        journal.params({f"p{number:03d}": number for number in range(250)})
    assert points(journal.run_id) == [(0, 1.0)]
    recorded = mlflow.get_run(journal.run_id).data.params
    assert recorded == {f"p{number:03d}": str(number) for number in range(250)}


def test_sync_delivers_again_what_the_store_has_lost(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        with Journal(runs / name, "paper", f"seed {name}") as own:
            own.metric("loss", 1.0, 0)
            own.end()
    assert main(["sync"]) == 0 and "0 records of 0 runs" in capsys.readouterr().out
    lost = read_json(runs / "a" / "mlflow.json")["run_id"]
    MlflowClient().delete_run(lost)  # is in the bin still
    assert main(["sync"]) == 0 and "0 records of 0 runs" in capsys.readouterr().out
    for table in ("metrics", "latest_metrics", "params", "tags", "runs"):
        with sqlite3.connect(runs.parent / "mlflow.db") as database:
            column = "run_uuid"
            database.execute(f"delete from {table} where {column} = ?", (lost,))
    assert main(["sync"]) == 0 and "of 1 runs delivered" in capsys.readouterr().out
    new = read_json(runs / "a" / "mlflow.json")["run_id"]
    assert new != lost and points(new) == [(0, 1.0)]
