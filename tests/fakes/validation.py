"""Validation without a trainer."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from models.base import PaperModule


def validate(model: PaperModule, batches: Iterable[Any]) -> dict[str, Tensor]:
    """What a validation of one process over the batches logs."""
    model.trainer.strategy = SimpleNamespace(reduce=lambda value, reduce_op: value)  # type: ignore[misc, assignment]
    model.on_validation_epoch_start()
    with torch.no_grad():
        for number, batch in enumerate(batches):
            model.validation_step(batch, number)
        return model.validation_metrics()
