"""SMedBERT through the training entry: a step of each YAML, a killed run, two processes; then
fine-tuning its export."""

from __future__ import annotations

import csv
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from torch import Tensor

from benchmarks.commands import Finetune
from benchmarks.papers.smedbert import figures
from benchmarks.papers.smedbert.diagnosis import diagnose_model, measures
from core.arrays import read_table
from core.files import InputError
from core.json_files import read_json
from datamodules.mentions import Mentions
from datamodules.options import Files
from datamodules.tasks import Tagged, save_task
from experiments import seeds
from experiments.finetune import FinetuneCLI
from experiments.finetune import train as finetuned
from experiments.names import copy_encoder, encoder
from experiments.run import CLI, build_cli, train
from experiments.stages import Stage
from inference.encoders import embedder
from inference.options import LinkerOptions
from kg.pagerank import rank
from models.smedbert.encoder import SMedBERTEncoder
from tests.experiments.callbacks import BlankAddsNothing, Moved, SaveGradients
from tests.fakes import smedbert as fakes
from tests.fakes.chinese import PLAIN
from tests.fakes.smedbert import Folders

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]
SHIFTS = ("pool.score.bias", "self.key.bias")  #: added to all logits of a softmax: no gradient
STEMS = sorted(p.stem for p in (ROOT / "experiments" / "smedbert").glob("pretrain*.yaml"))


@pytest.fixture(scope="session")
def fake(fake_smedbert: Folders, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """With a table of as many neighbours as the pipeline makes: 30."""
    folder = str(tmp_path_factory.mktemp("neighbours") / "table")
    rank(fake_smedbert.graph, folder, k=30)
    return fake_smedbert._replace(neighbours=folder)


@pytest.fixture(scope="module")
def runs(runs_of_file: Path) -> Path:
    return runs_of_file


def words(fake: Folders, *extra: str, stem: str = "pretrain") -> list[str]:
    """Arguments of experiments.run."""
    layers = dict.fromkeys(("smedbert/pretrain", f"smedbert/{stem}", "common/tiny"))
    settings: dict[str, Any] = {
        "model.init_args.encoder": fake.bert,
        "data.init_args.tokenizer": fake.bert,
        "data.init_args.corpus": fake.corpus,
        "model.init_args.entities": fake.entities,
        "data.init_args.entities": fake.entities,
        "data.init_args.graph": fake.graph,
        "data.init_args.neighbours": fake.neighbours,
        "data.init_args.batch_size": 8,
        "model.init_args.lr": 0.001,
        "data.init_args.n_negatives": 5,
    }
    found = [w for layer in layers for w in ("--config", f"experiments/{layer}.yaml")]
    return [
        *found,
        *(w for key, value in settings.items() for w in (f"--{key}", str(value))),
        *extra,
    ]


def run(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], *callbacks: pl.Callback
) -> dict[str, Any]:
    """What a run of experiments.run in this process returns."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    cli = build_cli(CLI)
    cli.trainer.callbacks += [*callbacks, BlankAddsNothing()]
    return train(cli)


@pytest.fixture(scope="module")
def export(fake: Folders, runs: Path) -> str:
    """A run's export, which "smedbert" means."""
    with pytest.MonkeyPatch.context() as patch:
        return str(run(patch, words(fake, "--seed_everything", "1"))["export"])


@pytest.mark.parametrize("stem", STEMS)
def test_one_step_of_every_config(
    stem: str, fake: Folders, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Moved()
    result = run(monkeypatch, words(fake, stem=stem), moved)
    assert result["steps"] == 1 and all(
        math.isfinite(v) for part in ("start", "end") for v in result[part].values()
    )
    folder = Path(result["folder"])
    assert folder.relative_to(runs).parts[:2] == ("smedbert", stem)
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    hybrid, losses = (
        settings["model"]["init_args"][k] for k in ("hybrid_attention", "knowledge_losses")
    )
    logged = mlflow.get_run(result["mlflow_run"]).data.metrics
    assert logged["train/loss"] > 0
    # a term that is not trained has no curve
    trained = {"mlm", "sop"} | ({"mnem", "mmem"} if losses else set())
    assert {k for k in logged if k.startswith("train/loss_")} == {
        f"train/loss_{t}" for t in trained
    }
    assert all(logged[f"train/loss_{t}"] > 0 for t in trained)
    # Only what the config leaves out stays as it was: the frozen entities, and what no loss of it
    # reaches.
    still = {n for n in moved.still if not n.endswith(SHIFTS)}
    unreached = {
        n
        for n in moved.before
        if n.startswith("context.") and not n.endswith(SHIFTS) and not losses
    }
    assert still == {"encoder.entity"} | unreached
    parts = {n.split(".")[1] for n in moved.moved if n.startswith("encoder.")}
    assert parts == ({"bert", "mention", "attention", "infusion"} if hybrid else {"bert"})
    written = Path(result["export"])
    assert read_json(written / "linker.json") == {"k": settings["data"]["init_args"]["k"]}
    assert SMedBERTEncoder.from_export(written).settings["hybrid_attention"] == hybrid


def start(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The same as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "experiments.run", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_a_killed_run_resumes_exactly(
    fake: Folders,
    tmp_path: Path,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = (
        "--trainer.max_steps",
        "18",
        "--checkpoint_every",
        "4",
        "--data.init_args.min_mentions",
        "1",
    )
    whole = run(monkeypatch, words(fake, *long, "--run_folder", str(tmp_path / "whole")))
    command = words(
        fake,
        *long,
        "--run_folder",
        str(tmp_path / "cut"),
        "--trainer.callbacks+=tests.experiments.callbacks.KillAt",
        "--trainer.callbacks.batches=11",
        f"--trainer.callbacks.marker={tmp_path / 'killed'}",
    )
    assert start(command).returncode == -9 and (tmp_path / "killed").exists()
    assert sorted(p.name for p in (tmp_path / "cut" / "checkpoints").glob("*")) == [
        "step=4.ckpt",
        "step=8.ckpt",
    ]
    again = run(monkeypatch, command)
    assert "resuming from" in capsys.readouterr().err and again["steps"] == 18
    for key in ("start", "end"):
        assert again[key] == pytest.approx(whole[key], rel=1e-6)
    assert whole["end"]["val/loss"] < whole["start"]["val/loss"]


def same_gradients(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """The losses, their sum and all gradients, to 1e-4."""
    assert len(wanted["gradients"]) > 50 and len(wanted["losses"]) >= 4
    assert (
        wanted["losses"].keys() == found["losses"].keys()
        and wanted["gradients"].keys() == found["gradients"].keys()
    )
    for part in ("losses", "gradients"):
        for key, value in wanted[part].items():
            torch.testing.assert_close(
                found[part][key], value, atol=1e-4, rtol=1e-3, msg=lambda m, k=key: f"{k}: {m}"
            )


@pytest.fixture(scope="module")
def alone(fake: Folders, runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Losses and gradients of one process with the whole batch."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        extra = ("--run_folder", str(folder / "run"), "--model.init_args.dropout", "0")
        run(patch, words(fake, *extra), SaveGradients(str(folder / "gradients.pt")))
    saved: dict[str, Any] = torch.load(folder / "gradients.pt", weights_only=True)
    return saved


def test_accumulated_batches_give_the_gradients_of_the_whole(
    alone: dict[str, Any],
    fake: Folders,
    tmp_path: Path,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extra = ("--run_folder", str(tmp_path / "run"), "--model.init_args.dropout", "0")
    four = words(fake, *extra, "--trainer.accumulate_grad_batches", "4")
    run(monkeypatch, four, SaveGradients(str(tmp_path / "four.pt")))
    same_gradients(torch.load(tmp_path / "four.pt", weights_only=True), alone)


# a minute of starting processes; step_mean and the batches are tested for several without any
@pytest.mark.slow
@pytest.mark.ddp
def test_processes_give_the_gradients_of_one(
    alone: dict[str, Any], fake: Folders, tmp_path: Path, runs: Path
) -> None:
    """Two gloo processes that accumulate two batches each."""
    done = start(
        words(
            fake,
            "--run_folder",
            str(tmp_path / "run"),
            "--model.init_args.dropout",
            "0",
            "--trainer.devices",
            "2",
            "--trainer.strategy",
            "ddp",
            "--trainer.accumulate_grad_batches",
            "2",
            "--trainer.callbacks+=tests.experiments.callbacks.SaveGradients",
            f"--trainer.callbacks.file={tmp_path / 'two.pt'}",
        )
    )
    assert done.returncode == 0, done.stdout + done.stderr
    same_gradients(torch.load(tmp_path / "two.pt", weights_only=True), alone)


@pytest.fixture(scope="session")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of the fake graph's words: diseases and drugs are to be found."""
    rng = np.random.default_rng(5)
    names = [(a + b, "disease") for a in fakes.FIRST for b in fakes.SECOND] + [
        (d, "drug") for d in fakes.DRUGS
    ]

    def example(number: int) -> Tagged:
        text, entities = "", []
        for i in rng.choice(len(names), 2, replace=False):
            text += "".join(rng.choice(list(PLAIN), 4))
            entities.append((len(text), len(text) + len(names[i][0]), names[i][1]))
            text += names[i][0] + "，"
        return Tagged(str(number), str(number), text, entities)

    splits = {
        split: [example(i) for i in range(n)]
        for split, n in {"train": 16, "dev": 8, "test": 8}.items()
    }
    folder = tmp_path_factory.mktemp("task") / "ner"
    save_task(folder, splits, name="fake", kind="ner", metric="entity_f1", language="zh")
    return folder


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Stages run here, one after the other; returns what they were called with."""
    monkeypatch.chdir(ROOT)
    called: list[list[str]] = []

    def run_stages(stages: list[Stage], work: Path, engine: str) -> None:
        for stage in stages:
            called.append(stage.options)
            monkeypatch.setattr(sys, "argv", ["finetune", *stage.options])
            finetuned(build_cli(FinetuneCLI))

    monkeypatch.setattr(seeds, "run_stages", run_stages)
    return called


def test_an_export_is_fine_tuned_with_linked_mentions(
    export: str,
    task: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_this_process: list[list[str]],
) -> None:
    """`make finetune` from its options to its results: mentions reach the encoder, HITS= and K= say
    which and how much."""
    assert (
        copy_encoder("smedbert", tmp_path / "start")
        and encoder(str(tmp_path / "start")).load == encoder(export).load
    )
    seen: list[Mentions] = []
    original = SMedBERTEncoder.infuse

    def infused(self: SMedBERTEncoder, states: Tensor, mentions: Mentions, *known: Any) -> Tensor:
        seen.append(mentions)
        return original(self, states, mentions, *known)

    monkeypatch.setattr(SMedBERTEncoder, "infuse", infused)
    args = "--data.init_args.max_length 64 --trainer.max_epochs 1 --trainer.limit_train_batches 1"
    results, linked, width = {}, {}, {}
    for name, options in {"all": {}, "half": {"hits": 0.5, "k": 3}, "none": {"hits": 0}}.items():
        seen.clear()
        (results[name],) = Finetune(
            task="cMedQANER", model="smedbert", files=Files(data=task), args=args, options=options
        ).run()
        linked[name] = sum(len(m.span) for m in seen)
        width[name] = {m.neighbours.shape[1] for m in seen}
    # training, selection once (its only epoch is the best), test; two mentions a sentence
    assert (
        linked["all"] == 2 * (16 + 8 + 8)
        and 0 < linked["half"] < linked["all"]
        and linked["none"] == 0
    )
    assert width == {"all": {10}, "half": {3}, "none": {10}}
    assert [r.label for r in results.values()] == [
        "smedbert",
        "smedbert HITS=0.5 K=3",
        "smedbert HITS=0",
    ]
    assert results["half"].options == {"hits": 0.5, "k": 3} and results["all"].options == {}
    config = yaml.safe_load((Path(results["half"].folder) / "config.yaml").read_text())
    assert config["data"]["init_args"]["linker_settings"] == {"hits": 0.5, "k": 3}
    assert config["data"]["init_args"]["linker_folder"] == export
    assert "--data.init_args.linker_settings.hits" in in_this_process[1] and "HITS" not in " ".join(
        in_this_process[0]
    )
    assert len({r.folder for r in results.values()}) == 3
    with pytest.raises(InputError, match="HITS=0.5: minilm has no such option"):
        seeds.own_settings(encoder("minilm"), {"hits": 0.5})


def test_what_knowledge_does_to_names_layer_by_layer(
    export: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures(of="diagnosis", model="smedbert", names=12, out=tmp_path)
    rows = list(csv.DictReader((tmp_path / "diagnosis.csv").open()))
    assert "12 names that are linked" in capsys.readouterr().out
    after = SMedBERTEncoder.from_export(export).knowledge_after
    assert [int(row["layer"]) for row in rows] == list(range(4))  # three layers and the embeddings
    for row in rows:  # before knowledge comes in all ways are one
        alike = int(row["layer"]) <= after
        assert all(
            (float(row[to]) == pytest.approx(1, abs=1e-6)) == alike
            for to in ("to plain", "to foreign")
        )
    known, plain = (
        embedder(encoder(export), LinkerOptions(pooling="text", knowledge=k)) for k in (True, False)
    )
    (found, count), link = diagnose_model("smedbert", names=10_000), known.linker
    assert link is not None
    names = read_table(Path(export) / "names.parquet", ["name"])["name"].to_pylist()
    offsets = known.tokenizer(names, return_offsets_mapping=True)["offset_mapping"]
    linked = [
        n for n, own in zip(names, offsets, strict=True) if (link([n], [own]).neighbours >= 0).any()
    ]
    assert count == len(linked)
    wanted = (known(linked) * plain(linked)).sum(1).mean().item()
    assert found[-1].values["to plain"] == pytest.approx(wanted, abs=1e-5)
    with pytest.raises(InputError, match="MODEL=minilm: it links no mentions"):
        diagnose_model("minilm")


def test_measures_of_vectors() -> None:
    """Two orthogonal pairs: in one direction they differ; three axes and their opposites: in three,
    with a mean cosine of -0.2."""
    axes = torch.cat([torch.eye(3), -torch.eye(3)]) * 2
    line = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [3.0, 0.0]])
    found = measures(axes, axes, -axes)
    assert (
        found["dimensions"] == pytest.approx(3)
        and found["others"] == pytest.approx(-0.2)
        and found["norm"] == pytest.approx(2)
    )
    assert found["to plain"] == pytest.approx(1) and found["to foreign"] == pytest.approx(-1)
    assert measures(line, line, line)["dimensions"] == pytest.approx(1)


def test_names_are_embedded_with_their_neighbours_or_without(export: str) -> None:
    """What synonym retrieval compares: KNOWLEDGE=no changes names that are linked, and no other."""
    known = embedder(encoder(export), LinkerOptions(pooling="text"))
    plain = embedder(encoder(export), LinkerOptions(pooling="text", knowledge=False))
    names = ["肺炎", "阿平片", "休息"]  # the last is no entity
    a, b = known(names), plain(names)
    assert not torch.allclose(a[:2], b[:2], atol=1e-4) and torch.allclose(a[2], b[2], atol=1e-5)
    assert known.settings["mentions"] == "linked" and "mentions" not in plain.settings
