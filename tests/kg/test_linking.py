"""The dictionary linker against a slow one typed from its rules, and its abbreviations."""

from __future__ import annotations

import itertools
import re
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.perf.speed.linking import NgramLinker
from core.files import InputError
from kg.graph import KINDS, table
from kg.linking import DictionaryLinker, forms
from kg.linking.abbreviations import ShortForms, definitions
from kg.linking.matcher import FUNCTION_WORDS, MARKS
from kg.linking.normal import LEVELS, difference
from kg.linking.passage import Passage
from kg.linking.tokens import fold_case, word_starts, words
from tests.fakes.documents import NAMES, graph


def linker(
    *names: tuple[str, str, str], degree: dict[str, int] | None = None, **options: Any
) -> DictionaryLinker:
    ids = sorted({n[0] for n in names})
    columns = {
        "id": [n[0] for n in names],
        "name": [n[1] for n in names],
        "kind": [n[2] for n in names],
    }
    rows = table("names", columns | {"language": [""] * len(names), "source": [""] * len(names)})
    triples = np.array([(degree or {}).get(i, 0) for i in ids], np.int64)
    return DictionaryLinker(rows, pa.array(ids, pa.string()), triples, **options)


def linked_names(link: DictionaryLinker, text: str) -> list[tuple[str, str]]:
    mentions = link.link(text)
    assert all(a.end <= b.start for a, b in itertools.pairwise(mentions))
    return [(text[m.start : m.end], m.entity) for m in mentions]


# The rules, typed from the docstring of kg.linking.matcher, word by word and without any index.


def slow_words(text: str) -> list[tuple[str, int]]:
    pieces, i = [], 0
    while i < len(text):
        j = i + 1
        ideograph = "\u4e00" <= text[i] <= "\u9fff"
        if (text[i].isalnum() or text[i] == "_") and not ideograph:
            while (
                j < len(text)
                and (text[j].isalnum() or text[j] == "_")
                and not "\u4e00" <= text[j] <= "\u9fff"
            ):
                j += 1
        if not text[i].isspace():
            pieces.append((text[i:j], i))
        i = j
    return pieces


def skipped(pieces: list[str]) -> list[bool]:
    """Which words a weaker form leaves out."""
    after = [False, *(word == "'" for word in pieces)]
    return [
        w in (",", "-", "'") or (w.lower() == "s" and mark)
        for w, mark in zip(pieces, after, strict=False)
    ]


def slow_difference(
    own: list[str], here: list[str], level: str
) -> tuple[bool, bool, bool, bool] | None:
    if [w.lower() for w in own] == [w.lower() for w in here]:
        return (False, False, False, False)
    if level == "exact" or not own or not here or not any(c.isalnum() for w in own for c in w):
        return None
    # tests/kg/test_linking_normal.py has it by hand
    found = difference(" ".join(own), " ".join(here), level)
    if found is None:
        return None
    words = [w for w, out in zip(here, skipped(here), strict=True) if not out]
    if len(words) == 1 and words[0].lower() in FUNCTION_WORDS:
        return None
    return tuple(word in found for word in ("plural", "spelling", "punctuation", "accents"))


def slow_link(
    names: list[tuple[str, str, str]], degree: dict[str, int], text: str, level: str
) -> list[tuple[int, int, str]]:
    pieces, mentions, i = slow_words(text), [], 0
    passage = Passage(text, level)  # tests/kg/test_linking_normal.py has its sentences by hand
    left_out = skipped([w for w, _ in pieces]) if level != "exact" else [False] * len(pieces)

    def candidates(n: int) -> tuple[bool, list[tuple]]:
        """(whether a name has the form of the n words from i on, those names that they mean)."""
        here, has_form, meant = [w for w, _ in pieces[i : i + n]], False, []
        for entity, name, kind in names:
            name_words = [w for w, _ in slow_words(name)]
            differs = slow_difference(name_words, here, level)
            if differs is None:
                continue
            if len(name.strip()) < 2 or not any(c.isalpha() for c in name):
                continue
            if name.strip().lower() in FUNCTION_WORDS and not name.isupper():
                continue
            if (
                kind in ("related", "broad")
                and name.isalpha()
                and name.isascii()
                and name[1:].islower()
            ):
                continue
            has_form = True
            kept = (
                name_words
                if level == "exact"
                else [w for w, out in zip(name_words, skipped(name_words), strict=True) if not out]
            )
            short = len(kept) == 1 and (
                len(kept[0]) <= 3 or (kept[0].isupper() and len(kept[0]) <= 6)
            )
            if short and name_words != here:
                continue
            if short and here[0] in ("AL", "WAS") and passage.is_capitals(pieces[i][1]):
                continue
            place = KINDS.index(kind) if kind in KINDS else len(KINDS)
            meant.append((differs, place, name_words != here, -degree.get(entity, 0), entity))
        return has_form, meant

    def with_marks(n: int) -> tuple[int, list[tuple]]:
        """The same of the n words and the marks that follow without a blank, as in HCO3-."""
        for more in range(n + 1, min(n + MARKS, len(pieces) - i) + 1):
            (before, at), (mark, place) = pieces[i + more - 2], pieces[i + more - 1]
            if mark.isalnum() or place != at + len(before):
                break
            if meanings := candidates(more)[1]:
                return more, meanings
        return n, []

    while i < len(pieces):
        best, is_longest = None, True
        for n in range(len(pieces) - i, 0, -1):
            if left_out[i] or left_out[i + n - 1]:
                continue
            end = pieces[i + n - 1][1] + len(pieces[i + n - 1][0])
            if not passage.is_in_one_statement(pieces[i][1], end):
                continue
            has_form, meanings = candidates(n)
            count = n
            if has_form and not meanings and is_longest:
                count, meanings = with_marks(n)
            is_longest = is_longest and not has_form
            if meanings:
                best = count, min(meanings)[4]
                break
        if best:
            start, (last, at) = pieces[i][1], pieces[i + best[0] - 1]
            mentions.append((start, at + len(last), best[1]))
        i += best[0] if best else 1
    return mentions


PIECES = [
    "fevers",
    "feverish",
    "'s",
    "al",
    "Al",
    "AL",
    "was",
    "WAS",
    "Fever",
    "fever",
    "FEVER",
    "FEVERISH",
    "x",
    "-",
    ",",
    "12",
    "糖",
    "尿",
    "é",
    "a_b",
]
NAME = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map(" ".join)
ROWS = st.lists(
    st.tuples(st.sampled_from("ABC"), NAME, st.sampled_from([*KINDS[:3], "related", "other"])),
    max_size=12,
)
SPACE = st.sampled_from(["", " ", "  ", "\n"])
TEXT = st.lists(st.tuples(st.sampled_from([*PIECES, "unknown", "("]), SPACE), max_size=14)


@settings(max_examples=300, deadline=None)
@given(
    ROWS, TEXT, st.dictionaries(st.sampled_from("ABC"), st.integers(0, 2)), st.sampled_from(LEVELS)
)
@example([("A", "al -", "preferred")], [("al", ""), ("-", "")], {}, "normal")
@example([("A", "al -", "preferred")], [("al", " "), ("-", "")], {}, "normal")
def test_equals_slow_linker(rows, text, degree, level):
    rows = [*rows, ("A", "anchor word", "preferred")]  # at least one name that can match
    text = "".join(itertools.chain.from_iterable(text))
    ours = linker(*rows, degree=degree, abbreviations=False, forms=level)
    expected = slow_link(rows, degree, text, level)
    assert [(m.start, m.end, m.entity) for m in ours.link(text)] == expected
    ids = sorted({r[0] for r in rows})
    columns = {
        "id": [r[0] for r in rows],
        "name": [r[1] for r in rows],
        "kind": [r[2] for r in rows],
    }
    names = table("names", columns | {"language": [""] * len(rows), "source": [""] * len(rows)})
    reference = NgramLinker(
        names, pa.array(ids, pa.string()), np.array([degree.get(i, 0) for i in ids])
    )
    # the reference knows neither lines nor capitals
    if level == "exact" and "\n" not in text and not text.isupper():
        assert reference.link(text) == ours.link(text)
    # together as one by one, whatever is beside
    texts = [text, "", text[: len(text) // 2], "anchor", "word", text]
    with pytest.MonkeyPatch.context() as patch:
        for few in (0, 10_000):
            patch.setattr(forms, "FEW", few)
            assert ours.link_all(texts) == [ours.link(own) for own in texts]
    whole = graph([(i, name, kind) for i, name, kind in rows], [])
    every = DictionaryLinker.from_graph(whole, forms=level)
    some = DictionaryLinker.from_graph(whole, texts=["before", text, ""], forms=level)
    assert some.link(text) == every.link(text)


def test_the_name_that_differs_least_is_meant_whatever_its_kind() -> None:
    rows = [("A", "Bell's palsy", "preferred"), ("B", "Bell palsy", "related")]
    for text, expected in (("Bell palsy", "B"), ("Bell's palsy", "A")):
        (found,) = linker(*rows, abbreviations=False, forms="inflected").link(text)
        assert found.entity == expected


def test_a_longer_name_that_does_not_fit_leaves_the_place_to_a_shorter_one() -> None:
    rows = [("A", "heart failure", "preferred"), ("B", "heart", "preferred")]
    found = linker(*rows, forms="inflected").link("the heart, failure and heart failure")
    assert [(m.start, m.end, m.entity) for m in found] == [(4, 9, "B"), (23, 36, "A")]


def test_the_s_of_a_possessive_is_no_word_and_another_s_is_one() -> None:
    rows = [("A", "Alzheimer disease", "preferred")]
    own = linker(*rows, forms="inflected")
    (found,) = own.link("late Alzheimer's disease")
    assert (found.start, found.end) == (5, 24)
    assert own.link("Alzheimer s disease") == own.link("Alzheimer-s disease") == []


def test_an_ordinary_word_of_a_weak_kind_is_no_name() -> None:
    for kind, expected in (("related", 0), ("broad", 0), ("preferred", 1)):
        rows = [("A", "death", kind), ("B", "anchor word", "preferred")]
        assert len(linker(*rows).link("a death")) == expected
    assert len(linker(("A", "sudden death", "related")).link("a sudden death")) == 1


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_words_are_where_they_begin(text):
    starts, lower = word_starts(text), fold_case(text)
    assert len(lower) == len(text) and len(starts) == len(words(text))
    assert all(lower[s : s + len(w)] == w for s, w in zip(starts, words(text), strict=True))
    assert re.sub(r"\s", "", lower) == "".join(words(text))


def test_folding_keeps_the_length_of_every_character():
    assert all(
        len(fold_case(chr(i))) == 1 for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000
    )
    assert fold_case("\u0130ΟΔΟΣ") == fold_case("iοδος") == "iοδοσ"


def test_longest_adjacent_overlapping():
    link = linker(
        ("1", "type 2 diabetes", "preferred"),
        ("2", "diabetes mellitus", "preferred"),
        ("3", "mellitus", "synonym"),
        ("4", "diabetes", "preferred"),
        ("5", "2", "preferred"),
    )
    assert linked_names(link, "Type 2 diabetes mellitus") == [
        ("Type 2 diabetes", "1"),
        ("mellitus", "3"),
    ]
    assert linked_names(link, "diabetes diabetes  mellitus,diabetes") == [
        ("diabetes", "4"),
        ("diabetes  mellitus", "2"),
        ("diabetes", "4"),
    ]
    assert linked_names(link, "prediabetes diabetess type 2") == []


def test_case_rules():
    names = ["CAT", "BRCA12", "FEVERISH", "p53", "ALL", "was", "IL-6", "7"]
    link = linker(*((str(i), name, "preferred") for i, name in enumerate(names, 1)))
    assert linked_names(
        link, "cat CAT brca12 BRCA12 feverish P53 p53 all ALL was WAS il - 6 7"
    ) == [
        ("CAT", "1"),
        ("BRCA12", "2"),
        ("feverish", "3"),
        ("p53", "4"),
        ("ALL", "5"),
        ("il - 6", "7"),
    ]


def test_rejected_case_leaves_the_next_name():
    rows = ("1", "RA", "preferred"), ("2", "ra factor", "preferred"), ("3", "factor", "preferred")
    link = linker(*rows)
    assert linked_names(link, "ra ra factor Ra Factor RA factors") == [
        ("ra factor", "2"),
        ("Ra Factor", "2"),
        ("RA factors", "2"),
    ]
    plain = linker(*rows, forms="normal")
    assert linked_names(plain, "RA factors") == [("RA", "1")]


def test_ambiguity_kind_then_case_then_degree_then_id():
    same = [
        ("3", "Cold", "preferred"),
        ("2", "cold", "preferred"),
        ("1", "COLDS", "broad"),
        ("0", "cold", "synonym"),
    ]
    assert linked_names(linker(*same), "cold Cold COLD") == [
        ("cold", "2"),
        ("Cold", "3"),
        ("COLD", "2"),
    ]
    assert linked_names(linker(*same, degree={"3": 5}), "COLD cold") == [
        ("COLD", "3"),
        ("cold", "2"),
    ]
    assert linked_names(linker(("b", "flu bug", "x"), ("a", "flu bug", "y")), "flu bug") == [
        ("flu bug", "a")
    ]


def test_plurals_are_of_english_names_alone():
    columns = {
        "id": ["1", "2", "3"],
        "name": ["cyst", "Kind", "CAR cell"],
        "kind": ["preferred"] * 3,
    }
    names = table("names", columns | {"language": ["en", "de", ""], "source": [""] * 3})
    link = DictionaryLinker(names, pa.array(["1", "2", "3"]))
    assert linked_names(link, "cysts Kinds CARS cells cars cell CAR cells") == [
        ("cysts", "1"),
        ("CAR cells", "3"),
    ]


def test_names_are_not_over_the_ends_of_statements():
    link = linker(
        ("1", "heart failure", "preferred"),
        ("2", "heart", "preferred"),
        ("3", "lung cancer", "preferred"),
    )
    text = (
        "Site: heart\n\nfailure to thrive. - heart\n- failure\nOrgan: lung\nCancer: none."
        " heart\nfailure of the lung\n cancer"
    )
    assert linked_names(link, text) == [
        ("heart", "2"),
        ("heart", "2"),
        ("heart\nfailure", "1"),
        ("lung\n cancer", "3"),
    ]


def test_a_linker_of_a_few_texts_knows_other_forms():
    whole = graph(
        [
            ("a", "Feet", "preferred"),
            ("b", "big\u2010cysts", "preferred"),
            ("c", "Ménière", "preferred"),
        ],
        [],
    )
    text = "foot, Meniere, big cyst"
    few = DictionaryLinker.from_graph(whole, texts=[text])
    assert (
        few.link(text) == DictionaryLinker.from_graph(whole).link(text) and len(few.link(text)) == 3
    )


def test_capitals_are_weak_evidence_in_a_sentence_in_capitals():
    link = linker(("1", "REST", "symbol"), ("2", "TP53", "symbol"), ("3", "fever", "preferred"))
    text = "REST NOW AND TREAT FEVER OF TP53. The gene REST. FEVER, REST, TP53"
    assert [e for _, e in linked_names(link, text)] == ["3", "2", "1", "3", "1", "2"]
    others = linker(("1", "COPD", "symbol"), ("2", "HIV", "symbol"), ("3", "SET", "symbol"))
    # no English words
    assert [e for _, e in linked_names(others, "THE PATIENT HAS COPD, HIV AND A SET BONE")] == [
        "1",
        "2",
    ]


def test_chinese_names_without_spaces():
    link = linker(
        ("1", "糖尿病", "preferred"), ("2", "2型糖尿病", "preferred"), ("3", "肾病", "preferred")
    )
    assert linked_names(link, "患者有2型糖尿病和糖尿病肾病。") == [
        ("2型糖尿病", "2"),
        ("糖尿病", "1"),
        ("肾病", "3"),
    ]


def test_from_graph_uses_degree_and_rejects_unusable_names():
    rows = [("b", "cold sore", "preferred"), ("a", "cold sore", "preferred")]
    assert linked_names(
        DictionaryLinker.from_graph(graph(rows, [("b", "is_a", "b")])), "cold sore"
    ) == [("cold sore", "b")]
    with pytest.raises(InputError, match="none of them can be matched"):
        DictionaryLinker.from_graph(graph([("a", "7", "preferred")]))
    with pytest.raises(InputError, match="row 1: unknown entity id 'z'"):
        DictionaryLinker(graph([("a", "aa", "x"), ("z", "bb", "x")]).names, pa.array(["a"]))


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (
            "severe combined immunodeficiency (SCID) was",
            [("SCID", "severe combined immunodeficiency")],
        ),
        (
            "We saw SCID (severe combined immunodeficiency).",
            [("SCID", "severe combined immunodeficiency")],
        ),
        ("the heat shock protein (HSP; 70 kDa)", [("HSP", "heat shock protein")]),
        ("tumor necrosis factor-alpha (TNF-alpha)", [("TNF-alpha", "tumor necrosis factor-alpha")]),
        ("Alanine (Ala) and heart rate (HR) rose", [("Ala", "Alanine"), ("HR", "heart rate")]),
        ("Gene transcription factor 1 (GTF1)", [("GTF1", "Gene transcription factor 1")]),
        ("in 12 patients (12%) at (p < 0.05) and (see Table 1)", []),
        ("the gene (BRCA1) is", []),  # letters missing
        ("an AB test (AB) is", []),  # the long form would hold the short form
        ("It ended with heart. Rate (HR) was", []),  # another sentence
        ("ear (external acoustic region)", []),  # D1: no capital
        # D1: more than the long form in the parentheses
        ("We used TNF (a tumor necrosis factor)", []),
        # D2: neither capitals nor initials of all words
        ("far ever so very near there (fever) is", []),
        ("wild type (wt) mice", [("wt", "wild type")]),
        # D3: a wrapped line, no list
        ("heart\nrate (HR) of\n- heart\n- rate (HR)", [("HR", "heart\nrate")]),
        # D4: initials, where the paper has "cancer"
        ("colon cancer (CC) and", [("CC", "colon cancer")]),
        ("(HR)", []),
        ("()", []),
        ("x (", []),
    ],
)
def test_definitions(text, pairs):
    assert [(text[slice(*d.short)], text[slice(*d.long)]) for d in definitions(text)] == pairs


def test_defined_abbreviation_means_its_long_form():
    link = linker(
        *NAMES,
        ("C09", "SCID", "preferred"),
        ("C10", "severe combined immunodeficiency", "preferred"),
        ("C11", "SCID mouse", "preferred"),
        ("C12", "X-linked severe combined immunodeficiency", "preferred"),
    )
    text = (
        "SCID. Severe combined immunodeficiency (SCID) is SCID, not scid; a SCID mouse has SCIDs."
    )
    assert linked_names(link, text) == [
        ("SCID", "C10"),  # a use before the only definition
        ("Severe combined immunodeficiency", "C10"),
        ("SCID", "C10"),
        ("SCID", "C10"),
        ("SCID mouse", "C11"),
        ("SCIDs", "C10"),
    ]
    # A mention that covers the long form counts, and a short form that is in no name is linked too.
    assert (
        linked_names(link, "X-linked severe combined immunodeficiency (SCI). SCI (2).")[1:]
        == [("SCI", "C12")] * 2
    )
    # The long form has no entity: the short form has none either, whatever the dictionary says.
    assert linked_names(link, "seizure; small cat in distress (SCID) SCID") == [("seizure", "C01")]
    # A second definition takes over from its place.
    again = "diabetes mellitus (DM) DM and type 2 diabetes mellitus (DM) DM"
    assert [e for s, e in linked_names(link, again) if s == "DM"] == ["C02", "C02", "C03", "C03"]


def test_abbreviation_cuts_shorter_matches():
    link = linker(
        ("1", "heart rate", "preferred"),
        ("2", "rate HR", "preferred"),
        ("3", "zeta factor", "preferred"),
        ("4", "HR zeta factor", "preferred"),
    )
    assert linked_names(link, "heart rate (HR). rate HR, HR zeta factor") == [
        ("heart rate", "1"),
        ("HR", "1"),
        ("rate HR", "2"),
        ("HR zeta factor", "4"),
    ]


def test_empty_texts():
    link = linker(*NAMES)
    assert link.link("") == link.link(" \n") == link.link("(") == []


def test_names_in_another_spelling_are_among_those_that_texts_can_contain() -> None:
    """from_graph with texts takes names by their first letters."""
    built = graph([("0", "zoo", "exact"), ("1", "oedema", "exact"), ("2", "aetiology", "exact")])
    text = "Edema: etiology."
    found = DictionaryLinker.from_graph(built, texts=[text]).link(text)
    assert [m.entity for m in found] == ["1", "2"]


def test_short_forms_in_a_phrase_mean_what_they_mean_at_their_own_place() -> None:
    text = "multiple sclerosis (MS) is old. mitral stenosis (MS) is severe MS; two MSs"
    known = ShortForms(text)
    second = text.index("(MS) is severe") + 1
    for phrase, place, expected in (
        ("is MS", second - 3, "is mitral stenosis"),  # it begins before the second definition
        ("old MS", second - 5, "old multiple sclerosis"),
        ("severe MS", text.index("severe"), "severe mitral stenosis"),
        ("two MSs", text.index("two"), "two mitral stenosis"),
        ("two others", text.index("two"), "two others"),
    ):
        assert known.expand(phrase, place) == expected, phrase
    assert ShortForms("no definition").expand("MS", 0) == "MS"
