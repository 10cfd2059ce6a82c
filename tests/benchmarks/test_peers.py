"""Chains beside other people's linkers: the programs in processes of their own, the table, and what
cannot be run."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from benchmarks import peers
from benchmarks.commands import Evaluate
from benchmarks.linking.ends import score_chain
from benchmarks.results import list_stored
from core.files import InputError
from datamodules.options import Files
from tests.fakes import linking as fakes

TASK = "BC5CDR-disease-E2E"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return fakes.write(tmp_path / "data") / "BC5CDR-EL"


def test_a_chain_in_a_process_scores_what_it_scores_here(data: Path, runs: Path) -> None:
    (here,) = [score_chain(Evaluate(task=TASK, files=Files(data=data)))]
    annotated, (run, *_) = peers.compare_peers(
        TASK, ["dictionary"], ["phrases"], files=Files(data=data)
    )
    assert run.ours and run.result is not None and run.result.label == here.label
    assert run.result.scores == here.scores and run.result.protocol == here.protocol
    lines = (Path(here.folder) / "predictions.jsonl").read_text().splitlines()
    assert set(annotated.texts) == {json.loads(line)["id"] for line in lines}
    details = run.result.details
    assert details["sentences_a_second"] > details["texts_a_second"] > 0
    assert 20 < details["memory"] < 20_000 and details["start_seconds"] > 0


def test_peers_are_compared_with_our_chains(
    data: Path, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that cannot be installed, and one that fails, are rows with the reason; the command
    continues and succeeds."""
    real = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        if "pip" in command:
            assert command[-1] == "gilda==1.6.1"
            return subprocess.CompletedProcess(
                command, 1, "", "WARNING: x\nERROR: No matching distribution found for gilda\n"
            )
        return (
            subprocess.CompletedProcess(command, 0)
            if "venv" in command
            else real(command, **options)
        )

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(peers, "CACHE", runs / "cache")
    broken = peers.Peer(
        "a broken one", "chain", options={"chain": "nobody", "nil": None, "linker": {}}
    )
    monkeypatch.setitem(peers.PEERS, "broken", broken)
    names = ["gilda", "phrases", "broken", "scispacy-tagger"]
    assert (
        main(
            [
                "peers",
                TASK,
                "CHAINS=dictionary; dictionary > names",
                f"PEERS={' '.join(names)}",
                f"DATA={data}",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out.splitlines()
    row = {
        cells[1].strip(): cells[2:]
        for cells in (line.split("|") for line in said)
        if len(cells) > 3
    }
    assert (
        row["gilda"][0].strip() == "not installed: ERROR: No matching distribution found for gilda"
    )
    assert (
        "failed: " in row["a broken one"][0]
        and "'nobody' finds no mentions" in row["a broken one"][0]
    )
    assert "no chain of BC5CDR-disease-E2E has a tagger" in row["tagger > scispaCy's candidates"][0]
    assert (
        row["dictionary"][:3] == row["dictionary > names"][:3]
        and float(row["spaCy PhraseMatcher"][2]) > 0
    )
    against = [
        line
        for line in said
        if line.startswith("dictionary") and "strict F1, against spaCy PhraseMatcher: " in line
    ]
    assert len(against) == 1 and "paired bootstrap" in against[0]
    assert any(
        "times the sentences a second, " in line and line.endswith(" points") for line in said
    )
    table = (runs / "tables" / f"peers_{TASK}_dev.csv").read_text().splitlines()
    assert len(table) == 1 + 2 + len(names) and table[0].startswith(",strict P,R,F1")
    assert {r.model.name for r in list_stored("linking", TASK)} == {
        "dictionary",
        "dictionary > names",
        "peer phrases",
    }


def test_phrases_keep_the_longest_and_know_no_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "AT_ONCE", 1)
    names = [
        ("A", "heart attack", "preferred", ""),
        ("B", "Heart", "preferred", ""),
        ("B", "cor", "synonym", ""),
    ]
    answer = peers.in_a_process(
        sys.executable,
        "phrases",
        peers.write_lines(tmp_path / "names.jsonl", names),
        peers.write_lines(
            tmp_path / "texts.jsonl", [("1", "A HEART attack of the heart, cor."), ("2", "nothing")]
        ),
        {},
        tmp_path / "out.json",
    )
    assert answer["found"] == {"1": [[2, 14, "A"], [22, 27, "B"], [29, 32, "B"]], "2": []}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nmslib") is None, reason="needs the extra scispacy")
def test_scispacy_links_what_a_detector_finds(data: Path, runs: Path) -> None:
    _, (_, run) = peers.compare_peers(TASK, ["dictionary"], ["scispacy"], files=Files(data=data))
    assert run.result is not None, run.reason
    ours, theirs = (
        next(r for r in list_stored("linking", TASK) if r.model.name == n)
        for n in ("dictionary", "peer scispacy")
    )
    # the same mentions; names are in the dictionary as they are
    assert theirs.scores["detection"] == ours.scores["detection"]
    assert theirs.scores["overall"]["precision"] > 0


def test_what_cannot_be_asked_for(
    data: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, expected in (
        (["NCBI-EL"], "TASK=NCBI-EL: expected an end-to-end task: NCBI-E2E,"),
        ([TASK, "PEERS=gilde"], "PEERS=gilde: did you mean gilda? Choose from: gilda, phrases"),
        ([TASK, "CHAINS=minilm > names"], "'minilm' finds no mentions"),
    ):
        assert main(["peers", *words, f"DATA={data}"]) == 2
        assert expected in capsys.readouterr().err


def test_missing_models_are_trained_first(monkeypatch: pytest.MonkeyPatch, runs: Path) -> None:
    made: list[object] = []
    monkeypatch.setattr(peers, "score_seeds", lambda asked: made.append((asked.task, asked.model)))
    monkeypatch.setattr(peers, "pretrain", made.append)
    peers.train_missing(
        ["dictionary", "NCBI/minilm + BC5-disease/minilm > names", "dictionary > sapbert"], Files()
    )
    assert made == [("NCBI", "minilm"), ("BC5-disease", "minilm"), "sapbert"]
    with pytest.raises(InputError, match="'minilm' finds no mentions"):
        peers.train_missing(["minilm > names"], Files())
