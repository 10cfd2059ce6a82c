"""Scores, as counts that add up over batches and processes."""

from __future__ import annotations

import torch
from torch import Tensor


def span_matches(predicted: Tensor, gold: Tensor, length: int) -> Tensor:
    """(3,) counts: spans in both, predicted spans, gold spans. Spans (M, 3) row, start, end match when all three agree."""

    def key(spans: Tensor) -> Tensor:
        return (spans[:, 0] * (length + 1) + spans[:, 1]) * (length + 1) + spans[:, 2]

    both = torch.isin(key(predicted), key(gold)).sum()
    return torch.stack(
        [both, torch.tensor(len(predicted), device=both.device), torch.tensor(len(gold), device=both.device)]
    )


def f1(matches: Tensor) -> Tensor:
    """F1 of (3,) counts from :func:`span_matches`: 0 when nothing matches, 1 when nothing was there and nothing predicted."""
    both, predicted, gold = matches.double()
    if predicted + gold == 0:
        return torch.ones((), dtype=torch.double, device=matches.device)
    return 2 * both / (predicted + gold)
