"""What a run's folder is named for: the science of its config, and no machine setting."""

from __future__ import annotations

import contextlib
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from core.files import InputError
from core.json_files import write_json
from experiments.tracking import (
    MACHINE,
    Checkpoints,
    JournalLogger,
    Run,
    StepSeed,
    WholeCheckpoints,
    content,
    flat,
)

CONFIG: dict[str, Any] = {
    "seed_everything": 0,
    "trainer": {"max_steps": 10, "devices": 1, "profiler": None},
    "model": {
        "class_path": "models.x.X",
        "init_args": {"lr": 0.1, "head": {"class_path": "Y", "init_args": {"size": 3}}},
    },
    "data": {
        "class_path": "datamodules.x.X",
        "init_args": {"batch_size": 8, "num_workers": 0, "seed": 0},
    },
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
def test_a_hyperparameter_of_the_same_name_changes_the_folder(
    runs: Path, above: str, name: str
) -> None:
    """A model's own `tasks`, `result`, `profiler` or `paper` is science, whatever the entry calls
    by that name."""
    assert (
        folder(changed(f"{above}.{name}", 1))
        != folder(changed(f"{above}.{name}", 2))
        != folder(CONFIG)
    )


def test_settings_in_a_list_are_science() -> None:
    assert content({"trainer": [{"devices": 1}]}) == {"trainer": [{"devices": 1}]}


def test_data_is_its_manifest_wherever_it_is(tmp_path: Path, runs: Path) -> None:
    for name, what in (("a", 1), ("moved", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "manifest.json", {"what": what})
    here, moved, other = (
        folder(changed("data.init_args.corpus", str(tmp_path / n))) for n in ("a", "moved", "other")
    )
    assert here == moved != other


def test_the_hash_of_a_config_stays(runs: Path) -> None:
    """Runs on disk are found again: this is the folder's name since the first run."""
    assert folder(CONFIG).parent.name == "8865b20ad908"


def test_the_newest_checkpoint_has_the_most_steps(runs: Path) -> None:
    """By number: 1000 is more than 900, whatever the order of the names."""
    run = Run("paper", "pretrain", CONFIG, 0)
    assert run.newest_checkpoint() is None
    for name in ("step=900.ckpt", "step=1000.ckpt", "step=20.ckpt"):
        WholeCheckpoints().save_checkpoint({"weights": torch.arange(3)}, run.checkpoints / name)
    (run.checkpoints / "step=5000.ckpt.partial").touch()
    assert run.newest_checkpoint() == run.checkpoints / "step=1000.ckpt"


def test_a_checkpoint_that_was_cut_is_not_loaded(tmp_path: Path) -> None:
    files = WholeCheckpoints()
    files.save_checkpoint({"weights": torch.arange(3)}, tmp_path / "whole.ckpt")
    assert files.load_checkpoint(tmp_path / "whole.ckpt")["weights"].tolist() == [0, 1, 2]
    content = (tmp_path / "whole.ckpt").read_bytes()
    (tmp_path / "cut.ckpt").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="not a complete checkpoint. Delete it"):
        files.load_checkpoint(tmp_path / "cut.ckpt")


def test_a_resumed_run_continues_its_mlflow_run(runs: Path) -> None:
    ids = []
    for step in range(2):
        run = Run("paper", "pretrain", CONFIG, 0)
        logger = run.logger()
        logger.log_metrics({"train/loss": 1.0}, step)
        run.close()
        ids.append(run.journal.run_id)
    assert ids[0] == ids[1] != "" and run.journal.history("train/loss") == [(0, 1.0), (1, 1.0)]


def test_random_numbers_are_those_of_their_step() -> None:
    """Of the seed, the step, the accumulated batch and the process, and of nothing else."""

    def draw(seed: int, step: int, batch: int, rank: int) -> float:
        trainer: Any = SimpleNamespace(
            global_step=step, accumulate_grad_batches=2, global_rank=rank
        )
        StepSeed(seed).on_train_batch_start(trainer, None, None, batch)  # type: ignore[arg-type]
        return torch.rand(()).item()

    places = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    found = [draw(*place) for place in places]
    assert len(set(found)) == len(places) and [draw(*place) for place in places] == found
    # batches count within their step: a resumed epoch begins anywhere
    assert draw(0, 3, 6, 0) == draw(0, 3, 0, 0)


def test_settings_are_logged_flat_and_empty_ones_not_at_all() -> None:
    assert flat({"a": 1, "b": {"c": None, "d": {"e": 0}}, "f": {}}) == {"a": 1, "b.d.e": 0}


class OneWeight(pl.LightningModule):
    """y = w x, whose loss is recorded at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        loss: torch.Tensor = (self.layer(batch) - batch).square().mean()
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


class KilledBehindSaving(Checkpoints):
    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        super().on_train_batch_end(*args, **kwargs)
        if list(Path(str(self.dirpath)).glob("step=4.ckpt")):
            raise KeyboardInterrupt


@pytest.mark.parametrize("last", [4, 6])
def test_a_checkpoint_is_behind_what_its_step_records(
    tmp_path: Path, runs: Path, last: int
) -> None:
    """Killed as soon as it is written, a run resumes after that step: what the step records must be
    in the journal."""

    def fit(name: str, checkpoints: type[Checkpoints]) -> list[tuple[int, float]]:
        run = Run("paper", "pretrain", {}, 0, str(tmp_path / name))
        pl.seed_everything(0)
        trainer = pl.Trainer(
            max_steps=last,
            log_every_n_steps=1,
            accelerator="cpu",
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=JournalLogger(run.journal),
            plugins=[WholeCheckpoints()],
            callbacks=[
                checkpoints(run.checkpoints, filename="{step}", every_n_train_steps=4, monitor=None)
            ],
        )
        newest = run.newest_checkpoint()
        with contextlib.suppress(SystemExit):  # of Lightning, after Ctrl-C
            trainer.fit(
                OneWeight(),
                DataLoader(torch.ones(last, 1)),
                ckpt_path=str(newest) if newest else None,
                weights_only=True,
            )
        run.close()
        return run.journal.history("train/loss")

    whole = fit("whole", Checkpoints)
    assert [step for step, _ in whole] == list(range(last))
    assert fit("cut", KilledBehindSaving) == whole[:4]
    assert fit("cut", Checkpoints) == whole
