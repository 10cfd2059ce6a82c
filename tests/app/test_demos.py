"""`kepl demo`: an available graph, a page with sentences to try."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
        "datamodules.sources.fetch_dataset", lambda dataset, place, mirrors: mirrors[0] / dataset
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


def test_a_demo_with_translations_gives_them_to_its_graph(
    medic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[object, ...]] = []

    def build(source: str, path: Path | None, folder: Path, translations: list[Path]) -> Any:
        given.append((source, path, folder.name, translations))
        return SimpleNamespace(counts=lambda: {"entities": 2})

    monkeypatch.setattr("kg.build.source.build_graph", build)
    folder = demos.demo_graph("hpo-zh", Files(mirror=[medic]))
    file = medic / "HPO-zh" / "hp-zh.babelon.tsv.gz"
    assert given == [("hpo", None, "demo-hpo-zh", [file])] and folder.name == "demo-hpo-zh"


def test_a_server_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[tuple[object, ...]] = []
    prepared: list[bool] = []
    pipeline: Any = SimpleNamespace(prepare=lambda: prepared.append(True))
    monkeypatch.setattr(serve, "uses_gpu", lambda: True)
    monkeypatch.setattr(serve, "create_app", lambda *given: given)
    monkeypatch.setattr(serve, "serve_until_stopped", lambda *given: served.append(given))
    serve.start(pipeline, "127.0.0.1", 0)
    ((application, listening, seconds, connections),) = served
    number = listening.getsockname()[1]  # type: ignore[attr-defined]
    listening.close()  # type: ignore[attr-defined]
    place = f"http://127.0.0.1:{number}"
    said = f"{place}  (interface: {place}/docs; Ctrl+C ends it)\n"
    assert capsys.readouterr().out == said and prepared == [True]
    assert application[3] == ["127.0.0.1"] and application[5] is None  # type: ignore[index]
    assert (seconds, connections) == (serve.Limits().seconds, 1000)
