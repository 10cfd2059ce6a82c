"""Synthetic names as tokens, and a trie of them as dictionaries. Imports little: a fresh process
measures memory here."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

VOCABULARY, EOS = 50_265, 2  # BART's
FIRST = 100  # lower tokens are special ones


def synthetic(count: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens end to end, offsets of the names): 3 to 9 pieces each, 6 on average; some far more
    frequent, as in text."""
    random = np.random.default_rng(0)
    lengths = random.integers(3, 10, count)
    weight = 1 / np.arange(1, VOCABULARY - FIRST + 1) ** 0.9
    tokens = random.choice(VOCABULARY - FIRST, lengths.sum(), p=weight / weight.sum()) + FIRST
    return tokens.astype(np.uint16), np.concatenate([[0], lengths.cumsum()])


def nest_names(tokens: np.ndarray, offsets: np.ndarray) -> dict[int, Any]:
    """The names as dictionaries in dictionaries, each name closed by </s>."""
    trie: dict[int, Any] = {}
    for first, last in pairwise(offsets):
        node = trie
        for token in (*tokens[first:last].tolist(), EOS):
            node = node.setdefault(token, {})
    return trie
