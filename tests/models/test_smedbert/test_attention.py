"""Hybrid attention and gated infusion against Eq. (2-11), mention by mention and token by token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from models.layers import SpanPooling, span_states
from models.smedbert.attention import HybridAttention, PositionInfusion, SpanProjection


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    mean, variance = x.mean(), x.var(unbiased=False)
    return (x - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias


def slow_attention(
    module: HybridAttention, mention: Tensor, vectors: Tensor, types: list[int]
) -> Tensor:
    """Eq. (3-7) of one mention in the paper's words: vectors (k, d) of its neighbours, all
    there."""
    d = len(mention)
    alpha = dict.fromkeys(types, torch.ones(()))
    if module.type_attention:
        score = {}
        for tau in set(types):
            own = [v for v, t in zip(vectors, types, strict=True) if t == tau]
            h_tau = (
                torch.stack(own).sum(0) if module.type_state == "sum" else torch.stack(own).mean(0)
            )
            inner = torch.tanh(
                module.from_mention.weight @ mention + module.from_type.weight @ h_tau
            )
            score[tau] = (module.to_score.weight @ inner)[0]  # Eq. (3)
        total = sum(s.exp() for s in score.values())
        alpha = {tau: s.exp() / total for tau, s in score.items()}
    logits = []
    for e, tau in zip(vectors, types, strict=True):
        product = (module.query.weight @ mention) @ (module.key.weight @ e) / math.sqrt(d)
        logits.append(product * alpha[tau] if module.type_place == "pre" else product)  # Eq. (4)
    # Eq. (5)
    beta = torch.stack(logits).exp() / torch.stack(logits).exp().sum() if logits else torch.zeros(0)
    if module.type_place == "post" and types:
        beta = beta * torch.stack([alpha[t] for t in types])
    mixed = sum(
        (
            b * (module.value.weight @ e + module.value.bias)
            for b, e in zip(beta, vectors, strict=True)
        ),
        torch.zeros(d),
    )  # Eq. (6)
    inner = gelu(module.inner.weight @ mixed + module.inner.bias)
    return layer_norm(mixed + module.outer.weight @ inner, module.norm)  # Eq. (7)


@pytest.mark.parametrize("type_attention", [True, False])
@pytest.mark.parametrize("type_state", ["sum", "mean"])
@pytest.mark.parametrize("type_place", ["pre", "post"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 6), kinds=st.integers(1, 3))
def test_hybrid_attention_is_the_equations(
    type_attention: bool, type_state: Any, type_place: Any, seed: int, k: int, kinds: int
) -> None:
    torch.manual_seed(seed)
    module = HybridAttention(5, type_attention, type_state, type_place)
    mention, vectors, types = torch.randn(4, 5), torch.randn(4, k, 5), torch.randint(kinds, (4, k))
    there = torch.rand(4, k) < 0.6
    there[1:, 0], there[0] = True, False  # a mention without a neighbour: an empty sum
    ours = module(mention, vectors, types.masked_fill(~there, -1), there)
    for row in range(4):
        chosen = there[row]
        slow = slow_attention(
            module, mention[row], vectors[row][chosen], types[row][chosen].tolist()
        )
        torch.testing.assert_close(ours[row], slow, atol=1e-5, rtol=1e-4)


def test_each_type_counts_once() -> None:
    """Hand-worked: without influence of vectors every available type weighs the same, however many
    have it."""
    module = HybridAttention(3)
    nn.init.zeros_(module.to_score.weight)
    types = torch.tensor([[0, 0, 0, 1, 2]])
    there = torch.tensor([[True, True, True, True, False]])
    weight = module.type_weights(torch.randn(1, 3), torch.randn(1, 5, 3), types, there)
    assert torch.allclose(weight, torch.tensor([[0.5, 0.5, 0.5, 0.5, 0.0]]))


def test_the_type_ablation_is_a_constant_alpha() -> None:
    torch.manual_seed(0)
    plain = HybridAttention(4, type_attention=False)
    same = HybridAttention(4)
    same.load_state_dict(plain.state_dict(), strict=False)
    arguments = (
        torch.randn(3, 4),
        torch.randn(3, 2, 4),
        torch.zeros(3, 2, dtype=torch.long),
        torch.ones(3, 2).bool(),
    )
    assert torch.allclose(plain(*arguments), same(*arguments))  # one type: its share is 1
    assert not [n for n, _ in plain.named_parameters() if n.startswith(("from_", "to_"))]


def test_a_small_alpha_raises_a_negative_logit() -> None:
    """Eq. (4) as printed: a type that hardly counts is drawn towards 0, which is up for a negative
    product."""
    module = HybridAttention(1)
    for linear, value in ((module.query, 1.0), (module.key, -1.0), (module.to_score, 0.0)):
        nn.init.constant_(linear.weight, value)
    mention, vectors = torch.ones(1, 1), torch.tensor([[[2.0], [1.0]]])
    types, there = torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool)
    assert torch.allclose(
        module.type_weights(mention, vectors, types, there), torch.tensor([[0.5, 0.5]])
    )
    halved = torch.tensor([-1.0, -0.5]).softmax(0)  # of -2 and -1
    nn.init.constant_(module.value.weight, 1.0)
    nn.init.zeros_(module.value.bias)
    mixed: list[Tensor] = []
    module.norm.register_forward_pre_hook(lambda _, x: mixed.append(x[0]))
    nn.init.zeros_(module.outer.weight)
    module(mention, vectors, types, there)
    assert torch.allclose(mixed[0], (halved * torch.tensor([2.0, 1.0])).sum()[None, None])


def slow_pooling(module: SpanPooling, tokens: Tensor) -> Tensor:
    weight = torch.stack([module.score.weight[0] @ h + module.score.bias[0] for h in tokens])
    weight = weight.exp() / weight.exp().sum()
    return sum(w * h for w, h in zip(weight, tokens, strict=True))  # type: ignore[return-value]


def test_span_pooling_and_projection() -> None:
    torch.manual_seed(1)
    hidden, spans = torch.randn(2, 7, 6), torch.tensor([[0, 1, 2], [0, 2, 6], [1, 4, 7]])
    module = SpanProjection(6, 4)
    ours, pooled = module(hidden, spans), module.pool(hidden, spans)
    for m, (row, start, end) in enumerate(spans.tolist()):
        slow = slow_pooling(module.pool, hidden[row, start:end])
        torch.testing.assert_close(pooled[m], slow)
        # Eq. (2)
        torch.testing.assert_close(
            ours[m], layer_norm(gelu(module.linear.weight @ slow), module.norm)
        )
    assert torch.allclose(pooled[0], hidden[0, 1])  # one token: itself


def test_span_states() -> None:
    hidden = torch.arange(10.0).view(1, 10, 1)
    states, inside = span_states(hidden, torch.tensor([[0, 1, 3], [0, 8, 10], [0, 9, 10]]))
    assert states[inside].flatten().tolist() == [1, 2, 8, 9, 9] and inside.sum(1).tolist() == [
        2,
        2,
        1,
    ]
    states, inside = span_states(hidden, torch.zeros(0, 3, dtype=torch.long))
    assert states.shape == (0, 1, 1) and inside.shape == (0, 1)


def test_infusion_is_the_equations_and_touches_mentions_alone() -> None:
    torch.manual_seed(2)
    hidden, spans = torch.randn(2, 6, 5), torch.tensor([[0, 1, 3], [1, 0, 1], [1, 3, 6]])
    knowledge, mention = torch.randn(3, 4), torch.randn(3, 4)
    module = PositionInfusion(5, 4)
    ours = module(hidden, spans, knowledge, mention)
    slow = hidden.clone()
    for m, (row, start, end) in enumerate(spans.tolist()):
        # Eq. (8)
        fused = gelu(module.fuse.weight @ torch.cat([knowledge[m], mention[m]]) + module.fuse.bias)
        known = layer_norm(module.back.weight @ fused + module.back.bias, module.norm)  # Eq. (9)
        for i in range(start, end):
            h = hidden[row, i]
            # Eq. (10)
            g = torch.tanh(module.gate.weight @ torch.cat([h, known]) + module.gate.bias)
            # Eq. (11)
            slow[row, i] = (
                gelu(module.extend.weight @ torch.cat([h, g * known]) + module.extend.bias) + h
            )
    torch.testing.assert_close(ours, slow)
    changed = (ours != hidden).any(-1)
    assert changed.tolist() == [
        [False, True, True, False, False, False],
        [True, False, False, True, True, True],
    ]


def test_no_mention_changes_nothing() -> None:
    hidden = torch.randn(2, 3, 5)
    none = torch.zeros(0, 3, dtype=torch.long)
    assert torch.equal(
        PositionInfusion(5, 4)(hidden, none, torch.zeros(0, 4), torch.zeros(0, 4)), hidden
    )
    assert HybridAttention(4)(
        torch.zeros(0, 4), torch.zeros(0, 3, 4), torch.zeros(0, 3).long(), torch.zeros(0, 3).bool()
    ).shape == (0, 4)
