"""Cosine of the entity vectors to their start over the steps of pre-training, from what runs
logged."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from core.files import InputError, atomic_write
from core.journal import history
from core.spreadsheets import CsvWriter
from core.tracking import runs_folder

LOG = logging.getLogger(__name__)
KEYS = {"entities/cosine_to_start": "all", "entities/cosine_to_start_unseen": "never mentioned"}
FILES = ("cosine_to_start.csv", "cosine_to_start.png")
COLUMNS = ("run", "entities", "step", "cosine")


def draw(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Draw a line for each run, and one for its entities that the text never mentions; returns the
    PNG. Raises InputError."""
    from matplotlib.figure import Figure

    base = runs_folder() / "kebiolm"
    folders = [Path(place) for place in runs] or sorted(
        file.parent for file in base.glob("*/*/seed*/journal.jsonl")
    )
    named = {
        str(place.relative_to(base)) if place.is_relative_to(base) else place.name: place
        for place in folders
    }
    rows = []
    for name, folder in named.items():
        for key, entities in KEYS.items():
            rows += [(name, entities, step, value) for step, value in history(folder, key)]
    drawn = {name for name, *_ in rows}
    without = [name for name in named if name not in drawn]
    if not rows:
        raise InputError(
            f"no run with {next(iter(KEYS))} in {', '.join(map(str, folders)) or base}. Run `make"
            " pretrain-kebiolm`."
        )
    if without:
        LOG.warning(f"without such a curve, so not drawn: {', '.join(without)}")
    out = out or runs_folder() / "figures" / "kebiolm"
    with atomic_write(out / "cosine_to_start.csv") as handle:
        writer = CsvWriter(handle)
        writer.writerows([COLUMNS, *((*row[:3], f"{row[3]:.6f}") for row in rows)])
    figure = Figure(figsize=(7, 4), layout="constrained")
    axis = figure.subplots()
    for number, name in enumerate(dict.fromkeys(row[0] for row in rows)):
        for entities, style in zip(KEYS.values(), ("-", ":"), strict=True):
            line = [(step, value) for n, e, step, value in rows if (n, e) == (name, entities)]
            if line:
                label = name if entities == "all" else f"{name}, {entities}"
                axis.plot(*zip(*line, strict=True), style, color=f"C{number % 10}", label=label)
    axis.set(xlabel="step", ylabel="mean cosine to the start", title="Entity vectors of KeBioLM")
    axis.set_ylim(min(0, axis.get_ylim()[0]), 1.02)
    axis.legend(fontsize="small")
    picture = out / "cosine_to_start.png"
    with atomic_write(picture, "wb") as handle:
        figure.savefig(handle, format="png", dpi=110)
    print(picture)
    return picture
