"""The folds, the protocol and the linkers with which every score of a linking task begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from benchmarks.options import Evaluation, Folds, Protocol, Split
from benchmarks.results import Model, model_of
from core.files import InputError
from core.json_files import digest
from core.settings import given_options
from datamodules.linking import Dictionary, Linking, Mention, context_of, load_linking
from datamodules.options import Files
from datamodules.tasks.fetch import prepared_folds
from datamodules.tasks.gold import SPLIT, Gold, gold_linking
from datamodules.tasks.linking import Task
from experiments.names import encoder
from inference.linkers import DEPTH, BackOff, Linker, Names, Ranking
from inference.load import Linkable, linkable_of
from inference.options import check_uses
from inference.reranker import Reranked, make_reranking
from kg.linking.abbreviations import ShortForms
from kg.search.names import BIOSYN, normaliser, one_name

TIES = (
    "names of equal score in order; concepts of one name: those that prefer it, then those whose"
    " distinguishing string the text has more of, then by id; a concept once, at its best name"
)


class Tuned(NamedTuple):
    """A linker that was fine-tuned: what links each fold, and how it was made."""

    model: Model
    options: Mapping[str, Any]
    linkers: Sequence[Linkable]
    seed: int


def with_one_name(dictionary: Dictionary, rule: str) -> Dictionary:
    """The dictionary with one name a concept (kg.search.names.one_name), that which GenBioEL is
    trained to write by the same rule."""
    normalised = normaliser("lower+symbols")
    chosen_names: dict[str, dict[str, str]] = {}
    for concept, text in zip(dictionary.ids, dictionary.names, strict=True):
        chosen_names.setdefault(concept, {}).setdefault(normalised(text), text)
    chosen = [
        texts[one_name(list(texts), rule, f"0\t{concept}")]
        for concept, texts in chosen_names.items()
    ]
    return replace(dictionary, ids=list(chosen_names), names=chosen)


def resolve_protocol(protocol: Protocol, definition: Task) -> Protocol:
    """The protocol with the task's own choices where none is given. Raises InputError for rules
    that do not exist."""
    rules = protocol.normalise or BIOSYN
    normaliser(rules)
    expand = definition.abbreviations if protocol.abbreviations is None else protocol.abbreviations
    nil = protocol.nil or ("left-out" if definition.nil == "left out" else "wrong")
    return replace(protocol, normalise=rules, abbreviations=expand, nil=nil)


def expand_mentions(mentions: Sequence[Mention], documents: Mapping[str, str]) -> list[list[str]]:
    """The parts of each mention, with the words that its document defines as abbreviations written
    out."""
    short_forms: dict[str, ShortForms] = {}
    result = []
    for m in mentions:
        text = documents.get(m.document, "")
        if m.document not in short_forms:
            short_forms[m.document] = ShortForms(text)
        # without a place, the last definitions count
        place = len(text) if m.start is None else m.start
        result.append([short_forms[m.document].expand(part, place) for part in m.parts])
    return result


class Prepared(NamedTuple):
    """One fold, ready to link."""

    mentions: list[Mention]
    parts: list[list[str]]
    contexts: list[str | None]
    names: Names
    train: list[Mention]
    left_out: int


def ready(fold: Linking, split: str, protocol: Protocol) -> Prepared:
    dictionary = fold.dictionary
    train = fold.splits.get("train", [])
    if protocol.train_names:
        single = [m for m in train if len(m.parts) == 1 and len(m.gold) == 1]
        dictionary = dictionary.with_names((i, m.parts[0]) for m in single for i in m.gold[0])
    if protocol.names != "all":
        dictionary = with_one_name(dictionary, protocol.names)
    mentions = fold.splits[split]
    linkable = mentions
    if protocol.nil == "left-out":
        linkable = [m for m in mentions if any(dictionary.concepts_of(g) for g in m.gold)]
    parts = (
        expand_mentions(linkable, fold.documents)
        if protocol.abbreviations
        else [m.parts for m in linkable]
    )
    contexts = [context_of(m, fold.documents) for m in linkable]
    return Prepared(
        linkable,
        parts,
        contexts,
        Names(dictionary, protocol.normalise or BIOSYN),
        train,
        len(mentions) - len(linkable),
    )


def link_fold(linker: Linker, fold: Prepared) -> list[list[Ranking]]:
    """Rankings of every part of every mention; each (string, text) is linked once."""
    queries = [
        [(part, context) for part in parts]
        for parts, context in zip(fold.parts, fold.contexts, strict=True)
    ]
    distinct = list(dict.fromkeys(chain.from_iterable(queries)))
    rankings = linker.link([part for part, _ in distinct], [context for _, context in distinct])
    ranking_of = dict(zip(distinct, rankings, strict=True))
    return [[ranking_of[question] for question in mention] for mention in queries]


def folds_of(
    definition: Task, files: Files, part: Folds, annotated: Gold = Gold()
) -> tuple[Split, list[Linking]]:
    """(the split that is scored, the folds of these numbers, or all). Raises InputError for one
    that does not exist."""
    if annotated.gold:
        if part.split not in (None, SPLIT):
            raise InputError(f"SPLIT={part.split}: --gold is scored as a whole")
        return SPLIT, [gold_linking(annotated, part.graph)]
    folds = prepared_folds(definition, files, part.graph)
    scored: tuple[Split, ...] = ("test", "dev")
    available = [name for name in scored if all(name in fold for fold in folds)]
    split = part.split or available[0]
    if split not in available:
        raise InputError(f"SPLIT={split}: {definition.name} has {' and '.join(available)} here")
    numbers = part.numbers
    if any(number >= len(folds) for number in numbers):
        raise InputError(
            f"FOLDS={','.join(map(str, numbers))}: there are {len(folds)} folds, 0 to"
            f" {len(folds) - 1}"
        )
    return split, [load_linking(folds[number][split]) for number in numbers or range(len(folds))]


def training_folds(definition: Task, files: Files, split: str, part: Folds) -> list[Linking]:
    """The folds of these numbers, or all, with the dictionary in which a model finds candidates of
    training mentions.

    That of the scored split, unless it contains the training mentions as names: then each of them
    is its own best candidate, which teaches nothing, and the train split has a dictionary of its
    own.
    """
    folds = prepared_folds(definition, files, part.graph)
    numbers = part.numbers or range(len(folds))
    return [load_linking(folds[number].get("train", folds[number][split])) for number in numbers]


def protocol_record(
    definition: Task,
    split: str,
    folds: Sequence[Prepared],
    protocol: Protocol,
    numbers: Sequence[int],
) -> dict[str, Any]:
    """The protocol of a score, whatever the linker; numbers: the folds, none for all."""
    dictionaries = [fold.names.dictionary for fold in folds]
    sizes = [
        (len(fold.names.strings), len(set(d.ids)))
        for fold, d in zip(folds, dictionaries, strict=True)
    ]
    digests = list(dict.fromkeys(d.digest for d in dictionaries))
    mentions = [[m.parts, m.gold] for fold in folds for m in fold.mentions]
    train_names = definition.train_names
    if protocol.train_names:
        train_names = "added: train's" + ("" if train_names == "no" else f" ({train_names})")
    return {
        "task": definition.name,
        "split": split,
        "folds": len(folds),
        "mentions": len(mentions),
        "mentions_digest": digest(mentions)[:16],
        "mentions_given": definition.preparation,
        "dictionary": (digests[0] if len(digests) == 1 else digest(digests))[:16],
        "dictionary_names": round(float(np.mean([n for n, _ in sizes]))),
        "dictionary_concepts": round(float(np.mean([c for _, c in sizes]))),
        "train_mentions_in_dictionary": train_names,
        "normalisation": protocol.normalise,
        "abbreviations": "written out by Schwartz-Hearst" if protocol.abbreviations else "as given",
        "composite": protocol.composite,
        "nil": str(protocol.nil).replace("-", " "),
        "nil_left_out": sum(fold.left_out for fold in folds),
        "depth": DEPTH,
        "ties": TIES,
        "not_comparable": definition.not_comparable,
        "fold_numbers": ",".join(map(str, numbers)) or "all",
    } | ({} if protocol.names == "all" else {"names": f"one a concept: {protocol.names}"})


class Chosen(NamedTuple):
    """The linkers of a score, one for all folds or one a fold, and how they were made; none where
    the model is a baseline."""

    model: Model
    linkers: Sequence[Linkable]
    tuned: Mapping[str, Any]
    backend: str | None

    def settings(self) -> dict[str, Any]:
        """Settings of the linkers, as details of a result."""
        settings = dict(self.linkers[0].settings)
        settings |= {"backend": self.backend} if self.backend else {}
        if len(self.linkers) > 1:
            settings["folds"] = digest([linker.identity for linker in self.linkers])
        return settings

    def show_options(self, evaluation: Evaluation) -> dict[str, Any]:
        """What distinguishes this linker from the same one used otherwise, as options of a
        result."""
        options = {**self.tuned, **self.linkers[0].options}
        options |= (
            {"names": evaluation.protocol.names} if evaluation.protocol.names != "all" else {}
        )
        return options | ({"backoff": True} if evaluation.backoff else {})


def choose_linkers(
    evaluation: Evaluation, tuned: Tuned | None, baselines: Mapping[str, Any]
) -> Chosen:
    """The linkers of `tuned`, or of the model that is asked for.

    Raises InputError for a model that does not exist, an option that the linker cannot use, and
    RERANK= of a baseline.
    """
    name, options = evaluation.model or "tfidf", evaluation.linker
    model, chosen_options, linkers = Model(name), dict[str, Any](), list[Linkable]()
    if tuned:
        model, chosen_options, linkers = tuned.model, dict(tuned.options), list(tuned.linkers)
    elif name in baselines:
        if evaluation.rerank:
            raise InputError(
                f"RERANK={evaluation.rerank}: it ranks what a model finds; MODEL={name} is a"
                " baseline. Take another MODEL="
            )
    else:
        start = encoder(name, evaluation.ckpt)
        linkers = [linkable_of(start, options)]
        if evaluation.rerank:
            then, label = make_reranking(evaluation.rerank, options)
            linkers = [Reranked(linkers[0], then, label)]
        model = model_of(name, start)
    uses = frozenset[str]().union(*(linker.uses for linker in linkers))
    check_uses(given_options(options), uses, f"the linker {model.name}")
    return Chosen(model, linkers, chosen_options, options.backend)


def back_off(linkable: Linkable, evaluation: Evaluation) -> Callable[[Names], Linker]:
    """A function from names to their linker, after exact match with --backoff."""

    def make(names: Names) -> Linker:
        linker = linkable.on(names, evaluation.work)
        return BackOff(names, linker) if evaluation.backoff else linker

    return make
