"""Fine-tuned models on fake data, which several tests of this folder use."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from core.json_files import read_json, write_json
from core.reading import sha256
from core.tracking import ROOT
from experiments.finetune import FinetuneCLI, train
from experiments.run import build_cli
from tests.fakes import bert, tasks

HEADS = {
    "ner": ("NCBI", "--model.init_args.lr", "0.003"),
    "crf": (
        "NCBI",
        "--model.init_args.lr",
        "0.003",
        "--model.init_args.head.init_args.crf",
        "true",
    ),
    "nested": ("CMeEE", "--model.init_args.lr", "0.003"),
    "relation": ("ChemProt",),
    "pair": ("cMedQQ",),
    "ranking": ("WebMedQA",),
}


class Trained(NamedTuple):
    folder: Path  # of the run, moved
    task: Path
    scores: dict[str, Any]
    source: Path  # the encoder, which is gone


def fine_tune(place: Path, source: Path, task: Path, config: str, *extra: str) -> Trained:
    """A run of `config` on `task` from the encoder in `source`, whose folder is then moved, and the
    encoder removed."""
    words = [
        "--config",
        f"experiments/finetune/{config}.yaml",
        "--config",
        "experiments/common/cpu.yaml",
        "--trainer.enable_progress_bar",
        "false",
        "--trainer.max_epochs",
        "4",
        "--task_name",
        config,
        "--model_name",
        "fake",
        "--run_folder",
        str(place / "run"),
        "--model.init_args.encoder",
        str(source),
        "--data.init_args.tokenizer",
        str(source),
        "--data.init_args.task",
        str(task),
        "--data.init_args.max_length",
        "16",
        "--request",
        '{"args": "--x 1", "options": {}, "profile": "small"}',
        *extra,
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(sys, "argv", ["finetune", *words])
        patch.setenv("KEPL_RUNS", str(place / "runs"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place / 'mlflow.db'}")
        scores = train(build_cli(FinetuneCLI))
    shutil.rmtree(source)
    (place / "run").rename(place / "moved")
    return Trained(place / "moved", task, scores, source)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """A model of each head on fake data, made once for all processes of a run of the tests."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def train_or_load(name: str) -> Trained:
        place = shared / "trained" / name
        place.mkdir(parents=True, exist_ok=True)
        with open(place / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # while one process trains it, others wait
            if not (place / "scores.json").exists():
                source = bert.write(place / "bert", tasks.WORDS, layers=2, length=64)
                # as a paper's export: with a manifest that describes its files
                sums = {file.name: sha256(file) for file in source.iterdir()}
                write_json(source / "manifest.json", {"paper": "zh", "checksums": sums})
                kind = "ner" if name == "crf" else name
                task = tasks.write(
                    place / "task", kind, {"train": 60, "dev": 20, "test": 40}, suite="fakes"
                )
                write_json(
                    place / "scores.json", fine_tune(place, source, task, *HEADS[name]).scores
                )
        return Trained(
            place / "moved", place / "task", read_json(place / "scores.json"), place / "bert"
        )

    return train_or_load
