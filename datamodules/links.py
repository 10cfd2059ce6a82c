"""Mentions of fine-tuning texts: linked by exact match with the names that an export holds, and
placed on tokens.

Each paper whose encoder accepts mentions makes its own of these (`linker` in its encoder.yaml).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from core.arrays import read_table
from core.files import InputError
from datamodules.controls import GIVEN, exchange_entities
from datamodules.tokenizers import token_spans
from kg.linking.matcher import DictionaryLinker

#: what :meth:`datamodules.ordered.OrderedText.export` writes
FILES = ("entities.parquet", "names.parquet", "degree.npy")
Linked = Callable[[list[str], list[list[tuple[int, int]]]], np.ndarray]


def check_shares(**shares: float) -> None:
    """Raise InputError for a share that cannot be."""
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise InputError(f"{name} {share}: expected a share from 0 to 1")


def links(
    folder: str | Path, hits: float = 1.0, foreign: float = 0.0, further: tuple[str, ...] = ()
) -> Linked:
    """What finds the mentions of texts, by the names in the export `folder`.

    hits     share of the mentions that are kept, chosen by text and place alone
    foreign  share of those whose entity is another one of its type, always the same for each: what
             is left of a gain is not what the entity says. Entities without triples are exchanged
             among themselves
    further  files and folders that the export must hold besides FILES

    The result accepts texts and the character offsets of their tokens ((0, 0) for special tokens),
    and returns the mentions (M, 4): text, first token, last token + 1, entity. A mention that a
    special token, or the end of a window, cuts is left out.

    What was pre-trained with a control (:mod:`datamodules.controls`) is given the same entities.

    Raises InputError when the folder lacks a file, or for a share that cannot be.
    """
    folder = Path(folder)
    for name in (*FILES, *further):
        if not (folder / name).exists():
            raise InputError(
                f"{folder / name}: missing; mentions cannot be linked. Export the run again."
            )
    check_shares(hits=hits, foreign=foreign)
    entities = read_table(folder / "entities.parquet", ["id", "type"])
    ids = entities["id"].combine_chunks()
    degree = np.load(folder / "degree.npy", allow_pickle=False)
    dictionary = DictionaryLinker(read_table(folder / "names.parquet"), ids, degree)
    index = {name: i for i, name in enumerate(ids.to_pylist())}
    other = exchange_entities(entities["type"].to_pylist(), degree)
    control = folder / GIVEN
    entity_of = np.load(control, allow_pickle=False) if control.exists() else np.arange(len(ids))

    # an epoch's texts are linked once; a stream of new ones does not fill the memory
    @lru_cache(1 << 17)
    def link_text(text: str) -> np.ndarray:
        """(m, 3) first character, last + 1, entity."""
        rows = [(m.start, m.end, index[m.entity]) for m in dictionary.link(text)]
        if hits < 1:
            rows = [r for r in rows if zlib.crc32(f"{r[0]} {text}".encode()) < hits * 2**32]
        if foreign > 0:
            chosen = [zlib.crc32(f"foreign {r[0]} {text}".encode()) < foreign * 2**32 for r in rows]
            rows = [
                (a, b, int(other[e]) if c else e) for (a, b, e), c in zip(rows, chosen, strict=True)
            ]
        linked = np.array(rows, np.int64).reshape(-1, 3)
        linked[:, 2] = entity_of[linked[:, 2]]
        return linked

    def link_texts(texts: list[str], offsets: list[list[tuple[int, int]]]) -> np.ndarray:
        spans = []
        for row, (text, places) in enumerate(zip(texts, offsets, strict=True)):
            linked = place_on_tokens(link_text(text), places)
            spans.append(np.insert(linked, 0, row, axis=1))
        return np.concatenate(spans) if spans else np.zeros((0, 4), np.int64)

    return link_texts


def place_on_tokens(rows: np.ndarray, offsets: list[tuple[int, int]]) -> np.ndarray:
    """(m, 3) first character, last + 1, entity -> (n, 3) first token, last + 1, entity of the
    mentions whose tokens are all there, by the tokens' offsets ((0, 0) for special ones)."""
    characters = np.array(offsets, np.int64).reshape(-1, 2)
    real = np.flatnonzero(characters[:, 1] > characters[:, 0])
    inside = characters[real]
    tokens = token_spans(inside, rows[:, :2])
    whole = tokens[:, 1] > tokens[:, 0]
    tokens, rows = tokens[whole], rows[whole]
    if not len(tokens):
        return np.zeros((0, 3), np.int64)
    begins = inside[tokens[:, 0], 0] <= rows[:, 0]
    ends = inside[tokens[:, 1] - 1, 1] >= rows[:, 1]
    first, last = real[tokens[:, 0]], real[tokens[:, 1] - 1]
    chosen = begins & ends & (last - first == tokens[:, 1] - 1 - tokens[:, 0])
    # Two mentions inside one word share its tokens: the first keeps them.
    chosen[1:] &= first[1:] > np.maximum.accumulate(last)[:-1]
    return np.stack([first[chosen], last[chosen] + 1, rows[chosen, 2]], axis=1)
