"""OWL and SKOS by rdflib."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from core.files import InputError
from kg.build.sources import owl
from tests.fakes import rdf


def rows(table: Any) -> list[tuple[str, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("name", ["x.owl", "x.rdf.gz"])
def test_owl(tmp_path: Path, name: str) -> None:
    path, text = tmp_path / name, rdf.OWL.encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    graph = owl.read(path)
    assert rows(graph.entities) == [("X:1", "whole thing", "X"), ("X:2", "small thing", "X")]
    assert [row[1:4] for row in rows(graph.names)] == [
        ("whole thing", "preferred", "en"),
        ("Ganzes", "synonym", "de"),
        ("entirety", "exact", "en"),
        ("small thing", "preferred", "en"),
    ]
    assert rows(graph.definitions) == [("X:1", "All of it.")]
    assert sorted(rows(graph.triples)) == [("X:2", "is_a", "X:1"), ("X:2", "part_of", "X:1")]
    assert rows(graph.equivalences) == [("X:1", "xref", "X:2")]
    assert graph.manifest["alternatives"] == {"X:1": ["X:3"], "X:2": ["X:9"]}
    assert graph.manifest["version"] == "2099"
    assert graph.manifest["left_out"]["axioms that are no triple"] == 1


def test_skos_with_a_cycle_by_language(tmp_path: Path) -> None:
    path = tmp_path / "t.ttl"
    path.write_text(rdf.SKOS)
    graph = owl.read(path)
    assert rows(graph.entities)[0] == ("a", "gout", "concept")
    assert [row[:4] for row in rows(graph.names)][:3] == [
        ("a", "gout", "preferred", "en"),
        ("a", "Gicht", "synonym", "de"),
        ("a", "podagra", "synonym", "en"),
    ]
    assert sorted(rows(graph.triples)) == [
        ("a", "broader", "b"),
        ("b", "broader", "a"),
        ("c", "broader", "b"),
        ("c", "related", "a"),
    ]
    assert rows(graph.equivalences) == [("a", "xref", "c")]
    assert owl.read(path, language="de").entities["name"].to_pylist()[0] == "Gicht"


def test_what_is_broken_or_dangerous_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("SECRET")
    outside = rdf.OWL.replace(
        '"http://purl.obolibrary.org/obo/" >',
        f'"http://purl.obolibrary.org/obo/" > <!ENTITY s SYSTEM "file://{secret}">',
    ).replace("whole thing", "&s;whole thing")
    path = tmp_path / "x.owl"
    path.write_text(outside)
    assert "SECRET" not in str(owl.read(path).names.to_pylist())
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = rdf.OWL.replace("<!ENTITY obo", f'<!ENTITY e0 "{"x" * 99}">{levels}<!ENTITY obo')
    path.write_text(bomb.replace("whole thing", "&e11;"))
    with pytest.raises(InputError, match="the entity e1 consists of other entities"):
        owl.read(path)
    for text, message in (
        ("", "not xml"),
        ("<a", "not xml"),
        (rdf.OWL.replace("owl:Class", "owl:Thing"), "no owl:Class and no skos:Concept"),
        ("Ontology(<http://x>)", "robot convert"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            owl.read(path)
    with pytest.raises(InputError, match=r"expected one of \.owl.*robot convert"):
        owl.read(tmp_path / "x.ofn")
