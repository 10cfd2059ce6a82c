"""Ids of an output's records: how often one comes again, and which a format cannot keep apart."""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from core.files import InputError

LOG = logging.getLogger(__name__)
START = '{"id": '  #: of every record


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
        different, forms = (len(np.unique(np.array(values))) for values in (self.ids, self.forms))
        return Counted(len(self.ids) - different, different - forms)


def record_ids(parts: Sequence[Path]) -> Iterator[str]:
    """The ids of the records in files of JSON lines, which begin with their ids."""
    decoder = json.JSONDecoder()
    for path in parts:
        with open(path, encoding="utf-8") as handle:
            for line in handle:
                yield decoder.raw_decode(line, len(START))[0]


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
        different = DifferentIds(written)
        for name, place in places():
            different.check(name, place)
    return counted.repeated


def warn_of_repeated(output: str | Path, repeated: int) -> None:
    """Say how many documents of an output have the id of an earlier one."""
    if repeated:
        LOG.warning(f"{output}: {repeated:,} documents have the id of an earlier document")


class DifferentIds:
    """Refuses ids that differ, and are one when `written`."""

    def __init__(self, written: Callable[[str], str]) -> None:
        self.written = written
        self.known: dict[str, tuple[str, str]] = {}

    def check(self, name: str, place: str) -> None:
        """Raise InputError for an id that is written as another one was; place: file and line."""
        first, before = self.known.setdefault(self.written(name), (name, place))
        if first != name:
            raise InputError(
                f"{place}: the id {name!r} is written as that of {before}, {first!r}:"
                f" {self.written(name)!r}. Give another format (--to jsonl), or other ids; what is"
                " done is kept."
            )
