"""REHEARSE=: a paper-sized profile's own stages on synthetic inputs, what they take, and what the
whole run would."""

from __future__ import annotations

import copy
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from app.cli import main
from benchmarks.perf import rehearse
from benchmarks.perf.rehearse import (
    Cost,
    amount,
    config_of,
    duration,
    hours,
    laid_over,
    overlay,
    whole_run,
    whole_stage,
)
from core.files import InputError, lock_file
from core.json_files import read_json
from experiments import pretrain
from experiments.finetuned_names import NotTrained
from experiments.machine import Inputs, Machine
from experiments.meter import DEVICE_LOCK, Meter, alone, flop, product_peak, real_lengths
from experiments.names import encoder
from experiments.stages import Stage
from models.packing import Packing
from tests.preload import INTERPRETER

pytestmark = pytest.mark.usefixtures("preloaded")

REHEARSED = [
    p
    for p in pretrain.papers()
    if "rehearsal" in pretrain.pipeline_of(p)["profiles"].get("paper", {})
]
SHORT = {
    "kg.vectors.train": "--epochs 1 --held_out 10",
    "experiments/kg/transr.yaml": "--warm_epochs 1 --dim 8 --relation_dim 8",
}


def tiny(paper: str) -> dict[str, Any]:
    """The paper's pipeline with a small encoder and one epoch of graph embedding."""
    found = copy.deepcopy(pretrain.pipeline_of(paper))
    profile = found["profiles"]["paper"]
    sizes = {"layers": 2, "hidden": 32, "heads": 4, "intermediate": 64}
    profile["rehearsal"]["inputs"]["ENCODER"] |= sizes | (
        {} if "larger" in profile["rehearsal"] else {"layers": 3}
    )
    profile["rehearsal"]["micro_batch"] = 4
    for stage in profile["stages"]:
        stage["run"] += "".join(f" {more}" for word, more in SHORT.items() if word in stage["run"])
    return found


#: the one with the fewest stages on every change; those of ten seconds or more nightly
@pytest.mark.parametrize(
    "paper", [p if p == "sapbert" else pytest.param(p, marks=pytest.mark.slow) for p in REHEARSED]
)
def test_a_rehearsal_runs_every_stage_of_the_profile(
    paper: str, runs: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its order, on inputs of its own; the table names each; no MODEL= accepts the result as a
    model."""
    pipeline = tiny(paper)
    monkeypatch.setattr(pretrain, "pipeline_of", lambda name: pipeline)
    monkeypatch.setattr(rehearse, "pipeline_of", lambda name: pipeline)
    (runs / "rehearsals").mkdir(parents=True)
    shutil.copyfile(empty_store, runs / "rehearsals" / "mlflow.db")
    told = rehearse.run_rehearsal(paper, "paper", 2, 1e-5, Inputs(), Machine(devices=1, workers=1))
    profile = pipeline["profiles"]["paper"]
    given = set(profile["rehearsal"]["inputs"])
    titles = [s["title"] for s in profile["stages"] if s.get("unless") not in given]
    titles += [v["title"] for v in pretrain.chosen_variants(pipeline, "paper", ()).values()]
    lines = told.splitlines()
    places = [
        next(i for i, line in enumerate(lines) if line.startswith(f"{title}  ")) for title in titles
    ]
    assert places == sorted(places) and len(set(places)) == len(titles) > 2
    assert (
        "2 steps, 1 x process on the CPU, float32; 4 examples a step, a micro-batch of the paper's"
        in told
    )
    home = runs / "rehearsals" / paper
    meter = read_json(home / "meter.json")
    assert (
        meter["steps"] == 2
        and meter["tokens"] > 40
        and meter["flop"] > 0
        and meter["peak"] > meter["flop"] / meter["seconds"]
    )
    (finished,) = (home / "runs").glob("*/*/*/seed0/finished.json")
    assert read_json(finished)["steps"] == 2
    assert not (runs / paper).exists()
    with pytest.raises(NotTrained):
        encoder(paper)


def test_every_paper_can_be_rehearsed() -> None:
    assert [p for p in pretrain.papers() if p != "zh"] == REHEARSED  # which no paper describes
    for paper in REHEARSED:
        profile = pretrain.pipeline_of(paper)["profiles"]["paper"]
        needed = set(profile.get("needs", {}))
        # nothing of it is asked of a hub
        assert needed | {"ENCODER"} <= set(profile["rehearsal"]["inputs"]), paper


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SCALE=0.01"], "SCALE=0.01: the size of a rehearsal; give REHEARSE=<steps>"),
        (["REHEARSE=0", "PROFILE=paper"], "REHEARSE=0: expected a number of steps, 1 or more"),
        (["REHEARSE=two", "PROFILE=paper"], "REHEARSE=two: expected a whole number"),
        (
            ["REHEARSE=2", "PROFILE=paper", "SCALE=2"],
            "SCALE=2: expected a share of the paper's data, above 0 and at most 1",
        ),
        (["REHEARSE=2", "PROFILE=paper", "SCALE=0"], "SCALE=0: expected a share"),
        (["REHEARSE=2"], "kebiolm has no rehearsal of PROFILE=small; take PROFILE=paper"),
        (["REHEARSE=2", "PROFILE=paper", "UMLS=/u"], "UMLS=: a rehearsal writes its own"),
    ],
)
def test_settings_that_do_not_go_together(
    words: list[str], message: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pretrain", "kebiolm", *words]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith("error: ") and message in said[0]
    assert not (runs / "rehearsals").exists()


def test_a_pipeline_without_a_rehearsal(runs: Path) -> None:
    with pytest.raises(
        InputError, match="zh has no rehearsal of PROFILE=paper; its pipeline.yaml has no rehearsal"
    ):
        rehearse.check("zh", "paper", 2, 0.1, Inputs())


def test_a_plan_is_the_profiles_own_with_its_inputs_replaced(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word for word what PROFILE=paper runs; what is laid over the training comes before the
    pipeline's own words."""
    monkeypatch.setattr(pretrain, "gpus", lambda: 0)
    told = rehearse.run_rehearsal(
        "kebiolm", "paper", 2, None, Inputs(), Machine(devices=2, workers=1), plan=True
    )
    found = [line for line in told.splitlines() if line.startswith("python ")]
    home = runs / "rehearsals" / "kebiolm"
    own = home / "inputs"
    inputs = Inputs(
        umls=own / "umls", corpus=(str(own / "corpus.jsonl"),), encoder=str(own / "encoder")
    )
    plain = pretrain.commands(
        "kebiolm", "paper", home / "work", inputs, Machine(devices=2, workers=1), plan=True
    )
    assert found[:-1] == [s.command for s in plain[:-1]]
    training = found[-1].split()
    assert training.index(str(home / "rehearsal.yaml")) < training.index(
        "--model.init_args.encoder"
    )
    assert "experiments/common/cpu.yaml" in training and not home.exists()


def test_two_rehearsals_of_a_paper_at_once(runs: Path) -> None:
    with (
        lock_file(runs / "rehearsals" / "sapbert.lock", "w", ""),
        pytest.raises(InputError, match="another rehearsal of sapbert"),
    ):
        rehearse.run_rehearsal("sapbert", "paper", 1, None, Inputs(), Machine(devices=1))


# --- figures --------------------------------------------------------------------------------------


def test_flop_of_a_batch() -> None:
    """6 x parameters x tokens, and for each layer two products of length x hidden a token, forward
    once and backward twice."""
    assert flop(10, 7, 0, 0, 0) == 6 * 10 * 7
    # tokens, layers, passes, two products of 2 x hidden x length
    assert flop(0, 7, 2, 5, 3) == 7 * 2 * 3 * (2 * 2 * 5 * 3)
    assert flop(85.1e6, 512, 12, 768, 512) == pytest.approx(2.6e11 + 2.9e10, rel=0.01)


def test_the_meter_counts_what_passes_the_layers() -> None:
    """Against the parameters and shapes of a BERT; what runs without gradients is not counted."""
    bert = BertModel(
        BertConfig(
            vocab_size=20,
            hidden_size=8,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=16,
        )
    )
    meter = Meter("unused")
    module: Any = nn.ModuleDict({"bert": bert})
    trainer: Any = type(
        "T", (), {"strategy": type("S", (), {"root_device": torch.device("cpu")})()}
    )()
    meter.on_train_start(trainer, module)
    bert(torch.ones(2, 5, dtype=torch.long))
    with torch.no_grad():
        bert(torch.ones(2, 5, dtype=torch.long))
    parameters = sum(p.numel() for p in bert.encoder.parameters())
    assert meter.tokens == 10 and meter.flop == flop(parameters, 10, 3, 8, 5)
    with pytest.raises(InputError, match="Linear: no transformer layers"):
        Meter("unused").on_train_start(trainer, nn.Linear(2, 2))  # type: ignore[arg-type]


def test_padding_is_not_counted() -> None:
    """Of every kind of mask that a layer accepts."""
    lengths = torch.tensor([2, 5, 4])
    flat = torch.arange(5) < lengths[:, None]
    both = flat[:, None, None, :].expand(3, 1, 5, 5)
    causal = both & torch.ones(5, 5).tril().bool()
    added = torch.zeros(3, 1, 5, 5).masked_fill(~both, float("-inf"))
    offsets = torch.tensor([0, 2, 7, 11])
    for mask in (flat, flat.long(), both, causal, added, Packing(flat, offsets, 5)):
        assert real_lengths(3, 5, mask).tolist() == [2, 5, 4]
    assert real_lengths(3, 5, None).tolist() == [5, 5, 5]


def test_one_process_at_a_time_measures_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEVICE_LOCK, str(tmp_path / "lock"))
    entered: list[int] = []
    with ThreadPoolExecutor(1) as threads:

        def enter() -> None:
            with alone():
                entered.append(1)

        with alone():
            waiting = threads.submit(enter)
            time.sleep(0.2)
            assert not entered
        waiting.result()
    assert entered


def test_the_meter_refuses_a_loss_that_is_not_finite() -> None:
    trainer: Any = type("T", (), {"global_step": 3})()
    with pytest.raises(InputError, match="the loss became nan in step 3"):
        Meter("unused").on_train_batch_end(trainer, None, {"loss": torch.tensor(float("nan"))})  # type: ignore[arg-type]


def test_the_peak_is_that_of_a_product() -> None:
    assert product_peak(torch.device("cpu"), torch.float32, 64, 0.01) > 1e7


METER = {"flop": 8e12, "batch": 4, "examples": 1000, "layers": 12, "hidden": 768}


def test_the_papers_run_from_a_rehearsed_step() -> None:
    passes = {"trainer": {"max_epochs": 2}, "data": {"init_args": {"batch_size": 512}}}
    steps = {
        "trainer": {"max_epochs": -1, "max_steps": 80000},
        "data": {"init_args": {"batch_size": 384}},
    }
    one = whole_run(METER, passes, 0.001)
    assert (one.steps, one.flop) == (2 * 1_000_000 / 512, 2e12 * 2_000_000)
    other = whole_run(METER, steps, 0.001, 3.0)
    assert (other.steps, other.flop) == (80000, 3 * 2e12 * 80000 * 384)
    assert rehearse.times_larger(
        {"larger": {"layers": 24, "hidden": 1024}}, METER
    ) == pytest.approx(3.556, abs=0.001)
    assert rehearse.times_larger({}, METER) == 1
    assert hours(7.2e18, 2, 1e12, 0.5) == 2000


def test_a_stage_at_the_papers_size() -> None:
    """What it takes to start is there once; a stage that ran no longer than its start takes no less
    at the paper's size."""
    assert whole_stage(Cost("x", 6.0, 4.0, 0, 0), 0.01) == 204
    assert whole_stage(Cost("x", 3.0, 4.0, 0, 0), 0.01) == 4


def test_the_config_of_a_training_is_the_profiles(tmp_path: Path) -> None:
    own = tmp_path / "rehearsal.yaml"
    own.write_text("trainer: {max_steps: 2}")
    words = [
        "--config",
        "experiments/kebiolm/pretrain.yaml",
        "--config",
        str(own),
    ]
    config = config_of(Stage("x", "experiments.run", words), own)
    assert config["data"]["init_args"]["batch_size"] == 512 and config["trainer"]["max_epochs"] == 2
    assert "max_steps" not in config["trainer"]


def test_what_is_laid_over_a_training(tmp_path: Path) -> None:
    rehearsal = {"micro_batch": 3, "settings": {"trainer": {"limit_val_batches": 1.0}}}
    found = overlay(rehearsal, 5, 2, False, tmp_path / "m.json")
    assert found["data"]["init_args"] == {"batch_size": 6, "eval_batch_size": 3}
    assert found["trainer"]["max_steps"] == 5 and found["trainer"]["limit_val_batches"] == 1.0
    # a GPU keeps the paper's batch
    assert "data" not in overlay({"micro_batch": 3}, 5, 8, True, tmp_path / "m.json")
    assert laid_over([{"a": {"b": 1, "c": 2}, "d": 1}, {"a": {"b": 3}, "d": {"e": 4}}]) == {
        "a": {"b": 3, "c": 2},
        "d": {"e": 4},
    }


def test_amounts_are_said_with_a_prefix() -> None:
    assert [amount(n, "B") for n in (0, 999, 1234, 4.4e9, 312e12)] == [
        "0 B",
        "999 B",
        "1.2 kB",
        "4.4 GB",
        "312 TB",
    ]
    assert [duration(s) for s in (41, 720, 12240, 441000)] == [
        "41 s",
        "12 min",
        "3.4 h",
        "5.1 days",
    ]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc on this system")
def test_memory_is_that_of_all_processes_below() -> None:
    """Two at once are added up; what this process holds is not counted."""
    # in a process of its own: the one of the tests has children that come and go
    program = """if True:
        import subprocess, sys
        from benchmarks.perf import rehearse
        child = [sys.executable, "-c", "import time; x = bytearray(200_000_000); time.sleep(1)"]
        with rehearse.Memory(0.02) as memory:
            for process in [subprocess.Popen(child) for _ in range(2)]:
                process.wait()
        print(memory.peak)
    """
    measured = subprocess.run([INTERPRETER, "-c", program], capture_output=True, check=True)
    assert 4e8 < int(measured.stdout) < 5e8
