"""What finds a difference between a disturbed run and an undisturbed one finds it, and every
pipeline has its stages."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from core.journal import Journal
from tests.faults.__main__ import COMMANDS, Ended, Trial, _one_error, main, summary
from tests.faults.outcome import STORE, differing, outcome
from tests.faults.pipelines import papers, steps, write_sources
from tests.faults.verbs import VerbStep, verb_steps, write_verb_sources


def test_every_pipeline_ends_in_a_fine_tuning(tmp_path: Path) -> None:
    assert len(papers()) >= 6
    for paper in papers():
        found = steps(paper, tmp_path / "work", tmp_path / "sources")
        assert [step.training for step in found[-2:]] == [True, True] and not any(
            step.training for step in found[:-2]
        )
        for step in found[:-1]:
            assert step.words[0] in ("core.call", "experiments.run")


def test_a_difference_is_found(tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'place' / STORE}")
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / STORE).rename(place / STORE)
    (place / "README.md").write_text("one\n")
    with Journal(runs / "a", "paper", "seed 0") as own:
        for step in range(3):
            own.metric("loss", step / 7, step)
    (place / "table.bin").write_bytes(b"12345")
    (place / "scores.json").write_text(json.dumps({"f1": 0.5, "rows": [1, 2]}))
    before = outcome(place)
    assert before["store: paper: loss at 2"] == 2 / 7 and before["scores.json:.f1"] == 0.5
    for change, name in (
        (lambda: (place / "table.bin").write_bytes(b"12346"), "table.bin"),
        (
            lambda: (place / "scores.json").write_text(json.dumps({"f1": 0.5, "rows": [1, 2, 2]})),
            "scores.json:.rows.2",
        ),
        (lambda: (place / "x.vm-1-2.partial").write_text(""), "x.vm-1-2.partial"),
        (lambda: (place / "README.md").write_text("two\n"), "README.md:0"),
    ):
        change()
        now = outcome(place)
        assert name in differing(before, now)
        before = now
    with sqlite3.connect(place / STORE) as database:  # a step that arrives twice
        database.execute(
            "insert into metrics select key, value, timestamp + 1, run_uuid, step, is_nan from"
            " metrics where step = 1"
        )
    assert differing(before, outcome(place)) == ["store: paper: loss at 1 (1 times more)"]


def test_what_is_said_of_faults() -> None:
    trials = [
        Trial("a", "s", "kill", True, []),
        Trial("a", "s", "kill", True, ["x"]),
        Trial("a", "s", "disk", False, []),
    ]
    assert (
        summary(trials)
        == "kill     survived 2 of 2, identical 1 of 2\ndisk     survived 0 of 1, identical 0 of 1"
    )
    assert _one_error(Ended(2, "a\nerror: the disk is full\n", 1.0)) and _one_error(
        Ended(0, "", 1.0)
    )
    assert not _one_error(Ended(1, "Traceback\nerror: x", 1.0)) and not _one_error(
        Ended(None, "error: x", 1.0)
    )


@pytest.mark.slow
def test_one_pipeline_survives(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_sources(tmp_path)
    assert (tmp_path / "cmekg" / "cmekg.pkl").is_file()
    assert main(["--papers", "sapbert", "--kills", "1", "--kinds", "kill", "disk"]) == 0
    assert "kill     survived 5 of 5, identical 5 of 5" in capsys.readouterr().out


def test_every_command_that_reads_or_writes_files_is_disturbed(tmp_path: Path) -> None:
    write_verb_sources(tmp_path / "sources")
    found = verb_steps(tmp_path / "work", tmp_path / "sources")
    commands = [step.words[1] for step in found if isinstance(step, VerbStep)]
    # a paper's `knowledge` is its pipeline, which has faults of its own, and then curves
    assert {*commands, "serve"} == set(COMMANDS)
    for step in found:
        if isinstance(step, VerbStep) and step.input:
            step.prepare()
            assert step.input.is_file() and str(step.input) in step.words


@pytest.mark.slow
def test_the_commands_survive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--papers", "verbs", "--kills", "1"]) == 0
    said = capsys.readouterr().out
    assert (
        "kill     survived 10 of 10, identical 10 of 10" in said
        and "input    survived 4 of 4, identical 4 of 4" in said
    )
