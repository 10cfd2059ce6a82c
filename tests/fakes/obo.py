"""A small ontology in OBO text and in OBO-graph JSON, with what the real ones contain:
`write_text`, `write_json`."""

from __future__ import annotations

import json
from pathlib import Path

from core.files import atomic_write

TEXT = r"""format-version: 1.2
data-version: fake/2099-01-01
default-namespace: fake
property_value: terms:license https://example.org/licence
ontology: fake

[Term]
id: X:0000001
name: root \{all\}
comment: A comment. {xref="PMID:1"}

[Term]
id: X:0000002
name: small thing \! not a remark
namespace: branch
def: "Called \"small\"\, with a\nsecond line." [PMID:2, url:http\://example.org]
comment: First.
synonym: "minor thing" EXACT []
synonym: "little one" EXACT layperson []
synonym: "ST" RELATED abbreviation []
synonym: "small things" EXACT plural_form []
synonym: "smalle thing" BROAD uk_spelling []
synonym: "old thing" EXACT obsolete_synonym []
synonym: "tiny thing" NARROW [X:1 "EXACT"]
synonym: "thing" BROAD []
synonym: "no scope" []
is_a: X:0000001 {source="X"} ! root
is_a: X:0000001 ! the same again
relationship: part_of X:0000003 {source="X"} ! whole thing
relationship: part_of Y:0000009 ! not in this file
is_a: X:0000004 ! obsolete

[Term]
id: X:0000003
name: whole thing
def: "A whole, in one \
line." []
is_a: X:0000001

[Term]
id: X:0000004
name: obsolete thing
def: "Gone." []
synonym: "gone" EXACT []
is_obsolete: true

[Term]
id: X:0000005

[Typedef]
id: part_of
name: part of
"""

BASE = "http://purl.obolibrary.org/obo/"


def write_text(path: Path, text: str = TEXT) -> Path:
    with atomic_write(path) as handle:
        handle.write(text)
    return path


def graphs() -> dict:
    """The JSON value; a test may break it before it is written."""
    synonyms = [
        ("hasExactSynonym", "minor thing", ""),
        ("hasExactSynonym", "little one", BASE + "x#layperson"),
        ("hasRelatedSynonym", "ST", BASE + "OMO_0003000"),
        ("hasNarrowSynonym", "tiny thing", ""),
        ("hasBroadSynonym", "thing", ""),
    ]
    nodes = [
        {
            "id": BASE + "X_0000001",
            "type": "CLASS",
            "lbl": "root {all}",
            "meta": {"comments": ["A comment."]},
        },
        {
            "id": BASE + "X_0000002",
            "type": "CLASS",
            "lbl": "small thing",
            "meta": {
                "definition": {"val": 'Called "small".', "xrefs": []},
                "comments": ["First."],
                "synonyms": [
                    {"pred": p, "val": v} | ({"synonymType": t} if t else {})
                    for p, v, t in synonyms
                ],
                "basicPropertyValues": [
                    {
                        "pred": "http://www.geneontology.org/formats/oboInOwl#hasOBONamespace",
                        "val": "branch",
                    }
                ],
            },
        },
        {"id": BASE + "X_0000003", "type": "CLASS", "lbl": "whole thing"},
        {
            "id": BASE + "X_0000004",
            "type": "CLASS",
            "lbl": "obsolete thing",
            "meta": {"deprecated": True},
        },
        {"id": BASE + "X_0000005", "type": "CLASS"},
        {"id": BASE + "BFO_0000050", "type": "PROPERTY", "lbl": "part of"},
    ]
    edges = [
        ("X_0000002", "is_a", "X_0000001"),
        ("X_0000002", BASE + "BFO_0000050", "X_0000003"),
        ("X_0000003", BASE + "RO_0000001", "X_0000001"),
        ("X_0000003", BASE + "x#near", "X_0000002"),
        ("X_0000002", "is_a", "X_0000004"),
        ("X_0000002", "is_a", "Y_0000009"),
    ]
    other = {
        "nodes": [{"id": BASE + "X_0000005", "type": "CLASS", "lbl": "named later"}],
        "edges": [{"sub": BASE + "X_0000005", "pred": "is_a", "obj": BASE + "X_0000001"}],
    }
    first = {
        "nodes": nodes,
        "edges": [{"sub": BASE + s, "pred": p, "obj": BASE + o} for s, p, o in edges],
        "meta": {"version": "fake/2099", "basicPropertyValues": []},
    }
    return {"graphs": [first, other]}


def write_json(path: Path, value: object = None) -> Path:
    with atomic_write(path) as handle:
        json.dump(graphs() if value is None else value, handle, indent=1)
    return path
