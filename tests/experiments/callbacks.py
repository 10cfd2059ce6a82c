"""Lightning callbacks that tests put into runs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

#: puts BlankAddsNothing into a run
BLANK = "--trainer.callbacks+=tests.experiments.callbacks.BlankAddsNothing"


class SaveGradients(pl.Callback):
    """Writes every parameter's gradient before the first optimiser step, and the loss logged for
    it, from process 0."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.gradients: dict[str, torch.Tensor] | None = None

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Any
    ) -> None:
        if self.gradients is None:
            self.gradients = {
                n: p.grad.clone() for n, p in pl_module.named_parameters() if p.grad is not None
            }

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            losses = {
                k: v.clone() for k, v in trainer.callback_metrics.items() if k.startswith("train/")
            }
            torch.save({"gradients": self.gradients, "losses": losses}, self.file)


class BlankAddsNothing(pl.Callback):
    """A blank batch, with which a process that has fewer fills up, adds nothing to any sum of
    validation."""

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        held: Any = trainer.val_dataloaders.dataset  # type: ignore[union-attr]
        batch = held.data.batch(held.filler, -1, blank=True)
        pl_module.on_validation_epoch_start()
        pl_module.validation_step(batch, 0)
        sums: dict[str, torch.Tensor] = pl_module.totals.sums  # type: ignore[assignment, union-attr]
        assert sums and not any(value.any() for value in sums.values()), sums
        pl_module.on_validation_epoch_start()


class KillAt(pl.Callback):
    """kill -9, of one process, after a number of batches, if the marker file is not there yet."""

    def __init__(self, batches: int, marker: str, rank: int = 0) -> None:
        self.batches, self.marker, self.rank = batches, Path(marker), rank

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        due = (
            trainer.fit_loop.epoch_loop.total_batch_idx + 1 == self.batches
            and trainer.global_rank == self.rank
        )
        if due and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class KillAtTest(pl.Callback):
    """kill -9 when all is trained and nothing is scored, if the marker file is not there yet."""

    def __init__(self, marker: str) -> None:
        self.marker = Path(marker)

    def on_test_start(self, *_: Any) -> None:
        if not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Moved(pl.Callback):
    """Names of the parameters that training changed, and of those it left alone."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.before = {n: p.detach().clone() for n, p in pl_module.named_parameters()}

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        after = dict(pl_module.named_parameters())
        self.moved = {n for n, p in self.before.items() if not torch.equal(p, after[n])}
        self.still = set(self.before) - self.moved
