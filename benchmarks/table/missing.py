"""RUN=1: the runs that a table's empty cells want, made before the table is."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks import scored
from experiments.encoders import recipes
from experiments.stages import dies_with_its_parent
from kg.files import InputError
from kg.tracking import ROOT

PASSED = ("PROFILE", "MIRROR")  #: of the table's settings, those that its runs take


def model_of(label: str) -> list[str]:
    """The words of `make finetune` under which an encoder gets `label`: "a-b K=5" is MODEL=a/b K=5, "x--y" a hub's x/y."""
    name, _, options = label.partition(" ")
    paper = next((p for p in recipes() if name.startswith(f"{p}-")), None)
    name = f"{paper}/{name.removeprefix(f'{paper}-')}" if paper else name.replace("--", "/", 1)
    return [f"MODEL={name}", *options.split()]


def wanted(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    """Arguments of ``benchmarks.run`` for every measured row and task without a score, rows in order.

    Raises InputError for a kind of table whose runs take more than an encoder and a task.
    """
    if table.get("kind", "scores") != "finetune":
        raise InputError(
            f"RUN=1 makes fine-tunings, and this table is of the kind {table.get('kind', 'scores')!r}: its rows are scored by "
            "`make evaluate`, `make synonyms` or `make probe`, or counted. Leave RUN out to see which are there."
        )
    labels = [row["measured"] for row in table["rows"] if "measured" in row]
    tasks = dict.fromkeys(column["task"] for column in table["columns"].values() if "task" in column)
    there = {task: scored.fine_tuned(task, set(labels), given.get("PROFILE")) for task in tasks}
    passed = [f"{name}={given[name]}" for name in PASSED if given.get(name)]
    seeds = [f"SEEDS={given['SEEDS']}"] if given.get("SEEDS") else []
    return [
        ["finetune", task, *model_of(label), *seeds, *passed]
        for label in dict.fromkeys(labels)
        for task in tasks
        if label not in there[task]
    ]


def run_missing(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    """Make the runs that are :func:`wanted`, one after the other; returns those that failed. What is done is kept."""
    plan = wanted(table, given)
    print(f"{len(plan)} fine-tunings are missing; each says beforehand how long it takes", flush=True)
    failed = []
    for number, words in enumerate(plan, start=1):
        print(f"[{number}/{len(plan)}] make {shlex.join(words)}", flush=True)
        command = [sys.executable, "-m", "benchmarks.run", *words]
        if subprocess.run(command, cwd=ROOT, preexec_fn=dies_with_its_parent).returncode:
            failed.append(words)
    for words in failed:
        print(f"not run (its message is above): {shlex.join(words)}", file=sys.stderr)
    return failed
