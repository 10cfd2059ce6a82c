"""models.losses against the plain formulas."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.losses import entity_ranks, entity_softmax, word_loss


def plain(
    query: Tensor, table: Tensor, gold: Tensor | None, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. (3) and (10) as printed, with all logits at once."""
    logits = query @ table.T
    values, best = logits.topk(min(k, len(table)), dim=1)
    mixture = (values.softmax(1)[:, :, None] * table[best]).sum(1)
    loss = (
        torch.zeros(len(query), dtype=query.dtype)
        if gold is None
        else -logits.log_softmax(1)[torch.arange(len(query)), gold]
    )
    return loss, mixture, best


@settings(max_examples=40, deadline=None)
@given(
    mentions=st.integers(0, 9),
    entities=st.integers(1, 70),
    size=st.integers(1, 8),
    k=st.integers(1, 20),
    chunk=st.integers(1, 80),
    seed=st.integers(0, 999),
    linked=st.booleans(),
)
def test_entity_softmax_equals_the_plain_formula(
    mentions: int, entities: int, size: int, k: int, chunk: int, seed: int, linked: bool
) -> None:
    rng = torch.Generator().manual_seed(seed)
    query = (3 * torch.randn(mentions, size, generator=rng)).requires_grad_()
    table = torch.randn(entities, size, generator=rng).requires_grad_()
    gold = torch.randint(entities, (mentions,), generator=rng) if linked else None
    weights = torch.randn(mentions, generator=rng), torch.randn(mentions, size, generator=rng)
    results = []
    for function in (
        lambda: entity_softmax(query, table, gold, k, chunk),
        lambda: plain(query, table, gold, k),
    ):
        loss, mixture, best = function()
        gradients = torch.autograd.grad(
            (loss * weights[0]).sum() + (mixture * weights[1]).sum(), (query, table)
        )
        results.append((loss, mixture, best, *gradients))
    for ours, reference in zip(*results, strict=True):
        torch.testing.assert_close(ours, reference, atol=2e-5, rtol=2e-5)


def test_hand_worked() -> None:
    """Two entities, logits 0 and log 3: the gold one (the first) has probability 1/4, the mixture
    is (1, 3)/4."""
    query, table = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0986123, 0.0]])
    loss, mixture, best = entity_softmax(query, table, torch.tensor([0]), k=2, chunk=1)
    assert loss.item() == pytest.approx(1.3862944, abs=1e-6)
    assert mixture[0].tolist() == pytest.approx([0.75 * 1.0986123, 0.25])
    assert best.tolist() == [[1, 0]]


def test_large_logits_stay_finite() -> None:
    query, table = (
        torch.full((2, 4), 1e4, requires_grad=True),
        torch.eye(4)[:3].clone().requires_grad_(),
    )
    loss, mixture, _ = entity_softmax(query, table, torch.tensor([0, 2]), k=2, chunk=2)
    (loss.sum() + mixture.sum()).backward()
    assert loss.isfinite().all() and query.grad.isfinite().all() and table.grad.isfinite().all()


def test_a_frozen_table_gets_no_gradient_and_a_frozen_query_works() -> None:
    query, table = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
    entity_softmax(query, table, torch.tensor([0, 1, 2]))[0].sum().backward()
    assert query.grad is not None and table.grad is None


def test_bf16_autocast_does_not_change_the_answer() -> None:
    rng = torch.Generator().manual_seed(0)
    query, table = torch.randn(6, 16, generator=rng), torch.randn(300, 16, generator=rng)
    gold = torch.randint(300, (6,), generator=rng)
    reference = entity_softmax(query, table, gold)
    with torch.autocast("cpu", torch.bfloat16):
        ours = entity_softmax(query, table, gold)
    assert all(torch.equal(a, b) for a, b in zip(ours, reference, strict=True))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="expected \\(M, d\\) and \\(E, d\\)"):
        entity_softmax(torch.zeros(2, 3), torch.zeros(5, 4))


def test_ranks_are_of_float32_scores_whatever_the_precision() -> None:
    """Scores that bfloat16 rounds alike do not share a rank."""
    # (200, 8): row k is the k-th best from the end
    table = torch.eye(1, 8) * torch.linspace(1, 1.01, 200)[:, None]
    query, gold = torch.eye(1, 8).expand(3, 8), torch.tensor([0, 150, 199])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert entity_ranks(query, table, gold).tolist() == [200, 50, 1]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_word_loss_in_blocks_is_the_whole_one(smoothing: float) -> None:
    """Seven tokens of a vocabulary of five, two at a time: the same loss and gradients, and never
    more logits at once."""
    torch.manual_seed(0)
    states, words = torch.randn(7, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    labels, seen = torch.randint(5, (7,)), []

    def logits(own: Tensor) -> Tensor:
        seen.append(len(own))
        return own @ words.T

    p = (states @ words.T).log_softmax(1)
    slow = -sum(
        (1 - smoothing) * p[i, y] + smoothing * p[i].mean() for i, y in enumerate(labels.tolist())
    )
    for block, most in ((2**27, 7), (11, 2), (1, 1)):
        seen.clear()
        loss = word_loss(states, labels, logits, 5, smoothing, block)
        torch.testing.assert_close(loss, slow)
        for ours, wanted in zip(
            torch.autograd.grad(loss, (states, words)),
            torch.autograd.grad(slow, (states, words), retain_graph=True),
            strict=True,
        ):
            torch.testing.assert_close(ours, wanted)
        assert max(seen) == most
    assert word_loss(states[:0], labels[:0], logits, 5).item() == 0
