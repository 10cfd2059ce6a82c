"""GenBioEL's Figure 2: accuracy by the highest TF-IDF similarity of the mention to a name of its
gold concept.

That name is the one that fine-tuning uses as its target. figure2.png, figure2.csv.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.linking.cases import Run
from core.files import InputError, atomic_write
from inference.linkers import Names
from kg.search.names import TfIdf

LOG = logging.getLogger(__name__)
BINS = 10
FILES = ("figure2.csv", "figure2.png")


class TargetNames:
    """The names of a dictionary, with those of each concept and their TF-IDF vectors."""

    def __init__(self, names: Names) -> None:
        self.names, self.tfidf = names, TfIdf(names.strings)
        self.by_concept: dict[str, list[str]] = defaultdict(list)
        for string, concepts in names.concepts.items():
            for concept in concepts:
                self.by_concept[concept].append(string)

    def similarity(self, parts: Sequence[str], gold: frozenset[str]) -> float:
        """The highest cosine of a string of the mention with a name of its gold concepts; the
        lowest over composite parts."""
        names_of_gold = sorted(set[str]().union(*(self.by_concept[concept] for concept in gold)))
        if not names_of_gold:
            return 0.0
        vectors = self.tfidf.vectors
        targets = vectors.transform([name.ljust(3) for name in names_of_gold])
        mention = vectors.transform([self.names.normalised(part).ljust(3) for part in parts])
        return float((mention @ targets.T).max(axis=1).toarray().min())


def accuracy_by_similarity(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """((n,) similarities, (n,) whether Acc@1 counts it) of the mentions whose gold is in the
    dictionary."""
    rules = run.result.protocol["normalisation"]
    similarity, right = [], []
    for number, fold in enumerate(run.folds):
        targets = TargetNames(Names(fold.dictionary, rules))
        for p in run.predictions:
            if p["fold"] != number:
                continue
            gold = fold.dictionary.concepts_of(chain.from_iterable(p["gold"]))
            if gold:
                similarity.append(targets.similarity(p["parts"], gold))
                right.append(p["rank"] == 1)
    return np.array(similarity), np.array(right, dtype=bool)


def draw(run: Run, out: Path | None = None) -> list[tuple[float, float, int, float | None]]:
    """Draw Figure 2 of a scored linker; returns (from, to, mentions, accuracy, None without any) of
    each bin."""
    from matplotlib.figure import Figure

    name = run.result.task
    similarity, right = accuracy_by_similarity(run)
    if not len(similarity):
        raise InputError(
            f"{name}: no mention's concept is in the dictionary, so there is nothing to draw"
        )
    edges = np.linspace(0, 1, BINS + 1)
    place = np.minimum((similarity.clip(0, 1) * BINS).astype(int), BINS - 1)
    rows: list[tuple[float, float, int, float | None]] = []
    for i in range(BINS):
        inside = place == i
        accuracy = float(right[inside].mean()) if inside.any() else None
        rows.append((float(edges[i]), float(edges[i + 1]), int(inside.sum()), accuracy))
    out = out or Path(run.result.folder)
    out.mkdir(parents=True, exist_ok=True)
    with atomic_write(out / "figure2.csv") as handle:
        handle.write("from,to,mentions,accuracy\n")
        handle.writelines(
            f"{a:.1f},{b:.1f},{n},{'' if v is None else f'{v:.4f}'}\n" for a, b, n, v in rows
        )
    drawing = Figure(figsize=(8, 4.5))
    axis = drawing.subplots()
    middle = [(a + b) / 2 for a, b, *_ in rows]
    axis.bar(middle, [n for *_, n, _ in rows], width=0.09, alpha=0.35, label="mentions")
    axis.set(xlabel="TF-IDF similarity of mention and target name", ylabel="mentions")
    other = axis.twinx()
    points = [(m, 100 * v) for m, (*_, v) in zip(middle, rows, strict=True) if v is not None]
    other.plot(*zip(*points, strict=True), "o-", color="tab:red", label="Acc@1")
    other.set(ylabel="Acc@1, %", ylim=(0, 102))
    axis.set_title(f"{name}, {run.result.split}: {run.result.label}")
    drawing.legend(loc="upper left", bbox_to_anchor=(0.12, 0.88))
    drawing.savefig(out / "figure2.png", dpi=110)
    for a, b, n, v in rows:
        print(f"{a:.1f} to {b:.1f}  {n:>7,} mentions  {'' if v is None else f'{100 * v:.1f} %'}")
    LOG.info(out / "figure2.png")
    return rows
