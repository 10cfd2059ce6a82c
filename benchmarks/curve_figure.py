"""Score against the share of the training documents, as a figure: of runs (`kepl curve`), or of
published records (`kepl results`).

docs/results/figures/<name>.yaml says which records docs/<name>.png shows:

    label     of the axis of scores
    groups    {share of the training documents, in percent: group of records}
    systems   {name in the figure: id of its record in each group}
    baseline  the one of them that trains nothing, dashed
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.records import FOLDER, ROOT, Record, load_records
from core.files import InputError, atomic_write
from core.yaml_files import read_yaml

COLOURS = ("#2a6f97", "#bc4749", "#6a994e", "#7b2cbf", "#e09f3e", "#495057")
KEYS = {"label", "groups", "systems", "baseline"}
SOURCE = "Source"  #: the PNG's text that says what was drawn
GAP = 1.025  #: between two systems at one share, as a ratio: their intervals lie side by side


class Line(NamedTuple):
    """A system in the figure: at each share, in percent, the mean and the ends of its interval."""

    name: str
    shares: Sequence[float]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    dashed: bool = False


def digest_of(lines: Sequence[Line], label: str) -> str:
    """A checksum of what a figure shows."""
    return hashlib.sha256(json.dumps([label, lines]).encode()).hexdigest()


def draw_lines(lines: Sequence[Line], label: str, path: Path) -> None:
    """Write a PNG: mean score against share (log), with the intervals; a dashed line is a baseline
    that trains nothing."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    for number, line in enumerate(lines):
        offset = GAP ** (number - (len(lines) - 1) / 2)
        below = [mean - low for mean, low in zip(line.means, line.lows, strict=True)]
        above = [high - mean for mean, high in zip(line.means, line.highs, strict=True)]
        axis.errorbar(
            [share * offset for share in line.shares],
            line.means,
            yerr=[below, above],
            fmt="--" if line.dashed else "-",
            marker="o",
            markersize=4,
            color=COLOURS[number % len(COLOURS)],
            label=line.name,
            linewidth=1.4,
            elinewidth=0.9,
            capsize=2,
        )
    ticks = sorted({share for line in lines for share in line.shares})
    axis.set_xscale("log")
    axis.set_xticks(ticks, [f"{tick:g} %" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("training documents")
    axis.set_ylabel(label)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    source = {SOURCE: digest_of(lines, label)}
    with atomic_write(path, "wb") as handle:
        figure.savefig(handle, format="png", dpi=120, metadata=source)


def read_lines(file: Path, records: Mapping[str, Mapping[str, Record]]) -> tuple[list[Line], str]:
    """(lines, label of the scores) of docs/results/figures/<name>.yaml. A group without a record
    of a system leaves that point out.

    Raises InputError for a file that lacks a key, a group that does not exist, a system that is in
    none of the groups, and a record without an interval.
    """
    stated = read_yaml(file, "label, groups, systems and baseline of a figure")
    if set(stated) != KEYS:
        raise InputError(f"{file}: expected the keys {', '.join(sorted(KEYS))}")
    if stated["baseline"] not in stated["systems"]:
        raise InputError(f"{file}: baseline: {stated['baseline']} is none of the systems")
    if missing := [name for name in stated["groups"].values() if name not in records]:
        raise InputError(f"{file}: groups: no group of records {missing[0]!r}")
    groups = sorted((float(share), group) for share, group in stated["groups"].items())
    lines = []
    for name, key in stated["systems"].items():
        points = [(share, records[group][key]) for share, group in groups if key in records[group]]
        if not points:
            raise InputError(f"{file}: systems: no record {key!r} in any of the groups")
        intervals = [record.interval for _, record in points]
        if None in intervals:
            raise InputError(f"{file}: systems: a record {key!r} has no interval")
        shares = [share for share, _ in points]
        means = [record.value for _, record in points]
        lows, highs = zip(*(interval for interval in intervals if interval), strict=True)
        lines.append(Line(name, shares, means, lows, highs, name == stated["baseline"]))
    return lines, str(stated["label"])


def figure_files(root: Path = ROOT) -> list[tuple[Path, Path]]:
    """(what a figure shows, its PNG) of every figure that is made of records."""
    files = sorted((root / FOLDER / "figures").glob("*.yaml"))
    return [(file, root / "docs" / f"{file.stem}.png") for file in files]


def is_drawn(lines: Sequence[Line], label: str, path: Path) -> bool:
    """Whether a PNG shows these lines."""
    from PIL import Image

    if not path.is_file():
        return False
    with Image.open(path) as image:
        return image.info.get(SOURCE) == digest_of(lines, label)


def write_figures(root: Path = ROOT) -> list[Path]:
    """Draw the figures whose records have changed; returns them. Raises InputError as
    :func:`read_lines`."""
    records, changed = load_records(root), []
    for file, path in figure_files(root):
        lines, label = read_lines(file, records)
        if not is_drawn(lines, label, path):
            draw_lines(lines, label, path)
            changed.append(path)
    return changed


def figure_problems(root: Path = ROOT) -> list[str]:
    """A line for every figure that differs from its records."""
    records = load_records(root)
    return [
        f"{path.relative_to(root)}: the figure differs from its records; draw it: make results"
        for file, path in figure_files(root)
        if not is_drawn(*read_lines(file, records), path)
    ]
