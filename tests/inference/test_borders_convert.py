"""Texts and ids that a format cannot hold as they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from core.files import InputError
from inference.convert import FORMATS, write_records
from kg.documents.brat import brat_documents, brat_lines
from kg.documents.conll import conll_lines
from kg.documents.formats import files_in
from kg.documents.mentions import DISCONTINUOUS
from kg.documents.pubannotation import pubannotation_documents


def record(name: str = "a", text: str = "heart\tattack", **mention: Any) -> dict[str, Any]:
    own = {"start": 0, "end": len(text), "type": "D", "entity": "X:1", "name": None}
    return {"id": name, "text": text, "mentions": [own | mention]}


def test_marks_of_lines_and_columns_become_blanks() -> None:
    assert brat_lines(record(name="heart\nattack")) == (
        "T1\tD 0 12\theart attack\nN1\tReference T1 X:1\theart attack\n"
    )
    assert conll_lines(record("a\nb", "gout"), Counter()) == "# id = a b\ngout\tB-D\n\n"


def test_what_brat_writes_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(record(".hid")) + "\n")
    assert main(["convert", str(tmp_path / "in.jsonl"), str(tmp_path / "out"), "--to", "brat"]) == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["_.hid.ann", "_.hid.txt", "annotation.conf"]
    assert main(["convert", str(tmp_path / "out"), str(tmp_path / "back.jsonl")]) == 0
    (found,) = map(json.loads, (tmp_path / "back.jsonl").open())
    assert [(m["start"], m["end"], m["entity"]) for m in found["mentions"]] == [(0, 12, "X:1")]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([record(entity="D 4")], "document a: the id 'D 4' has a blank"),
        ([record("x" * 300)], "its id is too long for a file's name"),
        ([record("a"), record("a")], "document 'a': a second one of this id. Give each"),
        ([record("a b"), record("a-b")], "a second one of this id and 'a b', which become a-b"),
    ],
)
def test_what_brat_cannot_hold_is_named(
    tmp_path: Path, records: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        write_records(records, tmp_path / "out", "brat")


def test_a_folder_of_another_format_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(record()) + "\n")
    (tmp_path / "own").mkdir()
    for name in ("n.txt", "n.ann", "data.xml"):
        (tmp_path / "own" / name).write_text("mine")
    words = [
        "convert",
        str(tmp_path / "in.jsonl"),
        str(tmp_path / "own"),
        "--to",
        "brat",
        "--fresh",
    ]
    assert main(words) == 2
    assert "it has data.xml, which no conversion writes" in capsys.readouterr().err
    assert (tmp_path / "own" / "n.ann").read_text() == "mine"


def convert_records(
    records: list[dict[str, Any]], folder: Path, to: str, capsys: pytest.CaptureFixture[str]
) -> tuple[Path, str]:
    """Records from JSON lines into a format: where they are, and what is printed."""
    source, output = folder / "in.jsonl", folder / to / f"x{FORMATS[to].ending}"
    output.parent.mkdir(exist_ok=True)
    source.write_text("".join(f"{json.dumps(one)}\n" for one in records))
    assert main(["convert", str(source), str(output), "--to", to, "--fresh"]) == 0
    printed = capsys.readouterr()
    return output, printed.out + printed.err


def mention(start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"start": start, "end": end, "type": "Sign", "entity": "C1"} | more


def test_a_mention_over_the_end_of_a_line_is_one_of_several_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As brat writes it. It is read as it was, and is no gap."""
    text = "x shortness \n of breath\r\n\n today, fever"
    found = [mention(2, 23), mention(2, 32), mention(34, 39)]
    output, _ = convert_records(
        [{"id": "a", "text": text, "mentions": found}], tmp_path, "brat", capsys
    )
    lines_ = (output / "a.ann").read_text().splitlines()
    assert lines_[::2] == [
        "T1\tSign 2 11;14 23\tshortness of breath",
        "T2\tSign 2 11;14 23;27 32\tshortness of breath today",
        "T3\tSign 34 39\tfever",
    ]
    left_out = Counter[str]()
    (document,) = brat_documents(output / "a.txt", left_out=left_out)
    places = [(m.start, m.end) for m in document.mentions]
    assert places == [(2, 23), (2, 32), (34, 39)] and not +left_out
    (output / "a.ann").write_text("T1\tSign 2 11;17 23\tshortness breath\n")
    [*brat_documents(output / "a.txt", left_out=left_out)]
    assert left_out[DISCONTINUOUS] == 1


def test_settings_of_brat_are_written_and_a_persons_own_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [{"id": "a", "text": "fever", "mentions": [mention(0, 5, type="Sign (own)")]}]
    output, _ = convert_records(records, tmp_path, "brat", capsys)
    written = (output / "annotation.conf").read_text()
    assert written.startswith("[entities]\nSign_own\n\n[relations]\n\n[events]\n\n[attributes]\n")
    assert "Negated\tArg:<ENTITY>\n" in written
    left_out = Counter[str]()
    assert [path.name for path in files_in([output], left_out)] == ["a.txt"]
    assert not [reason for reason in left_out if ".conf" in reason]
    convert_records(records, tmp_path, "brat", capsys)  # its own folder is written again
    (output / "annotation.conf").write_text(f"{written}Certain\tArg:<ENTITY>\n")
    assert main(["convert", str(tmp_path / "in.jsonl"), str(output), "--fresh"]) == 2
    assert "annotation.conf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("to", "counts"),
    [
        ("docbin", ["1 mentions that overlap", "2 attributes", "1 places inside a token"]),
        (
            "conll",
            ["1 mentions that overlap", "2 attributes", "4 entities", "1 mentions over a line"],
        ),
        ("xmi", ["2 attributes", "1 ids, written as names of files have them (b c as b-c)"]),
        ("brat", ["1 ids, written as names of files have them (b c as b-c)"]),
        ("jsonl", []),
    ],
)
def test_what_a_format_does_not_hold_is_counted(
    to: str, counts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [mention(0, 11, negated=True), mention(6, 11, family=True), mention(13, 17)]
    records = [
        {"id": "a", "text": "severe\ngout, fevers", "mentions": found},
        {"id": "b c", "text": "gout", "mentions": [mention(0, 4)]},
    ]
    _, printed = convert_records(records, tmp_path, to, capsys)
    lines_ = [line for line in printed.splitlines() if ", here: " in line]
    assert len(lines_) == len(counts)
    assert all(any(f"here: {count}" in line for line in lines_) for count in counts)


def test_ids_that_come_again_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [{"id": one, "text": "gout", "mentions": []} for one in "aba"]
    output, printed = convert_records(records, tmp_path, "jsonl", capsys)
    assert "1 documents have the id of an earlier document" in printed
    assert len(output.read_text().splitlines()) == 3


def test_relations_and_divisions_of_pubannotation(tmp_path: Path) -> None:
    one = {"sourceid": "1", "divid": 0, "text": "gout", "relations": [{"id": "R1"}, {"id": "R2"}]}
    two = {"sourceid": "1", "divid": 1, "text": "gout", "modifications": [{"id": "M1"}]}
    other = {"sourceid": "2", "divid": 0, "text": "gout"}
    (tmp_path / "a.json").write_text(json.dumps([one, two, other]))
    left_out = Counter[str]()
    found = pubannotation_documents(tmp_path / "a.json", left_out=left_out)
    assert [document.id for document in found] == ["1/0", "1/1", "2"]
    assert +left_out == {"relations of PubAnnotation": 2, "modifications of PubAnnotation": 1}
