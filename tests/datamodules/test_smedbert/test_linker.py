"""Mentions of fine-tuning texts: where they are among tokens, and which of them get knowledge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core.files import InputError
from datamodules.smedbert.linker import linker
from datamodules.tokenizers import load_tokenizer
from kg.graph import KnowledgeGraph
from tests.datamodules.test_smedbert.test_data import data
from tests.fakes.smedbert import Folders


@pytest.fixture(scope="module")
def export(fake_smedbert: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    data(fake_smedbert).export(folder)
    return folder


def tokens(fake: Folders, texts: list[str]) -> list[list[tuple[int, int]]]:
    """Offsets of [CLS], the characters and [SEP]."""
    encoded = load_tokenizer(fake.bert)(
        texts, return_offsets_mapping=True, add_special_tokens=False
    )
    return [[(0, 0), *offsets, (0, 0)] for offsets in encoded["offset_mapping"]]


def ids(fake: Folders) -> dict[str, int]:
    graph = KnowledgeGraph.load(fake.graph)
    return {name: i for i, name in enumerate(graph.entities["name"].to_pylist())}


def test_mentions_are_on_their_characters(fake_smedbert: Folders, export: Path) -> None:
    texts = ["患者肺炎，服用阿平片。", "休息", "肾痛肾痛孤独症"]
    found = linker(export)(texts, tokens(fake_smedbert, texts))
    index = ids(fake_smedbert)
    assert found.span.tolist() == [[0, 3, 5], [0, 8, 11], [2, 1, 3], [2, 3, 5], [2, 5, 8]]
    assert found.entity.tolist() == [index[n] for n in ("肺炎", "阿平片", "肾痛", "肾痛", "孤独症")]
    assert (found.neighbours[:4] >= 0).any(1).all() and (found.neighbours[4] == -1).all()
    made = data(fake_smedbert)
    there = found.neighbours >= 0
    assert torch.equal(found.type[there], torch.from_numpy(made.types[found.neighbours[there]]))
    assert (found.type[~there] == -1).all() and found.direction[there].abs().eq(1).all()
    fewer = linker(export, k=2)(texts, tokens(fake_smedbert, texts))
    assert torch.equal(fewer.neighbours, found.neighbours[:, :2])


def test_windows_and_separators_cut_no_mention_in_two(fake_smedbert: Folders, export: Path) -> None:
    text = "患者肺炎肾痛"
    offsets = tokens(fake_smedbert, [text])[0]
    window = [(0, 0), *offsets[4:6], (0, 0)]  # begins inside 肺炎
    assert len(linker(export)([text], [window]).span) == 0  # and ends inside 肾痛
    split = [(0, 0), *offsets[1:4], (0, 0), *offsets[4:7], (0, 0)]  # [SEP] inside 肺炎
    found = linker(export)([text], [split])
    assert found.entity.tolist() == [ids(fake_smedbert)["肾痛"]] and found.span.tolist() == [
        [0, 6, 8]
    ]
    none = linker(export)(["休息"], [[(0, 0), (0, 0)]])
    assert none.span.shape == (0, 3) and none.neighbours.shape == (0, 5)


def test_hit_ratio_selects_a_share_of_the_mentions(fake_smedbert: Folders, export: Path) -> None:
    """Figure 3: which mentions get knowledge depends on text and place alone, and a larger share
    holds a smaller one."""
    texts = [
        "".join(np.random.default_rng(i).permutation(["肺炎", "肾痛", "心肿", "骨瘤"])) + "。" * i
        for i in range(60)
    ]
    offsets = tokens(fake_smedbert, texts)

    def places(share: float) -> set[Any]:
        return set(map(tuple, linker(export, hits=share)(texts, offsets).span.tolist()))

    every, half = places(1.0), places(0.5)
    assert len(every) == 240 and not places(0.0)
    assert half < every and len(half) / 240 == pytest.approx(0.5, abs=0.1) and places(0.3) < half
    with pytest.raises(InputError, match="hits 2"):
        linker(export, hits=2)


def test_foreign_knowledge_changes_only_what_is_said(fake_smedbert: Folders, export: Path) -> None:
    """The control of Figure 3: the same mentions, each with another entity's neighbours, the same
    in every text."""
    texts = ["肺炎，肾痛。", "肾痛，肺炎，孤独症。", "心肿骨瘤"]
    offsets = tokens(fake_smedbert, texts)
    own, other, half = (linker(export, foreign=share)(texts, offsets) for share in (0, 1, 0.5))
    assert torch.equal(own.span, other.span) and not (own.entity == other.entity).any()
    assert other.entity[[0, 1, 2]].tolist() == other.entity[[3, 2, 1]].tolist()
    assert torch.equal((own.neighbours >= 0).any(1), (other.neighbours >= 0).any(1))
    name = next(name for name, i in ids(fake_smedbert).items() if i == int(other.entity[0]))
    known = linker(export)([name], tokens(fake_smedbert, [name]))
    assert torch.equal(other.neighbours[0], known.neighbours[0])
    changed = half.entity != own.entity
    assert 0 < changed.sum() < len(changed) and torch.equal(
        half.entity[changed], other.entity[changed]
    )
    with pytest.raises(InputError, match="foreign -1"):
        linker(export, foreign=-1)


def test_mentions_have_as_many_neighbours_as_in_pretraining(
    fake_smedbert: Folders, tmp_path: Path
) -> None:
    """The table holds six of an entity; what was pre-trained with five is not fine-tuned with six
    unless asked."""
    data(fake_smedbert, k=5).export(tmp_path)
    texts = ["肺炎"]
    offsets = tokens(fake_smedbert, texts)
    assert linker(tmp_path)(texts, offsets).neighbours.shape == (1, 5)
    assert linker(tmp_path, k=6)(texts, offsets).neighbours.shape == (1, 6)
    for wrong in (0, -1, 7):
        with pytest.raises(InputError, match=f"k {wrong}: expected 1 to 6"):
            linker(tmp_path, k=wrong)


def test_an_export_without_its_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"entities\.parquet: missing"):
        linker(tmp_path)
