"""Training steps of a data module that no trainer holds: all of every batch, in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from core.files import InputError
from datamodules.steps import train_batches


class Rows(NamedTuple):
    """A batch whose rows are the numbers of its examples."""

    rows: Tensor
    counts: Tensor


def stepped(trainer: Any = None) -> Any:
    """Three steps an epoch of four examples."""
    return SimpleNamespace(
        trainer=trainer,
        batch_size=4,
        num_workers=0,
        steps_per_epoch=3,
        order=lambda epoch: np.arange(12).reshape(3, 4) + 100 * epoch,
        batch=lambda share, epoch: Rows(torch.as_tensor(share), torch.tensor([float(len(share))])),
    )


def test_without_a_trainer_one_process_reads_all() -> None:
    batches = list(train_batches(stepped()))
    assert [batch.rows.tolist() for batch in batches] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]


def test_a_process_reads_its_share_and_counts_the_whole_step() -> None:
    trainer = SimpleNamespace(global_rank=1, world_size=2, accumulate_grad_batches=2, global_step=4)
    flat = train_batches(stepped(trainer))
    batches = list(flat)
    assert len(flat) == 6 and [batch.rows.tolist() for batch in batches[:2]] == [[106], [107]]
    assert all(batch.counts.tolist() == [2.0] for batch in batches)  # of the process's own share
    trainer.world_size = 3
    with pytest.raises(InputError, match="batch_size 4 cannot be shared by 3 processes x 2"):
        train_batches(stepped(trainer))
