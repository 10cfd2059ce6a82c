"""Learning curves: the score of several systems against the share of the training documents.

    kepl curve cMedQANER --models plain marks shuffled smedbert --shares 0.03 0.1 0.3 1

A share is drawn by the seed and a part of every larger one of that seed
(datamodules.tasks.selection). Fewer documents are passed over more often: epochs grow by the root
of 1 / share. What is missing is trained; what is there is kept, so the same command resumes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.curve_figure import Line, draw_lines
from benchmarks.finetune import score_seeds, spread
from benchmarks.groups import Group, group_results
from benchmarks.paired_tests import versus
from benchmarks.pretraining import save_pretrainings
from benchmarks.results import TRIVIAL, Result, list_stored
from core.files import InputError
from core.tracking import newest_export
from datamodules.tasks.definition import config_of
from datamodules.tasks.prepare import find_task
from experiments.machine import SeedTraining
from experiments.names import encoder
from experiments.pretrain import pipeline_of, pretrain
from experiments.recipes import default_stem, recipes

LOG = logging.getLogger(__name__)


class Point(NamedTuple):
    """The results of one system at one share, a seed each."""

    system: str
    share: float
    results: list[Result]


def name_systems(models: Sequence[str]) -> dict[str, str]:
    """{name in the figure: the encoder that MODEL= accepts}. A word that is no paper but a variant
    of the only paper among the models means that variant's run.
    """
    papers = {model.partition("/")[0] for model in models} & (set(recipes()) - {"zh"})
    owner = papers.pop() if len(papers) == 1 else None
    variants = pipeline_of(owner)["variants"] if owner else {}
    systems: dict[str, str] = {}
    for model in models:
        if model not in recipes() and model in variants:
            files = variants[model].get("configs") or ["pretrain.yaml"]
            systems[model] = f"{owner}/{Path(files[-1]).stem}"
        else:
            systems[model] = model
    return systems


def missing_trainings(systems: dict[str, str]) -> list[str]:
    """The systems that are a paper's and have no finished pre-training, in order."""
    missing = []
    for name, model in systems.items():
        paper, _, stem = model.partition("/")
        if paper in recipes() and newest_export(paper, stem or default_stem(paper)) is None:
            missing.append(name)
    return missing


def train_missing(systems: dict[str, str]) -> None:
    """Pre-train the papers and variants that have no finished run, in the small profile. Raises
    InputError for a name that means nothing before any of them."""
    missing = missing_trainings(systems)
    for name, model in systems.items():
        if name not in missing:
            encoder(model)
    for name in missing:
        LOG.info(f"{systems[name]} is missing: it is pre-trained first")
        paper, _, stem = systems[name].partition("/")
        save_pretrainings(pretrain(paper, variants=[name] if stem else []))


def epochs_of(task: str, share: float, epochs: int | None) -> int | None:
    """Passes over a share of the training documents."""
    if share == 1:
        return epochs
    whole = epochs or config_of(task)[1]["small"]["trainer.max_epochs"]
    return math.ceil(whole / math.sqrt(share))


def args_of(training: SeedTraining, task: str, share: float) -> str:
    """Further words of the training on a share of the documents: the small profile's patience grows
    as its passes do. Few documents are few steps an epoch, and five epochs without a gain may all
    come before the first entity is found."""
    patience = config_of(task)[1]["small"].get("patience")
    is_typed = "--patience" in training.args
    if share == 1 or patience is None or is_typed or training.profile != "small":
        return training.args
    return f"{training.args} --patience {math.ceil(patience / math.sqrt(share))}".strip()


def score_curve(
    training: SeedTraining, models: Sequence[str], shares: Sequence[float]
) -> list[Point]:
    """The results of every system at every share, smallest first; the trivial baseline among
    them.

    training: task, seeds and settings of the fine-tuning; its `model` and `share` are not used.
    Raises InputError for a share that cannot be.
    """
    definition = find_task(training.task)
    if wrong := [share for share in shares if not 0 < share <= 1]:
        raise InputError(f"shares: {wrong[0]:g}; expected numbers above 0 and at most 1")
    systems = name_systems(models)
    train_missing(systems)
    points = []
    for share in sorted(set(shares)):
        for name, model in systems.items():
            epochs = epochs_of(definition.name, share, training.epochs)
            args = args_of(training, definition.name, share)
            point_training = replace(training, model=model, share=share, epochs=epochs, args=args)
            LOG.info(f"{name}, {share:.0%} of the training documents")
            points.append(Point(name, share, score_seeds(point_training)))
        protocol = points[-1].results[0].protocol
        seeds = {result.seed for result in points[-1].results}
        trivial = [
            r
            for r in list_stored("finetune", definition.name)
            if r.model.name == TRIVIAL and dict(r.protocol) == dict(protocol)
        ]
        if share != 1:
            trivial = [r for r in trivial if r.seed in seeds]
        points.append(Point(TRIVIAL, share, trivial))
    return points


def group_of(point: Point) -> Group:
    """The seeds of a point as one group."""
    return next(iter(group_results(point.results).values()))._replace(label=point.system)


def format_curve(points: Sequence[Point], base: str | None = None) -> str:
    """A table of the scores, a row for each share, and the paired tests at each share."""
    first = points[0].results[0]
    names = list(dict.fromkeys(p.system for p in points))
    lines = [
        f"{first.task}, {first.split} {first.metric}: means over seeds ± standard deviations",
        f"{'share':<8}" + "".join(f"{name:>20}" for name in names),
    ]
    for share in sorted({p.share for p in points}):
        cells = []
        for name in names:
            scores = [p for p in points if (p.system, p.share) == (name, share)]
            mean, sd = spread(group_of(scores[0]).values())
            cells.append(f"{mean:.4f}" + (f" ± {sd:.4f}" if sd is not None else ""))
        lines.append(f"{share:<8.0%}" + "".join(f"{cell:>20}" for cell in cells))
    for share in sorted({p.share for p in points}):
        groups = [group_of(p) for p in points if p.share == share]
        title = f"\n{share:.0%} of the training documents"
        lines.append(versus(title, groups, first.metric, base))
    return "\n".join(lines)


def draw_curve(points: Sequence[Point], path: Path) -> None:
    """Write a PNG: mean score against share, with the range of the seeds; the baseline that trains
    nothing dashed."""
    lines = []
    for name in dict.fromkeys(point.system for point in points):
        line = sorted((p for p in points if p.system == name), key=lambda point: point.share)
        scores = [group_of(point).values() for point in line]
        shares = [100 * point.share for point in line]
        means = [float(np.mean(values)) for values in scores]
        lows, highs = [min(values) for values in scores], [max(values) for values in scores]
        lines.append(Line(name, shares, means, lows, highs, dashed=name == TRIVIAL))
    first = points[0].results[0]
    draw_lines(lines, f"{first.task}, {first.split} {first.metric}", path)
