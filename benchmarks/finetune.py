"""Results of fine-tuning: scores with intervals, and how encoders compare.

    kepl finetune NCBI [--model minilm --seeds 3 --profile small|paper --mirror FOLDER ...]

A result for each seed, in the folder of its run (experiments.seeds); more seeds join those of
before.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.groups import find_differences, group_results
from benchmarks.paired_tests import others
from benchmarks.results import (
    OUTCOMES,
    OVERALL,
    SELECT,
    TRIVIAL,
    Result,
    list_stored,
    model_of,
    save_result,
)
from benchmarks.trivial import format_trivial, save_trivial, trivial_protocol
from core.arrays import load_arrays
from core.artifact import read_manifest
from core.journal import Journal
from core.json_files import read_json
from datamodules.tasks import Task
from experiments.machine import SeedTraining
from experiments.seeds import Seeds, train_seeds
from inference.mlflow_model import MODEL, write_reference

LOG = logging.getLogger(__name__)


def score_seeds(training: SeedTraining) -> list[Result]:
    """Measure the task's trivial baseline, train and score the seeds. The baseline is logged first
    and kept among the task's results."""

    def measure(name: str, task: Task, checksum: str, seeds: list[int]) -> None:
        for seed in seeds if training.share != 1 else [0]:
            trivial = save_trivial(name, task, checksum, training.profile, training.share, seed)
            LOG.info(format_trivial(trivial))

    return seed_results(train_seeds(training, measure))


def seed_results(seeds: Seeds) -> list[Result]:
    """A result a seed, saved and logged to MLflow; a tagger's run is given its model there."""
    results = [save_result(seed_result(seeds, folder), folder) for folder in seeds.folders]
    for folder in seeds.folders:
        log_model(seeds, folder)
    with Journal(seeds.base, seeds.task.name, seeds.label) as above:
        log_scores(above, results)
    return results


def log_model(seeds: Seeds, run: Path) -> None:
    """Log the model of a tagger's run, by reference, so that `mlflow models serve` answers
    (inference.mlflow_model); once, and for no other kind of model."""
    manifest, place = read_manifest(run / "export"), run / MODEL
    if manifest["kind"] not in ("ner", "nested") or place.is_dir():
        return
    write_reference(place, run / "export", str(manifest["identity"]))
    with Journal(run, seeds.task.name, run.name) as journal:
        journal.artifact(place)


def seed_result(seeds: Seeds, run: Path) -> Result:
    """The result of one seed, of what its run left in its folder (experiments.finetune)."""
    record = read_json(run / "scores.json")
    metric = record["metric"]
    return Result(
        kind="finetune",
        task=seeds.task.name,
        split=record["scored_on"],
        metric=metric,
        protocol=trivial_protocol(
            seeds.data, seeds.about["profile"], metric, record["scored_on"], seeds.about["share"]
        ),
        model=model_of(seeds.model, seeds.encoder),
        options=dict(seeds.options),
        seed=record["seed"],
        scores={
            OVERALL: record["score"] | {"examples": record["examples"]},
            SELECT: record["select"],
        },
        tallies=load_arrays(run / OUTCOMES),
        data={"task": seeds.data},
        details={
            **seeds.about,
            "selected_on": record["selected_on"],
            "variant": record["variant"],
            "epoch": record["epoch"],
        },
        request=str(seeds.base),
        mlflow_run=record["mlflow_run"],
    )


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (None for one value)."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def log_scores(journal: Journal, results: Sequence[Result]) -> None:
    """Log the scores of all seeds to the MLflow run above theirs and end it."""
    first = results[0]
    group = group_results(results)[first.label]
    low, high = group.interval(first.metric) or (0.0, 0.0)
    mean, sd = spread(group.values())
    key = f"{first.split}/{first.metric}"
    values = {
        key: mean,
        f"{key}_low": low,
        f"{key}_high": high,
        f"select/{first.metric}": spread(group.values(group=SELECT))[0],
    }
    values |= {f"{first.split}/{k}": spread(group.values(k))[0] for k in other_metrics(results)}
    journal.metrics(values | ({f"{key}_sd": sd} if sd is not None else {}), again=True)
    facts = {"task": first.task, "model": first.label, "scored_on": first.split}
    journal.params(
        facts | {k: first.details[k] for k in ("suite", "profile", "variant", "selected_on")}
    )
    journal.tags({"seeds": ",".join(str(r.seed) for r in results)})
    journal.end()


def other_metrics(results: Sequence[Result]) -> list[str]:
    """Metrics beside the task's own that every seed has."""
    first = results[0]
    common = set.intersection(*(set(result.scores[OVERALL]) for result in results))
    common -= {first.metric, "examples"}
    return [name for name in first.scores[OVERALL] if name in common]


def format_scores(results: Sequence[Result]) -> str:
    """The scores of all seeds as a table, and other encoders on exactly the same task and
    profile."""
    first = results[0]
    group = group_results(results)[first.label]
    details, metric, scored = first.details, first.metric, first.split
    pool = list_stored("finetune", first.task)
    official = (
        f", variant {details['variant']} (not the official set)" if details["variant"] else ""
    )
    select = "dev" if details["selected_on"] == "dev" else "selection"
    trivial = [
        r
        for r in pool
        if r.model.name == TRIVIAL and not find_differences(r.protocol, first.protocol)
    ]
    share = first.protocol.get("share", 1)
    lines = [
        *(format_trivial(r) for r in trivial[-1:]),
        f"{first.task}{official}, {metric}, {first.label}, PROFILE={details['profile']}"
        + ("" if share == 1 else f", {share:.0%} of the training documents"),
        f"{'':<16}{select:>10}{scored:>10}   best epoch",
    ]
    for r in results:
        a, b = r.value(group=SELECT) or 0.0, r.value() or 0.0
        lines.append(f"{f'seed {r.seed}':<16}{a:>10.4f}{b:>10.4f}   {r.details['epoch']}")
    (a, a_sd), (b, b_sd) = spread(group.values(group=SELECT)), spread(group.values())
    lines.append(f"{'mean':<16}{a:>10.4f}{b:>10.4f}")
    if a_sd is not None and b_sd is not None:
        lines.append(f"{'sd':<16}{a_sd:>10.4f}{b_sd:>10.4f}")
    low, high = group.interval(metric) or (0.0, 0.0)
    examples = int(first.scores[OVERALL]["examples"])
    lines.append(
        f"95 % interval of the {scored} score over its {examples:,} examples: {low:.4f} to"
        f" {high:.4f}"
    )
    further = [name for name in other_metrics(results) if not name.startswith("f1_")]
    lines.append(", ".join(f"{name} {spread(group.values(name))[0]:.4f}" for name in further))
    if details["selected_on"] != "dev":
        lines.append(
            f"The epoch was chosen on {details['selected_on']} (by document); {scored} was"
            " evaluated once."
        )
    if scored == "dev":
        lines.append(
            "There is no test split here, so dev is scored; do not compare this with test scores."
        )
    lines.append(
        f"MLflow run {details['parent']} (make dashboard); files in {Path(first.folder).parent}"
    )
    return "\n".join([*lines, *others(group, pool, metric)])
