"""KnowBERT's batches: candidates of the names of a graph, their priors, and which mentions have
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core.files import InputError
from datamodules.knowbert import KnowBERTData, candidate_table, candidates, linker
from kg.graph import KnowledgeGraph, table
from tests.datamodules.test_smedbert.test_linker import ids, tokens
from tests.fakes.chinese import LENGTH
from tests.fakes.smedbert import Folders


def data(fake: Folders, **given: Any) -> KnowBERTData:
    made = KnowBERTData(
        corpus=fake.corpus,
        tokenizer=fake.bert,
        graph=fake.graph,
        entities=fake.entities,
        **{"batch_size": 16, "max_length": LENGTH + 1, "n_candidates": 4, **given},
    )
    made.setup()
    return made


def graph(names: dict[str, list[str]]) -> KnowledgeGraph:
    rows = [(one, name) for one, own in names.items() for name in own]
    columns = {"kind": "preferred", "language": "zh", "source": "fake"}
    return KnowledgeGraph(
        table(
            "entities",
            {
                "id": list(names),
                "name": [own[0] for own in names.values()],
                "type": ["x"] * len(names),
            },
        ),
        table(
            "names",
            {"id": [i for i, _ in rows], "name": [n for _, n in rows]}
            | {k: [v] * len(rows) for k, v in columns.items()},
        ),
        table("definitions", {"id": [], "text": []}),
        table("triples", {"head": [], "relation": [], "tail": []}),
        {"source": "fake", "version": "1", "licence": "none"},
    )


def test_candidates_share_a_name_or_are_inside_one() -> None:
    """Longer names first, then those that the text mentions more often; a name that never links has
    no part."""
    made = graph(
        {
            "A": ["急性胃炎", "胃炎急发"],
            "B": ["胃炎"],
            "C": ["胃炎"],
            "D": ["急性胃"],
            "E": ["炎"],
            "F": ["肺炎"],
        }
    )
    frequency = np.array([5, 1, 2, 0, 9, 9])
    assert candidate_table(made, frequency, 4).tolist() == [
        [0, 3, 2, 1],
        [1, 2, -1, -1],
        [2, 1, -1, -1],
        [3, -1, -1, -1],
        [4, -1, -1, -1],
        [5, -1, -1, -1],
    ]
    assert candidate_table(made, frequency, 2)[0].tolist() == [0, 3]
    slow = {  # every pair of names, one by one
        (a, b)
        for a in range(6)
        for b in range(6)
        if a != b
        and any(
            len(inner) > 1 and inner in outer
            for outer in made.names.filter(
                made.names["id"].to_numpy(zero_copy_only=False) == "ABCDEF"[a]
            )["name"].to_pylist()
            for inner in made.names.filter(
                made.names["id"].to_numpy(zero_copy_only=False) == "ABCDEF"[b]
            )["name"].to_pylist()
        )
    }
    found = candidate_table(made, frequency, 6)
    assert {(a, int(b)) for a in range(6) for b in found[a, 1:] if b >= 0} == slow


def test_priors_are_shares_of_the_texts_mentions() -> None:
    rows = np.array([[0, 1, 3, 0], [1, 0, 2, 1]])
    found = candidates(rows, np.array([[0, 1], [1, -1]]), np.array([2, 8]))
    assert found.span.tolist() == [[0, 1, 3], [1, 0, 2]] and found.entity.tolist() == [
        [0, 1],
        [1, -1],
    ]
    torch.testing.assert_close(found.prior, torch.tensor([[3 / 12, 9 / 12], [1.0, 0.0]]))


def test_masked_mentions_have_no_candidates(fake_smedbert: Folders) -> None:
    """D1: what is masked is not given."""
    made = data(fake_smedbert)
    made.table[:, 1] = np.where(
        np.arange(len(made.table)) % 2, (np.arange(len(made.table)) + 1) % len(made.table), -1
    )
    seen = hidden = 0
    for epoch in range(10):
        batch = made.batch(made.order(epoch)[0], epoch)
        predicted = batch.mlm_labels != -100
        for row, start, end in batch.mentions.span.tolist():
            assert not predicted[row, start:end].any()
        seen, hidden = seen + len(batch.mentions.span), hidden + int(predicted.sum())
        several = (batch.mentions.entity >= 0).sum(1) > 1
        assert batch.counts.tolist() == [predicted.sum(), (batch.order >= 0).sum(), several.sum()]
        assert 0 < int(several.sum()) < len(several)
    assert seen > 100 and hidden > 100
    blank = made.batch(made.order(0)[0], -1, blank=True)
    assert blank.counts.tolist() == [0, 0, 0] and not len(blank.mentions.span)


def test_fine_tuning_links_with_the_exported_names(fake_smedbert: Folders, tmp_path: Path) -> None:
    made = data(fake_smedbert)
    made.export(tmp_path)
    texts = ["患者肺炎，服用阿平片。", "休息"]
    found = linker(tmp_path)(texts, tokens(fake_smedbert, texts))
    index = ids(fake_smedbert)
    assert found.span.tolist() == [[0, 3, 5], [0, 8, 11]]
    assert found.entity.tolist() == made.table[[index["肺炎"], index["阿平片"]]].tolist()
    assert (found.prior.sum(1) == 1).all()
    (tmp_path / "candidates.npy").unlink()
    with pytest.raises(InputError, match=r"candidates\.npy: missing"):
        linker(tmp_path)
    with pytest.raises(InputError, match="n_candidates 1: expected at least 2"):
        data(fake_smedbert, n_candidates=1)
