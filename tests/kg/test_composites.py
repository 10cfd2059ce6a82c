"""Composite mentions: split where every part is known and the whole is not."""

from __future__ import annotations

import pytest

from kg.linking.composites import expansions, find_numbered, parts_of, widen

KNOWN = {
    "breast cancer",
    "ovarian cancer",
    "breast",
    "head",
    "nausea",
    "vomiting",
    "head and neck cancer",
    "neck cancer",
    "cancer of breast",
    "cancer of ovary",
    "type 1 diabetes",
    "type 2 diabetes",
    "lung cancer",
}


@pytest.mark.parametrize(
    ("mention", "parts"),
    [
        ("breast and ovarian cancer", ["breast cancer", "ovarian cancer"]),
        ("breast, lung, and ovarian cancer", ["breast cancer", "lung cancer", "ovarian cancer"]),
        ("breast/ovarian cancer", ["breast cancer", "ovarian cancer"]),
        ("breast and/or ovarian cancer", ["breast cancer", "ovarian cancer"]),
        ("nausea and vomiting", ["nausea", "vomiting"]),
        ("cancer of breast and ovary", ["cancer of breast", "cancer of ovary"]),
        # beginning and end are shared
        ("type 1 and 2 diabetes", ["type 1 diabetes", "type 2 diabetes"]),
        ("head and neck cancer", ["head and neck cancer"]),  # a name itself
        ("breast and nasal cancer", ["breast and nasal cancer"]),  # one part is no name
        ("breast cancer", ["breast cancer"]),
        ("nausea and nausea", ["nausea and nausea"]),
        ("nausea,", ["nausea,"]),
        ("and", ["and"]),
    ],
)
def test_parts(mention: str, parts: list[str]) -> None:
    assert parts_of(mention, KNOWN.__contains__) == parts


def test_readings_in_order() -> None:
    assert list(expansions("a b and c d")) == [
        ["a b d", "c d"],
        ["a b d", "a c d"],
        ["a b", "a c d"],
        ["a b", "c d"],
    ]
    assert list(expansions("/".join("abcdefghi"))) == []  # longer than any coordination


@pytest.mark.parametrize(
    ("text", "start", "end", "parts"),
    [
        ("IL-6 and -8 rose", 0, 4, ["IL-6", "IL-8"]),
        ("IL-4, -5 and -13", 0, 4, ["IL-4", "IL-5", "IL-13"]),
        ("B- and T-cell lymphoma", 7, 22, ["B-cell lymphoma", "T-cell lymphoma"]),
        ("IL-6/8 rose", 0, 4, ["IL-6", "IL-8"]),
        ("BRCA1/2 carriers", 0, 5, ["BRCA1", "BRCA2"]),
        ("BRCA1 and -2 carriers", 0, 5, ["BRCA1", "BRCA2"]),
        ("BRCA1/3 carriers", 0, 5, None),
        ("BRCA1 and 2", 0, 5, None),
        ("IL-6 and 8", 0, 4, None),
        ("IL-6 and -high", 0, 4, None),
    ],
)
def test_words_that_share_a_part_before_or_behind_a_hyphen(
    text: str, start: int, end: int, parts: list[str] | None
) -> None:
    names = {"IL-6", "IL-8", "IL-4", "IL-5", "IL-13", "BRCA1", "BRCA2"}
    names |= {"B-cell lymphoma", "T-cell lymphoma"}
    ((first, last),) = widen(text, [(start, end)], names.__contains__)
    if parts is None:
        assert (first, last) == (start, end)
    else:
        assert parts_of(text[first:last], names.__contains__) == parts


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        (
            "Type 1 and 2 diabetes, or type 1/2 diabetes",
            ["Type 1 and 2 diabetes", "type 1/2 diabetes"],
        ),
        ("a type 1, 2, or 3 diabetes mellitus.", ["type 1, 2, or 3 diabetes mellitus"]),
        ("factor V or VIII deficiency", ["factor V or VIII deficiency"]),
        ("vitamin a\nor b deficiency", ["vitamin a\nor b deficiency"]),
        ("coagulation factor V and X deficiency", ["coagulation factor V and X deficiency"]),
        ("type 1 and 4 diabetes", []),  # no name
        ("1 and 2 diabetes", []),  # nothing before
        ("type 1 and 2", []),  # nothing behind
        ("type 1 and type 2 diabetes", []),  # :func:`widen` finds it, from type 2 diabetes
        ("of type 1 and 2. Diabetes", []),
        ("stage 1 and 2 diabetes", []),
    ],
)
def test_phrases_that_differ_in_a_number_alone(text: str, phrases: list[str]) -> None:
    names = {f"type {number} diabetes" for number in (1, 2, 3)}
    names |= {f"type {number} diabetes mellitus" for number in (1, 2, 3)}
    names |= {f"factor {number} deficiency" for number in ("v", "viii", "x")}
    names |= {f"coagulation factor {number} deficiency" for number in ("v", "x")}
    names |= {"vitamin a deficiency", "vitamin b deficiency"}
    places = find_numbered(text, lambda phrase: phrase.lower() in names)
    assert [text[start:end] for start, end in places] == phrases
