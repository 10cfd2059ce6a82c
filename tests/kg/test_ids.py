"""Ids as files write them, and the entities that they mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.files import InputError
from kg.build.merge import merge_graphs
from kg.ids import Ids, alternatives_of, bare, is_no_concept, split_ids
from kg.linking import Document, GivenLinker, Mention
from tests.fakes.graphs import graph

MEDIC = Ids(
    ["D003924", "600807", "D001249"],
    {"600807": ["D000000", "D001249", "611064"], "D003924": ["C1", "D000000"]},
)


@pytest.mark.parametrize(
    "written, entity",
    [
        ("D003924", "D003924"),
        ("MESH:D003924", "D003924"),
        ("mesh:D003924", "D003924"),
        ("MeSH: D003924", "D003924"),
        (" D003924 ", "D003924"),
        ("OMIM:600807", "600807"),
        ("MIM:600807", "600807"),
        ("611064", "600807"),
        ("OMIM:611064", "600807"),
        ("d003924", "D003924"),
        ("D001249", "D001249"),  # an id is what it names, though another has it as an alternative
        ("D000000", "D003924"),  # of two, the first of the graph
        ("DOID:600807", None),
        ("600808", None),
        ("GENE:D003924", None),
        ("", None),
    ],
)
def test_an_id_means_an_entity(written: str, entity: str | None) -> None:
    assert MEDIC.entity(written) == entity


@pytest.mark.parametrize(
    "written",
    ["HP:0001250", "HP_0001250", "hp:0001250", "http://purl.obolibrary.org/obo/HP_0001250"],
)
def test_a_prefix_of_the_graphs_own_in_any_spelling(written: str) -> None:
    assert Ids(["HP:0001250", "0001250x"], {}).entity(written) == "HP:0001250"


def test_a_graph_with_prefixes_and_a_file_without() -> None:
    ids = Ids(["MESH:D003924", "OMIM:600807", "HP:0001250"])
    found = [
        ids.entity(one) for one in ("D003924", "600807", "OMIM:600807", "mesh:d003924", "0001250")
    ]
    assert found == ["MESH:D003924", "OMIM:600807", "OMIM:600807", "MESH:D003924", None]


@pytest.mark.parametrize("separator", ["|", ";", ",", "+", ", ", " | "])
def test_several_ids(separator: str) -> None:
    written = separator.join(["MESH:D001249", "611064", "X9", "OMIM:600807", "-1"])
    assert MEDIC.resolve(written) == (["D001249", "600807"], ["X9"])


def test_an_id_with_a_separator_in_it_is_one_id() -> None:
    ids = Ids(["D1|D2", "B1+B12", "D1"])
    assert ids.resolve("D1|D2").entities == ["D1|D2"] and ids.resolve("B1+B12").entities == [
        "B1+B12"
    ]


@pytest.mark.parametrize(
    "written",
    ["", " ", "-", "-1", "NIL", "nil", "None", "null", "CUI-less", "Concept-less", "-1|-1", "|"],
)
def test_no_concept_is_no_unknown_id(written: str) -> None:
    assert MEDIC.resolve(written) == ([], []) and split_ids(written) == []
    assert is_no_concept(written) or "|" in written


def test_an_id_without_its_vocabulary() -> None:
    assert [bare(one) for one in ("OMIM:1", "MESH: D1", "UMLS:C1", "HP:1", "D1")] == [
        "1",
        "D1",
        "C1",
        "HP:1",
        "D1",
    ]


def test_a_mention_of_several_entities_is_one_of_each() -> None:
    text = "asthma and diabetes or both, and nothing"
    mentions = (
        Mention(0, 6, "MESH:D001249", 0.5),
        Mention(11, 27, "D003924+611064+X9"),
        Mention(11, 27, "D003924"),
        Mention(20, 27, "D001249"),
        Mention(33, 40, "-1"),
        Mention(33, 40, "NIL"),
    )
    linker = GivenLinker(MEDIC, unknown="drop")
    assert linker.link_document(Document("1", text, mentions)) == [
        Mention(0, 6, "D001249", 0.5),
        Mention(11, 27, "D003924"),
        Mention(11, 27, "600807"),
    ]
    assert linker.left_out == {"without a concept": 2, "inside or across another": 1}
    with pytest.raises(InputError, match="'X9' is not in the graph"):
        GivenLinker(MEDIC).link_document(Document("1", text, mentions))


def test_merged_graphs_keep_their_alternative_ids_and_those_of_joined_entities(
    tmp_path: Path,
) -> None:
    first = graph(
        {"A1": "disease", "A2": "disease"}, [("A1", "near", "A2")], [("A1", "fever", "exact", "en")]
    )
    second = graph(
        {"B1": "disease", "A2": "drug"}, [("B1", "near", "A2")], [("B1", "fever", "exact", "en")]
    )
    first.manifest["alternatives"], second.manifest["alternatives"] = (
        {"A1": ["A9"]},
        {"B1": ["B9"], "A2": ["B8"]},
    )
    whole = merge_graphs([("first", first), ("second", second)])
    alternatives = alternatives_of(whole)
    assert alternatives["A1"][:1] == ["A9"] and set(alternatives["A1"]) >= {"A9", "B9"}
    assert Ids.from_graph(whole).resolve("B9;A9;B1").entities[0] == "A1"


def test_a_manifest_that_is_broken_is_one_error() -> None:
    one = graph({"A1": "disease"}, [], [])
    one.manifest["alternatives"] = {"A1": "A9"}
    with pytest.raises(InputError, match="alternatives"):
        Ids.from_graph(one)


def test_an_id_as_files_of_brat_have_it() -> None:
    ids = Ids(["C001", "KEPL:7", "7"])
    assert ids.entity("KEPL:C001") == "C001"
    assert ids.entity("KEPL:7") == "KEPL:7"  # an id that is so is itself
    assert ids.entity("KEPL:c001") == "C001" and ids.entity("KEPL:C002") is None
