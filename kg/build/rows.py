"""Rows of a table: delimited text, JSON lines, a list of JSON objects, or a sheet of a workbook.

Delimited text has a heading, unless its form names the columns. UTF-16 is read where the file
begins with its mark, or the encoding is named.
"""

from __future__ import annotations

import codecs
import csv
import io
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.choices import list_known
from core.files import InputError
from core.json_files import json_lines, json_records
from core.reading import (
    UTF_16_MARKS,
    WHOLE,
    check_encoding,
    largest_document,
    lines,
    open_bytes,
    open_input,
    too_large,
    unpacked_name,
)

Row = tuple[str, dict[str, Any]]  # (path:line, values)
WORKBOOK = ".xlsx"
FORMS = (".csv", ".tsv", ".jsonl", WORKBOOK)
JSON = (".jsonl", ".ndjson", ".json")
DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "bar": "|", "\\t": "\t"}
MOST_ERRORS = 20  #: that one message lists


@dataclass
class Problems:
    """Errors of a file, up to MOST_ERRORS of them in one message."""

    messages: list[str] = field(default_factory=list)

    def add(self, message: str) -> None:
        """Keep an error. Raises InputError with all of them once there are MOST_ERRORS."""
        self.messages.append(message)
        if len(self.messages) == MOST_ERRORS:
            self.check()

    def check(self) -> None:
        """Raise InputError where there is an error."""
        if len(self.messages) == 1:
            raise InputError(self.messages[0])
        if self.messages:
            more = len(self.messages) == MOST_ERRORS
            title = f"the first {MOST_ERRORS} errors" if more else f"{len(self.messages)} errors"
            lines = [title + ":", *(f"{message:.300}" for message in self.messages)]
            raise InputError("\n".join(lines), longest=MOST_ERRORS * 320)


@dataclass(frozen=True)
class Form:
    """How a table is written.

    delimiter: between fields; empty: the one that the heading has.
    columns: of a table without a heading.
    comment: what the lines before the heading begin with.
    quotes: whether a field may be in quotes.
    ended: whether the last field, too, is followed by the delimiter (RRF).
    sheet: of a workbook; empty: the first.
    """

    encoding: str = "utf-8"
    delimiter: str = ""
    columns: tuple[str, ...] = ()
    comment: str = ""
    quotes: bool = True
    ended: bool = False
    sheet: str = ""


def form_of(path: Path) -> str:
    """The ending of a file's name, without that of its compression, in lower case."""
    return Path(unpacked_name(path)).suffix.lower()


def parse_delimiter(text: str) -> str:
    """A delimiter by its name (tab, comma, semicolon, pipe) or as it is. Raises InputError for more
    than one character."""
    delimiter = DELIMITERS.get(text.lower(), text)
    if len(delimiter) > 1 or delimiter in ('"', "\n", "\r"):
        raise InputError(
            f"--delimiter {text}: expected one character, or tab, comma, semicolon or pipe"
        )
    return delimiter


def is_utf_16(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name.startswith("utf-16")
    except LookupError:
        return False


def check_table_encoding(encoding: str) -> None:
    """Raise InputError for an encoding that no table is read in."""
    if not is_utf_16(encoding):
        check_encoding(encoding)


def text_lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its end); also of UTF-16. Raises InputError as
    core.reading.lines does."""
    with open_input(path) as handle:
        marked = handle.read(2) in UTF_16_MARKS
    if not marked and not is_utf_16(encoding):
        yield from lines(path, encoding)
        return
    number = 0
    codec = "utf-16" if marked else encoding
    with open_input(path, lambda: f"{path}:{number + 1}") as handle:
        text = io.TextIOWrapper(handle, codec)  # type: ignore[arg-type]
        try:
            while line := text.readline(largest_document() + 1):
                number += 1
                if len(line) > largest_document():
                    raise too_large(f"{path}:{number}", "a line")
                yield number, line.rstrip("\n").removeprefix("\ufeff" if number == 1 else "")
        except UnicodeError as error:
            raise InputError(
                f"{path}:{number + 1}: not UTF-16 text ({error}). Convert the file to UTF-8."
            ) from error


def find_delimiter(path: Path, heading: str) -> str:
    """The delimiter of a heading: a tab where it has one, else the most frequent of comma,
    semicolon and bar; where it has none, that of the file's ending."""
    if "\t" in heading:
        return "\t"
    usual = "," if form_of(path) == ".csv" else "\t"
    counts = {mark: heading.count(mark) for mark in ",;|"}
    most = max(counts, key=lambda mark: counts[mark])
    return most if counts[most] else usual


def _fields(line: str) -> list[str]:
    """The fields between tabs; one that is in quotes as a whole loses them. Other quotes are
    characters."""
    if '"' not in line:
        return line.split("\t")
    try:
        return next(csv.reader([line], delimiter="\t", strict=True))
    except csv.Error:  # a quotation mark that is a character of its field
        return line.split("\t")


def _content(path: Path, form: Form) -> Iterator[tuple[int, str]]:
    """The lines of a table from its heading on: without comments and blank lines before it."""
    begun = False
    for number, line in text_lines(path, form.encoding):
        if not begun and (not line.strip() or (form.comment and line.startswith(form.comment))):
            continue
        begun = True
        yield number, line


def _delimiter_of(path: Path, form: Form) -> str:
    if form.delimiter:
        return form.delimiter
    heading = next((line for _, line in _content(path, form)), "")
    if form.columns:  # no heading: a name may contain any mark
        return "," if form_of(path) == ".csv" else "\t"
    return find_delimiter(path, heading)


def _records(path: Path, form: Form) -> Iterator[tuple[int, list[str]]]:
    """(line that it begins at, fields) of every record, the heading included; blank lines are left
    out. Raises InputError for broken quotes."""
    delimiter = _delimiter_of(path, form)
    content = _content(path, form)
    if not form.quotes or delimiter == "\t":
        for number, line in content:
            if line.strip():
                yield number, _fields(line) if form.quotes else line.split(delimiter)
        return
    at = 0

    def text() -> Iterator[str]:
        nonlocal at
        for at, line in content:  # noqa: B007 - used in errors
            yield line + "\n"

    start = 0
    reader = csv.reader(text(), delimiter=delimiter, strict=True)
    try:
        for values in reader:
            begin, start = start + 1 if start else at, at
            if any(value.strip() for value in values):
                yield begin, values
    except csv.Error as error:
        raise InputError(f"{path}:{start + 1}: not valid CSV ({error}). Fix the line.") from error


def check_heading(where: str, values: Sequence[str]) -> tuple[str, ...]:
    """The columns of a heading, a leading `#` left out. Raises InputError for a name that occurs
    twice."""
    columns = tuple(value.strip() for value in values)
    if columns:
        columns = (columns[0].removeprefix("#").strip() or columns[0], *columns[1:])
    counts = Counter(columns)
    twice = next((column for column in columns if column and counts[column] > 1), None)
    if twice is not None:
        raise InputError(f"{where}: the column {twice!r} occurs twice. Rename one of the two.")
    return columns


def _delimited_rows(path: Path, form: Form, problems: Problems) -> Iterator[Row]:
    columns = form.columns
    for number, values in _records(path, form):
        where = f"{path}:{number}"
        if not columns:
            columns = check_heading(where, values)
            continue
        if form.ended and values and not values[-1]:
            values = values[:-1]
        if len(values) != len(columns):
            problems.add(
                f"{where}: expected {len(columns)} columns ({', '.join(columns):.200}), got"
                f" {len(values)}. Fix the line."
            )
            continue
        yield where, dict(zip(columns, values, strict=True))


def begins_with_array(path: Path) -> bool:
    """Whether JSON is one array, as Wikidata's dumps are, instead of an object a line."""
    with open_bytes(path) as handle:
        return handle.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["


def _json_rows(path: Path, form: Form) -> Iterator[Row]:
    if form_of(path) == ".json" or begins_with_array(path):
        yield from json_records(path, form.encoding)
    else:
        yield from json_lines(path, form.encoding, "Fix the line.")


def _sheet(path: Path, form: Form) -> list[list[str]]:
    """The rows of a sheet of a workbook, every cell as text. Raises InputError for a file that is
    no workbook or is too large, and for a sheet that it lacks."""
    import pandas

    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(part.file_size for part in packed.infolist())
        if size > WHOLE:
            raise InputError(
                f"{path}: a workbook of more than {WHOLE >> 20} MiB. Save the sheet as CSV."
            )
        book = pandas.ExcelFile(path, engine="openpyxl")
        names = [str(name) for name in book.sheet_names]
        if form.sheet and form.sheet not in names:
            raise InputError(f"{path}: no sheet {form.sheet!r}; {list_known(form.sheet, names)}")
        cells = book.parse(
            form.sheet or names[0], header=None, dtype=str, keep_default_na=False, na_values=[]
        )
    except InputError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, FileNotFoundError):
            raise InputError(f"{path}: no such file or folder. Check the path.") from error
        raise InputError(
            f"{path}: no workbook that can be read ({error!s:.200}). Save the sheet as CSV."
        ) from error
    return [["" if cell is None else str(cell) for cell in row] for row in cells.values.tolist()]


def tell_sheets(path: Path, form: Form) -> str:
    """Which sheet of a workbook is read, and which others there are; empty for another file."""
    if form_of(path) != WORKBOOK:
        return ""
    import openpyxl

    names = openpyxl.load_workbook(path, read_only=True).sheetnames
    others = ", ".join(name for name in names if name != (form.sheet or names[0]))
    if not others:
        return ""
    return f" Read is the sheet {form.sheet or names[0]!r}; --sheet takes another: {others}."


def sheet_rows(path: Path, form: Form) -> Iterator[Row]:
    """(path:line, {column: field}) of a sheet of a workbook, under its heading."""
    columns = form.columns
    for number, values in enumerate(_sheet(path, form), 1):
        where = f"{path}:{number}"
        if not any(value.strip() for value in values):
            continue
        if not columns:
            columns = check_heading(where, values)
        else:
            yield where, dict(zip(columns, values, strict=False))


def read_heading(path: Path, form: Form) -> tuple[str, ...]:
    """The columns of a table; none of an empty one and of JSON. Raises InputError for a column that
    occurs twice."""
    if form.columns or form_of(path) in JSON:
        return form.columns
    if form_of(path) == WORKBOOK:
        rows = enumerate(_sheet(path, form), 1)
        filled = ((number, values) for number, values in rows if any(map(str.strip, values)))
    else:
        filled = _records(path, form)  # type: ignore[assignment]
    number, values = next(filled, (1, []))
    return check_heading(f"{path}:{number}", values)


def read_rows(path: Path, form: Form, problems: Problems) -> Iterator[Row]:
    """(path:line, {column: field}) of a table, in order; the values of JSON are as they are.

    A row with too few or too many fields is added to `problems`. Raises InputError where the file
    cannot be read on.
    """
    if form_of(path) in JSON:
        yield from _json_rows(path, form)
    elif form_of(path) == WORKBOOK:
        yield from sheet_rows(path, form)
    else:
        yield from _delimited_rows(path, form, problems)
