"""The dashboard ends what it started, however it is stopped."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest

from app import dashboard
from core.files import InputError

NOTE = "mlflow.note.content"
PROGRAM = """
import signal, sys
from app import dashboard
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it, and so do their children
child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
dashboard.prepare_views = lambda client: []
dashboard.check_port = lambda port: None
dashboard.command = lambda port: [sys.executable, "-c", child]
sys.exit(dashboard.serve(5000))
"""  # noqa: E501


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_dashboard_leaves_no_server(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None and "127.0.0.1:5000" in program.stdout.readline()
        child = Path("/proc", program.stdout.readline().strip())
        assert child.exists()
        program.send_signal(number)
        assert program.wait(20) == 0
    assert not child.exists()


@pytest.mark.parametrize("port", [-1, 0, 65536, 99999999])
def test_a_port_that_does_not_exist_is_one_error(port: int) -> None:
    with pytest.raises(InputError, match=f"--port {port}: .* from 1 to 65535"):
        dashboard.serve(port)


def test_a_port_that_another_program_has_is_one_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"--port {port}: .*[Aa]ddress already in use"):
            dashboard.serve(port)
    dashboard.check_port(port)


def test_columns_are_the_scores_of_the_best_split() -> None:
    metrics = ["dev/f1", "test/f1_low", "test/f1", "test/examples", "train/loss", "several/f1"]
    assert dashboard.choose_columns(metrics) == ["test/f1", "test/f1_low"]
    assert dashboard.choose_columns(["val/loss", "val/names", "dev/f1"]) == ["dev/f1"]
    assert dashboard.choose_columns(["train/loss"]) == []
    assert len(dashboard.choose_columns([f"test/{i}" for i in range(20)])) == dashboard.COLUMNS


def test_tables_are_sorted_by_the_first_score() -> None:
    def order(scores: list[str]) -> tuple[str, bool]:
        state = json.loads(dashboard.view_state(scores))
        assert state["selectedColumns"] == [f"metrics.`{name}`" for name in scores]
        return state["orderByKey"], state["orderByAsc"]

    assert order(["test/f1", "test/loss"]) == ("metrics.`test/f1`", False)
    assert order(["val/loss"]) == ("metrics.`val/loss`", True)
    assert order([]) == ("attributes.start_time", False)


def test_experiments_get_a_view_and_a_description_and_keep_their_own(tmp_path: Path) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    for name in ("empty", "NCBI", "sapbert", "mine"):
        client.create_experiment(name)
    client.set_experiment_tag(client.get_experiment_by_name("mine").experiment_id, NOTE, "my words")
    for begun, (name, metric) in enumerate(
        [("NCBI", "test/entity_f1"), ("sapbert", "val/loss"), ("mine", "dev/f1")]
    ):
        run = client.create_run(client.get_experiment_by_name(name).experiment_id, begun + 1)
        client.log_metric(run.info.run_id, metric, 0.5)
    views = dashboard.prepare_views(client)
    assert [view.name for view in views] == ["mine", "sapbert", "NCBI"]
    notes = {v.name: client.get_experiment(v.experiment).tags[NOTE] for v in views}
    assert notes["mine"] == "my words" and notes["sapbert"].startswith("Pre-trainings of sapbert")
    assert notes["NCBI"].startswith("Scores on NCBI")
    tags = client.get_experiment(views[2].experiment).tags
    assert json.loads(tags["mlflow.sharedViewState.scores"])["selectedColumns"] == [
        "metrics.`test/entity_f1`"
    ]
    told = dashboard.format_addresses(5000, views)
    assert f"http://127.0.0.1:5000/#/experiments/{views[0].experiment}/runs?workflowType=" in told
    assert "viewStateShareKey=scores&compareRunsMode=CHART" in told
    assert dashboard.prepare_views(client) == views
