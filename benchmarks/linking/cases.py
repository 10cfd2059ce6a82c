"""What a scored linker got wrong (GenBioEL, Appendix D).

    kepl cases NCBI-EL [--of LABEL --split test --top 20]
    kepl cases --gold FILE --graph GRAPH [--of CHAIN]          of one's own annotated texts

Wrong mentions by how often they occur, with the share of Acc@1 that each costs, gold and prediction
with their names, and how train annotates the same string: where train disagrees with gold no system
can be right. Of a chain: what it missed, linked to another entity, or found where no mention is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

from benchmarks.linking.ends import Place, error_of, place_of
from benchmarks.linking.folds import folds_of
from benchmarks.linking.sets import refuse_sets
from benchmarks.options import Folds, Split
from benchmarks.results import Result, list_stored, load_result
from core.files import InputError, atomic_write
from core.json_files import json_lines
from core.spreadsheets import CsvWriter
from datamodules.linking import Dictionary, Linking
from datamodules.options import Files
from datamodules.tasks.gold import Gold, definition_of
from datamodules.tasks.linking import END_TO_END, linking_task
from kg.search.names import normaliser


class Run(NamedTuple):
    """A scored linker: its result, its predictions, and the folds that they are of."""

    result: Result
    predictions: list[dict[str, Any]]
    folds: list[Linking]


def scored_run(
    name: str,
    label: str | None = None,
    part: Folds = Folds(),
    files: Files = Files(),
    annotated: Gold = Gold(),
) -> Run:
    """The newest result of a task, or of one's own texts, of a label or in a
    folder.

    Raises InputError when there is none, or its mentions are others than the available ones.
    """
    if annotated.gold:
        name, definition = annotated.name(part.graph), definition_of(annotated, part.graph)
    else:
        definition = linking_task(END_TO_END.get(name, name))
    refuse_sets(definition, "cases are")
    command = annotated.advice(part.graph) if annotated.gold else f"make evaluate TASK={name}"
    if label and Path(label).is_dir():
        result = load_result(label)
    else:
        result = newest_result(name, label, part, command)
    file = Path(result.folder) / "predictions.jsonl"
    again = f"Score it again: {command}"
    predictions = [line for _, line in json_lines(file, advice=again)]
    expected = len(result.tallies[result.metric])
    if len(predictions) != expected:
        raise InputError(
            f"{file}: expected {expected:,} lines, one for each scored example, got"
            f" {len(predictions):,}. {again}"
        )
    scored = result.protocol.get("fold_numbers", "all")
    of_folds = [] if scored == "all" else [int(n) for n in scored.split(",")]
    wanted = replace(part, split=cast(Split, result.split), folds=of_folds)
    _, loaded = folds_of(definition, files, wanted, annotated)
    known_ids: set[str] = set()
    for fold in loaded:
        known_ids.update(mention.id for mention in fold.splits[result.split])
        known_ids.update(fold.documents)
    if any(p["id"] not in known_ids for p in predictions):
        raise InputError(
            f"{result.folder}: predictions of other mentions than {name} has here. Score again with"
            " make evaluate."
        )
    return Run(result, predictions, loaded)


def newest_result(name: str, label: str | None, part: Folds, command: str) -> Result:
    """The newest stored result of a split and its folds, of the label or model `label`, else of any
    linker that is no baseline. Raises InputError when there is none."""
    stored = list_stored("linking", name)
    numbers = ",".join(map(str, part.folds)) or "all"
    for result in reversed(stored):
        if (
            (label in (result.label, result.model.name) if label else not result.is_baseline)
            and part.split in (None, result.split)
            and result.protocol.get("fold_numbers", "all") == numbers
        ):
            return result
    labels = ", ".join(sorted({f"{r.label!r} ({r.split})" for r in stored})) or "none"
    raise InputError(f"{name}: no such result; scored are: {labels}. Score one with `{command}`.")


class Case(NamedTuple):
    """A mention that is wrong, wherever it occurs with the same gold and the same prediction."""

    mention: str
    times: int
    share: float  # of all mentions, in percent: what it costs in Acc@1
    gold: str
    predicted: str
    reason: str
    in_train: str


def chain_cases(run: Run) -> list[Case]:
    """The mentions that a chain missed, linked wrongly, or found where none is, most frequent
    first."""
    (fold,) = run.folds
    dictionary = fold.dictionary
    seen = Counter(m.mention.lower() for m in fold.splits.get("train", []))
    groups: Counter[tuple[str, str, str, str]] = Counter()
    total = 0
    for line in run.predictions:
        text = fold.documents[line["id"]]
        gold = [Place(start, end, frozenset(ids)) for start, end, ids in line["gold"]]
        total += sum(bool(place.concepts) for place in gold)
        predicted = [place_of(row[0], row[1], row[3], dictionary) for row in line["found"]]
        for place in gold:
            reason = error_of(place, predicted) if place.concepts else "right"
            if reason != "right":
                over = [p for p in predicted if p.overlaps(place)]
                answers = "; ".join(
                    f"{text[p.start : p.end]} = {_name(p, dictionary)}" for p in over
                )
                mention = text[place.start : place.end].lower()
                groups[mention, _name(place, dictionary), answers, reason] += 1
        for place in predicted:
            if not any(place.overlaps(g) for g in gold):
                mention = text[place.start : place.end].lower()
                groups[mention, "", _name(place, dictionary), "no mention is there"] += 1
    return _sort_cases(groups, total, {mention: f"x{count}" for mention, count in seen.items()})


def _sort_cases(
    groups: Counter[tuple[str, str, str, str]], total: int, in_train: Mapping[str, str]
) -> list[Case]:
    """{(mention, gold, predicted, reason): how often} as cases, most frequent first (of equal ones
    in the mention's order)."""
    return [
        Case(
            mention,
            count,
            100 * count / max(1, total),
            gold,
            predicted,
            reason,
            in_train.get(mention, ""),
        )
        for (mention, gold, predicted, reason), count in sorted(
            groups.items(), key=lambda item: (-item[1], item[0])
        )
    ]


def _name(place: Place, dictionary: Dictionary) -> str:
    """A place's concepts with their preferred names."""
    names_of = dictionary.names_of
    ids = sorted(place.concepts)
    names = [names_of[concept][0] for concept in ids if concept in names_of]
    return _format_case(ids, names) or "nothing"


def cases(run: Run) -> list[Case]:
    """Wrong mentions, most frequent first."""
    if run.predictions and "found" in run.predictions[0]:
        return chain_cases(run)
    normalised = normaliser(run.result.protocol["normalisation"])
    annotated: dict[str, Counter[str]] = defaultdict(Counter)
    seen: set[str] = set()
    for fold in run.folds:
        for mention in fold.splits.get("train", []):
            if len(run.folds) == 1 or mention.id not in seen:
                seen.add(mention.id)
                concepts = "|".join("+".join(ids) for ids in mention.gold)
                annotated[normalised(mention.mention)][concepts] += 1
    groups: Counter[tuple[str, str, str, str]] = Counter()
    for p in run.predictions:
        if p["reason"] == "right":
            continue
        gold = _format_case(
            list(chain.from_iterable(p["gold"])), [names[0] for names in p["gold_names"] if names]
        )
        predicted = _format_case(
            [str(i) for i in p["predicted"]], [str(n) for n in p["predicted_names"]]
        )
        groups[normalised(p["mention"]), gold, predicted, p["reason"]] += 1
    in_train = {
        mention: ", ".join(f"{ids} x{n}" for ids, n in counts.most_common())
        for mention, counts in annotated.items()
    }
    return _sort_cases(groups, len(run.predictions), in_train)


def _format_case(ids: Sequence[str], names: Sequence[str]) -> str:
    return " | ".join(ids) + (f" ({' | '.join(names)})" if any(names) else "")


def write_cases(run: Run, top: int = 20) -> str:
    """The `top` cases as text; all of them are written beside the predictions, as cases.csv. Raises
    InputError for a `top` below 1."""
    if top < 1:
        raise InputError(f"--top {top}: expected a whole number, 1 or more")
    every_case = cases(run)
    file = Path(run.result.folder) / "cases.csv"
    with atomic_write(file) as handle:
        writer = CsvWriter(handle)
        writer.writerow(Case._fields)
        writer.writerows((*c[:2], f"{c.share:.3f}", *c[3:]) for c in every_case)
    wrong = sum(c.times for c in every_case)
    against = sum(c.times for c in every_case if c.in_train)
    of_chain = "gold" in run.result.protocol
    total = run.result.protocol["gold"] if of_chain else len(run.predictions)
    if of_chain:
        errors = f"{wrong:,} errors, {total:,} gold mentions"
        points = "% of the gold mentions"
    else:
        errors = f"{wrong:,} of {total:,} mentions wrong"
        points = "points of Acc@1"
    text = [
        f"{run.result.task}, {run.result.split}, {run.result.label}: {errors},"
        f" {len(every_case):,} different cases; all in {file}"
    ]
    if any("train" in fold.splits for fold in run.folds):
        text.append(f"train annotates the same string in {against:,} of them")
    for c in every_case[:top]:
        text.append(
            f"\n{c.mention}  x{c.times}, {c.share:.2f} {points} ({c.reason})\n  gold     "
            f" {c.gold}\n  predicted {c.predicted}\n  in train "
            f" {c.in_train or 'not as this string'}"
        )
    return "\n".join(text)
