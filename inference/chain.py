"""Entities out of text: detect mentions -> expand abbreviations, split composites -> find
candidates -> rerank -> leave out NIL.

    detect      dictionary: the graph's names, longest match (kg.linking.matcher); a fine-tuned
                tagger (NCBI/minilm, a folder); a token classifier of others (a folder, a hub name);
                kebiolm: the spans that its detector finds; A + B: the mentions of both, of two that
                overlap the longer one
    candidates  names: the entities that have the mention as a name; or a model that links (sapbert,
        genbioel, kebiolm, any encoder)
    rerank      a second model that puts the candidates in its own order: a cross-encoder
                (reranker, or one of others), one that links, or a causal language model that
                chooses among them (inference.closed_set): a folder, a hub name, or
                http://<server>/v1#<model>
    nil         a mention whose best candidate scores below is linked to nothing

A chain is written with >: "dictionary", "NCBI/minilm > sapbert", "kebiolm > sapbert > genbioel".
The first step detects; the second finds candidates; the third ranks them again. Without a second
step a dictionary's mention means the entity that it names, a KeBioLM's its nearest entities, and
every other one the entities of its name. Scores are those of the last step: 1 for names, cosines of
vectors, mean log probabilities of generated names, dot products of entities, a cross-encoder's
probabilities (what is missing to 1 is NIL's); a detector's own score is kept beside them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from core.choices import list_known
from core.files import InputError
from core.typed import check_types
from inference.attributes import find_attributes
from inference.chain_steps import steps_of
from inference.composite_mentions import widen_mentions
from inference.detectors import (
    DICTIONARY,
    FEW,
    Detected,
    Detector,
    Dictionary,
    EntityDetector,
    TaggerDetector,
    model_detector,
    unite_mentions,
)
from inference.options import (
    LinkerOptions,
    Matching,
    Options,
    Work,
    check_names,
    check_nil,
    check_uses,
    checked_texts,
)
from inference.results import Mentions
from kg.graph import KnowledgeGraph, fingerprint, split_types
from kg.linking.composites import parts_of
from kg.linking.homonyms import Homonyms, graph_descriptions
from kg.linking.normal import comparable
from kg.linking.passage import Passage

# models, and what reads them, are imported by the chains that need them: a dictionary links at once
if TYPE_CHECKING:
    from inference.linkers import Candidate, Linker, Names
    from inference.load import Linkable
    from inference.reranker import Ranker, Reranking

#: mentions whose candidates are looked for together, so that their contexts take little memory
AT_ONCE = 512


class Option(NamedTuple):
    """An entity that a mention may mean.

    name: the entity's preferred one. tied: whether another one has the same name, and nothing
        decides between them.
    matched: how the mention differs from the name that was found.
    """

    entity: str
    name: str
    score: float
    tied: bool = False
    matched: str = ""


class Linked(NamedTuple):
    """A mention, and what it means: the best of `candidates`, or nothing (NIL).

    type: the detector's, else the entity's. score: the best candidate's; detector_score: the
    detector's, where it has one. part: of a composite mention the phrase that is linked ("breast
    cancer" of "breast and ovarian cancer"); each part is a Linked of its own, with the place of the
    whole. matched: how the mention differs from the entity's name, where it was found by a weaker
    form ("plural"; kg.linking.normal). negated, family, historical, hypothetical: what the text
    says of it, where that is looked for (inference.attributes).
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
    matched: str | None = None
    negated: bool | None = None
    family: bool | None = None
    historical: bool | None = None
    hypothetical: bool | None = None


class Asked(NamedTuple):
    """A detected mention, or a part of it: its text's number, what the detector says of it, and the
    string that is looked for."""

    text: int
    found: Detected
    string: str
    long_form: str | None
    part: str | None = None


class Pipeline:
    """A chain over a graph.

    graph       a graph, or the folder of one
    chain       see the module
    nil         the least score of a linked mention; None: every mention is linked that has a
                candidate
    top         candidates that are kept for each mention
    work        who encodes the graph's names, where a model needs their vectors
    types       mentions of other types than these, in whatever case, are left out; none: all are
                kept
    negation    say of each mention whether the text denies it, and whether it is of a relative, of
                the past or supposed, by English rules (inference.attributes)
    matching    how names and texts are compared, and which kinds of names a dictionary detects
    options     how the models link, by keyword: beams=10, device="cuda"
                (inference.options.LinkerOptions)
    identities  {step that is a model: the identity of its weights}

    Raises InputError for a folder without a graph, a chain that is none and a model that does not
    exist, and TypeError for an argument of another type.
    """

    @check_types
    def __init__(
        self,
        graph: str | Path | KnowledgeGraph,
        chain: str = DICTIONARY,
        nil: float | None = None,
        top: int = 5,
        work: Work | None = None,
        types: str | Iterable[str] = (),
        negation: bool = False,
        matching: Matching | None = None,
        **options: Unpack[Options],
    ) -> None:
        if top < 1:
            raise InputError(f"top {top}: expected at least 1")
        check_nil(nil)
        check_names(options)
        if not isinstance(graph, KnowledgeGraph) and not Path(graph).is_dir():
            raise InputError(
                f"graph {str(graph)!r}: no such folder, so no knowledge graph here; expected the"
                " folder of one (kepl graph build --help)"
            )
        self.steps, self.nil, self.top = steps_of(chain), nil, top
        self.options, self._given = LinkerOptions(**options), options
        self.chain, self.work = str(self.steps), work or Work()
        self.matching = matching or Matching()
        self.identities: dict[str, str] = {}
        self.models: list[dict[str, Any]] = []  # settings of the steps that are models, in order
        # options that a step has a use for
        self._uses = frozenset({"kinds"} if DICTIONARY in self.steps.detectors else ())
        if chain.strip() in (DICTIONARY, f"{DICTIONARY} > names"):
            self._check_uses()  # before a graph is read
        self.source = graph if isinstance(graph, KnowledgeGraph) else Path(graph)
        self.graph = graph if isinstance(graph, KnowledgeGraph) else KnowledgeGraph.load(graph)
        ids, entities = self.graph.ids.to_pylist(), self.graph.entities
        self.types = dict(zip(ids, entities["type"].to_pylist(), strict=True))
        self.preferred = dict(zip(ids, entities["name"].to_pylist(), strict=True))
        self.only = frozenset(map(str.casefold, [types] if isinstance(types, str) else types))
        if self.steps.detect == DICTIONARY:
            self._check_types()
        self.negation = negation
        self.detectors = [self._detector(name) for name in self.steps.detectors]
        self.finder = self._linker(self.steps.candidates) if self.steps.candidates else None
        self.ranker = self._ranker(self.steps.rerank) if self.steps.rerank else None
        self._check_uses()

    def _check_types(self) -> None:
        """Raise InputError for a type that no entity of the graph has."""
        several = {part.strip() for kind in {*self.types.values()} for part in kind.split("|")}
        types = sorted(several - {""})
        unknown = sorted(self.only - set(map(str.casefold, types)))
        if unknown:
            raise InputError(
                f"types: no entity of the graph is of type {unknown[0]!r};"
                f" {list_known(unknown[0], types)}"
            )

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides what is linked: an output is only resumed with the same."""
        return {
            "graph": self._fingerprint(),
            "chain": self.chain,
            "models": self.models,
            "nil": self.nil,
            "top": self.top,
            **self.matching.settings(),
            **({"types": sorted(self.only)} if self.only else {}),
            **({"negation": True} if self.negation else {}),
        }

    def _check_uses(self) -> None:
        typed = {*self._given, *(["kinds"] if self.matching.kinds else [])}
        check_uses(typed, self._uses, f"the chain {self.chain!r}")

    def _note(
        self, name: str, model: EntityDetector | TaggerDetector | Linkable | Reranking
    ) -> None:
        """Note what a step that is a model is made of, and the options that it uses."""
        self.identities[name] = model.identity
        self.models.append(model.settings)
        self._uses |= model.uses

    def _fingerprint(self) -> str:
        return (
            fingerprint(self.source) if isinstance(self.source, Path) else self.source.fingerprint
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """What a Ray actor gets: not graph and weights, but what they are read from."""
        made_of = (self.source, self.chain, self.nil, self.top, self.work)
        choices = (self.only, self.negation, self.matching, self._given)
        return _read_again, (*made_of, *choices, self.settings)

    @cached_property
    def names(self) -> Names:
        """The graph's names as a dictionary of linkers."""
        from datamodules.linking import Dictionary as Rows
        from inference.linkers import Names

        rows = self.graph.preferred_first()
        columns = [rows[column].to_pylist() for column in ("id", "name", "kind")]
        triples = dict(zip(self.graph.ids.to_pylist(), self.graph.degree().tolist(), strict=True))
        dictionary = Rows(columns[0], columns[1], kinds=columns[2], triples=triples)
        return Names(dictionary, "lower", graph_descriptions(self.graph))

    @cached_property
    def _dictionary(self) -> Dictionary | None:
        """The detector by names, where it is one of the chain's."""
        return next(
            (detector for detector in self.detectors if isinstance(detector, Dictionary)), None
        )

    def _is_name(self, phrase: str) -> bool:
        if self._dictionary is not None:
            return self._dictionary.find_name(phrase) is not None
        return bool(self.names.find_names(phrase, self.matching.forms)[0])

    def _detector(self, name: str) -> Detector:
        if name == DICTIONARY:
            return Dictionary(self.graph, self.matching.forms, self.matching.kinds or None)
        detector = model_detector(name, self.options)
        self._note(name, detector)
        return detector

    def _linker(self, name: str) -> Linker:
        from experiments.recipes import model_names
        from inference.linkers import Exact
        from inference.load import linkable

        if name == DICTIONARY:
            raise InputError(
                "a chain's second step finds candidates: names, or one of " + model_names()
            )
        if name == "names":
            return Exact(self.names, self.matching.forms)
        model = linkable(name, self.options)
        self._note(name, model)
        return model.on(self.names, self.work)

    def _ranker(self, name: str) -> Ranker:
        from inference.reranker import Ordered, make_reranking

        if name in (DICTIONARY, "names"):
            return Ordered(self._linker(name))
        model, _ = make_reranking(name, self.options)
        self._note(name, model)
        return model.on(self.names, self.work)

    @cached_property
    def _first(self) -> Linker:
        """What finds the candidates: the second step; without one a KeBioLM's own nearest entities,
        else names."""
        if self.finder:
            return self.finder
        if len(self.detectors) == 1 and isinstance(self.detectors[0], EntityDetector):
            return self.detectors[0].reader.on(self.names, self.work)
        return self._linker("names")

    def prepare(self) -> None:
        """Build now what would be built once more than a few texts have come: a server's first
        clients do not wait for it."""
        for detector in self.detectors:
            if isinstance(detector, Dictionary):
                detector.detect([Passage("x" * (FEW + 1))])
        if self.finder or self.steps.detect != DICTIONARY:
            _ = self._first
        else:
            self._homonyms.describe([])  # sorts the tables of descriptions
        # What was built is old from now on; the collector would look at all of it amid the first
        # texts otherwise.
        gc.collect()

    def detect(self, passages: Sequence[Passage]) -> list[list[Detected]]:
        """The mentions of each text, in order, by all detectors."""
        detected = [detector.detect(passages) for detector in self.detectors]
        mentions = (
            detected[0]
            if len(detected) == 1
            else [unite_mentions(spans) for spans in zip(*detected, strict=True)]
        )
        if self._dictionary is None:
            return mentions
        return [
            widen_mentions(passage, spans, self._is_name, self.types)
            for passage, spans in zip(passages, mentions, strict=True)
        ]

    def link(self, texts: str | Iterable[str]) -> Mentions[Linked]:
        """The mentions of each text, in order, with what they mean; `texts`: one, or any iterable
        of them. The list becomes a table by to_pandas() (inference.results).

        Raises TypeError, with its position, for what is no text.
        """
        texts = checked_texts(texts)
        passages = [Passage(text, self.matching.forms) for text in texts]
        questions: list[Asked] = []
        for number, spans in enumerate(self.detect(passages)):
            questions.extend(self._questions(number, passages[number], spans))
        answers: list[list[Linked]] = [[] for _ in texts]
        for begin in range(0, len(questions), AT_ONCE):
            some = questions[begin : begin + AT_ONCE]
            for question, ranking in zip(some, self._rank(passages, some), strict=True):
                linked = self._link(texts[question.text], question, ranking[: self.top])
                if not self.only or self.only & split_types(linked.type or ""):
                    answers[question.text].append(linked)
        if self.negation:
            pairs = zip(passages, answers, strict=True)
            answers = [self._with_attributes(passage, spans) for passage, spans in pairs]
        return Mentions(answers, texts)

    def _questions(
        self, number: int, passage: Passage, mentions: Sequence[Detected]
    ) -> Iterator[Asked]:
        """What is looked for: each mention with its short forms expanded, or the parts of a
        composite one."""
        forms = passage.short_forms if mentions and "(" in passage.text else None
        for mention in mentions:
            string, expanded = passage.source[mention.start : mention.end], None
            if forms is None and mention.entity is not None:
                yield Asked(number, mention, string, None)
                continue
            if forms:
                start, end = (
                    passage.normal_offset(mention.start),
                    passage.normal_offset(mention.end),
                )
                string = forms.expand(passage.text[start:end], start)
                expanded = string if string != passage.text[start:end] else None
            # a dictionary's mention is a name already
            parts = [string] if mention.entity is not None else parts_of(string, self._is_name)
            if len(parts) == 1:
                yield Asked(number, mention, parts[0], expanded)
            for part in parts if len(parts) > 1 else ():
                yield Asked(number, mention, part, expanded, part)

    def _with_attributes(self, passage: Passage, mentions: list[Linked]) -> list[Linked]:
        attributes = find_attributes(passage, [(m.start, m.end) for m in mentions])
        return [
            m._replace(**values._asdict()) for m, values in zip(mentions, attributes, strict=True)
        ]

    def _link(self, text: str, question: Asked, ranking: Sequence[Option]) -> Linked:
        options, (start, end, kind, detector_score, *_) = tuple(ranking), question.found
        entity = name = score = None
        matched = ""
        if options and (self.nil is None or options[0].score >= self.nil):
            entity, name, score, _, matched = options[0]
            kind = kind or self.types.get(entity)
            # names compare the mention itself; a model is given what was detected
            if self.steps.candidates != "names":
                matched = matched or question.found.matched
        return Linked(
            start,
            end,
            text[start:end],
            entity,
            name,
            kind,
            score,
            options,
            question.long_form,
            detector_score,
            question.part,
            matched or None,
        )

    def _rank(self, passages: Sequence[Passage], questions: Sequence[Asked]) -> list[list[Option]]:
        if not self.finder and self.steps.detect == DICTIONARY:
            return [self._name_entity(passages[question.text], question) for question in questions]
        from datamodules.contexts import WIDE, mark_mention

        mentions = [a.string for a in questions]
        contexts = [
            mark_mention(passages[a.text].source, a.found.start, a.found.end, WIDE)
            for a in questions
        ]
        first = self._first.link(mentions, contexts)
        if self.ranker:
            first = self.ranker.rank(mentions, contexts, first)
        return [list(map(self._option, ranking)) for ranking in first]

    def _option(self, candidate: Candidate) -> Option:
        concept, name, score, tied, matched = candidate
        return Option(concept, self.preferred.get(concept, name), score, tied, matched)

    def _name_entity(self, passage: Passage, question: Asked) -> list[Option]:
        """The entity of a dictionary's mention, or of a part of one."""
        mention = question.found
        entity, others, matched = mention.entity, mention.others, mention.matched
        if entity is None:  # a part of a composite mention
            assert self._dictionary is not None
            name = self._dictionary.find_name(question.string)
            if name is None:
                return []
            entity, others, matched = name.entity, name.others, name.matched
        if others:
            return self._choose_meaning(passage, question.string, entity, others, matched)
        return [Option(entity, self.preferred[entity], 1.0, False, matched)]

    @cached_property
    def _homonyms(self) -> Homonyms:
        return Homonyms(graph_descriptions(self.graph))

    def _choose_meaning(
        self, passage: Passage, name: str, entity: str, others: Sequence[str], matched: str
    ) -> list[Option]:
        """The entity of a name, and others that have it, the likeliest in this text first."""
        entities = [entity, *others]
        supports = self._homonyms.supports(comparable(name), sorted(entities), passage.word_set)
        support = dict(zip(sorted(entities), supports, strict=True))
        # stable: of equal ones the linker's own order
        order = sorted(entities, key=lambda meaning: -support[meaning])
        options = []
        for meaning in order:
            tied = supports.count(support[meaning]) > 1
            options.append(Option(meaning, self.preferred[meaning], 1.0, tied, matched))
        return options


def _read_again(
    graph: Path | KnowledgeGraph,
    chain: str,
    nil: float | None,
    top: int,
    work: Work,
    types: frozenset[str],
    negation: bool,
    matching: Matching,
    options: Options,
    settings: dict[str, Any],
) -> Pipeline:
    """A pipeline from what it is made of. Raises InputError where that is something else by now, or
    on another machine."""
    pipeline = Pipeline(graph, chain, nil, top, work, sorted(types), negation, matching, **options)
    if pipeline.settings != settings:
        raise InputError(
            f"{graph}, {chain}: not the graph and the models that the run began with. Run the"
            " command again."
        )
    return pipeline
