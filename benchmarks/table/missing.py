"""RUN=1: the runs that a table's empty cells want, made before the table is.

A run's label says how it was made, so the label that a row or column measures is read back into the words of the command
that gives it: make finetune, make evaluate, make synonyms or make probe, by the table's kind.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import scored
from benchmarks.finetune import seeds_of
from benchmarks.linking.evaluate import FLOORS
from benchmarks.synonyms import WORDS, sum_of
from benchmarks.table.measured import linked
from core.files import InputError
from core.tracking import ROOT
from experiments.encoders import recipes
from experiments.stages import dies_with_its_parent
from inference.linkers import POOLINGS
from models.decoding import RULES, SCORES

Table = Mapping[str, Any]
Given = Mapping[str, str]


def passed(given: Given, *names: str) -> list[str]:
    """Of the table's settings, those that its runs take."""
    return [f"{name}={given[name]}" for name in names if given.get(name)]


def model_of(label: str) -> list[str]:
    """The words of `make finetune` under which an encoder gets `label`: "a-b K=5" is MODEL=a/b K=5, "x--y" a hub's x/y."""
    name, _, options = label.partition(" ")
    paper = next((p for p in recipes() if name.startswith(f"{p}-")), None)
    name = f"{paper}/{name.removeprefix(f'{paper}-')}" if paper else name.replace("--", "/", 1)
    return [f"MODEL={name}", *options.split()]


def linker_of(label: str) -> tuple[bool, list[str]]:
    """(whether it is fine-tuned, its settings) of the linker that is scored under `label`.

    "sapbert fine-tuned mean + back-off", "genbioel fine-tuned, target shortest, names shortest", "minilm cls dot". Raises
    InputError for a part that no setting gives.
    """
    whole = label
    label, backoff, _ = label.partition(" + back-off")
    name, rest = re.fullmatch(r"([^\s,]*)(.*)", label).groups()  # type: ignore[union-attr]
    tuned = rest.startswith(" fine-tuned")
    settings = model_of(name)
    for place, part in enumerate(rest.removeprefix(" fine-tuned").split(",")):
        words = part.split()
        if words[-1:] == ["dot"]:
            settings.append(f"SIMILARITY={words.pop()}")
        if words and words[-1] in POOLINGS and (place == 0 or len(words) == 3):
            settings.append(f"POOLING={words.pop()}")
        if len(words) == 2:  # restricted to "tfidf 50", or a setting and its value
            settings.append(f"CANDIDATES={':'.join(words)}" if words[1].isdigit() else f"{words[0].upper()}={words[1]}")
        elif len(words) == 1 and words[0] in (*RULES, *SCORES):
            settings.append(f"{'FINISH' if words[0] in RULES else 'SCORE'}={words[0]}")
        elif words and words != ["entities"]:
            raise InputError(f"the label {whole!r}: no setting of `make evaluate` gives {' '.join(words)!r}")
    return tuned, settings + (["BACKOFF=yes"] if backoff and not tuned else [])


def measured_of(table: Table) -> list[str]:
    """The labels that a table measures, in order, each once: of its rows, or of its columns."""
    return list(dict.fromkeys(one["measured"] for one in (*table["rows"], *table["columns"].values()) if "measured" in one))


def fine_tunings(table: Table, given: Given) -> list[list[str]]:
    """Every row by every task."""
    labels = measured_of(table)
    tasks = dict.fromkeys(column["task"] for column in table["columns"].values() if "task" in column)
    there = {task: scored.fine_tuned(task, set(labels), given.get("PROFILE")) for task in tasks}
    more = passed(given, "SEEDS", "PROFILE", "MIRROR")
    return [
        ["finetune", task, *model_of(label), *more] for label in labels for task in tasks if label not in there[task]
    ]


def linkings(table: Table, given: Given) -> list[list[str]]:
    """Every row by every task, or every column on the table's one task. Each run scores both floors beside its linker."""
    own = {c["task"]: c["split"] for c in table["columns"].values() if "task" in c} or {table["task"]: table["split"]}
    plan: list[list[str]] = []
    for label in sorted(measured_of(table), key=lambda one: one in FLOORS):
        for task, split in own.items():
            split = given.get("SPLIT") or split
            on = [task, f"SPLIT={split}", *passed(given, "FOLDS", "MIRROR")]
            if label in linked(task, split, given.get("FOLDS") or "all", table.get("varies", ())):
                continue
            if label in FLOORS and any(words[1] == task for words in plan):
                continue
            tuned, settings = (False, [f"MODEL={label}"]) if label in FLOORS else linker_of(label)
            runs = [["evaluate", *on, *settings]]
            if tuned:
                seeds = seeds_of(given["SEEDS"]) if given.get("SEEDS") else [0]
                runs = [["finetune", *on, *settings, f"SEED={seed}", *passed(given, "PROFILE")] for seed in seeds]
            plan += [words for words in runs if words not in plan]  # fine-tuning scores without and with back-off
    return plan


def retrievals(table: Table, given: Given) -> list[list[str]]:
    """Every row on one set of samples."""
    labels = measured_of(table)
    there = scored.retrieved(labels, sum_of(given))
    plan = []
    for label in labels:
        name, words = label.partition(" ")[0], label.split()[1:]
        if name in WORDS:
            settings = [f"MODEL={name}:{words[0]}"]
        else:
            settings = [*model_of(name), *(["KNOWLEDGE=no"] if words[1:] == ["without", "knowledge"] else [])]
            settings += [f"POOLING={words[0]}"] if words[0] != "text" else []
        if label not in there:
            plan.append(["synonyms", *settings, *passed(given, "SAMPLES")])
    return plan


def probings(table: Table, given: Given) -> list[list[str]]:
    """Every row by one set of queries, asked in one way."""
    labels = measured_of(table)
    there = scored.probed(labels, given)
    more = passed(given, "GRAPH", "LIMIT", "SEED", "METHOD", "MASKS", "BEAM", "MIRROR")
    return [
        ["probe", *model_of(label.removesuffix(" without head")), *more] for label in labels if label not in there
    ]


PLANS: dict[str, Callable[[Table, Given], list[list[str]]]] = {
    "finetune": fine_tunings, "scores": linkings, "populations": linkings, "synonyms": retrievals, "probing": probings,
}  # fmt: skip


def wanted(table: Table, given: Given) -> list[list[str]]:
    """Arguments of ``benchmarks.run`` for every measured cell without a score. Raises InputError for a table of counts."""
    kind = table.get("kind", "scores")
    if kind not in PLANS:
        raise InputError(
            f"RUN=1 makes the runs that a table's cells want, and this table is of the kind {kind!r}: it counts what is at "
            "hand (MIRROR=, GRAPH=). Leave RUN out."
        )
    return PLANS[kind](table, given)


def typed(words: Sequence[str]) -> str:
    """A run as it is typed: a task has a name there."""
    named = [word if "=" in word else f"TASK={word}" for word in words[1:]]
    return shlex.join(["make", words[0], *named])


def run_missing(table: Table, given: Given) -> list[list[str]]:
    """Make the runs that are :func:`wanted`, one after the other; returns those that failed. What is done is kept."""
    plan = wanted(table, given)
    print(f"{len(plan)} runs are missing; fine-tunings say beforehand how long they take", flush=True)
    failed = []
    for number, words in enumerate(plan, start=1):
        print(f"[{number}/{len(plan)}] {typed(words)}", flush=True)
        command = [sys.executable, "-m", "benchmarks.run", *words]
        if subprocess.run(command, cwd=ROOT, preexec_fn=dies_with_its_parent).returncode:
            failed.append(words)
    for words in failed:
        print(f"not run (its message is above): {typed(words)}", file=sys.stderr)
    return failed
