"""KeBioLM's batches: independent of how the work is shared, and refused when things do not belong
together."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from core.files import InputError
from datamodules import corpus
from datamodules.kebiolm import KeBioLMBatch, KeBioLMData
from kg.graph import KnowledgeGraph
from kg.vectors.embeddings import EmbeddingTable
from tests.fakes import bert
from tests.fakes.kebiolm import Folders
from tests.sharing import check_later_start, check_shared_steps


def make_data(
    fake: Folders,
    world: int = 1,
    rank: int = 0,
    accumulate: int = 1,
    step: int = 0,
    **settings: object,
) -> KeBioLMData:
    data = KeBioLMData(fake.corpus, fake.bert, fake.entities, **{"batch_size": 16, **settings})  # type: ignore[arg-type]
    data.trainer = SimpleNamespace(
        global_rank=rank, world_size=world, accumulate_grad_batches=accumulate, global_step=step
    )  # type: ignore[assignment]
    data.setup()
    return data


def sentences(batches: list[KeBioLMBatch]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(original ids, masked ids) of every sequence, without padding, sorted."""
    found = []
    for b in batches:
        for ids, masked, mask in zip(b.original_ids, b.input_ids, b.attention_mask, strict=True):
            found.append((tuple(ids[mask.bool()].tolist()), tuple(masked[mask.bool()].tolist())))
    return sorted(found)


@pytest.mark.parametrize(("world", "accumulate"), [(2, 1), (1, 4), (2, 2)])
def test_steps_hold_the_same_however_they_are_shared(
    fake_kebiolm: Folders, world: int, accumulate: int
) -> None:
    check_shared_steps(make_data, fake_kebiolm, sentences, world, accumulate)


def test_a_later_start_returns_the_rest(fake_kebiolm: Folders) -> None:
    check_later_start(make_data, fake_kebiolm, sentences)


def test_an_epoch_shows_every_text_once(fake_kebiolm: Folders) -> None:
    data = make_data(fake_kebiolm, batch_size=8)
    order = data.order(3)
    assert len(np.unique(order)) == order.size and set(order.ravel()) <= set(data.train_indices)
    assert order.size > len(data.train_indices) - 8
    assert data.corpus is not None
    spread = np.mean([np.ptp(data.corpus.lengths[b]) for b in order])
    assert spread < 0.5 * np.mean(
        [
            np.ptp(data.corpus.lengths[b])
            for b in np.random.default_rng(0).permutation(order.ravel()).reshape(order.shape)
        ]
    )


def test_validation_shows_every_held_out_text_once_in_equal_rounds(fake_kebiolm: Folders) -> None:
    whole = list(make_data(fake_kebiolm, eval_batch_size=3).val_dataloader())
    shared = [
        list(make_data(fake_kebiolm, 2, rank, eval_batch_size=3).val_dataloader())
        for rank in range(2)
    ]
    assert len(shared[0]) == len(shared[1])
    counted = [b for part in shared for b in part if b.counts[1] > 0]
    assert sentences(counted) == sentences(whole)
    total = sum(b.counts for part in shared for b in part)
    assert torch.equal(total, sum(b.counts for b in whole))


def test_masks_follow_the_setting(fake_kebiolm: Folders) -> None:
    """With whole-entity masking no mention is half masked; with whole words (the ablation) some
    are."""

    def halves(data: KeBioLMData) -> int:
        batch = data.batch(data.train_indices, 0)
        chosen = batch.mlm_labels != -100
        return sum(0 < int(chosen[r, a:b].sum()) < b - a for r, a, b in batch.mention.tolist())

    assert halves(make_data(fake_kebiolm)) == 0
    assert halves(make_data(fake_kebiolm, whole_entity_masking=False)) > 0
    batch = make_data(fake_kebiolm).batch(make_data(fake_kebiolm).train_indices, 0)
    special = (batch.original_ids == 2) | (batch.original_ids == 3) | (batch.attention_mask == 0)
    assert torch.equal(batch.input_ids[special], batch.original_ids[special])


def test_what_does_not_belong_together_is_refused(fake_kebiolm: Folders, tmp_path: Path) -> None:
    zebra = str(bert.write(tmp_path / "b", ["zebra"]))
    with pytest.raises(InputError, match="another tokenizer"):
        KeBioLMData(fake_kebiolm.corpus, zebra, fake_kebiolm.entities, batch_size=16).setup()
    table = EmbeddingTable.load(fake_kebiolm.entities)
    EmbeddingTable(table.entity, table.entity_ids, manifest={"graph": "f" * 64}).save(
        tmp_path / "e"
    )
    with pytest.raises(InputError, match="another graph"):
        KeBioLMData(
            fake_kebiolm.corpus, fake_kebiolm.bert, str(tmp_path / "e"), batch_size=16
        ).setup()
    other = KnowledgeGraph.load(fake_kebiolm.graph)
    ids = pa.concat_arrays([other.ids[:-1], pa.array(["X"])])
    empty = other.names.slice(0, 0), other.definitions, other.triples.slice(0, 0)
    KnowledgeGraph(other.entities.set_column(0, "id", ids), *empty).save(tmp_path / "g")
    with pytest.raises(
        InputError,
        match="embedding table .40 rows. does not match the graph .*entity 'X' has no row",
    ):
        make_data(fake_kebiolm, graph=str(tmp_path / "g"))
    corpus.build_corpus(
        fake_kebiolm.linked,
        fake_kebiolm.graph,
        fake_kebiolm.bert,
        str(tmp_path / "c"),
        128,
        held_out=0.0,
    )
    with pytest.raises(InputError, match="no text is held out"):
        KeBioLMData(
            str(tmp_path / "c"), fake_kebiolm.bert, fake_kebiolm.entities, batch_size=16
        ).setup()
    with pytest.raises(InputError, match="fewer than one batch of 512"):
        make_data(fake_kebiolm, batch_size=512)
    with pytest.raises(InputError, match="up to 128 tokens, but max_length is 64"):
        make_data(fake_kebiolm, max_length=64)
    with pytest.raises(InputError, match="batch_size 16 cannot be shared by 3 processes"):
        make_data(fake_kebiolm, world=3).train_dataloader()


def test_sequences_with_too_few_mentions_stay_out_of_training_only(fake_kebiolm: Folders) -> None:
    every, some = make_data(fake_kebiolm), make_data(fake_kebiolm, min_mentions=2)
    assert some.corpus is not None
    counts = some.corpus.mention_counts
    assert [len(some.corpus[i].mentions) for i in range(len(counts))] == counts.tolist()
    assert (
        set(some.train_indices)
        == {i for i in every.train_indices if counts[i] >= 2}
        < set(every.train_indices)
    )
    assert np.array_equal(some.held_out_indices, every.held_out_indices)


def test_export_carries_the_graphs_names(fake_kebiolm: Folders, tmp_path: Path) -> None:
    make_data(fake_kebiolm, graph=fake_kebiolm.graph).export(tmp_path)
    names = pq.read_table(tmp_path / "names.parquet")
    assert names.equals(KnowledgeGraph.load(fake_kebiolm.graph).names)
    assert (tmp_path / "entities.txt").read_text().split() == KnowledgeGraph.load(
        fake_kebiolm.graph
    ).ids.to_pylist()


def test_masks_are_drawn_anew_by_epoch_and_seed(fake_kebiolm: Folders) -> None:
    """The same sequences: equal in the same epoch of the same seed, otherwise masked elsewhere."""
    rows = make_data(fake_kebiolm).train_indices[:16]
    masks = [
        make_data(fake_kebiolm, seed=seed).batch(rows, epoch).mlm_labels != -100
        for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0), (0, -1))
    ]
    assert torch.equal(masks[0], masks[1])
    assert not any(torch.equal(masks[0], other) for other in masks[2:])


def test_random_tokens_are_never_special(fake_kebiolm: Folders) -> None:
    data = make_data(fake_kebiolm)
    everything, special = set(range(len(data.tokenizer))), set(data.tokenizer.all_special_ids)
    assert special and set(data.random_ids.tolist()) == everything - special
