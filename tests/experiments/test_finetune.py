"""Fine-tuning one seed: every task's YAML, resuming, what is written and tracked."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from core.arrays import load_arrays
from core.json_files import read_json, write_json
from core.reading import sha256
from datamodules.tasks import load_task
from experiments.finetune import FinetuneCLI, Patience, train
from experiments.run import build_cli
from models.metrics import score
from tests.fakes import bert, tasks

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "experiments" / "finetune").glob("*.yaml"))
KINDS = {
    "Tagger": "ner",
    "NestedTagger": "nested",
    "PairClassifier": "pair",
    "RelationClassifier": "relation",
    "AnswerRanker": "ranking",
}
TINY = [
    "--config",
    "experiments/common/cpu.yaml",
    "--trainer.enable_progress_bar",
    "false",
    "--trainer.log_every_n_steps",
    "1",
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(bert.write(tmp_path_factory.mktemp("bert"), tasks.WORDS, layers=2, length=512))


def arguments(config: Path, task: Path, encoder: str, folder: Path, *extra: str) -> list[str]:
    words = [
        "--config",
        str(config.relative_to(ROOT)),
        *TINY,
        "--task_name",
        config.stem,
        "--model_name",
        "fake",
    ]
    words += [
        "--run_folder",
        str(folder),
        "--model.init_args.encoder",
        encoder,
        "--data.init_args.tokenizer",
        encoder,
    ]
    return [*words, "--data.init_args.task", str(task), *extra]


def trained(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> dict[str, Any]:
    """Scores of one run in this process."""
    monkeypatch.setattr(sys, "argv", ["finetune", *words])
    return train(build_cli(FinetuneCLI))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda p: p.stem)
def test_every_config_trains_one_step_and_is_scored(
    config: Path, encoder: str, tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    settings = yaml.safe_load(config.read_text())
    assert config.read_text().startswith(f"# make finetune TASK={config.stem} ")
    assert settings["paper"] and settings["grid"] and settings["small"]
    assert all(isinstance(v, list) and len(v) > 1 for v in settings["grid"].values())
    assert settings["small"]["trainer.max_epochs"] <= 12
    kind = KINDS[settings["model"]["init_args"]["head"]["class_path"].rsplit(".", 1)[1]]
    task = tasks.write(tmp_path / "t", kind)
    extra = [w for k, v in settings["small"].items() for w in (f"--{k}", str(v))]
    extra += ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1"]
    scores = trained(monkeypatch, arguments(config, task, encoder, tmp_path / "run", *extra))
    assert 0 <= scores["score"][scores["metric"]] <= 1
    every = load_task(task).splits["test"]
    # what the interval is over: questions, or examples
    own = {e.document for e in every} if kind == "ranking" else every
    assert scores["examples"] == len(own) and len(every) == 9
    before = load_file(Path(encoder) / "model.safetensors")
    after = load_file(tmp_path / "run" / "export" / "model.safetensors")
    moved = {
        k
        for k, v in before.items()
        if f"bert.{k}" in after
        and after[f"bert.{k}"].shape == v.shape
        and not np.array_equal(after[f"bert.{k}"], v)
    }
    assert any("query" in k for k in moved)


CONFIG = ROOT / "experiments" / "finetune" / "NCBI.yaml"


def start(encoder: str, folder: Path, task: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    words = arguments(
        CONFIG,
        task,
        encoder,
        folder,
        "--data.init_args.batch_size",
        "4",
        "--model.init_args.lr",
        "0.001",
        "--trainer.max_epochs",
        "4",
        *extra,
    )
    return subprocess.run(
        [sys.executable, "-m", "experiments.finetune", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=150,
    )


def test_several_processes_are_refused(encoder: str, tmp_path: Path, runs: Path) -> None:
    """The epoch is chosen, and the split scored, by one: the others would wait for it without
    end."""
    task = tasks.write(tmp_path / "t", "ner")
    done = start(
        encoder, tmp_path / "run", task, "--trainer.devices", "2", "--trainer.strategy", "ddp"
    )
    assert (
        done.returncode
        and "2 processes, but fine-tuning uses one device" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_killed_before_it_is_scored_a_run_records_what_an_undisturbed_one_does(
    encoder: str, tmp_path: Path, runs: Path
) -> None:
    """The chosen epoch is scored anew, and recorded once; what was not delivered goes with the next
    call."""

    def recorded(name: str) -> list[tuple[str, int, float]]:
        lines = map(json.loads, (tmp_path / name / "journal.jsonl").read_text().splitlines())
        return sorted(
            (line["metric"], line["step"], line["value"]) for line in lines if "metric" in line
        )

    task = tasks.write(tmp_path / "t", "ner")
    kill = (
        "--trainer.callbacks+=tests.experiments.callbacks.KillAtTest",
        f"--trainer.callbacks.marker={tmp_path / 'killed'}",
    )
    assert start(encoder, tmp_path / "whole", task).returncode == 0
    assert start(encoder, tmp_path / "cut", task, *kill).returncode == -signal.SIGKILL
    again = start(encoder, tmp_path / "cut", task, *kill)
    assert again.returncode == 0, again.stderr
    assert recorded("cut") == recorded("whole")
    known, lines = (
        tmp_path / "cut" / "mlflow.json",
        (tmp_path / "cut" / "journal.jsonl").read_bytes().splitlines(True),
    )
    # killed while it delivered
    write_json(known, read_json(known) | {"delivered": sum(map(len, lines[:-5]))})
    assert "already finished" in start(encoder, tmp_path / "cut", task, *kill).stderr
    assert read_json(known)["delivered"] == (tmp_path / "cut" / "journal.jsonl").stat().st_size
    (tmp_path / "cut" / "outcomes.parquet").unlink()
    lost = start(encoder, tmp_path / "cut", task, *kill)
    assert lost.returncode == 2 and "outcomes.parquet" in lost.stderr and "--fresh" in lost.stderr


@pytest.mark.parametrize(
    ("batches", "patience"),
    [
        (15, None),
        (15, 9),
        (9, 1),  # killed at the first batch after a validation
    ],
)
def test_a_killed_run_resumes_exactly_and_a_finished_one_says_so(
    batches: int, patience: int | None, encoder: str, tmp_path: Path, runs: Path
) -> None:
    task = tasks.write(tmp_path / "t", "ner")
    ends = ("--patience", str(patience)) if patience else ()
    whole = start(encoder, tmp_path / "whole", task, *ends)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    kill = (
        "--trainer.callbacks+=tests.experiments.callbacks.KillAt",
        f"--trainer.callbacks.batches={batches}",
        f"--trainer.callbacks.marker={tmp_path / 'killed'}",
        *ends,
    )
    cut = start(encoder, tmp_path / "cut", task, *kill)
    assert cut.returncode == -signal.SIGKILL and not (tmp_path / "cut" / "finished.json").exists()
    again = start(encoder, tmp_path / "cut", task, *kill)
    assert again.returncode == 0 and "resuming from" in again.stderr, again.stdout + again.stderr
    results = [read_json(tmp_path / name / "scores.json") for name in ("whole", "cut")]
    for key in ("score", "select", "epoch", "interval"):
        assert results[0][key] == results[1][key]
    assert (tmp_path / "whole" / "predictions.jsonl").read_text() == (
        tmp_path / "cut" / "predictions.jsonl"
    ).read_text()
    client = mlflow.MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    found = client.search_runs([client.get_experiment_by_name("NCBI").experiment_id])
    assert len(found) == 2, [(r.info.run_name, r.info.status, r.data.tags) for r in found]
    third = start(encoder, tmp_path / "cut", task, *kill)
    assert third.returncode == 0 and "already finished (FRESH=1" in third.stderr


def test_a_run_that_is_killed_after_patience_ended_it_trains_no_further(
    encoder: str, tmp_path: Path, runs: Path
) -> None:
    task = tasks.write(tmp_path / "t", "ner")
    still = ("--patience", "1", "--model.init_args.lr", "0", "--trainer.max_epochs", "4")
    whole = start(encoder, tmp_path / "whole", task, *still)
    assert "no higher score" in whole.stderr, whole.stdout + whole.stderr
    kill = (
        "--trainer.callbacks+=tests.experiments.callbacks.KillAtTest",
        f"--trainer.callbacks.marker={tmp_path / 'killed'}",
    )
    cut = start(encoder, tmp_path / "cut", task, *still, *kill)
    assert cut.returncode == -signal.SIGKILL
    again = start(encoder, tmp_path / "cut", task, *still, *kill)
    assert again.returncode == 0, again.stdout + again.stderr
    finished = [read_json(tmp_path / name / "finished.json") for name in ("whole", "cut")]
    assert finished[0] == finished[1] and 0 < finished[0]["steps"] < 4 * 6


def test_what_is_written_and_tracked(
    encoder: str, tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    task = tasks.write(tmp_path / "t", "ner")
    client = mlflow.MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    parent = client.create_run(
        client.create_experiment("NCBI", (tmp_path / "artifacts").as_uri())
    ).info.run_id
    extra = ("--trainer.max_epochs", "2", "--parent", parent, "--seed_everything", "3")
    scores = trained(monkeypatch, arguments(CONFIG, task, encoder, tmp_path / "run", *extra))
    predictions = [
        json.loads(line)
        for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()
    ]
    test = load_task(task).splits["test"]
    assert [(p["id"], [tuple(g) for g in p["gold"]]) for p in predictions] == [
        (e.id, e.entities) for e in test
    ]
    tallies = load_arrays(tmp_path / "run" / "outcomes.parquet")
    assert score(tallies["entity_f1"]) == scores["score"]["entity_f1"]
    rows = list(csv.reader((tmp_path / "run" / "confusion.csv").open()))
    assert sum(int(c) for r in rows[1:] if r[0] != "-" for c in r[1:]) == sum(
        len(e.entities) for e in test
    )
    assert (tmp_path / "run" / "loss.png").read_bytes()[:4] == b"\x89PNG"
    run = client.get_run(scores["mlflow_run"])
    assert run.data.tags["mlflow.parentRunId"] == parent and run.data.tags["seed"] == "3"
    assert run.data.metrics["test/entity_f1"] == scores["score"]["entity_f1"]
    assert {a.path for a in client.list_artifacts(run.info.run_id)} >= {
        "scores.json",
        "predictions.jsonl",
        "confusion.csv",
        "loss.png",
        "config.yaml",
        "README.md",
    }
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert (
        f"test was evaluated once: entity_f1 {scores['score']['entity_f1']:.4f}" in card
        and run.info.run_id in card
    )
    assert len(client.get_metric_history(run.info.run_id, "val/score")) >= 2
    manifest = read_json(tmp_path / "run" / "export" / "manifest.json")
    assert manifest["labels"] == ["disease", "drug"] and manifest["kind"] == "ner"


def test_the_scored_split_is_evaluated_once_after_selection(
    encoder: str, tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best epoch does not depend on the scored split, which only one loader ever reads."""
    from datamodules.finetune import FinetuneData

    monkeypatch.chdir(ROOT)
    read: list[str] = []
    original = FinetuneData.evaluation
    monkeypatch.setattr(
        FinetuneData,
        "evaluation",
        lambda self, split: (read.append(split), original(self, split))[1],
    )
    task = tasks.write(tmp_path / "t", "ner")
    results: list[dict[str, Any]] = []
    for name in ("a", "b"):
        if name == "b":  # other test examples, the same everything else
            tasks.write(tmp_path / "u", "ner", {"train": 24, "dev": 9, "test": 9}, seed=9)
            (task / "test.jsonl").write_text((tmp_path / "u" / "test.jsonl").read_text())
            manifest = read_json(task / "manifest.json")
            write_json(
                task / "manifest.json",
                manifest | {"sha256": manifest["sha256"] | {"test": sha256(task / "test.jsonl")}},
            )
        extra = ("--trainer.max_epochs", "3", "--model.init_args.lr", "0.003")
        results.append(
            trained(monkeypatch, arguments(CONFIG, task, encoder, tmp_path / name, *extra))
        )
        assert read.count("score") == 1 and read[-1] == "score"
        # once an epoch: what the best one returned is kept, not made again
        assert read.count("select") == 3
        read.clear()
    assert (
        results[0]["epoch"] == results[1]["epoch"] and results[0]["select"] == results[1]["select"]
    )


@pytest.mark.parametrize(
    ("scores", "patience", "ends"),
    [
        ([0, 0, 0, 0, 0.2, 0.1, 0.1, 0.3], 2, 7),  # epochs at 0 are not counted
        ([0, 0, 0, 0.2, 0.1, 0, 0.5], 2, 6),
        ([0, 0, 0, 0], 1, None),
        ([0.1, 0.1, 0.1], 2, 3),
    ],
)
def test_patience_is_counted_once_the_score_has_left_0(
    scores: list[float], patience: int, ends: int | None
) -> None:
    trainer: Any = SimpleNamespace(
        state=SimpleNamespace(fn="fit"),
        sanity_checking=False,
        fast_dev_run=False,
        should_stop=False,
        current_epoch=0,
        world_size=1,
        strategy=SimpleNamespace(reduce_boolean_decision=lambda stop, all: stop),
    )
    ending = Patience(patience)
    stopped = None
    for epoch, value in enumerate(scores, start=1):
        trainer.callback_metrics = {"val/score": torch.tensor(float(value))}
        ending.on_validation_end(trainer, None)  # type: ignore[arg-type]
        if trainer.should_stop and stopped is None:
            stopped = epoch
    assert stopped == ends
