"""A document, its mentions, and the check of a mention in a file."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from core.files import InputError
from core.reading import Span, excerpt, unpacked_name

Source = Path | Span  # of documents
NO_ENTITY = "annotations without an entity"
DISCONTINUOUS = "gaps in discontinuous mentions, which are kept from first to last character"
NOT_FITTING = "annotations that do not fit the text"
OVERLAPPING = "mentions that overlap a longer one"
#: what a text may say of a mention
ATTRIBUTES = ("negated", "family", "historical", "hypothetical")


class Mention(NamedTuple):
    """`text[start:end]` names `entity` (an id of the graph; "" of a mention without one); `score`
    in (0, 1]; `type` as its file has it, "" without one; `attributes`: those of ATTRIBUTES that its
    file says hold."""

    start: int
    end: int
    entity: str
    score: float = 1.0
    type: str = ""
    attributes: tuple[str, ...] = ()


def attributes_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The ATTRIBUTES that hold by their values in a file: true, or the word."""
    return tuple(name for name in ATTRIBUTES if str(values.get(name)).lower() == "true")


class Document(NamedTuple):
    """A text with the mentions in its file, and those that have no entity there (`unlinked`);
    `where` is the file and line it began at."""

    id: str
    text: str
    mentions: tuple[Mention, ...] = ()
    where: str = ""
    unlinked: tuple[Mention, ...] = ()


class Layout(NamedTuple):
    """How documents are cut out of files whose format leaves it open.

    document            of plain text: a file, a paragraph (blank lines part them), or a line
    id_field, text_field  names of JSON keys or of a table's columns; None: the usual ones
    roots               folders that were given: ids of files in them are paths inside them
    """

    document: Literal["file", "paragraph", "line"] = "line"
    id_field: str | None = None
    text_field: str | None = None
    roots: tuple[str, ...] = ()

    def name_file(self, path: Path) -> str:
        """The id of a file: its path inside the folder that was given, or its name; without
        endings that are formats' or compressions'."""
        name = unpacked_name(path)
        stem = name.rpartition(".")[0] or name
        inside = [root for root in self.roots if path.is_relative_to(root)]
        if not inside:
            return stem or path.name
        place = path.parent.relative_to(max(inside, key=len)).as_posix()
        return stem if place == "." else f"{place}/{stem}"


#: a document a line, the usual names of fields
BY_LINE = Layout()


@contextlib.contextmanager
def counted_unless_used(left_out: Counter[str], used: bool) -> Iterator[None]:
    """A block that reads an annotation: its InputError is raised where annotations are `used`, else
    counted in `left_out`."""
    try:
        yield
    except InputError:
        if used:
            raise
        left_out[NOT_FITTING] += 1


def checked_mention(
    where: str, text: str, start: Any, end: Any, entity: Any, surface: Any = None, score: Any = 1.0
) -> Mention:
    """A mention inside `text` and covers `surface` (None: anything). Raises InputError where it
    does not.

    Punctuation and case may differ: the NCBI disease corpus has blanks for quotation marks there.
    """
    if type(start) is not int or type(end) is not int:
        raise InputError(
            f"{where}: expected whole numbers as the start and end of a mention, got"
            f" {excerpt(start)} and {excerpt(end)}. Give offsets in characters, end exclusive."
        )
    if not 0 <= start < end <= len(text):
        raise InputError(
            f"{where}: mention [{start}, {end}) is outside its text of {len(text)} characters. "
            "Give offsets in characters, end exclusive."
        )
    if not isinstance(entity, str) or not entity:
        raise InputError(
            f"{where}: mention [{start}, {end}): expected an entity id, a string, got {entity!r}."
        )
    if surface is not None and not isinstance(surface, str):
        raise InputError(
            f"{where}: mention [{start}, {end}): expected its text, a string, got"
            f" {excerpt(surface)}."
        )
    if (
        surface is not None
        and text[start:end] != surface
        and _letters(text[start:end]) != _letters(surface)
    ):
        raise InputError(
            f"{where}: mention [{start}, {end}) covers {text[start:end]!r}, the file says"
            f" {surface!r}. Offsets count characters of the whole text from 0."
        )
    if type(score) not in (int, float) or not 0 < score <= 1:
        raise InputError(
            f"{where}: mention [{start}, {end}): expected a score in (0, 1], got {score!r}."
        )
    return Mention(start, end, entity, float(score))


def _letters(text: str) -> str:
    return "".join(c if c.isalnum() else " " for c in text).casefold()


def make_document(
    name: str, text: str, mentions: Iterable[Mention], where: str, left_out: Counter[str]
) -> Document:
    """A document with its mentions, those without an entity apart and counted."""
    in_order = sorted(mentions, key=lambda m: (m.start, m.end))
    unlinked = tuple(m for m in in_order if not m.entity)
    left_out[NO_ENTITY] += len(unlinked)
    return Document(name, text, tuple(m for m in in_order if m.entity), where, unlinked)
