"""Texts as notes have them, where a name, a statement or a denial ends."""

from __future__ import annotations

import pytest

from inference.attributes import find_attributes
from kg.linking.matcher import DictionaryLinker
from kg.linking.sentences import split_sentences
from tests.fakes.graphs import graph

ENDS = ["\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029"]


def linker(*names: str) -> DictionaryLinker:
    listed = [(f"D{n}", name, "synonym", "en") for n, name in enumerate(names)]
    return DictionaryLinker.from_graph(graph({f"D{n}": "x" for n in range(len(names))}, [], listed))


def link_names(text: str, *names: str) -> list[str]:
    return [text[m.start : m.end] for m in linker(*names).link(text)]


@pytest.mark.parametrize("end", ENDS)
def test_any_end_of_a_line_ends_a_statement(end: str) -> None:
    text = f"No fever{end}Cough present{end}Back pain"
    assert split_sentences(text) == [f"No fever{end}", f"Cough present{end}", "Back pain"]
    places = [(text.index(word), text.index(word) + 5) for word in ("fever", "Cough", "Back ")]
    assert [bool(one.negated) for one in find_attributes(text, places)] == [True, False, False]
    assert link_names(f"Iron{end}{end}Deficiency anemia", "iron deficiency anemia") == []
    assert link_names(f"iron{end}deficiency anemia", "iron deficiency anemia") != []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("HCO3- was 24 and Cl- 100", ["HCO3-", "Cl-"]),
        ("Cl- and Cl, (Cl-)", ["Cl-", "Cl-"]),  # without its mark it is no name
        ("Ca2++ fell", ["Ca2++"]),
        ("HCO3 -", []),
    ],
)
def test_names_that_end_in_a_mark(text: str, wanted: list[str]) -> None:
    assert link_names(text, "HCO3-", "Cl-", "Ca2++") == wanted


@pytest.mark.parametrize(
    ("text", "word", "denied"),
    [
        ("No. 5 had sepsis.", "sepsis", False),
        ("No.5 had sepsis.", "sepsis", False),
        ("No sepsis in 5.", "sepsis", True),
        ("NO SEPSIS WAS SEEN.", "SEPSIS", True),
    ],
)
def test_a_number_denies_nothing(text: str, word: str, denied: bool) -> None:
    start = text.index(word)
    (attributes,) = find_attributes(text, [(start, start + len(word))])
    assert bool(attributes.negated) is denied


def test_a_mention_of_nitric_oxide_denies_nothing() -> None:
    text = "NO production in sepsis."
    own, other = find_attributes(text, [(0, 2), (17, 23)])
    assert not own.negated and not other.negated
    (alone,) = find_attributes(text, [(17, 23)])
    assert alone.negated  # nobody has said that it is a mention


def test_a_short_form_that_is_an_ordinary_word_of_a_sentence_in_capitals() -> None:
    text = "Acute lymphoblastic leukemia (ALL) was seen; ALL relapsed. ALL PATIENTS HAD FEVER."
    assert link_names(text, "acute lymphoblastic leukemia") == [
        "Acute lymphoblastic leukemia",
        "ALL",
        "ALL",
    ]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Vit. D deficiency is common. ", "It was seen."],
        ["Strep. pneumoniae grew. ", "Staph. aureus did not."],
        ["Hx. of fever and abd. pain. ", "The rest is normal."],
        ["Seen on Jan. 5 with fever. ", "He left on Feb. 7."],
        ["He was seen in Jan. ", "Fever was high."],
        ["Inf. MI was seen."],
    ],
)
def test_abbreviations_of_notes_end_no_sentence(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences
