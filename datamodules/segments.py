"""Sequences of two segments: where a text is cut in two, and where its tokens are then."""

from __future__ import annotations

import numpy as np
from transformers import PreTrainedTokenizerFast

from datamodules.tokenizers import tokens_by_id

SENTENCE_ENDS = ("。", "！", "？", "；", "!", "?", ";", ".")


def ends_of_sentences(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Ids of the tokens that end a sentence."""
    tokens = tokens_by_id(tokenizer)
    return np.array([i for i, token in enumerate(tokens) if token in SENTENCE_ENDS], np.int64)


def cut_place(word_start: np.ndarray, spans: np.ndarray, ends: np.ndarray) -> int:
    """Where a sequence of n tokens is cut in two, 1 to n - 1: before a word and outside of
    mentions; 0 where it cannot be.

    The place nearest to the middle among those behind a sentence's end in the middle half, or else
    of all.

    word_start (n,) bool; spans (m, 2) mentions; ends (n,) bool, which tokens end a sentence.
    """
    free = word_start.copy()
    for start, end in spans:
        free[start + 1 : end] = False
    places = np.flatnonzero(free)
    places = places[places > 0]
    if not len(places):
        return 0
    n = len(word_start)
    best = places[ends[places - 1] & (places >= n / 4) & (places <= n * 3 / 4)]
    chosen = best if len(best) else places
    return int(chosen[np.argmin(np.abs(chosen - n / 2))])


def place_segments(n: int, cut: int, swap: bool) -> np.ndarray:
    """(n,) position of every token behind [CLS], with a [SEP] between the segments; the second one
    first if `swap`."""
    token = np.arange(n)
    if not cut:
        return token + 1
    if swap:
        return np.where(token >= cut, token - cut + 1, token + n - cut + 2)
    return np.where(token < cut, token + 1, token + 2)
