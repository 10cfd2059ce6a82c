"""Abbreviations that a text defines itself.

Schwartz and Hearst, A simple algorithm for identifying abbreviation definitions in biomedical text, PSB 2003.
https://psb.stanford.edu/psb-online/proceedings/psb03/schwartz.pdf

    Candidates (section 3.1)      definitions, _usable
    Long form (section 3.2)       _long_form_start

Deviations from the paper, each pinned by a test:
    D1  In "SF (long form)" the short form must have a capital letter, and all of the parentheses must be its long form.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Span = tuple[int, int]


class Definition(NamedTuple):
    """Where a text defines an abbreviation: (start, end) of the short form and of the long form, end exclusive."""

    short: Span
    long: Span


_PARENTHESES = re.compile(r"\(([^()\n]{2,200})\)")
# The paper works sentence by sentence. "St." or "i.e." must not end one, hence the three letters before the mark.
_SENTENCE_END = re.compile(r"[.!?\n](?:(?<=\n)|(?<=\w\w\w.)\s)")
_SEPARATOR = re.compile(r"[,;]\s")  # in "(SF, something)" and "(SF; something)" only the first part can be a short form


def _usable(short: str) -> bool:
    """Section 3.1: at most two words, 2 to 10 characters, a letter in it, a letter or digit first."""
    return 2 <= len(short) <= 10 and len(short.split()) <= 2 and short[0].isalnum() and any(map(str.isalpha, short))


def _long_form_start(short: str, long: str) -> int | None:
    """Offset in `long`, the text that ends where the long form ends, at which the long form begins; None: no match.

    Section 3.2: from right to left every letter or digit of the short form must be found in order; its first one at
    the beginning of a word.
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
    at = max(long.rfind(" ", 0, at), long.rfind("\t", 0, at)) + 1  # the word in which the first letter was found
    while long[at] in "([{\"'":
        at += 1
    return at


def _long_form(short: str, long: str) -> int | None:
    """Like :func:`_long_form_start` with the paper's checks: few words, longer than the short form, not having it."""
    most = min(len(short) + 5, 2 * len(short))
    pieces = long.rsplit(None, most)
    shift = len(pieces[0]) if len(pieces) > most else 0
    start = _long_form_start(short, long[shift:])
    if start is None:
        return None
    found = long[shift + start :]
    if len(found) <= len(short) or short in found.split():
        return None
    return shift + start


def _sentence_before(text: str, opening: int) -> str:
    """The part of the sentence before `opening`; at most 300 characters, which contain any long form."""
    part = text[max(opening - 300, 0) : opening]
    ends = [m.end() for m in _SENTENCE_END.finditer(part.rstrip())]
    return part[ends[-1] :] if ends else part


def definitions(text: str) -> list[Definition]:
    """Definitions "long form (SF)" and "SF (long form)" in `text`, in order of their parentheses."""
    found: list[Definition] = []
    for match in _PARENTHESES.finditer(text):
        inside, opening = match.group(1), match.start()
        first = _SEPARATOR.split(inside, maxsplit=1)[0]
        short = first.strip()
        if _usable(short):
            before = _sentence_before(text, opening)
            start = _long_form(short, before.rstrip())
            if start is not None:
                inner, offset = match.start(1) + first.index(short), opening - len(before)
                long = offset + start, offset + len(before.rstrip())
                found.append(Definition((inner, inner + len(short)), long))
        elif len(inside.split()) > 2:
            # D1: a word without a capital is no short form here: "ear (external acoustic region)" is a gloss.
            ahead = text[max(opening - 12, 0) : opening].rstrip()
            short = ahead.rpartition(" ")[2].lstrip("([")
            if _usable(short) and short != short.lower() and _long_form(short, inside) == 0:
                at = max(opening - 12, 0) + len(ahead) - len(short)
                found.append(Definition((at, at + len(short)), match.span(1)))
    return found


def long_forms(text: str) -> dict[str, str]:
    """{short form: long form, with single spaces} of what `text` defines; of two definitions the later one."""
    return {text[slice(*d.short)]: " ".join(text[slice(*d.long)].split()) for d in definitions(text)}


def expand_short_forms(string: str, forms: dict[str, str]) -> str:
    """`string` with its words that `forms` has (:func:`long_forms`), or the whole of it, in their long form."""
    if not forms:
        return string
    return forms.get(string) or " ".join(forms.get(word, word) for word in string.split()) or string
