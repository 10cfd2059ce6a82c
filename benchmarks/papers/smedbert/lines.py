"""SMedBERT's Figures 3 and 4: a task's score by one setting, drawn from results. figures.yaml has
the lines."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from benchmarks.tables.measured import System, fine_tuned
from core.files import InputError, atomic_write
from core.spreadsheets import CsvWriter
from core.tracking import folder_name, runs_folder
from datamodules.tasks.prepare import find_task

LOG = logging.getLogger(__name__)


class Point(NamedTuple):
    """One place on a line: the scores of its seeds or runs, and the interval of a single one."""

    line: str
    x: float
    scores: list[float]
    interval: tuple[float, float] | None
    model: str

    @property
    def mean(self) -> float:
        return sum(self.scores) / len(self.scores)

    @property
    def ends(self) -> tuple[float, float]:
        return self.interval or (min(self.scores), max(self.scores))


def points(
    lines: Mapping[str, Mapping[float, Any]], name: str, profile: Literal["small", "paper"] | None
) -> tuple[list[Point], list[str]]:
    """(what is scored of the `lines`, the commands for what is not). Raises InputError for scores
    that do not go together."""
    places = []
    for line, models in lines.items():
        places += [(line, float(x), System(model)) for x, model in sorted(models.items())]
    results = fine_tuned(name, [system for *_, system in places], profile)
    scored, missing = [], []
    for line, x, system in places:
        words = " ".join([system.model, *(f"{k.upper()}={v}" for k, v in system.options.items())])
        if group := system.group(results):
            single = len(group.results) == 1
            interval = group.interval(group.results[0].metric) if single else None
            scored.append(Point(line, x, group.values(), interval, words))
        else:
            missing.append(
                f"make finetune TASK={name} MODEL={words}"
                + (f" PROFILE={profile}" if profile else "")
            )
    return scored, list(dict.fromkeys(missing))


def draw(file: Path, scored: list[Point], x: str, y: str, title: str) -> None:
    """The lines as a PNG. Text is ASCII: no font is asked for more."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    for line in dict.fromkeys(p.line for p in scored):
        points = [p for p in scored if p.line == line]
        low = [100 * max(p.mean - p.ends[0], 0.0) for p in points]
        high = [100 * max(p.ends[1] - p.mean, 0.0) for p in points]
        axis.errorbar(
            [p.x for p in points],
            [100 * p.mean for p in points],
            yerr=[low, high],
            marker="o",
            capsize=3,
            label=line,
        )
    axis.set(xlabel=x, ylabel=y, title=title)
    axis.legend()
    with atomic_write(file, "wb") as handle:
        figure.savefig(handle, format="png", dpi=110)


def _definitions() -> dict[str, Any]:
    definitions: dict[str, Any] = yaml.safe_load(
        (Path(__file__).parent / "figures.yaml").read_text()
    )
    return definitions


def figure_files() -> list[str]:
    """The names of the files that :func:`draw_all` may write."""
    return [f"{name}.{ending}" for name in _definitions() for ending in ("csv", "png")]


def draw_all(name: str, profile: Literal["small", "paper"] | None, out: Path | None) -> list[Path]:
    """Draw every figure of which anything is scored; returns the PNG files. Raises InputError when
    there is nothing at all.

    figures.yaml: {file name: {title, x, lines: {line: {x: model, or {model, its options}}}}}. Bars
    are the 95 % interval of a single score, and lowest to highest of several.
    """
    definition = find_task(name)
    name = definition.name
    drawn = _definitions()
    out = out or runs_folder() / "figures" / folder_name(name)
    pictures, wanted = [], []
    for file, figure in drawn.items():
        scored, missing = points(figure["lines"], name, profile)
        wanted += missing
        if not scored:
            continue
        with atomic_write(out / f"{file}.csv") as handle:
            writer = CsvWriter(handle)
            writer.writerow(
                ["line", figure["x"], definition.metric, "low", "high", "scores", "model"]
            )
            for p in scored:
                numbers = [f"{v:.4f}" for v in (p.mean, *p.ends)]
                scores = " ".join(f"{score:.4f}" for score in p.scores)
                writer.writerow([p.line, f"{p.x:g}", *numbers, scores, p.model])
                print(f"{file}  {p.line}, {figure['x']} {p.x:g}: {100 * p.mean:.2f}")
        draw(
            out / f"{file}.png",
            scored,
            figure["x"],
            f"{definition.metric}, %",
            f"{name}: {figure['title']}",
        )
        pictures.append(out / f"{file}.png")
        print(out / f"{file}.png")
    commands = "\n  ".join(dict.fromkeys(wanted))
    if not pictures:
        raise InputError(
            f"{name}: nothing to draw, since none of the runs is there. Run any of:\n  {commands}"
        )
    if commands:
        LOG.warning(f"not scored, so not drawn:\n  {commands}")
    return pictures
