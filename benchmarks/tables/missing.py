"""RUN=1: the results that a table's empty cells need, made before the table is: from the fields of
what is measured to a command."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from benchmarks.commands import Evaluate, Finetune, FinetuneLinker, Probe, Synonyms
from benchmarks.options import Choices, Folds, Protocol, Split
from benchmarks.results import BASELINES, label
from benchmarks.synonyms import WORDS, samples_checksum
from benchmarks.tables.measured import (
    Table,
    find_linking,
    find_probing,
    find_retrieval,
    fine_tuned,
    systems,
)
from core.files import InputError
from datamodules.options import Files
from experiments.seeds import seeds_of
from inference.options import LinkerOptions

LOG = logging.getLogger(__name__)


class Missing(NamedTuple):
    """A result that is missing: what it is of, and the command that makes it."""

    title: str
    command: Evaluate | Finetune | FinetuneLinker | Probe | Synonyms


def fine_tunings(table: Table, choices: Choices, files: Files, seeds: str | None) -> list[Missing]:
    """Every row by every task."""
    wanted = systems(table)
    tasks = dict.fromkeys(
        column["task"] for column in table["columns"].values() if "task" in column
    )
    results = {task: fine_tuned(task, wanted, choices.profile) for task in tasks}
    missing = []
    for system in wanted:
        for task in tasks:
            if system.select_results(results[task]):
                continue
            command = Finetune(
                task=task,
                model=system.model,
                seeds=seeds,
                profile=choices.profile or "small",
                options=system.options,
                files=files,
            )
            title = f"finetune {task} {label(system.model, system.options)}"
            missing.append(Missing(title, command))
    return missing


def linkings(table: Table, choices: Choices, files: Files, seeds: str | None) -> list[Missing]:
    """Every row by every task, or every column on the table's one task. Each run scores both
    baselines beside its linker."""
    tasks = {c["task"]: c["split"] for c in table["columns"].values() if "task" in c} or {
        table["task"]: table["split"]
    }
    plan: dict[str, Missing] = {}
    covered: set[str] = set()  # tasks on which a run of this plan measures the baselines
    for system in sorted(systems(table), key=lambda s: s.model in BASELINES["linking"]):
        for task, split in tasks.items():
            baseline = system.model in BASELINES["linking"]
            results = find_linking(task, split, choices, table.get("varies", ()))
            if system.select_results(results) or (baseline and task in covered):
                continue
            own_options = dict(system.options)
            tuned, backoff = own_options.pop("finetuned", None), own_options.pop("backoff", False)
            common: dict[str, Any] = {
                "part": Folds(split=choices.split or cast(Split, split), folds=choices.folds),
                "files": files,
                "protocol": Protocol(names=own_options.pop("names", "all")),
                "linker": LinkerOptions(**own_options),
            }
            covered.add(task)
            options = {k: v for k, v in system.options.items() if k != "backoff"}
            shown_options = f"{task} {label(system.model, options)}"
            if tuned is None:
                title = f"evaluate {shown_options}{' + back-off' if backoff else ''}"
                evaluation = Evaluate(task=task, model=system.model, backoff=backoff, **common)
                plan[title] = Missing(title, evaluation)
                continue
            # fine-tuning scores without and with back-off
            for seed in seeds_of(seeds) if seeds else [0]:
                title = f"finetune {shown_options}, seed {seed}"
                more = {"options": tuned, "seed": seed, "profile": choices.profile or "small"}
                tuning = FinetuneLinker(task=task, model=system.model, **common, **more)
                plan[title] = Missing(title, tuning)
    return list(plan.values())


def retrievals(table: Table, choices: Choices, files: Files, seeds: str | None) -> list[Missing]:
    """Every row on one set of samples."""
    results = find_retrieval(systems(table), samples_checksum(choices.samples))
    plan = []
    for s in systems(table):
        model = f"{s.model}:{s.options['unit']}" if s.model in WORDS else s.model
        options = {k: v for k, v in s.options.items() if k != "unit"}
        if not s.select_results(results):
            retrieval = Synonyms(model=model, samples=choices.samples, **options)
            plan.append(Missing(f"synonyms {label(s.model, s.options)}", retrieval))
    return plan


def probings(table: Table, choices: Choices, files: Files, seeds: str | None) -> list[Missing]:
    """Every row by one set of queries, asked in one way."""
    results = find_probing(systems(table), choices)
    names = ("graph", "limit", "seed", "method", "masks", "beam")
    how: dict[str, Any] = {
        name: getattr(choices, name) for name in names if getattr(choices, name) is not None
    }
    return [
        Missing(f"probe {label(s.model, s.options)}", Probe(model=s.model, files=files, **how))
        for s in systems(table)
        if not s.select_results(results)
    ]


PLANS: dict[str, Callable[[Table, Choices, Files, str | None], list[Missing]]] = {
    "finetune": fine_tunings,
    "scores": linkings,
    "populations": linkings,
    "synonyms": retrievals,
    "probing": probings,
}


def plan(table: Table, choices: Choices, files: Files, seeds: str | None = None) -> list[Missing]:
    """A command for every measured cell without a score. Raises InputError for a table of
    counts."""
    kind = table.get("kind", "scores")
    if kind not in PLANS:
        raise InputError(
            "RUN=1 makes the results that a table's cells need, and this table only counts"
            f" ({kind}). Leave RUN out."
        )
    return PLANS[kind](table, choices, files, seeds)


def run_missing(
    table: Table, choices: Choices, files: Files, seeds: str | None = None
) -> list[str]:
    """Make the results of :func:`plan`, one after the other; returns the titles of those that
    failed. What is done is kept."""
    runs = plan(table, choices, files, seeds)
    LOG.info(f"{len(runs)} runs are missing; fine-tunings print beforehand how long they take")
    failed = []
    for number, run in enumerate(runs, start=1):
        LOG.info(f"[{number}/{len(runs)}] {run.title}")
        try:
            run.command.run()
        except (InputError, SystemExit) as error:  # a training that failed has printed why
            LOG.error(f"not run: {run.title}: {error}")
            failed.append(run.title)
    return failed
