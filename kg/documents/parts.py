"""Inputs in parts that several processes read: the plan of a run, which a resumed one keeps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from core.executor import Part
from core.files import InputError
from core.json_files import read_json, write_json
from core.reading import Span, sha256, spans
from kg.documents.formats import LINES, resolve_format
from kg.documents.mentions import BY_LINE, Layout

INPUTS = "inputs.json"  # the name of a plan


def part_name(number: int) -> str:
    return f"part-{number:05d}.jsonl"


class Plan(NamedTuple):
    """Files and their parts, each a list of (number of a file, what a Span of it holds).

    files: the path of each; checksums: its SHA-256, by which it is known again
    """

    files: list[str]
    format: str | None
    size: int
    checksums: list[str]
    parts: list[list[list[Any]]]

    def check_unchanged(self) -> None:
        """Raise InputError where a file is another by now than the plan was made for: it changed
        while it was read."""
        for name, checksum in zip(self.files, self.checksums, strict=True):
            if not os.path.isfile(name) or sha256(name) != checksum:
                raise InputError(
                    f"{name}: changed while it was read. Run the command again, with --fresh, once"
                    " nothing writes it."
                )

    def save(self, folder: Path) -> list[Part]:
        """The parts, for an executor; :func:`make_plan` finds the plan in `folder` from now on."""
        write_json(folder / INPUTS, self._asdict())
        return self.make_parts()

    def make_parts(self) -> list[Part]:
        parts = []
        for number, part in enumerate(self.parts):
            spans = [Span(Path(self.files[file]), *rest) for file, *rest in part]
            key = json.dumps([[self.checksums[file], *rest] for file, *rest in part])
            parts.append(Part(part_name(number), spans, key))
        return parts


@dataclass(frozen=True, kw_only=True)
class InParts:
    """Work in parts, and who does it.

    Args:
        workers: Processes. Default: one a core.
        part_size: Bytes of input in a part, about; a compressed file or one of XML is never cut.
        engine: Where parts are made: processes, or ray.

    Raises InputError for fewer than one worker, and for parts without a byte.
    """

    workers: int | None = None
    part_size: int = 4 << 20
    engine: str | None = None

    def __post_init__(self) -> None:
        if self.processes < 1 or self.part_size < 1:
            raise InputError(
                f"expected at least one worker and one byte in a part, got {self.processes} and"
                f" {self.part_size}"
            )

    @property
    def processes(self) -> int:
        """`workers`, or one a core."""
        return len(os.sched_getaffinity(0)) if self.workers is None else self.workers


def make_plan(
    folder: Path,
    paths: Sequence[Path],
    format: str | None,
    size: int,
    layout: Layout = BY_LINE,
    kind_of: Callable[[Path], str] | None = None,
) -> Plan:
    """The plan for `paths` in parts of about `size` bytes; kind_of: the format of a path, where it
    is not that of :func:`resolve_format`.

    Its parts are those of the plan in `folder` where the files are still the same, by their
    checksums, and are read alike.
    """
    files = [str(path) for path in paths]
    checksums = [sha256(path) for path in paths]
    stored = read_json(folder / INPUTS) if (folder / INPUTS).is_file() else {}
    read_as = f"{format or 'by name'}, {layout.document}"
    plan = Plan(files, read_as, size, checksums, stored.get("parts", []))
    if plan._asdict() == stored:
        return plan
    number = {path: place for place, path in enumerate(paths)}
    parts = []
    for part in parts_of(paths, size, kind_of or partial(resolve_format, format, layout)):
        parts.append([[number[path], *rest] for path, *rest in part])
    return plan._replace(parts=parts)


def parts_of(
    paths: Iterable[Path], size: int, kind_of: Callable[[Path], str]
) -> Iterator[list[Span]]:
    """`paths` in parts of about `size` bytes: several small files, one, or a span of a large one
    whose format, `kind_of` the path, allows it."""
    part: list[Span] = []
    room = size
    for path in paths:
        kind = kind_of(path)
        for span in spans(path, size, LINES[kind]) if kind in LINES else [Span(path)]:
            if room <= 0:
                yield part
                part, room = [], size
            part.append(span)
            room -= (path.stat().st_size if span.end is None else span.end) - span.begin
    if part:
        yield part
