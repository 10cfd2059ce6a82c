"""Mentions that name several things in one phrase: "breast and ovarian cancer".

A rule expands the phrase; a split is made only where every part is a name of the dictionary and the
whole is none. A tagger finds the phrase as a whole; of names found in a text, :func:`widen` looks
for the phrase around each, and :func:`find_numbered` for phrases in which no name stands whole.

>>> names = {"breast cancer", "ovarian cancer", "hepatitis b", "hepatitis c"}
>>> parts_of("breast and ovarian cancer", names.__contains__)
['breast cancer', 'ovarian cancer']
>>> text = "breast or ovarian cancer, hepatitis b and c"
>>> [text[a:b] for a, b in widen(text, [(10, 24), (26, 37)], names.__contains__)]
['breast or ovarian cancer', 'hepatitis b and c']
>>> text = "type 1 and 2 diabetes"
>>> find_numbered(text, {"type 1 diabetes", "type 2 diabetes"}.__contains__)
[(0, 21)]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product

_AND = r"(?:and/or|and|or|nor|&|as\s+well\s+as)"
_BETWEEN = re.compile(rf"\s*,\s*(?:{_AND}\s+)?|\s+{_AND}\s+|\s*/\s*")
_NUMBERED_WORD = re.compile(r"(\w*[^\W\d]-?)\d{1,3}[A-Za-z]?")
_NUMBER_ALONE = re.compile(r"\d{1,3}[A-Za-z]?")
MOST = 8  #: conjuncts: longer enumerations are left whole


def expansions(mention: str) -> Iterator[list[str]]:
    """Ways to read a coordination, each a list of phrases: with a shared end, both, a shared
    beginning, as it is written.

    "breast and ovarian cancer": [breast cancer, ovarian cancer], [breast, ovarian cancer] last,
    since "breast" may be a name, too. Shorter shared parts come first.
    """
    conjuncts = [part for part in _BETWEEN.split(mention) if part]
    if not 2 <= len(conjuncts) <= MOST:
        return
    last = conjuncts[-1].split()
    if all(part.endswith("-") for part in conjuncts[:-1]) and "-" in last[0]:  # "T- and B-cell"
        end = " ".join([last[0].split("-", 1)[1], *last[1:]])
        yield [*(f"{part}{end}" for part in conjuncts[:-1]), conjuncts[-1]]
    head, hyphen, _ = conjuncts[0].rpartition("-")
    if hyphen and all(part.startswith("-") for part in conjuncts[1:]):  # "IL-6 and -8"
        yield [conjuncts[0], *(f"{head}{part}" for part in conjuncts[1:])]
    numbered = _NUMBERED_WORD.fullmatch(conjuncts[0])
    others = [part.removeprefix("-") for part in conjuncts[1:]]
    is_joined = "/" in mention or all(part.startswith("-") for part in conjuncts[1:])
    if numbered and is_joined and all(map(_NUMBER_ALONE.fullmatch, others)):  # "BRCA1/2"
        yield [conjuncts[0], *(f"{numbered[1]}{other}" for other in others)]
    for shared in range(len(last) - 1, 0, -1):
        end = " ".join(last[shared:])
        yield [*(f"{part} {end}" for part in conjuncts[:-1]), conjuncts[-1]]
    first = conjuncts[0].split()
    for shared in range(1, len(first)):  # "type 1 and 2 diabetes"
        for behind in range(len(last) - 1, 0, -1):
            beginning, end = " ".join(first[:shared]), " ".join(last[behind:])
            middle = [f"{beginning} {part} {end}" for part in conjuncts[1:-1]]
            yield [f"{conjuncts[0]} {end}", *middle, f"{beginning} {conjuncts[-1]}"]
    for shared in range(1, len(first)):
        beginning = " ".join(first[:shared])
        yield [conjuncts[0], *(f"{beginning} {part}" for part in conjuncts[1:])]
    yield conjuncts


def parts_of(mention: str, is_name: Callable[[str], bool]) -> list[str]:
    """The phrases that a composite mention combines.

    The mention alone where it is known itself, and where no reading has known parts only.
    """
    if is_name(mention):
        return [mention]
    for parts in expansions(mention):
        if len(set(parts)) > 1 and all(map(is_name, parts)):
            return list(dict.fromkeys(parts))
    return [mention]


NEAR = 60  #: characters beside a conjunction in which the rest of a phrase is looked for
_WORD = r"\w+(?:['-]\w+)*"
_CONJUNCTIONS = ("and", "or", "/", "&", "as")
_JOIN = rf"(?:[ \t]*,?\s+{_AND}\s+|[ \t]*/[ \t]*)"
_JOIN_BEFORE = re.compile(_JOIN + r"\Z")
_LAST_WORDS = re.compile(rf"(?:{_WORD}[ \t]+){{0,2}}{_WORD}-?\Z")
_FIRST_WORDS = re.compile(rf"-?{_WORD}(?:[ \t]+{_WORD})?(?![\w'-])")
# more of "hepatitis A, B or C"
_LIST = re.compile(rf"(?:/{_WORD}){{1,6}}/|(?:[ \t]*,[ \t]+-?{_WORD}){{0,6}}{_JOIN}")
_NUMBER = r"(?:[A-Za-z]?\d{1,3}[A-Za-z]?|[IVXivx]{1,4}|[A-Za-z])"  #: or a letter
_NUMBER_BEHIND = re.compile(rf"[ \t]*({_NUMBER})(?=[ \t]+\w)")
_NUMBERS_BEFORE = re.compile(rf"(?<!\w){_NUMBER}(?:[ \t]*,[ \t]*{_NUMBER}){{0,6}}[ \t,]*\Z")
_NO_PHRASE = re.compile(r"[^\w'\- \t]")
_WORDS_BEHIND = re.compile(rf"(?:[ \t]+{_WORD}){{1,3}}")
_COMMA = re.compile(r"[ \t]*,\s+\Z")


def widen(
    text: str,
    mentions: Sequence[tuple[int, int]],
    is_name: Callable[[str], bool],
    covers: Callable[[int, int], bool] = lambda place, other: False,
) -> list[tuple[int, int]]:
    """The places of names, those that are the end or the beginning of a composite mention with its
    place.

    covers(own, other): whether the phrase around the one mention (by number) may cover the other.
    """
    places = list(mentions)
    for number, (start, end) in enumerate(mentions):
        parted = " " in text[start:end] or "-" in text[start:end]
        if not parted and not text[end : end + 6].lstrip(" adnor").startswith(("/", "-")):
            continue  # a word shares its letters with a number alone: "BRCA1/2", "BRCA1 and -2"
        if text[max(start - 4, 0) : start].rstrip().endswith(_CONJUNCTIONS):
            join = _JOIN_BEFORE.search(text, max(start - NEAR, 0), start)
            if join is not None:
                low = _bound(places, number, number - 1, covers)
                places[number] = _wider_start(text, places[number], join.start(), low, is_name), end
        if (
            text[end : end + 8].lstrip(" \t").startswith((",", *_CONJUNCTIONS))
            and places[number][0] == start
        ):
            join = _LIST.match(text, end)
            if join is not None:
                high = _bound(places, number, number + 1, covers)
                bound = len(text) if high is None else high
                places[number] = start, _wider_end(text, places[number], join.end(), bound, is_name)
    return places


def find_numbered(text: str, is_name: Callable[[str], bool]) -> list[tuple[int, int]]:
    """The places of phrases whose parts share their beginning and their end, and differ in a number
    or a letter: "type 1 and 2 diabetes". The longest ones, as of names."""
    places = []
    for join, after in _find_conjunctions(text):
        number = _NUMBER_BEHIND.match(text, after)
        if number is None:
            continue
        numbers = _NUMBERS_BEFORE.search(text, max(join - NEAR, 0), join)
        if numbers is None:
            continue
        first = numbers.start()
        before = _NO_PHRASE.split(text[max(first - NEAR, 0) : first])[-1]
        behind = _WORDS_BEHIND.match(text, number.end(1))
        if not before.endswith((" ", "\t")) or behind is None:
            continue
        begin = first - len(before)
        starts = [begin + word.start() for word in re.finditer(_WORD, before)][-3:]
        ends = [behind.start() + word.end() for word in re.finditer(_WORD, behind[0])]
        different = [*re.findall(_NUMBER, numbers[0]), number[1]]
        for start, end in product(starts, reversed(ends)):
            beginning, ending = text[start:first], text[number.end(1) : end]
            parts = (f"{beginning}{part}{ending}" for part in different)
            if all(map(is_name, parts)) and is_composite(text[start:end], is_name):
                places.append((start, end))
                break
    return sorted(places)


def _find_conjunctions(text: str) -> Iterator[tuple[int, int]]:
    """Where the frequent conjunctions begin and end. Plain searches: a pattern that tries every
    space takes a quarter of the time in which a text is linked."""
    text = text.replace("\n", " ")
    for word in (" and ", " or ", "/"):
        place = text.find(word)
        while place >= 0:
            yield place, place + len(word)
            place = text.find(word, place + 1)


def _bound(
    places: Sequence[tuple[int, int]], number: int, other: int, covers: Callable[[int, int], bool]
) -> int | None:
    """How far a phrase may reach: to the mention beside it, unless it may cover that; None: no
    bound."""
    if not 0 <= other < len(places) or covers(number, other):
        return None
    return places[other][1] if other < number else places[other][0]


def _wider_start(
    text: str, place: tuple[int, int], join: int, low: int | None, is_name: Callable[[str], bool]
) -> int:
    """Where a composite mention begins that ends as `place` does: at up to three words before a
    conjunction, at `join`.

    More words before commas ("lung, breast and ovarian cancer") belong to it as well.
    """
    start, end = place
    begin = join
    while True:
        least = max(begin - NEAR, low or 0)
        words = _LAST_WORDS.search(text, least, begin)
        starts = (
            []
            if words is None
            else [words.start() + word.start() for word in re.finditer(_WORD, words[0])]
        )
        wider = next(
            (
                place_before
                for place_before in starts
                if is_composite(text[place_before:end], is_name)
            ),
            None,
        )
        if wider is None:
            return start
        start = wider
        comma = _COMMA.search(text, max(start - NEAR, 0), start)
        if comma is None:
            return start
        begin = comma.start()


def _wider_end(
    text: str, place: tuple[int, int], join: int, high: int, is_name: Callable[[str], bool]
) -> int:
    """Where a composite mention ends that begins as `place` does: at up to two words behind a
    conjunction, at `join`."""
    words = _FIRST_WORDS.match(text, join, min(join + NEAR, high))
    ends = (
        []
        if words is None
        else [words.start() + word.end() for word in re.finditer(_WORD, words[0])]
    )
    return next(
        (end for end in reversed(ends) if is_composite(text[place[0] : end], is_name)), place[1]
    )


def is_composite(phrase: str, is_name: Callable[[str], bool]) -> bool:
    """Whether a phrase combines names that share a beginning or an end."""
    readings = list(expansions(phrase))[:-1]  # the last one is the phrase as it is written
    return any(
        len(set(parts)) > 1 and all(map(is_name, parts)) for parts in readings
    ) and not is_name(phrase)
