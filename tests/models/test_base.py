"""The mean over an optimiser step: several terms with weights, accumulated batches, several
processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from models.base import PaperModule, warmup_linear

TERMS = ("one", "two", "three")
WEIGHTS = (1.0, 2.0, 0.25)
#: (12, 3) of each of twelve sequences: how many things of each kind a term counts; the last kind
#: is not there at all.
COUNTS = torch.tensor([[1.0, 0, 0], [2, 1, 0], [3, 0, 0], [1, 4, 0], [5, 2, 0], [2, 1, 0]]).repeat(
    2, 1
)


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
    """((3, 4) what DDP and Lightning make of the losses of one step, what process 0 logs),
    sequences dealt out in turn."""
    x, share = data(), 12 // (processes * accumulate)
    deal = torch.arange(12).view(accumulate, processes, share)
    modules = [Weighted() for _ in range(processes)]
    logged: dict[str, Tensor] = {}
    # datamodules.steps returns these
    per_process = [COUNTS[deal[:, p].flatten()].sum(0) for p in range(processes)]
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
            torch.testing.assert_close(
                value, per_process[own] if kind == "counts" else windows[own]
            )
            asked.append(kind)
            return torch.as_tensor(whole[kind]).clone()

        module._trainer = SimpleNamespace(
            accumulate_grad_batches=accumulate,
            world_size=processes,
            strategy=SimpleNamespace(reduce=reduce),
        )  # type: ignore[assignment]
        module.log_dict = (
            (lambda found, **_: logged.update(found)) if p == 0 else (lambda *_, **__: None)
        )  # type: ignore[method-assign]
        for batch in range(accumulate):
            rows = deal[batch, p]
            loss = module.step_mean(
                module.sums(x[rows], COUNTS[rows]), per_process[p], batch, terms, weights
            )
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
    # without weights
    torch.testing.assert_close(torch.stack([logged[f"train/loss_{t}"] for t in TERMS]), means)
    torch.testing.assert_close(logged["train/loss"], (means * torch.tensor(WEIGHTS)).sum())


def test_without_weights_terms_add_up_and_a_term_of_nothing_is_zero() -> None:
    found, logged = gradient(2, 1, weights=None, terms=())
    wanted, means = expected((1.0, 1.0, 1.0))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert (
        list(logged) == ["train/loss"]
        and means[2] == 0
        and found[2].eq(0).all()
        and found.isfinite().all()
    )
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


def test_the_schedule_by_hand() -> None:
    """Four steps up, six down, of ten."""
    up, down = [0, 1 / 4, 2 / 4, 3 / 4], [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0]
    assert [warmup_linear(step, 4, 10) for step in range(11)] == pytest.approx(up + down)
    assert warmup_linear(0, 0, 2) == 1 and warmup_linear(11, 4, 10) == 0


class Fitted(PaperModule):
    """A linear layer and a LayerNorm that note the learning rate of every step."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(1.0, **settings)
        self.linear, self.norm = nn.Linear(2, 2), nn.LayerNorm(2)
        self.rates: list[float] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.rates.append(self.optimizers().param_groups[0]["lr"])  # type: ignore[union-attr]
        return self.norm(self.linear(batch)).square().sum()


def test_the_rate_changes_with_every_step() -> None:
    """Two epochs of four steps, of which two warm up: an epoch has no rate of its own."""
    model = Fitted(warmup_steps=0.25)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=1))  # type: ignore[arg-type]
    assert model.rates == pytest.approx([0, 1 / 2, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])


def test_only_matrices_decay() -> None:
    model = Fitted(weight_decay=0.3, warmup_steps=None)
    model._trainer = SimpleNamespace(estimated_stepping_batches=10, scaler=None)  # type: ignore[assignment]
    names = {id(p): name for name, p in model.named_parameters()}
    groups = model.configure_optimizers()["optimizer"].param_groups
    decay = {names[id(p)]: group["weight_decay"] for group in groups for p in group["params"]}
    assert decay == {"linear.weight": 0.3, "linear.bias": 0.0, "norm.weight": 0.0, "norm.bias": 0.0}


class Trained(Weighted):
    """Trains on (x, counts), and keeps the norm of the gradients of a step."""

    norm: Tensor

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.sums(*batch).sum()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.before = self.linear.weight.grad.norm()  # type: ignore[union-attr]

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        self.norm = self.linear.weight.grad.norm()  # type: ignore[union-attr]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("limit", [0.0, 0.01])
def test_gradients_are_clipped_in_every_precision(precision: Any, limit: float) -> None:
    """PROFILE=paper trains in bf16-mixed, in which Lightning refuses to clip gradients for a fused
    optimizer."""
    torch.manual_seed(0)
    model, loader = (
        Trained(),
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data(), COUNTS), 12),
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=1,
        precision=precision,
        gradient_clip_val=limit,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    assert model.before > 1
    assert float(model.norm) == pytest.approx(limit or float(model.before), rel=1e-3)
