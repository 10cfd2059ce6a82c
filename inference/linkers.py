"""Linkers: strings to ranked concepts.

A linker has `link(mentions, contexts) -> [[Candidate, …], …]`, best first, at most DEPTH concepts
for each mention. A concept counts once, at its best name. Of equal scores the name that sorts first
comes first. The concepts of one name are in the order of its kind for them (kg.graph.KINDS; without
kinds, those that prefer it first), then of how much of their distinguishing string
(kg.linking.homonyms) the text has, which is a tie where it is equal, then of their triples, then
of their ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import NamedTuple, Protocol

import numpy as np

from core.json_files import digest
from datamodules.linking import Dictionary
from kg.graph import place_of_kind
from kg.linking.homonyms import Describe, Homonyms
from kg.linking.normal import BEST, Difference, Level, compare_words, form_key, normal_text
from kg.linking.tokens import cased_words
from kg.search.names import TfIdf, normaliser

DEPTH = 20  #: concepts that a linker ranks; a gold concept below is as good as not found


class Candidate(NamedTuple):
    """A concept, the dictionary's name that spoke for it, and that name's score.

    tied: whether another concept has the same name and nothing decides between them. matched: how
    the mention differs from the name, where it is found by a weaker form (kg.linking.normal).
    """

    concept: str
    name: str
    score: float
    tied: bool = False
    matched: str = ""


Ranking = list[Candidate]


class Linker(Protocol):
    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        """Ranked concepts of each mention; `contexts` are their texts
        (datamodules.linking.context_of) or None."""


class Names:
    """A dictionary ready to search: its normalised strings in order, and the concepts of each.

    describe: what distinguishes concepts that share a name; the dictionary's own descriptions where
        none is given.
    """

    def __init__(
        self, dictionary: Dictionary, rules: str, describe: Describe | None = None
    ) -> None:
        self.dictionary, self.rules, self.normalised = dictionary, rules, normaliser(rules)
        # {name: {concept: place of the name's kind}}
        owners: dict[str, dict[str, int]] = defaultdict(dict)
        preferred = self.preferred = dict[str, str]()  #: {concept: its first name, normalised}
        kinds = dictionary.kinds or repeat(None)
        for concept, name, kind in zip(dictionary.ids, dictionary.names, kinds, strict=False):
            form = self.normalised(name)
            first = preferred.setdefault(concept, form)
            place = place_of_kind(kind) if kind is not None else int(first != form)
            owners[form][concept] = min(place, owners[form].get(concept, place))
        self.strings = sorted(owners)
        triples = dictionary.triples
        self.concepts: dict[str, list[str]] = {}  #: {name: its concepts, in order}
        #: {name that several concepts have: the place of its kind for each}
        self.kinds: dict[str, list[int]] = {}
        for name in self.strings:
            places = owners[name]
            self.concepts[name] = sorted(places, key=lambda c: (places[c], -triples.get(c, 0), c))
            if len(places) > 1:
                self.kinds[name] = [places[concept] for concept in self.concepts[name]]
        self.homonyms = Homonyms(describe or dictionary.describe)

    @cached_property
    def digest(self) -> str:
        """A name of the strings in their order: what a saved index's rows stand for."""
        return digest(self.strings)

    def choose_meaning(self, name: str, context: str | None) -> list[tuple[str, bool]]:
        """[(concept, whether it is tied)] of the concepts that have `name`, the likeliest in this
        text first; none: []."""
        concepts = self.concepts.get(name, [])
        if len(concepts) < 2:
            return [(concept, False) for concept in concepts]
        supports = self.homonyms.supports(name, concepts, context)
        keys = [(kind, -support) for kind, support in zip(self.kinds[name], supports, strict=True)]
        # stable: of equal ones by triples and id
        order = sorted(range(len(concepts)), key=keys.__getitem__)
        return [(concepts[i], keys.count(keys[i]) > 1) for i in order]

    @cached_property
    def _rows(self) -> dict[str, list[int]]:
        """{the classes of a name's words: the rows of the dictionary's names that have them}
        (kg.linking.normal)."""
        rows: dict[str, list[int]] = defaultdict(list)
        for row, name in enumerate(self.dictionary.names):
            rows[form_key(name)].append(row)
        return dict(rows)

    def find_names(self, mention: str, forms: Level = BEST) -> tuple[list[str], str]:
        """(the normalised names that a mention is, how it differs from them): those that differ
        least; none: ([], "")."""
        form = self.normalised(mention)
        if form in self.concepts or forms == "exact":
            return ([form] if form in self.concepts else []), ""
        text = cased_words(normal_text(mention))
        names: dict[Difference, list[str]] = defaultdict(list)
        for row in self._rows.get(form_key(mention), ()):
            name = self.dictionary.names[row]
            difference = compare_words(cased_words(normal_text(name)), text, forms)
            if difference is not None:
                names[difference].append(self.normalised(name))
        if not names:
            return [], ""
        least = min(names)
        return list(dict.fromkeys(names[least])), str(least)

    def ranking(self, rows: Sequence[tuple[int, float]], context: str | None = None) -> Ranking:
        """Concepts of (number of string, score), in that order, each once; at most DEPTH. context:
        the mention's text."""
        seen: set[str] = set()
        result: Ranking = []
        for number, score in rows:
            name = self.strings[number]
            for concept, tied in self.choose_meaning(name, context):
                if concept not in seen:
                    seen.add(concept)
                    result.append(Candidate(concept, name, score, tied))
                    if len(result) == DEPTH:
                        return result
        return result

    def rank(
        self,
        search: Callable[[list[int], int], tuple[np.ndarray, np.ndarray]],
        contexts: Sequence[str | None],
    ) -> list[Ranking]:
        """Rankings of queries in their texts; search(queries, k) returns (scores, numbers of
        strings), (len(queries), k).

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
    """The concepts that have the mention, normalised, as a name; none otherwise.

    forms: how a mention may differ from a name (kg.linking.normal); with "exact", a task's
        baseline, not at all.
    """

    def __init__(self, names: Names, forms: Level = "exact") -> None:
        self.names, self.forms = names, forms

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        result = []
        for mention, context in zip(mentions, contexts, strict=True):
            candidates: dict[str, Candidate] = {}
            names, matched = self.names.find_names(mention, self.forms)
            for name in names:
                for concept, tied in self.names.choose_meaning(name, context):
                    candidates.setdefault(concept, Candidate(concept, name, 1.0, tied, matched))
            result.append(list(candidates.values())[:DEPTH])
        return result


class NearestByTfIdf:
    """Nearest names by character 3-gram TF-IDF (kg.search.names.TfIdf), fitted on the dictionary's
    strings."""

    def __init__(self, names: Names) -> None:
        self.names, self.tfidf = names, TfIdf(names.strings)

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        strings = [self.names.normalised(m) for m in mentions]
        return self.names.rank(
            lambda some, k: self.tfidf.search([strings[i] for i in some], k), contexts
        )


def cut_known(text: str, names: Container[str], longest: int) -> list[str]:
    """A text cut, from the left, into the longest strings that are known, of at most `longest`
    characters, and single characters between them.

    >>> cut_known("abcd", {"bc", "b"}, 2)
    ['a', 'bc', 'd']
    """
    pieces: list[str] = []
    start = 0
    while start < len(text):
        ends = range(min(len(text), start + longest), start, -1)
        end = next((end for end in ends if text[start:end] in names), start + 1)
        pieces.append(text[start:end])
        start = end
    return pieces


class Translated:
    """A dictionary translation, the trivial baseline of linking across languages: the longest known
    phrases of a mention, from the left, as their translations, searched as `NearestByTfIdf` does.

    phrases: {phrase of the mention's language: its translation}. What no phrase covers is read as
        it is, so that a mention without one is searched by its own characters.
    """

    def __init__(self, names: Names, phrases: Mapping[str, str]) -> None:
        self.nearest, self.phrases = NearestByTfIdf(names), phrases
        self.longest = max(map(len, phrases), default=0)

    def translate(self, mention: str) -> str:
        pieces = cut_known(mention, self.phrases, self.longest)
        parts = [f" {self.phrases[p]} " if p in self.phrases else p for p in pieces]
        return " ".join("".join(parts).split())

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        return self.nearest.link([self.translate(m.lower()) for m in mentions], contexts)


class BackOff:
    """Dictionary back-off: the concepts of an exact match first, then those of `linker`, each
    once."""

    def __init__(self, names: Names, linker: Linker) -> None:
        self.exact, self.linker = Exact(names), linker

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        result = []
        pairs = zip(
            self.exact.link(mentions, contexts), self.linker.link(mentions, contexts), strict=True
        )
        for first, then in pairs:
            seen = {c.concept for c in first}
            result.append([*first, *(c for c in then if c.concept not in seen)][:DEPTH])
        return result


def text_of(candidate: Candidate, names: Names) -> str:
    """What a cross-encoder reads of a candidate: the name that was found, the preferred one where
    that is another, and the string that distinguishes the concept (kg.linking.homonyms) where
    several have the name."""
    name, concepts = candidate.name, names.concepts[candidate.name]
    strings = names.homonyms.strings(name, concepts) if len(concepts) > 1 else {}
    parts = [
        name,
        names.preferred[candidate.concept],
        names.normalised(strings.get(candidate.concept, "")),
    ]
    return "; ".join(dict.fromkeys(part for part in parts if part))
