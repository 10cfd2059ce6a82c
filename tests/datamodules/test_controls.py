"""Entities that are given in place of those of the text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.files import InputError
from datamodules.controls import exchange_entities, give_entities
from kg.graph import KnowledgeGraph
from tests.kg.test_train import ladder


@pytest.mark.parametrize("seed", range(5))
def test_every_entity_is_exchanged_within_its_type_and_with_or_without_triples(seed: int) -> None:
    rng = np.random.default_rng(seed)
    types = [["a", "b", "c"][i] for i in rng.integers(0, 3, 60)]
    degree = rng.integers(0, 2, 60) * rng.integers(1, 9, 60)
    other = exchange_entities(types, degree)
    assert sorted(other) == list(range(60)) and not (other == np.arange(60)).any()
    assert [types[i] for i in other] == types
    assert ((degree[other] > 0) == (degree > 0)).all()


def test_entities_that_are_alone_of_their_type_are_exchanged_among_themselves() -> None:
    other = exchange_entities(["a", "b", "b", "c", "c", "d"], np.array([1, 1, 1, 0, 0, 1]))
    assert other.tolist() == [5, 2, 1, 4, 3, 0]


def test_marks_are_one_entity_and_an_unknown_control_is_refused(tmp_path: Path) -> None:
    graph = KnowledgeGraph.load(ladder(tmp_path / "g"))
    assert len(set(give_entities("marks", graph).tolist())) == 1
    assert len(set(give_entities("foreign", graph).tolist())) == len(graph.entities)
    with pytest.raises(InputError, match=r"control: no control 'mark'; did you mean.*foreign"):
        give_entities("mark", graph)
