"""SapBERT through the training entry: a step of each YAML, a killed run, and two processes that
mine as one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.json_files import read_json
from experiments.names import encoder
from models.sapbert import SapBERTEncoder
from tests.fakes.sapbert import Folders

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]


def start(
    fake: Folders, result: Path, *extra: str, stem: str = "pretrain"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments.run"]
    for config in dict.fromkeys(("sapbert/pretrain", f"sapbert/{stem}", "common/tiny")):
        command += ["--config", f"experiments/{config}.yaml"]
    settings = {
        "data.init_args.tokenizer": fake.bert,
        "model.init_args.encoder": fake.bert,
        "result": result,
        "data.init_args.pairs": fake.pairs,
        "data.init_args.batch_size": 16,
        "model.init_args.lr": 0.001,
    }
    for key, value in settings.items():
        command += [f"--{key}", str(value)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *extra], capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )


def test_one_step_of_every_config(fake_sapbert: Folders, tmp_path: Path, runs: Path) -> None:
    stems = sorted(p.stem for p in (ROOT / "experiments" / "sapbert").glob("pretrain*.yaml"))
    assert "pretrain" in stems and len(stems) == 6
    for stem in stems:
        done = start(fake_sapbert, tmp_path / f"{stem}.json", stem=stem)
        assert done.returncode == 0, done.stdout + done.stderr
        result = read_json(tmp_path / f"{stem}.json")
        assert (
            result["steps"] == 1
            and {"val/loss", "val/acc1", "val/queries", "val/names"} <= result["end"].keys()
        )
        assert all(v == v for v in result["end"].values())
        assert Path(result["folder"]).relative_to(runs).parts[:2] == ("sapbert", stem)
    found = encoder("sapbert")  # the bare name means the run of pretrain.yaml
    assert (
        "/sapbert/pretrain/" in found.folder
        and SapBERTEncoder.from_export(found.folder).pooling == "cls"
    )


@pytest.mark.slow  # the mechanism is test_run.py's; its own batches are resumed nightly
def test_a_killed_run_resumes_exactly(fake_sapbert: Folders, tmp_path: Path, runs: Path) -> None:
    # crosses an epoch
    long = ("--trainer.max_steps", "20", "--checkpoint_every", "4", "--trainer.max_epochs", "-1")
    whole = start(fake_sapbert, tmp_path / "a.json", *long, "--run_folder", str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stdout + whole.stderr
    command = (
        *long,
        "--run_folder",
        str(tmp_path / "cut"),
        "--trainer.callbacks+=tests.experiments.callbacks.KillAt",
        "--trainer.callbacks.batches=10",
        f"--trainer.callbacks.marker={tmp_path / 'killed'}",
    )
    assert start(fake_sapbert, tmp_path / "b.json", *command).returncode == -9
    again = start(fake_sapbert, tmp_path / "b.json", *command)
    assert again.returncode == 0 and "resuming from" in again.stderr, again.stdout + again.stderr
    for key in ("start", "end"):
        assert read_json(tmp_path / "b.json")[key] == pytest.approx(
            read_json(tmp_path / "a.json")[key], rel=1e-6
        )
    assert (
        read_json(tmp_path / "a.json")["end"]["val/loss"]
        < read_json(tmp_path / "a.json")["start"]["val/loss"]
    )


@pytest.mark.ddp
def test_two_processes_mine_and_learn_as_one(
    fake_sapbert: Folders, tmp_path: Path, runs: Path
) -> None:
    """D5: as many pairs a name, the same loss, and the same gradients to 1e-6."""
    saved = {}
    for name, extra in {
        "one": (),
        "two": ("--trainer.devices", "2", "--trainer.strategy", "ddp"),
    }.items():
        done = start(
            fake_sapbert,
            tmp_path / f"{name}.json",
            "--run_folder",
            str(tmp_path / name),
            *extra,
            "--model.init_args.dropout",
            "0",
            "--trainer.callbacks+=tests.experiments.callbacks.SaveGradients",
            f"--trainer.callbacks.file={tmp_path / name}.pt",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        saved[name] = torch.load(tmp_path / f"{name}.pt", weights_only=True)
    one, two = saved["one"], saved["two"]
    assert len(one["gradients"]) > 20 and one["losses"]["train/negatives"] > 0
    for key in ("train/positives", "train/negatives"):
        assert two["losses"][key] == one["losses"][key]
    torch.testing.assert_close(
        two["losses"]["train/loss"], one["losses"]["train/loss"], atol=1e-6, rtol=0
    )
    for name, gradient in one["gradients"].items():
        torch.testing.assert_close(
            two["gradients"][name], gradient, atol=1e-6, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert read_json(tmp_path / "two.json")["end"] == pytest.approx(
        read_json(tmp_path / "one.json")["end"], abs=1e-5
    )


def test_accumulated_batches_are_refused(fake_sapbert: Folders, tmp_path: Path, runs: Path) -> None:
    done = start(fake_sapbert, tmp_path / "x.json", "--trainer.accumulate_grad_batches", "2")
    assert (
        done.returncode == 2
        and "expected 1, because pairs are mined within one batch" in done.stderr
    )
    assert "Traceback" not in done.stderr
