"""Words of names and texts as numbers, one for all the words that count as the same."""

from __future__ import annotations

from kg.linking.matchable import POSSESSIVE
from kg.linking.normal import SKIPPED, Level, word_class

REMEMBERED = 1 << 16  # words and surfaces that are kept
SKIP = 1 << 30  # number of a word that is skipped


class Vocabulary(dict[str, int]):
    """The number of each word, from 1: one for all words of a class (kg.linking.normal.word_class).

    The first word of a class that names have has the number itself; others, which differ from it,
    the number below zero. 0 is a word that no name has. Words of texts are added as they come, up
    to REMEMBERED.
    """

    def __init__(self, level: Level) -> None:
        super().__init__()
        self.level, self.classes = level, dict[str, int]()
        self.first = [""]  # of each class
        self._added = 0
        if level != "exact":
            self.update(dict.fromkeys(SKIPPED, SKIP))
            self.add(POSSESSIVE)

    def add(self, word: str) -> int:
        """The number of a name's word."""
        number = self.get(word, 0)
        if number:
            return number
        key = word_class(word, self.level)
        number = self.classes.setdefault(key, len(self.classes) + 1)
        if number == len(self.first):
            self.first.append(word)
        self[word] = number if self.first[number] == word else -number
        return self[word]

    def __missing__(self, word: str) -> int:
        number = -self.classes.get(word_class(word, self.level), 0)
        if self._added < REMEMBERED and len(word) <= 64:
            self._added += 1
            self[word] = number
        return number
