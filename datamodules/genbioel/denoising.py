"""BART's noise, the baseline's objective: text infilling and sentence permutation.

Lewis et al., ACL 2020, Section 2.2 and 3. https://arxiv.org/abs/1910.13461
"""

from __future__ import annotations

import numpy as np


def permute_sentences(ids: np.ndarray, ends: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """`ids` (n,) with its sentences in random order. A sentence ends with a token that `ends`
    (vocabulary,) marks."""
    last = np.flatnonzero(ends[ids])
    sentences = [part for part in np.split(ids, last + 1) if len(part)]
    return (
        np.concatenate([sentences[i] for i in rng.permutation(len(sentences))])
        if sentences
        else ids
    )


def infill_spans(
    ids: np.ndarray, rng: np.random.Generator, mask: int, share: float = 0.3, span: float = 3.0
) -> np.ndarray:
    """`ids` (n,) with `share` of its tokens gone, in spans of Poisson(`span`) lengths, each
    replaced by one mask token.

    A span of length 0 inserts a mask token. Spans are apart from each other by a token at least;
    the share is exact up to a token, which is drawn.
    """
    n = len(ids)
    hidden = min(n, int(share * n + rng.random()))
    spans: list[int] = []
    while hidden > sum(spans):
        length = int(rng.poisson(span))
        spans.append(min(length, hidden - sum(spans)))
    visible = n - hidden
    # more spans than places: insertions go first, then neighbours become one
    while len(spans) > visible + 1:
        if 0 in spans:
            spans.remove(0)
        else:
            spans.append(spans.pop() + spans.pop())
    # kept tokens before each span
    before = np.sort(rng.choice(visible + 1, len(spans), replace=False))
    result, place, left = [], 0, 0
    for length, at in zip(spans, before, strict=True):
        result += [ids[place : place + at - left], np.array([mask], ids.dtype)]
        place, left = place + at - left + length, at
    return np.concatenate([*result, ids[place:]])
