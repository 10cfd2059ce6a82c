"""Rows of ids, one an example, as the arrays of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast


def frame_ids(ids: np.ndarray, tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """(n + 2,) `ids` between [CLS] and [SEP]."""
    return np.concatenate([[tokenizer.cls_token_id], ids, [tokenizer.sep_token_id]]).astype(
        np.int64
    )


def stack_rows(rows: Sequence[Sequence[int] | np.ndarray], value: int) -> np.ndarray:
    """(rows, longest) int64 with `value` behind shorter ones."""
    result = np.full((len(rows), max(map(len, rows))), value, np.int64)
    for row, ids in zip(result, rows, strict=True):
        row[: len(ids)] = ids
    return result


def attention(rows: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    """(rows, longest) 1 on the ids of each row, 0 behind."""
    return stack_rows([np.ones(len(row), np.int64) for row in rows], 0)


def pad_rows(rows: Sequence[Sequence[int] | np.ndarray], pad: int) -> tuple[Tensor, Tensor]:
    """(input_ids, attention_mask) of rows of ids, each (rows, longest)."""
    return torch.from_numpy(stack_rows(rows, pad)), torch.from_numpy(attention(rows))


def length_batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """The numbers of rows of these lengths, the longest first, in batches of at most `tokens`
    padded tokens, or of one row."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        size = max(1, tokens // lengths[order[start]])
        yield order[start : start + size]
        start += size


def number_rows(tables: Sequence[np.ndarray], width: int) -> np.ndarray:
    """(all, 1 + width) the rows of (m, width) tables of int64, the number of its example before
    each."""
    rows = [
        np.column_stack([np.full(len(table), number), table])
        for number, table in enumerate(tables)
        if len(table)
    ]
    return np.concatenate(rows).astype(np.int64) if rows else np.zeros((0, 1 + width), np.int64)


def longest(spans: Tensor) -> int:
    """Tokens of the longest of `spans` (M, 3), rows of row, first, last + 1; 1 without any."""
    return int((spans[:, 2] - spans[:, 1]).max()) if len(spans) else 1


def most(spans: Tensor) -> int:
    """The most `spans` (M, 3) that one row has, at least 1."""
    return max(1, int(torch.bincount(spans[:, 0]).max())) if len(spans) else 1


def group_rows(values: Tensor) -> tuple[Tensor, list[tuple[int, int]]]:
    """((P,) the order that puts equal `values` (P,) beside each other, [(value, how many)] in that
    order)."""
    order = values.argsort(stable=True)
    each, counts = values.unique(return_counts=True)
    return order, list(zip(each.tolist(), counts.tolist(), strict=True))
