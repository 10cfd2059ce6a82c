"""Entities out of text: detect mentions -> write out abbreviations -> find candidates -> rank them again -> leave out NIL.

    detect      dictionary: the graph's names, longest match (kg.linking.matcher); kebiolm: the spans that its detector finds
    candidates  names: the entities that have the mention as a name; or a model that links (sapbert, genbioel, kebiolm, any encoder)
    rerank      a second model that puts the candidates in its own order
    nil         a mention whose best candidate scores below is linked to nothing

A chain is written with >: "dictionary", "dictionary > sapbert", "kebiolm > sapbert > genbioel". The first word detects; the second
finds candidates (left out: names, or what the detector linked); the third ranks them again. Scores are those of the last
step: 1 for names, cosines of vectors, mean log probabilities of generated names, dot products of entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from core.files import InputError
from inference.options import LinkerOptions, Options
from kg.graph import KnowledgeGraph
from kg.linking.abbreviations import long_forms, written_out
from kg.linking.matcher import DictionaryLinker

if TYPE_CHECKING:  # models, and what reads them, are imported by the chains that need them: a dictionary links at once
    from inference.entity_table import EntityReader
    from inference.linkers import Candidate, Linker, Names

DETECTORS = ("dictionary", "kebiolm")
BATCH = 64  # texts that are linked together, so that models see full batches


class Option(NamedTuple):
    """An entity that a mention may mean."""

    entity: str
    name: str  # the entity's preferred one
    score: float


class Linked(NamedTuple):
    """A mention, and what it means: the best of `candidates`, or nothing (NIL)."""

    start: int
    end: int
    text: str
    entity: str | None
    name: str | None
    type: str | None
    score: float | None
    candidates: tuple[Option, ...] = ()
    long_form: str | None = None


class Asked(NamedTuple):
    """A detected mention: its text's number, its place, the entity that the detector names, and what is looked for."""

    text: int
    start: int
    end: int
    entity: str | None
    string: str
    long_form: str | None


class Steps(NamedTuple):
    """A chain, taken apart."""

    detect: str
    candidates: str | None
    rerank: str | None


def steps_of(chain: str) -> Steps:
    """The steps of a chain such as "dictionary > sapbert". Raises InputError for a first word that detects nothing."""
    words = [word.strip() for word in chain.split(">")]
    if not all(words) or len(words) > 3:
        raise InputError(f"chain {chain!r}: wanted DETECTOR, DETECTOR > CANDIDATES or DETECTOR > CANDIDATES > RERANKER")
    if words[0].partition("/")[0] not in DETECTORS and not Path(words[0]).is_dir():
        raise InputError(
            f"chain {chain!r}: {words[0]!r} finds no mentions; begin with one of: {', '.join(DETECTORS)}, as in "
            f"'dictionary > {words[0]}'"
        )
    return Steps(words[0], words[1] if len(words) > 1 else None, words[2] if len(words) > 2 else None)


class Pipeline:
    """A chain over a graph.

    graph   folder of the graph
    chain   see the module
    nil     the least score of a linked mention; None: every mention is linked that has a candidate
    top     candidates that are kept for each mention
    options how the models link, by keyword: beams=10, device="cuda" (inference.options.LinkerOptions)

    Raises InputError for a folder without a graph, a chain that is none and a model that is not there.
    """

    def __init__(
        self, graph: str | Path, chain: str = "dictionary", nil: float | None = None, top: int = 5, **options: Unpack[Options]
    ) -> None:  # fmt: skip
        if top < 1:
            raise InputError(f"top {top}: wanted at least 1")
        self.steps, self.nil, self.top, self.options = steps_of(chain), nil, top, LinkerOptions(**options)
        self.graph = KnowledgeGraph.load(graph)
        self.types = dict(zip(self.graph.ids.to_pylist(), self.graph.entities["type"].to_pylist(), strict=True))
        self.preferred = dict(zip(self.graph.ids.to_pylist(), self.graph.entities["name"].to_pylist(), strict=True))
        self.dictionary = DictionaryLinker.from_graph(self.graph) if self.steps.detect == "dictionary" else None
        self.reader = None if self.dictionary else self._reader(self.steps.detect)
        self.finders = [self._linker(name) for name in self.steps[1:] if name]

    @property
    def identities(self) -> dict[str, str]:
        """{step that is a model: the identity of its weights}."""
        models = [name for name in self.steps if name and name not in ("dictionary", "names")]
        if not models:
            return {}
        from experiments.encoders import encoder

        return {name: encoder(name).identity for name in models}

    @cached_property
    def names(self) -> Names:
        """The graph's names as a dictionary of linkers."""
        from datamodules.linking import Dictionary
        from inference.linkers import Names

        rows = self.graph.names
        return Names(Dictionary(rows["id"].to_pylist(), rows["name"].to_pylist()), "lower")

    def _reader(self, name: str) -> EntityReader:
        from inference.entity_table import EntityReader
        from inference.load import linkable

        found = linkable(name, replace(self.options, by="entities"))
        if not isinstance(found, EntityReader):
            raise InputError(f"{name}: a model that finds no mentions; wanted a KeBioLM, or 'dictionary'")
        return found

    def _linker(self, name: str) -> Linker:
        from experiments.encoders import known
        from inference.linkers import Exact
        from inference.load import linkable

        if name == "dictionary":
            raise InputError("a chain's second step finds candidates: names, or one of " + known())
        if name == "names":
            return Exact(self.names)
        return linkable(name, self.options).on(self.names)

    # steps

    def _spans(self, texts: Sequence[str]) -> list[list[tuple[int, int, str | None]]]:
        """(start, end, the entity that the detector itself names or None) of each text's mentions, in order."""
        if self.dictionary:
            return [[(m.start, m.end, m.entity) for m in self.dictionary.link(text)] for text in texts]
        assert self.reader is not None
        return [[(start, end, None) for start, end in spans] for spans in detected(self.reader, texts)]

    def link(self, texts: Sequence[str]) -> list[list[Linked]]:
        """The mentions of each text, in order."""
        asked: list[Asked] = []
        for number, (text, spans) in enumerate(zip(texts, self._spans(texts), strict=True)):
            forms = long_forms(text) if spans and "(" in text else {}
            for start, end, entity in spans:
                own = text[start:end]
                long = written_out(own, forms) if forms else own
                asked.append(Asked(number, start, end, entity, long, long if long != own else None))
        ranked = self._ranked(texts, asked)
        found: list[list[Linked]] = [[] for _ in texts]
        for one, ranking in zip(asked, ranked, strict=True):
            found[one.text].append(self._linked(texts[one.text], one, ranking[: self.top]))
        return found

    def _linked(self, text: str, asked: Asked, ranking: Sequence[Option]) -> Linked:
        options = tuple(ranking)
        span = asked.start, asked.end, text[asked.start : asked.end]
        if not options or (self.nil is not None and options[0].score < self.nil):
            return Linked(*span, None, None, None, None, options, asked.long_form)
        best = options[0]
        return Linked(*span, best.entity, best.name, self.types.get(best.entity), best.score, options, asked.long_form)

    def _ranked(self, texts: Sequence[str], asked: Sequence[Asked]) -> list[list[Option]]:
        if self.dictionary and not self.finders:
            return [[Option(a.entity, self.preferred[a.entity], 1.0)] if a.entity is not None else [] for a in asked]
        if not asked:
            return []
        from datamodules.contexts import marked

        mentions = [a.string for a in asked]
        contexts = [marked(texts[a.text], a.start, a.end) for a in asked]
        first = (self.finders[0] if self.finders else self._table).link(mentions, contexts)
        if len(self.finders) > 1:
            order = self.finders[1].link(mentions, contexts)
            first = [reordered(one, two) for one, two in zip(first, order, strict=True)]
        return [
            [Option(c.concept, self.preferred.get(c.concept, c.name), c.score) for c in ranking] for ranking in first
        ]

    @cached_property
    def _table(self) -> Linker:
        """A KeBioLM's own nearest entities."""
        assert self.reader is not None
        return self.reader.on(self.names)


def reordered(candidates: Sequence[Candidate], order: Sequence[Candidate]) -> list[Candidate]:
    """`candidates` in the order, and with the scores, that another linker gives them; those that it does not rank come last."""
    allowed = {c.concept for c in candidates}
    first = [c for c in order if c.concept in allowed]
    ranked = {c.concept for c in first}
    return [*first, *(c for c in candidates if c.concept not in ranked)]


def detected(reader: EntityReader, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """(start, end) in characters of the mentions that a KeBioLM's detector finds in each text.

    Long texts are read in windows of its length that begin where the one before ended; blanks at a mention's ends are left out.
    """
    import torch

    room = min(reader.max_length, reader.model.max_length) - 2
    found: list[list[tuple[int, int]]] = [[] for _ in texts]
    encoded = reader.tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    windows = [
        (number, first, ids[first : first + room])
        for number, ids in enumerate(encoded["input_ids"])
        for first in range(0, len(ids), room)
    ]
    for begin in range(0, len(windows), BATCH):
        batch = windows[begin : begin + BATCH]
        longest = max(len(ids) for *_, ids in batch) + 2
        padded = torch.full((len(batch), longest), int(reader.tokenizer.pad_token_id))  # type: ignore[call-overload]
        mask = torch.zeros_like(padded)
        for row, (_, _, ids) in enumerate(batch):
            own = [reader.tokenizer.cls_token_id, *ids, reader.tokenizer.sep_token_id]
            padded[row, : len(own)], mask[row, : len(own)] = torch.tensor(own), 1
        padded, mask = padded.to(reader.device), mask.to(reader.device)
        with torch.inference_mode():
            states, _ = reader.model.text_states(padded, mask)
            spans = reader.model.detected(states, mask).tolist()
        for row, start, end in spans:
            number, first, _ = batch[row]
            offsets = encoded["offset_mapping"][number]
            a, b = offsets[first + start - 1][0], offsets[first + end - 2][1]
            found[number].append((a, b))
    return [sorted(set(spans)) for spans in found]


def as_record(mention: Linked) -> dict[str, Any]:
    """A mention as JSON holds it."""
    return mention._asdict() | {"candidates": [c._asdict() for c in mention.candidates]}
