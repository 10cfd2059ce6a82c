"""Which seeds of a fine-tuning run at the same time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.files import InputError
from core.tracking import ROOT
from experiments import seeds
from experiments.machine import SeedTraining
from experiments.seeds import SeedRuns
from experiments.stages import Stage


@pytest.mark.parametrize(
    ("at_once", "devices", "wanted"),
    [(None, 1, [1, 1, 1]), (2, 1, [2, 1]), (3, 0, [3]), (1, 2, [1, 1, 1]), (None, 2, [2, 1])],
)
def test_as_many_seeds_as_asked_for_train_at_once(
    at_once: int | None, devices: int, wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    monkeypatch.setattr(seeds, "run_stages", lambda group, *rest: groups.append(len(group)))
    fields: dict[str, Any] = dict.fromkeys(SeedRuns.__dataclass_fields__)
    fields |= {"asked": SeedTraining(at_once=at_once), "devices": devices, "base": Path()}
    stages = [Stage(f"seed {n}", "experiments.finetune", []) for n in range(3)]
    SeedRuns(**fields).run(stages)
    assert groups == wanted


def test_a_number_at_once_below_one() -> None:
    with pytest.raises(InputError, match="AT_ONCE=0: expected a number of at least 1"):
        seeds.train_seeds(SeedTraining(task="cMedQANER", at_once=0))


def test_seeds_take_the_devices_in_turn(tmp_path: Path) -> None:
    encoder = SimpleNamespace(linker=None, option_keys={}, folder="e", load="x")
    fields: dict[str, Any] = dict.fromkeys(SeedRuns.__dataclass_fields__)
    fields |= {"asked": SeedTraining(), "definition": SimpleNamespace(name="t", suite="own")}
    fields |= {"config": ROOT / "x.yaml", "folder": tmp_path, "base": tmp_path, "shown": "e"}
    fields |= {"encoder": encoder, "own": {}, "given": {}, "words": []}
    for devices, expected in ((2, ["0", "1", "0", "1"]), (1, ["0"] * 4)):
        runs = SeedRuns(**fields | {"devices": devices})
        stages = [runs.stage(f"seed {n}", tmp_path / f"seed{n}", n, {}, n) for n in range(4)]
        assert [stage.environment for stage in stages] == [
            {"CUDA_VISIBLE_DEVICES": device} for device in expected
        ]
    alone = SeedRuns(**fields | {"devices": 0}).stage("seed 0", tmp_path / "seed0", 0, {}, 0)
    assert alone.environment is None
