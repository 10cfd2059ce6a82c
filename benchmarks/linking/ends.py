"""Detection and linking scored together: text in, entities out, against annotated text.

    kepl evaluate NCBI-E2E --chain dictionary --mirror downloads/
    make evaluate TASK=NCBI-E2E CHAIN="NCBI/minilm > sapbert"

The graph of the chain is made of the task's dictionary, or GRAPH=. Gold are the annotated mentions
of the task (*-EL tasks of the same name give them to the linker); a mention of several concepts
counts once for each. Every text of the split is scored, also one without a mention: whatever is
found there is wrong.

    f1          strict: a mention counts with start, end and concept right
    overlap     start and end may differ as long as the two overlap; each gold mention and each
                found one counts once
    detection   strict, whatever the concept;  detection, overlap  the same for overlaps
    documents   the set of concepts of each text, as BioCreative V scored disease mentions; each
                said concept is right once at most

A mention without a concept in its source (-1, NIL) is a gold span of both measures of detection.
The other measures do not count it as gold: what is linked there is found and wrong, what is found
there and linked to nothing does not count.

A concept that the dictionary lacks is gold all the same, although nothing finds it; their number is
reported. Errors are of the gold mentions: missed (nothing overlaps), boundaries (found elsewhere
with the right concept), linked to nothing, linked to another concept; and of the found ones: no
mention is there.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.groups import group_results
from benchmarks.linking.folds import folds_of
from benchmarks.linking.report import format_rest
from benchmarks.options import Evaluation, Folds
from benchmarks.results import (
    OVERALL,
    Model,
    Result,
    result_folder,
    save_logged,
)
from core.files import InputError, atomic_write
from core.json_files import digest
from core.settings import given_options
from datamodules.linking import Dictionary, Linking, Mention
from datamodules.options import Files
from datamodules.tasks import load_task
from datamodules.tasks.definition import own_folder, own_names
from datamodules.tasks.gold import Gold, definition_of
from datamodules.tasks.linking import END_TO_END, linking_task
from inference.chain import Linked, Pipeline
from inference.chain_steps import steps_of
from inference.options import LinkerOptions, Matching, Work
from kg.graph import GRAPH, KnowledgeGraph, fingerprint, table
from kg.ids import bare
from kg.linking.normal import BEST
from models.metrics import score

LOG = logging.getLogger(__name__)
LONG = 20  #: characters from which a sentence of two texts is no chance
METRIC = "f1"
MEASURES = (METRIC, "overlap", "detection", "detection, overlap", "documents")
AT_ONCE = 32  # texts


class Place(NamedTuple):
    """A place of a text with its concepts. Any concept of a gold place is right; a place without a
    concept in its source has none."""

    start: int
    end: int
    concepts: frozenset[str]

    @property
    def is_unknown(self) -> bool:
        """Whether the dictionary lacks every concept of a gold place."""
        return all(concept.startswith("?") for concept in self.concepts)

    def overlaps(self, other: Place) -> bool:
        return self.start < other.end and other.start < self.end


def gold_places(mentions: Iterable[Mention], dictionary: Dictionary) -> dict[str, list[Place]]:
    """{document: its places}, one for each concept of a mention; a concept that the dictionary
    lacks is its id with a `?`."""
    places: dict[str, list[Place]] = defaultdict(list)
    for mention in mentions:
        if mention.start is None or mention.end is None:
            raise InputError(
                f"mention {mention.id!r}: no place in a text; expected a task whose mentions"
                " have one"
            )
        for ids in mention.gold:
            concepts = dictionary.concepts_of(ids) or frozenset(f"?{name}" for name in ids)
            places[mention.document].append(Place(mention.start, mention.end, concepts))
    return places


def graph_of(dictionary: Dictionary, folder: Path) -> Path:
    """The dictionary as a graph of names, types, definitions and parents, in `folder`; kept when it
    is the same."""
    if GRAPH.is_kept(folder, {"dictionary": dictionary.digest}, quiet=True):
        return folder
    ids = list(dict.fromkeys(dictionary.ids))
    preferred: dict[str, str] = {}
    for concept, name in zip(dictionary.ids, dictionary.names, strict=True):
        preferred.setdefault(concept, name)
    kinds = [
        "preferred" if preferred[i] == n else "synonym"
        for i, n in zip(dictionary.ids, dictionary.names, strict=True)
    ]
    texts, distinct = dictionary.definitions, set(ids)
    defined = [i for i in ids if i in texts]
    above = [(i, j) for i in ids for j in dictionary.broader.get(i, ()) if j in distinct]
    same = {key: [value] * len(kinds) for key, value in (("language", "en"), ("source", "task"))}
    KnowledgeGraph(
        table(
            "entities",
            {
                "id": ids,
                "name": [preferred[i] for i in ids],
                "type": [dictionary.types.get(i, "") for i in ids],
            },
        ),
        table("names", {"id": dictionary.ids, "name": dictionary.names, "kind": kinds} | same),
        table(
            "definitions",
            {"id": defined, "text": [texts[i] for i in defined]},
        ),
        table(
            "triples",
            {
                "head": [i for i, _ in above],
                "relation": ["is_a"] * len(above),
                "tail": [j for _, j in above],
            },
        ),
        {
            "source": "task",
            "version": "",
            "licence": "of the task's data",
            "dictionary": dictionary.digest,
        },
    ).save(folder)
    return folder


# scores


def count_matches(
    predicted: Sequence[Place], gold: Sequence[Place], overlap: bool, concepts: bool
) -> int:
    """How many of `gold` have a place of `predicted` of their own: the same span, or one that
    overlaps it; the same concept, or any.

    This is a maximum matching, so the order of neither decides.
    """

    def fits(a: Place, b: Place) -> bool:
        near = a.overlaps(b) if overlap else (a.start, a.end) == (b.start, b.end)
        return near and (not concepts or bool(a.concepts & b.concepts))

    owner: dict[int, int] = {}  # predicted -> gold

    def assign(number: int, tried: set[int]) -> bool:
        for i, place in enumerate(predicted):
            if i not in tried and fits(place, gold[number]):
                tried.add(i)
                if i not in owner or assign(owner[i], tried):
                    owner[i] = number
                    return True
        return False

    return sum(assign(number, set()) for number in range(len(gold)))


def tallies_of(
    predicted: Sequence[Place], gold: Sequence[Place]
) -> dict[str, tuple[int, int, int]]:
    """{measure: (right, predicted, gold)} of one text."""
    spans, gold_spans = _distinct_spans(predicted), _distinct_spans(gold)
    linked, gold_linked = [p for p in predicted if p.concepts], [p for p in gold if p.concepts]
    concepts, gold_concepts = _distinct_concepts(linked), _distinct_concepts(gold_linked)
    return {
        METRIC: _tally(linked, gold_linked, False, True),
        "overlap": _tally(linked, gold_linked, True, True),
        "detection": _tally(spans, gold_spans, False, False),
        "detection, overlap": _tally(spans, gold_spans, True, False),
        "documents": _tally(concepts, gold_concepts, False, True),
    }


def _distinct_spans(places: Sequence[Place]) -> list[Place]:
    return list({(p.start, p.end): p for p in places}.values())


def _distinct_concepts(places: Sequence[Place]) -> list[Place]:
    """The concepts of a text, each at one and the same place."""
    return [Place(0, 1, concepts) for concepts in sorted({p.concepts for p in places}, key=sorted)]


def _tally(
    predicted: Sequence[Place], gold: Sequence[Place], overlap: bool, concepts: bool
) -> tuple[int, int, int]:
    return count_matches(predicted, gold, overlap, concepts), len(predicted), len(gold)


def error_of(place: Place, predicted: Sequence[Place]) -> str:
    """The kind of error at a gold place, or `right`."""
    over = [p for p in predicted if p.overlaps(place)]
    same = [p for p in over if (p.start, p.end) == (place.start, place.end)]
    if any(p.concepts & place.concepts for p in same):
        return "right"
    if any(p.concepts & place.concepts for p in over):
        return "boundaries"
    if not over:
        return "missed"
    if place.is_unknown:
        return "concept not in the dictionary"
    return "linked to another concept" if any(p.concepts for p in over) else "linked to nothing"


def precision_recall(counts: np.ndarray) -> dict[str, float]:
    """Precision, recall and F1 of (n, 3) counts; 0 where nothing is found or gold."""
    right, predicted, gold = counts.sum(0)
    return {
        "precision": float(right / max(1, predicted)),
        "recall": float(right / max(1, gold)),
        METRIC: score(counts),
        "examples": len(counts),
    }


class Annotated(NamedTuple):
    """The texts of a task's split, what is gold in them, and the dictionary."""

    task: str
    split: str
    fold: Linking
    texts: dict[str, str]
    gold: dict[str, list[Place]]
    #: places of mentions that a chain is not asked for
    ignored: dict[str, list[tuple[int, int]]]

    def counts_at(self, document: str, start: int, end: int) -> bool:
        """Whether what is found at a place counts: not where it meets a mention of another type and
        none that is gold."""
        if any(g.start < end and start < g.end for g in self.gold[document]):
            return True
        return not any(a < end and start < b for a, b in self.ignored.get(document, ()))


def read_annotated(name: str, part: Folds, files: Files, annotated: Gold = Gold()) -> Annotated:
    """The texts of an end-to-end task, or one's own. Raises InputError for a split that does not
    exist, and for files that are missing."""
    definition = (
        definition_of(annotated, part.graph) if annotated.gold else linking_task(END_TO_END[name])
    )
    split, (fold,) = folds_of(definition, files, part, annotated)
    gold = gold_places(fold.splits[split], fold.dictionary)
    for document, spans in fold.annotated[split].items():
        gold[document] += [Place(start, end, frozenset()) for start, end in spans]
    texts = {document: fold.documents[document] for document in fold.annotated[split]}
    ignored = fold.manifest.get("other_types") or {}
    gold_of_texts = {document: gold[document] for document in texts}
    return Annotated(name, split, fold, texts, gold_of_texts, ignored)


class Measured(NamedTuple):
    """The mentions that a chain found in the documents, and its times."""

    linked: dict[str, list[Linked]]
    seconds: float  # of linking
    start: float  # before the first text


def link_texts(
    graph: Path,
    chain: str,
    texts: Mapping[str, str],
    options: LinkerOptions,
    work: Work,
    nil: float | None,
    matching: Matching | None = None,
) -> tuple[Pipeline, Measured]:
    """(the chain, its mentions in the texts)."""
    began = time.perf_counter()
    pipeline = Pipeline(graph, chain, nil, 1, work, matching=matching, **given_options(options))
    pipeline.prepare()
    started = time.perf_counter()
    names = list(texts)
    linked: dict[str, list[Linked]] = {}
    for begin in range(0, len(names), AT_ONCE):
        some = names[begin : begin + AT_ONCE]
        linked |= zip(some, pipeline.link([texts[name] for name in some]), strict=True)
    return pipeline, Measured(linked, time.perf_counter() - started, started - began)


def place_of(start: int, end: int, entity: str | None, dictionary: Dictionary) -> Place:
    """A found mention with the concept of its entity, or with none where it is linked to
    nothing."""
    if entity is None:
        return Place(start, end, frozenset())
    concepts = dictionary.concepts_of([entity]) or dictionary.concepts_of([bare(entity)])
    return Place(start, end, concepts or frozenset([entity]))


def result_of(
    data: Annotated,
    predicted: Mapping[str, Sequence[Place]],
    graph: Path,
    model: Model,
    options: dict[str, Any],
    details: dict[str, Any],
) -> Result:
    """The scores of what was found in each text. options: what distinguishes a linker from the
    same one used otherwise."""
    fold, gold = data.fold, data.gold
    rows = [tallies_of(predicted[document], gold[document]) for document in data.texts]
    tallies = {measure: np.array([row[measure] for row in rows], np.int64) for measure in MEASURES}
    linked: list[Place] = []  # gold places with a concept
    errors: Counter[str] = Counter()
    spurious = unnamed = 0
    for document in data.texts:
        linked_here = [g for g in gold[document] if g.concepts]
        linked += linked_here
        errors.update(error_of(g, predicted[document]) for g in linked_here)
        for place in predicted[document]:
            over = [g for g in gold[document] if place.overlaps(g)]
            spurious += not over
            unnamed += bool(over) and not any(g.concepts for g in over)
    protocol = {
        "task": data.task,
        "split": data.split,
        "documents": len(data.texts),
        "documents_without_gold": sum(not places for places in gold.values()),
        "gold": len(linked),
        "gold_without_concept": sum(not p.concepts for places in gold.values() for p in places),
        "gold_not_in_dictionary": sum(place.is_unknown for place in linked),
        "mentions_digest": digest(
            [[m.document, m.start, m.end, m.gold] for m in fold.splits[data.split]]
        )[:16],
        "dictionary": fold.dictionary.digest[:16],
        "graph": fingerprint(graph)[:16],
    }
    return Result(
        kind="linking",
        task=data.task,
        split=data.split,
        metric=METRIC,
        protocol=protocol,
        options=options,
        model=model,
        scores={OVERALL if m == METRIC else m: precision_recall(t) for m, t in tallies.items()},
        tallies=tallies,
        data={
            "mentions": str(protocol["mentions_digest"]),
            "dictionary": str(protocol["dictionary"]),
        },
        details=details
        | {
            "errors": dict(errors.most_common()),
            "no mention is there": spurious,
            "a mention without a concept is there": unnamed,
        },
    )


def write_predictions(
    result: Result,
    data: Annotated,
    predicted: Mapping[str, Sequence[Sequence[Any]]],
    right: Mapping[str, Sequence[bool]] | None = None,
) -> None:
    """predictions.jsonl of a result: each text's gold places, what was found, and which of it is
    right."""
    with atomic_write(result_folder(result) / "predictions.jsonl") as handle:
        for document, mentions in predicted.items():
            gold = [[p.start, p.end, sorted(p.concepts)] for p in data.gold[document]]
            line: dict[str, Any] = {"id": document, "gold": gold, "found": mentions}
            line |= {"right": list(right[document])} if right is not None else {}
            handle.write(json.dumps(line, ensure_ascii=False) + "\n")


def score_chain(evaluation: Evaluation) -> Result:
    """Score a chain on an end-to-end task; the result is saved and logged. Raises InputError for
    what cannot be done."""
    own_texts = evaluation.annotated
    name = own_texts.name(evaluation.part.graph) if own_texts.gold else evaluation.task
    chain, nil = str(steps_of(evaluation.chain or "dictionary")), evaluation.threshold
    data = read_annotated(name, evaluation.part, evaluation.files, own_texts)
    dictionary = data.fold.dictionary
    graph = evaluation.part.graph or graph_of(dictionary, data.fold.folder / "graph")
    pipeline, measured = link_texts(
        graph, chain, data.texts, evaluation.linker, evaluation.work, nil, evaluation.matching
    )
    predicted: dict[str, list[Place]] = {}
    rows: dict[str, list[list[Any]]] = {}
    right: dict[str, list[bool]] = {}
    for d, mentions in measured.linked.items():
        counted = [m for m in mentions if data.counts_at(d, m.start, m.end)]
        rows[d] = [[m.start, m.end, m.text, m.entity, m.name, m.score] for m in counted]
        predicted[d] = [place_of(m.start, m.end, m.entity, dictionary) for m in counted]
        right[d] = [count_matches([p], data.gold[d], False, True) > 0 for p in predicted[d]]
    warn_of_training_texts(pipeline.steps.detectors, data)
    details = {
        "linker": {
            "chain": chain,
            "models": pipeline.models,
        },
        "seconds": round(measured.seconds, 2),
        "start_seconds": round(measured.start, 2),
        "texts_a_second": round(len(data.texts) / max(measured.seconds, 1e-9), 1),
    }
    model = Model(chain, "", digest(pipeline.identities))
    options = {
        name: value for name, value in evaluation.matching.settings().items() if value != BEST
    }
    if nil is not None:
        options["threshold"] = nil
    result = result_of(data, predicted, graph, model, options, details)
    write_predictions(result, data, rows, right)
    return save_logged(result, name)


def warn_of_training_texts(detectors: Sequence[str], data: Annotated) -> None:
    """Warn of texts that a tagger of one's own was trained on: their scores say nothing of new
    ones."""
    for detector in detectors:
        task = detector.partition("/")[0]
        if task not in own_names():
            continue
        trained = {example.text for example in load_task(own_folder(task)).splits["train"]}
        long = [text for text in trained if len(text) >= LONG]
        seen = sum(any(part in text for part in long) for text in data.texts.values())
        if seen:
            LOG.warning(
                f"{seen:,} of {len(data.texts):,} texts have sentences that {detector} was trained"
                " on: its scores on them are not those of new text"
            )


def format_chain_score(result: Result) -> str:
    """The scores as a table, errors, the protocol, and other chains of the same protocol."""
    mine = group_results([result])[result.label]
    protocol = result.protocol
    lines = [
        (
            f"{result.label} on {result.task}, {result.split}, {protocol['documents']:,} texts,"
            f" {protocol.get('documents_without_gold', 0):,} of them without a gold mention;"
            f" {protocol['gold']:,} gold mentions, {protocol.get('gold_without_concept', 0):,} more"
            " without a concept"
        ),
        f"{'':<22}{'P':>8}{'R':>8}{'F1':>8}   95 % interval",
    ]
    for measure in MEASURES:
        score = result.scores[OVERALL if measure == METRIC else measure]
        low, high = mine.interval(measure) or (0.0, 0.0)
        title = "strict" if measure == METRIC else measure
        numbers = "".join(f"{100 * score[k]:>8.2f}" for k in ("precision", "recall", METRIC))
        interval = f"{100 * low:.2f} to {100 * high:.2f}"
        if protocol["documents"] < 2:
            interval = "none: one text"
        lines.append(f"{title:<22}{numbers}   {interval}")
    errors = ", ".join(f"{what} {count:,}" for what, count in result.details["errors"].items())
    lines.append(f"gold mentions: {errors}")
    lines.append(f"found where no mention is: {result.details['no mention is there']:,}")
    if unnamed := result.details.get("a mention without a concept is there"):
        lines.append(f"found where a mention without a concept is: {unnamed:,}")
    lines.append(
        f"{result.details['texts_a_second']:g} texts a second, after"
        f" {result.details['start_seconds']:g} s"
    )
    return "\n".join([*lines, *format_rest([result], METRIC)])
