"""An encoder that gets the characters of a graph: alignments by hand, tokens, vectors; pairs across
languages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from core.files import InputError
from datamodules.linking import split_by_hash
from datamodules.linking.layperson import TRANSLATED_SHARES, hpo_translated
from datamodules.sapbert.characters import Parallel, align_tokens, extend_encoder
from datamodules.sapbert.name_pairs import PairChoice, Pairs, balance_languages, build_pairs
from datamodules.sapbert.names_by_concept import PairSource
from inference.linkers import Names, Translated
from kg.graph import KnowledgeGraph, table
from tests.fakes import hpo as fake_hpo
from tests.fakes.bert import write as write_bert
from tests.kg.test_translations import write_table

ROWS = [
    ("C1", "large heart", "preferred", "en"),
    ("C1", "大心", "exact", "zh"),
    ("C2", "small heart", "preferred", "en"),
    ("C2", "小心", "exact", "zh"),
    ("C2", "tiny heart", "synonym", "en"),
]


def write_graph(folder: Path) -> str:
    columns = list(zip(*ROWS, strict=True))
    graph = KnowledgeGraph(
        table("entities", {"id": ["C1", "C2"], "name": ["a", "b"], "type": ["t", "t"]}),
        table(
            "names",
            dict(zip(("id", "name", "kind", "language"), map(list, columns), strict=True))
            | {"source": ["test"] * len(ROWS)},
        ),
        table("definitions", {"id": [], "text": []}),
        table("triples", {"head": [], "relation": [], "tail": []}),
        {"source": "test", "version": "1", "licence": "none"},
    )
    return str(graph.save(folder))


def test_one_round_of_alignment_by_hand() -> None:
    """Tokens 7 (large) 8 (heart) 9 (small): after a round each token's mass is its share of the
    pieces; after a second the piece that both names have is the common character's."""
    parallel = Parallel([[7, 8], [9, 8]], [[1, 2], [3, 2]])
    links, first = align_tokens(parallel, rounds=1)
    assert links.tolist() == [[7, 1], [7, 2], [8, 1], [8, 2], [8, 3], [9, 2], [9, 3]]
    assert first == pytest.approx([1 / 2, 1 / 2, 1 / 4, 1 / 2, 1 / 4, 1 / 2, 1 / 2])
    _, second = align_tokens(parallel, rounds=2)
    # piece 1: 7 has 1/2 and 8 has 1/4, so 2/3 and 1/3; piece 2: 7 and 8 have 1/2 each, twice
    assert second == pytest.approx(
        [4 / 7, 3 / 7, (1 / 3) / (5 / 3), 1 / (5 / 3), (1 / 3) / (5 / 3), 3 / 7, 4 / 7]
    )
    _, many = align_tokens(parallel, rounds=200)
    assert many[[0, 3, 6]] == pytest.approx([1, 1, 1], abs=0.02)


@pytest.mark.parametrize("start", ["aligned", "mean", "random"])
def test_characters_become_words_and_the_rest_stays(tmp_path: Path, start: str) -> None:
    encoder = str(write_bert(tmp_path / "bert", ["large", "small", "heart", "tiny"]))
    before = AutoTokenizer.from_pretrained(encoder)
    folder = extend_encoder(
        write_graph(tmp_path / "g"), str(tmp_path / "out"), encoder, start=start
    )
    after = AutoTokenizer.from_pretrained(folder)
    assert before.tokenize("大心 heart").count(before.unk_token) == 2
    assert after.tokenize("大心 heart") == ["大", "心", "heart"]
    assert len(after) == len(before) + 3
    assert after("large heart")["input_ids"] == before("large heart")["input_ids"]
    old, new = AutoModel.from_pretrained(encoder), AutoModel.from_pretrained(folder)
    text = before("small heart", return_tensors="pt")
    assert torch.equal(old(**text).last_hidden_state, new(**text).last_hidden_state)
    rows = new.get_input_embeddings().weight.detach()
    near = torch.nn.functional.cosine_similarity(
        rows[after.convert_tokens_to_ids("大")], rows[after.convert_tokens_to_ids("large")], dim=0
    )
    assert (near > 0.9) == (start == "aligned")


def test_a_graph_without_the_language_is_refused(tmp_path: Path) -> None:
    encoder = str(write_bert(tmp_path / "bert", ["heart"]))
    with pytest.raises(InputError, match="no name in ja"):
        extend_encoder(
            write_graph(tmp_path / "g"), str(tmp_path / "out"), encoder, languages=["ja"]
        )


@pytest.mark.parametrize("across", [0.0, 0.25, 0.5, 1.0])
def test_the_share_across_languages_is_kept(across: float) -> None:
    spoken = np.array([1, 1, 1, 2, 2, 3])  # the last name is of both
    pairs = np.array([[0, 1, 0]] * 40 + [[0, 3, 0]] * 30 + [[5, 3, 0]] * 10)
    kept, left_out = balance_languages(pairs, spoken, across, seed=1)
    crossing = ((spoken[kept[:, 0]] & spoken[kept[:, 1]]) == 0).mean()
    assert crossing == pytest.approx(across, abs=0.01)
    assert len(kept) + left_out == len(pairs)
    assert len(kept) == {0.0: 50, 0.25: 66, 0.5: 60, 1.0: 30}[across]


def test_no_pair_across_is_an_error() -> None:
    with pytest.raises(InputError, match="no pair across languages"):
        balance_languages(np.array([[0, 1, 0]]), np.array([1, 1]), 0.5, 0)


def test_pairs_of_two_languages(tmp_path: Path) -> None:
    encoder = str(write_bert(tmp_path / "bert", ["heart", "large", "大", "心", "小"]))
    graph = write_graph(tmp_path / "g")
    folder = build_pairs(
        [graph],
        encoder,
        str(tmp_path / "p"),
        1,
        source=PairSource(languages=["en", "zh"]),
        choice=PairChoice(held_out=1, across=1.0),
    )
    pairs = Pairs(folder)
    said = [{pairs.names[a], pairs.names[b]} for a, b, _ in pairs[np.arange(len(pairs))]]
    assert said
    assert all(any(name.isascii() for name in two) for two in said)
    assert all(any(not name.isascii() for name in two) for two in said)


def test_the_questions_of_hpo_zh(tmp_path: Path) -> None:
    source = fake_hpo.write(tmp_path / "hpo")
    terms = ["HP:0000001", "HP:0000118", "HP:0000005", "HP:0000006", "HP:0001001", "HP:0001002"]
    rows = [f"en\tzh\t{t}\trdfs:label\tx\t名{t[-4:]}\tOFFICIAL" for t in terms]
    rows.append("en\tzh\tHP:0000001\trdfs:label\tx\tAll\tOFFICIAL")
    path = write_table(tmp_path / "t.tsv", rows)
    english, splits = hpo_translated(path, source)
    asked = {m.mention: (split, m.gold) for split, part in splits.items() for m in part}
    assert asked == {f"名{t[-4:]}": (split_by_hash(t, TRANSLATED_SHARES), [[t]]) for t in terms}
    assert all(name.isascii() for name in english.names)
    both, _ = hpo_translated(path, source, with_others=True)
    chinese = {name for name in both.names if not name.isascii()}
    assert chinese == {m.mention for m in splits["train"]}


def test_a_mention_is_translated_by_its_longest_phrases(tmp_path: Path) -> None:
    source = fake_hpo.write(tmp_path / "hpo")
    path = write_table(tmp_path / "t.tsv", ["en\tzh\tHP:0000001\trdfs:label\tx\t所有\t"])
    names = Names(hpo_translated(path, source)[0], "lower")
    phrases = {"所": "mode", "所有": "mode of", "遗传": "inheritance"}
    linker = Translated(names, phrases)
    assert linker.translate("所有x遗传") == "mode of x inheritance"
    assert linker.link(["所有遗传"], [None])[0][0].concept == "HP:0000005"
