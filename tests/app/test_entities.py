"""What is returned of an entity: its own rows, and a limited number of neighbours."""

from __future__ import annotations

import pytest

from app.entities import MOST, Entities, source_address
from tests.fakes.graphs import graph


def list_neighbours(count: int) -> tuple[list[tuple[str, str]], int]:
    """(direction and id of each neighbour, how many triples) of z, the last entity, which has two
    triples as head and `count` as tail."""
    others = [f"e{i:02d}" for i in range(count)]
    types = dict.fromkeys(["a", "b", *others, "z"], "thing")
    triples = [("z", "near", "a"), ("z", "near", "b"), *((e, "near", "z") for e in others)]
    found = Entities(graph(types, triples)).about("z")
    assert found
    return [(n["direction"], n["id"]) for n in found["neighbours"]], found["triples"]


def test_neighbours_of_both_directions() -> None:
    out = [("out", "a"), ("out", "b")]
    assert list_neighbours(2) == ([*out, ("in", "e00"), ("in", "e01")], 4)
    found, triples = list_neighbours(MOST + 5)
    assert found[:2] == out and triples == MOST + 7
    assert found[2:] == [("in", f"e{i:02d}") for i in range(MOST - 2)]
    assert len(list_neighbours(MOST - 2)[0]) == MOST


def test_an_entity_that_is_not_in_the_graph() -> None:
    assert Entities(graph({"a": "thing"}, [])).about("b") is None


@pytest.mark.parametrize(
    ("entity", "address"),
    [
        ("HP:0001166", "https://bioregistry.io/hp:0001166"),
        ("ORPHA:558", "https://bioregistry.io/orphanet:558"),
        ("mesh:D008382", "https://bioregistry.io/mesh:D008382"),
        ("高血压", None),
        ("MINE:1", None),
        ("HP", None),
        ("HP:1/../x", None),
        ("HP:", None),
    ],
)
def test_the_address_of_an_entity_at_its_source(entity: str, address: str | None) -> None:
    assert source_address(entity) == address
