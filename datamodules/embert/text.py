"""Sequences of two segments, replaced entities and corruption, as pure functions of arrays and a
generator."""

from __future__ import annotations

from dataclasses import dataclass
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


def join_segments(first: Text, second: Text, limit: int) -> Text:
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


def replace_mentions(
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
        mention_ids = text.ids[start:end]
        same = names.synonym(int(entity), mention_ids, limit - length + len(mention_ids), rng)
        other = names.another(int(entity), mention_ids, rng)
        if same is None or other is None:
            continue
        new[i] = (same, SYNONYM) if rng.random() < 0.5 else (other, RANDOM)
        length += len(new[i][0].ids) - len(mention_ids)
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
        # hidden part,
    )
    #                    ATOMIC or ADJECTIVE; one row a token of a hidden part
    part_ids: np.ndarray  # (T,) original ids of these tokens


@dataclass
class _Draft:
    """A text that is being corrupted; see :class:`Corrupted`."""

    text: Text
    ids: np.ndarray
    mlm: np.ndarray
    segments: np.ndarray
    free: np.ndarray  # (n,) bool: of no replaced mention, and not hidden yet
    budget: int  # tokens that may still be hidden


class _Long(NamedTuple):
    """A long entity of a text."""

    first: int  # first token
    middle: int  # where the atomic part begins
    last: int  # last token + 1
    kind: int


def _read_mentions(text: Text, pieces: Pieces) -> tuple[_Draft, list[_Long], int]:
    """(a draft without a budget, the long entities, how many tokens are not of a random name)."""
    n = len(text.ids)
    mlm, segments = np.full(n, IGNORE, np.int64), np.full(n, IGNORE, np.int64)
    free, maskable = np.ones(n, bool), np.ones(n, bool)
    long: list[_Long] = []
    for start, end, _, kind in text.mentions:
        free[start:end] &= kind == ORIGINAL
        maskable[start:end] &= kind != RANDOM
        ends = None if kind == RANDOM else pieces.piece_ends(text.ids[start:end])
        if ends is not None and len(ends) > 1:
            segments[start:end] = 0
            segments[start + ends - 1] = 1
            long.append(_Long(int(start), int(start + ends[-2]), int(end), int(kind)))
    return _Draft(text, text.ids.copy(), mlm, segments, free, 0), long, maskable.sum()


def _hide_parts(
    draft: _Draft,
    long: list[_Long],
    share: float,
    longest: int,
    mask_id: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Hide parts of long entities, at most a `share` of the budget. Returns their table, as
    :class:`Corrupted` has it."""
    left = share * draft.budget
    rows: list[tuple[int, ...]] = []
    for i in rng.permutation(len(long)):
        first, middle, last, kind = long[i]
        side = ATOMIC if rng.random() < 0.5 else ADJECTIVE
        if side == ATOMIC:
            begin, end, near, far = middle, last, first, middle - 1
        else:
            begin, end, near, far = first, middle, middle, last - 1
        size = end - begin
        if size > min(draft.budget, longest) or not left:
            continue
        # A part that is too long for what is left of the share comes as often as keeps it in the
        # mean; else short texts would never have one. The share is spent either way.
        comes = rng.random() * size < left
        left = max(0.0, left - size)
        if not comes:
            continue
        draft.budget -= size
        rows += [(token, near, far, token - begin, size, side) for token in range(begin, end)]
        draft.ids[begin:end] = mask_id
        if kind == ORIGINAL:
            draft.mlm[begin:end] = draft.text.ids[begin:end]
        draft.free[first:last] = False
    return np.array(rows, np.int64).reshape(-1, 6)


def _unit_bounds(text: Text, entities: bool) -> np.ndarray:
    """Where the units that the masked LM draws begin (words; or entities too), and the end."""
    unit_start = text.word_start.copy()
    unit_start[:1] = True
    for start, end, _, _ in text.mentions if entities else ():
        unit_start[start] = True
        unit_start[start + 1 : end] = False
        unit_start[end : end + 1] = True
    return np.append(np.flatnonzero(unit_start), len(text.ids))


def corrupt_text(
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
              before it (adjective), each half of the time, never both; the rest are words, for the
              masked LM
    entities  whole entities and phrases are hidden together, as MC-BERT does, instead of words
    longest   parts of more tokens are not hidden
    mask, random  of what the masked LM draws: hidden, replaced by a random token; the rest stays

    The masked LM predicts what it drew and the hidden parts, but nothing in a synonym, whose name
    the text did not choose, and draws nothing from the part that is left, from which the other is
    predicted.
    """
    draft, long, maskable = _read_mentions(text, pieces)
    draft.budget = int(rate * maskable + rng.random())
    table = _hide_parts(draft, long, parts, longest, mask_id, rng)
    bounds = _unit_bounds(text, entities)
    for i in rng.permutation(len(bounds) - 1):
        begin, end = bounds[i], bounds[i + 1]
        if draft.budget <= 0:
            break
        if end - begin > draft.budget or not draft.free[begin:end].all():
            continue
        draft.budget -= int(end - begin)
        draft.mlm[begin:end] = text.ids[begin:end]
        draw = rng.random()
        if draw < mask:
            draft.ids[begin:end] = mask_id
        elif draw < mask + random:
            draft.ids[begin:end] = rng.choice(random_ids, end - begin)
    return Corrupted(draft.ids, draft.mlm, draft.segments, table, text.ids[table[:, 0]])
