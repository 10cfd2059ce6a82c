"""What every tracked run records besides its metrics: where the store is, which code, which
environment."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from core.artifact import has_manifest

ROOT = Path(__file__).resolve().parents[1]
#: A server that does not answer is known in seconds; MLflow itself would ask for minutes. What is
#: in the environment wins.
for _name, _value in {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
}.items():
    os.environ.setdefault(_name, _value)

PACKAGES = ("torch", "pytorch-lightning", "transformers", "tokenizers", "pykeen", "numpy", "mlflow")


def runs_folder() -> Path:
    """Where runs, their data and the MLflow store are: $KEPL_RUNS, or runs/ of this checkout."""
    return Path(os.environ.get("KEPL_RUNS", ROOT / "runs")).resolve()


def newest_export(paper: str, stem: str | None = None) -> Path | None:
    """The export of the run of `paper` that finished last (of its config `stem`, or of any); None
    when none has.

    A run is finished when finished.json is in its folder runs/<paper>/<stem>/<config hash>/seed<k>,
    beside export/.
    """
    finished = runs_folder().joinpath(paper).glob(f"{stem or '*'}/*/seed*/finished.json")
    whole = [done for done in finished if has_manifest(done.parent / "export")]
    newest = max(whole, key=lambda done: (done.stat().st_mtime_ns, str(done)), default=None)
    return newest.parent / "export" if newest else None


def tracking_uri() -> str:
    """MLflow store: $MLFLOW_TRACKING_URI, or the sqlite file mlflow.db in the runs folder."""
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return uri
    store = runs_folder() / "mlflow.db"
    if not store.exists():  # settings and notes of runs are their user's alone
        runs_folder().mkdir(parents=True, exist_ok=True)
        (runs_folder() / "artifacts").mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(store, os.O_CREAT | os.O_WRONLY, 0o600))
    return f"sqlite:///{store}"


def read_inherited_tags() -> dict[str, str]:
    """Tags of every MLflow run that this process begins: $KEPL_TAGS, a JSON object (a sweep names
    itself as the parent)."""
    return {str(k): str(v) for k, v in json.loads(os.environ.get("KEPL_TAGS") or "{}").items()}


def use_experiment(name: str) -> str:
    """Make sure the MLflow experiment `name` exists, its files under runs/artifacts, and make it
    current. Returns its id."""
    import mlflow

    mlflow.set_tracking_uri(tracking_uri())
    if mlflow.get_experiment_by_name(name) is None and tracking_uri().startswith("sqlite:"):
        try:
            mlflow.create_experiment(
                name, artifact_location=(runs_folder() / "artifacts" / name).as_uri()
            )
        except mlflow.exceptions.MlflowException:
            # not just made by a process beside this one
            if mlflow.get_experiment_by_name(name) is None:
                raise
    return str(mlflow.set_experiment(name).experiment_id)


_words: list[str] = []


def note_command(words: Sequence[str]) -> None:
    """Keep the words behind `kepl` of the command that this process runs, for its results."""
    _words[:] = words


def command_words() -> list[str]:
    """The words that :func:`note_command` kept; none in a process that no command line began."""
    return list(_words)


def commit() -> str:
    """The checkout's commit, with '+changes' when files differ from it; 'unknown' outside a git
    checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def environment() -> dict[str, str]:
    """Versions of Python, the machine and the packages that decide a result."""
    versions = {p: importlib.metadata.version(p) for p in PACKAGES}
    return {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "cpus": str(os.cpu_count()),
    } | versions


def folder_name(text: str) -> str:
    """The name of the folder that runs of a task or an encoder have."""
    return re.sub(r"[^\w.@-]+", "-", text)
