"""What pre-trainings had measured, as results and as records."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pretraining import save_pretraining, save_pretrainings
from benchmarks.publish import publish
from core.json_files import write_json
from core.tracking import note_command
from experiments.pretrain import Pretrained, TrainedRun

LOSS = "val/loss_mlm"


def finished_run(runs: Path, stem: str, seed: int, loss: float) -> TrainedRun:
    """A run as `experiments.run` leaves and reports it."""
    folder = runs / "smedbert" / f"{stem}-{seed}"  # --run_folder may be any
    facts = {"commit": "abc", "seed": str(seed), "data.corpus": "c0", "python": "3.11"}
    write_json(folder / "environment.json", facts)
    end = {LOSS: loss, "val/tokens": 100.0}
    start = {LOSS: 9.0, "val/tokens": 100.0}
    return {
        "model": f"smedbert/{stem}",
        "run": f"0123456789ab-seed{seed}",
        "folder": str(folder),
        "checkpoints": str(folder / "checkpoints"),
        "export": str(folder / "export"),
        "tracking_uri": "",
        "start": start,
        "end": end,
        "steps": 7,
        "mlflow_run": "m",
    }


def test_a_pretraining_becomes_records_over_its_seeds(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, loss in ((0, 5.0), (1, 6.0)):
        note_command(["pretrain", "smedbert", "--seed", str(seed)])
        run = finished_run(runs, "pretrain", seed, loss)
        (result,) = save_pretrainings(Pretrained("", {"smedbert": run}, LOSS))
        assert (result.label, result.value(), result.value(group="start")) == ("smedbert", loss, 9)
        assert result.data == {"data.corpus": "c0"} and result.commit == "abc"
    note_command(["curve", "cMedQANER"])  # finds the run finished
    assert save_pretraining(run, LOSS).argv == ["pretrain", "smedbert", "--seed", "1"]
    _, records = publish([runs / "smedbert"], "g", root=runs / "checkout")
    means = {record.metric: (record.value, record.seeds) for record in records}
    assert means == {
        LOSS: (5.5, [0, 1]),
        "val/tokens": (100, [0, 1]),
        f"start, {LOSS}": (9, [0, 1]),
        "start, val/tokens": (100, [0, 1]),
    }
    loss_record = next(record for record in records if record.metric == LOSS)
    assert loss_record.sd == pytest.approx(0.7071, abs=1e-4)
    assert {len(record.argv) for record in records} == {4} and records[0].commit == "abc"


def test_a_run_that_is_trained_again_replaces_its_result(runs: Path) -> None:
    note_command(["pretrain", "smedbert", "--variants", "plain"])
    save_pretraining(finished_run(runs, "pretrain_plain", 0, 5.0), LOSS)
    result = save_pretraining(finished_run(runs, "pretrain_plain", 0, 4.0), "val/loss_sop")
    assert (result.model.name, result.metric) == ("smedbert/pretrain_plain", LOSS)
    assert result.value() == 4
