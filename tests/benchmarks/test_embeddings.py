"""`kepl graph embed` keeps what link prediction came to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.embeddings import Embedding
from benchmarks.results import list_stored, save_result
from core.artifact import content_digest, read_manifest, write_manifest
from core.tracking import note_command
from tests.kg.test_train import ladder

pytestmark = pytest.mark.usefixtures("preloaded")


def test_link_prediction_is_a_result(runs: Path, tmp_path: Path) -> None:
    graph, out = ladder(tmp_path / "ladder"), str(tmp_path / "table")
    settings = {"model": "TransR", "dim": 8, "epochs": 1, "warm_epochs": 2, "held_out": 10}
    table = Embedding(graph=graph, out=out, **settings).run()
    (result,) = list_stored("embedding")
    assert result.task == "link prediction of ladder by TransR"
    assert result.value() == table.manifest["scores"]["mrr"] > 0
    assert result.value(group="warm start") == table.manifest["warm_scores"]["mrr"]
    assert result.protocol["warm_epochs"] == 2 and result.commit == table.manifest["commit"]
    assert result.data == {"graph": table.manifest["graph"], "table": content_digest(out)}
    save_result(replace(result, argv=["graph", "embed"]), result.folder)
    note_command(["pretrain", "smedbert"])
    Embedding(graph=graph, out=out, **settings).run()  # the table is kept, and who made it
    assert [stored.argv for stored in list_stored("embedding")] == [["graph", "embed"]]
    manifest = read_manifest(out)
    write_manifest(out, manifest | {"commit": "older"})
    Embedding(graph=graph, out=out, **settings).run()  # the table is kept: another commit made it
    assert [stored.commit for stored in list_stored("embedding")] == ["older"]


def test_what_holds_out_nothing_has_no_result(runs: Path, tmp_path: Path) -> None:
    graph = ladder(tmp_path / "ladder")
    Embedding(graph=graph, out=str(tmp_path / "t"), dim=8, epochs=1, held_out=0).run()
    assert list_stored("embedding") == []
