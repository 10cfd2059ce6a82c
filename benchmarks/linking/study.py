"""What a scored run got wrong and where it is right: a case list, and accuracy by the similarity of mention and name.

    python -m benchmarks.run cases NCBI-EL [OF=LABEL SPLIT=test TOP=20 MIRROR=FOLDER]
    python -m benchmarks.run figures genbioel [TASK=COMETA:closed OF=LABEL SPLIT=dev OUT=FOLDER MIRROR=FOLDER]

Both read what `make evaluate` or `make finetune` left in runs/linking (predictions.jsonl). OF is a label or the folder of
one run; without it the newest run of the task is taken.

    cases     (GenBioEL, Appendix D) wrong mentions by how often they stand there, with the share of Acc@1 that each
              costs, gold and prediction with their names, and how train annotates the same string: where train
              disagrees with gold no system can be right
    figure 2  (GenBioEL) accuracy by the highest TF-IDF similarity of the mention to a name of its gold concept, the name
              that fine-tuning takes as its target: figure2.png, figure2.csv
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.linking.evaluate import folds_of
from benchmarks.tasks.linking import task
from core.files import InputError, lines, read_json, written
from core.tracking import runs_folder
from datamodules.linking import Linking
from inference.linkers import Names
from kg.names import TfIdf, normaliser

SETTINGS = ("TASK", "OF", "SPLIT", "TOP", "OUT", "FOLDS", "MIRROR", "DATA", "GRAPH")
TASK = "COMETA:closed"  # the paper's figure is of COMETA, whose whole dictionary needs a licence
BINS = 10


class Run(NamedTuple):
    """A scored run: its summary, its predictions, and the folds that they are of."""

    summary: dict[str, Any]
    predictions: list[dict[str, Any]]
    folds: list[Linking]


def scored_run(name: str, given: Mapping[str, str]) -> Run:
    """The run of a task that OF= means. Raises InputError when there is none, or its mentions are others than those at hand."""
    definition, wanted = task(name), given.get("OF")
    place = runs_folder() / "linking" / definition.name.replace(":", "-")
    if wanted and Path(wanted).is_dir():
        files = [Path(wanted) / "summary.json"]
    else:
        files = sorted(place.glob("*/*/summary.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    loaded = [(file, read_json(file)) for file in files if file.is_file()]
    split, folds = given.get("SPLIT"), given.get("FOLDS") or "all"
    chosen = [
        (file, summary)
        for file, summary in loaded
        if (Path(wanted or "").is_dir() and wanted)
        or (
            summary["model"] == (wanted or summary["model"])
            and summary["stamp"]["split"] == (split or summary["stamp"]["split"])
            and summary["stamp"].get("fold_numbers", "all") == folds
        )
    ]
    if not chosen:
        there = ", ".join(sorted({f"{s['model']!r} ({s['stamp']['split']})" for _, s in loaded})) or "none"
        raise InputError(f"{name}: no such run in {place}; scored are: {there}. Score one with make evaluate.")
    file, summary = chosen[0]
    found = summary["stamp"]
    predictions = [json.loads(text) for _, text in lines(file.parent / "predictions.jsonl")]
    own = dict(given) | {"SPLIT": found["split"]}
    if found.get("fold_numbers", "all") != "all":
        own["FOLDS"] = found["fold_numbers"]
    _, loaded_folds = folds_of(definition, own)
    known = {m.id for fold in loaded_folds for m in fold.splits[found["split"]]}
    if any(p["id"] not in known for p in predictions):
        raise InputError(
            f"{file.parent}: predictions of other mentions than {name} has here. Score again with make evaluate."
        )
    return Run(summary, predictions, loaded_folds)


class Case(NamedTuple):
    """A mention that is wrong, wherever it stands with the same gold and the same prediction."""

    mention: str
    times: int
    share: float  # of all mentions, in percent: what it costs in Acc@1
    gold: str
    predicted: str
    reason: str
    in_train: str


def cases(run: Run) -> list[Case]:
    """Wrong mentions, most frequent first (of equal ones in the mention's order)."""
    normalised = normaliser(run.summary["stamp"]["normalisation"])
    annotated: dict[str, Counter[str]] = defaultdict(Counter)
    seen: set[str] = set()
    for fold in run.folds:
        for mention in fold.splits.get("train", []):
            if len(run.folds) == 1 or mention.id not in seen:
                seen.add(mention.id)
                annotated[normalised(mention.mention)]["|".join("+".join(ids) for ids in mention.gold)] += 1
    groups: Counter[tuple[str, str, str, str]] = Counter()
    for p in run.predictions:
        if p["reason"] == "right":
            continue
        gold = _told([i for ids in p["gold"] for i in ids], [n for names in p["gold_names"] for n in names[:1]])
        predicted = _told([str(i) for i in p["predicted"]], [str(n) for n in p["predicted_names"]])
        groups[normalised(p["mention"]), gold, predicted, p["reason"]] += 1
    ordered = sorted(groups.items(), key=lambda item: (-item[1], item[0]))
    return [
        Case(mention, count, 100 * count / len(run.predictions), gold, predicted, reason,
             ", ".join(f"{ids} x{n}" for ids, n in annotated[mention].most_common()) if mention in annotated else "")
        for (mention, gold, predicted, reason), count in ordered
    ]  # fmt: skip


def _told(ids: Sequence[str], names: Sequence[str]) -> str:
    return " | ".join(ids) + (f" ({' | '.join(names)})" if any(names) else "")


def show_cases(name: str, given: Mapping[str, str]) -> Path:
    """Print the TOP= cases and write all of them beside the predictions, as cases.csv. Raises InputError."""
    top = given.get("TOP") or "20"
    if not top.isdigit():
        raise InputError(f"TOP={top}: wanted a number")
    run = scored_run(name, given)
    found = cases(run)
    file = Path(run.summary["folder"]) / "cases.csv"
    with written(file) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(Case._fields)
        writer.writerows((*c[:2], f"{c.share:.3f}", *c[3:]) for c in found)
    wrong = sum(c.times for c in found)
    print(f"{name}, {run.summary['stamp']['split']}, {run.summary['model']}: {wrong:,} of {len(run.predictions):,} "
          f"mentions wrong, {len(found):,} different cases; all in {file}")  # fmt: skip
    against = sum(c.times for c in found if c.in_train)
    print(f"train annotates the same string in {against:,} of them")
    for c in found[: int(top)]:
        print(f"\n{c.mention}  x{c.times}, {c.share:.2f} points of Acc@1 ({c.reason})\n  gold      {c.gold}\n"
              f"  predicted {c.predicted}\n  in train  {c.in_train or 'not as this string'}")  # fmt: skip
    return file


def target_similarity(names: Names, parts: Sequence[str], gold: frozenset[str], tfidf: TfIdf) -> float:
    """The highest cosine of a string of the mention with a name of its gold concepts; the lowest over composite parts."""
    own = sorted({n for c in gold for n in _names_by_concept(names)[c]})
    if not own:
        return 0.0
    targets = tfidf.vectors.transform([n.ljust(3) for n in own])
    asked = tfidf.vectors.transform([names.normalised(p).ljust(3) for p in parts])
    return float((asked @ targets.T).toarray().max(1).min())


def _names_by_concept(names: Names) -> dict[str, list[str]]:
    kept: dict[str, list[str]] | None = names.__dict__.get("_by_concept")
    if kept is None:
        kept = names.__dict__["_by_concept"] = defaultdict(list)
        for string, concepts in names.concepts.items():
            for concept in concepts:
                kept[concept].append(string)
    return kept


def accuracy_by_similarity(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """((n,) similarities, (n,) whether Acc@1 counts it) of the mentions whose gold is in the dictionary."""
    rules = run.summary["stamp"]["normalisation"]
    similarity, right = [], []
    for number, fold in enumerate(run.folds):
        names = Names(fold.dictionary, rules)
        tfidf = TfIdf(names.strings)
        for p in (p for p in run.predictions if p["fold"] == number):
            gold = fold.dictionary.concepts_of(i for ids in p["gold"] for i in ids)
            if gold:
                similarity.append(target_similarity(names, p["parts"], gold, tfidf))
                right.append(p["rank"] == 1)
    return np.array(similarity), np.array(right, dtype=bool)


def figure(given: Mapping[str, str]) -> list[tuple[float, float, int, float | None]]:
    """Draw Figure 2; returns (from, to, mentions, accuracy or None without any) of each bin. Raises InputError."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    name = given.get("TASK") or TASK
    run = scored_run(name, given)
    similarity, right = accuracy_by_similarity(run)
    if not len(similarity):
        raise InputError(f"{name}: no mention's concept is in the dictionary, so there is nothing to draw")
    edges = np.linspace(0, 1, BINS + 1)
    place = np.minimum((similarity.clip(0, 1) * BINS).astype(int), BINS - 1)
    rows: list[tuple[float, float, int, float | None]] = []
    for i in range(BINS):
        inside = place == i
        accuracy = float(right[inside].mean()) if inside.any() else None
        rows.append((float(edges[i]), float(edges[i + 1]), int(inside.sum()), accuracy))
    out = Path(given.get("OUT") or Path(run.summary["folder"]))
    out.mkdir(parents=True, exist_ok=True)
    with written(out / "figure2.csv") as handle:
        handle.write("from,to,mentions,accuracy\n")
        handle.writelines(f"{a:.1f},{b:.1f},{n},{'' if v is None else f'{v:.4f}'}\n" for a, b, n, v in rows)
    drawing, axis = plt.subplots(figsize=(8, 4.5))
    middle = [(a + b) / 2 for a, b, *_ in rows]
    axis.bar(middle, [n for *_, n, _ in rows], width=0.09, alpha=0.35, label="mentions")
    axis.set(xlabel="TF-IDF similarity of mention and target name", ylabel="mentions")
    other = axis.twinx()
    known = [(m, 100 * v) for m, (*_, v) in zip(middle, rows, strict=True) if v is not None]
    other.plot(*zip(*known, strict=True), "o-", color="tab:red", label="Acc@1")
    other.set(ylabel="Acc@1, %", ylim=(0, 102))
    axis.set_title(f"{name}, {run.summary['stamp']['split']}: {run.summary['model']}")
    drawing.legend(loc="upper left", bbox_to_anchor=(0.12, 0.88))
    drawing.savefig(out / "figure2.png", dpi=110)
    plt.close(drawing)
    for a, b, n, v in rows:
        print(f"{a:.1f} to {b:.1f}  {n:>7,} mentions  {'' if v is None else f'{100 * v:.1f} %'}")
    print(f"{out / 'figure2.png'}", file=sys.stderr)
    return rows
