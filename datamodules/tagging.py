"""Tagged texts as sequences: units of a text, labels of the units, and windows of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from datamodules.tasks import Tagged

WORDS = re.compile(r"\w+|[^\w\s]")
SENTENCE_ENDS = frozenset("。！？；.!?;")


def units(example: Tagged, language: str) -> list[tuple[int, int]]:
    """What a tagger labels: the source's words; else every character that is no space (Chinese), or
    words and signs."""
    if example.words is not None:
        return example.words
    if language == "zh":
        return [(i, i + 1) for i, c in enumerate(example.text) if not c.isspace()]
    return [m.span() for m in WORDS.finditer(example.text)]


def unit_spans(
    entities: Sequence[tuple[int, int, str]], unit: Sequence[tuple[int, int]]
) -> list[tuple[int, int, str]]:
    """Entities as (first unit, last unit + 1, type); one that begins or ends inside a unit is left
    out."""
    starts = {s: i for i, (s, _) in enumerate(unit)}
    ends = {e: i + 1 for i, (_, e) in enumerate(unit)}
    spans = [(starts.get(s, -1), ends.get(e, -1), t) for s, e, t in entities]
    return [(s, e, t) for s, e, t in spans if 0 <= s < e]


def bio_labels(
    spans: Sequence[tuple[int, int, str]], length: int, types: Sequence[str]
) -> list[int]:
    """0 for O, 2t+1 for B and 2t+2 for I of type t; of overlapping spans the longest is
    labelled."""
    labels = [0] * length
    for start, end, kind in sorted(spans, key=lambda s: (s[0] - s[1], s[0])):
        if kind in types and not any(labels[start:end]):
            t = types.index(kind)
            labels[start] = 2 * t + 1
            labels[start + 1 : end] = [2 * t + 2] * (end - start - 1)
    return labels


def bio_decoded(labels: Sequence[int], types: Sequence[str]) -> list[tuple[int, int, str]]:
    """Spans (first, last + 1, type) of labels as in :func:`bio_labels`; an I that continues nothing
    opens a span."""
    spans: list[tuple[int, int, str]] = []
    start, kind = -1, -1
    for i, label in enumerate([*labels, 0]):
        t, inside = (label - 1) // 2, label > 0 and label % 2 == 0
        if start >= 0 and not (inside and t == kind):
            spans.append((start, i, types[kind]))
            start = -1
        if label and start < 0:
            start, kind = i, t
    return spans


def windows(sizes: Sequence[int], ends: Sequence[bool], room: int) -> list[tuple[int, int]]:
    """Cut units of `sizes` tokens into windows (first, last + 1) of at most `room` tokens.

    A window ends after a sentence's end (`ends`) if there is one in its second half. A unit of more
    than `room` tokens is a window of its own.
    """
    cuts, first, total = [], 0, 0
    for i, size in enumerate(sizes):
        if i > first and total + size > room:
            cut = next((j + 1 for j in range(i - 1, first + (i - first) // 2, -1) if ends[j]), i)
            cuts.append((first, cut))
            first, total = cut, sum(sizes[cut:i])
        total += size
    return [*cuts, (first, len(sizes))] if len(sizes) > first else cuts


def overlapping_windows(sizes: Sequence[int], room: int, overlap: int) -> list[tuple[int, int]]:
    """Cut units of `sizes` tokens into windows (first, last + 1) of at most `room` tokens, each one
    beginning at most `overlap` tokens before the end of the one before. A unit of more than `room`
    tokens is a window of its own.
    """
    cuts, first = [], 0
    while first < len(sizes):
        last, total = first + 1, sizes[first]
        while last < len(sizes) and total + sizes[last] <= room:
            total, last = total + sizes[last], last + 1
        cuts.append((first, last))
        if last == len(sizes):
            break
        # the next window has room for one more unit
        start, shared, most = last, 0, min(overlap, room - sizes[last])
        while start - 1 > first and shared + sizes[start - 1] <= most:
            start, shared = start - 1, shared + sizes[start - 1]
        first = start
    return cuts
