"""Named sums of validation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed

from core.tracking import ROOT
from models.sums import Sums, prefixed, ratio


def test_sums_add_up_by_name() -> None:
    sums = Sums(["loss", "count"])
    sums.update({"count": 3, "loss": torch.tensor(0.1)})
    sums.update({"loss": torch.tensor(0.2)})
    # float32 values, added in double precision
    expected = torch.tensor(0.1).double() + torch.tensor(0.2).double()
    assert (
        sums.compute() == {"loss": expected, "count": torch.tensor(3.0)}
        and sums.compute()["loss"].dtype == torch.double
    )
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
    assert (
        ratio(torch.tensor(6.0), torch.tensor(3.0)) == 2
        and ratio(torch.tensor(0.0), torch.tensor(0.0)) == 0
    )


def add_up(rank: int, file: str, out: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    sums = Sums(["a", "b"])
    for batch in range(rank + 1):
        sums.update({"a": torch.tensor(10.0**rank), "b": batch})
    torch.save(sums.compute(), f"{out}{rank}")
    distributed.destroy_process_group()


@pytest.mark.ddp
def test_sums_add_up_over_processes(tmp_path: Path, preloaded: None) -> None:
    """Process 0 has one batch and process 1 two; both get the sums of all three."""
    program = (
        "import sys; from tests.models.test_sums import add_up; add_up(int(sys.argv[1]),"
        " *sys.argv[2:])"
    )
    words = [sys.executable, "-c", program]
    places = [str(tmp_path / "rendezvous"), str(tmp_path / "sums")]
    own = os.environ | {"PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen([*words, str(rank), *places], cwd=ROOT, env=own) for rank in range(2)
    ]
    assert [process.wait(120) for process in started] == [0, 0]
    for rank in range(2):
        assert torch.load(tmp_path / f"sums{rank}", weights_only=True) == {"a": 21.0, "b": 1.0}
