"""Tensor operations on spans that more than one place calls. A span is a row (batch row, first
token, last token + 1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from datamodules import rows

O, B, I = 0, 1, 2  # noqa: E741  the labels' usual names


def boundary_states(hidden: Tensor, spans: Tensor) -> Tensor:
    """[h_s; h_t] of every span: (B, L, H), (M, 3) -> (M, 2H)."""
    row, start, last = spans[:, 0], spans[:, 1], spans[:, 2] - 1
    return torch.cat([hidden[row, start], hidden[row, last]], dim=-1)


def span_states(hidden: Tensor, spans: Tensor, longest: int | None = None) -> tuple[Tensor, Tensor]:
    """((M, S, H) states of every span's tokens, (M, S) bool which of them are its own).

    longest: S, at least the longest span's length; None: found, for which a GPU has to be read.
    """
    if longest is None:
        longest = rows.longest(spans)
    place = spans[:, 1:2] + torch.arange(longest, device=spans.device)  # (M, S)
    inside = place < spans[:, 2:]
    return hidden[spans[:, :1], place.clamp_max(hidden.shape[1] - 1)], inside


def in_rows(spans: Tensor, count: int, most: int | None = None) -> tuple[Tensor, Tensor]:
    """Where spans (M, 3) are when each of `count` rows has its own in S: ((count, S) bool, (M,)
    places in it, flattened).

    Spans are in order of their rows.  most: S, at least the most that a row has; None: found, for
        which a GPU has to be read.
    """
    if most is None:
        most = rows.most(spans)
    counts = (spans[:, 0] == torch.arange(count, device=spans.device)[:, None]).sum(1)
    before = (counts.cumsum(0) - counts)[spans[:, 0]]  # spans of earlier rows
    place = spans[:, 0] * most + torch.arange(len(spans), device=spans.device) - before
    return torch.arange(most, device=spans.device) < counts[:, None], place


class SpanPooling(nn.Module):
    """f_sp, the self-attentive pooling of Lin et al. (2017) with one learned score a token: a
    softmax inside the span."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.score = nn.Linear(hidden, 1)

    def forward(self, hidden: Tensor, spans: Tensor, longest: int | None = None) -> Tensor:
        """(B, L, H) states, (M, 3) spans -> (M, H).  longest: as in :func:`span_states`."""
        states, inside = span_states(hidden, spans, longest)
        weight = self.score(states)[..., 0].float().masked_fill(~inside, -torch.inf).softmax(1)
        return (weight[..., None].to(states.dtype) * states).sum(1)


def added_to_spans(hidden: Tensor, spans: Tensor, addition: Tensor) -> Tensor:
    """`hidden` (B, L, H) with ``addition[m]`` (M, H) added to exactly the tokens of span m. Spans
    are disjoint."""
    batch, length, size = hidden.shape
    # +(m+1) where span m begins, -(m+1) behind its end: the running sum is m+1 inside span m and 0
    # outside.
    number = torch.arange(1, len(spans) + 1, device=hidden.device)
    step = torch.zeros(batch * length + 1, dtype=torch.long, device=hidden.device)
    step.index_add_(0, spans[:, 0] * length + spans[:, 1], number)
    step.index_add_(0, spans[:, 0] * length + spans[:, 2], -number)
    padded = torch.cat([addition.new_zeros(1, size), addition])
    return hidden + padded[step.cumsum(0)[:-1]].view(batch, length, size).to(hidden.dtype)


def bio_spans(labels: Tensor, max_spans: int | None = None) -> Tensor:
    """Spans (M, 3) of BIO labels (B, L), in text order. An I after O opens a span.

    Labels other than B and I (-100 too) are outside. At most `max_spans` a row, the leftmost.
    """
    inside = (labels == B) | (labels == I)
    before = torch.nn.functional.pad(inside, (1, 0))[:, :-1]
    start = inside & ((labels == B) | ~before)
    ends_here = inside & ~(
        torch.nn.functional.pad(inside, (0, 1))[:, 1:]
        & ~torch.nn.functional.pad(start, (0, 1))[:, 1:]
    )
    first, last = start.nonzero(), ends_here.nonzero()
    spans = torch.cat([first, last[:, 1:] + 1], dim=1)
    if max_spans is not None:
        order = start.cumsum(1)[first[:, 0], first[:, 1]]
        spans = spans[order <= max_spans]
    return spans


class _UnitLength(torch.autograd.Function):
    """x / ||x|| whose backward pass holds one tensor beside its input and output; torch's own holds
    four."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min_(1e-12)
        unit = x / norm
        ctx.save_for_backward(unit, norm)
        return unit

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tensor:
        unit, norm = ctx.saved_tensors
        along = torch.einsum("...h,...h->...", gradients[0], unit)[..., None]
        result: Tensor = torch.addcmul(gradients[0], along, unit, value=-1).div_(norm)
        return result


def unit_length(x: Tensor) -> Tensor:
    """x (..., H) scaled to length 1 along its last dimension, in float32; zeros stay zeros."""
    with torch.autocast(x.device.type, enabled=False):
        unit: Tensor = _UnitLength.apply(x.float())
    return unit


def pool_states(hidden: Tensor, attention_mask: Tensor, pooling: str = "cls") -> Tensor:
    """One vector a sequence, (B, L, H), (B, L) -> (B, H): the first state ("cls"), or the mean
    without padding ("mean")."""
    if pooling == "cls":
        return hidden[:, 0]
    weight = attention_mask[..., None].to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1)
