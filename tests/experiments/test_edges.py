"""Numbers that are shown or kept and that no training compares: estimates, costs of steps, the
heads that a model's files name."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from datamodules.tasks import Tagged
from datamodules.tasks.selection import Selection
from experiments import meter, seeds
from experiments.finetune import write_results
from experiments.meter import Meter, product_peak, real_lengths, states_and_mask
from experiments.names import PLAIN, architecture


@pytest.mark.parametrize(("language", "tokens"), [("zh", 4000), ("en", 1000)])
def test_an_estimate_of_the_time(
    monkeypatch: pytest.MonkeyPatch, language: str, tokens: int
) -> None:
    """6 FLOP a parameter and token, 2 of those that are only read, at half of the rate of a
    product: five of 2 * 1024^3 in a second."""
    clock = itertools.count()
    monkeypatch.setattr(seeds.time, "perf_counter", lambda: float(next(clock)))
    examples = [Tagged(str(n), str(n), "x" * 1000, []) for n in range(4)]
    parts = {"train": examples, "select": [*examples, *examples, *examples]}
    selection = Selection(parts, "test", "dev")
    rate = 5 * 2 * 1024**3
    work = 6 * tokens + 2 * 3 * tokens
    parameters = round(7 * 60 * 0.5 * rate / (work * 3 * 2))  # of 7 minutes
    assert seeds.estimate(selection, language, 3, 2, parameters, "cpu") == (
        f"4 training examples, about {tokens:,} tokens; 3 epochs x 2 runs: about 7 min here"
    )
    without_layers = seeds.estimate(selection, language, 3, 2, 0, "cpu")
    assert without_layers == f"4 training examples, about {tokens:,} tokens; 3 epochs x 2 runs"


def test_the_peak_is_that_of_the_fastest_of_the_products(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.0, 0.4, 0.5, 0.5, 0.6, 0.7, 0.7, 0.9, 1.5])
    monkeypatch.setattr(meter.time, "perf_counter", lambda: next(times))
    found = product_peak(torch.device("cpu"), torch.float32, 8, seconds=1.0)
    assert found == pytest.approx(2 * 8**3 / 0.1)
    assert list(times) == []


def test_the_side_of_a_product_is_the_device_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "SIDE", 4)
    monkeypatch.setattr(meter, "GPU_SIDE", 10**6)
    assert 0 < product_peak(torch.device("cpu"), torch.float32, seconds=0.0) < math.inf


def test_tokens_that_are_no_padding() -> None:
    assert real_lengths(2, 7, None).tolist() == [7, 7]
    assert real_lengths(2, 3, torch.tensor([[1, 1, 0], [1, 0, 0]])).tolist() == [2, 1]
    read = torch.tensor([[[[True, False, False], [True, True, False]]]])
    assert real_lengths(3, 3, read).tolist() == [2, 2, 2]


def test_a_layer_s_states_and_mask_by_place_and_by_name() -> None:
    states, mask = torch.ones(1), torch.zeros(1)
    assert states_and_mask((states, mask), {}) == (states, mask)
    assert states_and_mask((states,), {"attention_mask": mask}) == (states, mask)
    named = {"hidden_states": states, "attention_mask": mask}
    assert states_and_mask((), named) == (states, mask)
    assert states_and_mask((states,), {})[1] is None


@pytest.mark.parametrize(
    ("marks", "seconds", "tokens", "steps"),
    [
        ([(0.0, 0.0, 0.0, 0.0), (8.0, 10.0, 100.0, 40.0)], 8.0, 10.0, 1),
        # the first of several is left out
        (
            [
                (0.0, 0.0, 0.0, 0.0),
                (8.0, 10.0, 100.0, 40.0),
                (10.0, 30.0, 300.0, 120.0),
                (14.0, 60.0, 600.0, 240.0),
            ],
            3.0,
            25.0,
            3,
        ),
    ],
)
def test_costs_of_a_step_of_all_processes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    marks: list[tuple[float, ...]],
    seconds: float,
    tokens: float,
    steps: int,
) -> None:
    monkeypatch.setattr(meter, "product_peak", lambda *_: 1000.0)
    made = Meter(str(tmp_path / "costs.json"), 8)
    made.hooks, made.marks = [], marks  # type: ignore[assignment]
    made.sizes, made.layers, made.hidden = {0: 5, 1: 7}, 2, 4
    trainer = SimpleNamespace(
        strategy=SimpleNamespace(root_device=torch.device("cpu")),
        precision="32-true",
        is_global_zero=True,
        world_size=2,
        datamodule=SimpleNamespace(batch_size=3, steps_per_epoch=11),
    )
    made.on_train_end(trainer, None)  # type: ignore[arg-type]
    costs = json.loads((tmp_path / "costs.json").read_text())
    assert (costs["seconds"], costs["tokens"], costs["steps"]) == (seconds, 2 * tokens, steps)
    assert costs["flop"] == 2 * 10 * tokens and costs["peak"] == 2000
    assert costs["length"] == 4 and costs["parameters"] == 12 and costs["examples"] == 33


@pytest.mark.parametrize(
    ("load", "paper", "more", "head"),
    [
        (PLAIN, None, None, "token"),
        ("kebiolm.export", None, None, ""),
        (PLAIN, "kebiolm", None, ""),
        (PLAIN, None, "manifest.json", ""),
        (PLAIN, None, "modules.json", ""),
    ],
)
def test_the_head_that_a_plain_model_names(
    tmp_path: Path, load: str, paper: str | None, more: str | None, head: str
) -> None:
    config = {"architectures": ["BertForTokenClassification"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if more:
        (tmp_path / more).write_text("{}")
    chosen: Any = SimpleNamespace(load=load, paper=paper, folder=str(tmp_path))
    assert architecture(chosen) == head


def test_predictions_are_written_as_their_text_is(tmp_path: Path) -> None:
    result = {
        "predictions": [{"text": "糖尿病"}],
        "tallies": {"a": torch.ones(1, 3).numpy()},
        "confusion": {"甲": {"乙": 2}},
    }
    write_results(tmp_path, result)
    assert (tmp_path / "predictions.jsonl").read_text("utf-8") == '{"text": "糖尿病"}\n'
    assert "甲" in (tmp_path / "confusion.csv").read_text("utf-8")
