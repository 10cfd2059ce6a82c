"""MEDIC from CTD's table and from BioSyn's lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.files import InputError
from datamodules.linking import readers as formats
from kg.build import source as build
from kg.build.sources import medic
from kg.graph import KnowledgeGraph
from tests.fakes import medic as fake

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "en_dict" / "medic_06Jul2012.txt.gz"


@pytest.mark.parametrize("form", ["tsv", "csv"])
def test_ctds_table(tmp_path: Path, form: str) -> None:
    graph = build.build_graph("medic", fake.write(tmp_path, form), tmp_path / "graph")
    acidosis = 'Renal tubular acidosis, "distal"'
    assert graph.entities.to_pylist() == [
        {"id": i, "name": n, "type": "disease"}
        for i, n in (("C", "Diseases"), ("D007674", "Kidney Diseases"), ("179800", acidosis))
    ]
    assert [(row["id"], row["name"], row["kind"]) for row in graph.names.to_pylist()] == [
        ("C", "Diseases", "preferred"),
        ("D007674", "Kidney Diseases", "preferred"),
        ("D007674", "Disease, Kidney", "synonym"),
        ("D007674", "Nephropathy", "synonym"),
        ("179800", acidosis, "preferred"),
        ("179800", "RTA", "synonym"),
        ("179800", "dRTA", "synonym"),
    ]
    assert [tuple(row.values()) for row in graph.triples.to_pylist()] == [
        ("D007674", "is_a", "C"),
        ("179800", "is_a", "D007674"),
    ]
    assert graph.definitions.to_pylist() == [
        {"id": "D007674", "text": "Diseases of the kidney, or of its parts."}
    ]
    assert graph.manifest["alternatives"] == {"179800": ["C537758", "611590"]}
    assert graph.manifest["left_out"] == {
        "further lines of a concept (merged)": 0,
        "parents that are not in the file": 1,
    }
    assert KnowledgeGraph.load(tmp_path / "graph").counts()["names"] == 7
    before = (tmp_path / "graph" / "manifest.json").stat().st_ino
    build.build_graph("medic", tmp_path / f"CTD_diseases.{form}.gz", tmp_path / "graph")
    assert (tmp_path / "graph" / "manifest.json").stat().st_ino == before


def test_the_graph_has_the_dictionarys_concepts(tmp_path: Path) -> None:
    path = fake.write(tmp_path, "txt")
    medic.read(path).save(tmp_path / "graph")
    own, graphs = formats.medic(path), formats.graph_dictionary(tmp_path / "graph")
    assert (own.ids, own.names, own.alternatives) == (graphs.ids, graphs.names, graphs.alternatives)
    assert graphs.concepts_of(["611590"]) == {"179800"} and formats.medic(
        fake.write(tmp_path)
    ).ids == ["C", "D007674", "D007674", "D007674", "179800", "179800", "179800"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "A\tMESH:D1\n", "a.tsv:1: expected the columns DiseaseName, .* got 2"),
        ("a.csv", "A,MESH:D1,,,,,,\n,MESH:D2,,,,,,\n", "a.csv:2: concept 'D2' without a name"),
        ("a.csv", "A,,,,,,,\n", "a.csv:1: a dictionary line without an id"),
        ("a.tsv", "# only\n", "no concepts in it"),
        ("a.txt", "D1|||A\n||B\n", "a.txt:2: a dictionary line without an id"),
        ("a.txt", "D1||A\nD1 A\n", r"a.txt:2: expected id\|\|name"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        medic.read(tmp_path / name)


@pytest.mark.data
@pytest.mark.skipif(not REAL.is_file(), reason="shared/data is not here")
def test_medic_of_july_2012() -> None:
    graph = medic.read(REAL)
    assert graph.counts()["entities"] == 11_915 and len(graph.names) == len(
        formats.medic(REAL).names
    )
