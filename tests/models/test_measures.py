"""Means and counts of validation."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, distributed

from core.tracking import ROOT
from models.base import PaperModule
from models.measures import Measures, Totals, ratio, term_means, total_loss
from tests.fakes.validation import validate


class Measured(PaperModule):
    """Measures the numbers of a batch."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self._trainer = SimpleNamespace()  # type: ignore[assignment]

    def measures(self, batch: Any) -> Measures:
        part, count = batch
        return {"loss": (torch.tensor([part]), count), "tokens": count}

    def summary(self, found: dict[str, Tensor]) -> dict[str, Tensor]:
        return found | {"perplexity": found["loss"].exp()}


def test_validation_logs_means_and_numbers_of_all_batches() -> None:
    model = Measured()
    assert validate(model, [(1.0, 2), (0.5, 1), (0.0, 0)]) == {
        "val/loss": 0.5,
        "val/tokens": 3,
        "val/perplexity": math.exp(0.5),
    }
    assert validate(model, [(4.0, 2)])["val/loss"] == 2  # each from its own start
    logged: dict[str, Tensor] = {}
    model.log_dict = lambda values, **_: logged.update(values)  # type: ignore[method-assign, assignment]
    model.on_validation_epoch_end()
    assert logged["val/tokens"] == 2


def test_sums_are_exact_beyond_single_precision() -> None:
    """float32 values, added in double precision."""
    totals = Totals()
    for value in (0.1, 0.2):
        totals.add({"loss": torch.tensor(value)}, torch.device("cpu"))
    expected = torch.tensor(0.1).double() + torch.tensor(0.2).double()
    assert totals.means(totals.flat()) == {"loss": expected}


def test_sums_are_no_part_of_a_checkpoint() -> None:
    model = Measured()
    validate(model, [(1.0, 2)])
    assert not model.state_dict() and not list(model.parameters())


def test_a_loss_of_terms() -> None:
    sums, counts = torch.tensor([6.0, 4.0]), torch.tensor([3.0, 0.0])
    found = {name: ratio(*pair) for name, pair in term_means(("a", "b"), sums, counts).items()}
    assert found == {"loss_a": 2, "loss_b": 4}
    assert total_loss(found, ("a", "b")) == 6
    assert total_loss(found, ("a", "b"), (1.0, 0.5)) == 4
    with pytest.raises(ValueError, match="shorter"):
        term_means(("a", "b"), torch.ones(1), counts)


def test_ratio_of_nothing() -> None:
    assert (
        ratio(torch.tensor(6.0), torch.tensor(3.0)) == 2
        and ratio(torch.tensor(0.0), torch.tensor(0.0)) == 0
    )


def add_up(rank: int, file: str, out: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)

    def reduce(value: Tensor, reduce_op: str) -> Tensor:
        assert reduce_op == "sum"
        distributed.all_reduce(value)
        return value

    model = Measured()
    model.trainer.strategy = SimpleNamespace(reduce=reduce)  # type: ignore[misc, assignment]
    for batch in range(rank + 1):
        model.validation_step((10.0**rank, batch + 1), batch)
    torch.save(model.validation_metrics(), f"{out}{rank}")
    distributed.destroy_process_group()


@pytest.mark.ddp
def test_sums_add_up_over_processes(tmp_path: Path, preloaded: None) -> None:
    """Process 0 has one batch and process 1 two; both get the sums of all three."""
    program = (
        "import sys; from tests.models.test_measures import add_up; add_up(int(sys.argv[1]),"
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
        found = torch.load(tmp_path / f"sums{rank}", weights_only=True)
        assert (found["val/loss"], found["val/tokens"]) == (21 / 4, 4)
