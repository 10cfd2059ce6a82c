"""Names that several concepts have: the strings that distinguish them, and what a text says of
them."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kg.graph import KnowledgeGraph, table
from kg.linking.homonyms import (
    HEAD,
    Description,
    Homonyms,
    distinguish_concepts,
    graph_descriptions,
    support,
)

COLD = {
    "C1": Description(
        "disease", "virus disease", "An infection of the nose.", ("Common cold", "cold")
    ),
    "C2": Description("sensation", "", "", ("Cold", "low temperature")),
}


def test_the_first_kind_of_description_that_differs_is_taken() -> None:
    assert distinguish_concepts("cold", COLD) == {"C1": "disease", "C2": "sensation"}
    same = {one: d._replace(type="finding") for one, d in COLD.items()}
    assert distinguish_concepts("cold", same) == {
        "C1": "virus disease",
        "C2": "",
    }  # one may be empty
    bare = {one: d._replace(type="", parents="") for one, d in COLD.items()}
    assert distinguish_concepts("cold", bare) == {"C1": "An infection of the nose.", "C2": ""}
    named = {one: d._replace(type="", parents="", definition="") for one, d in COLD.items()}
    # C2 prefers the name itself
    assert distinguish_concepts("cold", named) == {"C1": "Common cold", "C2": ""}
    both = {
        "C1": Description(names=("Cold", "a cold")),
        "C2": Description(names=("COLD", "low temperature")),
    }
    assert distinguish_concepts("cold", both) == {"C1": "a cold", "C2": "low temperature"}
    short = {
        "C1": Description(names=("Cold", "CC", "a cold")),
        "C2": Description(names=("COLD", "CD")),
    }
    assert distinguish_concepts("cold", short) == {"C1": "a cold", "C2": "CD"}
    assert distinguish_concepts("cold", {"C1": Description(), "C2": Description()}) == {
        "C1": "",
        "C2": "",
    }
    long = {c: Description(definition=" ".join([c] * 40)) for c in ("a", "b")}
    assert all(len(string.split()) == HEAD for string in distinguish_concepts("x", long).values())


@given(st.lists(st.sampled_from(["", "a", "b c", "B-C", "d"]), min_size=2, max_size=4))
def test_at_most_one_string_is_empty_or_all_are(kinds: list[str]) -> None:
    """By hand: types are taken where they differ whatever their case and punctuation, and nothing
    else is known."""
    found = distinguish_concepts("x", {str(n): Description(kind) for n, kind in enumerate(kinds)})
    differ = len({kind.lower().replace("-", " ") for kind in kinds}) == len(kinds)
    assert list(found.values()) == (kinds if differ else [""] * len(kinds))


def test_support_is_the_share_of_a_strings_own_words() -> None:
    text = frozenset("a cold virus in the nose".split())
    assert support("virus disease", "cold", text) == 0.5
    assert (
        support("cold", "cold", text)
        == support("", "cold", text)
        == support("a", "cold", text)
        == 0.0
    )
    assert support("Cold; NOSE", "cold", text) == 1.0


def test_a_text_supports_a_concept_and_no_text_none() -> None:
    asked: list[list[str]] = []

    def describe(concepts: Collection[str]) -> dict[str, Description]:
        asked.append(list(concepts))
        return COLD

    homonyms = Homonyms(describe)
    assert homonyms.supports("cold", ["C1", "C2"], "The disease is a cold.") == [1.0, 0.0]
    assert homonyms.supports("cold", ["C1", "C2"], "A sensation of cold.") == [0.0, 1.0]
    assert homonyms.supports("cold", ["C1", "C2"], None) == [0.0, 0.0]
    assert asked == [["C1", "C2"]]  # once
    # C3 is not described
    assert homonyms.supports("cold", ["C1", "C3"], "no disease") == [1.0, 0.0]


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    rows = [
        ("C1", "Common cold", "disease"),
        ("C2", "Cold", "sensation"),
        ("C3", "Infection", "disease"),
    ]
    ids, names, types = map(list, zip(*rows, strict=True))
    return KnowledgeGraph(
        table("entities", {"id": ids, "name": names, "type": types}),
        table(
            "names",
            {
                "id": [*ids, "C1"],
                "name": [*names, "cold"],
                "kind": ["preferred"] * 3 + ["synonym"],
                "language": ["en"] * 4,
                "source": [""] * 4,
            },
        ),
        table("definitions", {"id": ["C1"], "text": ["Of the nose."]}),
        table(
            "triples", {"head": ["C1", "C2"], "relation": ["is_a", "related"], "tail": ["C3", "C1"]}
        ),
    )


def test_descriptions_of_a_graph(graph: KnowledgeGraph) -> None:
    assert graph_descriptions(graph)(["C2", "C1", "C9"]) == {
        "C2": Description("sensation", "", "", ("Cold",)),
        "C1": Description("disease", "Infection", "Of the nose.", ("Common cold", "cold")),
        "C9": Description(),
    }


def test_what_is_kept_is_bounded_and_no_spelling_is_kept_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def describe(concepts: Collection[str]) -> dict[str, Description]:
        asked.append(tuple(concepts))
        return {c: Description(type=c) for c in concepts}

    monkeypatch.setattr("kg.linking.homonyms.KEPT", 3)
    homonyms = Homonyms(describe)
    for name in ("cold", "Cold", "COLD", "co-ld", "Co-Ld"):
        assert homonyms.strings(name, ["a", "b"]) == {"a": "a", "b": "b"}
    assert len(asked) == 2
    for number in range(50):
        homonyms.strings(f"name {number}", ["a", "b"])
        homonyms.strings("cold", ["a", "b"])  # what is used stays
    assert len(homonyms._strings) == 3 and len(asked) == 52
