"""datamodules.rows and the places of a batch against loops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from datamodules.rows import group_rows, longest, most
from datamodules.steps import place_batch, places

SPANS = torch.tensor([[0, 1, 3], [0, 4, 5], [2, 0, 4], [2, 4, 5], [2, 6, 7]])


def test_sizes_of_spans() -> None:
    assert (longest(SPANS), most(SPANS)) == (4, 3) and (longest(SPANS[:0]), most(SPANS[:0])) == (
        1,
        1,
    )


def test_equal_values_are_beside_each_other() -> None:
    order, groups = group_rows(torch.tensor([5, 2, 5, 2, 9]))
    assert order.tolist() == [1, 3, 0, 2, 4] and groups == [(2, 2), (5, 2), (9, 1)]
    assert group_rows(torch.zeros(0, dtype=torch.long))[1] == []


class Masked(NamedTuple):
    """A batch of one mask."""

    labels: Tensor
    places: Any = None

    def masks(self) -> dict[str, Tensor]:
        return {"predicted": self.labels != -100}

    def sizes(self) -> dict[str, Any]:
        return {"longest": 3}


def test_a_batch_receives_its_places_once() -> None:
    batch = Masked(torch.tensor([[7, -100], [-100, 8]]))
    found = place_batch(batch)
    assert found.places["predicted"].tolist() == [0, 3] and found.places["longest"] == 3
    assert places(batch, "predicted").tolist() == [0, 3]
    # those of the host, not looked for
    assert places(found._replace(labels=torch.zeros(2, 2)), "predicted").tolist() == [0, 3]
    other = SimpleNamespace(counts=1)
    assert place_batch(other) is other
