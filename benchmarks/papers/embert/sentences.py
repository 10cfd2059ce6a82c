"""Sentences for the two figures, drawn from linked text (a folder of `kepl data link`).

Of every entity one sentence at most is taken, so that sentences are independent of each other: the
one of its mentions with the smallest hash of seed, document and place; then as many as are asked
for, by the same hash. What is left out is counted. A sentence ends at 。！？； or a line's end and is
cut to a window of characters around its mention, the same
for all encoders: no tokenizer makes more tokens than characters, so what fits is whole in all of
    them.
"""  # noqa: E501

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from benchmarks.papers.embert.attention_options import Sample
from kg.graph import KnowledgeGraph
from kg.linking import linked_documents

ENDS = "。！？；\n"
Kinds = Mapping[str, str]  # entity id -> type
Pool = Mapping[tuple[str, int], Sequence[str]]  # (type, characters) -> names

SHORT = "mentions with too little context in their sentence"
LONG = "mentions longer than the window leaves room for"
ALONE = "mentions of entities without a synonym"
UNKNOWN = "mentions of entities that the graph lacks"
NO_OTHER = "mentions without another entity of their type and length"
AGAIN = "mentions whose name or synonym stands in their sentence again"
WHOLE = "mentions of short entities"
UNLIKE = "mentions whose pieces are not their text"


class Mention(NamedTuple):
    """`text[start:end]` names `entity`."""

    document: str
    text: str
    start: int
    end: int
    entity: str

    @property
    def surface(self) -> str:
        return self.text[self.start : self.end]


class Swap(NamedTuple):
    """A sentence `left` + name + `right`, and three names for it: its own, a synonym, a random one
    of its type and length."""

    document: str
    entity: str
    left: str
    right: str
    original: str
    synonym: str
    random: str

    @property
    def shared(self) -> int:
        """How many characters of the synonym are in the original name, too."""
        return sum(c in self.original for c in self.synonym)


class Halves(NamedTuple):
    """A sentence with a long entity between `left` and `right`: what describes it, and its last
    piece."""

    document: str
    entity: str
    left: str
    right: str
    adjective: str
    atomic: str


Sentence = TypeVar("Sentence", Swap, Halves)


def mentions(linked: Path) -> Iterator[Mention]:
    """Every mention in a folder of linked text. Raises InputError when there is none."""
    for document in linked_documents(linked):
        for m in document.mentions:
            yield Mention(document.id, document.text, m.start, m.end, m.entity)


def around(text: str, start: int, end: int, room: int) -> tuple[str, str]:
    """The text left and right of text[start:end] in its sentence, at most `room` characters in both
    together.

    Where that is too much, each side keeps half of the room, and more where the other needs less.
    """
    first = max(text.rfind(mark, 0, start) for mark in ENDS) + 1
    ends = [text.find(mark, end) for mark in ENDS]
    last = min((place for place in ends if place >= 0), default=len(text))
    left, right = start - first, last - end
    keep = min(left, max(room // 2, room - right))
    return text[start - keep : start], text[end : end + min(right, room - keep)]


def _key(seed: int, mention: Mention) -> str:
    return hashlib.sha256(
        f"{seed}/{mention.document}/{mention.start}/{mention.end}/{mention.entity}".encode()
    ).hexdigest()


def _draw_sentences(candidates: Iterable[tuple[str, Sentence]], number: int) -> list[Sentence]:
    """The sentence with the smallest hash of each entity, from (hash, sentence); the `number` ones
    with the smallest hashes."""
    best: dict[str, tuple[str, Sentence]] = {}
    for key, sentence in candidates:
        if sentence.entity not in best or key < best[sentence.entity][0]:
            best[sentence.entity] = key, sentence
    return [sentence for _, sentence in sorted(best.values(), key=lambda pair: pair[0])[:number]]


def _contexts(
    mention: Mention, sample: Sample, longest: int, left_out: Counter[str]
) -> tuple[str, str] | None:
    if longest + sample.least > sample.window:
        left_out[LONG] += 1
        return None
    left, right = around(mention.text, mention.start, mention.end, sample.window - longest)
    if sum(not c.isspace() for c in left + right) < sample.least:
        left_out[SHORT] += 1
        return None
    return left, right


def pools(graph: KnowledgeGraph) -> tuple[dict[str, str], dict[tuple[str, int], list[str]]]:
    """({entity: type}, {(type, characters): preferred names}) of a graph, in its order."""
    kinds: dict[str, str] = {}
    names: dict[tuple[str, int], list[str]] = defaultdict(list)
    columns = (graph.entities[c].to_pylist() for c in ("id", "name", "type"))
    for entity, name, kind in zip(*columns, strict=True):
        kinds[entity] = kind
        names[kind, len(name)].append(name)
    return kinds, dict(names)


def swaps(
    occurrences: Iterable[Mention],
    names_of: Callable[[str], Sequence[str]],
    kinds: Kinds,
    pool: Pool,
    sample: Sample,
) -> tuple[list[Swap], Counter[str]]:
    """(sentences in which an entity can be replaced, what was left out).

    names_of: an entity's names that mean the same (:class:`kg.build.thesaurus.Thesaurus`).
    kinds, pool: :func:`pools`.
    The synonym is as long as the name where one is. The random name is of another entity, and none
    of the names that mean the same. The window's characters hold the sentence with the longest of
    its three names. A sentence with less context than the least characters is left out.
    """
    left_out: Counter[str] = Counter()

    def iterate_swaps() -> Iterator[tuple[str, Swap]]:
        for mention in occurrences:
            surface = mention.surface
            same = set(names_of(mention.entity))
            others = sorted(n for n in same if n.strip() and n.casefold() != surface.casefold())
            if not others:
                left_out[ALONE] += 1
                continue
            if mention.entity not in kinds:
                left_out[UNKNOWN] += 1
                continue
            folded = {n.casefold() for n in (*same, surface, mention.entity)}
            key = _key(sample.seed, mention)
            rng = np.random.default_rng(int(key, 16))
            names = pool.get((kinds[mention.entity], len(surface)), ())
            order = (
                rng.permutation(len(names)) if len(names) <= 64 else rng.integers(0, len(names), 64)
            )
            drawn = next((names[i] for i in order if names[i].casefold() not in folded), None)
            if drawn is None:
                left_out[NO_OTHER] += 1
                continue
            # another length moves every token behind the name to another position, which alone
            # changes its weights
            others = [n for n in others if len(n) == len(surface)] or others
            synonym = others[int(rng.integers(len(others)))]
            sides = _contexts(mention, sample, max(len(surface), len(synonym)), left_out)
            if sides is None:
                continue
            if any(name in side for name in (surface, synonym) for side in sides):
                left_out[AGAIN] += 1
                continue
            yield key, Swap(mention.document, mention.entity, *sides, surface, synonym, drawn)

    return _draw_sentences(iterate_swaps(), sample.sentences), left_out


def halves(
    occurrences: Iterable[Mention],
    pieces_of: Callable[[str], Sequence[str]],
    sample: Sample,
) -> tuple[list[Halves], Counter[str]]:
    """(sentences with a long entity, what was left out). The last piece is atomic, all before it
    the adjective.

    pieces_of: a name's pieces (:class:`kg.build.segment.Segmenter`), one for a short entity.
    """
    left_out: Counter[str] = Counter()
    pieces_by_name: dict[str, tuple[str, ...]] = {}

    def iterate_halves() -> Iterator[tuple[str, Halves]]:
        for mention in occurrences:
            surface = mention.surface
            if surface not in pieces_by_name:
                pieces_by_name[surface] = tuple(pieces_of(surface))
            pieces = pieces_by_name[surface]
            if len(pieces) < 2:
                left_out[WHOLE] += 1
                continue
            if "".join(pieces) != surface:
                left_out[UNLIKE] += 1
                continue
            sides = _contexts(mention, sample, len(surface), left_out)
            if sides is not None:
                yield (
                    _key(sample.seed, mention),
                    Halves(
                        mention.document, mention.entity, *sides, "".join(pieces[:-1]), pieces[-1]
                    ),
                )

    return _draw_sentences(iterate_halves(), sample.sentences), left_out
