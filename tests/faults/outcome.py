"""What a stage leaves: every file of a place, without what differs between any two runs."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STORE = "mlflow.db"
#: no results: what MLflow's store is filled from, locks, logs, checkpoints (of which a resumed run
#: keeps others), and the store
#: itself, whose metrics are read instead
BY_PRODUCTS = (
    ".lock",
    ".log",
    "journal.jsonl",
    "mlflow.json",
    STORE,
    f"{STORE}-journal",
    f"{STORE}-wal",
    f"{STORE}-shm",
)


def _leaves(value: Any, above: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(below, f"{above}.{key}")
    elif isinstance(value, list):
        yield f"{above}.count", len(value)
        for number, below in enumerate(value):
            yield from _leaves(below, f"{above}.{number}")
    else:
        yield above, value


def _query_rows(store: Path, query: str) -> list[Any]:
    """The rows of a query to MLflow's store; none where there is no store."""
    if not store.is_file():
        return []
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as database:
        return database.execute(query).fetchall()


def names_of_runs(store: Path) -> dict[str, str]:
    """{id: "<experiment>/<run>"} of the runs in MLflow's store."""
    joined = "runs r join experiments e on e.experiment_id = r.experiment_id"
    return dict(_query_rows(store, f"select r.run_uuid, e.name || '/' || r.name from {joined}"))


def metrics(store: Path) -> dict[str, Any]:
    """{"store: <metric> at <step>": value} of every run in MLflow's store, and how often each was
    written."""
    joined = (
        "metrics m join runs r on r.run_uuid = m.run_uuid join experiments e on e.experiment_id ="
        " r.experiment_id"
    )
    rows = _query_rows(
        store, f"select e.name, m.key, m.step, m.value from {joined} order by 1, 2, 3, 4"
    )
    found: dict[str, Any] = {}
    for experiment, key, step, value in rows:
        name, repeat = f"store: {experiment}: {key} at {step}", 0
        while (whole := f"{name}{f' ({repeat} times more)' if repeat else ''}") in found:
            repeat += 1
        found[whole] = value
    return found


def outcome(place: Path) -> dict[str, Any]:
    """{name: content} of all that is in `place`: a digest of a file, each value of a JSON file,
    each line of a page."""
    found: dict[str, Any] = metrics(place / STORE)
    runs = names_of_runs(place / STORE)
    for file in sorted(p for p in place.rglob("*") if p.is_file()):
        name = str(file.relative_to(place))
        # where depends on the kind of store
        if artifact := re.search(r"artifacts/[^/]+/([0-9a-f]{32})/artifacts/(.*)", name):
            name = f"artifact of {runs.get(artifact[1])}: {artifact[2]}"
        if name.endswith(BY_PRODUCTS) or "/checkpoints/" in f"/{name}":
            continue
        if file.suffix == ".json":
            found |= _leaves(json.loads(file.read_text()), f"{name}:")
        elif file.suffix == ".csv":  # without the ids of MLflow's runs
            found[name] = re.sub(r"\b[0-9a-f]{32}\b", "", file.read_text())
        elif file.suffix in (".md", ".yaml") or file.name == "MLmodel":
            found |= {
                f"{name}:{number}": line
                for number, line in enumerate(file.read_text().splitlines())
            }
        else:
            found[name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names whose content differs, or that one of them lacks."""
    nothing = object()
    return sorted(
        name
        for name in one.keys() | other.keys()
        if one.get(name, nothing) != other.get(name, nothing)
    )
