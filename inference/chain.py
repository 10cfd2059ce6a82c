"""Entities out of text: detect mentions -> expand abbreviations, split composites -> find candidates -> rerank -> leave out NIL.

    detect      dictionary: the graph's names, longest match (kg.linking.matcher); a fine-tuned tagger (NCBI/minilm, a folder);
                kebiolm: the spans that its detector finds; A + B: the mentions of both, of two that overlap the longer one
    candidates  names: the entities that have the mention as a name; or a model that links (sapbert, genbioel, kebiolm, any encoder)
    rerank      a second model that puts the candidates in its own order: a cross-encoder (reranker), or one that links
    nil         a mention whose best candidate scores below is linked to nothing

A chain is written with >: "dictionary", "NCBI/minilm > sapbert", "kebiolm > sapbert > genbioel". The first step detects; the
second finds candidates; the third ranks them again. Without a second step a dictionary's mention means the entity that it
names, a KeBioLM's its nearest entities, and every other one the entities of its name. Scores are those of the last step: 1 for
names, cosines of vectors, mean log probabilities of generated names, dot products of entities, a cross-encoder's probabilities
(what is missing to 1 is NIL's); a detector's own score is kept beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from core.files import InputError
from core.settings import nearest
from experiments.encoders import close_names, fine_tuned_names, is_task
from inference.detectors import DICTIONARY, FEW, Detected, Detector, Dictionary, EntityDetector, model_detector, united
from inference.negation import Negation
from inference.options import LinkerOptions, Options, Work, check_nil, checked_texts
from kg.graph import KnowledgeGraph, fingerprint
from kg.homonyms import Homonyms, graph_descriptions
from kg.linking.abbreviations import expand_short_forms, long_forms
from kg.linking.composites import parts_of

if TYPE_CHECKING:  # models, and what reads them, are imported by the chains that need them: a dictionary links at once
    from inference.linkers import Linker, Names
    from inference.reranker import Ranker

DETECTORS = (DICTIONARY, "kebiolm")  #: names that detect, beside fine-tuned taggers


class Option(NamedTuple):
    """An entity that a mention may mean."""

    entity: str
    name: str  # the entity's preferred one
    score: float
    tied: bool = False  # another one has the same name, and nothing decides between them


class Linked(NamedTuple):
    """A mention, and what it means: the best of `candidates`, or nothing (NIL).

    type: the detector's, else the entity's. score: the best candidate's; detector_score: the detector's, where it has one.
    part: of a composite mention the phrase that is linked ("breast cancer" of "breast and ovarian cancer"); each part is a Linked
    of its own, with the place of the whole. negated: whether the text denies it, where that is looked for.
    """

    start: int
    end: int
    text: str
    entity: str | None
    name: str | None
    type: str | None
    score: float | None
    candidates: tuple[Option, ...] = ()
    long_form: str | None = None
    detector_score: float | None = None
    part: str | None = None
    negated: bool | None = None


class Asked(NamedTuple):
    """A detected mention, or a part of it: its text's number, what the detector says of it, and the string that is looked for."""

    text: int
    found: Detected
    string: str
    long_form: str | None
    part: str | None = None


class Steps(NamedTuple):
    """The steps of a chain. `detect` may unite several detectors: "NCBI/minilm + dictionary"."""

    detect: str
    candidates: str | None
    rerank: str | None

    @property
    def detectors(self) -> list[str]:
        return re.split(r"\s+\+\s+", self.detect)


def steps_of(chain: str) -> Steps:
    """The steps of a chain such as "NCBI/minilm > sapbert". Raises InputError for a first step that detects nothing."""
    words = [word.strip() for word in chain.split(">")]
    if not all(words) or len(words) > 3:
        raise InputError(
            f"chain {chain!r}: expected DETECTOR, DETECTOR > CANDIDATES or DETECTOR > CANDIDATES > RERANKER; "
            "DETECTOR may be A + B"
        )
    steps = Steps(words[0], words[1] if len(words) > 1 else None, words[2] if len(words) > 2 else None)
    for word in steps.detectors:
        if word.partition("/")[0] in DETECTORS or is_task(word) or Path(word).is_dir():
            continue
        near = [name for name in close_names(word) if is_task(name)]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        tuned = ", ".join(fine_tuned_names()) or "TASK/encoder, once `make finetune` has trained one"
        raise InputError(
            f"chain {chain!r}: {word!r} finds no mentions.{hint} Begin with one of: {', '.join(DETECTORS)}, {tuned}; "
            f"as in 'dictionary > {word}'"
        )
    return steps


class Pipeline:
    """A chain over a graph.

    graph       a graph, or the folder of one
    chain       see the module
    nil         the least score of a linked mention; None: every mention is linked that has a candidate
    top         candidates that are kept for each mention
    work        who encodes the graph's names, where a model needs their vectors
    types       mentions of other types than these, in whatever case, are left out; none: all are kept
    negation    say of each mention whether the text denies it, by English rules (inference.negation)
    options     how the models link, by keyword: beams=10, device="cuda" (inference.options.LinkerOptions)
    identities  {step that is a model: the identity of its weights}

    Raises InputError for a folder without a graph, a chain that is none and a model that does not exist.
    """

    def __init__(
        self, graph: str | Path | KnowledgeGraph, chain: str = DICTIONARY, nil: float | None = None, top: int = 5,
        work: Work | None = None, types: Sequence[str] = (), negation: bool = False, **options: Unpack[Options],
    ) -> None:  # fmt: skip
        if top < 1:
            raise InputError(f"top {top}: expected at least 1")
        check_nil(nil)
        self.steps, self.nil, self.top, self.options = steps_of(chain), nil, top, LinkerOptions(**options)
        self.chain, self.work = chain, work or Work()
        self.source = graph if isinstance(graph, KnowledgeGraph) else Path(graph)
        self.graph = self.source if isinstance(self.source, KnowledgeGraph) else KnowledgeGraph.load(self.source)
        self.types = dict(zip(self.graph.ids.to_pylist(), self.graph.entities["type"].to_pylist(), strict=True))
        self.preferred = dict(zip(self.graph.ids.to_pylist(), self.graph.entities["name"].to_pylist(), strict=True))
        self.identities: dict[str, str] = {}
        self.only = frozenset(map(str.casefold, types))
        known = sorted({*self.types.values()} - {""})
        if unknown := sorted(self.only - set(map(str.casefold, known))) if self.steps.detect == DICTIONARY else []:
            near = nearest(unknown[0], known)
            raise InputError(f"types: no entity of the graph is of type {unknown[0]!r}; {near}Choose from: {', '.join(known)}")
        self.negation = Negation() if negation else None
        self.detectors = [self._detector(name) for name in self.steps.detectors]
        self.finder = self._linker(self.steps.candidates) if self.steps.candidates else None
        self.ranker = self._ranker(self.steps.rerank) if self.steps.rerank else None

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides what is linked: an output is only resumed with the same."""
        return {
            "graph": self._fingerprint(), "chain": self.chain, "models": self.identities, "nil": self.nil, "top": self.top,
            **({"types": sorted(self.only)} if self.only else {}), **({"negation": True} if self.negation else {}),
            "options": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self.options).items()},
        }  # fmt: skip

    def _fingerprint(self) -> str:
        return fingerprint(self.source) if isinstance(self.source, Path) else self.source.fingerprint

    def __reduce__(self) -> tuple[Any, ...]:
        """What a Ray actor gets: not graph and weights, but what they are read from."""
        made_of = (self.source, self.chain, self.nil, self.top, self.work, self.only, self.negation is not None, self.options)
        return _read_again, (*made_of, self.settings)

    @cached_property
    def names(self) -> Names:
        """The graph's names as a dictionary of linkers."""
        from datamodules.linking import Dictionary as Rows
        from inference.linkers import Names

        rows = self.graph.preferred_first()
        return Names(Rows(rows["id"].to_pylist(), rows["name"].to_pylist()), "lower", graph_descriptions(self.graph))

    def _is_name(self, phrase: str) -> bool:
        return self.names.normalised(phrase) in self.names.concepts

    def _detector(self, name: str) -> Detector:
        if name == DICTIONARY:
            return Dictionary(self.graph)
        detector = model_detector(name, self.options)
        self.identities[name] = detector.identity
        return detector

    def _linker(self, name: str) -> Linker:
        from experiments.encoders import model_names
        from inference.linkers import Exact
        from inference.load import linkable

        if name == DICTIONARY:
            raise InputError("a chain's second step finds candidates: names, or one of " + model_names())
        if name == "names":
            return Exact(self.names)
        model = linkable(name, self.options)
        self.identities[name] = model.identity
        return model.on(self.names, self.work)

    def _ranker(self, name: str) -> Ranker:
        from inference.reranker import Ordered, reranking

        if name in (DICTIONARY, "names"):
            return Ordered(self._linker(name))
        model = reranking(name, self.options)
        self.identities[name] = model.identity
        return model.on(self.names, self.work)

    @cached_property
    def _first(self) -> Linker:
        """What finds the candidates: the second step; without one a KeBioLM's own nearest entities, else names."""
        if self.finder:
            return self.finder
        if len(self.detectors) == 1 and isinstance(self.detectors[0], EntityDetector):
            return self.detectors[0].reader.on(self.names, self.work)
        return self._linker("names")

    def prepare(self) -> None:
        """Build now what would be built once more than a few texts have come: a server's first clients do not wait for it."""
        for detector in self.detectors:
            if isinstance(detector, Dictionary):
                detector.detect(["x" * (FEW + 1)])
                _ = detector.linker.several
        if self.finder or self.steps.detect != DICTIONARY:
            _ = self._first
        else:
            self._homonyms.describe([])  # sorts the tables of descriptions

    def detect(self, texts: Sequence[str]) -> list[list[Detected]]:
        """The mentions of each text, in order, by all detectors."""
        found = [detector.detect(texts) for detector in self.detectors]
        return found[0] if len(found) == 1 else [united(own) for own in zip(*found, strict=True)]

    def link(self, texts: str | Iterable[str]) -> list[list[Linked]]:
        """The mentions of each text, in order, with what they mean; `texts`: one, or any iterable of them.

        Raises TypeError, with its position, for what is no text.
        """
        texts = checked_texts(texts)
        asked: list[Asked] = []
        split = self.finder is not None or self.steps.detect != DICTIONARY  # a dictionary's mention is a name already
        for number, (text, mentions) in enumerate(zip(texts, self.detect(texts), strict=True)):
            forms = long_forms(text) if mentions and "(" in text else {}
            for mention in mentions:
                own = text[mention.start : mention.end]
                long = expand_short_forms(own, forms) if forms else own
                parts = parts_of(long, self._is_name) if split else [long]
                for part in parts:
                    asked.append(Asked(number, mention, part, long if long != own else None, part if len(parts) > 1 else None))
        ranked = self._ranked(texts, asked)
        found: list[list[Linked]] = [[] for _ in texts]
        for one, ranking in zip(asked, ranked, strict=True):
            linked = self._linked(texts[one.text], one, ranking[: self.top])
            if not self.only or (linked.type or "").casefold() in self.only:
                found[one.text].append(linked)
        return found if self.negation is None else [self._denied(text, own) for text, own in zip(texts, found, strict=True)]

    def _denied(self, text: str, mentions: list[Linked]) -> list[Linked]:
        assert self.negation is not None
        denied = self.negation.negated(text, [(m.start, m.end) for m in mentions])
        return [m._replace(negated=own) for m, own in zip(mentions, denied, strict=True)]

    def _linked(self, text: str, asked: Asked, ranking: Sequence[Option]) -> Linked:
        options, (start, end, kind, score, *_) = tuple(ranking), asked.found
        best = options[0] if options and (self.nil is None or options[0].score >= self.nil) else None
        linked = Linked(start, end, text[start:end], None, None, kind, None, options, asked.long_form, score, asked.part)
        if best is None:
            return linked
        return linked._replace(entity=best.entity, name=best.name, type=kind or self.types.get(best.entity), score=best.score)

    def _ranked(self, texts: Sequence[str], asked: Sequence[Asked]) -> list[list[Option]]:
        if not self.finder and self.steps.detect == DICTIONARY:
            # a short form that the text defines means what its definition says
            return [
                self._meant(texts[a.text], a.found) if a.found.others and not a.long_form
                else [Option(a.found.entity, self.preferred[a.found.entity], 1.0)] if a.found.entity is not None
                else []
                for a in asked
            ]  # fmt: skip
        if not asked:
            return []
        from datamodules.contexts import marked

        mentions = [a.string for a in asked]
        contexts = [marked(texts[a.text], a.found.start, a.found.end) for a in asked]
        first = self._first.link(mentions, contexts)
        if self.ranker:
            first = self.ranker.rank(mentions, contexts, first)
        return [
            [Option(c.concept, self.preferred.get(c.concept, c.name), c.score, c.tied) for c in ranking] for ranking in first
        ]

    @cached_property
    def _homonyms(self) -> Homonyms:
        return Homonyms(graph_descriptions(self.graph))

    def _meant(self, text: str, found: Detected) -> list[Option]:
        """The entity of a dictionary's mention, and others of the same name, the likeliest in this text first."""
        assert found.entity is not None
        entities = [found.entity, *found.others]
        name = text[found.start : found.end].lower()
        supports = self._homonyms.supports(name, sorted(entities), text)
        support = dict(zip(sorted(entities), supports, strict=True))
        order = sorted(entities, key=lambda one: -support[one])  # stable: of equal ones the linker's own order
        return [Option(one, self.preferred[one], 1.0, supports.count(support[one]) > 1) for one in order]


def _read_again(
    graph: Path | KnowledgeGraph, chain: str, nil: float | None, top: int, work: Work, types: frozenset[str], negation: bool,
    options: LinkerOptions, settings: dict[str, Any],
) -> Pipeline:  # fmt: skip
    """A pipeline from what it is made of. Raises InputError where that is something else by now, or on another machine."""
    pipeline = Pipeline(graph, chain, nil, top, work, sorted(types), negation, **asdict(options))
    if pipeline.settings != settings:
        raise InputError(f"{graph}, {chain}: not the graph and the models that the run began with. Run the command again.")
    return pipeline


def as_record(mention: Linked) -> dict[str, Any]:
    """A mention as JSON holds it."""
    return mention._asdict() | {"candidates": [c._asdict() for c in mention.candidates]}
