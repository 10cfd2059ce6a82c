"""datamodules.masking: realised rates, whole units, nothing else touched."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.masking import IGNORE, mask_tokens, units

MASK, RANDOM = 4, np.arange(5, 900)


def sequence(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids = rng.integers(1000, 2000, n)
    spans, at = [], 0
    while at < n - 4:
        at += int(rng.integers(0, 4))
        end = min(n, at + int(rng.integers(1, 4)))
        spans.append((at, end))
        at = end
    return ids, rng.random(n) < 0.6, np.array(spans).reshape(-1, 2)


def test_units_by_hand() -> None:
    start = np.array([1, 0, 1, 1, 0, 1, 0], bool)
    assert units(start, np.zeros((0, 2), int)).tolist() == [0, 0, 1, 2, 2, 3, 3]
    assert units(start, np.array([[2, 4]])).tolist() == [
        0,
        0,
        1,
        1,
        2,
        3,
        3,
    ]  # the span cuts a word: its rest is a unit
    assert units(start, np.array([[0, 3], [3, 5]])).tolist() == [0, 0, 0, 1, 1, 2, 2]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 60), st.integers(0, 10_000))
def test_units_are_masked_whole_and_others_untouched(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids, start, spans = sequence(rng, n)
    unit = units(start, spans)
    out, labels = mask_tokens(ids, unit, rng, MASK, RANDOM, mask=0.3, random=0.2, keep=0.2)
    for u in np.unique(unit):
        of_unit = unit == u
        chosen = labels[of_unit] != IGNORE
        assert chosen.all() or not chosen.any()
        if not chosen.any():
            assert (out[of_unit] == ids[of_unit]).all()
            continue
        assert (labels[of_unit] == ids[of_unit]).all()
        kinds = {
            "mask" if o == MASK else "keep" if o == i else "random"
            for o, i in zip(out[of_unit], ids[of_unit], strict=True)
        }
        assert len(kinds) == 1  # no unit is half visible
    for begin, end in spans:
        assert len(set(unit[begin:end])) == 1


def test_realised_rates() -> None:
    """12 % [MASK], 1.5 % random, 1.5 % kept of all tokens, within sampling error, spans
    included."""
    rng = np.random.default_rng(0)
    kinds = np.zeros(3)
    total = inside = inside_mask = 0
    for _ in range(3000):
        ids, start, spans = sequence(rng, 80)
        out, labels = mask_tokens(ids, units(start, spans), rng, MASK, RANDOM)
        chosen = labels != IGNORE
        kinds += [
            (out == MASK).sum(),
            (chosen & (out != MASK) & (out != ids)).sum(),
            (chosen & (out == ids)).sum(),
        ]
        total += len(ids)
        span = np.zeros(len(ids), bool)
        for b, e in spans:
            span[b:e] = True
        inside, inside_mask = inside + span.sum(), inside_mask + (span & chosen).sum()
    assert np.abs(kinds / total - [0.12, 0.015, 0.015]).max() < 0.003
    assert abs(inside_mask / inside - 0.15) < 0.005


def test_pure() -> None:
    ids, start, spans = sequence(np.random.default_rng(1), 50)
    before = ids.copy()
    first = mask_tokens(ids, units(start, spans), np.random.default_rng(7), MASK, RANDOM)
    second = mask_tokens(ids, units(start, spans), np.random.default_rng(7), MASK, RANDOM)
    assert (ids == before).all() and all((a == b).all() for a, b in zip(first, second, strict=True))
