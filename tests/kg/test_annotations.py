"""Annotated texts of other tools: read by hand-made files, and round trips of every format."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas
import pytest

from app.cli import main
from core.files import InputError
from inference.convert import FORMATS, format_by_name, record_of, write_records
from kg.documents.brat import NO_ANNOTATIONS, NOT_READ, SECOND
from kg.documents.formats import documents
from kg.documents.mentions import ATTRIBUTES, Layout, Mention
from kg.documents.pubannotation import DISCONTINUOUS

TEXT = "He has renal failure.\nNo gout | or\tataxia."
RECORDS: list[dict[str, Any]] = [
    {
        "id": "a/1",
        "text": TEXT,
        "mentions": [
            {"start": 7, "end": 20, "type": "Disease", "entity": "HP:1", "score": 0.5},
            {"start": 25, "end": 29, "type": "Disease", "entity": None, "score": None},
        ],
    },
    {
        "id": "a/2",
        "text": "Nothing here",
        "mentions": [{"start": 8, "end": 12, "type": "Place", "entity": "K7", "score": 1.0}],
    },
]


def read(path: Path, form: str | None = None, **layout: Any) -> list[dict[str, Any]]:
    roots = (str(path),) if path.is_dir() else ()
    files = sorted([*path.rglob("*.txt"), *path.rglob("*.xmi")]) if path.is_dir() else [path]
    own = Layout(**{"document": "file", "roots": roots} | layout)
    return [record_of(d) for d in documents(files, form, "skip", layout=own)]


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in ("csv", "tsv")])
def test_round_trips(form: str, tmp_path: Path) -> None:
    place = tmp_path / f"x{FORMATS[form].ending}"
    assert write_records(RECORDS, place, form) == 2
    found = read(place, None if form == "jsonl" else form)
    if form == "conll":  # holds tokens and types alone
        assert found[0]["text"].split() == "He has renal failure . No gout | or ataxia .".split()
        kept = [(m["text"], m["type"], m["entity"]) for m in found[0]["mentions"]]
        assert kept == [("renal failure", "Disease", None), ("gout", "Disease", None)]
        return
    plain = TEXT.replace("\n", " ").replace("|", " ").replace("\t", " ")
    wanted = plain if form == "pubtator" else TEXT
    assert [r["text"].strip() for r in found] == [wanted, "Nothing here"]
    assert [r["id"] for r in found] == ["a/1", "a/2"]
    for own, given in zip(found, RECORDS, strict=True):
        keys = ("start", "end", "entity", "type")
        assert [[m[k] for k in keys] for m in own["mentions"]] == [
            [m[k] for k in keys] for m in given["mentions"]
        ]


@pytest.mark.parametrize("form", ["jsonl", "brat", "bioc", "biocjson", "pubtator", "pubannotation"])
def test_attributes_make_the_round_trip(form: str, tmp_path: Path) -> None:
    place = tmp_path / f"x{FORMATS[form].ending}"
    own = {"start": 3, "end": 7, "type": "A", "entity": "H:1", "score": 1.0}
    mentions = [own | {"negated": True, "family": False, "hypothetical": True}, own]
    record = {"id": "a", "text": "no gout", "mentions": mentions[:1]}
    other = {"id": "b", "text": "no gout", "mentions": mentions[1:]}
    write_records([record, other], place, form)
    found = [
        mention
        for one in read(place, None if form == "jsonl" else form)
        for mention in one["mentions"]
    ]
    said = [{name for name in ATTRIBUTES if mention.get(name)} for mention in found]
    assert said == [{"negated", "hypothetical"}, set()]


def test_a_table_of_mentions_is_no_table_of_texts(tmp_path: Path) -> None:
    write_records(RECORDS, tmp_path / "x.csv", "csv")
    with pytest.raises(InputError, match="a table of mentions, which does not hold the texts"):
        read(tmp_path / "x.csv", None)


def test_a_table_of_mentions(tmp_path: Path) -> None:
    write_records(RECORDS, tmp_path / "x.csv", "csv")
    rows = (tmp_path / "x.csv").read_text().splitlines()
    assert rows[0].startswith("id,start,end,text,type,entity,name,score")
    assert rows[1].startswith("a/1,7,20,renal failure,Disease,HP:1,,0.5") and len(rows) == 4
    write_records(RECORDS, tmp_path / "x.tsv", "tsv")
    assert (tmp_path / "x.tsv").read_text().splitlines()[1].startswith("a/1\t7\t20\t")


def test_brat_by_hand(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("Renal and\nheart failure; gout", newline="")
    (tmp_path / "n.ann").write_text(
        "T1\tDisease 10 23\theart failure\n"
        "N1\tReference T1 HP:0001635\tHeart failure\n"
        "T2\tDisease 0 5;16 23\tRenal failure\n"
        "A1\tNegated T2\n"
        "A2\tCertainty T2 low\n"
        "#1\tAnnotatorNotes T1\tsure\n"
        "N2\tReference T1 HP:0000001\tAll\n"
        "*\tEquiv T1 T2\n"
        "M1\tNegation E1\n"
        "E1\tBirth:T1\n"
        "R1\tcauses Arg1:T1 Arg2:T2\n"
    )
    left_out = Counter[str]()
    (document,) = documents([tmp_path / "n.txt"], "brat", left_out=left_out)
    counted = [DISCONTINUOUS, SECOND, *NOT_READ.values()]
    assert {what: left_out[what] for what in counted} == dict.fromkeys(counted, 1)
    assert document.mentions == (Mention(10, 23, "HP:0001635", 1.0, "Disease"),)
    assert document.unlinked == (Mention(0, 23, "", 1.0, "Disease", ("negated",)),)
    (tmp_path / "m.txt").write_text("gout")
    list(documents([tmp_path / "m.txt"], "brat", left_out=left_out))
    assert left_out[NO_ANNOTATIONS] == 1
    for bad in (
        "xyz\n",
        "Asome junk\n",
        "T1 Disease 0 5 Renal\n",
        "T1\tDisease 10\tx\n",
        "T1\tDisease 10 99\tx\n",
        "T1\tDisease 0 5\tother\n",
    ):
        (tmp_path / "n.ann").write_text(bad)
        with pytest.raises(InputError, match=r"n\.ann:1"):
            list(documents([tmp_path / "n.txt"], "brat"))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-A I-A O B-B", [("x1 x2", "A"), ("x4", "B")]),
        ("B-A E-A S-A O", [("x1 x2", "A"), ("x3", "A")]),
        ("B-A L-A U-B O", [("x1 x2", "A"), ("x3", "B")]),
        ("I-A I-A I-B B-B", [("x1 x2", "A"), ("x3", "B"), ("x4", "B")]),
        ("A A O B", [("x1 x2", "A"), ("x4", "B")]),
    ],
)
def test_tags_of_conll(tags: str, expected: list[tuple[str, str]], tmp_path: Path) -> None:
    lines = [f"x{n}\tNN\t{tag}" for n, tag in enumerate(tags.split(), start=1)]
    (tmp_path / "x.conll").write_text("\n".join(lines) + "\n\ny\tNN\tO\n")
    first, second = documents([tmp_path / "x.conll"])
    assert [(first.text[m.start : m.end], m.type) for m in first.unlinked] == expected
    assert second.text == "y" and second.id == "x:2"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", 'note_id,text\n1,"Renal, failure"\n2,"two\nlines"\n'),
        ("t.csv", 'note_id;text\n1;Renal, failure\n2;"two\nlines"\n'),
        ("t.tsv", 'note_id\ttext\n1\tRenal, failure\n2\t"two\nlines"\n'),
    ],
)
def test_tables_of_texts(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    found = [(d.id, d.text) for d in documents([tmp_path / name])]
    assert found == [("1", "Renal, failure"), ("2", "two\nlines")]


def test_parquet_and_named_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"key": [7, 8], "body": ["gout", "x"]}), tmp_path / "t.parquet")
    layout = Layout(id_field="key", text_field="body")
    found = documents([tmp_path / "t.parquet"], layout=layout)
    assert [(d.id, d.text) for d in found] == [("7", "gout"), ("8", "x")]
    with pytest.raises(InputError, match=r"expected a column id or .*got key, body"):
        list(documents([tmp_path / "t.parquet"]))
    (tmp_path / "t.csv").write_text("id,text\n1,a,b\n")
    with pytest.raises(InputError, match=r"t\.csv:2: expected 2 columns"):
        list(documents([tmp_path / "t.csv"]))


def test_json_arrays_and_named_keys(tmp_path: Path) -> None:
    rows = [{"note": "gout", "nr": 3}, {"note": "ataxia", "nr": 4}]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    layout = Layout(id_field="nr", text_field="note")
    found = documents([tmp_path / "t.json"], layout=layout)
    assert [(d.id, d.text) for d in found] == [("3", "gout"), ("4", "ataxia")]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = documents([tmp_path / "t.jsonl"], layout=layout)
    assert [(d.id, d.text) for d in found] == [("3", "gout"), ("4", "ataxia")]


NOTE = "Renal\r\nfailure.\n\n  \nGout.\n"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("file", [("sub/n", NOTE)]),
        ("paragraph", [("sub/n:1", "Renal\nfailure."), ("sub/n:5", "Gout.")]),
        ("line", [("sub/n:1", "Renal"), ("sub/n:2", "failure."), ("sub/n:5", "Gout.")]),
    ],
)
def test_what_a_document_is(document: Any, expected: list[Any], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "n.txt").write_text(NOTE, newline="")
    layout = Layout(document, roots=(str(tmp_path),))
    found = documents([tmp_path / "sub" / "n.txt"], None, "skip", layout=layout)
    assert [(d.id, d.text) for d in found] == expected


def test_link_asks_what_a_document_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.fakes import graphs

    graph = graphs.write(tmp_path / "graph", {"G:1": ["gout"]})
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "n.txt").write_text("He has\n\ngout.\n")
    words = ["link", "--graph", str(graph), "--output", str(tmp_path / "o.jsonl"), "--input"]
    assert main([*words, str(tmp_path / "notes" / "n.txt")]) == 2
    assert "Say what a document is: --document file" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "notes")]) == 0  # of a folder, a file each
    (record,) = map(json.loads, (tmp_path / "o.jsonl").read_text().splitlines())
    assert (record["id"], record["text"]) == ("n", "He has\n\ngout.\n")
    assert record["text"][record["mentions"][0]["start"] :].startswith("gout")
    out = tmp_path / "o.csv"
    assert main([*words[:3], "--output", str(out), "--input", str(tmp_path / "notes")]) == 0
    assert out.read_text().splitlines()[1].startswith("n,8,12,gout,disease,G:1,gout,1.0")


def test_convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_records(RECORDS, tmp_path / "x.jsonl", "jsonl")
    assert main(["convert", str(tmp_path / "x.jsonl"), str(tmp_path / "brat")]) == 0
    assert "2 documents, brat" in capsys.readouterr().out
    assert (tmp_path / "brat" / "a" / "1.ann").read_text().startswith("T1\tDisease 7 20")
    assert main(["convert", str(tmp_path / "x.jsonl"), str(tmp_path / "brat")]) == 2
    assert "exists already" in capsys.readouterr().err
    back = ["convert", str(tmp_path / "brat"), str(tmp_path / "y.jsonl")]
    assert main(back) == 0
    found = [json.loads(line) for line in (tmp_path / "y.jsonl").read_text().splitlines()]
    assert [r["id"] for r in found] == ["a/1", "a/2"] and len(found[0]["mentions"]) == 2
    assert format_by_name(Path("x.bioc.json")) == "biocjson"
    with pytest.raises(InputError, match="cannot tell the format"):
        format_by_name(Path("x.docx"))


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.spacy").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a DocBin"):
        list(documents([tmp_path / "x.spacy"]))
    (tmp_path / "x.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a Parquet file"):
        list(documents([tmp_path / "x.parquet"]))
    (tmp_path / "x.json").write_text('[{"denotations": []}]')
    with pytest.raises(InputError, match="expected an object with a text"):
        list(documents([tmp_path / "x.json"], "pubannotation"))
    (tmp_path / "x.conll").write_text("token\n")
    with pytest.raises(InputError, match=r"x\.conll:1: expected a token and its tag"):
        list(documents([tmp_path / "x.conll"]))


def test_other_encodings_and_what_a_document_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.fakes import graphs

    graph = graphs.write(tmp_path / "graph", {"G:1": ["痛风"]})
    (tmp_path / "n.txt").write_bytes("他有痛风。\n".encode("gb18030"))
    words = ["link", "--graph", str(graph), "--input", str(tmp_path / "n.txt")]
    words += ["--encoding", "gb18030", "--output", str(tmp_path / "o.jsonl")]
    assert main(words) == 0
    assert json.loads((tmp_path / "o.jsonl").read_text())["mentions"][0]["entity"] == "G:1"


@pytest.mark.parametrize(
    ("name", "content", "form", "message"),
    [
        ("t.csv", "id,text,text\n1,a,b\n", None, "'text' occurs twice"),
        ("p.json", '{"text": "a", "denotations": [{"span": [0, 1]}]}', "pubannotation", "a span"),
        ("p.json", '{"text": "a", "denotations": 3}', "pubannotation", "a list of objects"),
        ("p.json", '{"text": "a", "attributes": ["x"]}', "pubannotation", "a list of objects"),
    ],
)
def test_more_files_that_are_none(
    name: str, content: str, form: str | None, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        list(documents([tmp_path / name], form))


def test_a_place_of_many_digits(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("gout")
    (tmp_path / "n.ann").write_text(f"T1\tDisease 0 {'9' * 5000}\tgout\n")
    with pytest.raises(InputError, match=r"n\.ann:1"):
        list(documents([tmp_path / "n.txt"], "brat"))


def test_notes_in_a_workbook(tmp_path: Path) -> None:
    rows = pandas.DataFrame({"id": ["a", "b"], "text": ["no gout", "ataxia"], "ward": [1, 2]})
    rows.to_excel(tmp_path / "notes.xlsx", index=False)
    found = read(tmp_path / "notes.xlsx")
    assert [(one["id"], one["text"]) for one in found] == [("a", "no gout"), ("b", "ataxia")]
    (tmp_path / "broken.xlsx").write_text("x")
    with pytest.raises(InputError, match="no workbook that can be read"):
        read(tmp_path / "broken.xlsx")
