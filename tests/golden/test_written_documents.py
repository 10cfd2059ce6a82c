"""Golden examples of every format that annotated texts are written in: a record, and the whole
files that it becomes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import DocBin

from inference.convert import record_of, write_records
from kg.documents.mentions import Document, Mention

TEXT = "Gout 😀 – <mild>\nNo coldsore"
#: Gout [0, 4), <mild> [9, 15), cold [19, 23) and sore [23, 27), which ends with the text
RECORDS: list[dict[str, Any]] = [
    {
        "id": "ward/7|a b",
        "text": TEXT,
        "mentions": [
            {"start": 0, "end": 4, "type": "Joint disease", "entity": "D:1", "name": "Podagra"}
            | {"score": 0.25, "text": "Gout"},
            {"start": 9, "end": 15, "type": None, "entity": None, "score": None},
            {"start": 19, "end": 23, "type": "Disease", "entity": "x2", "score": 1.0}
            | {"negated": True, "family": False, "part": "ache", "matched": "vectors"},
            {"start": 23, "end": 27, "type": "Disease", "entity": "D:3", "score": 1.0},
        ],
    },
    {"id": "8", "text": "none", "mentions": []},
]


def test_a_record_of_a_document() -> None:
    """Mentions by their places, with and without an entity; attributes that hold."""
    gout = Mention(0, 4, "D:1", 0.25, "Disease", ("negated", "historical"))
    document = Document("7", TEXT, (Mention(23, 27, "D:3"), gout), "", (Mention(0, 2, ""),))
    assert record_of(document) == {
        "id": "7",
        "text": TEXT,
        "mentions": [
            {"start": 0, "end": 2, "text": "Go", "type": None, "entity": None, "score": None},
            {"start": 0, "end": 4, "text": "Gout", "type": "Disease", "entity": "D:1"}
            | {"score": 0.25, "negated": True, "historical": True},
            {"start": 23, "end": 27, "text": "sore", "type": None, "entity": "D:3", "score": 1.0},
        ],
    }


#: the line end of the text, and the bar of the id, are blanks
PUBTATOR = """\
ward/7 a b|t|Gout 😀 – <mild> No coldsore
ward/7 a b|a|
ward/7 a b\t0\t4\tGout\tJoint disease\tD:1
ward/7 a b\t9\t15\t<mild>\t-\t-
ward/7 a b\t19\t23\tcold\tDisease\tx2\tnegated=true; part=ache; matched=vectors
ward/7 a b\t23\t27\tsore\tDisease\tD:3

8|t|none
8|a|

"""
BIOC = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE collection SYSTEM "BioC.dtd">
<collection><source>KEPL</source><date></date><key></key>
<document><id>ward/7|a b</id><passage><offset>0</offset><text>Gout 😀 – &lt;mild&gt;
No coldsore</text>
<annotation id="1"><infon key="type">Joint disease</infon><infon key="identifier">D:1</infon>\
<infon key="name">Podagra</infon><infon key="score">0.25</infon>\
<location offset="0" length="4"/><text>Gout</text></annotation>
<annotation id="2"><infon key="identifier">-</infon>\
<location offset="9" length="6"/><text>&lt;mild&gt;</text></annotation>
<annotation id="3"><infon key="type">Disease</infon><infon key="identifier">x2</infon>\
<infon key="score">1.0</infon><infon key="negated">true</infon><infon key="part">ache</infon>\
<infon key="matched">vectors</infon><location offset="19" length="4"/><text>cold</text>\
</annotation>
<annotation id="4"><infon key="type">Disease</infon><infon key="identifier">D:3</infon>\
<infon key="score">1.0</infon><location offset="23" length="4"/><text>sore</text></annotation>\
</passage></document>
<document><id>8</id><passage><offset>0</offset><text>none</text></passage></document>
</collection>
"""
CSV = """\
id,start,end,text,type,entity,name,score,part,matched,negated,family,historical,hypothetical
ward/7|a b,0,4,Gout,Joint disease,D:1,Podagra,0.25,,,,,,
ward/7|a b,9,15,<mild>,,,,,,,,,,
ward/7|a b,19,23,cold,Disease,x2,,1.0,ache,vectors,True,False,,
ward/7|a b,23,27,sore,Disease,D:3,,1.0,,,,,,
"""
CONLL = """\
# id = ward/7|a b
Gout\tB-Joint disease
😀\tO
–\tO
<\tB-Entity
mild\tI-Entity
>\tI-Entity

No\tO
coldsore\tB-Disease

# id = 8
none\tO

"""


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("pubtator", PUBTATOR),
        ("bioc", BIOC),
        ("csv", CSV),
        ("tsv", CSV.replace(",", "\t")),
        ("conll", CONLL),
        ("jsonl", "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in RECORDS)),
    ],
)
def test_text_formats(form: str, expected: str, tmp_path: Path) -> None:
    """CoNLL: "cold" and "sore" are one word, which "cold" begins; of mentions without a type that
    is Entity."""
    assert write_records(RECORDS, tmp_path / "x", form) == 2
    assert (tmp_path / "x").read_bytes().decode() == expected


ANN = """\
T1\tJoint_disease 0 4\tGout
N1\tReference T1 D:1\tPodagra
T2\tEntity 9 15\t<mild>
T3\tDisease 19 23\tcold
N3\tReference T3 KEPL:x2\tcold
A1\tNegated T3
T4\tDisease 23 27\tsore
N4\tReference T4 D:3\tsore
"""


def test_brat(tmp_path: Path) -> None:
    assert write_records(RECORDS, tmp_path / "x", "brat") == 2
    files = {
        path.relative_to(tmp_path / "x").as_posix(): path.read_bytes().decode()
        for path in (tmp_path / "x").rglob("*.*")
    }
    assert files == {
        "ward/7-a-b.txt": TEXT,
        "ward/7-a-b.ann": ANN,
        "8.txt": "none",
        "8.ann": "",
        "annotation.conf": (
            "[entities]\nDisease\nEntity\nJoint_disease\n\n[relations]\n\n[events]\n\n[attributes]\n"
            "Negated\tArg:<ENTITY>\nFamily\tArg:<ENTITY>\nHistorical\tArg:<ENTITY>\n"
            "Hypothetical\tArg:<ENTITY>\n"
        ),
    }


def annotation(number: int, start: int, text: str, **infons: str) -> dict[str, Any]:
    place = [{"offset": start, "length": len(text)}]
    return {"id": str(number), "infons": infons, "text": text, "locations": place}


def document(name: str, text: str, annotations: Iterable[dict[str, Any]]) -> dict[str, Any]:
    passage = {"offset": 0, "infons": {}, "text": text, "sentences": [], "relations": []}
    passage["annotations"] = list(annotations)
    return {"id": name, "infons": {}, "passages": [passage], "annotations": [], "relations": []}


def test_bioc_json(tmp_path: Path) -> None:
    write_records(RECORDS, tmp_path / "x", "biocjson")
    said = {"negated": "true", "part": "ache", "matched": "vectors"}
    annotations = [
        annotation(
            1, 0, "Gout", type="Joint disease", identifier="D:1", name="Podagra", score="0.25"
        ),
        annotation(2, 9, "<mild>", identifier="-"),
        annotation(3, 19, "cold", type="Disease", identifier="x2", score="1.0", **said),
        annotation(4, 23, "sore", type="Disease", identifier="D:3", score="1.0"),
    ]
    assert json.loads((tmp_path / "x").read_text()) == {
        "source": "KEPL",
        "date": "",
        "key": "",
        "infons": {},
        "documents": [document("ward/7|a b", TEXT, annotations), document("8", "none", [])],
    }


def test_pubannotation(tmp_path: Path) -> None:
    write_records(RECORDS, tmp_path / "x", "pubannotation")
    assert json.loads((tmp_path / "x").read_text()) == [
        {
            "sourceid": "ward/7|a b",
            "text": TEXT,
            "denotations": [
                {"id": "T1", "span": {"begin": 0, "end": 4}, "obj": "Joint disease"},
                {"id": "T2", "span": {"begin": 9, "end": 15}, "obj": "Entity"},
                {"id": "T3", "span": {"begin": 19, "end": 23}, "obj": "Disease"},
                {"id": "T4", "span": {"begin": 23, "end": 27}, "obj": "Disease"},
            ],
            "attributes": [
                {"id": "A1", "pred": "Normalization", "subj": "T1", "obj": "D:1"},
                {"id": "A2", "pred": "Normalization", "subj": "T3", "obj": "x2"},
                {"id": "A3", "pred": "Negated", "subj": "T3", "obj": True},
                {"id": "A4", "pred": "Normalization", "subj": "T4", "obj": "D:3"},
            ],
        },
        {"sourceid": "8", "text": "none", "denotations": [], "attributes": []},
    ]


def test_docbin(tmp_path: Path) -> None:
    """Mentions become whole tokens: of "cold" and "sore", both of which become their word, the
    first is kept."""
    write_records(RECORDS, tmp_path / "x", "docbin")
    first, second = DocBin().from_disk(tmp_path / "x").get_docs(spacy.blank("xx").vocab)
    assert (first.text, first.user_data) == (TEXT, {"id": "ward/7|a b"})
    assert [(e.start_char, e.end_char, e.label_, e.kb_id_) for e in first.ents] == [
        (0, 4, "Joint disease", "D:1"),
        (9, 15, "ENTITY", ""),
        (19, 27, "Disease", "x2"),
    ]
    assert (second.text, second.user_data, second.ents) == ("none", {"id": "8"}, ())
