"""Vectors of entities in context."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from datamodules.corpus import Corpus
from datamodules.tokenizers import load_tokenizer
from experiments.vectors import entity_vectors, pool_spans, write_vectors
from kg.graph import KnowledgeGraph
from kg.vectors.embeddings import EmbeddingTable
from models.encoders import TextEncoder
from tests.commands import command
from tests.fakes.kebiolm import Folders


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(1, 3),
    st.integers(2, 9),
    st.sampled_from(["mean", "boundary"]),
)
def test_a_mentions_vector_is_the_mean_of_its_states(
    seed: int, rows: int, length: int, pooling: str
) -> None:
    rng = np.random.default_rng(seed)
    states = torch.from_numpy(rng.normal(size=(rows, length, 4))).float()
    spans = []
    for _ in range(5):
        start = int(rng.integers(length))
        spans.append((int(rng.integers(rows)), start, int(rng.integers(start + 1, length + 1))))
    found = pool_spans(states, torch.tensor(spans), pooling)
    for vector, (row, start, end) in zip(found, spans, strict=True):
        own = states[row, start:end] if pooling == "mean" else states[row, [start, end - 1]]
        assert torch.allclose(vector, own.mean(0), atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("most", [2, 1000])
def test_an_entitys_vector_is_the_mean_over_its_first_mentions(
    fake_kebiolm: Folders, most: int
) -> None:
    model, tokenizer = TextEncoder(fake_kebiolm.bert).eval(), load_tokenizer(fake_kebiolm.bert)
    corpus = Corpus(fake_kebiolm.corpus)
    by_hand: dict[int, list[torch.Tensor]] = defaultdict(list)
    for number in range(len(corpus)):
        example = corpus[number]
        ids = torch.tensor(
            [[tokenizer.cls_token_id, *example.ids.tolist(), tokenizer.sep_token_id]]
        )
        states = model(ids, torch.ones_like(ids))[0]
        for start, end, entity in example.mentions.tolist():
            if len(by_hand[entity]) < most:
                by_hand[entity].append(states[start + 1 : end + 1].mean(0))
    entities, vectors, counts = entity_vectors(model, tokenizer, corpus, most=most, tokens=64)
    assert entities.tolist() == sorted(by_hand) and counts.tolist() == [
        len(by_hand[e]) for e in sorted(by_hand)
    ]
    assert max(counts) > 2 or most == 2
    for entity, vector in zip(entities.tolist(), vectors, strict=True):
        assert torch.allclose(vector, torch.stack(by_hand[entity]).mean(0), atol=1e-4)
    with pytest.raises(InputError, match="--pooling max: choose from"):
        entity_vectors(model, tokenizer, corpus, "max")


def test_the_command_writes_a_table_and_refuses_what_does_not_fit(
    fake_kebiolm: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--model",
        fake_kebiolm.bert,
        "--corpus",
        fake_kebiolm.corpus,
        "--graph",
        fake_kebiolm.graph,
    ]
    run = command("data vectors")
    assert run([*words, "--out", str(tmp_path / "out")]) == 0
    assert "vectors of " in capsys.readouterr().out
    table = EmbeddingTable.load(tmp_path / "out")
    assert set(table.entity_ids) <= set(KnowledgeGraph.load(fake_kebiolm.graph).ids.to_pylist())
    assert table.entity.shape == (len(table.entity_ids), 32) and table.entity.isfinite().all()
    assert len((tmp_path / "out" / "counts.txt").read_text().split()) == len(table.entity_ids)
    for changed, wanted in [
        (["--most", "0"], "--most 0"),
        (["--model", "minilm"], "another tokenizer"),
        (["--graph", str(tmp_path)], "no knowledge graph here"),
        (["--corpus", str(tmp_path)], "no corpus here"),
    ]:
        assert run([*words, "--out", str(tmp_path / "other"), *changed]) == 2
        assert wanted in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_sequences_that_the_encoder_is_too_short_for_are_refused(
    fake_kebiolm: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def check(self: Corpus, max_length: int, more: int = 0) -> None:
        asked.append(max_length)
        raise InputError("too long")

    monkeypatch.setattr(Corpus, "check_length", check)
    corpus, graph = Path(fake_kebiolm.corpus), Path(fake_kebiolm.graph)
    with pytest.raises(InputError, match="too long"):
        write_vectors(fake_kebiolm.bert, corpus, graph, tmp_path / "out")
    assert asked and asked[0] > 2
