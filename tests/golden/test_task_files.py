"""Golden examples of the files of tasks: a few lines as each data set has them, and the whole
examples that they mean."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.files import InputError
from datamodules import blurb, chineseblue, formats, ranking
from datamodules.tasks import Pair, Relation, Tagged, own


def write(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode(encoding))
    return path


def group(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


#: a blank of full width is a character; a B or I tag may have a line or a hyphen
CHARACTERS = (
    "痛 B_symptom\r\n风 I_symptom\r\n😀 O\n\u3000 O\n脚 I-body\n头 B-body\n头 I-drug\n"
    "\n \n头 B-body"
)


def test_characters(tmp_path: Path) -> None:
    """cMedQANER, DXY-NER. An I tag after O, or of another type, begins an entity."""
    found = Counter[str]()
    path = write(tmp_path / "train.txt", CHARACTERS)
    entities = [(0, 2, "symptom"), (4, 5, "body"), (5, 6, "body"), (6, 7, "drug")]
    assert formats.bio(path, tokens=False, counts=found) == [
        Tagged("train:1", "train:1", "痛风😀\u3000脚头头", entities, None),
        Tagged("train:10", "train:10", "头", [(0, 1, "body")], None),
    ]
    assert found == {formats.OPENED: 2}


TOKENS = """\
Gout\tB
😀\tO
of\tO
toe\tI
-\tI
like\tI
.\tO

###MEDLINE:7
cold\tNN\tB-X
sore\tNN\tB-X
ache\tNN\tI-Y
"""


def test_tokens(tmp_path: Path) -> None:
    """BC5-chem, BC5-disease, NCBI, BC2GM, JNLPBA: words with a blank between, all of one type."""
    found = Counter[str]()
    path = write(tmp_path / "train.tsv", TOKENS)
    words = [(0, 4), (5, 6), (7, 9), (10, 13), (14, 15), (16, 20), (21, 22)]
    assert formats.bio(path, tokens=True, counts=found, merged="Disease") == [
        Tagged(
            "train:1",
            "train:1",
            "Gout 😀 of toe - like .",
            [(0, 4, "Disease"), (10, 20, "Disease")],
            words,
        ),
        Tagged(
            "train:10",
            "###MEDLINE:7",
            "cold sore ache",
            [(0, 4, "Disease"), (5, 14, "Disease")],
            [(0, 4), (5, 9), (10, 14)],
        ),
    ]
    assert found == {formats.OPENED: 1, formats.COLUMNS: 3}
    types = [
        e[2] for e in formats.bio(write(tmp_path / "x.txt", "a B-X\nb I-Y"), tokens=True)[0][3]
    ]
    assert types == ["X", "Y"]


PUBTATOR = """\
7|t|Gout 😀
7|a|is pain
7\t0\t4\tGout\tDisease\tD:1
7\t10\t14\tpain\tSign\t-
7\t7\t14\tis pain\tDisease
7\t10\t14\tpain\tSign\tD:2

"""


def test_pubtator(tmp_path: Path) -> None:
    """Types of all mentions, each place once; "pain" is inside another."""
    found = Counter[str]()
    path = write(tmp_path / "x.pubtator", PUBTATOR)
    entities = [(0, 4, "Disease"), (7, 14, "Disease"), (10, 14, "Sign")]
    assert formats.pubtator(path, counts=found) == [Tagged("7", "7", "Gout 😀\nis pain", entities)]
    assert +found == {formats.OVERLAP: 1}
    assert formats.pubtator(path, merged="E")[0].entities == [
        (0, 4, "E"),
        (7, 14, "E"),
        (10, 14, "E"),
    ]


def test_pairs(tmp_path: Path) -> None:
    """cMedQQ, cMedQNLI, cMedQA: label, first, second."""
    path = write(tmp_path / "train.txt", '1\t头痛？\t"头疼"😀\r\n0\t头痛？\t脚\n')
    assert formats.pairs(path) == [
        Pair("train:1", group("头痛？"), "头痛？", '"头疼"😀', "1"),
        Pair("train:2", group("头痛？"), "头痛？", "脚", "0"),
    ]


def test_answers_of_five_columns(tmp_path: Path) -> None:
    """WebMedQA: department, label, id, question, answer."""
    path = write(tmp_path / "medQA.train.txt", "内科\t0\t9\t头痛？\t水\n内科\t1\t9\t头痛？\t睡😀\n")
    assert formats.pairs(path) == [
        Pair("medQA.train:1", group("头痛？"), "头痛？", "水", "0"),
        Pair("medQA.train:2", group("头痛？"), "头痛？", "睡😀", "1"),
    ]
    for content in ("2\ta\tb\n", "1\ta\n", "1\ta\tb\tc\n", "1\t \tb\n"):
        with pytest.raises(InputError, match=r"x\.txt:1: expected"):
            formats.pairs(write(tmp_path / "x.txt", content))


def write_lines(path: Path, *records: Any) -> Path:
    return write(path, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records))


def test_mentions(tmp_path: Path) -> None:
    """cMedQANER's JSON: offsets are texts, one too high or too low in some records."""
    given = [("TCT", "test", "2"), ("头", "body", "6"), ("头", "body", "5"), ("痛", "sign", "5")]
    record = {"text": "😀做tct头痛", "mention_data": []}
    record["mention_data"] = [{"mention": m, "type": t, "offset": o} for m, t, o in given]
    path = write_lines(tmp_path / "train.json", {"text": "无", "mention_data": []}, record)
    found = Counter[str]()
    assert chineseblue.mentions(path, counts=found) == [
        Tagged("train:1", "train:1", "无", []),
        Tagged(
            "train:2",
            "train:2",
            "😀做tct头痛",
            [(2, 5, "test"), (5, 6, "body"), (6, 7, "sign")],
        ),
    ]
    assert +found == {
        chineseblue.MOVED: 2,
        chineseblue.OTHER_CASE: 1,
        chineseblue.REPEATED: 1,
    }
    far = {"text": "头痛痛", "mention_data": [{"mention": "头", "type": "body", "offset": "2"}]}
    with pytest.raises(InputError, match="at offset 2"):
        chineseblue.mentions(write_lines(tmp_path / "x.json", far))


def entity(start: int, end: int, kind: str, surface: str) -> dict[str, Any]:
    return {"start_idx": start, "end_idx": end, "type": kind, "entity": surface}


def test_nested_entities(tmp_path: Path) -> None:
    """CMeEE: end_idx is the place of the last character."""
    first = {"text": "😀头痛", "entities": []}
    first["entities"] = [entity(1, 2, "sym", "头痛"), entity(1, 1, "bod", "头")]
    first["entities"] += [entity(2, 2, "sym", "痛"), entity(1, 2, "sym", "头痛")]
    path = write(tmp_path / "CMeEE_dev.json", json.dumps([first, {"text": "无", "entities": []}]))
    found = Counter[str]()
    assert chineseblue.read_nested(path, counts=found) == [
        Tagged(
            "CMeEE_dev:1", "CMeEE_dev:1", "😀头痛", [(1, 2, "bod"), (1, 3, "sym"), (2, 3, "sym")]
        ),
        Tagged("CMeEE_dev:1", "CMeEE_dev:1", "无", []),
    ]
    assert found == {chineseblue.REPEATED: 1}


@pytest.mark.parametrize(
    ("start", "end", "surface"), [(2, 1, ""), (2, 3, "痛"), (-1, 1, "头"), (1, 2, "痛")]
)
def test_limits_of_nested_entities(start: int, end: int, surface: str, tmp_path: Path) -> None:
    record = {"text": "😀头痛", "entities": [entity(start, end, "sym", surface)]}
    with pytest.raises(InputError):
        chineseblue.read_nested(write_lines(tmp_path / "x.json", record))


def triple(subject: str, predicate: str, object_: Any, kind: Any = "疾病") -> dict[str, Any]:
    spoken = {"subject": subject, "subject_type": "药物", "predicate": predicate}
    return spoken | {"object": object_, "object_type": kind}


def test_triples(tmp_path: Path) -> None:
    """CMeIE (CHIP-RE), DXY-RE. 甲片 is at 0 and 8, 甲炎 at 3, 甲片炎 at 8: the nearest places that
    do not overlap are marked."""
    text = "甲片治甲炎，也治甲片炎。"
    record = {
        "text": text,
        "spo_list": [
            triple("甲片", "治疗", {"@value": "甲炎"}, {"@value": "疾病"}),
            triple("甲片", "治疗", "甲片炎"),
            triple("甲片", "预防", "甲炎"),
            triple("甲片", "预防", "甲炎"),
            triple("片炎", "治疗", "甲片炎"),
            triple("乙😀", "治疗", "甲炎"),
        ],
    }
    rule = {"subject_type": "药物", "object_type": "疾病"}
    schema = write_lines(
        tmp_path / "53_schemas.json", rule | {"predicate": "治疗"}, rule | {"predicate": "预防"}
    )
    treats, prevents = classes = chineseblue.schema(schema)
    assert classes == ["药物|治疗|疾病", "药物|预防|疾病"]
    path, found = write_lines(tmp_path / "dev.json", record), Counter[str]()
    assert chineseblue.triples(path, counts=found, classes=classes) == [
        Relation(
            "dev:1.1",
            "dev:1",
            "[S]甲片[/S]治[O]甲炎[/O]，也治甲片炎。",
            treats,
            [treats, prevents],
        ),
        Relation("dev:1.2", "dev:1", "[S]甲片[/S]治甲炎，也治[O]甲片炎[/O]。", treats, [treats]),
        Relation("dev:1.3", "dev:1", "甲片治甲炎，也治[O]甲[S]片炎[/S][/O]。", treats, [treats]),
        Relation("dev:1.4", "dev:1", "甲片治[O]甲炎[/O]，也治甲片炎。", treats, [treats]),
    ]
    assert +found == {
        chineseblue.REPEATED: 1,
        chineseblue.SEVERAL: 1,
        chineseblue.NESTED: 1,
        chineseblue.NO_SUBJECT: 1,
    }


def test_queries(tmp_path: Path) -> None:
    """KUAKE-QQR and KUAKE-QTR."""
    records = [
        {"id": "s1", "query1": "头痛", "query2": "头疼😀", "label": "2"},
        {"id": "s2", "query1": "头痛", "query2": "脚", "label": 0},
    ]
    path = write(tmp_path / "KUAKE-QQR_dev.json", json.dumps(records, indent=0))
    assert chineseblue.queries(path, "query1", "query2", labels="012") == [
        Pair("KUAKE-QQR_dev:2", group("头痛"), "头痛", "头疼😀", "2"),
        Pair("KUAKE-QQR_dev:8", group("头痛"), "头痛", "脚", "0"),
    ]
    path = write_lines(tmp_path / "q.json", {"query": "头", "title": "痛", "label": "3"})
    assert chineseblue.queries(path, "query", "title", labels="0123") == [
        Pair("q:1", group("头"), "头", "痛", "3")
    ]
    with pytest.raises(InputError, match="one of"):
        chineseblue.queries(path, "query", "title", labels="012")


def test_questions(tmp_path: Path) -> None:
    """NeikeQA: the question is title and ask; the rows are on lines 2 and 3, 4, 5 and 6."""
    path = write(
        tmp_path / "neike.csv",
        'department,title,ask,answer\r\n内科,头痛  怎么办,"我\n头痛。",多喝水。\n'
        '外科,头痛 怎么办,我 头痛。,"睡，""好""😀"\n内科,头痛 怎么办,我 头痛。,多喝水。\n'
        "内科,脚痛,脚。,多喝水。\n",
        "gb18030",
    )
    head, foot, found = "头痛 怎么办 我 头痛。", "脚痛 脚。", Counter[str]()
    assert ranking.questions(path, counts=found) == [
        Pair("neike:2", group(head), head, "多喝水。", "1"),
        Pair("neike:4", group(head), head, '睡，"好"😀', "1"),
        Pair("neike:6", group(foot), foot, "多喝水。", "1"),
    ]
    assert found == {ranking.FURTHER: 1, ranking.REPEATED: 1}


def test_chemprot(tmp_path: Path) -> None:
    """Title, one blank, abstract: "It blocks" begins at 16, the third sentence at 41; "vs." ends
    none. The gene of the second abstract has a full stop inside."""
    abstracts = write(
        tmp_path / "abstracts.tsv",
        "1\tGoutine acts. 😀\tIt blocks GOT1 (a gene). Goutine-GOT2 vs. toes.\n"
        "2\tDrug acts.\tKinase 2. Alpha binds drug.\n",
    )
    entities = write(
        tmp_path / "entities.tsv",
        "1\tT1\tCHEMICAL\t0\t7\tGoutine\n1\tT2\tGENE-Y\t26\t30\tGOT1\n"
        "1\tT3\tCHEMICAL\t41\t48\tGoutine\n1\tT4\tGENE-N\t49\t53\tGOT2\n"
        "1\tT5\tGENE\t41\t53\tGoutine-GOT2\n"
        "2\tT1\tCHEMICAL\t33\t37\tdrug\n2\tT2\tGENE-Y\t11\t26\tKinase 2. Alpha\n",
    )
    gold = write(
        tmp_path / "gold.tsv",
        "1\tCPR:4\tArg1:T3\tArg2:T4\n1\tCPR:9\tArg1:T3\tArg2:T4\n1\tCPR:3\tArg1:T1\tArg2:T2\n",
    )
    found, mentions = Counter[str](), dict[tuple[str, str], str]()
    assert blurb.chemprot(abstracts, entities, gold, counts=found, mentions=mentions) == [
        Relation("1.T3.T4", "1", "@CHEMICAL$-@GENE$ vs. toes.", "CPR:4", ["CPR:4", "CPR:9"]),
        Relation("1.T3.T5", "1", "@CHEM-GENE$ vs. toes.", "false", ["false"]),
        Relation("2.T1.T2", "2", "@GENE$ binds @CHEMICAL$.", "false", ["false"]),
    ]
    assert found == {blurb.SEVERAL: 1, blurb.CROSS: 1, blurb.OVERLAPPING: 1, blurb.MERGED: 1}
    assert mentions == {
        ("1", "T3"): "Goutine",
        ("1", "T4"): "GOT2",
        ("1", "T5"): "Goutine-GOT2",
        ("2", "T1"): "drug",
        ("2", "T2"): "Kinase 2. Alpha",
    }


DDI = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<document id="DDI.d1">
<sentence id="DDI.d1.s0" text="Drug A 😀 raises B and C drugs.">
<entity id="e0" charOffset="5-5" type="drug" text="A"/>
<entity id="e1" charOffset="16-16;24-28" type="drug" text="B drugs"/>
<entity id="e2" charOffset="22-28" type="group" text="C drugs"/>
<entity id="e3" charOffset="0-3" type="drug" text="Drugs"/>
<pair id="DDI.d1.s0.p0" e1="e0" e2="e1" ddi="true" type="mechanism"/>
<pair id="DDI.d1.s0.p1" e1="e0" e2="e2" ddi="false"/>
<pair id="DDI.d1.s0.p2" e1="e1" e2="e2" ddi="true"/>
</sentence>
<sentence id="DDI.d1.s1" text="Drug A."><entity id="e0" charOffset="5-5" type="drug" text="A"/>
</sentence></document>
"""


def test_ddi(tmp_path: Path) -> None:
    """Offsets include the last character. Of an entity of two parts the first has the marker."""
    write(tmp_path / "Train" / "b" / "d1.xml", DDI)
    found, mentions = Counter[str](), dict[tuple[str, str], str]()
    assert blurb.ddi(tmp_path, "Train", counts=found, mentions=mentions) == [
        Relation(
            "DDI.d1.s0.p0",
            "DDI.d1",
            "Drug @DRUG$ 😀 raises @DRUG$ and C .",
            "mechanism",
            ["mechanism"],
        ),
        Relation(
            "DDI.d1.s0.p1", "DDI.d1", "Drug @DRUG$ 😀 raises B and @DRUG$.", "false", ["false"]
        ),
        Relation("DDI.d1.s0.p2", "DDI.d1", "Drug A 😀 raises @DRUG-DRUG$.", "int", ["int"]),
    ]
    assert +found == {blurb.SPLIT: 1, blurb.OVERLAPPING: 1, blurb.UNTYPED: 1, blurb.MISPLACED: 1}
    assert mentions == {
        ("DDI.d1", "e0"): "A",
        ("DDI.d1", "e1"): "B drugs",
        ("DDI.d1", "e2"): "C drugs",
    }


@pytest.mark.parametrize(("offset", "right"), [("6-6", True), ("7-7", False), ("6-5", False)])
def test_limits_of_ddi(offset: str, right: bool, tmp_path: Path) -> None:
    """The sentence "Drug A." has 7 characters."""
    content = DDI.replace('text="Drug A."><entity id="e0" charOffset="5-5"', "X").replace(
        "X", f'text="Drug A."><entity id="e0" charOffset="{offset}"'
    )
    write(tmp_path / "Train" / "d1.xml", content)
    if right:
        assert len(blurb.ddi(tmp_path, "Train")) == 3
        return
    with pytest.raises(InputError, match="outside its sentence of 7"):
        blurb.ddi(tmp_path, "Train")


def test_gad(tmp_path: Path) -> None:
    """A sentence that lacks a marker is counted."""
    rows = [("@GENE$ and @DISEASE$ 😀.", "1"), ("@GENE$ alone", "0")]
    expected: list[Sequence[str]] = [rows[0], rows[1]]
    bare = write(tmp_path / "train.tsv", "".join(f"{text}\t{label}\r\n" for text, label in rows))
    found = Counter[str]()
    assert blurb.gad(bare, counts=found) == [
        Relation(f"train:{n}", f"train:{n}", text, label, [label])
        for n, (text, label) in enumerate(expected, start=1)
    ]
    assert found == {blurb.MARKER: 1}
    path = write(
        tmp_path / "test.tsv",
        "index\tsentence\tlabel\n" + "".join(f"9\t{text}\t{label}\n" for text, label in rows),
    )
    assert blurb.gad(path) == [
        Relation("test:2", "test:2", rows[0][0], "1", ["1"]),
        Relation("test:3", "test:3", rows[1][0], "0", ["0"]),
    ]


def test_own_lines(tmp_path: Path) -> None:
    """Pairs, answers and relations of one's own."""
    path = write_lines(
        tmp_path / "p.jsonl",
        {"first": "a", "second": "b😀", "label": 2},
        {"id": 7, "document": "d", "first": "a", "second": "b", "label": "no"},
    )
    assert own.kind_of_lines(path) == "pair"
    assert own.read_lines(path, "pair") == [
        Pair("p:1", "p:1", "a", "b😀", "2"),
        Pair("7", "d", "a", "b", "no"),
    ]
    path = write_lines(
        tmp_path / "a.jsonl",
        {"question": "q", "answer": "a", "label": True},
        {"id": "x", "document": 3, "question": "q", "answer": "b", "label": 0},
    )
    assert own.kind_of_lines(path) == "ranking"
    assert own.read_lines(path, "ranking") == [
        Pair("a:1", "q", "q", "a", "1"),
        Pair("x", "3", "q", "b", "0"),
    ]
    text = "😀 gout-toe"  # gout [2, 6), toe [7, 10), which ends with the text
    path = write_lines(
        tmp_path / "r.jsonl",
        {"text": text, "head": [7, 10], "tail": [2, 6], "label": "is"},
        {"id": "y", "text": text, "head": [2, 10], "tail": [7, 10], "label": "none"},
    )
    assert own.kind_of_lines(path) == "relation"
    assert own.read_lines(path, "relation") == [
        Relation("r:1", "r:1", "😀 [O]gout[/O]-[S]toe[/S]", "is", ["is"]),
        Relation("y", "y", "😀 [S]gout-[O]toe[/O][/S]", "none", ["none"]),
    ]
    for place in ([7, 11], [10, 10], [-1, 2]):
        bad = {"text": text, "head": place, "tail": [2, 6], "label": "is"}
        with pytest.raises(InputError, match="in its text of 10 characters"):
            own.read_lines(write_lines(tmp_path / "x.jsonl", bad), "relation")


def test_own_texts(tmp_path: Path) -> None:
    """Annotated texts in parts by the names of their files, cut into sentences; no entity is
    cut."""
    write(tmp_path / "train" / "a.txt", "Gout 😀. No vs. 2 toes. \n")
    write(tmp_path / "train" / "a.ann", "T1\tDisease 0 4\tGout\nT2\tPart 11 21\tvs. 2 toes\n")
    write_lines(
        tmp_path / "devel.jsonl",
        {"id": "b", "text": "toe", "mentions": [{"start": 0, "end": 3, "entity": "X"}]},
    )
    write(tmp_path / "notes.md", "nothing")
    files = own.split_files(tmp_path)
    assert files == {
        "dev": [tmp_path / "devel.jsonl"],
        "train": [tmp_path / "train" / "a.txt"],
    }
    assert own.kind_of_files([*files["dev"], *files["train"]], tmp_path) is None
    train = own.read_examples(files["train"], tmp_path, None, Counter())
    entities = [(0, 4, "Disease"), (11, 21, "Part")]
    assert train == [Tagged("train/a", "train/a", "Gout 😀. No vs. 2 toes. \n", entities)]
    assert own.cut_all(train, "en") == [
        Tagged("train/a/0", "train/a", "Gout 😀. ", [(0, 4, "Disease")]),
        Tagged("train/a/1", "train/a", "No vs. 2 toes. \n", [(3, 13, "Part")]),
    ]
    assert own.read_examples(files["dev"], tmp_path, None, Counter()) == [
        Tagged("b", "b", "toe", [(0, 3, "Entity")])
    ]
