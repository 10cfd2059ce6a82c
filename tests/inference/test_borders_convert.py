"""Texts and ids that a format cannot hold as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from core.files import InputError
from inference.convert import write_records
from kg.documents.brat import brat_lines
from kg.documents.conll import conll_lines


def record(name: str = "a", text: str = "heart\tattack", **mention: Any) -> dict[str, Any]:
    own = {"start": 0, "end": len(text), "type": "D", "entity": "X:1", "name": None}
    return {"id": name, "text": text, "mentions": [own | mention]}


def test_marks_of_lines_and_columns_become_blanks() -> None:
    assert brat_lines(record(name="heart\nattack")) == (
        "T1\tD 0 12\theart attack\nN1\tReference T1 X:1\theart attack\n"
    )
    assert conll_lines(record("a\nb", "gout")) == "# id = a b\ngout\tB-D\n\n"


def test_what_brat_writes_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(record(".hid")) + "\n")
    assert main(["convert", str(tmp_path / "in.jsonl"), str(tmp_path / "out"), "--to", "brat"]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_.hid.ann", "_.hid.txt"]
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
