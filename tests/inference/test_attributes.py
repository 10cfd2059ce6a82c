"""Negation: NegEx's rules on places of a text, and in a chain."""

from __future__ import annotations

from pathlib import Path

from inference.negation import Negation

from inference.chain import Pipeline, as_record
from tests.fakes.graphs import graph

TEXT = "No sign of nephritis, but arachnodactyly is seen. The patient denies chest pain. Marfan syndrome was ruled out. Pain."


def places(*words: str) -> list[tuple[int, int]]:
    return [(TEXT.index(word), TEXT.index(word) + len(word)) for word in words]


def test_phrases_before_and_after_and_the_ends_of_their_reach() -> None:
    """A phrase before, one after, "but" between; overlapping places; a sentence's end; part of a word means the word."""
    asked = places("nephritis", "arachnodactyly", "chest pain", "pain", "Marfan syndrome", "Pain", "rachno")
    assert Negation().negated(TEXT, asked) == [True, False, True, True, True, False, False]
    assert Negation().negated("", []) == []


def test_a_chain_says_what_is_denied(tmp_path: Path) -> None:
    names = [("D1", "nephritis", "exact", "en"), ("D2", "arachnodactyly", "exact", "en")]
    folder = str(graph({"D1": "disease", "D2": "disease"}, [("D1", "near", "D2")], names).save(tmp_path / "graph"))
    pipeline = Pipeline(folder, negation=True)
    assert [(m.entity, m.negated) for m in pipeline.link([TEXT])[0]] == [("D1", True), ("D2", False)]
    assert pipeline.settings["negation"] and "negation" not in Pipeline(folder).settings
    function, arguments = pipeline.__reduce__()
    assert [m.negated for m in function(*arguments).link([TEXT])[0]] == [True, False]
    assert [as_record(m)["negated"] for m in Pipeline(folder).link([TEXT])[0]] == [None, None]
