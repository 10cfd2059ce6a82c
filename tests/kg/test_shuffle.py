"""A permuted graph: the same degrees, no knowledge."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from core.files import InputError
from kg.build.shuffle import exchange_tails, shuffle_graph
from kg.graph import KnowledgeGraph
from tests.kg.test_train import ladder


def rows(graph: KnowledgeGraph) -> list[tuple[str, str, str]]:
    return [tuple(row.values()) for row in graph.triples.to_pylist()]  # type: ignore[misc]


def test_degrees_of_every_relation_and_type_are_kept(tmp_path: Path) -> None:
    folder = ladder(tmp_path / "g")
    out = shuffle_graph(folder, str(tmp_path / "s"))
    before, after = KnowledgeGraph.load(folder), KnowledgeGraph.load(out)
    assert after.entities == before.entities and after.names == before.names
    old, new = rows(before), rows(after)
    assert [row[:2] for row in old] == [row[:2] for row in new]
    assert Counter(row[1:] for row in old) == Counter(row[1:] for row in new)
    assert sum(a == b for a, b in zip(old, new, strict=True)) < len(old) / 2
    assert not [row for row in new if row[0] == row[2]]
    again = shuffle_graph(folder, str(tmp_path / "again"))
    other = shuffle_graph(folder, str(tmp_path / "other"), seed=1)
    assert KnowledgeGraph.load(again).triples == after.triples
    assert KnowledgeGraph.load(other).triples != after.triples


def test_what_is_there_is_kept_and_the_graph_itself_is_no_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ladder(tmp_path / "g")
    shuffle_graph(folder, str(tmp_path / "s"))
    assert "triples permuted within relation and type" in capsys.readouterr().out
    shuffle_graph(folder, str(tmp_path / "s"))
    assert "permuted within" not in capsys.readouterr().out
    with pytest.raises(InputError, match="an input of the command"):
        shuffle_graph(folder, folder)


@pytest.mark.parametrize("seed", range(4))
def test_tails_stay_among_the_rows_of_their_kind(seed: int) -> None:
    rng = np.random.default_rng(seed)
    heads, tails, kind = (rng.integers(0, high, 80) for high in (30, 30, 4))
    mixed = exchange_tails(heads, tails, kind, seed)
    for own in range(4):
        assert sorted(mixed[kind == own]) == sorted(tails[kind == own])
    assert (mixed == heads).sum() == 0
