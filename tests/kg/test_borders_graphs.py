"""Graphs and annotations as other people have them: several types, other files of a vocabulary."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path

import openpyxl
import pytest

from app.cli import main
from core.files import InputError
from inference.chain import Pipeline
from inference.chain_steps import steps_of
from kg.build.edit import add_names
from kg.build.sources import owl
from kg.documents.formats import annotated_documents
from kg.graph import KnowledgeGraph, split_types
from kg.ids import BareIds
from tests.commands import read_tables
from tests.fakes.graphs import graph

BIOC = """<collection><document><id>d7</id><passage><offset>0</offset><text>breast and ovarian
cancer</text><annotation><infon key="identifier">D1</infon><infon key="UMLS">C1</infon>
<location offset="0" length="6"/><location offset="19" length="6"/><text>breast cancer</text>
</annotation></passage></document></collection>"""


def test_an_entity_of_several_types_is_of_each(tmp_path: Path) -> None:
    assert split_types("Finding| Disease or Syndrome") == {"finding", "disease or syndrome"}
    names = [("1", "gout", "exact", "en"), ("2", "fever", "exact", "en")]
    folder = graph({"1": "Finding|Disease", "2": "Disease"}, [("1", "r", "2")], names).save(
        tmp_path / "g"
    )
    for types, expected in ((["disease"], ["1", "2"]), (["Finding"], ["1"])):
        (found,) = Pipeline(folder, types=types).link(["gout and fever"])
        assert [m.entity for m in found] == expected
    with pytest.raises(InputError, match="choose from: Disease, Finding"):
        Pipeline(folder, types=["sign"])


def test_a_chain_has_one_spelling() -> None:
    for chain in ("dictionary>names", " dictionary  >  names "):
        assert str(steps_of(chain)) == "dictionary > names"


def test_two_ids_that_only_the_vocabulary_tells_apart() -> None:
    ids = BareIds(["OMIM:100", "MESH:100", "MESH:D1"])
    assert [ids.shorten(one) for one in ("OMIM:100", "MESH:100", "MESH:D1")] == [
        "OMIM:100",
        "MESH:100",
        "D1",
    ]


def test_what_bioc_says_of_an_annotation_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.bioc.xml").write_text(BIOC)
    left_out = Counter[str]()
    (document,) = annotated_documents([tmp_path / "a.bioc.xml"], None, left_out)
    assert [(m.start, m.end, m.entity) for m in document.mentions] == [(0, 25, "D1")]
    assert +left_out == {
        "further identifiers of annotations (UMLS)": 1,
        "gaps in discontinuous mentions, which are kept from first to last character": 1,
    }
    one = BIOC.replace('<location offset="19" length="6"/>', "").replace("breast c", "lung c")
    (tmp_path / "a.bioc.xml").write_text(one)
    with pytest.raises(InputError, match=r"a\.bioc\.xml:\d+: document d7: mention \[0, 6\) covers"):
        list(annotated_documents([tmp_path / "a.bioc.xml"], None, Counter()))


def test_a_mention_in_another_case_is_the_mention(tmp_path: Path) -> None:
    (tmp_path / "a.pubtator").write_text("1|t|Gout.\n1|a|\n1\t0\t4\tgout\tD\tD2\n\n")
    (document,) = annotated_documents([tmp_path / "a.pubtator"], None, Counter())
    assert [m.entity for m in document.mentions] == ["D2"]


def test_kgx_as_json_lines_and_an_array_under_the_name_of_lines(tmp_path: Path) -> None:
    nodes = [
        {"id": "X:1", "name": "gout", "category": ["biolink:Disease"], "synonym": ["podagra"]},
        {"id": "X:2", "name": "joint", "category": ["biolink:AnatomicalEntity"]},
    ]
    edge = {"subject": "X:1", "predicate": "biolink:located_in", "object": "X:2"}
    (tmp_path / "k_nodes.jsonl").write_text("\n".join(map(json.dumps, nodes)))
    (tmp_path / "k_edges.jsonl").write_text(json.dumps(edge))
    found = read_tables(tmp_path, preset="kgx")
    assert found.entities["type"].to_pylist() == ["Disease", "AnatomicalEntity"]
    assert found.names["name"].to_pylist() == ["gout", "podagra", "joint"]
    assert found.triples.to_pylist() == [{"head": "X:1", "relation": "located_in", "tail": "X:2"}]
    (tmp_path / "k_nodes.jsonl").write_text("[" + ",\n".join(map(json.dumps, nodes)) + "]")
    assert read_tables(tmp_path, preset="kgx").ids.to_pylist() == ["X:1", "X:2"]


def test_a_notation_is_another_id(tmp_path: Path) -> None:
    (tmp_path / "a.ttl").write_text(
        "@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix e: <http://e.org/> .\n"
        'e:2 a skos:Concept ; skos:prefLabel "gout"@en ; skos:notation "M10" .'
    )
    found = owl.read(tmp_path / "a.ttl")
    (entity,) = found.ids.to_pylist()
    assert found.manifest["alternatives"] == {entity: ["M10"]}


def test_columns_of_new_names_that_are_not_read_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = graph({"1": "D"}, [("1", "r", "1")], [("1", "gout", "exact", "en")]).save(
        tmp_path / "g"
    )
    (tmp_path / "n.csv").write_text("ID,Name,note\n1,podagra,mine\n")
    add_names(folder, tmp_path / "n.csv", tmp_path / "out")
    left_out = KnowledgeGraph.load(tmp_path / "out").manifest["left_out"]
    assert left_out["columns that are not read (note)"] == 1
    assert main(["graph", "find", str(tmp_path / "out"), "podagra"]) == 0
    assert "podagra" in capsys.readouterr().out


def test_names_that_excel_made_dates_are_named(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    for row in (("id", "name", "type"), ("1", datetime(2026, 9, 2), "gene"), ("2", "TP53", "gene")):
        book.active.append(row)
    book.save(tmp_path / "genes.xlsx")
    with pytest.raises(InputError, match=r"genes\.xlsx:2: name is the date 2026-09-02 .* SEPT2"):
        read_tables(tmp_path / "genes.xlsx")


def test_a_type_that_is_an_id_is_the_entity(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("breast cancer cells")
    (tmp_path / "a.ann").write_text(
        "T1\tCL:0000540 14 19\tcells\nT2\tX:1 0 13\tbreast cancer\nN1\tReference T2 D:2\t\n"
        "T3\tDisease 7 13\tcancer\n"
    )
    (document,) = annotated_documents([tmp_path / "a.txt"], None, Counter())
    found = [(m.start, m.entity) for m in sorted(document.mentions)]
    assert found == [(0, "D:2"), (14, "CL:0000540")]
    assert [m.type for m in document.unlinked] == ["Disease"]


def test_a_denotation_of_several_places(tmp_path: Path) -> None:
    places = [{"begin": 0, "end": 6}, {"begin": 14, "end": 19}]
    record = {"text": "breast cancer cells", "denotations": [{"id": "T1", "span": places}]}
    record["denotations"][0]["obj"] = "CL:0000540"  # type: ignore[index]
    (tmp_path / "a.json").write_text(json.dumps(record))
    left_out = Counter[str]()
    (document,) = annotated_documents([tmp_path / "a.json"], None, left_out)
    assert [(m.start, m.end, m.entity) for m in document.mentions] == [(0, 19, "CL:0000540")]
    assert +left_out == {
        "gaps in discontinuous mentions, which are kept from first to last character": 1
    }


def test_one_id_in_two_spaces_of_neo4j_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "disease.csv").write_text("id:ID(Disease),name,:LABEL\n1,gout,Disease\n")
    (tmp_path / "gene.csv").write_text("id:ID(Gene),name,:LABEL\n1,TP53,Gene\n")
    with pytest.raises(InputError, match=r"gene\.csv:2: .* occurs twice.*two ID spaces.*Disease:1"):
        read_tables(tmp_path, preset="neo4j")
