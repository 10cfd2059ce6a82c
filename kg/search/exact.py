"""Exact search: the rows of a matrix with the highest inner products."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BLOCK = 65_536  #: rows that are read, compared or written at a time


class Found(NamedTuple):
    """(q, k) scores, best first, and the rows that have them."""

    scores: np.ndarray
    rows: np.ndarray


def _order_best(scores: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of each line of (q, n) scores, whose rows (q, n) ascend where scores are equal."""
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return scores.gather(1, order), rows.gather(1, order)


def _block_top(scores: Tensor, k: int, first: int) -> tuple[Tensor, Tensor]:
    """The k best columns of (q, n), of equal ones the lowest; columns count from `first`.

    torch.topk returns any of the columns that share the k-th score: lines where more share it than
    fit are done again.
    """
    k = min(k, scores.shape[1])
    top = scores.topk(k, dim=1)
    last = top.values[:, -1:]
    columns = top.indices.sort(dim=1).values
    values, columns = _order_best(scores.gather(1, columns), columns, k)
    cut = ((scores == last).sum(1) > (values == last).sum(1)).nonzero().flatten()
    for line in cut.tolist():
        at = (scores[line] >= last[line]).nonzero().flatten()
        best, places = _order_best(scores[line, at][None], at[None], k)
        values[line], columns[line] = best[0], places[0]
    return values, columns + first


def top_rows(
    queries: Tensor, vectors: Tensor, k: int, block: int = BLOCK, lines: int = 256
) -> Found:
    """The k rows of `vectors` (n, d) with the highest inner product with each of `queries` (q, d),
    exactly.

    `block` rows and `lines` queries are compared at a time, on the queries' device; `vectors` may
    be elsewhere, in float16 too. Memory: block x lines scores, beside one block of vectors.
    """
    k = min(k, len(vectors))
    best: list[tuple[Tensor, Tensor]] = []
    parts = queries.float().split(lines)
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block].to(queries.device, torch.float32)
        for i, q in enumerate(parts):
            values, rows = _block_top(q @ part.T, k, start)
            if start:  # earlier blocks hold the lower rows, so a stable sort keeps ties in order
                values = torch.cat([best[i][0], values], 1)
                rows = torch.cat([best[i][1], rows], 1)
                best[i] = _order_best(values, rows, k)
            else:
                best.append((values, rows))
    if not best:
        return Found(np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int64))
    values, rows = map(torch.cat, zip(*best, strict=True))
    return Found(values.cpu().numpy(), rows.cpu().numpy())
