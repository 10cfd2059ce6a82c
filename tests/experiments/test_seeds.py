"""Which seeds of a fine-tuning run at the same time."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.files import InputError
from core.json_files import write_json
from core.tracking import ROOT
from experiments import linkers, seeds
from experiments.machine import SeedTraining
from experiments.seeds import SeedRuns, place_of
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
    fields |= {"training": SeedTraining(at_once=at_once), "devices": devices, "base": Path()}
    stages = [Stage(f"seed {n}", "experiments.finetune", []) for n in range(3)]
    SeedRuns(**fields).run(stages)
    assert groups == wanted


def test_a_number_at_once_below_one() -> None:
    with pytest.raises(InputError, match="AT_ONCE=0: expected a number of at least 1"):
        seeds.train_seeds(SeedTraining(task="cMedQANER", at_once=0))


def test_seeds_take_the_devices_in_turn(tmp_path: Path) -> None:
    encoder = SimpleNamespace(linker=None, option_keys={}, folder="e", load="x")
    fields: dict[str, Any] = dict.fromkeys(SeedRuns.__dataclass_fields__)
    fields |= {"training": SeedTraining(), "definition": SimpleNamespace(name="t", suite="own")}
    fields |= {"config": ROOT / "x.yaml", "folder": tmp_path, "base": tmp_path}
    fields |= {"encoder_shown": "e"}
    fields |= {"encoder": encoder, "own_options": {}, "config_options": {}, "words": []}
    for devices, expected in ((2, ["0", "1", "0", "1"]), (1, ["0"] * 4)):
        runs = SeedRuns(**fields | {"devices": devices})
        stages = [runs.stage(f"seed {n}", tmp_path / f"seed{n}", n, {}, n) for n in range(4)]
        assert [stage.environment for stage in stages] == [
            {"CUDA_VISIBLE_DEVICES": device} for device in expected
        ]
    alone = SeedRuns(**fields | {"devices": 0}).stage("seed 0", tmp_path / "seed0", 0, {}, 0)
    assert alone.environment is None


def test_a_request_has_a_folder_of_its_own(runs: Path) -> None:
    """Named by twelve characters of its digest, which docs and MODEL@RUN names show."""
    place = place_of("cMedQA:clean", "owner/model", {"points": [1]})
    assert place.parent == runs / "finetune" / "cMedQA-clean" / "owner-model" and place.is_dir()
    assert re.fullmatch("[0-9a-f]{12}", place.name)
    assert place == place_of("cMedQA:clean", "owner/model", {"points": [1]})
    assert place != place_of("cMedQA:clean", "owner/model", {"points": [2]})


def test_an_export_is_trained_anew_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[Any] = []

    def keep(some: list[Any], work: Path) -> None:
        stages.extend(some)
        write_json(tmp_path / "result.json", {"export": "there"})

    monkeypatch.setattr(linkers, "run_stages", keep)
    config = ROOT / "experiments" / "sapbert" / "finetune.yaml"
    for fresh in (True, False):
        export = linkers.train_export(
            "title",
            config,
            {"trainer.max_steps": 3},
            tmp_path / "result.json",
            seed=5,
            fresh=fresh,
            args="--x 1",
            machine=None,
        )
        words = stages[-1].words
        assert export == "there"
        assert words[words.index("--seed_everything") + 1] == "5"
        assert words[words.index("--trainer.max_steps") + 1] == "3"
        assert words[-2:] == ["--x", "1"]
        assert (words[-4:-2] == ["--fresh", "true"]) == fresh and ("--fresh" in words) == fresh
