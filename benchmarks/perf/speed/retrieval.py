"""Nearest names: batched top-k over blocks against one mention at a time with a whole sort, the
same vectors, one thread.

The reference is what evaluation scripts of the field do: for each mention the product with every
name's vector, all scores sorted, the first k kept. `equal` says that both find the same names in
the same order, scores to 1e-5.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from benchmarks.perf.speed import one_thread, summarize
from kg.search.exact import Found
from kg.search.index import Index

SCORES = 1e-5


def one_at_a_time(queries: np.ndarray, vectors: np.ndarray, k: int) -> Found:
    scores, rows = [], []
    for query in queries:
        products = vectors @ query
        order = np.argsort(-products)[:k]
        scores.append(products[order])
        rows.append(order)
    return Found(np.stack(scores), np.stack(rows))


def same(ours: Found, two: Found) -> bool:
    """Equal scores at each place, and equal names, but for neighbours whose scores are equal to the
    last digits."""
    if not np.allclose(ours.scores, two.scores, atol=SCORES):
        return False
    differ = ours.rows != two.rows
    for line, place in zip(*np.nonzero(differ), strict=True):
        where = np.flatnonzero(two.rows[line] == ours.rows[line, place])
        last = abs(ours.scores[line, place] - ours.scores[line, -1]) <= SCORES
        if (
            not (
                len(where) and abs(two.scores[line, where[0]] - ours.scores[line, place]) <= SCORES
            )
            and not last
        ):
            return False
    return True


def measure_setting(
    name: str, count: int, mentions: int, size: int, k: int, half: bool, repeats: int
) -> dict[str, Any]:
    random = torch.Generator().manual_seed(0)
    vectors = normalize(torch.randn(count, size, generator=random), dim=1)
    queries = normalize(
        vectors[:mentions] + 0.5 * torch.randn(mentions, size, generator=random) / size**0.5, dim=1
    )
    stored = vectors.half() if half else vectors
    index, plain, query_rows = Index(stored), stored.float().numpy(), queries.numpy()
    fast, slow, equal = [], [], True
    for _ in range(repeats):
        started = time.perf_counter()
        ours = index.search(queries, k)
        fast.append(time.perf_counter() - started)
        started = time.perf_counter()
        reference = one_at_a_time(query_rows, plain, k)
        slow.append(time.perf_counter() - started)
        equal = equal and same(ours, reference)
    return {
        "setting": name,
        "ours": round(mentions / min(fast), 1),
        "reference": round(mentions / min(slow), 1),
        "ratio": round(min(slow) / min(fast), 2),
        "names": count,
        "equal": equal,
    }


def measure_speed(
    names: int = 73_024, mentions: int = 512, size: int = 384, repeats: int = 2
) -> dict[str, Any]:
    """Compare both at k = 20, stored as float32 and as float16. Returns the keys that
    benchmarks.perf.speed asks for.

    Args:
        names: Names of the dictionary; BioSyn's for NCBI has 73,024.
        mentions: Mentions to link.
        size: Numbers of a vector; MiniLM has 384.
        repeats: Alternating runs of which the fastest counts.
    """
    with one_thread():
        settings = [
            measure_setting(title, names, mentions, size, 20, half, repeats)
            for title, half in (("float32", False), ("float16", True))
        ]
    return summarize("retrieval", settings, "mentions/s")
