"""ERNIE and KnowBERT through the training entry: a step, accumulated batches; then fine-tuning
their exports."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch

from benchmarks.commands import Finetune
from datamodules.options import Files
from experiments.pretrain import commands, pipeline_of
from kg.graph import KnowledgeGraph
from models.ernie import ERNIEEncoder
from models.knowbert import KnowBERTEncoder
from tests.experiments.callbacks import Moved, SaveGradients
from tests.experiments.test_run_smedbert import in_this_process, run, same_gradients, task
from tests.fakes.smedbert import Folders

__all__ = ["in_this_process", "task"]  # fixtures
pytestmark = pytest.mark.usefixtures("preloaded")
PAPERS = {"ernie": ERNIEEncoder, "knowbert": KnowBERTEncoder}


@pytest.fixture(scope="module")
def runs(runs_of_file: Path) -> Path:
    return runs_of_file


def words(paper: str, fake: Folders, *extra: str) -> list[str]:
    """Arguments of experiments.run."""
    settings: dict[str, Any] = {
        "model.init_args.encoder": fake.bert,
        "data.init_args.tokenizer": fake.bert,
        "data.init_args.corpus": fake.corpus,
        "model.init_args.entities": fake.entities,
        "data.init_args.entities": fake.entities,
        "data.init_args.graph": fake.graph,
        "data.init_args.batch_size": 8,
        "model.init_args.lr": 0.001,
    }
    found = [
        w
        for layer in (f"{paper}/pretrain", "common/tiny")
        for w in ("--config", f"experiments/{layer}.yaml")
    ]
    return [
        *found,
        *(w for key, value in settings.items() for w in (f"--{key}", str(value))),
        *extra,
    ]


@pytest.fixture(autouse=True)
def several_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fake name is in another: KnowBERT's entities have the next one as a second candidate."""

    def table(graph: KnowledgeGraph, frequency: np.ndarray, most: int) -> np.ndarray:
        number = np.arange(len(graph.entities))
        return np.stack([number, (number + 1) % len(number)], axis=1)

    monkeypatch.setattr("datamodules.knowbert.candidate_table", table)


@pytest.mark.parametrize("paper", PAPERS)
def test_one_step(
    paper: str, fake_smedbert: Folders, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Moved()
    result = run(monkeypatch, words(paper, fake_smedbert), moved)
    assert result["steps"] == 1 and all(
        math.isfinite(v) for part in ("start", "end") for v in result[part].values()
    )
    assert {
        "val/entity_mrr",
        "val/entity_mrr_frequency",
        "val/order_accuracy",
        "val/loss_mlm",
    } <= result["end"].keys()
    assert set(pipeline_of(paper)["report"]["rows"].values()) <= result["end"].keys()
    logged = mlflow.get_run(result["mlflow_run"]).data.metrics
    assert all(logged[f"train/loss_{t}"] > 0 for t in ("mlm", "sop", "entity"))
    # A bias of all keys, and of all scores, is in every logit of a softmax: no gradient.
    assert {
        n for n in moved.still if not n.endswith(("key.bias", "pool.score.bias", "score.2.bias"))
    } == set()
    assert PAPERS[paper].from_export(result["export"]).hidden_size == 32


@pytest.mark.parametrize("paper", PAPERS)
def test_accumulated_batches_give_the_gradients_of_the_whole(
    paper: str, fake_smedbert: Folders, tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, extra in {"one": (), "four": ("--trainer.accumulate_grad_batches", "4")}.items():
        given = words(
            paper,
            fake_smedbert,
            "--run_folder",
            str(tmp_path / name),
            "--model.init_args.dropout",
            "0",
            *extra,
        )
        run(monkeypatch, given, SaveGradients(str(tmp_path / f"{name}.pt")))
    found, wanted = (
        torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("four", "one")
    )
    same_gradients(found, wanted)


@pytest.mark.parametrize("paper", PAPERS)
def test_an_export_is_fine_tuned_with_linked_mentions(
    paper: str,
    fake_smedbert: Folders,
    task: Path,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_this_process: list[list[str]],
) -> None:
    run(monkeypatch, words(paper, fake_smedbert, "--seed_everything", "1"))
    seen: list[int] = []
    original = PAPERS[paper].forward

    def forward(
        self: Any, input_ids: Any, attention_mask: Any, mentions: Any = None, second: Any = None
    ) -> Any:
        seen.append(len(mentions.span))
        return original(self, input_ids, attention_mask, mentions, second)

    monkeypatch.setattr(PAPERS[paper], "forward", forward)
    args = "--data.init_args.max_length 64 --trainer.max_epochs 1 --trainer.limit_train_batches 1"
    linked = {}
    for name, options in {"all": {}, "none": {"hits": 0}}.items():
        seen.clear()
        (result,) = Finetune(
            task="cMedQANER", model=paper, files=Files(data=task), args=args, options=options
        ).run()
        linked[name] = sum(seen)
        assert result.label == (paper if name == "all" else f"{paper} HITS=0")
    # two mentions a sentence; training, selection, test
    assert linked == {"all": 2 * (16 + 8 + 8), "none": 0}


def test_their_data_are_those_of_smedbert() -> None:
    """`data_of`: the same stages before the training, in the same folder."""
    before = [s.words for s in commands("smedbert", "small", Path("/w")) if not s.result]
    for paper in PAPERS:
        stages = commands(paper, "small", Path("/w"))
        assert [s.words for s in stages if not s.result] == before
        assert [s.result for s in stages if s.result] == [paper]
