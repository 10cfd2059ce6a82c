"""Ids of an output's records: how often one comes again, and which a format cannot keep apart."""

from __future__ import annotations

import json.decoder
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from core.files import InputError

START = '{"id": "'  #: of every record


class Counted(NamedTuple):
    """Records with an id that an earlier one has, and ids that are one when `written`."""

    repeated: int
    alike: int


class IdCounter:
    """Counts ids in bounded memory: 16 bytes each. written: an id as the format has it."""

    def __init__(self, written: Callable[[str], str]) -> None:
        self.written = written
        self.ids, self.forms = array("q"), array("q")

    def add(self, name: str) -> None:
        self.ids.append(hash(name))
        self.forms.append(hash(self.written(name)))

    def count(self) -> Counted:
        different, forms = (len(np.unique(np.array(own))) for own in (self.ids, self.forms))
        return Counted(len(self.ids) - different, different - forms)


def record_ids(parts: Sequence[Path]) -> Iterator[str]:
    """The ids of the records in files of JSON lines, which begin with their ids."""
    for path in parts:
        with open(path, encoding="utf-8") as handle:
            for line in handle:
                yield json.decoder.scanstring(line, len(START))[0]


def check_ids(
    parts: Sequence[Path],
    written: Callable[[str], str],
    places: Callable[[], Iterable[tuple[str, str]]],
) -> int:
    """The number of records with an id that an earlier record has.

    places: (id, file and line) of the inputs' documents. Raises InputError where two ids are one in
    the format.
    """
    counter = IdCounter(written)
    for name in record_ids(parts):
        counter.add(name)
    counted = counter.count()
    if counted.alike:
        first, second = _first_alike(written, places())
        raise InputError(
            f"{second[1]}: the id {second[0]!r} is written as that of {first[1]}, {first[0]!r}:"
            f" {written(second[0])!r}. Give another format (--to jsonl), or other ids; what is"
            " done is kept."
        )
    return counted.repeated


def _first_alike(
    written: Callable[[str], str], places: Iterable[tuple[str, str]]
) -> tuple[tuple[str, str], tuple[str, str]]:
    """The first two (id, place) whose ids differ and are written alike."""
    known: dict[str, tuple[str, str]] = {}
    for name, place in places:
        before = known.setdefault(written(name), (name, place))
        if before[0] != name:
            return before, (name, place)
    raise AssertionError("the inputs have other ids than their records")
