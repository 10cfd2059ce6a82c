"""Counts of every available split, beside those that the papers print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core.files import InputError
from datamodules.chineseblue import REPEATED
from datamodules.options import Files
from datamodules.sources import fetch_dataset, place
from datamodules.tasks import SPLITS
from datamodules.tasks.definition import Definition
from datamodules.tasks.prepare import all_tasks, find_task, read_splits


class CountRow(NamedTuple):
    """A split's size in `unit`: `here`, as `source` prints it, their difference; None where one is
    not known."""

    task: str
    split: str
    unit: str
    here: int | None
    published: int | None
    source: str
    note: str = ""

    @property
    def difference(self) -> int | None:
        return None if self.here is None or self.published is None else self.here - self.published


def count_examples(unit: str, examples: list[Any], odd: Mapping[str, int]) -> int:
    """The size of a split in a unit: examples, mentions, triples, sentences or questions."""
    if unit == "examples":
        return len(examples)
    if unit == "mentions":
        return sum(len(e.entities) for e in examples)
    if unit == "triples":  # one that is in its sentence twice is printed twice and kept once
        return sum(len(e.gold) for e in examples) + odd.get(REPEATED, 0)
    if unit in ("sentences", "questions"):
        return len({e.document for e in examples})
    raise ValueError(f"no unit {unit!r}")


def split_sizes(name: str, unit: str, files: Files) -> dict[str, int]:
    """{split: its size in `unit`} of a task, in the available files. Raises InputError when there
    are none."""
    definition = find_task(name)
    splits, odd, _ = read_splits(
        definition, fetch_dataset(definition.dataset, place(), files.mirror)
    )
    return {
        split: count_examples(unit, examples, odd.get(split, {}))
        for split, examples in splits.items()
    }


UNIT = {
    "ner": "mentions",
    "nested": "mentions",
    "relation": "examples",
    "pair": "examples",
    "ranking": "questions",
}


def count_rows(
    folder_of: Callable[[Definition], Path], definitions: Iterable[Definition] | None = None
) -> list[CountRow]:
    """Rows of every task and split; `folder_of` gives a task's data folder, or raises InputError
    where there is none.

    A split that is not available has here=None; a broken file raises no error but is reported in
    `note`.
    """
    rows = []
    for definition in all_tasks().values() if definitions is None else definitions:
        note = ""
        splits: dict[str, list[Any]] = {}
        odd: dict[str, dict[str, int]] = {}
        try:
            splits, odd, notes = read_splits(definition, folder_of(definition))
            note = "; ".join(notes)
        except InputError as error:
            note = str(error)
        units = {(p.source, p.unit): p.sizes for p in definition.published}
        unit_counted = UNIT[definition.kind]
        if splits and not any(unit == unit_counted for _, unit in units):
            units["", unit_counted] = {}
        for (source, unit), sizes in units.items():
            for split in SPLITS:
                if split not in sizes and split not in splits:
                    continue
                here = None
                if split in splits:
                    here = count_examples(unit, splits[split], odd.get(split, {}))
                rows.append(
                    CountRow(definition.name, split, unit, here, sizes.get(split), source, note)
                )
    return rows


def counts_table(rows: Iterable[CountRow]) -> str:
    """The rows as aligned text: task, split, unit, here, published, difference, source; notes
    below, once each."""
    rows = list(rows)
    head = ("task", "split", "unit", "here", "published", "difference", "published in")
    cells: list[tuple[str, ...]] = [head]
    for row in rows:
        difference = ""
        if row.difference is not None:
            difference = f"{row.difference:+,}" if row.difference else "same"
        numbers = ["-" if n is None else f"{n:,}" for n in (row.here, row.published)]
        cells.append((row.task, row.split, row.unit, *numbers, difference, row.source))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        parts = [
            c.rjust(w) if 3 <= i <= 5 else c.ljust(w)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    notes = dict.fromkeys(f"{row.task}: {row.note}" for row in rows if row.note)
    return "\n".join([*lines, *([""] if notes else []), *notes])
