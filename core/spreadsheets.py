"""CSV that a spreadsheet opens without running anything of it."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Any


class CsvWriter:
    """A writer of CSV. A text that a spreadsheet would read as a formula (=, +, -, @, a tab) begins
    with an apostrophe."""

    def __init__(self, handle: Any, delimiter: str = ",") -> None:
        self._writer = csv.writer(handle, delimiter=delimiter, lineterminator="\n")

    def writerow(self, row: Iterable[Any]) -> None:
        self._writer.writerow([_inert(cell) for cell in row])

    def writerows(self, rows: Iterable[Iterable[Any]]) -> None:
        for row in rows:
            self.writerow(row)


def _inert(cell: Any) -> Any:
    """A cell, with an apostrophe before a text that begins as a formula does and is no number; its
    line ends are "\\n"."""
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\r\n", "\n").replace("\r", "\n")  # csv quotes this line end alone
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r")) or cell == "-":
        return text
    try:
        float(cell)
    except ValueError:
        return f"'{text}"
    return text
