"""That a data module's steps do not depend on who takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def check_shared_steps(
    make_data: Callable[..., Any],
    fake: Any,
    contents: Callable[[list[Any]], Any],
    world: int,
    accumulate: int,
) -> None:
    """A step of `world` processes with `accumulate` micro-batches each holds what one process's
    step does."""
    alone = list(make_data(fake).train_dataloader())
    shared = [
        list(make_data(fake, world, rank, accumulate).train_dataloader()) for rank in range(world)
    ]
    assert len(shared[0]) == len(alone) * accumulate
    for step, whole in enumerate(alone):
        parts = [shared[r][step * accumulate + a] for r in range(world) for a in range(accumulate)]
        assert contents(parts) == contents([whole])
        assert torch.equal(
            sum(shared[r][step * accumulate].counts for r in range(world)), whole.counts
        )
        assert torch.equal(parts[0].counts, parts[accumulate - 1].counts)


def check_later_start(
    make_data: Callable[..., Any], fake: Any, contents: Callable[[list[Any]], Any]
) -> None:
    """Training that starts at a later step sees the rest; another epoch has other masks."""
    first = list(make_data(fake).train_dataloader())
    second = list(make_data(fake, step=len(first)).train_dataloader())
    resumed = list(make_data(fake, step=2).train_dataloader())
    assert len(resumed) == len(first) == len(second) > 2
    for a, b in zip(resumed, (first + second)[2 : len(first) + 2], strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a[:-1], b[:-1], strict=True))
        assert a.places.keys() == b.places.keys()
    assert contents(first) != contents(second)
