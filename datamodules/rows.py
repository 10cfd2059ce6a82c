"""Rows of ids, one an example, as the arrays of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerFast


def framed(ids: np.ndarray, tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """(n + 2,) `ids` between [CLS] and [SEP]."""
    return np.concatenate([[tokenizer.cls_token_id], ids, [tokenizer.sep_token_id]]).astype(np.int64)


def padded(rows: Sequence[Sequence[int] | np.ndarray], value: int) -> np.ndarray:
    """(rows, longest) int64 with `value` behind shorter ones."""
    result = np.full((len(rows), max(map(len, rows))), value, np.int64)
    for row, ids in zip(result, rows, strict=True):
        row[: len(ids)] = ids
    return result


def attention(rows: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    """(rows, longest) 1 on the ids of each row, 0 behind."""
    return padded([np.ones(len(row), np.int64) for row in rows], 0)


def numbered(tables: Sequence[np.ndarray], width: int) -> np.ndarray:
    """(all, 1 + width) the rows of (m, width) tables of int64, the number of its example before each."""
    rows = [np.column_stack([np.full(len(table), number), table]) for number, table in enumerate(tables) if len(table)]
    return np.concatenate(rows).astype(np.int64) if rows else np.zeros((0, 1 + width), np.int64)
