"""What a run's folder is named for: the science of its config, and no machine setting."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from core.files import write_json
from experiments.tracking import MACHINE, Run, content

CONFIG: dict[str, Any] = {
    "seed_everything": 0,
    "trainer": {"max_steps": 10, "devices": 1, "profiler": None},
    "model": {"class_path": "models.x.X", "init_args": {"lr": 0.1, "head": {"class_path": "Y", "init_args": {"size": 3}}}},
    "data": {"class_path": "datamodules.x.X", "init_args": {"batch_size": 8, "num_workers": 0, "seed": 0}},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """CONFIG with the setting at `path`."""
    config = deepcopy(CONFIG)
    *above, last = path.split(".")
    layer = config
    for key in above:
        layer = layer.setdefault(key, {})
    layer[last] = value
    return config


def folder(config: dict[str, Any]) -> Path:
    return Run("paper", "pretrain", config, 0).folder


@pytest.mark.parametrize("path", sorted(MACHINE))
def test_a_machine_setting_leaves_the_folder(runs: Path, path: str) -> None:
    assert folder(changed(path, "one")) == folder(changed(path, "other"))


@pytest.mark.parametrize("name", sorted({path.rpartition(".")[2] for path in MACHINE}))
@pytest.mark.parametrize("above", ["model.init_args", "model.init_args.head.init_args"])
def test_a_hyperparameter_of_the_same_name_changes_the_folder(runs: Path, above: str, name: str) -> None:
    """A model's own `tasks`, `result`, `profiler` or `paper` is science, whatever the entry calls by that name."""
    assert folder(changed(f"{above}.{name}", 1)) != folder(changed(f"{above}.{name}", 2)) != folder(CONFIG)


def test_settings_in_a_list_are_science() -> None:
    assert content({"trainer": [{"devices": 1}]}) == {"trainer": [{"devices": 1}]}


def test_data_is_its_manifest_wherever_it_is(tmp_path: Path, runs: Path) -> None:
    for name, what in (("a", 1), ("moved", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "manifest.json", {"what": what})
    here, moved, other = (folder(changed("data.init_args.corpus", str(tmp_path / n))) for n in ("a", "moved", "other"))
    assert here == moved != other


def test_the_hash_of_a_config_stays(runs: Path) -> None:
    """Runs on disk are found again: this is the folder's name since the first run."""
    assert folder(CONFIG).parent.name == "8865b20ad908"
