"""Readers of the formats that several task suites use: BIO tables, PubTator, JSON
records, TSV.

A reader accepts the path of one split and returns its examples (:mod:`datamodules.tasks`). Every
line that cannot be read raises InputError `path:line: what was wanted`. What can be read but is odd
is counted in `found`, a Counter {what it is: how often} that the caller prints; nothing is left out
without being counted there.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from core.files import InputError
from core.reading import excerpt, lines
from datamodules.tasks import Pair, Tagged, count_overlapping
from kg.documents.pubtator import pubtator_annotations

OPENED = "an I tag after O or after another type, taken as the start of an entity"
COLUMNS = (
    "lines with more columns than a unit and its tag, of which the first and the last are taken"
)
OVERLAP = "entities that overlap one before them"


class NoLabels(InputError):
    """A file of a shared task's test split: its texts are given, their labels are not."""


def _counter(counts: Counter[str] | None) -> Counter[str]:
    return Counter() if counts is None else counts


def some(examples: list[Any], path: Path) -> list[Any]:
    """`examples`, unless there are none. Raises InputError for an empty file."""
    if not examples:
        raise InputError(
            f"{path}: no examples in this file; expected at least one. The file may be cut: fetch"
            " it again."
        )
    return examples


def stem(path: Path) -> str:
    """A file's name without its ending (and .gz): medQA.train of medQA.train.txt."""
    return path.name.removesuffix(".gz").rpartition(".")[0] or path.name


def line_id(path: Path, where: str) -> str:
    """An example's id: its file's name without its ending, and the line that it begins at (`where`
    is path:line)."""
    return f"{stem(path)}:{where.rpartition(':')[2]}"


def group(text: str) -> str:
    """A short name of a text; examples that share it must not be split between training and
    selection."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# BIO tables


def bio(
    path: Path,
    *,
    tokens: bool,
    counts: Counter[str] | None = None,
    merged: str | None = None,
    encoding: str = "utf-8",
) -> list[Tagged]:
    """A unit and its tag on each line, a blank line between texts.

    Unit and tag are split at the last blank or tab of the line, because a unit may itself be a
    space of any kind (U+3000, NBSP). Of more than two columns (CoNLL) the first is the unit and the
    last its tag. Tags are O, B-type, I-type; B_type and I_type too; with `merged`, a type that
    replaces all types, also B and I. An I after O or after another type opens an entity, as in
    conlleval, and is counted in `counts`.
    tokens: True for words, joined by one blank, with their offsets as `words`; False for single
        characters.
    A text is its own document, unless lines -DOCSTART- or ###MEDLINE:id begin documents.
    """
    counts, texts = _counter(counts), []
    block: list[tuple[str, str, str | None]] = []
    document, first = None, 0
    kind = "a token" if tokens else "one character"

    def end() -> None:
        if block:
            texts.append(_make_tagged(f"{stem(path)}:{first}", document, block, tokens, counts))
            block.clear()

    for number, line in lines(path, encoding, mark=True):  # the mark may be a unit itself
        line = line.removeprefix("\ufeff") if number == 1 and len(line) > 3 else line
        if not line.strip(" \t"):
            end()
            continue
        if tokens and line.startswith(("-DOCSTART-", "###MEDLINE:")):
            end()
            document = line if line.startswith("#") else f"{stem(path)}:{number}"
            continue
        cut = max(line.rfind(" "), line.rfind("\t"))
        unit, tag = line[:cut], line[cut + 1 :]
        columns = line.split("\t" if "\t" in line else " ")
        if len(columns) > 2 and all(columns):
            unit = columns[0]
            counts[COLUMNS] += 1
        match = re.fullmatch(r"(O)|([BI])(?:[-_](.+))?", tag)
        if cut < 1 or "\t" in unit[1:] or "\r" in line or (not tokens and len(unit) != 1):
            raise InputError(
                f"{path}:{number}: expected {kind}, a {'tab' if tokens else 'blank'} and its tag, "
                f"got {excerpt(line)}. Fix the line or fetch the file again."
            )
        if match is None or (match[2] and not match[3] and merged is None):
            raise InputError(
                f"{path}:{number}: expected a tag O, B-type or I-type (B_type and I_type too), "
                f"got {excerpt(tag)}. Convert other schemes (BIOES, IO) to BIO."
            )
        if not block:
            first = number
        block.append((unit, match[2] or "O", merged or match[3] if match[2] else None))
    end()
    return some(texts, path)


def _make_tagged(
    name: str,
    document: str | None,
    block: list[tuple[str, str, str | None]],
    tokens: bool,
    counts: Counter[str],
) -> Tagged:
    words: list[tuple[int, int]] = []
    entities: list[tuple[int, int, str]] = []
    at, last = 0, None
    for unit, letter, kind in block:
        words.append((at, at + len(unit)))
        if kind is not None:
            if letter == "I" and last == kind:
                entities[-1] = (entities[-1][0], at + len(unit), kind)
            else:
                counts[OPENED] += letter == "I"
                entities.append((at, at + len(unit), kind))
        at, last = at + len(unit) + tokens, kind
    text = (" " if tokens else "").join(unit for unit, _, _ in block)
    return Tagged(name, document or name, text, entities, words if tokens else None)


# documents with offsets


def _count_overlaps(examples: list[Tagged], counts: Counter[str]) -> None:
    if count := sum(count_overlapping(e.entities) for e in examples):
        counts[OVERLAP] += count


def pubtator(
    path: Path,
    *,
    counts: Counter[str] | None = None,
    merged: str | None = None,
    encoding: str = "utf-8",
) -> list[Tagged]:
    """PubTator documents with the type of every mention, those without an entity id too; `merged`
    replaces all types."""
    counts = _counter(counts)
    texts = []
    for _, name, text, mentions in pubtator_annotations(path, encoding, counts):
        entities = {(a.start, a.end, merged or a.type) for a in mentions}
        texts.append(Tagged(name, name, text, sorted(entities)))
    _count_overlaps(texts, counts)
    return some(texts, path)


# JSON


def text_at(where: str, record: dict[str, Any], key: str) -> str:
    """The string under `key`. Raises InputError when it is missing, of another type or blank."""
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise InputError(
            f"{where}: expected a text under {key!r}, got {excerpt(value)}. Fix the record."
        )
    return value


# tables of pairs


def table(
    path: Path, columns: int, what: str, encoding: str = "utf-8"
) -> Iterator[tuple[str, list[str]]]:
    """(path:line, values) of a tab-separated table; quotation marks are characters like any
    other."""
    for number, line in lines(path, encoding):
        values = line.split("\t")
        if len(values) != columns or "\r" in line:
            got = "a carriage return inside" if "\r" in line else f"{len(values)} columns in"
            raise InputError(
                f"{path}:{number}: expected {what}, separated by tabs, got {got} {excerpt(line)}. "
                "Fix the line or fetch the file again."
            )
        yield f"{path}:{number}", values


def pairs(
    path: Path,
    *,
    counts: Counter[str] | None = None,
    labels: Container[str] | None = ("0", "1"),
    encoding: str = "utf-8",
    what: str = "label, first text, second text",
) -> list[Pair]:
    """Rows label, first text, second text (a question and an answer); `document` is of the first
    text.

    WebMedQA's own rows have five columns, of which the second is the label, the fourth the question
    and the fifth the answer; the first line says which form a file has.
    """
    result = []
    wide = next(lines(path, encoding), (0, ""))[1].count("\t") == 4
    for where, values in table(
        path, 5 if wide else 3, f"department, label, id, {what[7:]}" if wide else what, encoding
    ):
        label, first, second = (values[1], *values[3:]) if wide else values
        check_label(where, label, labels)
        if not first.strip() or not second.strip():
            raise InputError(
                f"{where}: expected {what}, got an empty text. Fix the line or remove it."
            )
        result.append(Pair(line_id(path, where), group(first), first, second, label))
    return some(result, path)


def check_label(where: str, label: Any, labels: Container[str] | None) -> str:
    """`label`, if it is one of `labels` (None: any word). Raises InputError otherwise."""
    if (
        not isinstance(label, str)
        or not label.strip()
        or (labels is not None and label not in labels)
    ):
        wanted = "a label" if labels is None else f"a label, one of {', '.join(labels)}"  # type: ignore[arg-type]
        raise InputError(
            f"{where}: expected {wanted}, got {excerpt(label)}. Fix the line or fetch the"
            " file again."
        )
    return label


# markers


def mark_spans(text: str, spans: list[tuple[int, int, str, str]]) -> str:
    """`text` with the opening and closing marker of each (start, end, opening, closing) put around
    its span.

    Spans may be nested, equal or crossing; markers that meet at one place nest as far as the spans
    do.
    """
    marks = []
    for rank, (start, end, opening, closing) in enumerate(spans):
        # at one place: closing before opening, the longer opens first
        marks.append((start, 1, -end, rank, opening))
        marks.append((end, 0, -start, -rank, closing))  # and the shorter closes first
    for place, _, _, _, mark in sorted(marks, reverse=True):
        text = text[:place] + mark + text[place:]
    return text
