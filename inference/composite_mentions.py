"""Mentions that a name is a part of: the phrases of several entities (kg.linking.composites)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inference.detectors import Detected
from kg.linking.composites import find_numbered, widen
from kg.linking.passage import Passage


def widen_mentions(
    passage: Passage,
    mentions: list[Detected],
    is_name: Callable[[str], bool],
    types: Mapping[str, str],
) -> list[Detected]:
    """Mentions with composite ones in place of the names that are a part of them ("breast and
    ovarian cancer").

    is_name: whether a phrase is a name of the graph. types: {entity: type}.
    """
    mentions = _add_numbered(passage, mentions, is_name)
    if not mentions:
        return mentions

    def covers(number: int, other: int) -> bool:
        """A phrase of one type covers a name of another: an organ in the name of diseases."""
        kind, other_kind = [types.get(mentions[n].entity or "", "") for n in (number, other)]
        return kind != other_kind and mentions[number].entity is not None

    if passage.is_as_written:
        spans = [mention[:2] for mention in mentions]
    else:
        offset = passage.normal_offset
        spans = [(offset(mention.start), offset(mention.end)) for mention in mentions]
    wider = widen(passage.text, spans, is_name, covers)
    if wider == spans:
        return mentions
    places = [
        (mention.start, mention.end) if place == span else passage.source_place(*place)
        for mention, span, place in zip(mentions, spans, wider, strict=True)
    ]
    result: list[Detected] = []
    covered = 0  # the end of the phrase found last: names that it covers are left out
    for mention, (start, end) in zip(mentions, places, strict=True):
        if end <= covered:
            continue
        if (start, end) == (mention.start, mention.end):
            result.append(mention)
            continue
        while result and result[-1].start >= start:
            result.pop()
        result.append(mention._replace(start=start, end=end, entity=None, others=(), matched=""))
        covered = end
    return result


def _add_numbered(
    passage: Passage, mentions: list[Detected], is_name: Callable[[str], bool]
) -> list[Detected]:
    """Mentions with phrases such as "type 1 and 2 diabetes", each in place of the names in
    it."""
    for place in find_numbered(passage.text, is_name):
        start, end = passage.source_place(*place)
        outside = [mention for mention in mentions if mention.end <= start or mention.start >= end]
        inside = [mention for mention in mentions if start <= mention.start and mention.end <= end]
        if len(outside) + len(inside) == len(mentions):
            mentions = sorted([*outside, Detected(start, end)], key=lambda mention: mention.start)
    return mentions
