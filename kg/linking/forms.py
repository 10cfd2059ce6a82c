"""Sequences of words in a prefix tree, looked up for many places of a text at once.

A tree's nodes are the slots of a hash table: eight slots make a bucket, and a node is in the bucket
that its key's hash names or, where that is full, in one of the next. Three arrays are all of it:

    keys    (buckets, 8) uint64   (number of the node above + 1) << 32 | word; 0 where the slot is
                                  free. The root is no node
    values  (buckets * 8,) int32  the value of a sequence that ends at the node; NONE where none
    ends
    roots   (words,) int32        the node of a sequence's first word, -1 where none begins with it

Numbers of words begin at 1: 0 is a word that no sequence has. A name of the UMLS has some 2.4 nodes
    of 16 bytes.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

WIDTH = 8  # slots of a bucket: a cache line of keys
FILLED = 0.7  # share of the slots that are taken
NONE = np.iinfo(np.int32).min
# 2**64 / the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4)
SPREAD = 0x9E3779B97F4A7C15
_HALF, _MASK = np.uint64(32), 2**64 - 1
FEW = 600  # words


class Longest(NamedTuple):
    """The longest sequence that begins at each place where one does: its place, its last word's
    place, its value."""

    first: np.ndarray
    last: np.ndarray
    value: np.ndarray


class Forms:
    """A prefix tree; the arrays are explained above."""

    def __init__(self, keys: np.ndarray, values: np.ndarray, roots: np.ndarray) -> None:
        self.keys, self.values, self.roots = keys, values, roots

    @cached_property
    def _scalar(self) -> tuple[memoryview, memoryview, memoryview]:
        """The arrays as what single items are read of ten times as fast."""
        return self.keys.reshape(-1).data, self.values.data, self.roots.data

    @classmethod
    def build(cls, words: np.ndarray, lengths: np.ndarray) -> tuple[Forms, np.ndarray]:
        """The tree of sequences, end to end in `words` (int32, from 1), and the slot where each
        ends (-1: it has no word)."""
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[:-1]
        rows = np.flatnonzero(lengths)
        # of each row; nodes are numbered from 1 by level, until they have slots
        node = np.zeros(len(rows), np.uint64)
        levels: list[np.ndarray] = []
        ends = np.full(len(lengths), -1, np.int64)
        count = 0
        while len(rows):
            keys = node << _HALF | words[starts[rows] + len(levels)].astype(np.uint64)
            level, inverse = np.unique(keys, return_inverse=True)
            levels.append(level)
            node = (inverse + count + 1).astype(np.uint64)
            count += len(level)
            done = lengths[rows] == len(levels)
            ends[rows[done]] = node[done] - 1
            rows, node = rows[~done], node[~done]
        roots = np.full(int(words.max(initial=0)) + 1, -1, np.int32)
        forms = cls(
            np.zeros((int(count / WIDTH / FILLED) + 1, WIDTH), np.uint64),
            np.zeros(0, np.int32),
            roots,
        )
        slots = np.zeros(count + 1, np.uint64)  # of each node, counted from 1
        taken, used = 1, np.zeros(len(forms.keys), np.uint8)
        for level in levels:
            above, word = slots[(level >> _HALF).astype(np.int64)], level & np.uint64(0xFFFFFFFF)
            slots[taken : taken + len(level)] = forms._put(above << _HALF | word, used) + 1
            taken += len(level)
        if levels:
            roots[levels[0].astype(np.int64)] = slots[1 : len(levels[0]) + 1].astype(np.int64) - 1
        forms.values = np.full(forms.keys.size, NONE, np.int32)
        return forms, np.where(ends >= 0, slots[ends + 1].astype(np.int64) - 1, -1)

    def _bucket(self, keys: np.ndarray) -> np.ndarray:
        return ((keys * np.uint64(SPREAD) >> _HALF) * np.uint64(len(self.keys)) >> _HALF).astype(
            np.int64
        )

    def _put(self, keys: np.ndarray, used: np.ndarray) -> np.ndarray:
        """Slots for new `keys`, all different. used: (buckets,) how many slots are taken, brought
        up to date."""
        slots = np.empty(len(keys), np.int64)
        waiting = np.arange(len(keys))
        bucket = self._bucket(keys)
        while len(waiting):
            order = np.argsort(bucket, kind="stable")
            waiting, bucket = waiting[order], bucket[order]
            first = np.flatnonzero(np.diff(bucket, prepend=-1))
            # among those of one bucket
            turn = np.arange(len(bucket)) - np.repeat(first, np.diff(first, append=len(bucket)))
            place = used[bucket] + turn
            fits = place < WIDTH
            slots[waiting[fits]] = bucket[fits] * WIDTH + place[fits]
            used += np.bincount(bucket[fits], minlength=len(used)).astype(np.uint8)
            waiting, bucket = waiting[~fits], (bucket[~fits] + 1) % len(self.keys)
        self.keys.reshape(-1)[slots] = keys
        return slots

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        """The slot of each key, -1 for one that is not there."""
        flat, bucket = self.keys.reshape(-1), self._bucket(keys)
        slots = bucket * WIDTH + (self.keys[bucket] == keys[:, None]).argmax(1)
        missed = np.flatnonzero(flat[slots] != keys)
        slots[missed] = -1
        # full: the key may be in the next one
        while len(missed := missed[flat[bucket[missed] * WIDTH + WIDTH - 1] != 0]):
            bucket[missed] = (bucket[missed] + 1) % len(self.keys)
            slot = bucket[missed] * WIDTH + (
                self.keys[bucket[missed]] == keys[missed, None]
            ).argmax(1)
            is_key = flat[slot] == keys[missed]
            slots[missed[is_key]] = slot[is_key]
            missed = missed[~is_key]
        return slots

    def longest(self, words: np.ndarray) -> Longest:
        """The longest sequence at each place of `words` (int32), none of which goes over a 0."""
        return self._one_by_one(words.tolist()) if len(words) < FEW else self._at_once(words)

    def _at_once(self, words: np.ndarray) -> Longest:
        last, value = np.zeros(len(words), np.int64), np.full(len(words), NONE, np.int32)
        slots = self.roots[np.where(words < len(self.roots), words, 0)].astype(np.int64)
        place = first = np.arange(len(words))
        words = np.append(words, 0).astype(np.uint64)
        while len(place):
            is_slot = slots >= 0
            first, place, slots = first[is_slot], place[is_slot], slots[is_slot]
            state_values = self.values[slots]
            ends = state_values != NONE
            last[first[ends]], value[first[ends]] = place[ends], state_values[ends]
            continues = words[place + 1] != 0
            first = first[continues]
            place = place[continues] + 1
            above = (slots[continues] + 1).astype(np.uint64)
            slots = self._slots(above << _HALF | words[place])
        final = np.flatnonzero(value != NONE)
        return Longest(final, last[final], value[final])

    def find(self, words: list[int]) -> int:
        """The value of a sequence of words; NONE where it is none."""
        if not words or not all(words):
            return NONE
        keys, values, roots = self._scalar
        slot = roots[words[0]] if words[0] < len(roots) else -1
        for word in words[1:]:
            if slot < 0:
                return NONE
            slot = self._child(keys, slot, word)
        return values[slot] if slot >= 0 else NONE

    def _child(self, keys: memoryview, slot: int, word: int) -> int:
        """The slot of the node below another one; -1 where there is none."""
        key, size = (slot + 1) << 32 | word, len(keys)
        slot = (((key * SPREAD & _MASK) >> 32) * len(self.keys) >> 32) * WIDTH
        while (slot_key := keys[slot]) != key:
            if not slot_key:
                return -1
            slot = slot + 1 if slot + 1 < size else 0
        return slot

    def every(self, words: np.ndarray) -> list[tuple[int, int]]:
        """(last word, value) of each sequence that begins with the first of `words`, the shortest
        first."""
        forms = []
        for count in range(1, len(words) + 1):
            longest = self._one_by_one(words[:count].tolist())
            if len(longest.first) and longest.first[0] == 0 and longest.last[0] == count - 1:
                forms.append((count - 1, int(longest.value[0])))
        return forms

    def _one_by_one(self, words: list[int]) -> Longest:
        """The same for few words, of which NumPy's calls would take ten times as long."""
        keys, values, roots = self._scalar
        places = []
        for first, word in enumerate(words):
            slot = roots[word] if word < len(roots) else -1
            if slot < 0:
                continue
            place, best = first, None
            while True:
                if values[slot] != NONE:
                    best = first, place, values[slot]
                place += 1
                if place == len(words) or not words[place]:
                    break
                slot = self._child(keys, slot, words[place])
                if slot < 0:
                    break
            if best:
                places.append(best)
        return Longest(*np.array(places, np.int64).reshape(-1, 3).T)
