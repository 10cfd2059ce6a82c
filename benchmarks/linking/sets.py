"""Scores of tasks where a mention means a set of concepts (CHIP-CDN): precision, recall and F1 of
the pairs of a mention and a concept, beside two trivial baselines.

    kepl evaluate CHIP-CDN:resplit --model sapbert/pretrain_bilingual --mirror FOLDER

A linker says the nearest concept of each part of a mention (datamodules.linking.diagnoses cuts it)
whose score is at least a threshold, the one of the highest F1 on dev; where no part reaches it, the
concept of the highest score. `dictionary` says the concepts of the longest strings in a mention
that are a name, or a mention of train with all that it means there, from the left; `tfidf` is
TF-IDF of characters as the linker.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.groups import group_results
from benchmarks.linking import folds as prepare
from benchmarks.linking.ends import precision_recall
from benchmarks.linking.report import format_rest
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
from datamodules.linking import Linking, Mention, diagnoses
from datamodules.tasks.fetch import data_folder
from datamodules.tasks.linking import Task
from inference.linkers import Linker, Names, NearestByTfIdf, Ranking, cut_known

LOG = logging.getLogger(__name__)
METRIC = "f1"
DICTIONARY, TFIDF = "dictionary", "tfidf"
SETTING = {
    "answers": "nearest concept of each part from a threshold on, the best one otherwise",
    "threshold_chosen": "highest F1 on dev, of the scores that occur there",
}


def refuse_sets(task: Task, what: str) -> None:
    """Raise InputError where a task's mentions mean sets of concepts, which `what` cannot read."""
    if task.sets:
        raise InputError(
            f"{task.name}: a mention means a set of concepts, and {what} of one. What was said of"
            " each is in predictions.jsonl of the result (make evaluate)."
        )


class Fold(NamedTuple):
    """Mentions to answer, and those on which the threshold is chosen, with the names of each."""

    scored: prepare.Prepared
    dev: prepare.Prepared


class Answers(NamedTuple):
    """The answer to each mention, the threshold, and the seconds it took."""

    predicted: list[frozenset[str]]
    threshold: float
    seconds: float
    linker: Linker | None = None


def answer(rankings: Sequence[Ranking], threshold: float) -> frozenset[str]:
    """The concepts of a mention's parts whose score is at least `threshold`; the best one where
    none is."""
    best = [ranking[0] for ranking in rankings if ranking]
    concepts = {candidate.concept for candidate in best if candidate.score >= threshold}
    if not concepts and best:
        concepts = {max(best, key=lambda candidate: candidate.score).concept}
    return frozenset(concepts)


def gold_of(mention: Mention, names: Names) -> frozenset[str]:
    """The concepts of a mention; one that the dictionary lacks under its own id."""
    return frozenset(min(names.dictionary.concepts_of(ids), default=ids[0]) for ids in mention.gold)


def count_pairs(predicted: Sequence[frozenset[str]], gold: Sequence[frozenset[str]]) -> np.ndarray:
    """(mentions, 3): right, said and gold concepts of each."""
    rows = [(len(s & g), len(s), len(g)) for s, g in zip(predicted, gold, strict=True)]
    return np.array(rows, np.int64).reshape(-1, 3)


def choose_threshold(ranked: Sequence[Sequence[Ranking]], gold: Sequence[frozenset[str]]) -> float:
    """The score from which on a part's concept is said, of the highest F1; of equal ones the
    lowest. Of more than 200 scores, 200 at equal distances of rank are tried."""
    scores = np.unique([ranking[0].score for parts in ranked for ranking in parts if ranking])
    if not len(scores):
        return 0.0
    tried = scores[np.unique(np.linspace(0, len(scores) - 1, 200).astype(int))]
    f1 = []
    for threshold in tried:
        predicted = [answer(parts, threshold) for parts in ranked]
        f1.append(precision_recall(count_pairs(predicted, gold))[METRIC])
    return float(tried[int(np.argmax(f1))])


def answers_of(make: Callable[[Names], Linker], fold: Fold) -> Answers:
    """A linker's answers for a fold's mentions, with the threshold chosen on dev."""
    started = time.perf_counter()
    linker = make(fold.dev.names)
    same = fold.dev.names.digest == fold.scored.names.digest
    gold = [gold_of(m, fold.dev.names) for m in fold.dev.mentions]
    threshold = choose_threshold(prepare.link_fold(linker, fold.dev), gold)
    linker = linker if same else make(fold.scored.names)
    ranked = prepare.link_fold(linker, fold.scored)
    predicted = [answer(parts, threshold) for parts in ranked]
    return Answers(predicted, threshold, time.perf_counter() - started, linker)


def answer_by_dictionary(fold: Fold) -> Answers:
    """The concepts of the longest known strings of each mention: names of the dictionary, and
    mentions of train with all that they mean."""
    started = time.perf_counter()
    names = fold.scored.names
    concepts: dict[str, frozenset[str]] = {}
    for concept, name in zip(names.dictionary.ids, names.dictionary.names, strict=True):
        concepts.setdefault(name.lower(), frozenset([concept]))
    for mention in fold.scored.train:
        concepts[mention.mention.lower()] = gold_of(mention, names)
    longest = max(map(len, concepts))
    predicted = []
    for mention in fold.scored.mentions:
        pieces = cut_known(mention.mention.lower(), concepts, longest)
        predicted.append(
            frozenset().union(*(concepts[piece] for piece in pieces if piece in concepts))
        )
    return Answers(predicted, 0.0, time.perf_counter() - started)


def prepare_fold(loaded: Linking, split: str, evaluation: Evaluation, definition: Task) -> Fold:
    """A fold of a task of sets. Raises InputError without a dev split."""
    if "dev" not in loaded.splits:
        raise InputError(f"{definition.name}: no dev split here, and the threshold is chosen on it")
    protocol = prepare.resolve_protocol(evaluation.protocol, definition)
    prepared = [prepare.ready(loaded, part, protocol) for part in (split, "dev")]
    return Fold(*prepared)


def load_folds(evaluation: Evaluation, definition: Task) -> tuple[str, list[Fold]]:
    """(the split that is scored, its fold with the dev mentions of the data's dev folder)."""
    split, loaded = prepare.folds_of(
        definition, evaluation.files, evaluation.part, evaluation.annotated
    )
    on_dev = replace(evaluation.part, split="dev")
    _, dev = prepare.folds_of(definition, evaluation.files, on_dev, evaluation.annotated)
    folds = []
    for scored, other in zip(loaded, dev, strict=True):
        splits = scored.splits | {"dev": other.splits["dev"]}
        folds.append(prepare_fold(scored._replace(splits=splits), split, evaluation, definition))
    return split, folds


def score_sets(
    evaluation: Evaluation, definition: Task, tuned: prepare.Tuned | None = None
) -> list[Result]:
    """Results of both baselines and, last, of the linker; saved. The linker's is logged to MLflow.

    Raises InputError as benchmarks.linking.evaluate.score_linker does.
    """
    baselines: dict[str, Callable[[Fold], Answers]] = {
        DICTIONARY: answer_by_dictionary,
        TFIDF: lambda fold: answers_of(NearestByTfIdf, fold),
    }
    model = evaluation.model or TFIDF
    chosen = prepare.choose_linkers(evaluation, tuned, baselines)
    split, folds = load_folds(evaluation, definition)
    if len(chosen.linkers) not in (0, 1, len(folds)):
        raise InputError(f"{definition.name}: {len(chosen.linkers)} models, {len(folds)} folds")
    protocol = prepare.resolve_protocol(evaluation.protocol, definition)
    scored = [fold.scored for fold in folds]
    record = prepare.protocol_record(definition, split, scored, protocol, evaluation.part.numbers)
    gold = [[gold_of(m, fold.names) for m in fold.mentions] for fold in scored]
    scoring = Scoring(definition, split, scored, record | SETTING, gold)
    results = []
    answered: dict[str, Answers] = {}  # of the first fold
    for name, make in baselines.items():
        answers = [make(fold) for fold in folds]
        answered[name] = answers[0]
        results.append(scoring.save(Model(name, "", name), {}, answers, name, 0))
    if not chosen.linkers:
        results.sort(key=lambda r: r.model.name == model)
    else:
        answers = []
        for linker, fold in zip(itertools.cycle(chosen.linkers), folds, strict=False):
            linked = prepare.back_off(linker, evaluation)
            answers.append(answers_of(linked, fold))
        answered[chosen.model.name] = answers[0]
        options = chosen.show_options(evaluation)
        seed = tuned.seed if tuned else 0
        results.append(scoring.save(chosen.model, options, answers, chosen.settings(), seed))
    ours = results[-1]
    answer_unlabelled(
        evaluation, definition, ours, folds[0].scored.names, answered[ours.model.name]
    )
    return [*results[:-1], save_logged(ours, definition.name)]


class Scoring(NamedTuple):
    """What all linkers of one evaluation of sets are scored on; gold: of each fold's mentions."""

    definition: Task
    split: str
    folds: list[prepare.Prepared]
    record: dict[str, Any]
    gold: list[list[frozenset[str]]]

    def save(
        self,
        model: Model,
        options: Mapping[str, Any],
        answered: Sequence[Answers],
        settings: Any,
        seed: int,
    ) -> Result:
        """The result of a linker's answers for each fold, saved with them."""
        pairs = zip(answered, self.gold, strict=True)
        counts = np.concatenate(
            [count_pairs(answers.predicted, fold_gold) for answers, fold_gold in pairs]
        )
        result = Result(
            kind="linking",
            task=self.definition.name,
            split=self.split,
            metric=METRIC,
            protocol=self.record,
            model=model,
            options=options,
            seed=seed,
            scores=group_scores(counts, list(itertools.chain.from_iterable(self.gold))),
            tallies={METRIC: counts},
            data={
                "mentions": self.record["mentions_digest"],
                "dictionary": self.record["dictionary"],
            },
            details={
                "linker": settings,
                "seconds": round(sum(answers.seconds for answers in answered), 2),
                "thresholds": [answers.threshold for answers in answered],
                "gold not in the dictionary": count_unknown(self.folds),
            },
        )
        write_answers(result, self.folds, self.gold, answered)
        return save_result(result, result_folder(result))


def group_scores(counts: np.ndarray, gold: Sequence[frozenset[str]]) -> dict[str, dict[str, float]]:
    """Scores of all mentions, of those of one concept, and of those of several."""
    single = np.array([len(concepts) == 1 for concepts in gold], bool)
    groups = {OVERALL: np.ones(len(counts), bool), "one concept": single, "several": ~single}
    return {
        title: precision_recall(counts[inside]) for title, inside in groups.items() if inside.any()
    }


def count_unknown(folds: Sequence[prepare.Prepared]) -> int:
    """The number of the mentions' gold concepts without a name in the dictionary."""
    unknown = 0
    for fold in folds:
        dictionary = fold.names.dictionary
        for mention in fold.mentions:
            unknown += sum(not dictionary.concepts_of(ids) for ids in mention.gold)
    return unknown


def name_concepts(concepts: frozenset[str], names: Names) -> list[str]:
    """The preferred names of concepts, sorted; the id itself of one that the dictionary lacks."""
    names_of = names.dictionary.names_of
    return sorted(names_of[concept][0] if concept in names_of else concept for concept in concepts)


def write_answers(
    result: Result,
    folds: Sequence[prepare.Prepared],
    gold: Sequence[Sequence[frozenset[str]]],
    answered: Sequence[Answers],
) -> None:
    """predictions.jsonl: of each mention its text, parts, gold and said names."""
    with atomic_write(result_folder(result) / "predictions.jsonl") as handle:
        for fold, fold_gold, answers in zip(folds, gold, answered, strict=True):
            for mention, wanted, predicted in zip(
                fold.mentions, fold_gold, answers.predicted, strict=True
            ):
                line = {
                    "id": mention.id,
                    "mention": mention.mention,
                    "parts": mention.parts,
                    "gold": name_concepts(wanted, fold.names),
                    "said": name_concepts(predicted, fold.names),
                }
                handle.write(json.dumps(line, ensure_ascii=False) + "\n")


def answer_unlabelled(
    evaluation: Evaluation, definition: Task, result: Result, names: Names, answers: Answers
) -> None:
    """The official test part, whose answers are not public, answered as CBLUE takes it: in the
    result's folder, where the data have the file."""
    data = data_folder(definition, evaluation.files)
    unlabelled = data / diagnoses.FILES["test"] if data else None
    if unlabelled is None or not unlabelled.is_file() or answers.linker is None:
        return
    items = diagnoses.read_items(unlabelled)
    parts = [diagnoses.cut_diagnosis(item["text"]) for item in items]
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(parts)))
    rankings = answers.linker.link(distinct, [None] * len(distinct))
    ranking_of = dict(zip(distinct, rankings, strict=True))
    for item, item_parts in zip(items, parts, strict=True):
        predicted = answer([ranking_of[part] for part in item_parts], answers.threshold)
        item["normalized_result"] = diagnoses.SEVERAL.join(name_concepts(predicted, names))
    folder = result_folder(result)
    with atomic_write(folder / unlabelled.name) as handle:
        json.dump(items, handle, ensure_ascii=False, indent=2)
    LOG.info(f"{folder / unlabelled.name}: {len(items):,} diagnoses answered, for CBLUE")


def format_sets(results: Sequence[Result]) -> str:
    """Scores beside both baselines, groups of mentions, the protocol, other linkers."""
    ours, groups = results[-1], group_results(results)
    mine = groups[ours.label]
    width = max(map(len, groups)) + 2
    lines = [
        f"{ours.task}, {ours.split}, {ours.protocol['mentions']:,} mentions; pairs of a mention and"
        " a concept",
        f"{'':<{width}}{'P':>8}{'R':>8}{'F1':>8}   95 % interval",
    ]
    for name, group in groups.items():
        score = group.results[0].scores[OVERALL]
        low, high = group.interval(METRIC) or (0.0, 0.0)
        numbers = "".join(f"{100 * score[k]:>8.2f}" for k in ("precision", "recall", METRIC))
        lines.append(f"{name:<{width}}{numbers}   {100 * low:.2f} to {100 * high:.2f}")
    baselines = [r for r in results if r.is_baseline and r.label != ours.label]
    baseline = max(baselines, key=lambda r: r.value() or 0.0)
    against = difference(mine, groups[baseline.label], METRIC, STYLES["linking"])
    lines.append(f"{ours.label} against {baseline.label}: {against}")
    for title, score in ours.scores.items():
        if title != OVERALL:
            lines.append(
                f"{title}: {int(score['examples']):,} mentions, F1 {100 * score[METRIC]:.2f}"
            )
    unknown = ours.details["gold not in the dictionary"]
    lines.append(f"gold concepts that the dictionary lacks: {unknown:,}; no linker finds one")
    return "\n".join([*lines, *format_rest(results, METRIC)])
