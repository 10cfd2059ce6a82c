"""ERNIE's batches: which entities mentions have, which are asked for and among which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core.files import InputError
from datamodules.ernie import ERNIEBatch, ERNIEData, linker
from datamodules.smedbert import SMedBERTData
from tests.datamodules.test_smedbert.test_linker import ids, tokens
from tests.fakes.chinese import LENGTH
from tests.fakes.smedbert import Folders


def data(fake: Folders, **given: Any) -> ERNIEData:
    made = ERNIEData(
        corpus=fake.corpus,
        tokenizer=fake.bert,
        graph=fake.graph,
        entities=fake.entities,
        **{"batch_size": 16, "max_length": LENGTH + 1, "n_negatives": 7, **given},
    )
    made.setup()
    return made


def spans(part: torch.Tensor) -> list[tuple[int, ...]]:
    return list(map(tuple, part.tolist()))


def test_its_text_masks_and_mentions_are_those_of_smedbert(fake_smedbert: Folders) -> None:
    made = data(fake_smedbert)
    other = SMedBERTData(
        corpus=made.folder,
        tokenizer=made.tokenizer_name,
        graph=made.graph,
        entities=made.entities,
        neighbours=fake_smedbert.neighbours,
        k=5,
        batch_size=16,
        max_length=LENGTH + 1,
    )
    other.setup()
    for epoch in range(3):
        indices = made.order(epoch)[0]
        assert np.array_equal(indices, other.order(epoch)[0])
        ours, theirs = made.batch(indices, epoch), other.batch(indices, epoch)
        for name in (
            "input_ids",
            "original_ids",
            "attention_mask",
            "second",
            "mlm_labels",
            "order",
        ):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
        assert set(spans(theirs.masked.span)) | set(spans(theirs.unmasked.span)) <= set(
            spans(ours.targets)
        )


def test_every_mention_is_asked_for_and_some_are_hidden_or_exchanged(
    fake_smedbert: Folders,
) -> None:
    """Section 3.4: 5 % and 15 %, and all of them are to be predicted."""
    made = data(fake_smedbert, exchanged=0.2, hidden=0.3)
    asked = given = exchanged = 0
    for epoch in range(40):
        for indices in made.order(epoch)[:4]:
            batch = made.batch(indices, epoch)
            own = {
                span: int(entity)
                for span, entity in zip(spans(batch.targets), batch.candidates[:, 0], strict=True)
            }
            read = dict(
                zip(spans(batch.mentions.span), batch.mentions.entity.tolist(), strict=True)
            )
            assert set(read) <= set(own) and int(batch.counts[2]) == len(own) == len(batch.targets)
            asked, given = asked + len(own), given + len(read)
            exchanged += sum(own[span] != entity for span, entity in read.items())
    assert given / asked == pytest.approx(0.7, abs=0.02)
    assert exchanged / asked == pytest.approx(0.2, abs=0.02)  # a drawn one is seldom the same
    none = data(fake_smedbert, exchanged=0.0, hidden=0.0)
    batch = none.batch(none.order(0)[0], 0)
    assert torch.equal(batch.mentions.span, batch.targets) and torch.equal(
        batch.mentions.entity, batch.candidates[:, 0]
    )


def test_candidates_are_the_sequences_others_and_drawn_ones(fake_smedbert: Folders) -> None:
    made = data(fake_smedbert)
    batch: ERNIEBatch = made.batch(made.order(0)[0], 0)
    for row in range(len(batch.input_ids)):
        inside = batch.targets[:, 0] == row
        own = set(batch.candidates[inside, 0].tolist())
        for gold, *others in batch.candidates[inside].tolist():
            there = [other for other in others if other >= 0]
            assert len(set(there)) == len(there) and gold not in there
            assert own - {gold} <= set(there)  # Eq. (7)
    drawn = np.concatenate([made.by_frequency(1000, np.random.default_rng(i)) for i in range(20)])
    share = np.bincount(drawn, minlength=len(made.frequency)) / len(drawn)
    assert np.abs(share - made.frequency / made.frequency.sum()).max() < 0.01


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_sequence_has_the_same_draws_whatever_its_batch_mates(
    fake_smedbert: Folders, epoch: int
) -> None:
    made = data(fake_smedbert)
    indices = made.order(0)[0]
    whole = made.batch(indices, epoch)
    parts = [made.batch(indices[rows], epoch) for rows in (slice(5), slice(5, None))]
    assert torch.equal(torch.cat([p.mentions.entity for p in parts]), whole.mentions.entity)
    split = [[o for o in row if o >= 0] for p in parts for row in p.candidates.tolist()]
    assert split == [[o for o in row if o >= 0] for row in whole.candidates.tolist()]


def test_a_blank_batch_counts_nothing(fake_smedbert: Folders) -> None:
    made = data(fake_smedbert)
    batch = made.batch(made.order(0)[0], -1, blank=True)
    assert (
        batch.counts.tolist() == [0, 0, 0]
        and not len(batch.targets)
        and (batch.order == -100).all()
    )


def test_shares_that_cannot_be_are_refused(fake_smedbert: Folders) -> None:
    with pytest.raises(InputError, match=r"exchanged 0\.6, hidden 0\.6: expected shares"):
        data(fake_smedbert, exchanged=0.6, hidden=0.6)


def test_fine_tuning_links_with_the_exported_names(fake_smedbert: Folders, tmp_path: Path) -> None:
    data(fake_smedbert).export(tmp_path)
    texts = ["患者肺炎，服用阿平片。", "休息"]
    found = linker(tmp_path)(texts, tokens(fake_smedbert, texts))
    index = ids(fake_smedbert)
    assert found.span.tolist() == [[0, 3, 5], [0, 8, 11]] and found.entity.tolist() == [
        index["肺炎"],
        index["阿平片"],
    ]
    assert len(linker(tmp_path, hits=0.0)(texts, tokens(fake_smedbert, texts)).span) == 0
    (tmp_path / "degree.npy").unlink()
    with pytest.raises(InputError, match=r"degree\.npy: missing"):
        linker(tmp_path)
