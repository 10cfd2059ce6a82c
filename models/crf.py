"""A linear-chain CRF whose loss is one matrix product a position: pytorch-crf's parameters and
decoding, another way to its likelihood.

pytorch-crf adds, exponentiates and sums (B, T, T) scores at every position, in some ten operations
each; the forward algorithm on probabilities, scaled at every position (Rabiner, 1989, Section V.A,
https://doi.org/10.1109/5.18626), needs four on (B, T). Each would be a kernel of its own on a GPU,
so the scores are brought to the CPU; which of the two is faster there has not been measured.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torchcrf import CRF


class LinearChainCRF(CRF):
    """A CRF over sequences, batch first; states and :meth:`decode` are those of pytorch-crf."""

    def __init__(self, labels: int) -> None:
        super().__init__(labels, batch_first=True)

    def forward(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Log-likelihood, divided by the tokens of `mask` (B, L), of `tags` (B, L) under
        `emissions` (B, L, T). The first token of each sequence is in the mask.

        Computed in float64 on the CPU; gradients go back to where the scores are. Raises ValueError
        as pytorch-crf does for what does not fit together.
        """
        self._validate(emissions, tags, mask.bool())
        scores, start, transitions, end = (
            part.cpu().double()
            for part in (emissions, self.start_transitions, self.transitions, self.end_transitions)
        )
        labels, real = tags.cpu(), mask.cpu().bool()
        last = real.sum(1, keepdim=True) - 1
        moves = transitions[labels[:, :-1], labels[:, 1:]].masked_fill(~real[:, 1:], 0).sum(1)
        emitted = scores.gather(2, labels[..., None])[..., 0].masked_fill(~real, 0).sum(1)
        path = start[labels[:, 0]] + emitted + moves + end[labels.gather(1, last)[:, 0]]
        likelihood = path - log_sum_of_paths(scores, last, start, transitions, end)
        return (likelihood.sum() / real.sum()).to(emissions.device, emissions.dtype)


def log_sum_of_paths(
    scores: Tensor, last: Tensor, start: Tensor, transitions: Tensor, end: Tensor
) -> Tensor:
    """(B,) logarithms of the summed exponentiated scores of all label sequences.

    scores (B, L, T); last (B, 1) the last position of each sequence; start (T,), transitions (T, T)
    from row to column, end (T,).
    """
    largest = scores.detach().amax(2, keepdim=True)
    weights = (scores - largest).exp().unbind(1)
    moves = transitions.exp()
    share, totals, shares = start.exp() * weights[0], [], []
    for position, weight in enumerate(weights):
        if position:
            share = (share @ moves) * weight
        total = share.sum(1, keepdim=True)
        share = share / total
        totals.append(total)
        shares.append(share)
    scale = (torch.cat(totals, 1).log() + largest[..., 0]).cumsum(1).gather(1, last)[:, 0]
    rows = torch.arange(len(scores))
    ended = (torch.stack(shares, 1)[rows, last[:, 0]] * end.exp()).sum(1)
    return ended.log() + scale
