"""`kepl dashboard`: MLflow's pages on this machine alone, opened on the scores.

MLflow opens pages for traces of language models in a browser that it has not seen; the addresses
that are printed open the table of runs instead, with the scores as columns, sorted. What a table
shows is a tag of its experiment, as MLflow's own *Share view* writes it.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from core.commands import child_environment, python_command
from core.files import InputError
from core.tracking import ROOT, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

HOST = "127.0.0.1"
VIEW = "scores"  #: the name of a table's view, in its address
NEWEST = 200  #: runs whose metrics may be columns
COLUMNS = 8
LISTED = 12  #: experiments whose addresses are printed, those with the newest runs
SPLITS = ("test/", "dev/", "val/")
COUNTS = ("/examples", "/names", "/queries", "/tokens")
ENDS = ("_low", "_high", "_sd")


class View(NamedTuple):
    """An experiment's table: its address ends in these."""

    name: str
    experiment: str
    scores: list[str]

    @property
    def table(self) -> str:
        return self._address({})

    @property
    def charts(self) -> str:
        return self._address({"compareRunsMode": "CHART"})

    def _address(self, more: dict[str, str]) -> str:
        values = {"workflowType": "machine_learning", "viewStateShareKey": VIEW, **more}
        return f"#/experiments/{self.experiment}/runs?{urlencode(values)}"


def choose_columns(metrics: Iterable[str]) -> list[str]:
    """The scores among an experiment's metrics: those of test, else of dev, else of validation; the
    ends of intervals after the scores themselves, and no numbers of examples."""
    measures = {name for name in metrics if not name.endswith(COUNTS)}
    for split in SPLITS:
        scores = [name for name in measures if name.startswith(split)]
        if scores:
            return sorted(scores, key=lambda name: (name.endswith(ENDS), name))[:COLUMNS]
    return []


def view_state(scores: Sequence[str]) -> str:
    """What a table of runs shows, as the tag that MLflow reads."""
    descending = bool(scores) and "loss" not in scores[0]
    return json.dumps(
        {
            "orderByKey": f"metrics.`{scores[0]}`" if scores else "attributes.start_time",
            "orderByAsc": bool(scores) and not descending,
            "selectedColumns": [f"metrics.`{name}`" for name in scores],
            "searchFilter": "",
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "groupBy": None,
            "runsExpanded": {},
            "runsPinned": [],
            "runsHidden": [],
            "runsHiddenMode": "FIRST_20_RUNS",
            "viewMaximized": False,
            "hideEmptyCharts": True,
        }
    )


def describe_experiment(name: str, scores: Sequence[str]) -> str:
    """What an experiment's runs are, in a sentence."""
    if name in ("kg", "probing", "synonyms"):
        return {
            "kg": "Graph embeddings, with their link prediction",
            "probing": "Language models asked for the objects of a graph's triples",
            "synonyms": "Encoders that find synonyms among other names",
        }[name]
    if any(score.startswith(SPLITS[:2]) for score in scores):
        return f"Scores on {name}: a run is a system, its child runs are seeds"
    return f"Pre-trainings of {name}: a run is a config and a seed"


def prepare_views(client: MlflowClient) -> list[View]:
    """Give each experiment a description where it has none, and its table of scores; those with
    the newest runs first."""
    dated = []
    for experiment in client.search_experiments():
        runs = client.search_runs(
            [experiment.experiment_id], max_results=NEWEST, order_by=["attributes.start_time DESC"]
        )
        if not runs:
            continue
        scores = choose_columns(name for run in runs for name in run.data.metrics)
        tags = {f"mlflow.sharedViewState.{VIEW}": view_state(scores)}
        if "mlflow.note.content" not in experiment.tags:
            tags["mlflow.note.content"] = describe_experiment(experiment.name, scores)
        for key, value in tags.items():
            if experiment.tags.get(key) != value:
                client.set_experiment_tag(experiment.experiment_id, key, value)
        view = View(experiment.name, experiment.experiment_id, scores)
        dated.append((runs[0].info.start_time, view))
    return [view for _, view in sorted(dated, key=lambda pair: -pair[0])]


def format_addresses(port: int, views: Sequence[View]) -> str:
    """Lines with the address of each table and of its charts."""
    place = f"http://{HOST}:{port}/"
    lines = [f"{place}#/experiments?workflowType=machine_learning  (Ctrl+C ends it)"]
    for view in views[:LISTED]:
        lines += [f"{view.name}", f"  table   {place}{view.table}"]
        lines += [f"  charts  {place}{view.charts}"]
    if len(views) > LISTED:
        lines.append(f"and {len(views) - LISTED} more experiments, on the first page")
    return "\n".join(lines)


def command(port: int) -> list[str]:
    """The words that start MLflow."""
    words = ["-m", "mlflow", "ui", "--workers", "1", "--host", HOST, "--port", str(port)]
    return python_command(*words, "--backend-store-uri", tracking_uri())


def check_port(port: int) -> None:
    """Raise InputError for a port that MLflow could not listen at: it would end in a traceback."""
    try:
        socket.create_server((HOST, port)).close()
        reason = "it would be another one each time" if port == 0 else ""
    except (OSError, OverflowError) as error:
        reason = str(error)
    if reason:
        raise InputError(f"--port {port}: {reason}. Choose another one, from 1 to 65535.")


def serve(port: int) -> int:
    """Run MLflow until it is interrupted or terminated, which ends MLflow, too. Returns its exit
    code, or 0 after either. Raises InputError for a port that cannot be had."""
    check_port(port)
    from mlflow import MlflowClient

    environment = child_environment(
        {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    )
    views = prepare_views(MlflowClient(tracking_uri()))
    print(format_addresses(port, views), flush=True)
    # in the checkout: the server behind MLflow's command searches the folder it runs in for
    # modules, whatever it is told
    server = subprocess.Popen(command(port), cwd=ROOT, env=environment, umask=0o077)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    try:
        return max(0, server.wait())  # below 0: the number of the signal
    except KeyboardInterrupt:
        server.terminate()
        server.wait()
        return 0
