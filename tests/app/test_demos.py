"""`kepl demo`: an available graph, a page with sentences to try."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app import demos, serve
from app.cli import main
from core.files import InputError
from datamodules.options import Files
from inference.chain import Pipeline
from tests.fakes import linking as fakes


@pytest.fixture
def medic(tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror with the demo's file, of fake diseases."""
    data = fakes.write(tmp_path / "data") / "NCBI-EL"
    monkeypatch.setattr(
        "datamodules.sources.fetched", lambda dataset, place, mirrors: mirrors[0] / dataset
    )
    return data.parent


def test_a_demo_builds_its_graph_once_and_serves_it(
    medic: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started: list[tuple[Pipeline, tuple[str, ...]]] = []
    monkeypatch.setattr(
        serve, "start", lambda pipeline, host, port, examples: started.append((pipeline, examples))
    )
    caplog.set_level("INFO")
    for kept in (False, True):
        assert main(["demo", "medic", f"MIRROR={medic}"]) == 0
        assert " entities, " in caplog.text
        assert ("kept: knowledge graph" in capsys.readouterr().err) is kept
        caplog.clear()
    pipeline, examples = started[0]
    assert (
        examples == demos.DEMOS["medic"].examples
        and pipeline.negation
        and not demos.DEMOS["cmekg"].english
    )
    with TestClient(serve.create_app(pipeline, examples=examples), "http://localhost") as asked:
        assert asked.get("/health").json()["examples"] == list(examples)
    assert "Retinal Tumor" in pipeline.graph.names["name"].to_pylist()


def test_a_demo_that_does_not_exist(capsys: pytest.CaptureFixture[str], runs: Path) -> None:
    assert main(["demo", "umls"]) == 2
    assert "hpo" in capsys.readouterr().err


@pytest.mark.parametrize("what", [name for name, demo in demos.DEMOS.items() if not demo.dataset])
@pytest.mark.slow
def test_the_sentences_of_a_demo_have_mentions(what: str, runs: Path) -> None:
    pipeline = Pipeline(demos.demo_graph(what, Files()))
    for mentions in pipeline.link(demos.DEMOS[what].examples):
        assert len(mentions) > 1


def test_an_address_that_cannot_be_had(medic: Path) -> None:
    pipeline = Pipeline(demos.demo_graph("medic", Files(mirror=[medic])))
    with pytest.raises(InputError, match="--host 127.0.0.1 --port 99999"):
        serve.start(pipeline, "127.0.0.1", 99999)
