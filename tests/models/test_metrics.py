from __future__ import annotations

import torch

from models.metrics import f1, span_matches


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
