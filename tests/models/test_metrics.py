from __future__ import annotations

import numpy as np
import pytest
import torch

from models.metrics import _resample, f1, reciprocal_ranks, span_matches


def test_strict_spans() -> None:
    gold = torch.tensor([[0, 1, 3], [0, 4, 5], [1, 1, 3]])
    predicted = torch.tensor([[0, 1, 3], [0, 4, 6], [1, 0, 3], [1, 1, 3]])
    counts = span_matches(predicted, gold, 8)
    assert counts.tolist() == [2, 4, 3]
    assert f1(counts).item() == 2 * 2 / 7


def test_f1_limits() -> None:
    none = torch.zeros(0, 3, dtype=torch.long)
    one = torch.tensor([[0, 1, 2]])
    assert f1(span_matches(none, none, 5)) == 1
    assert f1(span_matches(none, one, 5)) == 0
    assert f1(span_matches(one, none, 5)) == 0
    assert f1(span_matches(one, one, 5)) == 1


def test_bootstrap_sums_are_those_of_drawing_examples_one_by_one() -> None:
    """Mean and spread of the sums against a literal loop; the order of the examples decides
    nothing."""
    rng = np.random.default_rng(3)
    tallies = np.stack([rng.integers(0, 2, 60), rng.integers(1, 3, 60)], axis=1)
    sums = np.concatenate(list(_resample(tallies, 20_000, 0)))
    literal = np.array([tallies[rng.integers(0, 60, 60)].sum(0) for _ in range(20_000)])
    assert sums.shape == literal.shape and sums.dtype == literal.dtype
    np.testing.assert_allclose(sums.mean(0), literal.mean(0), rtol=0.01)
    np.testing.assert_allclose(np.cov(sums.T), np.cov(literal.T), rtol=0.05, atol=0.3)
    shuffled = np.concatenate(list(_resample(rng.permutation(tallies), 20_000, 0)))
    np.testing.assert_array_equal(sums, shuffled)


def test_reciprocal_ranks() -> None:
    score = torch.tensor([[2.0, 3.0, 1.0, 9.0], [1.0, 1.0, 1.0, 0.0], [5.0, 1.0, 1.0, 1.0]])
    there = torch.tensor(
        [[True, True, True, False], [True, True, True, True], [True, False, False, False]]
    )
    assert reciprocal_ranks(score, there).tolist() == pytest.approx([1 / 2, 1 / 2, 1.0])
