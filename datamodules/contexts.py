"""A mention in its text, as linkers receive it: the mention is between the words START and END."""

from __future__ import annotations

from core.files import InputError
from core.reading import excerpt

START, END = "START", "END"


#: Characters on each side of a mention that are more than any model reads, and hold whole
#: abstracts.
WIDE = 4000


def mark_mention(text: str, start: int, end: int, room: int | None = None) -> str:
    """`text` with START and END around the characters [start, end); room: characters kept on each
    side, all without it."""
    low, high = (0, len(text)) if room is None else (max(start - room, 0), end + room)
    return f"{text[low:start]}{START} {text[start:end]} {END}{text[end:high]}"


def balance_sides(left: int, right: int, room: int) -> tuple[int, int]:
    """How much of `left` (its end) and of `right` (its beginning) to keep: `room` in all, half of
    it each if both need it."""
    room = max(0, room)
    size = min(left, max(room // 2, room - right))
    return size, min(right, room - size)


def sides(mention: str, context: str | None) -> tuple[str, str]:
    """(left, right) of a context as :func:`mark_mention` makes it; two empty ones without context.

    Should the text itself hold the markers, the pair with `mention` between counts, or else the
    first one.
    """
    if context is None:
        return "", ""
    before, between, after = f"{START} ", f" {END}", f"{START} {mention} {END}"
    if after in context:
        left, _, right = context.partition(after)
        return left, right
    left, start, rest = context.partition(before)
    _, end, right = rest.partition(between)
    if not start or not end:
        raise InputError(
            f"context {excerpt(context)}: expected the mention between the words {START} and {END}"
        )
    return left, right
