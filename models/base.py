"""What the papers share as LightningModules: AdamW, warm-up and linear decay or none, the mean over
a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import Precision
from torch import Tensor, nn
from torch.optim import Optimizer

from models.measures import Measures, Totals


def warmup_linear(step: int, warmup: int, total: int) -> float:
    """Factor on the learning rate: 0 -> 1 over `warmup` steps, then 1 -> 0 at `total`."""
    if step < warmup:
        return step / max(1, warmup)
    return max(0.0, (total - step) / max(1, total - warmup))


class PaperModule(pl.LightningModule):
    """Optimiser, schedule and validation of a paper.

    lr            learning rate at the end of warm-up
    weight_decay  AdamW's, on matrices only (not on biases, LayerNorms and embeddings of entities)
    warmup_steps  optimiser steps of linear warm-up, or below 1 their share of all steps; afterwards
                  linear decay to 0 at the end of training; None: the learning rate stays what it
                  is, without warm-up and decay
    attention     the encoder's implementation of attention: sdpa, eager or packed
    dropout       of the encoder; None: its own

    A subclass has `training_step` and :meth:`measures`, and may set `betas`, AdamW's.
    """

    betas: tuple[float, float] = (0.9, 0.999)

    def __init__(
        self,
        lr: float,
        weight_decay: float = 0.01,
        warmup_steps: float | None = 0,
        attention: str = "sdpa",
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.dropout = attention, dropout
        self.lr, self.weight_decay, self.warmup_steps = lr, weight_decay, warmup_steps
        self._window = torch.zeros(1)  # of the losses of the batches that one step accumulates
        self.totals = Totals()  # of validation

    def rate(self, name: str) -> float:
        """The parameter's learning rate at the end of warm-up."""
        return self.lr

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        """Whether weight decay applies to the parameter."""
        return parameter.dim() > 1

    def factor(self, step: int, warmup: int, total: int) -> float:
        """Factor on the learning rate at `step` of `total`, where there is a warm-up of `warmup`
        steps."""
        return warmup_linear(step, warmup, total)

    def step_mean(
        self,
        sums: Tensor,
        counts: Tensor,
        batch_idx: int,
        terms: Sequence[str] = (),
        weights: Sequence[float] | None = None,
    ) -> Tensor:
        """() what a training step returns for the `sums` (T,) of its loss's terms over the batch,
        of what `counts` (T,) counts.

        Gradients are those of the terms' means over the whole optimiser step, each times its weight
        (1), added up, whatever the processes and accumulated batches; `counts` is the step's share
        of this process (datamodules.steps). Logs the total as train/loss at each step's end, and
        each term's mean under its name in `terms`; not of one that weighs 0.
        """
        accumulate = self.trainer.accumulate_grad_batches
        # Filled, not sent: a tensor made from the host's numbers would make a GPU wait.
        weight = (
            sums.new_ones(len(sums))
            if weights is None
            else torch.stack([sums.new_full((), w) for w in weights])
        )
        total = self.trainer.strategy.reduce(counts.clone(), reduce_op="sum").clamp_min(1)
        self._window = self._window.to(sums.device) + sums.detach()
        if (batch_idx + 1) % accumulate == 0:
            means = self.trainer.strategy.reduce(self._window.clone(), reduce_op="sum") / total
            self._window.zero_()
            shares = [1.0] * len(means) if weights is None else weights
            gathered = zip(terms, means, shares, strict=True) if terms else ()
            named = {f"train/loss_{term}": value for term, value, share in gathered if share}
            self.log_dict(
                {"train/loss": (means * weight).sum()} | named, prog_bar=True, batch_size=1
            )
        # Lightning divides by `accumulate` and DDP averages over processes: undo both, the counts
        # are global already.
        return (sums / total * weight).sum() * accumulate * self.trainer.world_size

    def measures(self, batch: Any) -> Measures:
        """What validation measures on the batch: the same names for every batch, and nothing but
        zeros of a blank one."""
        raise NotImplementedError

    def summary(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        """What is logged of the means and numbers that were `means` over all batches and
        processes; a paper may add to them."""
        return means

    def on_validation_epoch_start(self) -> None:
        self.totals.reset()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.totals.add(self.measures(batch), self.device)

    def validation_metrics(self) -> dict[str, Tensor]:
        """What is logged of the batches since `on_validation_epoch_start`, the same on every
        process."""
        united = self.trainer.strategy.reduce(self.totals.flat(), reduce_op="sum")
        measures = self.summary(self.totals.means(united))
        return {f"val/{name}": value for name, value in measures.items()}

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.validation_metrics(), batch_size=1)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: Any = None,
    ) -> None:
        """Clip gradients as Lightning does, but in bf16-mixed with a fused optimizer, too.

        Lightning refuses that as it does in float16, although bfloat16 scales no loss.
        """
        if self.trainer.scaler is None and gradient_clip_val:
            algorithm = (
                {}
                if gradient_clip_algorithm is None
                else {"gradient_clip_algorithm": gradient_clip_algorithm}
            )
            Precision.clip_gradients(
                self.trainer.precision_plugin, optimizer, gradient_clip_val, **algorithm
            )
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def configure_optimizers(self) -> Any:
        groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                groups.setdefault((self.rate(name), self.decays(name, parameter)), []).append(
                    parameter
                )
        optimizer = torch.optim.AdamW(
            [
                {"params": p, "lr": rate, "weight_decay": self.weight_decay if decay else 0.0}
                for (rate, decay), p in sorted(groups.items(), key=lambda g: g[0])
            ],
            betas=self.betas,
            # float16 scales the loss, which a fused step would undo after clipping
            fused=self.trainer.scaler is None,
        )
        total = int(self.trainer.estimated_stepping_batches)
        steps = self.warmup_steps
        if steps is not None and steps < 1:
            steps = steps * total  # a share
        warmup = None if steps is None else int(steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda s: 1.0 if warmup is None else self.factor(s, warmup, total)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
