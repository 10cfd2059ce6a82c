"""Linkers: strings to ranked concepts.

A linker has `link(mentions, contexts) -> [[Candidate, …], …]`, best first, at most DEPTH concepts for each mention. A
concept counts once, at its best name. Of equal scores the name that sorts first comes first, and of one name's concepts
those that it is the preferred name of, then those whose distinguishing string (kg.homonyms) the text has more of, then the id
that sorts first, which is a tie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from core.files import digest
from datamodules.linking import Dictionary
from kg.homonyms import Describe, Homonyms
from kg.names import TfIdf, normaliser

DEPTH = 20  #: concepts that a linker ranks; a gold concept below is as good as not found


class Candidate(NamedTuple):
    """A concept, the dictionary's name that spoke for it, and that name's score.

    tied: whether another concept has the same name and nothing decides between them.
    """

    concept: str
    name: str
    score: float
    tied: bool = False


Ranking = list[Candidate]


class Linker(Protocol):
    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        """Ranked concepts of each mention; `contexts` are their texts (datamodules.linking.context_of) or None."""


class Names:
    """A dictionary ready to search: its normalised strings in order, and the concepts of each.

    describe: what distinguishes concepts that share a name; the dictionary's own descriptions where none is given.
    """

    def __init__(self, dictionary: Dictionary, rules: str, describe: Describe | None = None) -> None:
        self.dictionary, self.rules, self.normalised = dictionary, rules, normaliser(rules)
        owners: dict[str, set[str]] = defaultdict(set)
        preferred = self.preferred = dict[str, str]()  #: {concept: its first name, normalised}
        for concept, name in zip(dictionary.ids, dictionary.names, strict=True):
            own = self.normalised(name)
            owners[own].add(concept)
            preferred.setdefault(concept, own)
        self.strings = sorted(owners)
        self.concepts = {name: sorted(owners[name], key=lambda c: (preferred[c] != name, c)) for name in self.strings}
        self.homonyms = Homonyms(describe or dictionary.describe)

    @cached_property
    def digest(self) -> str:
        """A name of the strings in their order: what a saved index's rows stand for."""
        return digest(self.strings)

    def meant(self, name: str, context: str | None) -> list[tuple[str, bool]]:
        """[(concept, whether it is tied)] of the concepts that have `name`, the likeliest in this text first; none: []."""
        own = self.concepts.get(name, [])
        if len(own) < 2:
            return [(concept, False) for concept in own]
        supports = self.homonyms.supports(name, own, context)
        keys = [(self.preferred[c] != name, -support) for c, support in zip(own, supports, strict=True)]
        order = sorted(range(len(own)), key=keys.__getitem__)  # stable: of equal ones by id
        return [(own[i], keys.count(keys[i]) > 1) for i in order]

    def ranking(self, found: Sequence[tuple[int, float]], context: str | None = None) -> Ranking:
        """Concepts of (number of string, score), in that order, each once; at most DEPTH. context: the mention's text."""
        seen: set[str] = set()
        result: Ranking = []
        for number, score in found:
            name = self.strings[number]
            for concept, tied in self.meant(name, context):
                if concept not in seen:
                    seen.add(concept)
                    result.append(Candidate(concept, name, score, tied))
                    if len(result) == DEPTH:
                        return result
        return result

    def ranked(
        self, search: Callable[[list[int], int], tuple[np.ndarray, np.ndarray]], contexts: Sequence[str | None]
    ) -> list[Ranking]:
        """Rankings of queries in their texts; search(queries, k) returns (scores, numbers of strings), (len(queries), k).

        k grows for queries whose best k names do not have DEPTH concepts.
        """
        result: list[Ranking] = [[] for _ in contexts]
        waiting, k = list(range(len(contexts))), 2 * DEPTH
        while waiting:
            k = min(k, len(self.strings))
            scores, numbers = search(waiting, k)
            short = []
            for query, s, n in zip(waiting, scores, numbers, strict=True):
                strings = [(int(i), float(v)) for i, v in zip(n, s, strict=True) if i >= 0]
                result[query] = self.ranking(strings, contexts[query])
                if len(result[query]) < DEPTH and k < len(self.strings) and not (n < 0).any():
                    short.append(query)
            waiting, k = short, 4 * k
        return result


class Exact:
    """The concepts that have the mention, normalised, as a name; none otherwise."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        result = []
        for mention, context in zip(mentions, contexts, strict=True):
            name = self.names.normalised(mention)
            result.append([Candidate(c, name, 1.0, tied) for c, tied in self.names.meant(name, context)[:DEPTH]])
        return result


class NearestByTfIdf:
    """Nearest names by character 3-gram TF-IDF (kg.names.TfIdf), fitted on the dictionary's strings."""

    def __init__(self, names: Names) -> None:
        self.names, self.tfidf = names, TfIdf(names.strings)

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        strings = [self.names.normalised(m) for m in mentions]
        return self.names.ranked(lambda some, k: self.tfidf.search([strings[i] for i in some], k), contexts)


class BackOff:
    """Dictionary back-off: the concepts of an exact match first, then those of `linker`, each once."""

    def __init__(self, names: Names, linker: Linker) -> None:
        self.exact, self.linker = Exact(names), linker

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        result = []
        pairs = zip(self.exact.link(mentions, contexts), self.linker.link(mentions, contexts), strict=True)
        for first, then in pairs:
            seen = {c.concept for c in first}
            result.append([*first, *(c for c in then if c.concept not in seen)][:DEPTH])
        return result
