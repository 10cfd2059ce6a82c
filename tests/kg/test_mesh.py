"""MeSH from the library's XML and from a table."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from core.files import InputError
from kg.build import source as build
from kg.build.sources import mesh
from kg.graph import KnowledgeGraph

DESCRIPTORS = """<?xml version="1.0"?>
<!DOCTYPE DescriptorRecordSet SYSTEM "https://www.nlm.nih.gov/databases/dtd/nlmdescriptorrecordset_20260101.dtd">
<DescriptorRecordSet LanguageCode="eng">
<DescriptorRecord DescriptorClass="1">
  <DescriptorUI>D000001</DescriptorUI><DescriptorName><String>Heart  Diseases</String></DescriptorName>
  <TreeNumberList><TreeNumber>C14.280</TreeNumber></TreeNumberList>
  <ConceptList>
    <Concept PreferredConceptYN="Y"><ConceptUI>M1</ConceptUI><ScopeNote> Diseases of the heart.
 </ScopeNote>
      <ConceptRelationList><ConceptRelation RelationName="NRW"><Concept1UI>M1</Concept1UI><Concept2UI>M2</Concept2UI>
      </ConceptRelation></ConceptRelationList>
      <TermList><Term><String>Heart Diseases</String></Term><Term><String>Cardiac Diseases</String></Term></TermList></Concept>
    <Concept PreferredConceptYN="N"><ConceptUI>M2</ConceptUI>
      <TermList><Term><String>Pump Failure</String></Term></TermList></Concept>
  </ConceptList>
</DescriptorRecord>
<DescriptorRecord DescriptorClass="1">
  <DescriptorUI>D000002</DescriptorUI><DescriptorName><String>Arrhythmia</String></DescriptorName>
  <TreeNumberList><TreeNumber>C14.280.067</TreeNumber><TreeNumber>C23.550</TreeNumber></TreeNumberList>
  <ConceptList><Concept PreferredConceptYN="Y"><ConceptUI>M3</ConceptUI>
    <TermList><Term><String>Arrhythmia</String></Term></TermList></Concept></ConceptList>
</DescriptorRecord>
</DescriptorRecordSet>
"""  # noqa: E501
SUPPLEMENT = """<SupplementalRecordSet><SupplementalRecord SCRClass="3">
<SupplementalRecordUI>C500001</SupplementalRecordUI><SupplementalRecordName><String>Rare beat</String></SupplementalRecordName>
<HeadingMappedToList><HeadingMappedTo><DescriptorReferredTo><DescriptorUI>*D000002</DescriptorUI></DescriptorReferredTo>
</HeadingMappedTo><HeadingMappedTo><DescriptorReferredTo><DescriptorUI>D9</DescriptorUI></DescriptorReferredTo></HeadingMappedTo>
</HeadingMappedToList></SupplementalRecord></SupplementalRecordSet>
"""  # noqa: E501


def rows(graph: KnowledgeGraph, part: str) -> set[tuple[str, ...]]:
    keys = {"names": ("id", "name", "kind"), "triples": ("head", "relation", "tail")}[part]
    return {tuple(row[k] for k in keys) for row in getattr(graph, part).to_pylist()}


def test_xml(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "desc2026.xml.gz", "wt") as handle:
        handle.write(DESCRIPTORS)
    (tmp_path / "supp2026.xml").write_text(SUPPLEMENT)
    graph = mesh.read(tmp_path)
    assert rows(graph, "names") == {
        ("D000001", "Heart Diseases", "preferred"),
        ("D000001", "Cardiac Diseases", "exact"),
        ("D000001", "Pump Failure", "narrow"),
        ("D000002", "Arrhythmia", "preferred"),
        ("C500001", "Rare beat", "preferred"),
    }
    assert rows(graph, "triples") == {
        ("D000002", "is_a", "D000001"),
        ("C500001", "mapped_to", "D000002"),
    }
    assert graph.definitions.to_pylist() == [{"id": "D000001", "text": "Diseases of the heart."}]
    assert graph.entities["type"].to_pylist() == ["descriptor", "descriptor", "supplementary"]
    assert graph.manifest["left_out"] == {"headings mapped to that are not in the files": 1}
    assert mesh.read(tmp_path, supplementary=False).counts()["entities"] == 2


def test_table(tmp_path: Path) -> None:
    file = tmp_path / "mesh.tsv"
    file.write_text("D1\tHeart\tHearts|Cor |\n\nD2\tLung\t\n")
    graph = mesh.read(file)
    assert rows(graph, "names") == {
        ("D1", "Heart", "preferred"),
        ("D1", "Hearts", "synonym"),
        ("D1", "Cor", "synonym"),
        ("D2", "Lung", "preferred"),
    }
    assert build.source_module("mesh") is mesh
    graph.save(tmp_path / "g")
    assert KnowledgeGraph.load(tmp_path / "g").counts()["names"] == 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "D1\tA\n", "a.tsv:1: expected id, label, synonyms"),
        ("a.tsv", "D1\tA\t\nD2\t \tB\n", "a.tsv:2: expected an id and a label"),
        ("a.tsv", "D1\tA\t\nD1\tB\t\n", "the id D1 occurs twice"),
        ("a.tsv", "", "no MeSH records"),
        ("a.xml", DESCRIPTORS[:900], "a.xml:"),
        (
            "a.xml",
            DESCRIPTORS.replace("<DescriptorUI>D000002</DescriptorUI>", ""),
            "a DescriptorRecord (Arrhythmia) without",
        ),
        ("a.xml", "<Other/>", "no MeSH records"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as error:
        mesh.read(tmp_path / name)
    assert message in str(error.value)


def test_a_folder_without_mesh(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no desc"):
        mesh.files(tmp_path)
