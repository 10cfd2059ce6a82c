"""Text as an array of symbols, and every frequent n-gram of it with its neighbours.

A symbol is one ideograph, or one whole run of other letters and digits; everything else, blanks
too, is a boundary that no n-gram crosses. Letters are compared in lower case and in NFKC where that
leaves one character (full-width forms).

An n-gram can only be frequent if the two (n-1)-grams in it are: each length looks only at places
where both are, and names an n-gram by their two numbers. Time is that of sorting the places of each
length; memory some 60 bytes a symbol.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np

from kg.linking.normal import normal_characters
from kg.linking.tokens import IDEOGRAPHS, fold_case

BOUNDARY = 0
RUNS = 0x110000  # symbols from here on are runs of letters and digits, by number
BLOCK = 1 << 20  # characters at a time
_IDEOGRAPH, _LETTER = 1, 2


class Symbols(NamedTuple):
    """codes: (n,) int32, begins and ends with a boundary; `runs` are the strings of the codes from
    RUNS on.

    documents, characters: of the text.  left_out: documents left out because the text is longer
        than was asked for.
    """

    codes: np.ndarray
    runs: list[str]
    documents: int
    characters: int
    left_out: int

    def text(self, start: int, length: int) -> str:
        """The symbols codes[start:start + length] written one after another."""
        return "".join(
            chr(c) if c < RUNS else self.runs[c - RUNS]
            for c in self.codes[start : start + length].tolist()
        )


@cache
def _alphabet() -> tuple[np.ndarray, np.ndarray]:
    """(form, kind) of every code point."""
    form, kind = np.arange(RUNS, dtype=np.uint32), np.zeros(RUNS, np.uint8)
    for code in range(0x20000):
        if 0xD800 <= code < 0xE000:
            continue
        symbol = fold_text(chr(code))
        form[code] = ord(symbol)
        kind[code] = _LETTER if symbol.isalnum() else 0
    for low, high in zip(IDEOGRAPHS[::3], IDEOGRAPHS[2::3], strict=True):  # "a-bc-d": ranges
        kind[ord(low) : ord(high) + 1] = _IDEOGRAPH
    return form, kind


def even_text(text: str) -> str:
    """`text` in normal form (kg.linking.normal), character by character where that leaves one; as
    long as `text`."""
    if text.isascii():
        return text
    forms = map(normal_characters, text)
    return "".join(form if len(form) == 1 else c for form, c in zip(forms, text, strict=True))


def fold_text(text: str) -> str:
    """`text` as it is compared: evened and in lower case; as long as `text`."""
    return fold_case(even_text(text))


def _block(text: str, numbers: dict[str, int]) -> np.ndarray:
    """Codes of one stretch of text, boundaries in a row as one."""
    form, kind = _alphabet()
    raw = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    codes, kinds = form[raw], kind[raw]
    before = np.concatenate([[0], kinds[:-1]])
    starts = np.flatnonzero((kinds == _LETTER) & (before != _LETTER))
    ends = np.flatnonzero((kinds == _LETTER) & (np.concatenate([kinds[1:], [0]]) != _LETTER)) + 1
    block = codes.astype(np.int32)
    block[kinds == 0] = BOUNDARY
    lower = codes.tobytes().decode("utf-32-le", "surrogatepass")
    block[starts] = [
        RUNS + numbers.setdefault(lower[a:b], len(numbers))
        for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    mask = kinds != before  # the first of a run, or of boundaries
    mask |= kinds == _IDEOGRAPH
    return block[mask]


def _share(document: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(document.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )


def symbols(texts: Iterable[str], most: int) -> Symbols:
    """The symbols of `texts`, of at most `most` characters.

    More text is thinned: a document stays if a hash of it is below a bound, which is halved
        whenever too much is there.
    The bound depends on all texts, so what stays does not depend on their order.
    """
    pairs: list[tuple[int, str]] = []
    bound, documents, size = 1 << 64, 0, 0
    for text in texts:
        documents += 1
        if (share := _share(text)) < bound:
            pairs.append((share, text))
            size += len(text)
        while size > most:
            bound //= 2
            pairs = [pair for pair in pairs if pair[0] < bound]
            size = sum(len(text) for _, text in pairs)

    numbers: dict[str, int] = {}
    blocks, waiting, length = [np.zeros(1, np.int32)], [], 0
    for _, text in pairs:
        waiting.append(text)
        length += len(text)
        if length >= BLOCK:
            blocks += [_block("\n".join(waiting), numbers), blocks[0]]
            waiting, length = [], 0
    blocks += [_block("\n".join(waiting), numbers), blocks[0]]
    return Symbols(np.concatenate(blocks), list(numbers), documents, size, documents - len(pairs))


class Grams(NamedTuple):
    """The frequent n-grams of one length, a row each.

    times           (g,) how often it occurs in the text
    first           (g,) its first place among the symbols
    prefix, suffix  (g,) the rows of the two (n-1)-grams in it; of a single symbol -1
    left, right     (g,) entropy of the symbol before it and after it, in nats; a boundary is unlike
                    any other symbol
    edges           (g, 2) share of its occurrences with a boundary before it, after it
    longer          (g,) the largest count of a frequent (n+1)-gram that begins or ends with it, 0
                    without one
    """

    times: np.ndarray
    first: np.ndarray
    prefix: np.ndarray
    suffix: np.ndarray
    left: np.ndarray
    right: np.ndarray
    edges: np.ndarray
    longer: np.ndarray


def _entropy(
    group: np.ndarray, neighbour: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(entropy of the symbols beside each group, share of boundaries among them): log n - sum(c log
    c) / n."""
    width = int(neighbour.max(initial=0)) + 1
    inner = neighbour != BOUNDARY
    keys = np.sort(group[inner].astype(np.int64) * width + neighbour[inner])
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    times = np.diff(starts, append=len(keys)).astype(np.float64)
    summed = np.bincount(keys[starts] // width, times * np.log(times), minlength=len(count))
    return np.log(count) - summed / count, 1 - np.bincount(
        group[inner], minlength=len(count)
    ) / count


def _sort_keys(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(stable order of non-negative int64 `keys`, the keys in it)."""
    bits = max(1, len(keys).bit_length())
    if int(keys.max(initial=0)).bit_length() + bits > 63:
        order = np.argsort(keys, kind="stable")
        return order, keys[order]
    # values alone sort more than twice as fast as an order
    packed = np.sort(keys << bits | np.arange(len(keys)))
    return packed & ((1 << bits) - 1), packed >> bits


def _grams(
    codes: np.ndarray, places: np.ndarray, keys: np.ndarray, length: int, least: int
) -> tuple[Grams, np.ndarray]:
    """(the groups of `places` with one of `keys` that `least` places have, row of the group at
    every place or -1)."""
    order, ordered = _sort_keys(keys)
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    counts = np.diff(starts, append=len(ordered))
    frequent = counts >= least
    row = np.where(frequent, np.cumsum(frequent) - 1, -1).astype(np.int32)
    at = np.full(len(codes), -1, np.int32)
    at[places[order]] = np.repeat(row, counts)
    first = places[order[starts[frequent]]]
    count = counts[frequent]
    where = np.flatnonzero(at >= 0)
    group = at[where]
    left, before = _entropy(group, codes[where - 1], count)
    right, after = _entropy(group, codes[where + length], count)
    none = np.full(len(count), -1, np.int64)
    edges = np.stack([before, after], axis=1)
    return Grams(count, first, none, none, left, right, edges, np.zeros(len(count), np.int64)), at


def grams(codes: np.ndarray, longest: int, least: int) -> list[Grams]:
    """The n-grams of 1 to `longest` symbols that occur at `least` places; `codes` begins and ends
    with a boundary.

    Single symbols are in the first, whatever their count.
    """
    places = np.flatnonzero(codes != BOUNDARY)
    level, at = _grams(codes, places, codes[places].astype(np.int64), 1, 1)
    levels = [level]
    # one longer than asked for, to know what is inside something longer
    for length in range(2, longest + 2):
        places = np.flatnonzero((at[:-1] >= 0) & (at[1:] >= 0))
        prefix, suffix, rows = at[places], at[places + 1], len(levels[-1].times)
        level, at = _grams(codes, places, prefix.astype(np.int64) * rows + suffix, length, least)
        row = np.searchsorted(places, level.first)
        level = level._replace(
            prefix=prefix[row].astype(np.int64), suffix=suffix[row].astype(np.int64)
        )
        for inside in (level.prefix, level.suffix):
            np.maximum.at(levels[-1].longer, inside, level.times)
        levels.append(level)
    return levels[:longest]


def cohesion(levels: list[Grams], length: int, total: int) -> np.ndarray:
    """(g,) for each n-gram of `length` >= 2: log p(w) / (p(u) p(v)) of the split w = uv that
    explains it best.

    That is the split with the smallest value; p is a count over the `total` of symbols.
    """
    level = levels[length - 1]
    best = np.full(len(level.times), np.inf)
    prefixes, suffixes = [level.prefix], [level.suffix]  # of length - 1, length - 2, ..., 1
    for size in range(length - 1, 1, -1):
        prefixes.append(levels[size - 1].prefix[prefixes[-1]])
        suffixes.append(levels[size - 1].suffix[suffixes[-1]])
    for size in range(1, length):
        u = levels[size - 1].times[prefixes[length - 1 - size]]
        v = levels[length - size - 1].times[suffixes[size - 1]]
        best = np.minimum(best, np.log(level.times) + np.log(max(1, total)) - np.log(u) - np.log(v))
    return best
