"""Sentences of papers and notes."""

from __future__ import annotations

import sys

import pytest

from kg.linking.sentences import sentence_spans, split_sentences


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("S. aureus was found. It grew.", 1),
        ("\u2018S. aureus\u2019 grew.", 0),
        ("(S. aureus) grew! Did it?", 1),
        ("In the U.K. patients slept. In the U.S. The rest did not.", 2),
        ("Take 5 mg t.i.d. with food, i.e. at noon.", 0),
        ("See Tab. 3 and Eq. 4. Smith et al. (2001) agree with Miller et al. We do not.", 2),
        ("Vitamin B. The drug by J. R. Doe et al. failed.", 1),
        ("X. campestris pv. citri and Bacillus sp. nov. were seen approx. twice.", 0),
        ("Dr. Who met Mr. Ed vs. Mrs. Ed.", 0),
        ("pt. was seen. no fever. ok.", 2),
        ("pH was 7.4. Then 3.5 mg.", 1),
        ("It was \u201crare.\u201d Next one.", 1),
        ("What?! \u201cNo!\u201d) Yes...", 2),
        ("\u53d1\u70ed\u3002\u65e0\u54b3\u55fd\u3002", 1),
    ],
)
def test_marks(text: str, ends: int) -> None:
    found = split_sentences(text)
    assert "".join(found) == text and len(found) == ends + 1, found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No rash\ncough\nWheeze", ["No rash\n", "cough\n", "Wheeze"]),
        ("1. Rash\n2) Wheeze\n- none\n* pox", ["1. Rash\n", "2) Wheeze\n", "- none\n", "* pox"]),
        ("Plan:\n\n\nRest\r\n", ["Plan:\n\n\n", "Rest\r\n"]),
        (
            "The child had a long history of\nasthma. Well.",
            ["The child had a long history of\nasthma. ", "Well."],
        ),
        (
            "This line of a wrapped note is long enough to be one that\nwas wrapped here. End",
            [
                "This line of a wrapped note is long enough to be one that\nwas wrapped here. ",
                "End",
            ],
        ),
        (
            "This line of a note is long enough to be wrapped, but is\nAnother statement",
            ["This line of a note is long enough to be wrapped, but is\nAnother statement"],
        ),
        ("A  \n \n  \tB\n\n", ["A  \n \n  \t", "B\n\n"]),
        ("", [""]),
    ],
)
def test_lines(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected
    assert [text[a:b] for a, b in sentence_spans(text)] == expected


@pytest.mark.parametrize("unit", ["!", "\n", ". ", ".)", "A. ", "\n- x", "e.g. "])
def test_the_work_grows_with_the_text(unit: str) -> None:
    """Steps of the interpreter, not seconds: twice the text takes at most 2.2 times as many."""
    counts = []
    for repeats in (400, 800):
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            split_sentences(unit * repeats + "x")
        finally:
            sys.setprofile(None)
        counts.append(calls)
    assert counts[1] < 2.2 * counts[0] + 100
