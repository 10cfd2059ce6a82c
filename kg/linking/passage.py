"""A text to be linked, and what is computed of it, once: normal form, words, short forms,
sentences."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from kg.linking.abbreviations import ShortForms
from kg.linking.inflection import LONGEST_SHORT_FORM
from kg.linking.normal import Level, is_normal, normalize
from kg.linking.sentences import sentence_starts, unify_line_ends
from kg.linking.tokens import cased_words, starts_of_all, word_starts, words
from kg.linking.words import FUNCTION_WORDS


class Passage:
    """A text. Offsets are those of its normal form but where :meth:`place` gives the text's own.

    source: the text as it is.  text: its normal form; with the level "exact" the same.
    words: its words in lower case (kg.linking.tokens).  is_normalized: whether `text` is in normal
        form.
    """

    # Fields in place of cached properties, which cost as much as a short text's whole linking.
    __slots__ = (
        "_capitals",
        "_normal",
        "_sentences",
        "_short_forms",
        "_starts",
        "_word_set",
        "is_normalized",
        "source",
        "text",
        "words",
    )

    def __init__(self, text: str, level: Level = "inflected") -> None:
        self.source, self.is_normalized = text, level != "exact"
        self._normal = None if level == "exact" or is_normal(text) else normalize(text)
        self.text = unify_line_ends(text if self._normal is None else self._normal.text)
        self.words = words(self.text)
        self._starts: list[int] | None = None
        self._short_forms: ShortForms | None = None
        self._sentences: list[int] | None = None
        self._word_set: frozenset[str] | None = None
        self._capitals: dict[int, bool] = {}

    @property
    def starts(self) -> list[int]:
        """Where each word begins."""
        if self._starts is None:
            self._starts = word_starts(self.text)
        return self._starts

    @property
    def short_forms(self) -> ShortForms:
        if self._short_forms is None:
            self._short_forms = ShortForms(self.text)
        return self._short_forms

    @property
    def sentence_starts(self) -> list[int]:
        if self._sentences is None:
            self._sentences = sentence_starts(self.text)
        return self._sentences

    def is_in_one_statement(self, start: int, end: int) -> bool:
        """Whether [start, end) is not over the end of a paragraph, an item of a list or a statement
        of a line.

        A line that continues in lower case may be wrapped, however short it is.
        """
        if "\n" not in self.text[start:end]:
            return True
        starts = self.sentence_starts
        for number in range(bisect_right(starts, start), bisect_right(starts, end - 1)):
            place = starts[number]
            between = self.text[start:place].rpartition("\n")[0]
            if not self.text[place].islower() or between.rstrip(" \t\r").endswith("\n"):
                return False
        return True

    def surface(self, first: int, last: int) -> str:
        """The characters from one word to another, in their own case."""
        return self.text[self.starts[first] : self.starts[last] + len(self.words[last])]

    def place(self, first: int, last: int) -> tuple[int, int]:
        """The place in the source of the words from one to another."""
        starts = self.starts
        return self.source_place(starts[first], starts[last] + len(self.words[last]))

    def places(self, spans: Sequence[Sequence[Any]]) -> tuple[list[int], list[int]]:
        """(starts, ends) in the source of several spans, each of which begins with its first and
        last word."""
        starts, words = self.starts, self.words
        begins = [starts[span[0]] for span in spans]
        ends = [starts[span[1]] + len(words[span[1]]) for span in spans]
        if self._normal is not None:
            places = [self._normal.place(*place) for place in zip(begins, ends, strict=True)]
            return [start for start, _ in places], [end for _, end in places]
        return begins, ends

    def source_place(self, start: int, end: int) -> tuple[int, int]:
        """The place in the source of the characters [start, end)."""
        return (start, end) if self._normal is None else self._normal.place(start, end)

    @property
    def is_as_written(self) -> bool:
        """Whether every character of the normal form is at its place in the source."""
        return self._normal is None or self._normal.starts is None

    def normal_offset(self, offset: int) -> int:
        """The place in the normal form of a place in the source."""
        if self._normal is None or self._normal.starts is None:
            return offset
        return int(np.searchsorted(self._normal.starts, offset))

    @property
    def word_set(self) -> frozenset[str]:
        if self._word_set is None:
            self._word_set = frozenset(self.words)
        return self._word_set

    def is_capitals(self, offset: int) -> bool:
        """Whether the sentence at `offset` is in capitals: of three words or more, none has a small
        letter.

        One of them has to be a function word or a long one: "TP53, EGFR, KRAS" is a list of
        symbols.
        """
        number = bisect_right(self.sentence_starts, offset) - 1
        if number not in self._capitals:
            bounds = [*self.sentence_starts[number : number + 2], len(self.text)]
            sentence = self.text[bounds[0] : bounds[1]]
            self._capitals[number] = sentence.isupper() and _is_prose(sentence)
        return self._capitals[number]


def _is_prose(sentence: str) -> bool:
    """Whether a sentence in capitals has three words, one of them a function word or a long one."""
    letters = [word for word in cased_words(sentence) if word.isalpha()]
    ordinary = [w for w in letters if len(w) > LONGEST_SHORT_FORM or w.lower() in FUNCTION_WORDS]
    return len(letters) >= 3 and bool(ordinary)


def find_starts(passages: Sequence[Passage]) -> None:
    """Find where the words of several passages begin, in one step for those in ASCII."""
    plain = [passage for passage in passages if passage._starts is None and passage.text.isascii()]
    if len(plain) < 2:
        return
    all_starts = starts_of_all(
        [plain_passage.text for plain_passage in plain],
        [len(plain_passage.words) for plain_passage in plain],
    )
    for passage, starts in zip(plain, all_starts, strict=True):
        passage._starts = starts
