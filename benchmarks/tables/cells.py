"""A table's cells and their text: Markdown with reported beside measured, CSV
with a line a cell."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from core.spreadsheets import CsvWriter

HEADS = (
    "row",
    "column",
    "as published",
    "measured",
    "sd",
    "n",
    "low",
    "high",
    "significance",
    "runs",
)


class Cell(NamedTuple):
    """One number as a paper prints it, and what was measured here.

    reported  as printed; None where the paper has none
    values    what was measured, one a seed, in the unit that the paper prints
    interval  95 % over test examples, where it was made
    tests     against other rows, as text
    runs      folders or MLflow runs that the values come from
    """

    row: str
    column: str
    reported: float | None
    values: tuple[float, ...] = ()
    interval: tuple[float, float] | None = None
    tests: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    digits: int = 2

    @property
    def as_text(self) -> str:
        """mean ± sd (n), or a single value with its interval if it has one; nothing without a
        value."""
        text = spread(self.values, self.digits)
        if len(self.values) != 1 or self.interval is None:
            return text
        low, high = self.interval
        return f"{text} [{low:.{self.digits}f}, {high:.{self.digits}f}]"

    @property
    def published(self) -> str:
        return "" if self.reported is None else f"{self.reported:.{self.digits}f}"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """mean ± sd (n); one value as it is; nothing without any."""
    if len(values) < 2:
        return "".join(f"{v:.{digits}f}" for v in values)
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f} ({len(values)})"


def format_comparison(cells: Sequence[Cell]) -> list[list[str]]:
    """Rows by columns, in the cells' order, every column twice: as published, and measured."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    at = {(cell.row, cell.column): cell for cell in cells}
    lines = [["", *pair_heads(columns, "measured")]]
    for row in dict.fromkeys(cell.row for cell in cells):
        line = [row]
        for column in columns:
            cell = at[row, column]
            line += [cell.published, cell.as_text]
        lines.append(line)
    return lines


def pair_heads(columns: Iterable[str], here: str) -> list[str]:
    """The heads of columns that are each shown twice."""
    return [f"{column} {kind}" for column in columns for kind in ("as published", here)]


def as_markdown(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table of lines, the first one its heads; columns with nothing in them stay out."""
    used = [i for i in range(len(lines[0])) if i == 0 or any(line[i] for line in lines[1:])]
    text = []
    for line in lines:
        cells = [line[i].replace("|", "\\|") for i in used]
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join([text[0], "|" + "---|" * len(used), *text[1:]])


def significance(cells: Sequence[Cell]) -> list[str]:
    """A line for every test."""
    return [f"{cell.row}, {cell.column}: {test}" for cell in cells for test in cell.tests]


def as_csv(cells: Sequence[Cell]) -> str:
    """A line a cell: HEADS."""
    out = io.StringIO()
    writer = CsvWriter(out)
    writer.writerow(HEADS)
    for cell in cells:
        values = cell.values
        writer.writerow(
            [
                cell.row,
                cell.column,
                "" if cell.reported is None else cell.reported,
                f"{np.mean(values):.6g}" if values else "",
                f"{np.std(values, ddof=1):.6g}" if len(values) > 1 else "",
                len(values) or "",
                *(f"{v:.6g}" for v in cell.interval or ()),
                *([] if cell.interval else ["", ""]),
                "; ".join(cell.tests),
                " ".join(cell.runs),
            ]
        )
    return out.getvalue()


def lines_as_csv(lines: Sequence[Sequence[str]]) -> str:
    """The lines of a table of counts."""
    out = io.StringIO()
    CsvWriter(out).writerows(lines)
    return out.getvalue()
