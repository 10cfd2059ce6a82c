"""Short forms that a text defines itself, among the matches of its names."""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from kg.linking.normal import NO_DIFFERENCE, Difference
from kg.linking.passage import Passage
from kg.linking.tokens import words
from kg.linking.words import FUNCTION_WORDS

# short forms of a text above which its words are gone through once, not once for each
MANY_FORMS = 16
NO_INDEX = -1


class Meaning(NamedTuple):
    """The entity (its index) of a surface, how the surface differs from its name, and entities that
    fit as well."""

    entity: int
    difference: Difference = NO_DIFFERENCE
    others: tuple[int, ...] = ()
    by_case: bool = False  # whether the name only matches in its own case


# First word and last word of a passage, the entity's index (-1: none), and the meaning where the
# words are no plain name.
Match = tuple[int, int, int, Meaning | None]


def replace_matches(matches: list[Match], short_forms: list[Match]) -> list[Match]:
    """`matches` with the short forms in place of those they cut or cover; a longer match over one
    stays."""
    if not short_forms:
        return matches
    taken: set[int] = set()  # words
    remaining = []
    for match in short_forms:
        first, last = match[:2]
        over = bisect_right(matches, first, key=itemgetter(0)) - 1
        start, end = matches[over][:2] if over >= 0 else (-1, -1)
        if not (start < first <= end or (start == first and end > last)) and first not in taken:
            remaining.append(match)
            taken.update(range(first, last + 1))
    rest = [m for m in matches if m[0] not in taken and m[1] not in taken]
    return sorted(rest + remaining, key=itemgetter(0))


def match_short_forms(passage: Passage, matches: list[Match]) -> Iterator[Match]:
    """The places of the short forms that a passage defines, with the meaning of their long forms,
    or None."""
    forms, starts = passage.short_forms, passage.starts
    for form, first, last in sorted(
        _places_of(passage, list(forms.definitions)), key=itemgetter(1)
    ):
        if passage.text.startswith(form, starts[first]):
            definition = forms.meaning(form, starts[first])
            if form.lower() in FUNCTION_WORDS and passage.is_capitals(starts[first]):
                continue  # "ALL PATIENTS" in a text of acute lymphoblastic leukemia (ALL)
            if definition is not None:
                yield first, last, *_meaning_of(passage, matches, definition.long)


def _places_of(passage: Passage, forms: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """(short form, first word, last word) of the places whose words are those of a short form."""
    tokens = passage.words
    # first word -> short forms that begin with it, and their words
    pieces_of: dict[str, list[tuple[str, list[str]]]] = {}
    for form in forms:
        pieces = [form.lower()] if form.isascii() and form.isalnum() else words(form)
        pieces_of.setdefault(pieces[0], []).append((form, pieces))
        if len(pieces) == 1 and f"{form}s" in passage.text:  # "MIs" of several MI
            pieces_of.setdefault(f"{pieces[0]}s", []).append((f"{form}s", [f"{pieces[0]}s"]))
    if len(pieces_of) > MANY_FORMS:
        begins: Iterable[int] = range(len(tokens))
    else:
        begins = (place for word in pieces_of for place in _indices_of(tokens, word))
    for first in begins:
        for form, pieces in pieces_of.get(tokens[first], ()):
            if tokens[first : first + len(pieces)] == pieces:
                yield form, first, first + len(pieces) - 1


def _indices_of(tokens: list[str], word: str) -> Iterator[int]:
    place = -1
    with contextlib.suppress(ValueError):
        while True:
            place = tokens.index(word, place + 1)
            yield place


def _meaning_of(
    passage: Passage, matches: list[Match], long: tuple[int, int]
) -> tuple[int, Meaning | None]:
    """(entity, meaning) of the match that ends where a long form ends and covers it; (-1, None)
    where there is none."""
    over = bisect_right(matches, bisect_left(passage.starts, long[1]) - 1, key=itemgetter(0)) - 1
    if over < 0:
        return NO_INDEX, None
    first, last, entity, meant = matches[over]
    end = passage.starts[last] + len(passage.words[last])
    return (
        (entity, meant) if passage.starts[first] <= long[0] and end == long[1] else (NO_INDEX, None)
    )
