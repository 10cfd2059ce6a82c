"""Babelon tables: translated labels, synonyms and definitions of an ontology are names of its
graph."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from core.files import InputError
from kg.build.source import build_graph
from kg.build.translations import CHANGED, EMPTY, NO_NAME, REPEATED, UNKNOWN, read_babelon
from kg.graph import KnowledgeGraph
from kg.linking.matcher import DictionaryLinker
from tests.fakes import hpo as fake_hpo

HEADING = (
    "source_language\ttranslation_language\tsubject_id\tpredicate_id\tsource_value"
    "\ttranslation_value\ttranslation_status"
)


def write_table(path: Path, rows: list[str], heading: str = HEADING) -> Path:
    text = "\n".join([heading, *rows]) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def build_translated(tmp_path: Path, rows: list[str]) -> KnowledgeGraph:
    source = fake_hpo.write(tmp_path / "hpo")
    table = write_table(tmp_path / "hp-zh.babelon.tsv.gz", rows)
    return build_graph("hpo", source, tmp_path / "graph", translations=[table])


ALL = "en\tzh\tHP:0000001\trdfs:label\tAll\t所有\tOFFICIAL"


def test_each_row_is_a_name_a_definition_or_counted(tmp_path: Path) -> None:
    graph = build_translated(
        tmp_path,
        [
            ALL,
            ALL,
            "en\tzh\tHP:0000001\toboInOwl:hasRelatedSynonym\t\t全部\tCANDIDATE",
            "en\tzh\tHP:0000118\tIAO:0000115\tAn abnormality.\t一种异常\tOFFICIAL",
            "en\tzh\tHP:0000118\trdfs:label\tOld label\t表型异常\t",
            "en\tzh\tHP:0000005\trdfs:label\tMode of inheritance\t\tNOT_TRANSLATED",
            "en\tzh\tHP:0000005\trdfs:comment\ta\tb\tOFFICIAL",
            "en\tzh\tHP:7777777\trdfs:label\tElsewhere\t别处\tOFFICIAL",
        ],
    )
    names = [row for row in graph.names.to_pylist() if row["language"] == "zh"]
    assert [(n["id"], n["name"], n["kind"], n["source"]) for n in names] == [
        ("HP:0000001", "所有", "exact", "Babelon official"),
        ("HP:0000001", "全部", "related", "Babelon candidate"),
        ("HP:0000118", "表型异常", "exact", "Babelon"),
    ]
    assert {"id": "HP:0000118", "text": "一种异常"} in graph.definitions.to_pylist()
    assert graph.entities.to_pylist()[0]["name"] == "All"  # the preferred name stays the ontology's
    counted = {k: graph.manifest["left_out"][k] for k in (UNKNOWN, EMPTY, NO_NAME, REPEATED)}
    assert counted == {UNKNOWN: 1, EMPTY: 1, NO_NAME: 1, REPEATED: 1}
    assert graph.manifest["left_out"][CHANGED] == 1
    assert graph.manifest["translations"] == {"zh": 3}


def test_without_translations_the_graph_is_the_same(tmp_path: Path) -> None:
    source = fake_hpo.write(tmp_path / "hpo")
    plain = build_graph("hpo", source, tmp_path / "plain")
    assert "translated" not in plain.manifest
    table = write_table(tmp_path / "t.tsv", [ALL])
    other = build_graph("hpo", source, tmp_path / "other", translations=[table])
    assert other.fingerprint != plain.fingerprint
    build_graph(
        "hpo", source, tmp_path / "plain", translations=[table]
    )  # built again: another recipe
    assert KnowledgeGraph.load(tmp_path / "plain").fingerprint == other.fingerprint


def test_both_languages_are_found_in_one_sentence(tmp_path: Path) -> None:
    graph = build_translated(
        tmp_path, [ALL, "en\tzh\tHP:0000118\trdfs:label\tx\t表型异常\tOFFICIAL"]
    )
    text = "患者有表型异常，and a phenotypic abnormality。"
    found = [
        (text[m.start : m.end], m.entity) for m in DictionaryLinker.from_graph(graph).link(text)
    ]
    assert found == [("表型异常", "HP:0000118"), ("phenotypic abnormality", "HP:0000118")]


@pytest.mark.parametrize(
    ("heading", "rows", "said"),
    [
        ("subject_id\tpredicate_id\ttranslation_value", [], "translation_language missing"),
        (HEADING, ["en\tzh\tHP:0000001"], ":2: expected 7 fields"),
        (HEADING, [ALL, ALL.replace("HP:0000001", "")], ":3: subject_id is empty"),
        (HEADING, ['en\tzh\tHP:0000001\trdfs:label\t"All\tx\t'], ":2: a quote that does not end"),
        (HEADING, [ALL.replace("HP:0000001", "MP:1")], "none of its 1 terms is in the graph"),
    ],
)
def test_a_broken_table_is_one_error(
    tmp_path: Path, heading: str, rows: list[str], said: str
) -> None:
    source = fake_hpo.write(tmp_path / "hpo")
    table = write_table(tmp_path / "t.tsv", rows, heading)
    with pytest.raises(InputError, match=said):
        build_graph("hpo", source, tmp_path / "graph", translations=[table])
    assert not (tmp_path / "graph").exists()


def test_an_empty_table_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("")
    with pytest.raises(InputError, match="empty; expected a Babelon table"):
        list(read_babelon(tmp_path / "t.tsv"))


def test_a_quoted_field_is_read_without_its_quotes(tmp_path: Path) -> None:
    table = write_table(
        tmp_path / "t.tsv", ['en\tfr\tHP:1\trdfs:label\tx\t"dit ""nain"""\tOFFICIAL']
    )
    assert [row.text for row in read_babelon(table)] == ['dit "nain"']
