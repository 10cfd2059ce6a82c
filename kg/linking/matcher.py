"""Dictionary linking: every name of a graph, found in running text, longest first, by one prefix tree over words.

Which names match
    Names and texts are compared word by word (kg.linking.tokens), so matches begin and end on word boundaries.
    Case must be exact for names of one word with at most 3 characters, and for names of one word in capitals with at
    most 6 (abbreviations, gene symbols). All other names match in any case.
    Never matched: names without a letter, of one character, or of more than 1,000 words; and function words
    (FUNCTION_WORDS) unless the name is written in capitals ("ALL", "WAS"), which then has to match exactly.
Which matches are kept
    The leftmost one first, the longest at its place; then on from its end. A longer name that its case rules out
    leaves the place to a shorter one (only names of one word ask for their case, so there never is one).
Which entity is meant when several have the name
    The entity for which the name is of the best kind (kg.graph.KINDS, in this order); then the one whose name has
    exactly the text's case; then the one with most triples; then the smallest id.
Abbreviations
    A short form that the text itself defines ("long form (SF)" or "SF (long form)", Schwartz and Hearst 2003) means,
    from its definition on, the entity of its long form: of the mention that ends where the long form ends and covers
    it. Where the long form has no entity the short form is not linked at all. A longer name over it still wins.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise, repeat
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.files import InputError
from kg.graph import KINDS, KnowledgeGraph, numbers
from kg.linking.abbreviations import Definition, definitions
from kg.linking.forms import Forms
from kg.linking.mentions import Mention
from kg.linking.tokens import folded, spaced, word_starts, words

_WORDS = """
a about above after again against all also am an and any are as at be because been before being below between both but
by can could did do does doing down during each either few for from further had has have having he her here hers him his
how i if in into is it its itself just may me might more most must my neither no nor not now of off on once only or
other our out over own per same shall she should so some such than that the their them then there these they this those
through to too under until up upon us very via was we were what when where whether which while who whom whose why will
with within without would yet you your
"""
FUNCTION_WORDS = frozenset(_WORDS.split())
LONGEST = 1000  # words; a longer name is no name
_NONE = -1
Match = tuple[int, int, int]  # first word, last word, entity index or -1


class _Places(NamedTuple):
    """Mentions of a text: where they start and end, and their entities' indices."""

    start: list[int]
    end: list[int]
    entity: list[int]


_NOWHERE = _Places([], [], [])  # without a mention no short form has a meaning either


def never_matches(name: str) -> bool:
    """Whether a name is of no use for linking: no letter, one character, or a function word not in capitals."""
    name = name.strip()
    return len(name) < 2 or not any(map(str.isalpha, name)) or (folded(name) in FUNCTION_WORDS and not name.isupper())


def needs_exact_case(name: str) -> bool:
    """Whether a name (as :func:`spaced` writes it) only matches in its own case."""
    return " " not in name and (len(name) <= 3 or (len(name) <= 6 and name.isupper()))


class DictionaryLinker:
    """Finds the names of a graph in text; the module's docstring states its rules.

    names: table of the graph's names (id, name, kind, ...).  ids: entity ids by index.
    degree: (entities,) number of triples of each entity; None takes 0 for all.
    abbreviations: whether short forms follow the definitions in the text.

    Raises InputError when a name belongs to an id that is not in `ids`, or when no name can be matched.
    """

    def __init__(
        self, names: pa.Table, ids: pa.Array, degree: np.ndarray | None = None, *, abbreviations: bool = True
    ) -> None:
        if degree is not None and len(degree) != len(ids):
            raise InputError(f"degree: expected one number for each of {len(ids)} entities, got {len(degree)}")
        self.abbreviations = abbreviations
        self._ids = ids
        self._words: dict[str, int] = {}  # their numbers, from 1
        entity = pc.index_in(names["id"], value_set=ids)
        if entity.null_count:
            row = pc.index(pc.is_null(entity), True).as_py()
            unknown = names["id"][row].as_py()
            raise InputError(f"names: row {row}: unknown entity id {unknown!r}; add it to the entities")
        self._index(names, ids, numbers(entity), degree)

    @classmethod
    def from_graph(
        cls, graph: KnowledgeGraph, *, abbreviations: bool = True, texts: Sequence[str] | None = None
    ) -> DictionaryLinker:
        """The linker over all names of `graph`, or over those that `texts` can contain, which link alike and are built sooner.

        Raises InputError when no name of the graph can be matched.
        """
        names = graph.names
        if texts is not None:
            # Without white space, which only separates words, a name that a text contains is a part of it.
            letters = "\0".join(_squeezed(text) for text in texts)
            rows = [row for row, name in enumerate(_strings(names["name"])) if _squeezed(name) in letters]
            first = next((row for row, name in enumerate(_strings(names["name"])) if not never_matches(name)), None)
            # One name that can be matched stays, so that only a graph without any is refused.
            names = names.take(_indices(np.array(sorted({*rows} | ({first} if first is not None else set())), np.int64)))
        return cls(names, graph.ids, graph.degree(), abbreviations=abbreviations)

    def _index(self, names: pa.Table, ids: pa.Array, entity: np.ndarray, degree: np.ndarray | None) -> None:
        """Fill the tree: every form, a sequence of words whatever their case, has its one entity or a list of candidates."""
        exact = np.zeros(len(names), bool)
        numbered = self._words
        keys, sizes = array("i"), array("i")
        for row, name in enumerate(_strings(names["name"])):
            tokens = [] if never_matches(name) else words(name)
            if len(tokens) > LONGEST:
                tokens = []
            keys.extend([numbered.setdefault(word, len(numbered) + 1) for word in tokens])
            sizes.append(len(tokens))
            exact[row] = len(tokens) == 1 and needs_exact_case(name.strip())
        if not numbered:
            raise InputError("names: none of them can be matched; give the graph names of two or more letters")
        self._forms, ends = Forms.build(np.frombuffer(keys, np.int32), np.frombuffer(sizes, np.int32))
        form = np.full(len(names), _NONE, np.int32)
        slots, form[ends >= 0] = np.unique(ends[ends >= 0], return_inverse=True)

        rank = np.empty(len(self._ids), np.int32)
        rank[numbers(pc.sort_indices(ids))] = np.arange(len(self._ids), dtype=np.int32)
        kinds = pc.dictionary_encode(names["kind"].combine_chunks())
        places = [KINDS.index(k) if k in KINDS else len(KINDS) for k in kinds.dictionary.to_pylist()]
        kind = np.array(places, np.int8)[numbers(kinds.indices)]
        rows: np.ndarray = np.flatnonzero(form != _NONE)
        triples = np.zeros(len(rows), np.int64) if degree is None else degree[entity[rows]]
        rows = rows[np.lexsort((rank[entity[rows]], -triples, kind[rows], form[rows]))]
        first = np.flatnonzero(np.diff(form[rows], prepend=_NONE))  # each form has rows[first[i]:first[i + 1]]
        # A form whose best kind leaves one entity, and allows any case, means that entity however it is written.
        best = kind[rows] == np.repeat(kind[rows][first], np.diff(first, append=len(rows)))
        lowest = np.minimum.reduceat(np.where(best, entity[rows], len(self._ids)), first)
        highest = np.maximum.reduceat(np.where(best, entity[rows], _NONE), first)
        plain = (lowest == highest) & np.logical_or.reduceat(best & ~exact[rows], first)

        # form -> its entity where case and ambiguity play no part, else -1 - (its place in _bounds)
        self._forms.values[slots] = np.where(plain, lowest, -np.cumsum(~plain))
        counts = np.diff(first, append=len(rows))
        self._bounds = array("i", np.concatenate([[0], np.cumsum(counts[~plain])]).astype(np.int32).tobytes())
        left = rows[np.repeat(~plain, counts)]
        self._candidate = array("i", entity[left].astype(np.int32).tobytes())
        self._kind = bytes(kind[left].astype(np.uint8))
        self._exact = bytes(exact[left].astype(np.uint8))
        self._surface = [spaced(name) for name in _strings(names["name"].take(_indices(left)))]

    def _resolved(self, form: int, surface: str) -> int:
        """Entity index meant by `surface`, a text of the form, or -1 when its case fits no name."""
        found = _NONE
        for i in range(self._bounds[form], self._bounds[form + 1]):  # sorted by kind, triples, id
            if found != _NONE and self._kind[i] > self._kind[found]:
                break
            if self._surface[i] == surface:
                return self._candidate[i]
            if found == _NONE and not self._exact[i]:
                found = i
        return _NONE if found == _NONE else self._candidate[found]

    @cached_property
    def several(self) -> frozenset[str]:
        """The entities that share a name of one kind with another entity."""
        entity = np.frombuffer(self._candidate, np.int32)
        form = np.repeat(np.arange(len(self._bounds) - 1), np.diff(np.frombuffer(self._bounds, np.int32)))
        rows = np.unique(np.stack([form, np.frombuffer(self._kind, np.uint8), entity], 1), axis=0)
        _, owner, owners = np.unique(rows[:, :2], axis=0, return_inverse=True, return_counts=True)
        shared = np.unique(rows[owners[owner.ravel()] > 1, 2])
        return frozenset(self._ids.take(_indices(shared)).to_pylist())

    def others(self, text: str, mention: Mention) -> tuple[str, ...]:
        """The other entities that a linked mention could as well mean: those that only triples and ids decide between, in the
        order of both.
        """
        entity = mention.entity
        if entity not in self.several:
            return ()
        surface = text[mention.start : mention.end]
        tokens = words(surface)
        found = self._forms.longest(np.fromiter((self._words.get(word, 0) for word in tokens), np.int32, len(tokens)))
        if not len(found.first) or found.first[0] or found.last[0] != len(tokens) - 1 or found.value[0] >= 0:
            return ()
        form, written = -1 - int(found.value[0]), spaced(surface)
        rows = range(self._bounds[form], self._bounds[form + 1])  # sorted by kind, triples, id
        fit = [i for i in rows if self._surface[i] == written or not self._exact[i]]
        fit = [i for i in fit if self._kind[i] == self._kind[fit[0]]]
        same = [i for i in fit if self._surface[i] == written] or fit
        ids = dict.fromkeys(self._ids[self._candidate[i]].as_py() for i in same)
        return tuple(one for one in ids if one != entity) if entity in ids else ()

    def link(self, text: str) -> list[Mention]:
        """Mentions in `text` in order, none overlapping, with character offsets (end exclusive) and score 1."""
        return self.link_all([text])[0]

    def link_all(self, texts: Sequence[str]) -> list[list[Mention]]:
        """The same of each of several texts, which takes less time than one by one."""
        tokens = [[*words(text), ""] for text in texts]  # a word that no name has, behind every text
        begins = list(accumulate(map(len, tokens), initial=0))
        known = map(self._words.get, chain.from_iterable(tokens), repeat(0))
        found = self._forms.longest(np.fromiter(known, np.int32, begins[-1]))
        bounds = np.searchsorted(found.first, begins).tolist()
        longest = list(zip(*(part.tolist() for part in found), strict=True))
        places = [
            self._places(text, own, longest[start:end], begin) if start < end else _NOWHERE
            for text, own, begin, (start, end) in zip(texts, tokens, begins, pairwise(bounds))  # noqa: B905  begins has one more
        ]
        entity = np.fromiter(chain.from_iterable(own.entity for own in places), np.int64)
        rows = zip(
            chain.from_iterable(own.start for own in places), chain.from_iterable(own.end for own in places),
            self._ids.take(_indices(entity)).to_pylist(), repeat(1.0),
        )  # fmt: skip
        mentions = list(map(tuple.__new__, repeat(Mention), rows))  # Mention(...) would take twice as long, a tenth of the whole
        ends = accumulate((len(own.start) for own in places), initial=0)
        return [mentions[start:end] for start, end in pairwise(ends)]

    def _places(self, text: str, tokens: list[str], longest: list[Match], begin: int) -> _Places:
        """Mentions in `text`, whose words are those from `begin` on of all texts."""
        starts = word_starts(text)
        matches = self._matches(longest, begin, text, tokens, starts)
        if self.abbreviations and "(" in text and (defined := definitions(text)):
            short_forms = list(_short_forms(text, tokens, starts, defined, matches))
            matches = _with_short_forms(matches, short_forms)
        kept = [match for match in matches if match[2] >= 0]
        return _Places(
            [starts[first] for first, _, _ in kept],
            [starts[last] + len(tokens[last]) for _, last, _ in kept],
            [entity for _, _, entity in kept],
        )

    def _matches(self, longest: list[Match], before: int, text: str, tokens: list[str], starts: list[int]) -> list[Match]:
        """The leftmost of the longest matches, by the rules of case and ambiguity."""
        matches, free = [], 0
        for begin, end, entity in longest:
            begin, end = begin - before, end - before
            if begin < free:
                continue
            free = end + 1
            if entity < 0:
                surface = text[starts[begin] : starts[end] + len(tokens[end])]
                entity = self._resolved(-1 - entity, surface if begin == end else spaced(surface))
                if entity < 0:
                    continue  # only names of one word ask for their case, so no shorter name begins here
            matches.append((begin, end, entity))
        return matches


def _with_short_forms(matches: list[Match], short_forms: list[Match]) -> list[Match]:
    """`matches` with the short forms in place of those they cut or cover; a longer match over one stays."""
    if not short_forms:
        return matches
    taken: set[int] = set()  # words
    kept = []
    for first, last, entity in short_forms:
        over = bisect_right(matches, first, key=itemgetter(0)) - 1
        start, end = matches[over][:2] if over >= 0 else (-1, -1)
        if not (start < first <= end or (start == first and end > last)) and first not in taken:
            kept.append((first, last, entity))
            taken.update(range(first, last + 1))
    rest = [m for m in matches if m[0] not in taken and m[1] not in taken]
    return sorted(rest + kept)


def _short_forms(
    text: str, tokens: list[str], starts: list[int], defined: list[Definition], matches: list[Match]
) -> Iterator[Match]:
    """The places of a defined short form, from its definition on, with the entity of its long form or -1."""
    meant: dict[str, list[tuple[int, int]]] = {}  # short form -> (offset from which it has a meaning, entity)
    for short, long in sorted(defined):
        over = bisect_right(matches, bisect_left(starts, long[1]) - 1, key=itemgetter(0)) - 1
        first, last, entity = matches[over] if over >= 0 else (0, -1, _NONE)
        covers = last >= 0 and starts[first] <= long[0] and starts[last] + len(tokens[last]) == long[1]
        meant.setdefault(text[slice(*short)], []).append((short[0], entity if covers else _NONE))
    for form, meanings in meant.items():
        pieces = words(form)
        first = bisect_left(starts, meanings[0][0]) - 1
        while pieces[0] in (rest := tokens[first + 1 :]):
            first += 1 + rest.index(pieces[0])
            last = first + len(pieces) - 1
            if text[starts[first] : starts[first] + len(form)] == form and tokens[first : last + 1] == pieces:
                yield first, last, meanings[bisect_right(meanings, starts[first], key=itemgetter(0)) - 1][1]


def _squeezed(text: str) -> str:
    return "".join(folded(text).split())


def _indices(rows: np.ndarray) -> pa.Array:
    """Rows as an Arrow array; pa.array would import pandas, a quarter of the start of `kepl link`."""
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows.astype(np.int64))])


def _strings(column: pa.ChunkedArray) -> Iterator[str]:
    """Values of a column, a few at a time in memory."""
    for batch in pa.table({"column": column}).to_batches(max_chunksize=1 << 16):
        yield from batch["column"].to_pylist()
