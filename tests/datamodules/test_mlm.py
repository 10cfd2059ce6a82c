"""Masked-LM batches: independent of how the work is shared, and refused when things do not belong
together."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from core.files import InputError
from datamodules.mlm import MLMBatch, MLMData
from tests.fakes import bert
from tests.fakes.mlm import Folders
from tests.sharing import check_later_start, check_shared_steps


def make_data(
    fake: Folders,
    world: int = 1,
    rank: int = 0,
    accumulate: int = 1,
    step: int = 0,
    **settings: object,
) -> MLMData:
    data = MLMData(
        fake.corpus, fake.vocabulary, **{"batch_size": 16, "max_length": 128, **settings}
    )  # type: ignore[arg-type]
    data.trainer = SimpleNamespace(
        global_rank=rank, world_size=world, accumulate_grad_batches=accumulate, global_step=step
    )  # type: ignore[assignment]
    data.setup()
    return data


def sentences(batches: list[MLMBatch]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return sorted(
        (tuple(ids[mask.bool()].tolist()), tuple(labels[mask.bool()].tolist()))
        for b in batches
        for ids, mask, labels in zip(b.input_ids, b.attention_mask, b.labels, strict=True)
    )


@pytest.mark.parametrize(("world", "accumulate"), [(2, 1), (1, 4), (2, 2)])
def test_steps_hold_the_same_however_they_are_shared(
    fake_mlm: Folders, world: int, accumulate: int
) -> None:
    check_shared_steps(make_data, fake_mlm, sentences, world, accumulate)


def test_a_later_start_returns_the_rest(fake_mlm: Folders) -> None:
    check_later_start(make_data, fake_mlm, sentences)


def test_masks(fake_mlm: Folders) -> None:
    """15 % of the tokens, 80/10/10; special tokens never; Latin words whole; random tokens are no
    unused ones."""
    data = make_data(fake_mlm)
    every = [data.batch(data.train_indices, epoch) for epoch in range(30)]
    chosen = torch.cat([(b.labels != -100)[b.attention_mask.bool()] for b in every]).float().mean()
    assert 0.12 < chosen / (1 - 2 / (every[0].attention_mask.sum(1).float().mean())) < 0.18
    hidden = torch.cat([b.input_ids[b.labels != -100] == 4 for b in every]).float().mean()
    assert hidden == pytest.approx(0.8, abs=0.03)
    for batch in every:
        last = batch.attention_mask.sum(1) - 1
        assert (batch.labels[:, 0] == -100).all() and (
            batch.labels[torch.arange(len(last)), last] == -100
        ).all()
        assert batch.counts[0] == (batch.labels != -100).sum()
    assert data.random_ids.min() > 104


def test_validation_shows_every_held_out_text_once(fake_mlm: Folders) -> None:
    whole = list(make_data(fake_mlm, eval_batch_size=3).val_dataloader())
    shared = [
        list(make_data(fake_mlm, 2, rank, eval_batch_size=3).val_dataloader()) for rank in range(2)
    ]
    assert len(shared[0]) == len(shared[1])
    assert sum(b.counts for part in shared for b in part) == sum(b.counts for b in whole)
    assert sum(len(b.input_ids) for b in whole) == len(make_data(fake_mlm).held_out_indices)


def test_what_does_not_belong_together_is_refused(fake_mlm: Folders, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another tokenizer"):
        MLMData(fake_mlm.corpus, str(bert.write(tmp_path / "b", ["zebra"])), batch_size=16).setup()
    with pytest.raises(InputError, match="fewer than one batch of 5000"):
        make_data(fake_mlm, batch_size=5000)
    with pytest.raises(InputError, match="up to 128 tokens, but max_length is 64"):
        make_data(fake_mlm, max_length=64)
    with pytest.raises(InputError, match="batch_size 16 cannot be shared by 3 processes"):
        make_data(fake_mlm, world=3).train_dataloader()
