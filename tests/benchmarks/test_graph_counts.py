"""`kepl graph info` prints what is in a graph and keeps its sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.publish import publish
from benchmarks.results import list_stored
from core.artifact import content_digest
from tests.commands import command
from tests.fakes.graphs import graph

count = command("graph info")


def test_sizes_are_a_result(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "heart"
    saved = graph({"D1": "disease", "H1": "herb"}, [("D1", "treated by", "H1")])
    saved.save(folder)
    assert count([str(folder)]) == 0
    assert "entities            2\n" in capsys.readouterr().out
    (result,) = list_stored("graph")
    assert result.task == "counts of heart" and result.scores == {"overall": saved.counts()}
    assert result.data == {"graph": content_digest(folder)}
    assert count([str(folder), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["types"] == {"disease": 1, "herb": 1}
    assert len(list_stored("graph")) == 1  # the same graph, counted again


def test_published_counts_have_no_decimals(runs: Path, tmp_path: Path) -> None:
    graph({"D1": "disease"}, []).save(tmp_path / "heart")
    assert count([str(tmp_path / "heart")]) == 0
    (result,) = list_stored("graph")
    _, records = publish([Path(result.folder)], "counts", root=tmp_path)
    entities = next(record for record in records if record.id == "counts-of-heart-entities")
    assert (entities.value, entities.digits) == (1, 0) and entities.data == result.data


def test_a_folder_without_a_graph_keeps_nothing(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert count([str(tmp_path)]) == 2
    assert "no knowledge graph here" in capsys.readouterr().err
    assert list_stored("graph") == []
