"""A training step of every pre-training has no operation that makes a GPU wait for the host."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch.nn.functional import scaled_dot_product_attention

from experiments.run import CLI, build_cli
from kg.graph import KnowledgeGraph
from kg.pagerank import rank
from tests.experiments.callbacks import SaveGradients
from tests.synchronisation import Synchronisations, seen

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(f"{p.parent.name}/{p.stem}" for p in ROOT.glob("experiments/*/pretrain*.yaml"))
#: those whose BERT is read packed; the others' differ from them in their losses and data alone
PACKED = [c for c in CONFIGS if c.endswith("/pretrain") and not c.startswith("genbioel/")]
STEPS = 3
#: argument of a model or data module -> field of the fake inputs
MODEL = {"encoder": ("bert", "bart"), "entities": ("entities",)}
DATA = {"tokenizer": ("tokenizer", "vocabulary", "bert")} | {
    name: (name,)
    for name in (
        "corpus",
        "graph",
        "entities",
        "segments",
        "thesaurus",
        "pairs",
        "neighbours",
        "samples",
    )
}
KIND = {"zh": "mlm", "ernie": "smedbert", "knowbert": "smedbert"}
SMALL: dict[str, dict[str, Any]] = {
    "zh": {
        "model.layers": 1,
        "model.hidden": 32,
        "model.intermediate": 32,
        "model.encoder": None,
        "data.graph": None,
    },
    "kebiolm": {"model.candidates": 7},
    "embert": {
        "data.batch_size": 64,
        "data.max_length": 64,
        "data.replace": 0.5,
        "model.entities": None,
    },
    "genbioel": {
        "data.max_length": 64,
        "data.max_mention": 16,
        "data.max_name": 32,
        "data.graph": None,
    },
    "sapbert": {"data.graph": None, "data.groups": 1},  # or no group of a fake step has padding
    "smedbert": {"data.n_negatives": 5},
    "ernie": {"data.neighbours": None},
    "knowbert": {"data.neighbours": None},
}


def words(config: str, fake: Any) -> list[str]:
    """Arguments of experiments.run for two steps of a config on fake inputs."""
    paper = config.split("/")[0]
    found: dict[str, Any] = {"data.batch_size": 8}
    for room, names in (("model", MODEL), ("data", DATA)):
        for name, fields in names.items():
            found |= {
                f"{room}.{name}": getattr(fake, f) for f in reversed(fields) if hasattr(fake, f)
            }
    found |= SMALL.get(paper, {})
    layers = dict.fromkeys((f"{paper}/pretrain", config, "common/tiny"))
    given = [w for layer in layers for w in ("--config", f"experiments/{layer}.yaml")]
    for key, value in found.items():
        room, name = key.split(".")
        if value is not None:
            given += [f"--{room}.init_args.{name}", str(value)]
    return given


def count_packed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each packed product of attention from now on."""
    calls: list[int] = []

    def counted(*ragged: Any, **named: Any) -> Any:
        if ragged[0].is_nested:
            calls.append(len(ragged[0].values()))
        return scaled_dot_product_attention(*ragged, **named)

    monkeypatch.setattr("models.packing.scaled_dot_product_attention", counted)
    return calls


@pytest.fixture
def fake(
    config: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The fake inputs of a config's paper."""
    paper = config.split("/")[0]
    # no fake name is in another, so entities have the next one as a second candidate
    if paper == "knowbert":

        def table(graph: KnowledgeGraph, frequency: np.ndarray, most: int) -> np.ndarray:
            number = np.arange(len(graph.entities))
            return np.stack([number, (number + 1) % len(number)], axis=1)

        monkeypatch.setattr("datamodules.knowbert.candidate_table", table)
    found = request.getfixturevalue(f"fake_{KIND.get(paper, paper)}")
    if paper != "smedbert":
        return found
    rank(found.graph, str(tmp_path / "neighbours"), k=30)  # as many neighbours as the pipeline's
    return found._replace(neighbours=str(tmp_path / "neighbours"))


def fit(
    monkeypatch: pytest.MonkeyPatch,
    config: str,
    fake: Any,
    *callbacks: pl.Callback,
    device: str = "cpu",
    **settings: Any,
) -> pl.Trainer:
    """Train a config for STEPS steps; settings are of the model."""
    monkeypatch.chdir(ROOT)
    own = [w for name, value in settings.items() for w in (f"--model.init_args.{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["run", *words(config, fake), *own])
    cli = build_cli(CLI)
    cli.run.close()
    trainer = pl.Trainer(
        accelerator=device,
        devices=1,
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        callbacks=list(callbacks),
        limit_val_batches=0,
        gradient_clip_val=cli.config["trainer"]["gradient_clip_val"],
        enable_progress_bar=False,
        use_distributed_sampler=False,
        precision="32-true" if device == "cpu" else "bf16-mixed",
    )
    trainer.fit(cli.model, cli.datamodule)
    return trainer


@pytest.mark.parametrize("config", CONFIGS)
def test_steps_do_not_wait(
    config: str, fake: Any, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Synchronisations()
    fit(monkeypatch, config, fake, counter)
    assert counter.steps == STEPS and counter.found == {}


def test_what_waits_is_seen() -> None:
    found: Counter[str] = Counter()
    x, chosen = torch.arange(4.0, requires_grad=True), torch.tensor([True, False, True, False])
    with seen(found):
        x[chosen].sum().backward()  # the index, and its gradient
        x.sum().item()
        torch.where(chosen, x, 0)[torch.arange(2)].sum()  # waits for nothing
        torch.repeat_interleave(torch.arange(2), torch.tensor([1, 1]).detach())
        x.new_tensor([1.0])
    named = Counter(key.rpartition(" ")[2] for key in found.elements())
    assert named == {
        "index": 1,
        "index_put": 1,
        "_local_scalar_dense": 1,
        "repeat_interleave": 1,
        "tensor": 1,
        "new_tensor": 1,
    }


@pytest.mark.parametrize("config", PACKED)
def test_packed_steps_give_the_gradients_of_padded_ones(
    config: str, fake: Any, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_packed(monkeypatch)
    saved = {}
    for attention in ("sdpa", "packed"):
        fit(
            monkeypatch,
            config,
            fake,
            SaveGradients(str(tmp_path / attention)),
            attention=attention,
            dropout=0,
        )
        saved[attention] = torch.load(tmp_path / attention, weights_only=True)
        assert bool(calls) == (attention == "packed")
    padded, packed = saved["sdpa"], saved["packed"]
    for kind in ("gradients", "losses"):
        assert padded[kind].keys() == packed[kind].keys()
        for name, value in padded[kind].items():
            torch.testing.assert_close(
                packed[kind][name], value, rtol=1e-3, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )


class Strict(pl.Callback):
    """After the first step, in which things are put on the GPU, waiting for it between forward and
    optimiser is an error."""

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        torch.cuda.set_sync_debug_mode("error" if trainer.global_step else "default")

    def on_train_batch_end(self, *_: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")

    def on_exception(self, *_: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("attention", ["sdpa", "packed"])
@pytest.mark.parametrize("config", CONFIGS)
def test_steps_on_a_gpu_do_not_wait(
    config: str, attention: str, fake: Any, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if attention == "packed" and config not in PACKED:
        pytest.skip("a BART, or a config whose BERT reads like another's")
    trainer = fit(monkeypatch, config, fake, Strict(), device="cuda", attention=attention)
    assert trainer.global_step == STEPS and torch.isfinite(trainer.callback_metrics["train/loss"])


@pytest.mark.gpu
@pytest.mark.parametrize("config", [c for c in CONFIGS if c.endswith("/pretrain")])
def test_a_gpu_has_the_losses_of_a_cpu(
    config: str, fake: Any, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the precision of bfloat16, in which the GPU computes."""
    settings = {"dropout": 0, "lr": 0}
    cpu, gpu = (
        fit(monkeypatch, config, fake, device=d, **settings).callback_metrics["train/loss"]
        for d in ("cpu", "cuda")
    )
    assert gpu.item() == pytest.approx(cpu.item(), rel=0.03)


@pytest.mark.gpu
@pytest.mark.parametrize("config", PACKED)
def test_packed_is_padded_on_a_gpu(
    config: str, fake: Any, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the precision of bfloat16; the kernels differ."""
    found = [
        fit(monkeypatch, config, fake, device="cuda", attention=attention, dropout=0, lr=0)
        .callback_metrics["train/loss"]
        .item()
        for attention in ("sdpa", "packed")
    ]
    assert found[1] == pytest.approx(found[0], rel=0.02)
