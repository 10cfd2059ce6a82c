"""MNeM's compatibility function and loss against Eq. (15-19)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.smedbert.context import compatibility, sampled_softmax


def drawn(seed: int, d: int = 4, d_r: int = 3, pairs: int = 5) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    direction = torch.where(torch.rand(pairs, generator=g) < 0.5, 1, -1)
    return (
        torch.randn(pairs, d, generator=g),
        torch.randint(3, (pairs,), generator=g),
        direction,
        torch.randn(pairs, 6, d, generator=g),
        torch.randn(3, d, d_r, generator=g),
        torch.randn(3, d_r, generator=g),
    )


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_exact_is_equation_16(seed: int) -> None:
    h, r, sign, e, m, v = drawn(seed)
    ours = compatibility(h, r, sign, e, m, v, 10.0, "exact")
    for p in range(len(h)):
        target = h[p] @ m[r[p]] + sign[p] * v[r[p]]
        for n in range(e.shape[1]):
            own = e[p, n] @ m[r[p]]
            slow = 10 * (target / target.norm()) @ (own / own.norm())
            assert ours[p, n].item() == pytest.approx(slow.item(), abs=1e-4)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_equation_18_and_the_printed_norm(seed: int) -> None:
    """[h, 1] M_Pr [e, 0]^T with M_Pr = [M; r] [M; r]^T; with direction -1 the constant is -1."""
    h, r, sign, e, m, v = drawn(seed)
    paper = compatibility(h, r, sign, e, m, v, 10.0, "paper")
    for p in range(len(h)):
        stacked = torch.cat([m[r[p]], v[r[p]][None]])  # (d + 1, d_r)
        row = torch.cat([h[p], sign[p][None]]) @ (stacked @ stacked.T)
        target = h[p] @ m[r[p]] + sign[p] * v[r[p]]
        for n in range(e.shape[1]):
            padded = torch.cat([e[p, n], torch.zeros(1)])
            # Eq. (18)
            assert (row @ padded).item() == pytest.approx(
                (target @ (e[p, n] @ m[r[p]])).item(), abs=1e-3
            )
            # Eq. (19) without its last term
            slow = 10 * (row / row.norm()) @ (padded / e[p, n].norm())
            assert paper[p, n].item() == pytest.approx(slow.item(), abs=1e-4)


def test_d2_the_default_norm_is_equation_16_for_orthogonal_projections() -> None:
    h, r, sign, e, _, _ = drawn(3)
    m = torch.stack([torch.linalg.qr(torch.randn(4, 4))[0] for _ in range(3)])
    v = torch.randn(3, 4)
    default, exact = (
        compatibility(h, r, sign, e, m, v, 10.0, norm) for norm in ("relation", "exact")
    )  # type: ignore[arg-type]
    torch.testing.assert_close(default, exact, atol=1e-4, rtol=1e-4)
    printed = compatibility(h, r, sign, e, m, v, 10.0, "paper")
    assert not torch.allclose(printed, exact, atol=1e-2)  # it counts v . h_r too ...
    none = torch.zeros_like(v)
    torch.testing.assert_close(
        compatibility(h, r, sign, e, m, none, 10.0, "paper"),
        compatibility(h, r, sign, e, m, none, 10.0, "exact"),
        atol=1e-4,
        rtol=1e-4,
    )
    lame = m * 2.0
    assert not torch.allclose(
        compatibility(h, r, sign, e, lame, v, 10.0),
        compatibility(h, r, sign, e, m, v, 10.0),
        atol=1e-2,
    )


def test_equation_17_a_perfect_translation_scores_mu() -> None:
    h, r, sign, _, _, v = drawn(5, d=3, d_r=3)
    m = torch.eye(3).expand(3, 3, 3)
    e = (h + sign[:, None] * v[r])[:, None]
    assert torch.allclose(compatibility(h, r, sign, e, m, v, 10.0), torch.tensor(10.0))


def test_d4_a_tail_subtracts_the_relation() -> None:
    h, r, sign, e, m, v = drawn(7)
    turned = compatibility(h, r, -sign, e, m, -v, 10.0)
    assert torch.allclose(compatibility(h, r, sign, e, m, v, 10.0), turned)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_sampled_softmax_is_equation_15(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    score, log_q = torch.randn(4, 6, generator=g), torch.rand(4, 6, generator=g).log()
    there = torch.rand(4, 6, generator=g) < 0.7
    there[:, 0] = True
    for correction in (1.0, 10.0):
        ours = sampled_softmax(score, log_q, there, correction)
        for p in range(4):
            f = [
                (score[p, n] - correction * log_q[p, n]).double().exp()
                for n in range(6)
                if there[p, n]
            ]
            assert ours[p].item() == pytest.approx(-math.log(f[0] / sum(f)), rel=1e-3, abs=1e-5)


def test_d3_the_correction_makes_sampling_unbiased() -> None:
    """With log Q taken away and many negatives, the loss is the full softmax over the type,
    whatever Q is."""
    torch.manual_seed(0)
    logits = torch.randn(12)
    q = torch.rand(12) + 0.05
    q = q / q.sum()
    drawn = torch.multinomial(q, 200_000, replacement=True)
    drawn = drawn[drawn != 4]  # accidental hits are no negatives
    index = torch.cat([torch.tensor([4]), drawn])
    # n draws by Q estimate the sum over all others as their mean of exp(s) / Q: log n is what is
    # left over.
    log_q = q.log()[index] + math.log(len(drawn) / (1 - q[4].item()))
    log_q[0] = 0.0
    ours = sampled_softmax(
        logits[index][None], log_q[None], torch.ones(1, len(index), dtype=torch.bool)
    )
    assert ours.item() == pytest.approx(-logits.log_softmax(0)[4].item(), abs=0.02)
    printed = sampled_softmax(
        logits[index][None], log_q[None], torch.ones(1, len(index), dtype=torch.bool), 10.0
    )
    assert abs(printed.item() - ours.item()) > 1


def test_gradients_are_finite() -> None:
    h, r, sign, e, m, v = drawn(11)
    h.requires_grad_()
    e[0, 0] = 0.0  # an entity without a vector
    score = compatibility(h, r, sign, e, m, v)
    sampled_softmax(score, torch.zeros(5, 6), torch.ones(5, 6, dtype=torch.bool)).sum().backward()
    assert h.grad is not None and h.grad.isfinite().all()
