"""Training under torchrun, and under SLURM's srun where a SLURM answers: uneven last batches, a
killed process, the job again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest

from tests.experiments.test_run import ROOT, finished, start, words
from tests.fakes.kebiolm import Folders

# more batches in validation than two processes can share evenly
HELD_OUT = ("--data.init_args.eval_batch_size", "3")


def slurm_answers() -> bool:
    try:
        return not subprocess.run(["sinfo"], capture_output=True, timeout=20).returncode
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


LAUNCHERS = {
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-m"],
    "srun": [
        "srun",
        "--nodes",
        "1",
        "--ntasks-per-node",
        "2",
        "--overcommit",
        "--kill-on-bad-exit",
        sys.executable,
        "-m",
    ],
}


@pytest.mark.slow
@pytest.mark.ddp
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_give_what_one_does_and_a_killed_job_resumes(
    fake_kebiolm: Folders, tmp_path: Path, runs: Path, launcher: str
) -> None:
    if launcher == "srun" and not slurm_answers():
        pytest.skip("no SLURM answers here")
    long = (
        "--trainer.max_steps",
        "17",
        "--checkpoint_every",
        "4",
        "--model.init_args.dropout",
        "0",
        *HELD_OUT,
    )
    two = (*long, "--trainer.devices", "2", "--trainer.strategy", "ddp")

    def job(name: str, *more: str) -> subprocess.CompletedProcess[str]:
        own = words(fake_kebiolm, tmp_path / f"{name}.json", ("kebiolm/pretrain", "common/tiny"))
        command = [
            *LAUNCHERS[launcher],
            "experiments.run",
            *own,
            *two,
            "--run_folder",
            str(tmp_path / name),
            *more,
        ]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
        )

    alone = finished(start(fake_kebiolm, tmp_path / "alone.json", *long), tmp_path / "alone.json")
    whole = finished(job("whole"), tmp_path / "whole.json")
    assert whole["start"] == pytest.approx(alone["start"], abs=1e-6)
    losses = {name: value for name, value in alone["end"].items() if "loss" in name}
    assert losses and {name: whole["end"][name] for name in losses} == pytest.approx(
        losses, abs=1e-3
    )
    kill = (
        "--trainer.callbacks+=tests.experiments.callbacks.KillAt",
        "--trainer.callbacks.batches=11",
        f"--trainer.callbacks.marker={tmp_path / 'killed'}",
        "--trainer.callbacks.rank=1",
    )
    assert job("cut", *kill).returncode != 0
    assert (tmp_path / "killed").exists() and not (tmp_path / "cut.json").exists()
    resumed = finished(job("cut", *kill), tmp_path / "cut.json")
    assert resumed["steps"] == 17 and resumed["end"] == pytest.approx(whole["end"], abs=1e-6)
    names = mlflow.search_runs(experiment_names=["kebiolm"])["run_id"]
    assert len(names) == len(set(names)) == 3  # alone, whole, cut
