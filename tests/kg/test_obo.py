import json
from collections import Counter
from pathlib import Path

import pytest

from core.files import InputError
from kg.build import ontology
from kg.build.sources import obo
from tests.fakes import obo as fake

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "en_onto"


def rows(table):
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_text(tmp_path, end):
    graph = obo.read(fake.write_text(tmp_path / f"x.obo{end}"))
    assert rows(graph.entities) == [
        ("X:0000001", "root {all}", "fake"),
        ("X:0000002", "small thing ! not a remark", "branch"),
        ("X:0000003", "whole thing", "fake"),
    ]
    assert {(name, kind) for i, name, kind, _, _ in rows(graph.names) if i == "X:0000002"} == {
        ("small thing ! not a remark", "preferred"),
        ("minor thing", "exact"),
        ("little one", "layperson"),
        ("ST", "abbreviation"),
        ("small things", "plural"),
        ("smalle thing", "uk_spelling"),
        ("old thing", "obsolete"),
        ("tiny thing", "narrow"),
        ("thing", "broad"),
        ("no scope", "related"),
    }
    assert rows(graph.definitions) == [
        ("X:0000002", 'Called "small", with a\nsecond line.'),
        ("X:0000003", "A whole, in one line."),
    ]
    assert rows(graph.triples) == [
        ("X:0000002", "is_a", "X:0000001"),
        ("X:0000002", "part_of", "X:0000003"),
        ("X:0000003", "is_a", "X:0000001"),
    ]
    assert graph.manifest["left_out"] == {
        "obsolete terms": 1,
        "terms without a label": 1,
        "edges to terms left out": 2,
        "xrefs to other vocabularies": 0,
    }
    assert (
        graph.manifest["version"] == "fake/2099-01-01"
        and graph.manifest["licence"] == "https://example.org/licence"
    )


def test_type_argument(tmp_path):
    assert set(
        obo.read(fake.write_text(tmp_path / "x.obo"), type="thing").entities["type"].to_pylist()
    ) == {"thing"}


@pytest.mark.parametrize("end", ["", ".gz"])
def test_json(tmp_path, end):
    graph = obo.read(fake.write_json(tmp_path / f"x.json{end}"))
    assert rows(graph.entities) == [
        ("X:0000001", "root {all}", "X"),
        ("X:0000002", "small thing", "branch"),
        ("X:0000003", "whole thing", "X"),
        ("X:0000005", "named later", "X"),
    ]
    assert {(name, kind) for i, name, kind, _, _ in rows(graph.names) if i == "X:0000002"} == {
        ("small thing", "preferred"),
        ("minor thing", "exact"),
        ("little one", "layperson"),
        ("ST", "abbreviation"),
        ("tiny thing", "narrow"),
        ("thing", "broad"),
    }
    assert set(rows(graph.triples)) == {
        ("X:0000002", "is_a", "X:0000001"),
        ("X:0000002", "part_of", "X:0000003"),
        ("X:0000003", "near", "X:0000002"),
        ("X:0000003", "RO:0000001", "X:0000001"),
        ("X:0000005", "is_a", "X:0000001"),
    }
    assert graph.manifest["left_out"]["edges to terms left out"] == 2


def test_texts(tmp_path):
    assert list(obo.texts(fake.write_text(tmp_path / "x.obo"))) == [
        ("X:0000001", "comment", "A comment."),
        ("X:0000002", "definition", 'Called "small", with a\nsecond line.'),
        ("X:0000002", "comment", "First."),
        ("X:0000003", "definition", "A whole, in one line."),
    ]


def test_curie():
    assert ontology.curie("http://purl.obolibrary.org/obo/HP_0000001") == "HP:0000001"
    assert ontology.curie("http://purl.obolibrary.org/obo/doid#has_symptom") == "has_symptom"
    assert ontology.curie("http://example.org/plain") == "http://example.org/plain"
    assert ontology.curie("is_a") == "is_a"


BROKEN = {
    "no end quote": (
        'synonym: "minor thing" EXACT []',
        'synonym: "minor thing EXACT []',
        r"expected `synonym",
    ),
    "no tag": ("is_a: X:0000001 {source", "X 0000001 {source", r"expected `tag: value`"),
    "no target": (
        "relationship: part_of X:0000003 {",
        "relationship: part_of {",
        r"expected `relationship",
    ),
    "id twice": ("id: X:0000003", "id: X:0000002", r"expected one new id"),
    "no id": ("id: X:0000003\n", "", r"expected the term's `id:`"),
    "stanza": ("[Typedef]", "[Typedef", r"expected a stanza"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_text(tmp_path, case):
    old, new, message = BROKEN[case]
    assert fake.TEXT.count(old) == 1
    line = fake.TEXT[: fake.TEXT.index(old)].count("\n") + 1
    with pytest.raises(InputError, match=rf"x\.obo:{line}: {message}"):
        obo.read(fake.write_text(tmp_path / "x.obo", fake.TEXT.replace(old, new)))


def test_other_broken_files(tmp_path):
    with pytest.raises(InputError, match=r"x\.obo:1: no \[Term\]"):
        obo.read(fake.write_text(tmp_path / "x.obo", "format-version: 1.2\n"))
    with pytest.raises(InputError, match=r"cut\.obo:4: this \[Term\] has no `id:`"):
        obo.read(fake.write_text(tmp_path / "cut.obo", "[Term]\nid: X:1\n\n[Term]\n"))
    with pytest.raises(InputError, match=r"expected an \.obo or \.json file"):
        obo.read(tmp_path / "x.owl")
    with pytest.raises(InputError, match="no such file"):
        obo.read(tmp_path / "none.obo")
    (tmp_path / "x.obo").write_bytes(b"[Term]\nid: X:1\nname: \xff\n")
    with pytest.raises(InputError, match=r"x\.obo:3: not utf-8"):
        obo.read(tmp_path / "x.obo")
    whole = fake.write_text(tmp_path / "x.obo.gz", fake.TEXT * 50).read_bytes()
    (tmp_path / "cut.obo.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.obo\.gz:\d+: the compressed file is cut"):
        obo.read(tmp_path / "cut.obo.gz")


def test_broken_json(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"graphs": [\n{"nodes": [}]}')
    with pytest.raises(InputError, match=r"x\.json:2: not valid JSON"):
        obo.read(path)
    for breaking, message in [
        (lambda g: g["nodes"][2].pop("id"), r"graphs\[0\]\.nodes\[2\]: the key 'id'"),
        (
            lambda g: g["nodes"][2].update(meta=[]),
            r"node .*X_0000003: expected dict under 'meta', got list",
        ),
        (lambda g: g["nodes"].append(g["nodes"][0]), "X_0000001: the id occurs twice"),
        (lambda g: g["edges"][3].pop("obj"), r"graphs\[0\]\.edges\[3\]: the key 'obj'"),
    ]:
        value = fake.graphs()
        breaking(value["graphs"][0])
        with pytest.raises(InputError, match=message):
            obo.read(fake.write_json(path, value))
    with pytest.raises(InputError, match="no `graphs`"):
        obo.read(fake.write_json(path, {}))


REAL = {  # shared/data/README.md
    "doid_2016-09-01.obo.gz": {"entities": 9344 - 2373, "triples": 8155},
    "chebi_import_hp.obo.gz": {
        "entities": 2115,
        "definitions": 1570,
        "names": 2115 + 8500 - 133,
    },  # 133 lines repeat one
    "hp_2013-11-30.obo.gz": {"entities": 10267 - 44, "triples": 13458},
    "ncit-disease-2018-06-08.json.gz": {
        "entities": 20324,
        "definitions": 17180,
        "triples": 50204,
        "relations": 62,
    },
}


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_real(name):
    if not (SHARED / name).is_file():
        pytest.skip(f"{SHARED / name} is not here")
    graph = obo.read(SHARED / name)
    assert {part: graph.counts()[part] for part in REAL[name]} == REAL[name]
    assert not [
        name
        for name, kind in Counter(graph.names["name"].to_pylist()).items()
        if not name.strip() or "\\" in name
    ]


ALTERNATIVES = """format-version: 1.2
[Term]
id: A:1
name: fever
alt_id: A:9 {source="x"}
alt_id: A:2
xref: A:3 ! chill
xref: UMLS:C0015967 "Fever"

[Term]
id: A:2
name: cold

[Term]
id: A:3
name: chill
xref: A:1

[Term]
id: A:4
name: pyrexia
is_obsolete: true
replaced_by: A:5
alt_id: A:40

[Term]
id: A:5
name: old fever
is_obsolete: true
replaced_by: A:1

[Term]
id: A:6
name: two things
is_obsolete: true
replaced_by: A:1
replaced_by: A:2

[Term]
id: A:7
name: a circle
is_obsolete: true
replaced_by: A:7
"""


def test_alternative_ids_and_xrefs(tmp_path):
    (tmp_path / "a.obo").write_text(ALTERNATIVES)
    graph = obo.read(tmp_path / "a.obo")
    # A:2 is a term of its own; A:6 is split, which makes it neither
    assert graph.manifest["alternatives"] == {"A:1": ["A:9", "A:4", "A:40", "A:5"]}
    assert rows(graph.equivalences) == [("A:1", "xref", "A:3")]
    assert graph.manifest["left_out"]["xrefs to other vocabularies"] == 1


def test_alternative_ids_in_json(tmp_path):
    place = "http://purl.obolibrary.org/obo/"
    kept = {
        "id": f"{place}A_1",
        "lbl": "fever",
        "type": "CLASS",
        "meta": {
            "xrefs": [{"val": "UMLS:C0015967"}],
            "basicPropertyValues": [
                {
                    "pred": "http://www.geneontology.org/formats/oboInOwl#hasAlternativeId",
                    "val": one,
                }
                for one in ("A:9", f"{place}A_8")
            ],
        },
    }
    gone = {
        "id": f"{place}A_4",
        "lbl": "pyrexia",
        "type": "CLASS",
        "meta": {
            "deprecated": True,
            "basicPropertyValues": [{"pred": f"{place}IAO_0100001", "val": f"{place}A_1"}],
        },
    }
    (tmp_path / "a.json").write_text(json.dumps({"graphs": [{"nodes": [kept, gone]}]}))
    graph = obo.read(tmp_path / "a.json")
    assert graph.manifest["alternatives"] == {"A:1": ["A:9", "A:8", "A:4"]}
    assert graph.manifest["left_out"]["xrefs to other vocabularies"] == 1


LEFT_OUT = r"""format-version: 1.4 ! of the format

[Term] ! the first
id: A:1 ! an id
name: wet \"cough\" ! "seen"
namespace: sign! checked
def: "A cough! With \"sputum\" ! really." [] ! by an editor
synonym: "productive cough! loud" EXACT hasAbbreviation [X:1 "a ! b"] ! odd
synonym: "WC" hasAbbreviation []
synonym: "ph" exact layperson []
xref: MESH:D1 ! elsewhere
xref: MESH:D2
subset: slim
is_a: A:2 ! gone

[Term]
id: A:2
name: gone
property_value: owl:deprecated "true" xsd:boolean ! said so

[Term]
id: A:3
name: gone too
is_obsolete: True

[Instance]
id: I:1
"""


def test_comments_end_lines_and_what_is_not_read_is_counted(tmp_path):
    graph = obo.read(fake.write_text(tmp_path / "x.obo", LEFT_OUT))
    assert rows(graph.entities) == [("A:1", 'wet "cough"', "sign")]
    assert [row[1:3] for row in rows(graph.names)] == [
        ('wet "cough"', "preferred"),
        ("productive cough! loud", "exact"),
        ("WC", "related"),
        ("ph", "layperson"),
    ]
    assert rows(graph.definitions) == [("A:1", 'A cough! With "sputum" ! really.')]
    counts = {key: count for key, count in graph.manifest["left_out"].items() if count}
    assert counts == {
        "obsolete terms": 2,
        "edges to terms left out": 1,
        "xrefs to other vocabularies": 2,
        "subset lines": 1,
        "[Instance] stanzas": 1,
        ontology.UNKNOWN_TYPE.format("hasAbbreviation"): 1,
        ontology.UNKNOWN_SCOPE.format("hasAbbreviation"): 1,
    }


def test_json_counts_what_is_not_read_and_knows_owl_deprecated(tmp_path):
    value = fake.graphs()
    own = value["graphs"][0]
    own["nodes"][1]["meta"]["synonyms"][0].update(pred="hasAbbreviation")
    own["nodes"][1]["meta"]["xrefs"] = [{"val": "MESH:D1"}]
    deprecated = {"pred": "http://www.w3.org/2002/07/owl#deprecated", "val": "true"}
    own["nodes"][2].setdefault("meta", {})["basicPropertyValues"] = [
        deprecated,
        {"pred": "x", "val": "1"},
    ]
    own["logicalDefinitionAxioms"] = [{}, {}]
    (tmp_path / "x.json").write_text(json.dumps(value))
    graph = obo.read(tmp_path / "x.json")
    assert "X:0000003" not in graph.entities["id"].to_pylist()
    left_out = graph.manifest["left_out"]
    assert (
        left_out[ontology.UNKNOWN_SCOPE.format("hasAbbreviation")] == 1
        and left_out["logicalDefinitionAxioms"] == 2
    )
    assert left_out["xrefs to other vocabularies"] == 1 and left_out["properties of terms"] >= 1


def test_a_relation_has_the_name_of_its_typedef(tmp_path):
    text = "[Term]\nid: A:1\nname: a\nrelationship: RO:1 A:2\nrelationship: RO:2 A:2\n\n"
    text += '[Term]\nid: A:2\nname: b\n\n[Typedef]\nid: RO:1\nname: part of {x="y"} ! remark\n'
    (tmp_path / "a.obo").write_text(text)
    graph = obo.read(tmp_path / "a.obo")
    assert [row[1] for row in rows(graph.triples)] == ["part_of", "RO:2"]
