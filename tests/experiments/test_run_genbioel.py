"""GenBioEL through the training entry: a step of each YAML, a killed run, two processes, and `make
finetune`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from app.cli import main
from core.json_files import read_json
from core.tracking import newest_export
from datamodules.genbioel.inputs import Inputs
from datamodules.tasks.linking import linking_tasks
from experiments import linkers as module
from experiments.names import encoder
from models.genbioel import GenBioELModel
from tests.experiments.callbacks import BLANK
from tests.fakes import genbioel as fakes
from tests.fakes import linking
from tests.fakes.genbioel import Folders

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]
Done = subprocess.CompletedProcess[str]
SHORT = {
    "data.init_args.max_length": 64,
    "data.init_args.max_mention": 16,
    "data.init_args.max_name": 32,
}


def start(
    fake: Folders, result: Path, *extra: str, stem: str = "pretrain", small: bool = False
) -> Done:
    command = [sys.executable, "-m", "experiments.run"]
    for config in dict.fromkeys(
        (
            "genbioel/pretrain",
            f"genbioel/{stem}",
            *(["genbioel/small"] if small else []),
            "common/tiny",
        )
    ):
        command += ["--config", f"experiments/{config}.yaml"]
    settings = {
        "data.init_args.tokenizer": fake.tokenizer,
        "result": result,
        "data.init_args.samples": fake.samples,
        "data.init_args.batch_size": 8,
        "model.init_args.lr": 0.003,
        "model.init_args.warmup_steps": 0,
    }
    settings |= {} if small else {"model.init_args.encoder": fake.bart, **SHORT}
    for key, value in settings.items():
        command += [f"--{key}", str(value)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *extra], capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )


def test_one_step_of_every_config(fake_genbioel: Folders, tmp_path: Path, runs: Path) -> None:
    """The ablation with small.yaml over it, which makes a new BART."""
    stems = sorted(p.stem for p in (ROOT / "experiments" / "genbioel").glob("pretrain*.yaml"))
    assert stems == ["pretrain", "pretrain_denoise"]
    for stem in stems:
        done = start(
            fake_genbioel, tmp_path / f"{stem}.json", BLANK, stem=stem, small=stem != "pretrain"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        result = read_json(tmp_path / f"{stem}.json")
        assert (
            result["steps"] == 1
            and {"val/loss", "val/token_accuracy", "val/exact", "val/samples"}
            <= result["end"].keys()
        )
        assert all(v == v for v in result["end"].values())
        assert Path(result["folder"]).relative_to(runs).parts[:2] == ("genbioel", stem)
        assert result["end"]["val/loss"] < result["start"]["val/loss"]
    assert encoder("genbioel").folder == str(
        newest_export("genbioel", "pretrain")
    )  # the bare name: pretrain.yaml's run
    assert Inputs.from_export(encoder("genbioel").folder).max_name == 32
    other = encoder("genbioel/pretrain_denoise")
    small = yaml.safe_load((ROOT / "experiments" / "genbioel" / "small.yaml").read_text())["model"][
        "init_args"
    ]
    made = GenBioELModel.from_export(other.folder)
    assert (made.hidden_size, made.max_length) == (small["hidden"], small["positions"])
    assert made.bart.config.encoder_layers == small["layers"]
    assert other.paper == "genbioel"


@pytest.mark.slow  # the mechanism is test_run.py's; its own batches are resumed nightly
def test_a_killed_run_resumes_exactly(fake_genbioel: Folders, tmp_path: Path, runs: Path) -> None:
    long = ("--trainer.max_steps", "16", "--checkpoint_every", "4")  # crosses an epoch
    whole = start(
        fake_genbioel, tmp_path / "a.json", *long, "--run_folder", str(tmp_path / "whole")
    )
    assert whole.returncode == 0, whole.stdout + whole.stderr
    command = (
        *long,
        "--run_folder",
        str(tmp_path / "cut"),
        "--trainer.callbacks+=tests.experiments.callbacks.KillAt",
        "--trainer.callbacks.batches=10",
        f"--trainer.callbacks.marker={tmp_path / 'killed'}",
    )
    assert start(fake_genbioel, tmp_path / "b.json", *command).returncode == -9
    again = start(fake_genbioel, tmp_path / "b.json", *command)
    assert again.returncode == 0 and "resuming from" in again.stderr, again.stdout + again.stderr
    for key in ("start", "end"):
        assert read_json(tmp_path / "b.json")[key] == pytest.approx(
            read_json(tmp_path / "a.json")[key], rel=1e-6
        )


@pytest.mark.ddp
def test_two_processes_learn_as_one(fake_genbioel: Folders, tmp_path: Path, runs: Path) -> None:
    """D2: the same loss and the same gradients, though the halves of a batch hold different numbers
    of tokens."""
    saved = {}
    for name, extra in {
        "one": ("--trainer.accumulate_grad_batches", "2"),
        "two": ("--trainer.devices", "2", "--trainer.strategy", "ddp"),
    }.items():
        done = start(
            fake_genbioel,
            tmp_path / f"{name}.json",
            "--run_folder",
            str(tmp_path / name),
            *extra,
            "--model.init_args.dropout",
            "0",
            "--trainer.gradient_clip_val",
            "0",
            "--trainer.callbacks+=tests.experiments.callbacks.SaveGradients",
            f"--trainer.callbacks.file={tmp_path / name}.pt",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        saved[name] = torch.load(tmp_path / f"{name}.pt", weights_only=True)
    one, two = saved["one"], saved["two"]
    torch.testing.assert_close(
        two["losses"]["train/loss"], one["losses"]["train/loss"], atol=1e-5, rtol=0
    )
    assert len(one["gradients"]) > 20
    for name, gradient in one["gradients"].items():
        torch.testing.assert_close(
            two["gradients"][name],
            gradient,
            atol=1e-6,
            rtol=1e-4,
            msg=lambda m, n=name: f"{n}: {m}",
        )
    assert read_json(tmp_path / "two.json")["end"] == pytest.approx(
        read_json(tmp_path / "one.json")["end"], abs=1e-4
    )


def test_fine_tuning_trains_by_this_papers_recipe_and_scores(
    fake_genbioel: Folders, tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plain BART uses this paper's recipe, a BERT another's; the export is one of fine-tuning."""
    data = linking.write(tmp_path / "data")
    own = fakes.bart(tmp_path / "own", fake_genbioel.tokenizer)
    arguments = "--data.init_args.batch_size 1"
    words = [
        "finetune",
        "AAP-EL",
        f"DATA={data / 'AAP-EL'}",
        "FOLDS=0",
        "EPOCHS=1",
        f"MODEL={own}",
        f"ARGS={arguments}",
    ]
    assert main(words) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert "3 samples" in said.err and "fine-tuned + back-off" in said.out
    export = newest_export("genbioel", "finetune")
    assert export is not None
    config = yaml.safe_load((export.parent / "config.yaml").read_text())
    assert config["data"]["init_args"]["max_words"] == 64 and config["trainer"]["max_steps"] == -1
    made = read_json(Path(config["data"]["init_args"]["samples"]) / "manifest.json")["recipe"]
    assert made["keep_last"] and made["max_words"] == 64 and not made["abbreviations"]
    assert module.recipe_of(encoder("x", str(export)))[0].parent.name == "genbioel"


def test_the_schedules_of_table_11() -> None:
    recipe = yaml.safe_load((ROOT / "experiments" / "genbioel" / "finetune.yaml").read_text())
    table = {
        "BC5CDR-EL": (1e-5, 20000, 500),
        "COMETA-EL": (1e-5, 40000, 500),
        "AAP-EL": (5e-6, 30000, 0),
        "NCBI-EL": (3e-7, 20000, 0),
    }
    for name, wanted in table.items():
        found = module.task_settings(recipe, name, "paper")
        keys = ("model.init_args.lr", "trainer.max_steps", "model.init_args.warmup_steps")
        assert tuple(found[k] for k in keys) == wanted
    assert module.task_settings(recipe, "HPO-EL", "paper") == {}  # the YAML's own, BC5CDR's
    known = {name.split(":")[0] for name in linking_tasks()}
    assert all(set(table) - {"other"} <= known for table in recipe["tasks"].values())
    init = recipe["model"]["init_args"]
    assert (
        init["smoothing"],
        recipe["data"]["init_args"]["batch_size"],
        recipe["trainer"]["gradient_clip_val"],
    ) == (
        0.1,
        8,
        0.1,
    )
    assert module.task_settings(recipe, "NCBI-EL", "small", 2)["trainer.max_epochs"] == 2
