"""ConText's attributes of places of a text, and in a chain."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from app.cli import main
from inference import attributes
from inference.attribute_phrases import PHRASES, PSEUDO
from inference.attributes import describe_in_words, find_attributes
from inference.chain import Pipeline
from inference.results import as_record
from tests.fakes.graphs import graph

TEXT = (
    "No sign of nephritis, but arachnodactyly is seen. The patient denies chest pain. Marfan"
    " syndrome was ruled out. Pain."
)


def attribute_initials(text: str, *words: str) -> list[str]:
    """The attributes of words of a text, each as the initials of those it has."""
    places = [(text.index(word), text.index(word) + len(word)) for word in words]
    found = find_attributes(text, places)
    return ["".join(name[:2] for name, value in own._asdict().items() if value) for own in found]


def test_examples() -> None:
    assert doctest.testmod(attributes).attempted and not doctest.testmod(attributes).failed


def test_phrases_before_and_behind_and_the_ends_of_their_reach() -> None:
    """A phrase before, one behind, "but" between; overlapping places; a sentence's end; part of a
    word."""
    asked = (
        "nephritis",
        "arachnodactyly",
        "chest pain",
        "pain",
        "Marfan syndrome",
        "Pain",
        "rachno",
    )
    assert attribute_initials(TEXT, *asked) == ["ne", "", "ne", "ne", "ne", "", ""]
    assert find_attributes("", []) == []
    with pytest.raises(ValueError, match="expected one inside a text of 3 characters"):
        find_attributes("abc", [(1, 4)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no pox", "ne"),
        ("pox was absent", "ne"),
        ("pox has been ruled out", "ne"),
        ("Pox: denied.", "ne"),
        ("Denies rash, cough, or pox", "ne"),
        ("Rash denied.\npox", ""),
        ("- no rash\n- pox", ""),
        ("1. No rash\n2. pox", ""),
        ("no rash; pox", ""),
        ("No evidence of rash. Pox", ""),
        ("no rash however pox", ""),
        ("no change in pox", ""),
        ("not only rash but pox", ""),
        ("pox cannot be ruled out", "hy"),
        ("pox is not excluded", ""),
        ("pox has not been ruled out", ""),
        ("pox has not been excluded", ""),
        ("pox not excluded", ""),
        ("possibly pox", "hy"),
        ("suspicious for pox", "hy"),
        ("pox excluded", "ne"),
        ("gram negative pox", ""),
        ("Family history of pox", "fa"),
        ("His mother had pox", "fa"),
        ("pox in her sister", "fa"),
        ("mother reports pox", ""),
        ("no family history of pox", "nefa"),
        ("history of pox", "hi"),
        ("s/p pox", "hi"),
        ("had pox ten years ago", "hi"),
        ("history of present illness: pox", ""),
        ("return if pox", "hy"),
        ("evaluate for pox", "hy"),
        ("Pox: no\nRash: yes", "ne"),
        ("Rash: no\nPox: yes", ""),
        ("rash: yes; pox: no; cough: yes", "ne"),
        ("rash (-), pox (+)", ""),
        ("pox-free", "ne"),
        ("He doesn\u2019t have pox", "ne"),
        ("\uff2e\uff4f pox", "ne"),
        ("Denies:\n- rash\n- pox", "ne"),
        ("Denies:\n- rash\nPox", ""),
        ("Family history:\n1. rash\n2. pox", "fa"),
        ("The nodule is a pox", ""),  # no "no" inside a word
    ],
)
def test_phrases(text: str, expected: str) -> None:
    word = "pox" if "pox" in text else "Pox"
    assert attribute_initials(text, word) == [expected]


def test_one_phrase_has_one_meaning_at_a_side() -> None:
    """No phrase that means nothing is among those that mean something."""
    every = [
        phrase for places in PHRASES.values() for phrases in places.values() for phrase in phrases
    ]
    assert not {*PSEUDO} & {*every} and all(
        phrase == phrase.lower() for phrase in (*every, *PSEUDO)
    )


def test_a_chain_says_what_the_text_says_of_a_mention(tmp_path: Path) -> None:
    names = [("D1", "nephritis", "exact", "en"), ("D2", "arachnodactyly", "exact", "en")]
    folder = str(
        graph({"D1": "disease", "D2": "disease"}, [("D1", "near", "D2")], names).save(
            tmp_path / "graph"
        )
    )
    pipeline = Pipeline(folder, negation=True)
    assert [(m.entity, m.negated) for m in pipeline.link([TEXT])[0]] == [
        ("D1", True),
        ("D2", False),
    ]
    (family,) = pipeline.link(["Her father’s nephritis"])[0]
    assert (
        family.family and not family.negated and describe_in_words(as_record(family)) == ["family"]
    )
    assert pipeline.settings["negation"] and "negation" not in Pipeline(folder).settings
    function, arguments = pipeline.__reduce__()
    assert [m.negated for m in function(*arguments).link([TEXT])[0]] == [True, False]
    records = [as_record(m) for m in Pipeline(folder).link([TEXT])[0]]
    assert {record[name] for record in records for name in attributes.Attributes._fields} == {None}


def test_every_output_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Print, PubTator, BioC in both forms and JSON lines; PubTator's file can be read again."""
    names = [
        ("D1", "breast cancer", "exact", "en"),
        ("D2", "ovarian cancer", "exact", "en"),
        ("D3", "cyst", "exact", "en"),
    ]
    folder = str(
        graph(dict.fromkeys(("D1", "D2", "D3"), "x"), [("D1", "near", "D2")], names).save(
            tmp_path / "graph"
        )
    )
    (tmp_path / "in.jsonl").write_text(
        '{"id": "1", "text": "No cysts. History of breast and ovarian cancer (BOC)."}\n'
    )
    files = [
        tmp_path / name for name in ("out.jsonl", "out.pubtator", "out.bioc.xml", "out.bioc.json")
    ]
    for file in files:
        command = [
            "link",
            "--graph",
            folder,
            "--input",
            str(tmp_path / "in.jsonl"),
            "--output",
            str(file),
            "--negation",
            "true",
        ]
        assert main(command) == 0
        text = file.read_text()
        assert all(
            word in text
            for word in ("negated", "historical", "part", "ovarian cancer", "matched", "plural")
        ), file
    assert (
        main(
            [
                "link",
                "--graph",
                folder,
                "--input",
                str(files[1]),
                "--output",
                str(tmp_path / "again.jsonl"),
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert main(["link", "--graph", folder, "--text", "No cysts", "--negation", "true"]) == 0
    assert "not D3" in (said := capsys.readouterr().out) and "[by plural]" in said
