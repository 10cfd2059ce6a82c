"""Abbreviations that a text defines itself, and what each means at a place.

Schwartz and Hearst, A simple algorithm for identifying abbreviation definitions in biomedical text,
PSB 2003. https://psb.stanford.edu/psb-online/proceedings/psb03/schwartz.pdf

    Candidates (section 3.1)      definitions, _usable
    Long form (section 3.2)       _long_form_start

Deviations from the paper, each pinned by a test:
    D1  In "SF (long form)" the short form must have a capital letter, and all of the parentheses
        must be its long form.
    D2  In "long form (SF)" a short form without a capital letter or a digit must consist of the
        initials of the long form's words: "(fever)" behind any words is a remark, not a short form.
    D4  Where the initials of the last words are the short form, these words are the long form: of
        "colon cancer (CC)" both.
    D3  A definition may go over the end of a line, where the text is wrapped.

What a short form means at a place (:class:`ShortForms`): what its last definition before the place
says, and where there is none before it, what its first definition says, if all of its definitions
agree. A place before two definitions that differ has no meaning.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

Span = tuple[int, int]


class Definition(NamedTuple):
    """Where a text defines an abbreviation: (start, end) of the short form and of the long form,
    end exclusive."""

    short: Span
    long: Span


_PARENTHESES = re.compile(r"\((?=[^()]*[^\W\d_])([^()]{2,200})\)")  # "(73 %)" defines nothing
# The paper works sentence by sentence. "St." or "i.e." must not end one, hence the three letters
# before the mark. The end of a line ends a sentence where a blank line or an item of a list
# follows; elsewhere the text may be wrapped (D3).
_SENTENCE_END = re.compile(r"(?<=\w\w\w)[.!?]\s|\n(?=\s*\n|\s*(?:[-*\u2022]|\d{1,2}[.)])\s)")
WIDEST = 300  #: characters before a pair of parentheses, which contain any long form
# in "(SF, something)" and "(SF; something)" only the first part can be a short form
_SEPARATOR = re.compile(r"[,;]\s")
# inside parentheses: no definition goes over it
_BREAK = re.compile(r"\n\s*\n|\n\s*(?:[-*\u2022]|\d{1,2}[.)])\s")


def _usable(short: str) -> bool:
    """Section 3.1: at most two words, 2 to 10 characters, a letter in it, a letter or digit
    first."""
    return (
        2 <= len(short) <= 10
        and len(short.split()) <= 2
        and short[0].isalnum()
        and any(map(str.isalpha, short))
    )


def _long_form_start(short: str, long: str) -> int | None:
    """Offset in `long`, the text that ends where the long form ends, at which the long form begins;
    None: no match.

    Section 3.2: from right to left every letter or digit of the short form must be found in order;
    its first one at the beginning of a word.
    """
    low, at = long.lower(), len(long)
    if len(low) != len(long):
        return None
    for i in range(len(short) - 1, -1, -1):
        letter = short[i].lower()
        if not letter.isalnum():
            continue
        at = low.rfind(letter, 0, at)
        while i == 0 and at > 0 and low[at - 1].isalnum():
            at = low.rfind(letter, 0, at)
        if at < 0:
            return None
    while at and not long[at - 1].isspace():  # the word in which the first letter was found
        at -= 1
    while long[at] in "([{\"'":
        at += 1
    return at


def _initials_start(short: str, long: str) -> int | None:
    """D4: where the words begin whose initials are the short form's letters; None where they are
    not."""
    if not short.isalpha():
        return None
    # from the right, since few words are looked at
    start, count = len(long), 0
    for word in reversed(long.split()):
        start = long.rindex(word, 0, start)
        if not (word[0].isalnum() or word[0] == "_"):
            continue
        count += 1
        if word[0].lower() != short[-count].lower():
            return None
        if count == len(short):
            return start
    return None


def _long_form(short: str, long: str) -> int | None:
    """Like :func:`_long_form_start` with the paper's checks: few words, longer than the short form,
    not having it."""
    most = min(len(short) + 5, 2 * len(short))
    pieces = long.rsplit(None, most)
    shift = len(pieces[0]) if len(pieces) > most else 0
    start = _initials_start(short, long[shift:])
    if start is None:
        start = _long_form_start(short, long[shift:])
    if start is None:
        return None
    form = long[shift + start :]
    if len(form) <= len(short) or short in form.split():
        return None
    return shift + start


def _is_abbreviation(short: str, long: str) -> bool:
    """D2: whether a short form looks like one: a capital letter, a digit, or the initials of the
    long form's words."""
    if short != short.lower() or any(map(str.isdigit, short)):
        return True
    initials = "".join(word[0] for word in re.findall(r"\w+", long.lower()))
    return "".join(filter(str.isalpha, short)) == initials


def _first_part(inside: str) -> str:
    """What is before the first separator in parentheses: "SF" of "SF, something"."""
    return _SEPARATOR.split(inside, maxsplit=1)[0] if "," in inside or ";" in inside else inside


def _definition_before(text: str, match: re.Match[str], short: str) -> Definition | None:
    """The definition "long form (SF)" of a pair of parentheses, in which a short form is first."""
    opening = match.start()
    before = text[max(opening - WIDEST, 0) : opening].rstrip()
    start = _long_form(short, before)
    if (
        start is None
        or _SENTENCE_END.search(before, start)
        or not _is_abbreviation(short, before[start:])
    ):
        return None
    inner, offset = text.index(short, match.start(1)), max(opening - WIDEST, 0)
    return Definition((inner, inner + len(short)), (offset + start, offset + len(before)))


def _definition_inside(text: str, match: re.Match[str]) -> Definition | None:
    """The definition "SF (long form)" of a pair of parentheses."""
    inside, opening = match[1], match.start()
    if len(inside.split()) < 3:
        return None
    # D1: a word without a capital is no short form here: "ear (external acoustic region)" is a
    # gloss.
    ahead = text[max(opening - 12, 0) : opening].rstrip()
    short = re.split(r"\s", ahead)[-1].lstrip("([")
    if not _usable(short) or short == short.lower() or _long_form(short, inside) != 0:
        return None
    at = max(opening - 12, 0) + len(ahead) - len(short)
    return Definition((at, at + len(short)), match.span(1))


def definitions(text: str) -> list[Definition]:
    """Definitions "long form (SF)" and "SF (long form)" in `text`, in order of their
    parentheses."""
    pairs = []
    for match in _PARENTHESES.finditer(text):
        if "\n" in match[1] and _BREAK.search(match[1]):
            continue
        short = _first_part(match[1]).strip()
        if _usable(short):
            definition = _definition_before(text, match, short)
        else:
            definition = _definition_inside(text, match)
        if definition is not None:
            pairs.append(definition)
    return pairs


class ShortForms:
    """The short forms that a text defines: each with its definitions, in the order of their
    places."""

    def __init__(self, text: str) -> None:
        self.definitions: dict[str, list[Definition]] = {}
        self._text = text
        for definition in sorted(definitions(text)) if "(" in text else ():
            self.definitions.setdefault(text[slice(*definition.short)], []).append(definition)

    def __bool__(self) -> bool:
        return bool(self.definitions)

    def long_form(self, definition: Definition) -> str:
        """The long form of a definition, with single spaces."""
        return " ".join(self._text[slice(*definition.long)].split())

    def meaning(self, short: str, place: int) -> Definition | None:
        """What a short form at a place means; None where it is not defined, or its definitions
        leave it open."""
        long = self.definitions.get(short) or self.definitions.get(short.removesuffix("s"))
        if long is None:
            return None
        before = bisect_right(long, place, key=lambda definition: definition.short[0])
        if before:
            return long[before - 1]
        if len({self.long_form(definition).lower() for definition in long}) == 1:
            return long[0]
        return None

    def expand(self, string: str, place: int) -> str:
        """`string`, which begins at `place` of the text, with short forms as what they mean
        there."""
        if not self.definitions:
            return string
        if (definition := self.meaning(string, place)) is not None:
            return self.long_form(definition)
        words = []
        if not any(
            word.removesuffix("s") in self.definitions or word in self.definitions
            for word in string.split()
        ):
            return string
        for match in re.finditer(r"\S+", string):
            definition = self.meaning(match[0], place + match.start())
            words.append(match[0] if definition is None else self.long_form(definition))
        return " ".join(words) or string
