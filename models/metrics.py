"""Scores, as counts that add up over batches and processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor


def span_matches(predicted: Tensor, gold: Tensor, length: int) -> Tensor:
    """(3,) counts: spans in both, predicted spans, gold spans. Spans (M, 3) row, start, end match
    when all three agree."""

    def key(spans: Tensor) -> Tensor:
        return (spans[:, 0] * (length + 1) + spans[:, 1]) * (length + 1) + spans[:, 2]

    both = torch.isin(key(predicted), key(gold)).sum()
    return torch.stack(
        [
            both,
            torch.tensor(len(predicted), device=both.device),
            torch.tensor(len(gold), device=both.device),
        ]
    )


def f1(matches: Tensor) -> Tensor:
    """F1 of (3,) counts from :func:`span_matches`: 0 when nothing matches, 1 when nothing was there
    and nothing predicted."""
    both, predicted, gold = matches.double()
    if predicted + gold == 0:
        return torch.ones((), dtype=torch.double, device=matches.device)
    return 2 * both / (predicted + gold)


def reciprocal_ranks(score: Tensor, present: Tensor) -> Tensor:
    """1 / rank of the first candidate among all that are `present`, (P,); among equals it has the
    middle place."""
    others = present.clone()
    others[:, 0] = False
    better = ((score > score[:, :1]) & others).sum(1)
    equal = ((score == score[:, :1]) & others).sum(1)
    return 1.0 / (1.0 + better + equal / 2)


# --- scores of downstream tasks -------------------------------------------------------------------
# Every score is a function of counts summed over test examples. A (n, k) array of counts per
# example, its tallies, is all that intervals and paired tests need, whatever the metric.


def span_tallies(
    predicted: Sequence[Collection[Any]], gold: Sequence[Collection[Any]]
) -> np.ndarray:
    """(n, 3) per example: spans in both, predicted, gold. Spans are compared whole (start, end and
    type): strict."""
    rows = [
        (len(set(p) & set(g)), len(set(p)), len(set(g)))
        for p, g in zip(predicted, gold, strict=True)
    ]  # a span that is in a set twice counts once
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def label_tallies(
    predicted: Sequence[str],
    gold: Sequence[Collection[str]],
    counted: Collection[str] | None = None,
) -> np.ndarray:
    """(n, 3) per example: right, predicted, gold, among the classes `counted` (None: all, and F1 is
    accuracy).

    An example with several gold classes counts once as gold, and any of them is right.
    """

    def counts(label: str) -> bool:
        return counted is None or label in counted

    rows = []
    for p, g in zip(predicted, gold, strict=True):
        wanted = [label for label in g if counts(label)]
        rows.append((int(counts(p) and p in wanted), int(counts(p)), int(bool(wanted))))
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def accuracy_tallies(predicted: Sequence[str], gold: Sequence[Collection[str]]) -> np.ndarray:
    """(n, 2) per example: right, 1."""
    rows = [(int(p in g), 1) for p, g in zip(predicted, gold, strict=True)]
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def acc1_tallies(
    scores: Sequence[float], right: Sequence[bool], question: Sequence[str]
) -> tuple[list[str], np.ndarray]:
    """(questions in order of appearance, (q, 2) per question: right at rank 1, 1) of scored
    answers.

    Ties are split: their part that is right counts, as if ties were broken at
    random, so that the order of answers in a file never matters. A question without a right answer
    counts as missed.
    """
    groups: dict[str, list[tuple[float, bool]]] = {}
    for s, r, q in zip(scores, right, question, strict=True):
        groups.setdefault(q, []).append((float(s), bool(r)))
    rows = []
    for answers in groups.values():
        best = max(s for s, _ in answers)
        top = [r for s, r in answers if s == best]
        rows.append((sum(top) / len(top), 1))
    return list(groups), np.array(rows, dtype=np.float64).reshape(-1, 2)


def f1_of(sums: np.ndarray) -> np.ndarray:
    """F1 of (…, 3) summed tallies; 1 where nothing was there and nothing predicted."""
    both, total = sums[..., 0], sums[..., 1] + sums[..., 2]
    return np.where(total == 0, 1.0, 2 * both / np.maximum(total, 1))


def ratio_of(sums: np.ndarray) -> np.ndarray:
    """Accuracy of (…, 2) summed tallies."""
    return sums[..., 0] / np.maximum(sums[..., 1], 1)


def score(tallies: np.ndarray) -> float:
    """F1 of (n, 3) tallies, accuracy of (n, 2) ones."""
    return float(_formula(tallies)(tallies.sum(0)))


def _formula(tallies: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return f1_of if tallies.shape[-1] == 3 else ratio_of


def _resample(tallies: np.ndarray, samples: int, seed: int) -> Iterator[np.ndarray]:
    """(b, k) sums of bootstrap samples of the n examples, in blocks that fit memory.

    Examples with the same counts are drawn together, as many of them as fall to their share: the
    same distribution, and of thousands of examples that are right or wrong only a handful of kinds
    is left.
    """
    kinds, sizes = np.unique(tallies, axis=0, return_counts=True)
    n, rng = len(tallies), np.random.default_rng(seed)
    block = max(1, 5_000_000 // max(1, len(kinds)))
    for done in range(0, samples, block):
        yield rng.multinomial(n, sizes / n, size=min(block, samples - done)) @ kinds


def bootstrap_interval(
    tallies: np.ndarray, level: float = 0.95, samples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of :func:`score` over test examples. Tallies of several seeds
    may be added first."""
    values = np.concatenate([_formula(tallies)(sums) for sums in _resample(tallies, samples, seed)])
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _resampled_seeds(tallies: np.ndarray, samples: int, seed: int) -> Iterator[np.ndarray]:
    """(b, k) sums of bootstrap samples of S seeds and n examples, of tallies (S, n, k).

    S - 1 of the S seeds are drawn with replacement: the mean of S of them would vary by only
    (S - 1) / S of what the mean over seeds does. One seed is kept as it is.
    """
    seeds, n, width = tallies.shape
    if seeds == 1:
        yield from _resample(tallies[0], samples, seed)
        return
    rng = np.random.default_rng(seed + 1)
    rows = np.moveaxis(tallies, 0, 1).reshape(n, seeds * width)
    for sums in _resample(rows, samples, seed):
        drawn = rng.multinomial(seeds - 1, np.full(seeds, 1 / seeds), size=len(sums))
        yield np.einsum("bs,bsk->bk", drawn, sums.reshape(-1, seeds, width))


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests, each adjusted so that all that are below a level may be called
    significant at it (Holm, 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(np.argsort(p_values, kind="stable").tolist()):
        raised = min(1.0, (len(p_values) - rank) * p_values[number])
        highest = max(highest, raised)
        adjusted[number] = highest
    return adjusted


class Comparison(NamedTuple):
    """Two systems on the same test examples: the second's score minus the first's."""

    difference: float
    low: float  # 95 % interval of the difference
    high: float
    p_bootstrap: float  # two-sided paired bootstrap over seeds and test examples
    # two-sided paired t over seeds; None with fewer than two common seeds, or no spread
    p_seeds: float | None


def compare_systems(
    first: Mapping[int, np.ndarray],
    second: Mapping[int, np.ndarray],
    samples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare two systems by their tallies per seed, whose rows are the same examples in the same
    order.

    The bootstrap resamples the common seeds, of several, and the examples, and adds both systems'
    tallies of each sample. Raises ValueError when there is no common seed or the numbers of
    examples differ.
    """
    seeds = sorted(set(first) & set(second))
    if not seeds:
        raise ValueError(f"no common seed: {sorted(first)} and {sorted(second)}")
    shapes = {first[s].shape for s in seeds} | {second[s].shape for s in seeds}
    if len(shapes) > 1:
        raise ValueError(f"not the same test examples: {sorted(shapes)}")
    a = np.stack([np.asarray(first[s]) for s in seeds])  # (S, n, k)
    b = np.stack([np.asarray(second[s]) for s in seeds])
    formula, k = _formula(a), a.shape[2]
    both = np.concatenate([a, b], axis=2)
    observed = score(b.sum(0)) - score(a.sum(0))
    drawn = np.concatenate(
        [formula(s[:, k:]) - formula(s[:, :k]) for s in _resampled_seeds(both, samples, seed)]
    )
    low, high = np.quantile(drawn, [0.025, 0.975])
    # Shifted to the null hypothesis (no difference), how often is a sample's difference as large as
    # the observed one?
    # The observed sample counts too, so that p is never 0.
    p = (np.sum(np.abs(drawn - observed) >= abs(observed)) + 1) / (samples + 1)
    x, y = np.array([score(first[s]) for s in seeds]), np.array([score(second[s]) for s in seeds])
    p_seeds = float(stats.ttest_rel(y, x).pvalue) if len(seeds) > 1 and np.ptp(y - x) > 0 else None
    return Comparison(observed, float(low), float(high), float(p), p_seeds)


def one_sample(values: Sequence[float], mean: float) -> tuple[float, float]:
    """(t, two-sided p) of seeds against a given number. Seeds that do not differ have t = inf and p
    = 0, or 0 and 1 on it.

    Raises ValueError for fewer than two.
    """
    if len(values) < 2:
        raise ValueError(f"{len(values)} values: expected at least 2")
    if len(set(values)) == 1:
        off = values[0] - mean
        return (0.0, 1.0) if off == 0 else (float(np.copysign(np.inf, off)), 0.0)
    result = stats.ttest_1samp(values, mean)
    return float(result.statistic), float(result.pvalue)
