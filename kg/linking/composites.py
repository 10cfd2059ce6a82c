"""Mentions that name several things in one phrase: "breast and ovarian cancer".

A rule expands the phrase; a split is made only where every part is a name of the dictionary and the whole is none. A tagger
finds the phrase as a whole; of names found in a text, :func:`widen` looks for the phrase around each.

>>> names = {"breast cancer", "ovarian cancer", "hepatitis b", "hepatitis c"}
>>> parts_of("breast and ovarian cancer", names.__contains__)
['breast cancer', 'ovarian cancer']
>>> text = "breast or ovarian cancer, hepatitis b and c"
>>> [text[a:b] for a, b in widen(text, [(10, 24), (26, 37)], names.__contains__)]
['breast or ovarian cancer', 'hepatitis b and c']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

_BETWEEN = re.compile(r"\s*,\s*(?:(?:and|or|and/or)\s+)?|\s+(?:and|or|and/or|&)\s+|\s*/\s*")
MOST = 8  #: conjuncts: longer enumerations are left whole


def expansions(mention: str) -> Iterator[list[str]]:
    """Ways to read a coordination, each a list of phrases: with a shared end, with a shared beginning, as it is written.

    "breast and ovarian cancer": [breast cancer, ovarian cancer], [breast, ovarian cancer] last, since
    "breast" may be a name, too. Shorter shared parts come first.
    """
    conjuncts = [part for part in _BETWEEN.split(mention) if part]
    if not 2 <= len(conjuncts) <= MOST:
        return
    last = conjuncts[-1].split()
    for shared in range(len(last) - 1, 0, -1):
        end = " ".join(last[shared:])
        yield [*(f"{part} {end}" for part in conjuncts[:-1]), conjuncts[-1]]
    first = conjuncts[0].split()
    for shared in range(1, len(first)):
        beginning = " ".join(first[:shared])
        yield [conjuncts[0], *(f"{beginning} {part}" for part in conjuncts[1:])]
    yield conjuncts


def parts_of(mention: str, known: Callable[[str], bool]) -> list[str]:
    """The phrases that a composite mention combines.

    The mention alone where it is known itself, and where no reading has known parts only.
    """
    if known(mention):
        return [mention]
    for parts in expansions(mention):
        if len(set(parts)) > 1 and all(map(known, parts)):
            return list(dict.fromkeys(parts))
    return [mention]


CONJUNCTION = re.compile(r"\b(?:and|or)\b|[&/]")  #: a text without it has no composite mention
NEAR = 80  #: characters beside a name in which the rest of a phrase is looked for
_WORD = r"[\w'-]+"
_JOIN = r"(?:[ \t]*,?\s+(?:and|or|and/or|&)\s+|[ \t]*/[ \t]*)"
_LEFT = re.compile(rf"((?:{_WORD}[ \t]+){{0,2}}{_WORD}){_JOIN}\Z")
_RIGHT = re.compile(rf"{_JOIN}({_WORD}(?:[ \t]+{_WORD})?)(?![\w'-])")
_MORE_LEFT = re.compile(rf"((?:{_WORD}[ \t]+){{0,2}}{_WORD})[ \t]*,\s+\Z")


def widen(
    text: str,
    mentions: Sequence[tuple[int, int]],
    known: Callable[[str], bool],
    covers: Callable[[int, int], bool] = lambda own, other: False,
) -> list[tuple[int, int]]:
    """The places of names, those that are the end or the beginning of a composite mention with its place.

    covers(own, other): whether the phrase around the one mention (by number) may cover the other.
    """
    places = []
    for number, (start, end) in enumerate(mentions):
        low, high = max(start - NEAR, 0), min(end + NEAR, len(text))
        if number and not covers(number, number - 1):
            low = max(low, min(mentions[number - 1][1], start))
        if number + 1 < len(mentions) and not covers(number, number + 1):
            high = min(high, max(mentions[number + 1][0], end))
        places.append(_widest(text, (start, end), low, high, known))
    return places


def _widest(
    text: str, place: tuple[int, int], low: int, high: int, known: Callable[[str], bool]
) -> tuple[int, int]:
    """The composite mention around a place, between `low` and `high`; the place itself where there is none."""
    start, end = place
    pattern = _LEFT
    while (new := _wider_start(text, (start, end), low, pattern, known)) is not None:
        start, pattern = new, _MORE_LEFT
    if start == place[0] and (right := _wider_end(text, place, high, known)) is not None:
        end = right
    return start, end


def _wider_start(
    text: str, place: tuple[int, int], low: int, pattern: re.Pattern[str], known: Callable[[str], bool]
) -> int | None:
    """Where a composite mention begins that ends as `place` does: the farthest of up to three words before it."""
    match = pattern.search(text, low, place[0])
    if match is None:
        return None
    begins = [word.start() for word in re.finditer(_WORD, match[1])]
    for begin in begins:
        start = match.start(1) + begin
        if is_composite(text[start : place[1]], known):
            return start
    return None


def _wider_end(text: str, place: tuple[int, int], high: int, known: Callable[[str], bool]) -> int | None:
    """Where a composite mention ends that begins as `place` does: the farthest of up to two words behind it."""
    match = _RIGHT.match(text, place[1], high)
    if match is None:
        return None
    ends = [word.end() for word in re.finditer(_WORD, match[1])]
    for end in reversed(ends):
        if is_composite(text[place[0] : match.start(1) + end], known):
            return match.start(1) + end
    return None


def is_composite(phrase: str, known: Callable[[str], bool]) -> bool:
    """Whether a phrase combines names that share a beginning or an end."""
    if known(phrase):
        return False
    readings = list(expansions(phrase))[:-1]  # the last one is the phrase as it is written
    return any(len(set(parts)) > 1 and all(map(known, parts)) for parts in readings)
