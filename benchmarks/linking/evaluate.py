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
from typing import Any, NamedTuple

import numpy as np

from benchmarks.groups import group_results
from benchmarks.linking import scores as s
from benchmarks.linking.folds import (
    Prepared,
    Tuned,
    back_off,
    choose_linkers,
    folds_of,
    link_fold,
    protocol_record,
    ready,
    resolve_protocol,
)
from benchmarks.linking.report import format_rest
from benchmarks.linking.sets import format_sets, score_sets
from benchmarks.options import Evaluation
from benchmarks.paired_tests import STYLES, difference
from benchmarks.results import (
    OVERALL,
    Model,
    Result,
    result_folder,
    save_logged,
    save_result,
)
from core.files import InputError, atomic_write
from datamodules.tasks.gold import definition_of
from datamodules.tasks.linking import Task, linking_task
from inference.linkers import Exact, Linker, Names, NearestByTfIdf, Ranking, Translated

MAKERS: dict[str, Callable[[Names], Linker]] = {"exact": Exact, "tfidf": NearestByTfIdf}
TRANSLATED = "translated"  #: a further baseline of tasks across languages
METRIC = "acc@1"


def make_translated(fold: Prepared) -> Linker:
    """The linker that translates a training mention of the fold into the first name of its
    concept."""
    first: dict[str, str] = {}
    dictionary = fold.names.dictionary
    for concept, name in zip(dictionary.ids, dictionary.names, strict=True):
        first.setdefault(concept, name)
    phrases = {m.mention.lower(): first[m.gold[0][0]] for m in fold.train if m.gold[0][0] in first}
    return Translated(fold.names, phrases)


class Measured(NamedTuple):
    """A linker's rankings on the folds, the ranks of the mentions, and the share that each mention
    counts with ties split."""

    ranks: list[np.ndarray]
    rankings: list[list[list[Ranking]]]
    shares: list[np.ndarray]
    seconds: float


def measure(make: Callable[[Names], Linker], folds: Sequence[Prepared], composite: str) -> Measured:
    ranks, rankings, shares, started = [], [], [], time.perf_counter()
    for fold in folds:
        ranked = link_fold(make(fold.names), fold)
        rows = zip(fold.mentions, ranked, strict=True)
        of_mentions = [s.rank_of(m, r, fold.names.dictionary, composite) for m, r in rows]
        ranks.append(np.array(of_mentions, dtype=np.int64))
        rankings.append(ranked)
        shares.append(s.split_ties(fold.mentions, ranked, ranks[-1], fold.names.dictionary))
    return Measured(ranks, rankings, shares, time.perf_counter() - started)


def group_scores(
    measured: Measured, folds: Sequence[Prepared], translated: bool = False
) -> dict[str, dict[str, float]]:
    """{group of mentions: scores}; those of all mentions are means over folds. translated: mentions
    are of another language than the names."""
    of_folds = [s.scores(ranks) for ranks in measured.ranks if len(ranks)]
    overall = {m: float(np.mean([scores[m] for scores in of_folds])) for m in s.METRICS}
    ranks = np.concatenate(measured.ranks)
    result = {OVERALL: overall | {"examples": len(ranks)}}
    if translated:
        members = [s.language_populations(fold.mentions) for fold in folds]
    else:
        members = [s.populations(fold.mentions, fold.train, fold.names) for fold in folds]
    for title in members[0]:
        inside = np.concatenate([groups[title] for groups in members])
        if inside.any():
            result[title] = s.scores(ranks[inside]) | {"examples": int(inside.sum())}
    return result


class Scoring(NamedTuple):
    """The folds on which all linkers of one evaluation are scored, and the protocol's record."""

    definition: Task
    split: str
    folds: list[Prepared]
    composite: str
    record: dict[str, Any]

    def score(
        self,
        make: Callable[[Names], Linker],
        model: Model,
        options: Mapping[str, Any],
        settings: Any,
        seed: int = 0,
    ) -> Result:
        """The result of a linker for each fold's names, saved with its predictions."""
        measured = measure(make, self.folds, self.composite)
        result = Result(
            kind="linking",
            task=self.definition.name,
            split=self.split,
            metric=METRIC,
            protocol=self.record,
            model=model,
            options=options,
            seed=seed,
            scores=group_scores(measured, self.folds, self.definition.translated),
            tallies=s.tallies(np.concatenate(measured.ranks)),
            data={
                "mentions": self.record["mentions_digest"],
                "dictionary": self.record["dictionary"],
            },
            details={"linker": settings, "seconds": round(measured.seconds, 2)},
        )
        return _save_with_predictions(result, measured, self.folds)

    def score_baselines(self) -> list[Result]:
        """The results of the task's trivial baselines."""
        fold_of = {id(fold.names): fold for fold in self.folds}
        baselines = dict(MAKERS)
        if self.definition.translated:
            baselines[TRANSLATED] = lambda names: make_translated(fold_of[id(names)])
        return [
            self.score(make, Model(baseline, "", baseline), {}, baseline)
            for baseline, make in baselines.items()
        ]


def begin_scoring(evaluation: Evaluation, definition: Task, models: int) -> Scoring:
    """The folds that are scored. Raises InputError for another number of models than of folds, and
    when no mention can be scored."""
    protocol = resolve_protocol(evaluation.protocol, definition)
    split, loaded = folds_of(definition, evaluation.files, evaluation.part, evaluation.annotated)
    folds = [ready(fold, split, protocol) for fold in loaded]
    if models not in (0, 1, len(folds)):
        raise InputError(f"{definition.name}: {models} models for {len(folds)} folds")
    if not sum(len(fold.mentions) for fold in folds):
        raise InputError(
            f"{definition.name}: no mention of {split} is in the dictionary, so nothing can be"
            " scored (NIL=wrong)"
        )
    record = protocol_record(definition, split, folds, protocol, evaluation.part.numbers)
    return Scoring(definition, split, folds, protocol.composite, record)


def score_linker(evaluation: Evaluation, tuned: Tuned | None = None) -> list[Result]:
    """Results of both baselines and, last, of the linker; saved. The linker's is logged to MLflow.

    tuned: instead of the model that is asked for, where every fold has its own.
    Raises InputError for a task, model or split that does not exist, and when no mention can be
    scored.
    """
    graph, model = evaluation.part.graph, evaluation.model or "tfidf"
    definition = (
        definition_of(evaluation.annotated, graph)
        if evaluation.annotated.gold
        else linking_task(evaluation.task)
    )
    if definition.sets:
        return score_sets(evaluation, definition, tuned)
    baselines = dict[str, Any](MAKERS) | ({TRANSLATED: None} if definition.translated else {})
    chosen = choose_linkers(evaluation, tuned, baselines)
    scoring = begin_scoring(evaluation, definition, len(chosen.linkers))
    results = scoring.score_baselines()
    if chosen.linkers:
        index = evaluation.linker.index
        if index and len({fold.names.digest for fold in scoring.folds}) > 1:
            raise InputError(
                f"INDEX={index}: the folds have different dictionaries; an index keeps one"
            )
        pairs = zip(scoring.folds, itertools.cycle(chosen.linkers), strict=False)
        linker_of = {id(fold.names): linker for fold, linker in pairs}
        results.append(
            scoring.score(
                lambda names: back_off(linker_of[id(names)], evaluation)(names),
                chosen.model,
                chosen.show_options(evaluation),
                chosen.settings(),
                tuned.seed if tuned else 0,
            )
        )
    else:
        results.sort(key=lambda r: r.model.name == model)
    ours = results[-1]
    return [*results[:-1], save_logged(ours, definition.name)]


def _save_with_predictions(result: Result, measured: Measured, folds: Sequence[Prepared]) -> Result:
    """The result, saved with its predictions and how often each reason of an error holds."""
    lines = []
    tied = 0
    per_fold = zip(folds, measured.rankings, measured.ranks, strict=True)
    for number, (fold, ranked, ranks) in enumerate(per_fold):
        for mention, rankings, rank in zip(fold.mentions, ranked, ranks, strict=True):
            line = s.prediction(mention, rankings, int(rank), fold.names)
            lines.append(line | {"fold": number})
            tied += s.is_tied(rankings)
    reasons = dict(Counter(line["reason"] for line in lines).most_common())
    ties = {
        "mentions": tied,
        "acc@1": float(np.mean([shares.mean() for shares in measured.shares if len(shares)])),
    }
    result = replace(result, details={**result.details, "reasons": reasons, "ties": ties})
    folder = result_folder(result)
    with atomic_write(folder / "predictions.jsonl") as handle:
        handle.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return save_result(result, folder)


def format_scores(results: Sequence[Result]) -> str:
    """Scores beside both baselines, groups of mentions, reasons of errors, the protocol, other
    linkers of the same protocol."""
    ours, groups = results[-1], group_results(results)
    if ours.metric != METRIC:
        return format_sets(results)
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
        score = group.results[0].scores[OVERALL]
        span = f"{100 * low:.1f} to {100 * high:.1f}"
        lines.append(
            f"{name:<{width}}{100 * score['acc@1']:>7.2f}{span:>16}{100 * score['acc@5']:>8.2f}{score['mrr']:>8.4f}"  # noqa: E501
        )
    # of the baselines the best one is compared with
    baseline = max(
        (r for r in results if r.is_baseline and r.label != ours.label),
        key=lambda r: r.value() or 0.0,
    )
    against = difference(mine, groups[baseline.label], METRIC, STYLES["linking"])
    lines.append(f"{ours.label} against {baseline.label}: {against}")
    wide = max(20, *(len(title) + 2 for title in ours.scores))
    lines += ["", f"{'group of mentions':<{wide}}{'mentions':>9}{'Acc@1':>8}{baseline.label:>12}"]
    for title, score in ours.scores.items():
        if title != OVERALL:
            pair = (100 * score[METRIC], 100 * baseline.scores[title][METRIC])
            count = int(score["examples"])
            lines.append(f"{title:<{wide}}{count:>9,}{pair[0]:>8.1f}{pair[1]:>12.1f}")
    reasons = ", ".join(f"{k} {v}" for k, v in ours.details["reasons"].items() if k != "right")
    ties = ours.details["ties"]
    lines.append(
        f"tied for the first place: {ties['mentions']:,} mentions; Acc@1 with ties split"
        f" {100 * ties['acc@1']:.2f}"
    )
    lines += ["", f"errors by reason: {reasons}"]
    return "\n".join([*lines, *format_rest(results, METRIC)])
