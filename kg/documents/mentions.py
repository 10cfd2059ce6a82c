"""A document, its mentions, and the check of a mention in a file."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from core.files import InputError

NOT_FITTING = "annotations that do not fit the text"


class Mention(NamedTuple):
    """`text[start:end]` names `entity` (an id of the graph); `score` in (0, 1]."""

    start: int
    end: int
    entity: str
    score: float = 1.0


class Document(NamedTuple):
    """A text with the mentions in its file; `where` is the file and line it began at."""

    id: str
    text: str
    mentions: tuple[Mention, ...] = ()
    where: str = ""


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

    Punctuation may differ: the NCBI disease corpus has blanks for quotation marks there.
    """
    if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
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
            f"{where}: mention [{start}, {end}): expected its text, a string, got {surface!r:.60}."
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
    return "".join(c if c.isalnum() else " " for c in text)
