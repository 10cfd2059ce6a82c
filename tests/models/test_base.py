"""The mean over an optimiser step: several terms with weights, accumulated batches, several processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.base import PaperModule

TERMS = ("one", "two", "three")
WEIGHTS = (1.0, 2.0, 0.25)
#: (12, 3) of each of twelve sequences: how many things of each kind a term counts; the last kind is not there at all.
COUNTS = torch.tensor([[1.0, 0, 0], [2, 1, 0], [3, 0, 0], [1, 4, 0], [5, 2, 0], [2, 1, 0]]).repeat(2, 1)


class Weighted(PaperModule):
    def __init__(self) -> None:
        super().__init__(1.0)
        self.linear = nn.Linear(4, 3, bias=False)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(12.0).view(3, 4) / 7 - 0.6)

    def sums(self, x: Tensor, counts: Tensor) -> Tensor:
        """(3,) a sum for each term over what it counts."""
        return (self.linear(x).square() * counts).sum(0)


def data() -> Tensor:
    return torch.randn(12, 4, generator=torch.Generator().manual_seed(0))


def gradient(
    processes: int, accumulate: int, weights: Any = WEIGHTS, terms: Any = TERMS
) -> tuple[Tensor, dict[str, Tensor]]:
    """((3, 4) what DDP and Lightning make of the losses of one step, what process 0 logs), sequences dealt out in turn."""
    x, share = data(), 12 // (processes * accumulate)
    deal = torch.arange(12).view(accumulate, processes, share)
    modules = [Weighted() for _ in range(processes)]
    logged: dict[str, Tensor] = {}
    per_process = [COUNTS[deal[:, p].flatten()].sum(0) for p in range(processes)]  # datamodules.steps gives these
    windows: list[Tensor] = [torch.zeros(3) for _ in range(processes)]
    for batch in range(accumulate):
        for p, module in enumerate(modules):
            rows = deal[batch, p]
            windows[p] = windows[p] + module.sums(x[rows], COUNTS[rows]).detach()
    whole = {"counts": sum(per_process), "window": sum(windows)}
    for p, module in enumerate(modules):
        asked: list[str] = []

        def reduce(value: Tensor, reduce_op: str, own: int = p, asked: list[str] = asked) -> Tensor:
            """The sum over processes; what is asked for is known by what this process brings."""
            assert reduce_op == "sum"
            kind = "counts" if torch.equal(value, per_process[own]) else "window"
            torch.testing.assert_close(value, per_process[own] if kind == "counts" else windows[own])
            asked.append(kind)
            return torch.as_tensor(whole[kind]).clone()

        module._trainer = SimpleNamespace(
            accumulate_grad_batches=accumulate, world_size=processes, strategy=SimpleNamespace(reduce=reduce)
        )  # type: ignore[assignment]
        module.log_dict = (lambda found, **_: logged.update(found)) if p == 0 else (lambda *_, **__: None)  # type: ignore[method-assign]
        for batch in range(accumulate):
            rows = deal[batch, p]
            loss = module.step_mean(module.sums(x[rows], COUNTS[rows]), per_process[p], batch, terms, weights)
            (loss / accumulate).backward()  # as Lightning does
        assert asked.count("window") == 1  # once a step, whatever is accumulated
    mean = torch.stack([m.linear.weight.grad for m in modules]).mean(0)  # type: ignore[arg-type]  # as DDP does
    return mean, logged


def expected(weights: Any) -> tuple[Tensor, Tensor]:
    """((3, 4) gradient of the weighted sum of means over all twelve sequences, (3,) the means)."""
    module = Weighted()
    means = module.sums(data(), COUNTS) / COUNTS.sum(0).clamp_min(1)
    sum(w * m for w, m in zip(weights, means, strict=True)).backward()
    assert module.linear.weight.grad is not None
    return module.linear.weight.grad, means.detach()


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_are_those_of_one_process(processes: int, accumulate: int) -> None:
    found, logged = gradient(processes, accumulate)
    wanted, means = expected(WEIGHTS)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert list(logged) == ["train/loss", *(f"train/loss_{t}" for t in TERMS)]
    torch.testing.assert_close(torch.stack([logged[f"train/loss_{t}"] for t in TERMS]), means)  # without weights
    torch.testing.assert_close(logged["train/loss"], (means * torch.tensor(WEIGHTS)).sum())


def test_without_weights_terms_add_up_and_a_term_of_nothing_is_zero() -> None:
    found, logged = gradient(2, 1, weights=None, terms=())
    wanted, means = expected((1.0, 1.0, 1.0))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert list(logged) == ["train/loss"] and means[2] == 0 and found[2].eq(0).all() and found.isfinite().all()
    torch.testing.assert_close(logged["train/loss"], means.sum())


def test_every_term_has_a_name() -> None:
    with pytest.raises(ValueError, match="zip"):
        gradient(1, 1, terms=("one", "two"))


def test_a_term_that_weighs_nothing_has_no_curve() -> None:
    weights = (WEIGHTS[0], 0.0, WEIGHTS[2])
    found, logged = gradient(1, 1, weights=weights)
    wanted, means = expected(weights)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert list(logged) == ["train/loss", f"train/loss_{TERMS[0]}", f"train/loss_{TERMS[2]}"]
    torch.testing.assert_close(logged[f"train/loss_{TERMS[2]}"], means[2])
