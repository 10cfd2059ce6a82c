"""Rows of a batch, and batches of examples."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from transformers import AutoTokenizer

from datamodules.rows import attention, framed, numbered, padded
from datamodules.steps import make_batch
from tests.fakes.mlm import Folders


def test_rows_are_padded_behind() -> None:
    assert padded([[1, 2], np.array([3])], 9).tolist() == [[1, 2], [3, 9]]
    assert attention([[5, 5], [5]]).tolist() == [[1, 1], [1, 0]]


def test_tables_are_numbered_by_their_example() -> None:
    tables = [np.zeros((0, 2)), np.array([[1, 2], [3, 4]]), np.array([[5, 6]], np.int32)]
    found = numbered(tables, 2)
    assert found.tolist() == [[1, 1, 2], [1, 3, 4], [2, 5, 6]] and found.dtype == np.int64
    assert numbered(tables[:1], 2).shape == (0, 3)


def test_a_sequence_is_framed(fake_mlm: Folders) -> None:
    tokenizer = AutoTokenizer.from_pretrained(fake_mlm.vocabulary)
    assert framed(np.array([7], np.uint16), tokenizer).tolist() == [tokenizer.cls_token_id, 7, tokenizer.sep_token_id]


class Drawn(NamedTuple):
    index: int
    value: float
    held_out: bool
    counts: bool = True

    def blank(self) -> Drawn:
        return self._replace(counts=False)


def test_an_example_s_draws_depend_on_seed_epoch_and_example_alone() -> None:
    def example(index: int, rng: np.random.Generator, held_out: bool) -> Drawn:
        return Drawn(index, float(rng.random()), held_out)

    data = SimpleNamespace(seed=0, example=example, collate=list)
    whole = make_batch(data, np.array([3, 5, 8]), 0)
    assert whole == make_batch(data, np.array([3]), 0) + make_batch(data, np.array([5, 8]), 0)
    assert len({e.value for e in whole}) == 3 and not any(e.held_out for e in whole)
    other = SimpleNamespace(seed=1, example=example, collate=list)
    values = {made[0].value for made in (whole, make_batch(data, np.array([3]), 1), make_batch(other, np.array([3]), 0))}
    assert len(values) == 3
    (blank,) = make_batch(data, np.array([3]), -1, blank=True)
    assert blank.held_out and not blank.counts
