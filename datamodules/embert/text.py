"""Sequences of two segments, replaced entities and corruption, as pure functions of arrays and a
generator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datamodules.corpus import Example
from datamodules.embert.entity_names import Name, Pieces, Replacements
from datamodules.masking import IGNORE

ORIGINAL, SYNONYM, RANDOM = 0, 1, 2
ATOMIC, ADJECTIVE = 0, 1


class Text(NamedTuple):
    """A sequence without special tokens."""

    ids: np.ndarray  # (n,) int64
    word_start: np.ndarray  # (n,) bool
    mentions: (
        np.ndarray
        # (m, 4) first token, last token + 1, entity, ORIGINAL, SYNONYM or RANDOM; disjoint, in text
        # order
    )
    cut: int  # first token of the second segment; 0 where there is one segment only


def part(example: Example, first: int, last: int) -> Text:
    """Tokens [first, last) of a sequence, with the mentions in them."""
    spans = example.mentions.astype(np.int64)
    inside = spans[(spans[:, 0] >= first) & (spans[:, 1] <= last)] - [first, first, 0]
    kind = np.full((len(inside), 1), ORIGINAL, np.int64)
    return Text(
        example.ids[first:last].astype(np.int64),
        example.word_start[first:last],
        np.concatenate([inside, kind], 1),
        0,
    )


def joined(first: Text, second: Text, limit: int) -> Text:
    """Two segments as one sequence of at most `limit` tokens; what is too much of the second is cut
    off."""
    n, room = len(first.ids), limit - len(first.ids)
    spans = second.mentions[second.mentions[:, 1] <= room] + [n, n, 0, 0]
    ids, start = (np.concatenate([a, b[:room]]) for a, b in zip(first[:2], second[:2], strict=True))
    return Text(
        ids,
        start,
        np.concatenate([first.mentions, spans]),
        n if len(second.ids[:room]) and n else 0,
    )


def replaced(
    text: Text, names: Replacements, share: float, limit: int, rng: np.random.Generator
) -> Text:
    """`text` with a `share` of its replaceable mentions replaced, half of them by a synonym, half
    by a random name.

    Replaceable is a mention that has a synonym and for which there is another name of its length
    and type. One that touches a replaced one stays, or a boundary state of Eq. (1) would be in a
    replaced name. The text stays within `limit` tokens.
    """
    length = len(text.ids)
    new: dict[int, tuple[Name, int]] = {}
    last = -1  # end of the replaced mention before
    for i, (start, end, entity, _) in enumerate(text.mentions):
        if rng.random() >= share or start == last:
            continue
        own = text.ids[start:end]
        same = names.synonym(int(entity), own, limit - length + len(own), rng)
        other = names.another(int(entity), own, rng)
        if same is None or other is None:
            continue
        new[i] = (same, SYNONYM) if rng.random() < 0.5 else (other, RANDOM)
        length += len(new[i][0].ids) - len(own)
        last = end
    if not new:
        return text
    ids: list[np.ndarray] = []
    starts: list[np.ndarray] = []
    spans = text.mentions.copy()
    before, shift, cut = 0, 0, text.cut
    for i, (start, end, entity, _) in enumerate(text.mentions):
        spans[i, :2] += shift
        if i not in new:
            continue
        name, kind = new[i]
        ids += [text.ids[before:start], name.ids]
        starts += [text.word_start[before:start], name.word_start]
        grown = len(name.ids) - (end - start)
        spans[i] = start + shift, end + shift + grown, entity, kind
        before, shift = end, shift + grown
        cut += grown if end <= text.cut else 0
    ids.append(text.ids[before:])
    starts.append(text.word_start[before:])
    return Text(np.concatenate(ids), np.concatenate(starts), spans, cut)


class Corrupted(NamedTuple):
    """A text with tokens hidden, and what is to be predicted of it."""

    ids: np.ndarray  # (n,)
    mlm: np.ndarray  # (n,) original id where the masked LM predicts, else -100
    # (n,) 1 on the last token of a sub-entity, 0 on the others of a long entity, else -100
    segments: np.ndarray
    parts: (
        np.ndarray
        # (T, 6) token, first and last token of the part that is left, position and length of the
        # hidden
        # part,
    )
    #                    ATOMIC or ADJECTIVE; one row a token of a hidden part
    part_ids: np.ndarray  # (T,) original ids of these tokens


def corrupted(
    text: Text,
    pieces: Pieces,
    rng: np.random.Generator,
    mask_id: int,
    random_ids: np.ndarray,
    rate: float = 0.15,
    parts: float = 0.5,
    entities: bool = False,
    longest: int = 30,
    mask: float = 0.8,
    random: float = 0.1,
) -> Corrupted:
    """Hide a share `rate` of the tokens of `text` that are not of a random name.

    parts     of these at most this share are parts of long entities: the last piece (atomic) or all
              before it (adjective),
              each half of the time, never both; the rest are words, for the masked LM
    entities  whole entities and phrases are hidden together, as MC-BERT does, instead of words
    longest   parts of more tokens are not hidden
    mask, random  of what the masked LM draws: hidden, replaced by a random token; the rest stays

    The masked LM predicts what it drew and the hidden parts, but nothing in a synonym, whose name
    the text did not choose, and draws nothing from the part that is left, from which the other is
    predicted.
    """
    n = len(text.ids)
    result = text.ids.copy()
    mlm, segments = np.full(n, IGNORE, np.int64), np.full(n, IGNORE, np.int64)
    free, maskable = np.ones(n, bool), np.ones(n, bool)
    # first token, where the atomic part begins, last token + 1, kind
    long: list[tuple[int, int, int, int]] = []
    for start, end, _, kind in text.mentions:
        free[start:end] &= kind == ORIGINAL
        maskable[start:end] &= kind != RANDOM
        ends = None if kind == RANDOM else pieces.piece_ends(text.ids[start:end])
        if ends is not None and len(ends) > 1:
            segments[start:end] = 0
            segments[start + ends - 1] = 1
            long.append((int(start), int(start + ends[-2]), int(end), int(kind)))
    budget = int(rate * maskable.sum() + rng.random())
    left = parts * budget
    rows: list[np.ndarray] = []
    for i in rng.permutation(len(long)):
        first, middle, last, kind = long[i]
        side = ATOMIC if rng.random() < 0.5 else ADJECTIVE
        begin, end, near, far = (
            (middle, last, first, middle - 1)
            if side == ATOMIC
            else (first, middle, middle, last - 1)
        )
        size = end - begin
        if size > min(budget, longest) or not left:
            continue
        # A part that is too long for what is left of the share comes as often as keeps it in the
        # mean; else short texts
        # would never have one. The share is spent either way.
        comes = rng.random() * size < left
        left = max(0.0, left - size)
        if not comes:
            continue
        budget -= size
        place = np.arange(begin, end)
        rows.append(
            np.stack(
                [
                    place,
                    *(np.full(size, v) for v in (near, far)),
                    place - begin,
                    np.full(size, size),
                    np.full(size, side),
                ],
                axis=1,
            )
        )
        result[place] = mask_id
        if kind == ORIGINAL:
            mlm[place] = text.ids[place]
        free[first:last] = False
    unit_start = text.word_start.copy()
    if n:
        unit_start[0] = True
    if entities:
        for start, end, _, _ in text.mentions:
            unit_start[start] = True
            unit_start[start + 1 : end] = False
            unit_start[end : end + 1] = True
    bounds = np.append(np.flatnonzero(unit_start), n)
    for i in rng.permutation(len(bounds) - 1):
        begin, end = bounds[i], bounds[i + 1]
        if budget <= 0:
            break
        if end - begin > budget or not free[begin:end].all():
            continue
        budget -= int(end - begin)
        mlm[begin:end] = text.ids[begin:end]
        draw = rng.random()
        if draw < mask:
            result[begin:end] = mask_id
        elif draw < mask + random:
            result[begin:end] = rng.choice(random_ids, end - begin)
    table = np.concatenate(rows) if rows else np.zeros((0, 6), np.int64)
    return Corrupted(result, mlm, segments, table, text.ids[table[:, 0]])
