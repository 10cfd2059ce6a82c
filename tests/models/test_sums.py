"""Named sums of validation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing

from models.sums import Sums, prefixed, ratio


def test_sums_add_up_by_name() -> None:
    sums = Sums(["loss", "count"])
    sums.update({"count": 3, "loss": torch.tensor(0.1)})
    sums.update({"loss": torch.tensor(0.2)})
    expected = torch.tensor(0.1).double() + torch.tensor(0.2).double()  # float32 values, added in double precision
    assert sums.compute() == {"loss": expected, "count": torch.tensor(3.0)} and sums.compute()["loss"].dtype == torch.double
    sums.reset()
    sums.update({"count": 1})
    assert sums.compute() == {"loss": 0, "count": 1}


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError, match="no sum 'los'; expected one of loss, count"):
        Sums(["loss", "count"]).update({"los": 1})
    with pytest.raises(ValueError, match="shorter"):
        prefixed("loss", ("a", "b"), torch.ones(1))


def test_sums_are_no_part_of_a_checkpoint() -> None:
    model = torch.nn.Module()
    model.sums = Sums(["loss"])
    assert not model.state_dict() and not list(model.parameters())


def test_ratio_of_nothing() -> None:
    assert ratio(torch.tensor(6.0), torch.tensor(3.0)) == 2 and ratio(torch.tensor(0.0), torch.tensor(0.0)) == 0


def add_up(rank: int, file: str, out: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    sums = Sums(["a", "b"])
    for batch in range(rank + 1):
        sums.update({"a": torch.tensor(10.0**rank), "b": batch})
    torch.save(sums.compute(), f"{out}{rank}")
    distributed.destroy_process_group()


@pytest.mark.ddp
def test_sums_add_up_over_processes(tmp_path: Path) -> None:
    """Process 0 has one batch and process 1 two; both get the sums of all three."""
    multiprocessing.spawn(add_up, (str(tmp_path / "rendezvous"), str(tmp_path / "sums")), nprocs=2)  # type: ignore[no-untyped-call]
    for rank in range(2):
        assert torch.load(tmp_path / f"sums{rank}", weights_only=True) == {"a": 21.0, "b": 1.0}
