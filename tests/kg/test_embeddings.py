from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from core.files import InputError
from kg.vectors.embeddings import EmbeddingTable


def small() -> EmbeddingTable:
    return EmbeddingTable(
        torch.arange(6.0).view(3, 2),
        ["a", "b c", "d"],
        torch.ones(1, 2),
        ["is_a"],
        torch.eye(2)[None],
        {"graph": "g"},
    )


def test_round_trip(tmp_path: Path) -> None:
    small().save(tmp_path / "t")
    again = EmbeddingTable.load(tmp_path / "t")
    assert torch.equal(again.entity, small().entity) and again.entity_ids == ["a", "b c", "d"]
    assert again.relation_ids == ["is_a"] and torch.equal(again.projection, torch.eye(2)[None])
    assert again.manifest["graph"] == "g"


def test_rows_and_ids_must_correspond() -> None:
    with pytest.raises(InputError, match="3 rows but 2 ids"):
        EmbeddingTable(torch.zeros(3, 2), ["a", "b"])
    with pytest.raises(InputError, match="more than once"):
        EmbeddingTable(torch.zeros(2, 2), ["a", "a"])


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    small().save(tmp_path / "t")
    file = tmp_path / "t" / "embeddings.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"embeddings\.safetensors: missing, or not the file"):
        EmbeddingTable.load(tmp_path / "t")
    with pytest.raises(InputError, match="no embedding table here"):
        EmbeddingTable.load(tmp_path / "nothing")


def test_a_table_of_another_graph_is_named(tmp_path: Path) -> None:
    small().check_graph(pa.array(["a", "b c", "d"]), "G")
    with pytest.raises(InputError, match="does not match the graph G .*entity 'x' has no row"):
        small().check_graph(pa.array(["a", "b c", "x"]), "G")
    with pytest.raises(InputError, match="order or number"):
        small().check_graph(pa.array(["b c", "a", "d"]), "G")
