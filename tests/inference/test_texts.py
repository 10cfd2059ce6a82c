"""What chains and taggers accept as texts, and as a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from inference.chain import Pipeline
from inference.options import checked_texts
from kg.graph import KnowledgeGraph, fingerprint
from tests.fakes.graphs import graph as fake_graph

TEXTS = ["a cat", "", "dogs"]


@pytest.mark.parametrize(
    "given",
    [
        TEXTS,
        tuple(TEXTS),
        iter(TEXTS),
        (text for text in TEXTS),
        pd.Series(TEXTS, index=[7, 8, 9]),
        np.array(TEXTS),
    ],
)
def test_any_iterable_of_texts(given: Any) -> None:
    found = checked_texts(given)
    assert found == TEXTS and {type(text) for text in found} == {str}
    assert checked_texts("one") == ["one"] and checked_texts([]) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "got NoneType"),
        (b"bytes", "got bytes"),
        (3, "got int"),
        ({"a": 1}, "got dict"),
        (pd.DataFrame({"text": TEXTS}), "got DataFrame"),
        (["a", None], r"position 1, got NoneType"),
        (pd.Series(["a", "b", float("nan")]), r"position 2, got float \(nan\)"),
        ([b"a"], "position 0, got bytes"),
        ([["nested"]], "position 0, got list"),
    ],
)
def test_what_is_no_text_is_refused_with_its_position(given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        checked_texts(given)


def test_a_chain_over_a_graph_in_memory(tmp_path: Path) -> None:
    names = [("D1", "renal failure", "exact", "en")]
    folder = fake_graph(
        {"D1": "disease", "foozin": "drug"}, [("D1", "near", "foozin")], names
    ).save(tmp_path / "graph")
    graph = KnowledgeGraph.load(folder)
    inside, saved = Pipeline(graph), Pipeline(folder)
    text = "renal failure"
    assert inside.link(text) == saved.link([text]) != [[]]
    assert graph.fingerprint == fingerprint(folder) and inside.settings == saved.settings
    make, made_of = inside.__reduce__()
    assert make(*made_of).link(pd.Series([text])) == saved.link(text)
    with pytest.raises(TypeError, match="position 1"):
        saved.link([text, None])  # type: ignore[list-item]
