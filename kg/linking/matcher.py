"""Dictionary linking: the names of a graph in running text, longest first.

Which names match
    Names and texts are compared word by word (kg.linking.tokens), so matches begin and end on word
    boundaries. What is compared is their normal form (kg.linking.normal); `forms` says how much may
    differ: `exact` nothing but the case, `normal` characters, and accents and punctuation as weaker
    forms, `inflected` plural and singular as well. Case must be exact for names of one word with at
    most 3 characters, and for names of one word in capitals with at most 6 (abbreviations, gene
    symbols). All other names match in any case. In a sentence in capitals such a name of letters
    alone, with a vowel, is an ordinary word ("WAS", "REST") and does not match.
    Never matched: names without a letter, of one character, or of more than 1,000 words; and
    function words (FUNCTION_WORDS) unless the name is written in capitals ("ALL", "WAS"), which
    then has to match exactly. `kinds` names the kinds of names that are used (kg.graph.KINDS);
    without it all are, but related and broad names of one ordinary word ("test", "death"), which
    say little.
Which matches are kept
    The leftmost one first, the longest at its place; then on from its end. A longer name that its
    case, or its form, rules out leaves the place to a shorter one, as does one over the end of a
    sentence: of a paragraph, an item of a list, or a line that is not wrapped
    (kg.linking.sentences).
Which entity is meant when several have the name
    The entity whose name differs least from the text; then the one for which the name is of the
    best kind (kg.graph.KINDS, in this order); then the one whose name has exactly the text's case;
    then the one with most triples; then the smallest id.
Abbreviations
    A short form that the text itself defines (kg.linking.abbreviations) means the entity of its
    long form: of the mention that ends where the long form ends and covers it. Where the long form
    has no entity the short form is not linked at all. A longer name over it still wins.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise, repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.files import InputError
from kg.documents.mentions import Mention
from kg.graph import KnowledgeGraph, numbers
from kg.linking.defined_forms import NO_INDEX, Match, Meaning, match_short_forms, replace_matches
from kg.linking.forms import NONE, Forms
from kg.linking.inflection import is_short_form
from kg.linking.matchable import (
    POSSESSIVE,
    flag_values,
    has_capitals,
    is_doubtful,
    iterate_strings,
    needs_exact_case,
    never_matches,
    places_of_kinds,
    rows_of_texts,
    to_indices,
    usable_names,
)
from kg.linking.normal import (
    BEST,
    ENGLISH,
    NO_DIFFERENCE,
    Difference,
    Level,
    compare_words,
    kept_words,
    normal_text,
)
from kg.linking.passage import Passage, find_starts
from kg.linking.tokens import cased_words, fold_case, words
from kg.linking.word_numbers import REMEMBERED, SKIP, Vocabulary
from kg.linking.words import FUNCTION_WORDS

MARKS = 4  #: at the end of a name; a line of a thousand dashes is none
LONGEST = 1000  # words; a longer name is no name


class Found(NamedTuple):
    """A name in a text: the characters [start, end), the entity, and how the text differs from the
    name.

    matched: "" where it does not, else "plural", "spelling", "punctuation",
        "accents", or several joined by +.
    others: the entities that the text could as well mean, since only triples and ids decide between
        them.
    """

    start: int
    end: int
    entity: str
    matched: str = ""
    others: tuple[str, ...] = ()


class _Candidate(NamedTuple):
    """A name of a form: its entity (an index), its place in the order of kinds, and whether its
    case must be exact."""

    entity: int
    kind: int
    exact: bool
    name: str
    english: bool


class DictionaryLinker:
    """Finds the names of a graph in text; the module's docstring states its rules.

    names: table of the graph's names (id, name, kind, language, ...).  ids: entity ids by index.
    degree: (entities,) number of triples of each entity; None takes 0 for all.
    abbreviations: whether short forms follow the definitions in the text.  forms: how much may
        differ.
    kinds: kinds of names that are used; None: all but weak ones.

    Raises InputError when a name belongs to an id that is not in `ids`, or when no name can be
    matched.
    """

    def __init__(
        self,
        names: pa.Table,
        ids: pa.Array,
        degree: np.ndarray | None = None,
        *,
        abbreviations: bool = True,
        forms: Level = BEST,
        kinds: Iterable[str] | None = None,
    ) -> None:
        if degree is not None and len(degree) != len(ids):
            raise InputError(
                f"degree: expected one number for each of {len(ids)} entities, got {len(degree)}"
            )
        self.abbreviations, self.level = abbreviations, forms
        self._ids = ids
        self._words = Vocabulary(forms)
        entity = pc.index_in(names["id"], value_set=ids)
        if entity.null_count:
            row = pc.index(pc.is_null(entity), True).as_py()
            unknown = names["id"][row].as_py()
            raise InputError(
                f"names: row {row}: unknown entity id {unknown!r}; add it to the entities"
            )
        names = usable_names(names, kinds)
        self._index(names, ids, numbers(pc.index_in(names["id"], value_set=ids)), degree)
        self._meant: dict[tuple[int, str], Meaning | None] = {}  # of (value of a form, surface)

    @classmethod
    def from_graph(
        cls,
        graph: KnowledgeGraph,
        *,
        abbreviations: bool = True,
        texts: Sequence[str] | None = None,
        forms: Level = BEST,
        kinds: Iterable[str] | None = None,
    ) -> DictionaryLinker:
        """The linker over all names of `graph`, or over those that `texts` can contain, which link
        alike and are built sooner.

        Raises InputError when no name of the graph can be matched.
        """
        names = graph.names
        if texts is not None:
            names = usable_names(names, kinds)
            names = names.take(to_indices(rows_of_texts(names["name"], texts, forms)))
        return cls(
            names, graph.ids, graph.degree(), abbreviations=abbreviations, forms=forms, kinds=kinds
        )

    # --- building ---------------------------------------------------------------------------------

    def _index(
        self, names: pa.Table, ids: pa.Array, entity: np.ndarray, degree: np.ndarray | None
    ) -> None:
        """Fill the tree: every form, a sequence of classes of words, has its one entity or a list
        of candidates."""
        english = self._english(names)
        ends, exact, plain = self._read_names(names, english)
        form = np.full(len(names), NO_INDEX, np.int32)
        slots, form[ends >= 0] = np.unique(ends[ends >= 0], return_inverse=True)
        kind = places_of_kinds(names["kind"])
        triples = np.zeros(len(names), np.int64) if degree is None else degree[entity]
        rank = np.empty(len(ids), np.int32)
        rank[numbers(pc.sort_indices(ids))] = np.arange(len(ids), dtype=np.int32)
        rows: np.ndarray = np.flatnonzero(form != NO_INDEX)
        rows = rows[np.lexsort((rank[entity[rows]], -triples[rows], kind[rows], form[rows]))]

        # each form has rows[first[i]:first[i + 1]]
        first = np.flatnonzero(np.diff(form[rows], prepend=NO_INDEX))
        counts = np.diff(first, append=len(rows))
        # A form whose best kind leaves one entity, and allows any case, means that entity however
        # it is written.
        best = kind[rows] == np.repeat(kind[rows][first], counts)
        lowest = np.minimum.reduceat(np.where(best, entity[rows], len(ids)), first)
        highest = np.maximum.reduceat(np.where(best, entity[rows], NO_INDEX), first)
        single = (lowest == highest) & np.logical_or.reduceat(best & ~exact[rows], first)
        single &= np.logical_and.reduceat(plain[rows], first)

        # form -> its entity where case, form and ambiguity play no part, else -1 - (its place in
        # _bounds)
        self._forms.values[slots] = np.where(single, lowest, -np.cumsum(~single))
        self._bounds = array(
            "i", np.concatenate([[0], np.cumsum(counts[~single])]).astype(np.int32).tobytes()
        )
        left = rows[np.repeat(~single, counts)]
        self._entity = array("i", entity[left].astype(np.int32).tobytes())
        self._kind = bytes(kind[left].astype(np.uint8))
        self._exact = bytes(exact[left].astype(np.uint8))
        self._english_name = bytes(english[left].astype(np.uint8))
        self._written = names["name"].take(to_indices(left)).combine_chunks()

    def _read_names(
        self, names: pa.Table, english: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Make the tree of forms. Returns, for each name, the end of its form (below 0: it never
        matches), whether its case must be exact, and whether its words are those of the form.

        Raises InputError when no name can be matched.
        """
        exact, plain = np.zeros(len(names), bool), np.zeros(len(names), bool)
        keys, sizes = array("i"), array("i")
        for row, name in enumerate(iterate_strings(names["name"])):
            normal = self._normal(name)
            tokens = [] if never_matches(normal) else words(normal)
            matched_words = (
                tokens if self.level == "exact" or len(tokens) > LONGEST else kept_words(tokens)
            )
            if len(tokens) > LONGEST:
                tokens = matched_words = []
            signed = [self._words.add(word) for word in matched_words]
            keys.extend([abs(number) for number in signed])
            sizes.append(len(signed))
            exact[row] = len(matched_words) == 1 and needs_exact_case(
                " ".join(kept_words(cased_words(normal)))
            )
            as_written = len(matched_words) == len(tokens) and min(signed, default=0) > 0
            plain[row] = as_written and (
                self.level != "inflected" or (english[row] and not has_capitals(normal))
            )
        if not keys:
            raise InputError(
                "names: none of them can be matched; give the graph names of two or more letters"
            )
        self._forms, ends = Forms.build(
            np.frombuffer(keys, np.int32), np.frombuffer(sizes, np.int32)
        )
        return ends, exact, plain

    def _english(self, names: pa.Table) -> np.ndarray:
        """(names,) whether each is English, or may be."""
        if "language" not in names.column_names:
            return np.ones(len(names), bool)
        return flag_values(names["language"], lambda language: language.lower() in ENGLISH)

    def _normal(self, name: str) -> str:
        return name if self.level == "exact" else normal_text(name)

    # --- what a surface means ---------------------------------------------------------------------

    def _candidates(self, form: int) -> list[_Candidate]:
        """The names of a form, by kind, triples and id."""
        return [
            _Candidate(
                self._entity[i],
                self._kind[i],
                bool(self._exact[i]),
                self._normal(self._written[i].as_py()),
                bool(self._english_name[i]),
            )
            for i in range(self._bounds[form], self._bounds[form + 1])
        ]

    def _find_meant(self, value: int, lower: list[str], text: list[str]) -> Meaning | None:
        """What words of a text mean, whose form has `value`; None where their case or their form
        fits no name.

        lower: the words in lower case; of a form that keeps no candidates, every name has the first
            words of its classes.
        """
        if value >= 0:
            first_words = [self._words.first[abs(self._words[word])] for word in kept_words(lower)]
            candidates = [_Candidate(value, 0, False, " ".join(first_words), True)]
        else:
            candidates = self._candidates(-1 - value)
        best: tuple[Difference, int, bool] | None = None
        chosen: list[int] = []
        by_case = False
        for candidate in candidates:
            name = cased_words(candidate.name)
            difference = self._difference(candidate, name, text)
            if difference is None:
                continue
            key = difference, candidate.kind, name != text
            if best is None or key < best:
                best, chosen, by_case = key, [candidate.entity], candidate.exact
            elif key == best and candidate.entity not in chosen:
                chosen.append(candidate.entity)
        return None if best is None else Meaning(chosen[0], best[0], tuple(chosen[1:]), by_case)

    def _difference(
        self, candidate: _Candidate, name: list[str], text: list[str]
    ) -> Difference | None:
        """How a text differs from a candidate's name; None where it is not that name."""
        if candidate.exact and name != text:
            is_plural = (
                self.level == "inflected"
                and candidate.english
                and text == [f"{name[0]}s"]
                and is_short_form(name[0])
            )
            return Difference(plural=True) if is_plural else None
        if candidate.exact:
            return NO_DIFFERENCE
        difference = compare_words(name, text, self.level, candidate.english)
        if (
            difference is not None
            and any(difference)
            and len(text) == 1
            and fold_case(text[0]) in FUNCTION_WORDS
        ):
            return None
        return difference

    def find_name(self, string: str) -> Found | None:
        """The name that a string is as a whole; None where it is none."""
        passage = Passage(string, self.level)
        matched_words = passage.words if self.level == "exact" else kept_words(passage.words)
        value = self._forms.find([abs(self._words[word]) for word in matched_words])
        if value == NONE:
            return None
        meant = self._resolve(passage, 0, len(passage.words) - 1, value)
        if meant is None:
            return None
        return Found(0, len(string), self._ids[meant.entity].as_py(), *self._details(meant))

    # --- linking ----------------------------------------------------------------------------------

    def link(self, text: str) -> list[Mention]:
        """Mentions in `text` in order, none overlapping, with character offsets (end exclusive) and
        score 1."""
        return self.link_all([text])[0]

    def link_all(self, texts: Sequence[str]) -> list[list[Mention]]:
        """The same of each of several texts, which takes less time than one by one."""
        passages = [Passage(text, self.level) for text in texts]
        matches = list(map(self._select_matches, passages, self._matches(passages)))
        starts: list[int] = []
        ends: list[int] = []
        for passage, passage_matches in zip(passages, matches, strict=True):
            own_starts, own_ends = passage.places(passage_matches) if passage_matches else ([], [])
            starts += own_starts
            ends += own_ends
        entities = np.array(
            [match[2] for passage_matches in matches for match in passage_matches], np.int64
        )
        ids = self._ids.take(to_indices(entities)).to_pylist()
        rows = zip(starts, ends, ids, repeat(1.0), repeat(""), repeat(()))
        # Mention(...) would take twice as long, a tenth of the whole
        mentions = list(map(tuple.__new__, repeat(Mention), rows))
        bounds = accumulate(map(len, matches), initial=0)
        return [mentions[start:end] for start, end in pairwise(bounds)]

    def find_all(self, passages: Sequence[Passage]) -> list[list[Found]]:
        """The names in each passage, in order, none overlapping."""
        matches = list(map(self._select_matches, passages, self._matches(passages)))
        entities = [match[2] for passage_matches in matches for match in passage_matches]
        ids = iter(self._ids.take(to_indices(np.array(entities, np.int64))).to_pylist())
        result = []
        for passage, passage_matches in zip(passages, matches, strict=True):
            places = []
            for start, end, match in zip(
                *passage.places(passage_matches), passage_matches, strict=True
            ):
                places.append(Found(start, end, next(ids), *self._details(match[3])))
            result.append(places)
        return result

    def _details(self, meant: Meaning | None) -> tuple[str, tuple[str, ...]]:
        """How a text differs from the name, and the other entities that have it."""
        if meant is None or (meant.difference == NO_DIFFERENCE and not meant.others):
            return "", ()
        return str(meant.difference), tuple(self._ids[other].as_py() for other in meant.others)

    def _select_matches(self, passage: Passage, matches: list[Match]) -> list[Match]:
        """Matches that mean something, short forms as the text defines them."""
        if matches and self.abbreviations and "(" in passage.text and passage.short_forms:
            matches = replace_matches(matches, list(match_short_forms(passage, matches)))
            matches = [match for match in matches if match[2] >= 0]
        return matches

    def _matches(self, passages: Sequence[Passage]) -> list[list[Match]]:
        """The leftmost of the longest matches in each passage, by the rules of case, form and
        ambiguity."""
        begins, all_words = [0], []
        for passage in passages:
            all_words += passage.words
            all_words.append("")  # a word that no name has
            begins.append(len(all_words))
        signed = np.fromiter(map(self._words.__getitem__, all_words), np.int64, len(all_words))
        positions, classes = self._count_classes(signed, all_words)
        longest = self._forms.longest(classes.astype(np.int32))
        first, last = positions[longest.first], positions[longest.last]
        differs = np.concatenate([[0], np.cumsum(signed[positions] < 0)])
        clean = (longest.value >= 0) & (last - first == longest.last - longest.first)
        clean &= differs[longest.last + 1] == differs[longest.first]
        bounds = np.searchsorted(first, begins)
        # the entity of a plain name, written as it is
        plain = np.where(clean, longest.value, NO_INDEX)
        # no list of it: a tuple for each would take as long as all that follows
        rows = zip(
            first.tolist(), last.tolist(), longest.value.tolist(), plain.tolist(), strict=True
        )
        counts = np.diff(bounds).tolist()
        find_starts([passage for passage, count in zip(passages, counts, strict=True) if count])
        return [
            self._leftmost(passage, begin, islice(rows, count), positions, classes) if count else []
            for passage, begin, count in zip(passages, begins, counts, strict=False)
        ]

    def _count_classes(
        self, signed: np.ndarray, all_words: list[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(places of the words that count, the classes of these)."""
        skipped = signed == SKIP
        if not skipped.any():
            return np.arange(len(signed)), np.abs(signed)
        possessive = np.flatnonzero((signed[1:] == self._words[POSSESSIVE]) & skipped[:-1]) + 1
        skipped[[place for place in possessive.tolist() if all_words[place - 1] == "'"]] = True
        positions = np.flatnonzero(~skipped)
        return positions, np.abs(signed[positions])

    def _leftmost(
        self,
        passage: Passage,
        begin: int,
        rows: Iterable[tuple[int, int, int, int]],
        positions: np.ndarray,
        classes: np.ndarray,
    ) -> list[Match]:
        """The matches of a passage whose words are those from `begin` on; rows: (first, last,
        value, plain entity)."""
        text, starts, tokens, meanings = passage.text, passage.starts, passage.words, self._meant
        matches, free = list[Match](), begin
        # words that are the first of a line, in order, and one behind all
        line_starts = [*_first_words_of_lines(text, starts), len(tokens)]
        line = 0
        meant: Meaning | None
        for first, last, value, plain in rows:
            if first < free:
                continue
            end = last - begin
            while line_starts[line] <= first - begin:
                line += 1
            if line_starts[line] <= end and self._is_cut(passage, first - begin, end):
                last, meant = self._shorter(passage, begin, first, last, positions, classes)
                if meant is None:
                    continue
                matches.append((first - begin, last - begin, meant.entity, meant))
            elif plain >= 0:
                matches.append((first - begin, end, plain, None))
            else:
                key = value, text[starts[first - begin] : starts[end] + len(tokens[end])]
                meant = (
                    meanings[key]
                    if key in meanings
                    else self._resolve(passage, first - begin, end, value)
                )
                if meant is not None and meant.by_case:
                    meant = self._resolve(passage, first - begin, end, value)
                if meant is None:
                    end, meant = self._with_marks(passage, first - begin, end, value)
                    last = begin + end
                if meant is None and last > first:
                    last, meant = self._shorter(passage, begin, first, last, positions, classes)
                if meant is None:
                    continue
                matches.append((first - begin, last - begin, meant.entity, meant))
            free = last + 1
        return matches

    def _with_marks(
        self, passage: Passage, first: int, last: int, value: int
    ) -> tuple[int, Meaning | None]:
        """(last word, meaning) of words with the marks that follow without a blank: the name of an
        ion, HCO3-, ends in one."""
        starts, tokens = passage.starts, passage.words
        for end in range(last + 1, min(last + 1 + MARKS, len(tokens))):
            is_joined = starts[end] == starts[end - 1] + len(tokens[end - 1])
            if not is_joined or tokens[end].isalnum():
                break
            meant = self._resolve(passage, first, end, value)
            if meant is not None:
                return end, meant
        return last, None

    def _is_cut(self, passage: Passage, first: int, last: int) -> bool:
        """Whether a statement ends between two words."""
        start, end = passage.starts[first], passage.starts[last]
        return (
            first < last
            and "\n" in passage.text[start:end]
            and not passage.is_in_one_statement(start, end + 1)
        )

    def _resolve(self, passage: Passage, first: int, last: int, value: int) -> Meaning | None:
        """What the words of a passage from `first` to `last` mean, whose form has `value`."""
        surface = passage.surface(first, last)
        key = value, surface
        if key in self._meant:
            meant = self._meant[key]
        else:
            meant = self._find_meant(value, passage.words[first : last + 1], cased_words(surface))
            if len(self._meant) < REMEMBERED and len(surface) < 200:
                self._meant[key] = meant
        if meant is None or not meant.by_case or not is_doubtful(surface):
            return meant
        return None if passage.is_capitals(passage.starts[first]) else meant

    def _shorter(
        self,
        passage: Passage,
        begin: int,
        first: int,
        last: int,
        positions: np.ndarray,
        classes: np.ndarray,
    ) -> tuple[int, Meaning | None]:
        """(last word, meaning) of the longest name that begins at `first`, ends before `last` and
        fits."""
        low, high = np.searchsorted(positions, [first, last]).tolist()
        for end, value in reversed(self._forms.every(classes[low:high])):
            shorter = int(positions[low + end])
            at = shorter - begin
            if self._is_cut(passage, first - begin, at):
                continue
            meant = self._resolve(passage, first - begin, at, value)
            if meant is not None:
                return shorter, meant
        return last, None


def _first_words_of_lines(text: str, starts: Sequence[int]) -> Iterator[int]:
    """The first word behind each line break of a text whose words begin at `starts`."""
    place = text.find("\n")
    while place >= 0:
        yield bisect_left(starts, place)
        place = text.find("\n", place + 1)
