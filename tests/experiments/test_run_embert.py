"""EMBERT through the training entry: a step of each YAML."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
import pytorch_lightning as pl
import yaml

from experiments.names import encoder
from experiments.run import CLI, build_cli, train
from models.embert import TERMS
from tests.experiments.callbacks import BlankAddsNothing, Moved
from tests.fakes.chinese import LENGTH
from tests.fakes.embert import Folders

ROOT = Path(__file__).parents[2]
STEMS = sorted(p.stem for p in (ROOT / "experiments" / "embert").glob("pretrain*.yaml"))


@pytest.fixture(scope="module")
def runs(runs_of_file: Path) -> Path:
    return runs_of_file


def run(
    monkeypatch: pytest.MonkeyPatch, fake: Folders, stem: str, *callbacks: pl.Callback, **more: Any
) -> dict[str, Any]:
    """What a run of experiments.run in this process returns."""
    layers = dict.fromkeys(("embert/pretrain", f"embert/{stem}", "common/tiny"))
    settings: dict[str, Any] = {
        "model.init_args.encoder": fake.bert,
        "data.init_args.tokenizer": fake.bert,
        "data.init_args.corpus": fake.corpus,
        "data.init_args.graph": fake.graph,
        "data.init_args.segments": fake.segments,
        "data.init_args.thesaurus": fake.thesaurus,
        "data.init_args.batch_size": 64,
        "model.init_args.lr": 0.001,
        "data.init_args.max_length": LENGTH + 1,
        "model.init_args.warmup_steps": 0,
    } | more
    words = [w for layer in layers for w in ("--config", f"experiments/{layer}.yaml")]
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        sys, "argv", ["run", *words, *(w for k, v in settings.items() for w in (f"--{k}", str(v)))]
    )
    cli = build_cli(CLI)
    cli.trainer.callbacks += [*callbacks, BlankAddsNothing()]
    return train(cli)


@pytest.mark.parametrize("stem", STEMS)
def test_one_step_of_every_config(
    stem: str, fake_embert: Folders, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Moved()
    result = run(
        monkeypatch,
        fake_embert,
        stem,
        moved,
        **{"data.init_args.replace": 0.5} if "no_" not in stem else {},
    )
    assert result["steps"] == 1 and all(
        math.isfinite(v) for part in ("start", "end") for v in result[part].values()
    )
    folder = Path(result["folder"])
    assert folder.relative_to(runs).parts[:2] == ("embert", stem)
    settings = yaml.safe_load((folder / "config.yaml").read_text())["model"]["init_args"]
    used = [settings[f"{t}_weight"] > 0 for t in ("consistency", "segmentation", "masking")]
    logged = mlflow.get_run(result["mlflow_run"]).data.metrics
    terms = [True, True, used[0], used[1], used[2], used[2]]
    # a term that is not trained has no curve
    for split, values in (("train", logged), ("val", result["end"])):
        assert [f"{split}/loss_{t}" in values for t in TERMS] == terms
    assert stem != "pretrain" or all(logged[f"train/loss_{t}"] > 0 for t in TERMS)
    if "no_" not in stem and used[0]:
        assert result["end"]["val/consistency_count"] > 20
        assert 0.5 <= result["end"]["val/consistency_majority"] < 0.75
    # BERT's word and position embeddings, layers and every head move.
    heads = {n.split(".")[0] for n in moved.moved}
    names = ("consistency", "segmentation", "parts")
    assert heads == {"bert", "head", "pair"} | {n for n, u in zip(names, used, strict=True) if u}
    assert not {
        n
        for n in moved.still
        if "self.key.bias" not in n
        and "position_embeddings" not in n
        and not n.startswith("consistency")
    }
    loaded = encoder(result["export"])
    assert loaded.load == "models.encoders.TextEncoder"


def test_the_same_seed_has_the_same_run(
    fake_embert: Folders, tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (
        run(
            monkeypatch,
            fake_embert,
            "pretrain",
            run_folder=str(tmp_path / name),
            **{"trainer.max_steps": 3},
        )
        for name in ("one", "two")
    )
    assert one["end"] == pytest.approx(two["end"], rel=1e-6) and one["steps"] == 3
    assert one["end"]["val/loss_mlm"] < one["start"]["val/loss_mlm"]
