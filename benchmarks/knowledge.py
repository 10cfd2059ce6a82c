"""What knowledge is worth: a paper's primary comparison with its controls, from nothing.

    kepl knowledge smedbert

experiments/<paper>/knowledge.yaml states it before it is run:

    task         fine-tuning task
    systems      names of :func:`benchmarks.curves.name_systems`; the first is the paper's
    primary      [system, baseline]: the one difference that the paper is judged by
    seeds        of fine-tuning on all training documents
    curve_seeds  of fine-tuning on each smaller share
    shares       of the training documents, 1 among them
"""

from __future__ import annotations

import logging
from typing import Any

import yaml

from benchmarks.curves import (
    Point,
    draw_curve,
    format_curve,
    group_of,
    missing_trainings,
    name_systems,
    score_curve,
)
from benchmarks.paired_tests import STYLES, difference, mark_below
from core.choices import list_known
from core.files import InputError
from core.tracking import ROOT, runs_folder
from datamodules.options import Files
from experiments.machine import Machine, SeedTraining

LOG = logging.getLogger(__name__)
KEYS = {"task", "systems", "primary", "seeds", "curve_seeds", "shares"}


def stated_papers() -> list[str]:
    """Papers whose primary comparison is stated."""
    return sorted(p.parent.name for p in (ROOT / "experiments").glob("*/knowledge.yaml"))


def read_design(paper: str) -> dict[str, Any]:
    """The stated comparison of a paper. Raises InputError for a paper without one, or a file that
    lacks a key."""
    if paper not in stated_papers():
        raise InputError(
            f"no primary comparison of {paper!r}; {list_known(paper, stated_papers())}"
        )
    file = ROOT / "experiments" / paper / "knowledge.yaml"
    design: dict[str, Any] = yaml.safe_load(file.read_text())
    if set(design) != KEYS:
        raise InputError(f"{file}: expected the keys {', '.join(sorted(KEYS))}")
    if missing := [name for name in design["primary"] if name not in design["systems"]]:
        raise InputError(f"{file}: primary: {missing[0]} is none of the systems")
    return design


def format_estimate(design: dict[str, Any]) -> str:
    """The number of pre-trainings that are missing, and of fine-tunings."""
    systems = name_systems(design["systems"])
    missing = missing_trainings(systems)
    parts = len(design["shares"]) - (1 in design["shares"])
    on_all = design["seeds"] if 1 in design["shares"] else 0
    runs = len(systems) * (on_all + design["curve_seeds"] * parts)
    first = f"{len(missing)} pre-trainings ({', '.join(missing)})" if missing else "no pre-training"
    return (
        f"{first} and {runs} fine-tunings on {design['task']}: {len(systems)} systems,"
        f" {design['seeds']} seeds on all documents, {design['curve_seeds']} on each of {parts}"
        " smaller shares. What is finished is kept."
    )


def compare_knowledge(
    paper: str, plan: bool = False, files: Files = Files(), machine: Machine = Machine()
) -> str:
    """Run what is missing of a paper's primary comparison; returns its table, tests and figure.

    plan: only what is ahead. Raises InputError as :func:`read_design`.
    """
    design = read_design(paper)
    ahead = format_estimate(design)
    if plan:
        return ahead
    LOG.info(ahead)

    def score(shares: list[float], seeds: int) -> list[Point]:
        training = SeedTraining(task=design["task"], seeds=str(seeds), files=files, machine=machine)
        return score_curve(training, design["systems"], shares) if shares else []

    points = score([s for s in design["shares"] if s == 1], design["seeds"])
    points += score([s for s in design["shares"] if s != 1], design["curve_seeds"])
    figure = runs_folder() / "knowledge" / f"{paper}.png"
    draw_curve(points, figure)
    return "\n".join(
        [
            format_curve(points, design["systems"][0]),
            "",
            format_primary(points, *design["primary"]),
            f"Figure: {figure}",
        ]
    )


def format_primary(points: list[Point], system: str, other: str) -> str:
    """The difference that was stated, at the largest share, with both tests."""
    share = max(p.share for p in points)
    groups = {p.system: group_of(p) for p in points if p.share == share}
    metric = points[0].results[0].metric
    first, second = groups[system], groups[other]
    tests = difference(first, second, metric, STYLES["finetune"]) or "no common seed"
    below = mark_below(first, second, groups.values(), metric)
    return f"Primary comparison, {system} against {other}: {tests}{below}"
