"""The picture of how far KeBioLM's entity vectors move, from runs' journals."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from app.cli import main
from core.journal import Journal


def run(folder: Path, values: dict[str, list[float]]) -> Path:
    with Journal(folder, "kebiolm", "a run") as journal:
        for key, own in values.items():
            for step, value in enumerate(own):
                journal.metric(key, value, 20 * step)
    return folder


def test_curves_of_runs(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert (
        main(["figures", "kebiolm"]) == 2
        and "Run `make pretrain-kebiolm`" in capsys.readouterr().err
    )
    cosine = {
        "entities/cosine_to_start": [1.0, 0.9, 0.5],
        "entities/cosine_to_start_unseen": [1.0, 1.0, 0.75],
    }
    run(runs / "kebiolm" / "pretrain" / "abc" / "seed0", cosine)
    run(runs / "kebiolm" / "pretrain_mlm" / "def" / "seed0", {"val/loss": [1.0]})
    assert main(["figures", "kebiolm", f"OUT={tmp_path}"]) == 0
    assert "so not drawn: pretrain_mlm/def/seed0" in caplog.text
    with (tmp_path / "cosine_to_start.csv").open() as handle:
        header, *rows = csv.reader(handle)
    assert header == ["run", "entities", "step", "cosine"] and len(rows) == 6
    assert rows[2] == ["pretrain/abc/seed0", "all", "40", "0.500000"] and rows[5][1:] == [
        "never mentioned",
        "40",
        "0.750000",
    ]
    assert (tmp_path / "cosine_to_start.png").read_bytes()[:4] == b"\x89PNG"
    assert (
        main(
            [
                "figures",
                "kebiolm",
                f"RUN={runs / 'kebiolm' / 'pretrain' / 'abc' / 'seed0'}",
                f"OUT={tmp_path}",
            ]
        )
        == 0
    )
    assert (
        main(["figures", "kebiolm", f"RUN={tmp_path}"]) == 2
        and "no journal of a run here" in capsys.readouterr().err
    )
    (tmp_path / "cosine_to_start.csv").write_text("mine")
    assert main(["figures", "kebiolm", f"OUT={tmp_path}"]) == 2
    assert "cosine_to_start.csv: exists" in capsys.readouterr().err
    assert (tmp_path / "cosine_to_start.csv").read_text() == "mine"
    assert main(["figures", "kebiolm", f"OUT={tmp_path}", "--fresh"]) == 0
