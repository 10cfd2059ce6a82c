"""Edges of what the data modules count, cut, mark and look up: the last value on each side."""

from __future__ import annotations

from dataclasses import replace as replace_fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from datamodules.blurb import replace
from datamodules.genbioel import GenBioELBatch
from datamodules.genbioel.samples import _read
from datamodules.graph_names import NameSource
from datamodules.linking import Dictionary
from datamodules.probing import queries
from datamodules.relation_templates import contains_name
from datamodules.sapbert.characters import parallel_names
from datamodules.segments import cut_place
from datamodules.tasks import Tagged
from datamodules.tasks.own import cut_sentences
from datamodules.untrained import untrained_folder
from tests.fakes.graphs import graph


@pytest.mark.parametrize(
    ("one", "two", "marked"),
    [
        ([(0, 4)], [(4, 8)], ("@A$@B$ x", False)),  # they touch
        ([(4, 8)], [(0, 4)], ("@B$@A$ x", False)),
        ([(0, 5)], [(4, 8)], ("@AB$ x", True)),  # they share a character
        ([(4, 8)], [(0, 5)], ("@AB$ x", True)),
    ],
)
def test_entities_that_touch_do_not_overlap(one, two, marked) -> None:
    assert replace("goutacne x", one, two, "@A$", "@B$", "@AB$") == marked


@pytest.mark.parametrize(
    ("ended", "place"),
    [
        (1, 2),  # a quarter of 8 is 2
        (5, 6),  # three quarters are 6
        (0, 4),  # before the quarter: the middle, without a sentence's end
        (6, 4),
    ],
)
def test_a_sentence_s_end_in_the_middle_half_cuts(ended: int, place: int) -> None:
    ends = np.zeros(8, bool)
    ends[ended] = True
    assert cut_place(np.ones(8, bool), np.zeros((0, 2), int), ends) == place


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("gout and gout", "gout", True),
        ("gout", "gout", True),  # the text's own beginning and end
        ("gouty", "gout", False),
        ("a gout", "gout", True),
        ("agout gout", "gout", True),
        ("gouts a", "gout", False),  # the text's end is no neighbour of its beginning
        ("gout a", "gout", True),
        ("gout", "", False),
    ],
)
def test_a_name_in_a_text(text: str, name: str, found: bool) -> None:
    assert contains_name(text, name) is found


def test_blank_lines_are_no_sentences() -> None:
    text = "Gout is bad.\n\n \n\nIt hurts."
    sentences = cut_sentences(Tagged("a", "a", text, [(0, 4, "D")]), "en")
    assert [s.text.strip() for s in sentences] == ["Gout is bad.", "It hurts."]
    assert sentences[0].entities == [(0, 4, "D")]


def test_padding_is_no_token() -> None:
    ones = torch.tensor([[1, 1, 0]])
    batch = GenBioELBatch(ones, ones, ones, torch.tensor([[5, -100]]), torch.tensor([1]))
    assert batch.masks()["tokens"].tolist() == [[True, True, False]]
    assert batch.masks()["predicted"].tolist() == [[True, False]]


def test_added_names_are_synonyms_of_their_own() -> None:
    before = Dictionary(["A", "B"], ["a", "b"], kinds=["preferred", "preferred"])
    after = before.with_names([("A", "aa"), ("X", "x"), ("B", "bb")])
    assert (after.ids, after.names) == (["A", "B", "A", "B"], ["a", "b", "aa", "bb"])
    assert after.kinds == ["preferred", "preferred", "synonym", "synonym"]


def test_a_vector_table_without_training_is_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for place, seed in (("a", 1), ("b", 2)):
        monkeypatch.setenv("KEPL_RUNS", str(tmp_path / place))
        torch.manual_seed(seed)
        state = torch.random.get_rng_state()
        made.append((untrained_folder("bilstm") / "model.safetensors").read_bytes())
        assert torch.equal(torch.random.get_rng_state(), state)
    assert made[0] == made[1]


def test_other_languages_names_go_beside_the_english_ones_unless_they_are_excluded() -> None:
    names = [("A", "Gicht", "preferred", "de"), ("A", "Goutte", "synonym", "fr")]
    names += [("A", "gout", "preferred", "en"), ("B", "Polio", "preferred", "de")]
    known = graph({"A": "D", "B": "D"}, [], names)
    read: list[list[str]] = []

    def encode(texts: list[str], **_: object) -> dict[str, list[list[int]]]:
        read.append(texts)
        return {"input_ids": [[1] for _ in texts]}

    parallel_names(known, encode, ["de", "fr"], {"goutte"})
    assert read == [["Gicht"], ["gout"]]


def test_queries_about_an_entity_without_a_name_are_left_out() -> None:
    known = graph({"A": "D", "B": "D"}, [("A", "r", "B"), ("B", "r", "A")])
    nameless = known.entities.set_column(1, "name", pa.array([" ", "B"]))
    made, left_out = queries(replace_fields(known, entities=nameless))
    assert [(query.asked, query.answers) for query in made] == [("tail", ["A"]), ("head", ["A"])]
    assert left_out == {"queries about an entity without a name": 2}


def test_names_of_several_graphs_are_counted(tmp_path: Path) -> None:
    names = [("A", "gout", "synonym", "en"), ("A", "  ", "synonym", "en")]
    first = graph({"A": "D"}, [], [*names, ("A", "Gicht", "synonym", "de")])
    second = graph({"B": "D"}, [], [("B", "acne", "synonym", "en")])
    for number, one in enumerate((first, second)):
        one.save(tmp_path / str(number))
    read = _read([str(tmp_path / "0"), str(tmp_path / "1")], NameSource())
    assert {key: count for key, count in read.counts.items() if count} == {
        "names": 6,
        "names of other languages or kinds": 3,  # the ids, in Chinese, and Gicht
        "empty names": 1,
    }
