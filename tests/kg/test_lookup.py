"""Entities by name and by id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from core.files import InputError
from kg.build.lookup import NameSearch, describe_entity
from kg.graph import KnowledgeGraph
from tests.fakes.graphs import graph

NAMES = [
    ("HP:0001250", "fits", "exact", "en"),
    ("HP:0001250", "Séizures, generalised", "related", "en"),
    ("HP:0000002", "fit", "layperson", "en"),
]


@pytest.fixture
def graph_of_three() -> KnowledgeGraph:
    types = {"HP:0001250": "phenotype", "HP:0000002": "phenotype", "G1": ""}
    triples = [("G1", "causes", "HP:0001250"), ("HP:0001250", "is_a", "HP:0000002")]
    return graph(types, triples, NAMES, [("HP:0001250", "same", "G1")])


def test_a_name_and_parts_of_names(graph_of_three: KnowledgeGraph) -> None:
    search = NameSearch(graph_of_three)
    found = [(r["id"], r["found"], r["exact"]) for r in search.find("FIT").entities]
    assert found == [("HP:0000002", "fit", True), ("HP:0001250", "fits", False)]
    assert [r["id"] for r in search.find("seizures generalised").entities] == ["HP:0001250"]
    assert search.find("gout") == ([], 0)
    first = search.find("fit", most=1)
    assert [r["id"] for r in first.entities] == ["HP:0000002"] and first.total == 2
    with pytest.raises(InputError, match="expected a name"):
        search.find("  ")


def test_an_entity(graph_of_three: KnowledgeGraph) -> None:
    about = describe_entity(graph_of_three, "hp_0001250")
    assert (about["id"], about["type"]) == ("HP:0001250", "phenotype")
    assert about["neighbours"] == {
        "is_a": ["HP:0000002 HP:0000002"],
        "causes of": ["G1 G1"],
    }
    assert [n["name"] for n in about["names"]] == ["HP:0001250", "fits", "Séizures, generalised"]
    assert about["same as"] == ["G1"]
    with pytest.raises(InputError, match="no entity 'HP:9'"):
        describe_entity(graph_of_three, "HP:9")


def test_the_commands(
    graph_of_three: KnowledgeGraph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(graph_of_three.save(tmp_path / "g"))
    assert main(["graph", "find", folder, "fits"]) == 0
    assert capsys.readouterr().out == "HP:0001250  HP:0001250  [phenotype]  by exact 'fits'\n"
    assert main(["graph", "show", folder, "HP:0001250"]) == 0
    assert "  exact       fits  (en)\n" in capsys.readouterr().out
    assert main(["graph", "show", folder, "HP:0001250", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "HP:0001250"
    assert main(["graph", "find", folder, "gout"]) == 2
