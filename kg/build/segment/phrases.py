"""Phrases of a text, with the probability that each is one: the idea of AutoPhrase, compact and for
Chinese.

Shang, Liu, Jiang, Ren, Voss and Han, Automated Phrase Mining from Massive Text Corpora, IEEE TKDE
30(10), 2018.

Candidates     n-grams of 2 to `longest` symbols that occur at `least` places
               (kg.build.segment.ngrams); never across punctuation.
Features       of each candidate, in FEATURES; nothing in them looks at the names of the graph.
Positives      candidates that are names of the graph, a share of them held out by a seed.
Negatives      the pool of all others. Some of them are good phrases (the held-out names are there
               too), so each of `trees` decision trees learns from a small sample of its own,
               `sample` positives and as many of the pool, with replacement, and is grown until it
               explains its sample. Quality is the share of the trees that say phrase.
Segmentation   of a name: the pieces with the highest sum of log(count quality / total), a symbol
               that is not covered by a phrase weighing log(1 / total). Of equal ones the fewest
               pieces, then the longest first piece.

Departures from AutoPhrase: no part-of-speech tags; completeness instead of counts rectified by
segmenting the text again, so one pass; known names keep the quality of the trees, they are not set
to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from core.files import InputError, atomic_write
from core.reading import excerpt, lines
from kg.build.segment.ngrams import RUNS, Grams, Symbols, cohesion, fold_text, grams, symbols

FEATURES = (
    "log count",
    "cohesion",  # of the split that explains it best
    "left entropy",
    "right entropy",
    "completeness",  # share of its occurrences that are not inside one longer frequent n-gram
    "boundary before",  # shares of its occurrences
    "boundary after",
    "length",
    "log count of its first symbol",
    "log count of its last symbol",
    "entropy before its first symbol",
    "entropy after its last symbol",
    "letters",  # share of its symbols that are letters or digits
)
TREES = 100  #: that vote on each candidate
SAMPLE = 200  #: candidates of each class that a tree is trained on
LEAST_QUALITY = 0.5  # what is kept: more trees say phrase than not


class Candidates(NamedTuple):
    """text, times it occurs (c,), features (c, len(FEATURES)), and the number of symbols they were
    counted in."""

    text: list[str]
    times: np.ndarray
    features: np.ndarray
    total: int


class Mined(NamedTuple):
    """phrases: (text, count, quality), best first.  total: symbols of the text.  report: what was
    found and held out."""

    phrases: list[tuple[str, int, float]]
    total: int
    report: dict[str, int]
    held_out: frozenset[str]
    training: frozenset[str]

    def select_phrases(self, quality: float) -> list[str]:
        """The phrases of at least a quality, best first."""
        return [text for text, _, score in self.phrases if score >= quality]


def candidates(texts: Symbols, longest: int = 8, least: int = 10) -> Candidates:
    """The candidates of a text with their features."""
    if longest < 2 or least < 2:
        raise InputError(
            f"expected longest >= 2 and least >= 2, got {longest} and {least}: one occurrence shows"
            " nothing"
        )
    levels = grams(texts.codes, longest, least)
    total = int(levels[0].times.sum())
    text: list[str] = []
    counts, features = [np.zeros(0, np.int64)], [np.zeros((0, len(FEATURES)), np.float32)]
    for length in range(2, longest + 1):
        level = levels[length - 1]
        text += [texts.text(first, length) for first in level.first.tolist()]
        counts.append(level.times)
        features.append(_features(texts.codes, levels, length, total))
    return Candidates(text, np.concatenate(counts), np.concatenate(features), total)


def _features(codes: np.ndarray, levels: list[Grams], length: int, total: int) -> np.ndarray:
    level, single = levels[length - 1], levels[0]
    row = np.zeros(int(codes.max()) + 1, np.int64)
    row[codes[single.first]] = np.arange(len(single.first))
    first, last = row[codes[level.first]], row[codes[level.first + length - 1]]
    letters = (
        sum((codes[level.first + i] >= RUNS).astype(np.float64) for i in range(length)) / length
    )
    columns = [
        np.log(level.times),
        cohesion(levels, length, total),
        level.left,
        level.right,
        1 - level.longer / level.times,
        *level.edges.T,
        np.full(len(level.times), length),
        np.log(single.times[first]),
        np.log(single.times[last]),
        single.left[first],
        single.right[last],
        letters,
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def quality(
    features: np.ndarray, positive: np.ndarray, trees: int, sample: int, seed: int = 0
) -> np.ndarray:
    """(c,) share of the trees that call each row of `features` (c, f) a phrase; `positive` (c,)
    bool, the rest is the pool."""
    generator = np.random.default_rng(seed)
    yes, pool = np.flatnonzero(positive), np.flatnonzero(~positive)
    votes = np.zeros(len(features))
    for _ in range(trees):
        rows = np.concatenate([generator.choice(yes, sample), generator.choice(pool, sample)])
        tree = DecisionTreeClassifier(
            max_features="sqrt", random_state=int(generator.integers(1 << 31))
        )
        tree.fit(features[rows], np.arange(len(rows)) < sample)
        votes += tree.predict(features)
    return votes / trees


@dataclass(frozen=True, kw_only=True)
class Mining:
    """How phrases are mined.

    Args:
        least: Fewest places where a phrase occurs.
        longest: Most characters of a phrase.
        most: Characters of text; more is thinned.
        held_out: Share of the known names that measure the precision.
        seed: Seed of the phrases' classifier.

    Raises InputError for settings that leave nothing.
    """

    least: int = 10
    longest: int = 8
    most: int = 30_000_000
    held_out: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1 or self.most < 1:
            raise InputError(
                f"expected held_out in [0, 1) and most of at least 1; got {self.held_out},"
                f" {self.most}"
            )


def mine(
    texts: Iterable[str],
    names: Iterable[str],
    mining: Mining = Mining(),
    trees: int = TREES,
    sample: int = SAMPLE,
) -> Mined:
    """The phrases of `texts` with a quality of at least LEAST_QUALITY, learnt from `names`.

    Raises InputError for settings that leave nothing, or for texts without any text. A text without
    candidates, or without a name among them, has no phrases: the report says so.
    """
    coded = symbols(texts, mining.most)
    if not coded.characters:
        raise InputError("no text: expected documents with text under --input. Check the files.")
    phrases = candidates(coded, mining.longest, mining.least)
    folded_names = {fold_text(name) for name in names}
    named = np.array([text in folded_names for text in phrases.text], bool)
    generator = np.random.default_rng(mining.seed)
    hidden = named & (generator.random(len(named)) < mining.held_out)
    positive = named & ~hidden
    report = {
        "documents": coded.documents,
        "documents left out (--most)": coded.left_out,
        "characters": coded.characters,
        "candidates": len(named),
        "names of the graph among them": int(named.sum()),
        "of these held out": int(hidden.sum()),
    }
    if not positive.any() or positive.all():
        return Mined([], phrases.total, report, frozenset(), frozenset())
    scores = quality(phrases.features, positive, trees, sample, mining.seed)
    order = sorted(
        np.flatnonzero(scores >= LEAST_QUALITY).tolist(),
        key=lambda i: (-scores[i], -int(phrases.times[i]), phrases.text[i]),
    )
    report["phrases"] = len(order)
    return Mined(
        [(phrases.text[i], int(phrases.times[i]), float(scores[i])) for i in order],
        phrases.total,
        report,
        frozenset(phrases.text[i] for i in np.flatnonzero(hidden)),
        frozenset(phrases.text[i] for i in np.flatnonzero(positive)),
    )


class Precision(NamedTuple):
    """Of the `best` phrases that the trees were not trained on, `names` are names held out;
    `chance` expected of a blind draw.

    sample: some of them drawn by a seed, with whether they are held-out names.
    """

    best: int
    names: int
    chance: float
    sample: list[tuple[str, int, float, bool]]


def precision(mined: Mined, best: int = 1000, drawn: int = 40, seed: int = 0) -> Precision:
    """How far the best phrases are names that were held out: a lower bound, for a phrase need be no
    name of the graph."""
    unseen = [phrase for phrase in mined.phrases if phrase[0] not in mined.training][:best]
    pool = mined.report["candidates"] - len(mined.training)
    hits = sum(phrase[0] in mined.held_out for phrase in unseen)
    rows = sorted(np.random.default_rng(seed).permutation(len(unseen))[:drawn].tolist())
    sample = [(*unseen[row], unseen[row][0] in mined.held_out) for row in rows]
    return Precision(len(unseen), hits, len(unseen) * len(mined.held_out) / max(1, pool), sample)


def write_phrases(path: str | Path, phrases: Iterable[tuple[str, int, float]]) -> None:
    """phrase, count, quality: a line each under a line with these names."""
    with atomic_write(path) as handle:
        handle.write("phrase\tcount\tquality\n")
        for phrase, count, score in phrases:
            handle.write(f"{phrase}\t{count}\t{score:.4f}\n")


def read_phrases(path: str | Path) -> Iterator[tuple[str, int, float]]:
    """(phrase, count, quality) of each line. Raises InputError naming path:line."""
    for number, line in lines(path):
        if number == 1:
            continue
        try:
            phrase, count, score = line.split("\t")
            if not phrase or int(count) < 1 or not 0 <= float(score) <= 1:
                raise ValueError
        except ValueError as error:
            raise InputError(
                f"{path}:{number}: expected phrase, count, quality from 0 to 1, separated by tabs,"
                f" got {excerpt(line)}. Build the segmenter again."
            ) from error
        yield phrase, int(count), float(score)


class PhraseModel:
    """Cuts names into the phrases of `weights` (phrase -> log(count quality / total)); see the
    module's docstring."""

    def __init__(self, weights: Mapping[str, float], total: int) -> None:
        self.weights = dict(weights)
        self.other = -math.log(max(2, total))
        self.longest = max(map(len, self.weights), default=1)

    @classmethod
    def from_counts(cls, phrases: Iterable[tuple[str, int, float]], total: int) -> PhraseModel:
        """The model of phrases (text, count, quality) counted in `total` symbols."""
        weights = {
            text: math.log(count * score / total) for text, count, score in phrases if score > 0
        }
        return cls(weights, total)

    def pieces(self, units: list[str], whole: bool = True) -> list[str]:
        """`units` (strings never to be cut) joined into phrases. whole: they may all be one
        phrase."""
        # from the end: weight, -pieces, end of first piece
        best: list[tuple[float, int, int]] = [(0.0, 0, len(units))]
        for start in range(len(units) - 1, -1, -1):
            options = []
            piece = ""
            for end in range(start + 1, len(units) + 1):
                piece += units[end - 1]
                if len(piece) > self.longest and end > start + 1:
                    break
                weight: float | None = self.other
                if end > start + 1:
                    weight = (
                        self.weights.get(fold_text(piece))
                        if whole or end - start < len(units)
                        else None
                    )
                if weight is not None:
                    rest = best[len(units) - end]
                    options.append((weight + rest[0], rest[1] - 1, end))
            best.append(max(options))
        parts, start = [], 0
        while start < len(units):
            end = best[len(units) - start][2]
            parts.append("".join(units[start:end]))
            start = end
        return parts
