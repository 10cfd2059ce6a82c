"""The training entry: resuming, sharing work over processes, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
import yaml
from pytorch_lightning.plugins.environments import SLURMEnvironment

from core.files import InputError
from core.json_files import read_json
from experiments.run import CLI, build_cli, train
from experiments.tracking import first_process, started_from_outside
from models.kebiolm import KeBioLMEncoder
from tests.experiments.callbacks import BLANK
from tests.fakes.kebiolm import Folders
from tests.fakes.leftovers import left_by

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]


def words(fake: Folders, result: Path, configs: tuple[str, ...]) -> list[str]:
    """Arguments of experiments.run."""
    command = []
    for config in configs:
        command += ["--config", f"experiments/{config}.yaml"]
    settings: dict[str, Any] = {
        "model.init_args.encoder": fake.bert,
        "data.init_args.tokenizer": fake.bert,
        "model.init_args.entities": fake.entities,
        "data.init_args.entities": fake.entities,
        "data.init_args.corpus": fake.corpus,
        "data.init_args.graph": fake.graph,
        "data.init_args.batch_size": 8,
        "data.init_args.max_length": 128,
        "model.init_args.warmup_steps": 2,
        "model.init_args.lr": 0.001,
        "model.init_args.candidates": 7,
        "result": result,
    }
    for key, value in settings.items():
        command += [f"--{key}", str(value)]
    return command


def start(
    fake: Folders,
    result: Path,
    *extra: str,
    configs: tuple[str, ...] = ("kebiolm/pretrain", "common/tiny"),
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.run", *words(fake, result, configs), *extra],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def finished(done: subprocess.CompletedProcess[str], result: Path) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    return read_json(result)


def kill_at(batches: int, marker: Path) -> tuple[str, ...]:
    return (
        "--trainer.callbacks+=tests.experiments.callbacks.KillAt",
        f"--trainer.callbacks.batches={batches}",
        f"--trainer.callbacks.marker={marker}",
    )


@pytest.mark.parametrize(
    "extra", [(), ("--trainer.accumulate_grad_batches", "2")], ids=["plain", "accumulated"]
)
def test_a_killed_run_resumes_exactly(
    fake_kebiolm: Folders, tmp_path: Path, runs: Path, extra: tuple[str, ...]
) -> None:
    """kill -9 in mid-epoch, the same command again: final metrics as if nothing had happened, in
    the same MLflow run."""
    # 13 steps are an epoch: it crosses one
    long = ("--trainer.max_steps", "17", "--checkpoint_every", "4", *extra)
    whole = finished(
        start(fake_kebiolm, tmp_path / "a.json", *long, "--run_folder", str(tmp_path / "whole")),
        tmp_path / "a.json",
    )
    command = (
        *long,
        "--run_folder",
        str(tmp_path / "cut"),
        *kill_at(22 if extra else 11, tmp_path / "killed"),
    )
    killed = start(fake_kebiolm, tmp_path / "b.json", *command)
    assert (
        killed.returncode == -9
        and (tmp_path / "killed").exists()
        and not (tmp_path / "b.json").exists()
    )
    first_run = read_json(tmp_path / "cut" / "mlflow.json")["run_id"]
    assert sorted(p.name for p in (tmp_path / "cut" / "checkpoints").glob("*")) == [
        "step=4.ckpt",
        "step=8.ckpt",
    ]
    if extra:  # the newest one damaged: the one before leads to the same end
        flip(tmp_path / "cut" / "checkpoints" / "step=8.ckpt")
    again = start(fake_kebiolm, tmp_path / "b.json", *command)
    resumed = finished(again, tmp_path / "b.json")
    assert again.stderr.count(
        "step=8.ckpt: damaged; training resumes from the checkpoint before it"
    ) == bool(extra)
    assert (
        f"step={4 if extra else 8}.ckpt"
        in again.stderr.partition("resuming from /")[2].partition("\n")[0]
    )
    assert resumed["mlflow_run"] == first_run and resumed["steps"] == 17
    for key in ("start", "end"):
        assert resumed[key] == pytest.approx(whole[key], abs=1e-6)
    assert whole["end"]["val/loss"] < whole["start"]["val/loss"]
    third = start(fake_kebiolm, tmp_path / "c.json", *command)
    assert (
        "already finished" in third.stderr
        and finished(third, tmp_path / "c.json")["end"] == resumed["end"]
    )


def gradients(fake: Folders, folder: Path, name: str, *extra: str) -> dict[str, Any]:
    file = folder / f"{name}.pt"
    done = start(
        fake,
        folder / f"{name}.json",
        "--run_folder",
        str(folder / name),
        "--model.init_args.dropout",
        "0",
        *extra,
        "--trainer.callbacks+=tests.experiments.callbacks.SaveGradients",
        f"--trainer.callbacks.file={file}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    saved: dict[str, Any] = torch.load(file, weights_only=True)
    return saved


@pytest.mark.parametrize(
    ("environment", "first", "outside"),
    [
        ({}, True, False),
        ({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}, True, True),
        # torchrun's second machine
        ({"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}, False, True),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, True, False),
        ({"LOCAL_RANK": "1"}, False, False),  # started by Lightning
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False, False),
        # the same in a SLURM job
        ({"LOCAL_RANK": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, False, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16"}, True, True),
        ({"SLURM_PROCID": "8", "SLURM_NTASKS": "16", "SLURM_LOCALID": "0"}, False, True),
    ],
)
def test_one_process_is_the_first_whoever_starts_them(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], first: bool, outside: bool
) -> None:
    for name in (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "NODE_RANK",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_LOCALID",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (first_process(), started_from_outside()) == (first, outside)


@pytest.mark.ddp
def test_torchrun_trains_one_run(fake_kebiolm: Folders, tmp_path: Path, runs: Path) -> None:
    """Two processes that torchrun starts: one run, one MLflow run, one export; --fresh is
    refused."""
    two = (
        "--trainer.devices",
        "2",
        "--trainer.strategy",
        "ddp",
        "--run_folder",
        str(tmp_path / "run"),
    )
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "-m",
        "experiments.run",
    ]

    def torchrun(*more: str) -> subprocess.CompletedProcess[str]:
        own = [
            *command,
            *words(fake_kebiolm, tmp_path / "a.json", ("kebiolm/pretrain", "common/tiny")),
            *two,
            *more,
        ]
        return subprocess.run(own, cwd=ROOT, capture_output=True, text=True)

    result = finished(torchrun(), tmp_path / "a.json")
    assert result["steps"] == 1 and (tmp_path / "run" / "export" / "README.md").is_file()
    assert len(mlflow.search_runs(experiment_names=["kebiolm"])) == 1
    refused = torchrun("--fresh", "true")
    assert refused.returncode != 0 and "--fresh under torchrun or srun" in refused.stderr
    assert (tmp_path / "run" / "finished.json").is_file()


@pytest.mark.ddp
def test_processes_and_accumulation_give_the_single_process_gradients(
    fake_kebiolm: Folders, tmp_path: Path, runs: Path
) -> None:
    """Two gloo processes, four accumulated batches, and both: the loss and gradients of one
    process, to 1e-4."""
    two = ("--trainer.devices", "2", "--trainer.strategy", "ddp")
    alone = gradients(fake_kebiolm, tmp_path, "alone")
    assert len(alone["gradients"]) > 50 and all(
        g.abs().sum() > 0 for n, g in alone["gradients"].items() if "key.bias" not in n
    )
    for name, extra in {
        "two": two,
        "four": ("--trainer.accumulate_grad_batches", "4"),
        "both": (*two, "--trainer.accumulate_grad_batches", "2"),
    }.items():
        shared = gradients(fake_kebiolm, tmp_path, name, *extra)
        assert shared["losses"].keys() == alone["losses"].keys()
        for key, loss in alone["losses"].items():
            torch.testing.assert_close(
                shared["losses"][key],
                loss,
                atol=1e-4,
                rtol=1e-4,
                msg=lambda m, k=key, n=name: f"{n} {k}: {m}",
            )
        for key, gradient in alone["gradients"].items():
            torch.testing.assert_close(
                shared["gradients"][key],
                gradient,
                atol=1e-4,
                rtol=1e-3,
                msg=lambda m, k=key, n=name: f"{n} {k}: {m}",
            )


def test_one_step_of_every_config(
    fake_kebiolm: Folders, tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pretrain YAML of the papers, laid over its own base, makes one finite step on the CPU
    with fake data."""
    configs = sorted(p.stem for p in (ROOT / "experiments" / "kebiolm").glob("pretrain*.yaml"))
    assert "pretrain" in configs and len(configs) > 1
    for stem in configs:
        layers = (
            "kebiolm/pretrain",
            *([f"kebiolm/{stem}"] if stem != "pretrain" else []),
            "common/tiny",
        )
        monkeypatch.chdir(ROOT)
        # as on a GPU
        precision = (
            ["--trainer.precision", "bf16-mixed"] if stem in ("pretrain_l4", "pretrain_mlm") else []
        )
        monkeypatch.setattr(
            sys,
            "argv",
            ["run", *words(fake_kebiolm, tmp_path / f"{stem}.json", layers), BLANK, *precision],
        )
        result = train(build_cli(CLI))
        assert result["steps"] == 1 and all(v == v for v in result["end"].values())
        folder = Path(result["folder"])
        assert folder.relative_to(runs).parts[:2] == ("kebiolm", stem) and folder.name == "seed0"
        assert (folder / "export" / "model.safetensors").is_file() and (
            folder / "export" / "entities.txt"
        ).is_file()
        assert result["mlflow_run"] in (folder / "export" / "README.md").read_text()
        run = mlflow.get_run(result["mlflow_run"])
        scored = "val/loss_mlm" if stem == "pretrain_mlm" else "val/linking_acc1"
        assert run.data.metrics[scored] == pytest.approx(result["end"][scored])
        assert {"commit", "torch", "data.corpus", "data.entities"} <= run.data.tags.keys()
        assert {
            "train/loss",
            "train/loss_mlm",
            "train/loss_ed",
            "train/loss_el",
        } <= run.data.metrics.keys()
        # of the fake's 3 layers the same share as of 12
        made = KeBioLMEncoder.from_export(folder / "export")
        assert made.text_layers == {"pretrain_l4": 1, "pretrain_l12": 3}.get(stem, 2)
        assert made.max_mentions == (0 if stem == "pretrain_mlm" else 50)
        assert (
            yaml.safe_load((folder / "config.yaml").read_text())["model"]["class_path"]
            == "models.kebiolm.KeBioLM"
        )


def test_a_second_process_is_refused(fake_kebiolm: Folders, tmp_path: Path, runs: Path) -> None:
    import fcntl

    (tmp_path / "r").mkdir()
    with open(tmp_path / "r" / "lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        done = start(fake_kebiolm, tmp_path / "x.json", "--run_folder", str(tmp_path / "r"))
    assert (
        done.returncode == 2
        and "another process is training here" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_a_checkpoint_that_is_half_a_file_is_reported_and_training_begins_again(
    fake_kebiolm: Folders, tmp_path: Path, runs: Path
) -> None:
    (tmp_path / "r" / "checkpoints").mkdir(parents=True)
    (tmp_path / "r" / "checkpoints" / "step=5.ckpt").write_bytes(b"half a file")
    done = start(fake_kebiolm, tmp_path / "x.json", "--run_folder", str(tmp_path / "r"))
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert done.stderr.count("step=5.ckpt: damaged; training resumes") == 1
    assert "resuming" not in done.stderr and finished(done, tmp_path / "x.json")["steps"] > 0


def test_bad_encoder_is_one_clear_error(fake_kebiolm: Folders, tmp_path: Path, runs: Path) -> None:
    done = start(fake_kebiolm, tmp_path / "x.json", "--model.init_args.encoder", str(tmp_path))
    assert (
        done.returncode == 2
        and "neither a folder with config.json" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_a_full_disk_loses_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.tracking import WholeCheckpoints

    io, path = WholeCheckpoints(), tmp_path / "step=1.ckpt"
    io.save_checkpoint({"weights": torch.ones(3)}, path)

    def full(value: Any, handle: Any) -> None:
        handle.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(InputError, match=r"step=1\.ckpt: the disk is full"):
        io.save_checkpoint({"weights": torch.zeros(3)}, path)
    assert io.load_checkpoint(path)["weights"].sum() == 3 and [
        p.name for p in tmp_path.iterdir()
    ] == ["step=1.ckpt"]


class Runs:
    """Says that it ran when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch ran",)


def test_loading_a_checkpoint_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.tracking import WholeCheckpoints

    monkeypatch.chdir(tmp_path)
    torch.save({"weights": Runs()}, tmp_path / "step=1.ckpt")
    with pytest.raises(InputError, match="holds more than tensors and plain values"):
        WholeCheckpoints().load_checkpoint(tmp_path / "step=1.ckpt")
    assert not (tmp_path / "ran").exists()


def test_damage_anywhere_in_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    """64 bytes flipped in the tensors, in the names or in the archive's own tables."""
    from experiments.tracking import WholeCheckpoints, whole

    path = tmp_path / "step=8.ckpt"
    WholeCheckpoints().save_checkpoint(
        {"state_dict": {"w": torch.randn(300, 100)}, "step": 8}, path
    )
    good = path.read_bytes()
    assert whole(path)
    rng = np.random.default_rng(0)
    for start in [
        *rng.integers(0, len(good) - 64, 40).tolist(),
        0,
        len(good) - 64,
        len(good) - 300,
    ]:
        path.write_bytes(
            good[:start] + bytes(b ^ 0xFF for b in good[start : start + 64]) + good[start + 64 :]
        )
        try:
            loaded = WholeCheckpoints().load_checkpoint(path)
        except InputError:
            continue
        path.write_bytes(good)  # padding between records may change: what is loaded may not
        assert torch.equal(
            loaded["state_dict"]["w"], WholeCheckpoints().load_checkpoint(path)["state_dict"]["w"]
        ), start
    path.write_bytes(good[:1000])
    assert not whole(path) and not whole(tmp_path / "none.ckpt")


def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from experiments.tracking import Run, WholeCheckpoints

    io, run = WholeCheckpoints(), Run("paper", "pretrain", {}, 0, str(tmp_path / "r"))
    for step in (4, 8, 12):
        io.save_checkpoint(
            {"w": torch.full((100,), float(step))}, run.checkpoints / f"step={step}.ckpt"
        )
        if step > 4:
            io.remove_checkpoint(run.checkpoints / f"step={step - 4}.ckpt")  # as Lightning does
    names = lambda: sorted(p.name for p in run.checkpoints.iterdir())  # noqa: E731
    assert (
        names() == ["step=12.ckpt", "step=8.ckpt"]
        and run.newest_checkpoint() == run.checkpoints / "step=12.ckpt"
    )
    assert not caplog.records
    flip(run.checkpoints / "step=12.ckpt")
    assert run.newest_checkpoint() == run.checkpoints / "step=8.ckpt"
    assert [r.message for r in caplog.records] == [
        f"{run.checkpoints}/step=12.ckpt: damaged; training resumes from the checkpoint before it,"
        " or from the start"
    ]
    flip(run.checkpoints / "step=8.ckpt")
    assert run.newest_checkpoint() is None


def flip(path: Path, count: int = 64) -> None:
    """Flip bytes in the middle of a file."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + count] = bytes(b ^ 0xFF for b in content[middle : middle + count])
    path.write_bytes(content)


def test_what_a_killed_process_left_half_written_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of a process that runs, or of another machine that shares the folder."""
    from core import files
    from experiments.tracking import Run

    folder = tmp_path / "r" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "step=4.ckpt").touch()
    files._target(folder / "step=8.ckpt").touch()  # of this process
    running = next(folder.glob("step=8*"))
    left_by(folder / "step=12.ckpt").touch()
    (folder / "export").mkdir()
    left_by(folder / "export", kind=".old").mkdir()  # which the one above has replaced
    with monkeypatch.context() as other:
        other.setattr(files, "_machine", lambda: "elsewhere-1234abcd")
        left_by(folder / "step=12.ckpt").touch()
    elsewhere = next(folder.glob("*elsewhere*"))
    run = Run("paper", "pretrain", {}, 0, str(tmp_path / "r"))
    run.lock()
    assert {p for p in run.checkpoints.iterdir()} == {
        folder / "step=4.ckpt",
        folder / "export",
        running,
        elsewhere,
    }


def test_killed_behind_its_last_checkpoint_a_run_scores_under_the_same_step(
    fake_kebiolm: Folders, tmp_path: Path, runs: Path
) -> None:
    """What was not there yet is taken away: the scores at the end, and what came after them."""
    folder = tmp_path / "run"
    command = ("--trainer.max_steps", "4", "--checkpoint_every", "4", "--run_folder", str(folder))
    journal = folder / "journal.jsonl"

    def recorded() -> dict[tuple[str, int], float]:
        lines = map(json.loads, journal.read_text().splitlines())
        return {(line["metric"], line["step"]): line["value"] for line in lines if "metric" in line}

    finished(start(fake_kebiolm, tmp_path / "a.json", *command), tmp_path / "a.json")
    before, lines = recorded(), journal.read_text().splitlines(True)
    assert (
        ("val/loss", 0) in before
        and ("val/loss", 4) in before
        and (folder / "checkpoints" / "step=4.ckpt").is_file()
    )
    first = next(
        i for i, line in enumerate(lines) if '"val/' in line and json.loads(line)["step"] == 4
    )
    journal.write_text("".join(lines[:first]))
    shutil.rmtree(folder / "export")
    for name in ("end.json", "finished.json", "mlflow.json"):
        (folder / name).unlink()
    finished(start(fake_kebiolm, tmp_path / "b.json", *command), tmp_path / "b.json")
    assert recorded() == before and ("epoch", 4) not in before


def test_a_job_of_slurm_is_not_requeued_by_lightning(
    fake_kebiolm: Folders, tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning's checkpoint for it would be in the working directory, and the next run that
    starts there would resume from it."""
    job = {"NTASKS": "1", "JOB_NAME": "job", "JOB_ID": "7", "PROCID": "0", "LOCALID": "0"}
    for name, value in (job | {"NODEID": "0", "NODELIST": "localhost"}).items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    given = words(fake_kebiolm, tmp_path / "result.json", ("kebiolm/pretrain", "common/tiny"))
    monkeypatch.setattr(sys, "argv", ["run", *given])
    monkeypatch.chdir(ROOT)
    cli = build_cli(CLI)
    cli.run.close()
    trainer = cli.trainer
    environment = trainer._accelerator_connector.cluster_environment
    assert isinstance(environment, SLURMEnvironment) and not environment.auto_requeue
    assert trainer.default_root_dir == str(cli.run.folder)
