from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from core.files import InputError
from kg.vectors.embeddings import EmbeddingTable, read_text_vectors


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("two 3\n", r":1: expected 'n d'"),
        ("2 2\na 1 2\nb 1\n", ":3: expected an id and 2 values, got 1"),
        ("1 2\na 1 x\n", ":2: could not convert string to float: 'x'"),
        ("3 2\na 1 2\n", "promises 3 vectors, the file has 1"),
    ],
)
def test_broken_text_vectors(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read_text_vectors(tmp_path / "v.txt")


def test_text_vectors(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("2 3\nC1 1 2 3\nC2 -1 0.5 1e-3\n")
    table = read_text_vectors(tmp_path / "v.txt")
    assert table.entity_ids == ["C1", "C2"] and table.entity[1].tolist() == pytest.approx(
        [-1, 0.5, 1e-3]
    )
