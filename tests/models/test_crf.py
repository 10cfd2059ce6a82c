"""models.crf against pytorch-crf and against every label sequence written out."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor
from torchcrf import CRF

from models.crf import LinearChainCRF, log_sum_of_paths


def drawn(labels: int, seed: int, scale: float = 3.0) -> tuple[CRF, LinearChainCRF, list[Tensor]]:
    """pytorch-crf, ours with its parameters, and (scores, tags, mask) of 5 sequences."""
    torch.manual_seed(seed)
    theirs, ours = CRF(labels, batch_first=True), LinearChainCRF(labels)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    ours.load_state_dict(theirs.state_dict())
    lengths = torch.tensor([9, 1, 4, 2, 9])
    mask = torch.arange(9) < lengths[:, None]
    return theirs, ours, [scale * torch.randn(5, 9, labels), torch.randint(labels, (5, 9)), mask]


@pytest.mark.parametrize(("labels", "seed", "scale"), [(2, 0, 1.0), (7, 1, 3.0), (23, 2, 10.0)])
def test_the_likelihood_and_its_gradients_are_those_of_pytorch_crf(
    labels: int, seed: int, scale: float
) -> None:
    theirs, ours, (scores, tags, mask) = drawn(labels, seed, scale)
    one, two = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    wanted = theirs(one, tags, mask, reduction="token_mean")
    found = ours(two, tags, mask)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    wanted.backward()
    found.backward()
    torch.testing.assert_close(two.grad, one.grad, rtol=1e-4, atol=1e-5)
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-4, atol=1e-4)
    assert ours.decode(scores, mask) == theirs.decode(scores, mask)


def test_all_label_sequences_are_summed() -> None:
    torch.manual_seed(3)
    scores, moves = torch.randn(1, 4, 3).double(), torch.randn(3, 3).double()
    start, end = torch.randn(2, 3).double()
    sums = [
        start[path[0]]
        + sum(scores[0, place, label] for place, label in enumerate(path))
        + sum(moves[a, b] for a, b in pairwise(path))
        + end[path[-1]]
        for path in product(range(3), repeat=4)
    ]
    found = log_sum_of_paths(scores, torch.tensor([[3]]), start, moves, end)
    torch.testing.assert_close(found[0], torch.stack(sums).logsumexp(0))


def test_scores_of_any_size_stay_finite() -> None:
    """A label that is all but impossible, and long sequences: probabilities would underflow."""
    _, ours, _ = drawn(3, 4)
    scores = torch.randn(2, 600, 3) * 40
    scores[:, :, 2] = -200
    scores.requires_grad_()
    found = ours(scores, torch.zeros(2, 600, dtype=torch.long), torch.ones(2, 600).bool())
    found.backward()
    assert torch.isfinite(found) and torch.isfinite(scores.grad).all()


def test_padding_is_not_read() -> None:
    _, ours, (scores, tags, mask) = drawn(4, 5)
    found = ours(scores, tags, mask)
    scores[~mask], tags[~mask] = 77.0, 3
    assert ours(scores, tags, mask) == found


def test_a_sequence_without_tokens_is_refused() -> None:
    _, ours, (scores, tags, mask) = drawn(4, 6)
    mask[1, 0] = False
    with pytest.raises(ValueError, match="mask of the first timestep must all be on"):
        ours(scores, tags, mask)
