"""A training that a signal stops says at which step."""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from experiments.run import fit


class Stopped(pl.LightningModule):
    """One weight; a signal comes in its third step."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.weight = number, torch.nn.Parameter(torch.zeros(1))

    def train_dataloader(self) -> Any:
        return DataLoader(torch.ones(9, 1))  # type: ignore[arg-type]

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        if index == 2:
            os.kill(os.getpid(), self.number)
        return (self.weight * batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


STOPS = [(signal.SIGTERM, "SIGTERM at step 3", 143), (signal.SIGINT, "an interrupt at step 2", 130)]


@pytest.mark.parametrize(("number", "said", "code"), STOPS)
def test_a_stopped_training_says_so(
    number: int, said: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(accelerator="cpu", max_epochs=1, **quiet)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR, "experiments"), pytest.raises(SystemExit) as ended:
        fit(trainer, Stopped(number), None, None)
    assert ended.value.code == code
    assert (
        f"training stopped by {said}" in caplog.text and "the same command resumes" in caplog.text
    )
