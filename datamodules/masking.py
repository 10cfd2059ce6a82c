"""Masking as pure functions: token ids, units and a random generator in; corrupted ids and labels
out."""

from __future__ import annotations

import numpy as np

IGNORE = -100  # the label that a loss skips


def units(word_start: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Unit number of every token, shape (n,): tokens of one word share a unit, and so do all tokens
    of one span.

    word_start (n,) bool, True where a word begins; spans (m, 2) disjoint [start, end) token spans,
    (0, 2) for whole-word units only. The parts of a word that a span cuts stay units of their own.
    """
    start = word_start.copy()
    if len(start):
        start[0] = True
    for begin, end in spans:
        start[begin] = True
        start[begin + 1 : end] = False
        if end < len(start):
            start[end] = True
    return np.cumsum(start) - 1


def mask_tokens(
    ids: np.ndarray,
    unit: np.ndarray,
    rng: np.random.Generator,
    mask_id: int,
    random_ids: np.ndarray,
    mask: float = 0.12,
    random: float = 0.015,
    keep: float = 0.015,
) -> tuple[np.ndarray, np.ndarray]:
    """(corrupted ids, labels), both (n,) int64; labels are the original id where the token is to be
    predicted.

    Every unit is drawn independently: with probability `mask` all its tokens become `mask_id`, with
    `random` each becomes a draw from `random_ids`, with `keep` all stay; in each case they are
    predicted. The three are shares of tokens in expectation. (KeBioLM, Section 3.2: 12 % and 1.5 %;
    one draw a unit, so that no entity is half visible.)
    """
    corrupted = ids.astype(np.int64)
    labels = np.full(len(ids), IGNORE, np.int64)
    if not len(ids):
        return corrupted, labels
    draw = rng.random(int(unit[-1]) + 1)[unit]
    chosen = draw < mask + random + keep
    labels[chosen] = corrupted[chosen]
    corrupted[draw < mask] = mask_id
    swap = (draw >= mask) & (draw < mask + random)
    corrupted[swap] = rng.choice(random_ids, int(swap.sum()))
    return corrupted, labels
