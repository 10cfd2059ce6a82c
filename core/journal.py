"""A run's metrics, parameters, tags and files: first to a journal in the run's folder, from there
to MLflow when it answers.

A folder holds

    journal.jsonl   a line for the run, and one for each metric, parameter, tag and file, in the
                    order they were recorded
    mlflow.json     run_id, tracking_uri, and delivered: the bytes of the journal that MLflow has

Work never waits for MLflow: without it everything stays in the journal, and a later run of the same
command or ``kepl sync`` delivers it. Each line is delivered once: a metric is known again by its
step and time, which are those of its line.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import logging
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.files import InputError, explain_error
from core.json_files import read_json, write_json
from core.tracking import (
    ROOT,
    commit,
    read_inherited_tags,
    runs_folder,
    tracking_uri,
    use_experiment,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOG = logging.getLogger(__name__)
JOURNAL, KNOWN = "journal.jsonl", "mlflow.json"
PARENT = "mlflow.parentRunId"
PAUSE = 10.0  #: seconds between two deliveries in the background
BATCH = 500  #: metrics in one request
PARAMETER, TAG = 6_000, 8_000  #: characters of a value that MLflow holds
DATASET_DIGEST = 36  #: characters of a dataset's checksum that MLflow holds


def metric_name(text: str) -> str:
    """A name that MLflow accepts: other signs become underscores."""
    return re.sub(r"[^\w./ -]+", "_", text).replace(" ", "_")


class Journal:
    """The journal of the run in `folder`, open for this process alone; what is there already is
    continued.

    experiment, name  of the MLflow run
    parent            folder of the journal of the run that this one belongs under, or that run's id

    Use it as a context: at its end everything is delivered, or stays for later where MLflow does
        not answer.
    """

    def __init__(
        self,
        folder: str | Path,
        experiment: str,
        name: str,
        tags: Mapping[str, str] | None = None,
        parent: str | Path | None = None,
    ) -> None:
        self.folder, self.path = Path(folder), Path(folder) / JOURNAL
        self._steps: dict[str, set[int]] = {}
        self._params, self._datasets = set[str](), set[str]()
        self._writing, self._sending = threading.Lock(), threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._away = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._handle = open(self.path, "ab+")  # noqa: SIM115 - until close()
        except OSError as error:
            raise explain_error(error, self.path) from error
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        size, ended = 0, ""
        for line, end in _lines(self.path):
            size, ended = end, line.get("end", ended)
            if "metric" in line:
                self._steps.setdefault(line["metric"], set()).add(line["step"])
            elif "param" in line:
                self._params.add(line["param"])
            elif "dataset" in line:
                self._datasets.add(line["dataset"])
        self._handle.truncate(size)  # a line that a killed process had begun
        self._unsure = bool(size)  # it may have sent lines and not noted it
        if not size:
            tags_of_run = started_by() | read_inherited_tags() | dict(tags or {})
            tags_of_run |= {PARENT: str(parent)} if parent else {}
            self._write(
                {
                    "experiment": experiment,
                    "run": name,
                    "tags": tags_of_run,
                    "key": secrets.token_hex(8),
                }
            )
        elif ended in ("FAILED", "KILLED"):
            self.end("RUNNING")  # it resumes

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, *_: object) -> None:
        self.end_by(kind, error)
        self.close()

    def _write(self, line: dict[str, Any]) -> None:
        with self._writing:
            self._handle.write(
                json.dumps(
                    line | {"time": time.time_ns() // 1_000_000}, ensure_ascii=False
                ).encode()
                + b"\n"
            )
            self._handle.flush()

    # --- what a run records

    def metric(self, key: str, value: float, step: int, again: bool = False) -> None:
        """A value at a step. One that a resumed run logs a second time is left out; `again`: the
        later value counts."""
        key, logged = metric_name(key), self._steps.setdefault(metric_name(key), set())
        if again or step not in logged:
            logged.add(step)
            self._write({"metric": key, "value": float(value), "step": int(step)})

    def metrics(self, values: Mapping[str, float], step: int = 0, again: bool = False) -> None:
        for key, value in values.items():
            self.metric(key, value, step, again)

    def params(self, values: Mapping[str, Any]) -> None:
        """Parameters; the first value of each stays, as in MLflow."""
        for key, value in values.items():
            if (name := metric_name(key)) not in self._params:
                self._params.add(name)
                self._write({"param": name, "value": str(value)})

    def tags(self, values: Mapping[str, str]) -> None:
        for key, value in values.items():
            self._write({"tag": key, "value": str(value)})

    def artifact(self, path: str | Path) -> None:
        """A file, which must stay where it is until it is delivered."""
        self._write({"artifact": os.path.relpath(path, self.folder)})

    def dataset(self, name: str, checksum: str, source: str) -> None:
        """Data that the run reads: an input of the run in MLflow."""
        if name not in self._datasets:
            self._datasets.add(name)
            self._write({"dataset": name, "digest": checksum[:DATASET_DIGEST], "source": source})

    def end(self, status: str = "FINISHED") -> None:
        """The run's status in MLflow: FINISHED, FAILED, KILLED, or RUNNING of one that resumes."""
        self._write({"end": status})

    def end_by(self, kind: type[BaseException] | None, error: object = None) -> None:
        """The status of a run that an exception of this kind ends: KILLED by a signal, FAILED by
        everything else; nothing without one."""
        if kind is None or (issubclass(kind, SystemExit) and not getattr(error, "code", 1)):
            return
        by_signal = issubclass(kind, KeyboardInterrupt) or getattr(error, "code", 1) in (130, 143)
        self.end("KILLED" if by_signal else "FAILED")

    def history(self, key: str) -> list[tuple[int, float]]:
        """(step, value) of a metric, in the order they were recorded."""
        return history(self.folder, key)

    # --- delivery

    @property
    def run_id(self) -> str:
        """The MLflow run's id; "" as long as it has not been delivered."""
        return run_id_in(self.folder)

    def start(self) -> None:
        """Deliver from now on in the background, every PAUSE seconds."""
        import mlflow  # noqa: F401 - here, not in the thread: an import there could stop this process where it forks

        def deliver() -> None:
            while not self._stop.wait(PAUSE):
                self.deliver()

        self._thread = threading.Thread(target=deliver, name="journal", daemon=True)
        self._thread.start()

    def deliver(self) -> bool:
        """Send what MLflow does not have. False, told once, when it does not answer."""
        with self._sending:
            try:
                deliver_lines(self.folder, self._unsure)
            except Away as error:
                self._unsure = True
                if not self._away:
                    LOG.warning(
                        f"MLflow at {tracking_uri()} does not answer ({error}). Work continues;"
                        f" metrics stay in {self.path} until it does, and `kepl sync` delivers what"
                        " is left"
                    )
                self._away = True
                return False
            self._away = self._unsure = False
            return True

    def close(self) -> bool:
        """Deliver the rest, and let other processes have the journal. Whether MLflow has all of
        it."""
        if self._handle.closed:
            return not find_waiting(self.folder) if self.path.exists() else True
        self._stop.set()
        if self._thread:
            self._thread.join()
        try:
            return self.deliver()
        finally:
            self._handle.close()


def run_id_in(folder: str | Path) -> str:
    """The id of the MLflow run whose journal is in `folder`; "" as long as it has not been
    delivered."""
    return str(_read_known(Path(folder)).get("run_id", ""))


class Away(Exception):
    """The MLflow server or store does not answer, or refuses."""


def deliver_lines(folder: Path, unsure: bool = True) -> int:
    """Deliver what MLflow does not have of the journal in `folder`. Returns the number of lines.
    Raises Away.

    unsure: whether an earlier delivery may have arrived without its answer, so that MLflow is asked
        what it has.
    """
    record = _read_known(folder)
    place = record.get("delivered", 0) if record.get("tracking_uri") == tracking_uri() else 0
    lines = list(_lines(folder / JOURNAL, place))
    if not lines:
        return 0
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with _one_writer():
            return _send(folder, lines, place, unsure)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        if record and getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
            LOG.warning(f"{folder / KNOWN}: MLflow no longer has this run; a new one replaces it")
            write_json(folder / KNOWN, {})
            return deliver_lines(folder)
        raise Away(_shorten(error)) from error


def _shorten(error: Exception) -> str:
    reason = " ".join(str(error).split())
    return reason[:160] + ("…" if len(reason) > 160 else "")


@contextlib.contextmanager
def explaining_store() -> Iterator[None]:
    """Raise InputError where MLflow's server or store does not answer, or refuses, in the block."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        raise InputError(
            f"MLflow at {tracking_uri()} does not answer, or cannot write ({_shorten(error)})."
            " Give the same command again once it does; nothing is lost"
        ) from error


@contextlib.contextmanager
def _one_writer() -> Iterator[None]:
    """One process of this machine at a time writes to a SQLite store, which a second one could not
    open or even make."""
    if not tracking_uri().startswith("sqlite:///"):
        yield
        return
    with open(tracking_uri().removeprefix("sqlite:///") + ".lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _send(folder: Path, lines: list[tuple[dict[str, Any], int]], place: int, unsure: bool) -> int:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    # a traceback of what Away says in one line
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    client = MlflowClient(tracking_uri())
    run_id = _run_of(client, folder)
    first = place == 0 or unsure
    params = set(client.get_run(run_id).data.params) if first else set()
    delivered: dict[str, set[tuple[int, int]]] = {}

    def new(line: dict[str, Any]) -> bool:
        if not unsure:
            return True
        if (key := line["metric"]) not in delivered:
            delivered[key] = {(m.step, m.timestamp) for m in client.get_metric_history(run_id, key)}
        return (line["step"], line["time"]) not in delivered[key]

    for begin in range(0, len(lines), BATCH):
        some = [line for line, _ in lines[begin : begin + BATCH]]
        metrics = [
            Metric(x["metric"], x["value"], x["time"], x["step"])
            for x in some
            if "metric" in x and new(x)
        ]
        values = [
            Param(x["param"], shorten_value(x["value"], PARAMETER))
            for x in some
            if "param" in x and x["param"] not in params
        ]
        tags = {x["tag"]: x["value"] for x in some if "tag" in x}
        for at in range(0, len(values), 100):
            client.log_batch(run_id, params=values[at : at + 100])
        client.log_batch(
            run_id,
            metrics=metrics,
            tags=[RunTag(k, shorten_value(_tag(k, v), TAG)) for k, v in tags.items()],
        )
        for line in some:
            if "artifact" in line and (path := folder / line["artifact"]).exists():
                client.log_artifact(run_id, str(path))
            elif "dataset" in line:
                _send_dataset(client, run_id, line)
            elif line.get("end") == "RUNNING":
                client.update_run(run_id, status="RUNNING")
            elif "end" in line:
                client.set_terminated(run_id, line["end"], line["time"])
        sent = lines[: begin + BATCH][-1][1]
        write_json(
            folder / KNOWN, {"run_id": run_id, "tracking_uri": tracking_uri(), "delivered": sent}
        )
    return len(lines)


def _send_dataset(client: MlflowClient, run_id: str, line: dict[str, Any]) -> None:
    from mlflow.entities import Dataset, DatasetInput

    source = json.dumps({"uri": line["source"]})
    dataset = Dataset(line["dataset"], line["digest"], "local", source)
    client.log_inputs(run_id, [DatasetInput(dataset, [])])


def user_name() -> str:
    """The user's name; the number of one that the machine does not name, as in some containers."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return str(os.getuid())


def started_by() -> dict[str, str]:
    """MLflow's own tags of a run: its user, program and commit."""
    program = Path(sys.argv[0] or "python").resolve()
    inside = program.is_relative_to(ROOT)
    return {
        "mlflow.user": user_name(),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": str(program.relative_to(ROOT) if inside else program.name),
        "mlflow.source.git.commit": commit().partition("+")[0],
    }


def _run_of(client: MlflowClient, folder: Path) -> str:
    """The MLflow run of the journal in `folder`; made where there is none, found again by its key
    where its answer was lost."""
    record = _read_known(folder)
    if record.get("run_id") and record.get("tracking_uri") == tracking_uri():
        return str(record["run_id"])
    header, _ = next(_lines(folder / JOURNAL))
    experiment = use_experiment(header["experiment"])
    runs = client.search_runs(
        [experiment], f"tags.`kepl.journal` = '{header['key']}'", max_results=1
    )
    tags = {key: shorten_value(_tag(key, value), TAG) for key, value in header["tags"].items()} | {
        "kepl.journal": header["key"]
    }
    run = runs[0] if runs else client.create_run(experiment, header["time"], tags, header["run"])
    return str(run.info.run_id)


def shorten_value(value: str, most: int) -> str:
    """A value that MLflow can hold; the end of a longer one is left out, which is said at its
    end."""
    if len(value) <= most:
        return value
    mark = f" … (cut; {len(value):,} characters in the journal)"
    return value[: most - len(mark)] + mark


def _tag(key: str, value: str) -> str:
    """A tag's value; of the tag that names the parent run, the id of the run whose journal is in
    the folder that it names."""
    if key != PARENT or not Path(value).is_dir():
        return value
    parent = Path(value)
    if not _read_known(parent).get("run_id"):
        deliver_lines(parent)
    return str(_read_known(parent)["run_id"])


def _read_known(folder: Path) -> dict[str, Any]:
    file = folder / KNOWN
    return dict(read_json(file)) if file.is_file() else {}


def _lines(path: Path, place: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """(line, where it ends) of the whole lines behind byte `place`. Raises InputError for a line
    that is no journal's."""
    with open(path, "rb") as handle:
        handle.seek(place)
        for raw in handle:
            if not raw.endswith(b"\n"):
                return
            place += len(raw)
            try:
                line = json.loads(raw)
            except ValueError as error:
                raise InputError(
                    f"{path}: byte {place}: not a line of a journal. Move the file away."
                ) from error
            yield line, place


def _header(path: Path) -> dict[str, Any]:
    """The first line of a journal; {} of one that was begun and has none."""
    line, _ = next(_lines(path), ({}, 0))
    return line


def history(folder: str | Path, key: str) -> list[tuple[int, float]]:
    """(step, value) of a metric of the run in `folder`, in the order they were recorded. Raises
    InputError without a journal."""
    path = Path(folder) / JOURNAL
    if not path.is_file():
        raise InputError(f"{path}: no journal of a run here; expected the folder of one")
    return [
        (line["step"], line["value"])
        for line, _ in _lines(path)
        if line.get("metric") == metric_name(key)
    ]


def find_waiting(folder: str | Path | None = None, parent: str | None = None) -> list[Path]:
    """Folders below `folder` (default: that of all runs) whose journal MLflow does not have as a
    whole; with `parent`, an id, only of runs right under that one."""
    waiting = []
    for path in sorted(Path(folder or runs_folder()).rglob(JOURNAL)):
        if parent is not None and _header(path).get("tags", {}).get(PARENT) != parent:
            continue
        record = _read_known(path.parent)
        if (
            record.get("tracking_uri") != tracking_uri()
            or record.get("delivered", 0) < path.stat().st_size
        ):
            waiting.append(path.parent)
    return waiting


def forget_lost(folder: str | Path | None = None) -> None:
    """Forget the MLflow runs that the store no longer has, so that :func:`sync` delivers their
    journals again. Raises InputError when MLflow does not answer."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(tracking_uri())
    with explaining_store(), _one_writer():
        for path in sorted(Path(folder or runs_folder()).rglob(JOURNAL)):
            record = _read_known(path.parent)
            if not record.get("run_id") or record.get("tracking_uri") != tracking_uri():
                continue
            try:
                client.get_run(record["run_id"])
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                write_json(path.parent / KNOWN, {})


def sync(folder: str | Path | None = None, parent: str | None = None) -> tuple[int, int, int]:
    """Deliver every journal that :func:`find_waiting` returns. Returns (runs, lines, runs
    that a process is writing).

    Raises InputError when MLflow does not answer.
    """
    runs = lines = busy = 0
    for path in find_waiting(folder, parent):
        with open(path / JOURNAL, "rb") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                busy += 1  # it delivers by itself
                continue
            try:
                lines += deliver_lines(path)
            except Away as error:
                raise InputError(
                    f"MLflow at {tracking_uri()} does not answer ({error}). Start it, or set"
                    " MLFLOW_TRACKING_URI; nothing is lost"
                ) from error
            runs += 1
    return runs, lines, busy
