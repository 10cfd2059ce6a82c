"""Text as words that names are matched on: runs of letters and digits, single Chinese characters,
single punctuation.

Names and texts are cut by the same function, so a match begins and ends at word boundaries by
construction and the amount of white space between two words never matters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

#: CJK ideographs: Chinese writes no spaces between words, so every character is a word.
IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
#: Greek letters are words beside those of other scripts: the α of TNFα is that of TNF-α.
GREEK = "\u0370-\u03ff\u1f00-\u1fff"
_WORD = re.compile(rf"([{IDEOGRAPHS}]|[{GREEK}]+|[^\W{IDEOGRAPHS}{GREEK}]+|[^\w\s])")
_SPACE, _LETTER, _SINGLE = 0, 1, 2


def _kind(character: str) -> int:
    if character.isspace():
        return _SPACE
    return _LETTER if character.isalnum() or character == "_" else _SINGLE


_KIND = bytes(_kind(chr(code)) for code in range(128))
_KIND += bytes(128)  # bytes.translate wants 256
_NO_MARKS = bytes(i for i, kind in enumerate(_KIND[:128]) if kind != _SINGLE)


def fold_case(text: str) -> str:
    """Lower case of the same length, character by character: offsets in it are offsets in `text`.

    ``str.lower`` alone would turn a dotted capital I into two characters and a capital sigma into
    one of two letters.
    """
    if text.isascii():
        return text.lower()
    return text.replace("\u0130", "I").replace("Σ", "σ").replace("ς", "σ").lower()


def words(text: str) -> list[str]:
    """Lower-cased words of `text`; each as long as its part of the text."""
    return cased_words(fold_case(text))


def word_starts(text: str) -> list[int]:
    """Offset in `text` at which each of its :func:`words` begins."""
    if text.isascii():
        return _ascii_starts(text).tolist()
    # what is between words, a word, what is between, a word, ...
    parts = _WORD.split(fold_case(text))
    return list(accumulate(map(len, parts)))[:-1:2]


def starts_of_all(texts: Sequence[str], counts: Sequence[int]) -> list[list[int]]:
    """:func:`word_starts` of several texts in ASCII, which have `counts` words: in one step, since
    many are short."""
    offsets = _ascii_starts("\n".join(texts))
    begins = np.cumsum([0, *(len(text) + 1 for text in texts)])
    offsets -= np.repeat(begins[:-1], counts)
    starts, all_starts, place = [], offsets.tolist(), 0
    for count in counts:
        starts.append(all_starts[place : place + count])
        place += count
    return starts


def _ascii_starts(text: str) -> np.ndarray:
    kind = np.frombuffer(b"\0" + text.encode("ascii").translate(_KIND), np.uint8)
    # A word begins at every single (2), and at a letter (1) that follows no letter.
    return (kind[1:] > (kind[:-1] & _LETTER)).nonzero()[0]


def cased_words(text: str) -> list[str]:
    """The same words in their own case."""
    if not text.isascii():
        return _WORD.findall(text)
    # The same words three times as fast as by the pattern; most names and abstracts are pure ASCII.
    marks = text.encode("ascii").translate(None, _NO_MARKS)
    for mark in {*marks.decode("ascii")}:
        text = text.replace(mark, f" {mark} ")
    return text.split()


def space_words(text: str) -> str:
    """`text` in its own case with one space between two words: two texts are in the same case if
    these are equal."""
    return " ".join(cased_words(text))
