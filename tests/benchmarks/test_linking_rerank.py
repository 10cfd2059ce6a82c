"""Training and scoring a reranker by its command, on fake files."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main
from benchmarks.results import list_stored
from core.json_files import read_json
from datamodules.reranker import load_samples
from tests.fakes import bert
from tests.fakes import linking as fakes

pytestmark = pytest.mark.usefixtures("preloaded")
ARGS = "ARGS=--data.init_args.batch_size 1 --data.init_args.candidates 3 --data.init_args.context 8"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        bert.write(
            tmp_path_factory.mktemp("bert"),
            ["heart", "attack", "head", "hurts", "pain"],
            dropout=0.0,
        )
    )


def test_a_reranker_is_trained_scored_and_used(
    data: Path, tiny: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"DATA={data / 'NCBI-EL'}"
    assert (
        main(["rerank", "NCBI-EL", place, f"MODEL={tiny}", "EPOCHS=1", "SPLIT=dev", ARGS]) == 0
    ), capsys.readouterr().err
    said = capsys.readouterr().out
    assert said.count("NCBI-EL, dev") == 2 and "rerank" in said
    plain, ours = sorted(
        (r for r in list_stored("linking", "NCBI-EL") if not r.is_baseline),
        key=lambda r: len(r.options),
    )
    assert (
        ours.options["rerank"] == "trained"
        and "rerank" not in plain.options
        and ours.protocol == plain.protocol
    )
    assert (
        ours.model.identity != plain.model.identity and ours.details["linker"]["rerank"]["reranker"]
    )
    (samples,) = (runs / "data" / "reranker").glob("NCBI-EL-*/samples")
    parts = load_samples(samples)
    assert parts["held_out"] and any(sample.right for part in parts.values() for sample in part)
    assert read_json(samples / "manifest.json")["counts"]["train"] == len(parts["train"])
    # which dev's dictionary has, and train's has not
    added = {name.partition("||")[2] for name in fakes.TRAIN_NAMES}
    assert added and not any(
        c.partition("; ")[0] in added for part in parts.values() for s in part for c in s.candidates
    )
    (export,) = (runs / "reranker" / "train").glob("*/seed0/export")
    words = ["evaluate", "NCBI-EL", place, f"MODEL={tiny}", "SPLIT=dev"]
    assert main([*words, "RERANK=reranker"]) == 0, capsys.readouterr().err
    again = next(
        r for r in list_stored("linking", "NCBI-EL") if r.options.get("rerank") == "reranker"
    )
    assert again.scores == ours.scores
    assert main([*words, f"RERANK={export}"]) == 0
    assert all(
        "/" not in str(r.options.get("rerank", "")) for r in list_stored("linking", "NCBI-EL")
    )
    capsys.readouterr()
    assert main(["evaluate", "NCBI-EL", place, "MODEL=reranker"]) == 2
    assert "a reranker finds no candidates" in capsys.readouterr().err


def test_what_reranking_refuses(
    data: Path, tiny: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"DATA={data / 'NCBI-EL'}"
    for words, message in (
        (
            ["rerank", "NCBI-EL", place, f"MODEL={tiny}", "EPOCHS=0"],
            "EPOCHS=0: expected a number of at least 1",
        ),
        (
            ["rerank", "NCBI-EL", place, f"MODEL={tiny}", "START=sapbert/nothing"],
            "no finished run in runs/sapbert/nothing",
        ),
        (["rerank", "NCBI", place], "NCBI"),
        (
            ["evaluate", "NCBI-EL", place, "MODEL=tfidf", f"RERANK={tiny}"],
            "MODEL=tfidf is a baseline",
        ),
        (
            ["evaluate", "NCBI-EL", place, f"MODEL={tiny}", "RERANK=reranker"],
            "no finished run in runs/reranker",
        ),
        (["evaluate", "NCBI-E2E", place, "RERANK=reranker"], "end-to-end task has --chain"),
    ):
        assert main(words) == 2, words
        assert message in capsys.readouterr().err, words
