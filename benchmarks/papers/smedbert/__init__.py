"""A task's score by one setting: lines drawn from what `make finetune` found. Only reads runs.

    python -m benchmarks.run figures smedbert [TASK=cMedQANER PROFILE=small OUT=FOLDER]

experiments/<paper>/figures.yaml has the figures: `x` is the axis, and each of `lines` has for every place on it the words of
`make finetune MODEL=` that score it ("smedbert/pretrain_k5", "smedbert HITS=0.5"). A figure is <name>.png and <name>.csv.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.finetune import folder_name
from benchmarks.scored import fine_tuned, interval, parted, values
from benchmarks.tasks import task
from core.files import InputError, written
from core.tracking import runs_folder

SETTINGS = ("TASK", "PROFILE", "OUT")


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


def points(lines: Mapping[str, Mapping[float, str]], name: str, profile: str | None) -> tuple[list[Point], list[str]]:
    """(what is scored of the `lines`, the commands for what is not). Raises InputError for scores that do not go together."""
    found = fine_tuned(name, {parted(words)[0] for line in lines.values() for words in line.values()}, profile)
    result, missing = [], []
    for line, places in lines.items():
        for x, words in sorted(places.items()):
            some = found.get(parted(words)[0])
            if some:
                split = some[0]["scored_on"]
                result.append(Point(line, float(x), values(some, split), interval(some, split), words))
            else:
                missing.append(f"make finetune TASK={name} MODEL={words}" + (f" PROFILE={profile}" if profile else ""))
    return result, list(dict.fromkeys(missing))


def draw(file: Path, found: list[Point], x: str, y: str, title: str) -> None:
    """The lines as a PNG. Text is ASCII: no font is asked for more."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for line in dict.fromkeys(p.line for p in found):
        own = [p for p in found if p.line == line]
        low = [p.mean - (p.interval[0] if p.interval else min(p.scores)) for p in own]
        high = [(p.interval[1] if p.interval else max(p.scores)) - p.mean for p in own]
        bars = [[100 * max(v, 0.0) for v in side] for side in (low, high)]
        axis.errorbar([p.x for p in own], [100 * p.mean for p in own], yerr=bars, marker="o", capsize=3, label=line)
    axis.set(xlabel=x, ylabel=y, title=title)
    axis.legend()
    with written(file, "wb") as handle:
        figure.savefig(handle, format="png", dpi=110)


def figures(given: Mapping[str, str], task_name: str, drawn: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """Draw every figure of which anything is scored; returns the PNG files. Raises InputError when there is nothing at all.

    drawn: {file name: {title, x, lines: {line: {x: words}}}}. Bars are the 95 % interval of a single score, and lowest to
    highest of several.
    """
    definition = task(given.get("TASK") or task_name)
    name, profile = definition.name, given.get("PROFILE")
    out = Path(given.get("OUT") or runs_folder() / "figures" / folder_name(name))
    made, wanted = [], []
    for file, one in drawn.items():
        found, missing = points(one["lines"], name, profile)
        wanted += missing
        if not found:
            continue
        with written(out / f"{file}.csv") as handle:
            writer = csv.writer(handle, lineterminator="\n")
            writer.writerow(["line", one["x"], definition.metric, "low", "high", "scores", "model"])
            for p in found:
                ends = p.interval or (min(p.scores), max(p.scores))
                numbers = [f"{v:.4f}" for v in (p.mean, *ends)]
                writer.writerow([p.line, f"{p.x:g}", *numbers, " ".join(f"{s:.4f}" for s in p.scores), p.model])
                print(f"{file}  {p.line}, {one['x']} {p.x:g}: {100 * p.mean:.2f}")
        draw(out / f"{file}.png", found, one["x"], f"{definition.metric}, %", f"{name}: {one['title']}")
        made.append(out / f"{file}.png")
        print(out / f"{file}.png")
    told = "\n  ".join(dict.fromkeys(wanted))
    if not made:
        raise InputError(f"{name}: nothing to draw, since none of the runs is there. Run any of:\n  {told}")
    if told:
        print(f"not scored, so not drawn:\n  {told}", file=sys.stderr)
    return made
