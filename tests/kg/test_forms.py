"""The prefix tree of word sequences against a dict of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.linking import forms
from kg.linking.forms import NONE, WIDTH, Forms

SEQUENCES = st.lists(st.lists(st.integers(1, 4), max_size=4), max_size=40)
WORDS = st.lists(st.integers(0, 5), max_size=30)


def built(sequences: list[list[int]]) -> Forms:
    """The tree of `sequences`, each of which has the place of its first equal."""
    words = np.array([word for own in sequences for word in own], np.int32)
    made, ends = Forms.build(words, np.array([len(own) for own in sequences], np.int64))
    assert [end >= 0 for end in ends] == [bool(own) for own in sequences]
    for end, own in zip(ends, sequences, strict=True):
        if own:
            # equal sequences end in one place, others in others
            assert made.values[end] in (NONE, sequences.index(own))
            made.values[end] = sequences.index(own)
    return made


@settings(max_examples=200)
@given(SEQUENCES, WORDS)
def test_the_longest_at_every_place_is_found(sequences: list[list[int]], words: list[int]) -> None:
    made = built([*sequences, [9]])
    known = {tuple(own): place for place, own in reversed(list(enumerate(sequences))) if own}
    expected = []
    for first in range(len(words)):
        for end in range(len(words), first, -1):
            if tuple(words[first:end]) in known:
                expected.append((first, end - 1, known[tuple(words[first:end])]))
                break
    given = np.array(words, np.int32)
    for found in (made._at_once(given), made._one_by_one(words), made.longest(given)):
        assert list(zip(*(part.tolist() for part in found), strict=True)) == expected


def test_full_buckets_lead_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where hardly a slot is free, most keys are in another bucket than their own."""
    monkeypatch.setattr(forms, "FILLED", 0.99)
    numbers = (np.random.default_rng(0).choice(10**6, 399, replace=False) + 2).tolist()
    made = built([[1, number] for number in numbers])
    own = made._bucket(made.keys.reshape(-1)) == np.arange(made.keys.size) // WIDTH
    taken = made.keys.reshape(-1) != 0
    assert taken.sum() == 400 and (taken & ~own).sum() > 20
    words = [word for number in [*numbers, 10**6 + 2] for word in (1, number)]
    for found in (made._at_once(np.array(words, np.int32)), made._one_by_one(words)):
        assert found.first.tolist() == list(range(0, 798, 2)) and found.last.tolist() == list(
            range(1, 798, 2)
        )
        assert found.value.tolist() == list(range(399))


def test_a_name_needs_little_memory() -> None:
    random = np.random.default_rng(0)
    lengths = random.integers(1, 6, 50_000)
    made, ends = Forms.build(random.integers(1, 20_000, lengths.sum()).astype(np.int32), lengths)
    assert (
        made.keys.nbytes + made.values.nbytes + made.roots.nbytes < 1.5 * 12 * lengths.sum()
        and (ends >= 0).all()
    )
