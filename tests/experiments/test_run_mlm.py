"""An initial checkpoint through the training entry: one step of its YAML, and a killed run that
resumes exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.json_files import read_json
from core.tracking import newest_export
from models.transformer_files import load_bert
from tests.experiments.callbacks import BLANK
from tests.fakes.mlm import Folders

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]


def start(fake: Folders, result: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments.run"]
    for config in ("zh/pretrain", "common/tiny"):
        command += ["--config", f"experiments/{config}.yaml"]
    settings = {
        "data.init_args.tokenizer": fake.vocabulary,
        "data.init_args.corpus": fake.corpus,
        "result": result,
        "data.init_args.batch_size": 16,
        "model.init_args.layers": 1,
        "model.init_args.hidden": 32,
        "model.init_args.intermediate": 32,
        "model.init_args.warmup_steps": 1,
        "model.init_args.lr": 0.003,
    }
    for key, value in settings.items():
        command += [f"--{key}", str(value)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *extra], capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )


def test_one_step_of_the_config(fake_mlm: Folders, tmp_path: Path, runs: Path) -> None:
    done = start(fake_mlm, tmp_path / "a.json", BLANK)
    assert done.returncode == 0, done.stdout + done.stderr
    result = read_json(tmp_path / "a.json")
    assert (
        result["steps"] == 1
        and {"val/loss", "val/perplexity", "val/accuracy"} <= result["end"].keys()
    )
    assert result["start"]["val/loss"] == pytest.approx(10, abs=0.5)  # log of the vocabulary's size
    assert newest_export("zh", "pretrain") == Path(result["export"]) and load_bert(result["export"])


@pytest.mark.slow  # the mechanism is test_run.py's; its own batches are resumed nightly
def test_a_killed_run_resumes_exactly(fake_mlm: Folders, tmp_path: Path, runs: Path) -> None:
    long = ("--trainer.max_steps", "9", "--checkpoint_every", "3")
    whole = start(fake_mlm, tmp_path / "a.json", *long, "--run_folder", str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stdout + whole.stderr
    command = (
        *long,
        "--run_folder",
        str(tmp_path / "cut"),
        "--trainer.callbacks+=tests.experiments.callbacks.KillAt",
        "--trainer.callbacks.batches=7",
        f"--trainer.callbacks.marker={tmp_path / 'killed'}",
    )
    assert start(fake_mlm, tmp_path / "b.json", *command).returncode == -9
    again = start(fake_mlm, tmp_path / "b.json", *command)
    assert again.returncode == 0 and "resuming from" in again.stderr, again.stdout + again.stderr
    for key in ("start", "end"):
        assert read_json(tmp_path / "b.json")[key] == pytest.approx(
            read_json(tmp_path / "a.json")[key], rel=1e-6
        )
    assert "already finished" in start(fake_mlm, tmp_path / "b.json", *command).stderr
