"""Golden examples of OBO, OBO graphs, OWL, SKOS and ClaML: a few lines in the published layout, and
every row of the graph that they mean."""

from __future__ import annotations

import json
from pathlib import Path

from kg.build.sources import claml, obo, owl
from tests.golden.graphs import list_parts

OBO = r"""format-version: 1.2
data-version: fake/2026-01-01
default-namespace: fake
property_value: terms:license https://example.org/by
! a comment of its own

[Term]
id: X:1
name: heart disorder ! a comment
def: "A disorder\, of the \"heart\"; not !x." [ref:1]
comment: Seen often.
synonym: "Cardiac  disorder" EXACT [ref:1]
synonym: "bad heart" BROAD layperson []
synonym: "HD" EXACT OMO:0003000 []
synonym: "heart 😀 – trouble" []
synonym: "ticker" hasSlang []
synonym: "heart disorder" NARROW []
synonym: "HDs" RELATED odd_type [] {source="a"}
alt_id: X:9
xref: X:2
xref: UMLS:C1 "name"
subset: slim
is_a: X:3 {source="a"} ! root
is_a: X:8 ! old heart disorder
relationship: RO:1 X:2 ! valve disorder

[Term]
id: X:2
name: valve disorder
namespace: own
xref: X:1
is_a: X:1 ! heart disorder
intersection_of: X:1

[Term]
id: X:3
name: root

[Term]
id: X:8
name: old heart disorder
alt_id: X:81
is_obsolete: true
replaced_by: X:7

[Term]
id: X:7
name: older heart disorder
property_value: owl:deprecated "true" xsd:boolean
replaced_by: X:1

[Term]
id: X:6

[Typedef]
id: RO:1
name: has part

[Instance]
id: I:1
"""
OBO_GRAPH = {
    "entities": [
        ("X:1", "heart disorder", "fake"),
        ("X:2", "valve disorder", "own"),
        ("X:3", "root", "fake"),
    ],
    "names": [
        ("X:1", "heart disorder", "preferred", "en", "X"),
        ("X:1", "Cardiac disorder", "exact", "en", "X"),
        ("X:1", "bad heart", "layperson", "en", "X"),
        ("X:1", "HD", "abbreviation", "en", "X"),
        ("X:1", "heart 😀 – trouble", "related", "en", "X"),
        ("X:1", "ticker", "related", "en", "X"),
        ("X:1", "heart disorder", "narrow", "en", "X"),
        ("X:1", "HDs", "related", "en", "X"),
        ("X:2", "valve disorder", "preferred", "en", "X"),
        ("X:3", "root", "preferred", "en", "X"),
    ],
    "definitions": [("X:1", 'A disorder, of the "heart"; not !x.')],
    "triples": [("X:1", "is_a", "X:3"), ("X:1", "has_part", "X:2"), ("X:2", "is_a", "X:1")],
    "equivalences": [("X:1", "xref", "X:2")],
    "licence": "https://example.org/by",
    "alternatives": {"X:1": ["X:9", "X:8", "X:81", "X:7"]},
}
#: what both forms of the ontology leave out
OBO_LEFT_OUT = {
    "obsolete terms": 2,
    "terms without a label": 1,
    "edges to terms left out": 1,
    "xrefs to other vocabularies": 1,
    "synonyms of an unknown scope, taken as related (hasSlang)": 1,
    "types of synonyms that are not used (odd_type)": 1,
}


def test_obo(tmp_path: Path) -> None:
    """OBO Flat File Format 1.4: comments begin with !, not so in quotes; a synonym without a scope
    is related; an obsolete term is another id of what replaces it, through others too."""
    path = tmp_path / "x.obo"
    path.write_bytes(OBO.replace("\n", "\r\n").encode())
    lines = {"subset lines": 1, "intersection_of lines": 1, "[Instance] stanzas": 1}
    assert list_parts(obo.read(path)) == OBO_GRAPH | {
        "source": "OBO file x.obo",
        "version": "fake/2026-01-01",
        "left_out": OBO_LEFT_OUT | lines,
    }
    assert list(obo.texts(path)) == [
        ("X:1", "definition", 'A disorder, of the "heart"; not !x.'),
        ("X:1", "comment", "Seen often."),
    ]
    assert list_parts(obo.read(path, "disorder"))["entities"] == [
        ("X:1", "heart disorder", "disorder"),
        ("X:2", "valve disorder", "disorder"),
        ("X:3", "root", "disorder"),
    ]


IRI, OIO = "http://purl.obolibrary.org/obo/", "http://www.geneontology.org/formats/oboInOwl#"


def test_obo_graph_json(tmp_path: Path) -> None:
    """The same ontology as OBO Graphs has it. The property of a licence is Dublin Core's."""

    def say(predicate: str, value: str) -> dict[str, str]:
        return {"pred": predicate, "val": value}

    synonyms = [
        say("hasExactSynonym", "Cardiac  disorder"),
        say("hasBroadSynonym", "bad heart") | {"synonymType": f"{OIO}layperson"},
        say("hasExactSynonym", "HD") | {"synonymType": f"{IRI}OMO_0003000"},
        say("hasRelatedSynonym", "heart 😀 – trouble"),
        say("hasSlang", "ticker"),
        say("hasNarrowSynonym", "heart disorder"),
        say("hasRelatedSynonym", "HDs") | {"synonymType": f"{OIO}odd_type"},
    ]
    first = {
        "definition": {"val": 'A disorder, of the "heart"; not !x.', "xrefs": ["ref:1"]},
        "comments": ["Seen often."],
        "synonyms": synonyms,
        "subsets": [f"{IRI}x#slim"],
        "xrefs": [{"val": "X:2"}, {"val": "UMLS:C1"}],
        "basicPropertyValues": [say(f"{OIO}hasAlternativeId", "X:9")],
    }
    old = [say(f"{OIO}hasAlternativeId", "X:81"), say(f"{IRI}IAO_0100001", f"{IRI}X_7")]
    older = [say(f"{IRI}IAO_0100001", f"{IRI}X_1"), say(f"{OIO}created_by", "me")]
    nodes = [
        {"id": f"{IRI}X_1", "lbl": "heart disorder", "type": "CLASS", "meta": first},
        {"id": f"{IRI}X_2", "lbl": "valve disorder", "type": "CLASS"}
        | {
            "meta": {
                "basicPropertyValues": [say(f"{OIO}hasOBONamespace", "own")],
                "xrefs": [{"val": "X:1"}],
            }
        },
        {"id": f"{IRI}X_3", "lbl": "root"},
        {"id": f"{IRI}X_8", "lbl": "old heart disorder", "type": "CLASS"}
        | {"meta": {"deprecated": True, "basicPropertyValues": old}},
        {"id": f"{IRI}X_7", "lbl": "older heart disorder", "type": "CLASS"}
        | {"meta": {"deprecated": True, "basicPropertyValues": older}},
        {"id": f"{IRI}X_6", "type": "CLASS"},
        {"id": f"{IRI}RO_1", "lbl": "has part", "type": "PROPERTY"},
        {"id": f"{IRI}I_1", "type": "INDIVIDUAL"},
    ]
    edges = [
        {"sub": f"{IRI}X_1", "pred": "is_a", "obj": f"{IRI}X_3"},
        {"sub": f"{IRI}X_1", "pred": "is_a", "obj": f"{IRI}X_8"},
        {"sub": f"{IRI}X_1", "pred": f"{IRI}RO_1", "obj": f"{IRI}X_2"},
        {"sub": f"{IRI}X_2", "pred": "is_a", "obj": f"{IRI}X_1"},
        {"sub": f"{IRI}RO_1", "pred": "subPropertyOf", "obj": f"{IRI}RO_2"},
    ]
    meta = {
        "version": "http://example.org/fake/2026-01-01",
        "basicPropertyValues": [
            say("http://purl.org/dc/terms/license", "https://example.org/by"),
            say(f"{OIO}default-namespace", "fake"),
        ],
    }
    graph = {"id": "x", "meta": meta, "nodes": nodes, "edges": edges}
    graph["logicalDefinitionAxioms"] = [{"definedClassId": f"{IRI}X_2"}]
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"graphs": [graph]}))
    assert list_parts(obo.read(path)) == OBO_GRAPH | {
        "source": "OBO file x.json",
        "version": "http://example.org/fake/2026-01-01",
        "left_out": OBO_LEFT_OUT
        | {
            "properties of terms": 1,
            "subsets of terms": 1,
            "nodes of type INDIVIDUAL": 1,
            "edges between relations": 1,
            "logicalDefinitionAxioms": 1,
        },
    }


OWL = f"""<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" xmlns:owl="http://www.w3.org/2002/07/owl#"
 xmlns:obo="{IRI}" xmlns:oio="{OIO}" xmlns:dct="http://purl.org/dc/terms/">
<owl:Ontology rdf:about="http://example.org/x"><owl:versionInfo>2026</owl:versionInfo>
<dct:license rdf:resource="https://example.org/by"/></owl:Ontology>
<owl:ObjectProperty rdf:about="{IRI}RO_1"><rdfs:label>has part</rdfs:label></owl:ObjectProperty>
<owl:Class rdf:about="{IRI}X_1"><rdfs:label xml:lang="en">heart disorder</rdfs:label>
<rdfs:label xml:lang="fr">coeur</rdfs:label><obo:IAO_0000115>Of the heart.</obo:IAO_0000115>
<oio:hasExactSynonym xml:lang="de">heart disorder</oio:hasExactSynonym>
<oio:hasBroadSynonym>bad heart 😀</oio:hasBroadSynonym>
<oio:hasAlternativeId>X:9</oio:hasAlternativeId>
<oio:hasDbXref>X:2</oio:hasDbXref><oio:hasDbXref>UMLS:C1</oio:hasDbXref>
<rdfs:subClassOf><owl:Restriction><owl:onProperty rdf:resource="{IRI}RO_1"/>
<owl:someValuesFrom rdf:resource="{IRI}X_2"/></owl:Restriction></rdfs:subClassOf>
<rdfs:subClassOf><owl:Restriction><owl:onProperty rdf:resource="{IRI}RO_1"/>
<owl:allValuesFrom rdf:resource="{IRI}X_2"/></owl:Restriction></rdfs:subClassOf></owl:Class>
<owl:Class rdf:about="{IRI}X_2"><rdfs:label xml:lang="de">Klappe</rdfs:label>
<oio:hasOBONamespace>own</oio:hasOBONamespace>
<rdfs:subClassOf rdf:resource="{IRI}X_1"/></owl:Class>
<owl:Class rdf:about="{IRI}X_8"><rdfs:label>old</rdfs:label>
<owl:deprecated rdf:datatype="http://www.w3.org/2001/XMLSchema#boolean">true</owl:deprecated>
<obo:IAO_0100001 rdf:resource="{IRI}X_1"/></owl:Class>
<owl:Class rdf:about="{IRI}X_6"/>
</rdf:RDF>
"""


def test_owl(tmp_path: Path) -> None:
    """A name has the language of its literal: the German label, the only one of X:2, is preferred,
    and German; a synonym that is the label in another language changes nothing of the label."""
    path = tmp_path / "x.owl"
    path.write_text(OWL)
    assert list_parts(owl.read(path)) == {
        "entities": [("X:1", "heart disorder", "X"), ("X:2", "Klappe", "own")],
        "names": [
            ("X:1", "heart disorder", "preferred", "en", "X"),
            ("X:1", "coeur", "synonym", "fr", "X"),
            ("X:1", "heart disorder", "exact", "de", "X"),
            ("X:1", "bad heart 😀", "broad", "en", "X"),
            ("X:2", "Klappe", "preferred", "de", "X"),
        ],
        "definitions": [("X:1", "Of the heart.")],
        "triples": [("X:1", "has_part", "X:2"), ("X:2", "is_a", "X:1")],
        "equivalences": [("X:1", "xref", "X:2")],
        "source": "RDF file x.owl",
        "version": "2026",
        "licence": "https://example.org/by",
        "alternatives": {"X:1": ["X:9", "X:8"]},
        "left_out": {
            "obsolete terms": 1,
            "terms without a label": 1,
            "xrefs to other vocabularies": 1,
            "axioms that are no triple": 1,
        },
    }


SKOS = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix t: <http://example.org/t/> .
t:scheme a skos:ConceptScheme .
t:1 a skos:Concept ; skos:prefLabel "coeur"@fr, "heart"@en ; skos:altLabel "ticker"@en, "pump" ;
  skos:hiddenLabel "hart"@en ; skos:definition "Beats."@en ; skos:narrower t:2 .
t:2 a skos:Concept ; skos:prefLabel "valve"@en ; skos:related t:3 ; skos:exactMatch t:3 .
t:3 a skos:Concept ; skos:prefLabel "flap"@en ; skos:broader t:1 .
"""


def test_skos(tmp_path: Path) -> None:
    """skos:narrower is skos:broader the other way round. What is preferred is --language's."""
    path = tmp_path / "x.ttl"
    path.write_text(SKOS)
    one, two, three = (f"http://example.org/t/{number}" for number in (1, 2, 3))
    graph = list_parts(owl.read(path, language="fr"))
    assert graph["names"] == [
        (one, "coeur", "preferred", "fr", "http"),
        (one, "heart", "synonym", "en", "http"),
        (one, "pump", "synonym", "fr", "http"),
        (one, "ticker", "synonym", "en", "http"),
        (one, "hart", "related", "en", "http"),
        (two, "valve", "preferred", "en", "http"),
        (three, "flap", "preferred", "en", "http"),
    ]
    assert graph["entities"] == [
        (one, "coeur", "concept"),
        (two, "valve", "concept"),
        (three, "flap", "concept"),
    ]
    assert graph["definitions"] == [(one, "Beats.")]
    assert graph["triples"] == [
        (two, "related", three),
        (two, "broader", one),
        (three, "broader", one),
    ]
    assert graph["equivalences"] == [(two, "xref", three)]
    assert "left_out" not in graph


CLAML = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE ClaML SYSTEM "ClaML.dtd">
<ClaML version="2.0.0"><Title date="2026-01-01" name="FAKE-10" version="2026">Fake</Title>
<Modifier code="S1"><Rubric kind="preferred"><Label>Place</Label></Rubric></Modifier>
<ModifierClass modifier="S1" code=".0"><Rubric kind="preferred"><Label>Left</Label></Rubric>
</ModifierClass>
<Class code="I" kind="chapter"><SubClass code="A00-A09"/>
<Rubric id="D1" kind="preferred"><Label xml:lang="en">Heart
 things</Label></Rubric></Class>
<Class code="A00-A09" kind="block"><SuperClass code="I"/>
<Rubric kind="preferred"><Label>Gout 😀 – mild</Label></Rubric>
<Rubric kind="note"><Label>Only a note.</Label></Rubric></Class>
<Class code="A00" kind="category"><SuperClass code="A00-A09"/>
<Rubric kind="preferred"><Label>Gout</Label></Rubric>
<Rubric kind="preferredLong"><Label>Gout of a joint</Label></Rubric>
<Rubric kind="note"><Label>A note before.</Label></Rubric>
<Rubric kind="definition"><Label>Swollen <Reference class="in brackets">B00</Reference>joint.
</Label></Rubric>
<Rubric kind="inclusion"><Label>podagra <Reference>(B00)</Reference></Label></Rubric>
<Rubric kind="inclusion"><Label>Gout</Label></Rubric>
<Rubric kind="exclusion"><Label>flu</Label></Rubric></Class>
<Class code="A01" kind="category"><SuperClass code="A00-A09"/>
<Rubric kind="inclusion"><Label>nameless</Label></Rubric></Class></ClaML>
"""


def test_claml(tmp_path: Path) -> None:
    """A definition goes before a note wherever it is; the note of one that has both is counted
    with the rubrics that are not read."""
    path = tmp_path / "x.xml"
    path.write_text(CLAML)
    assert list_parts(claml.read(path)) == {
        "entities": [
            ("I", "Heart things", "chapter"),
            ("A00-A09", "Gout 😀 – mild", "block"),
            ("A00", "Gout", "category"),
        ],
        "names": [
            ("I", "Heart things", "preferred", "en", "FAKE-10"),
            ("A00-A09", "Gout 😀 – mild", "preferred", "en", "FAKE-10"),
            ("A00", "Gout", "preferred", "en", "FAKE-10"),
            ("A00", "Gout of a joint", "exact", "en", "FAKE-10"),
            ("A00", "podagra", "narrow", "en", "FAKE-10"),
        ],
        "definitions": [("A00-A09", "Only a note."), ("A00", "Swollen joint.")],
        "triples": [("A00-A09", "is_a", "I"), ("A00", "is_a", "A00-A09")],
        "source": "FAKE-10",
        "version": "2026",
        "licence": "not stated; see the file",
        "left_out": {
            "modifiers": 1,
            "classes without a preferred rubric": 1,
            "rubrics of other kinds": 2,
        },
    }
