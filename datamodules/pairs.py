"""Two entities of a text marked as the readers of relation tasks mark them, so that a trained model
can read new pairs.

Markers that close ([S], [/S], [O], [/O]) are put around the two entities, the first pair of them
around the first. Others replace the entities (@CHEMICAL$, @GENE$; @DRUG$ for both), and one with a
hyphen replaces two that overlap (@CHEM-GENE$).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, permutations

from core.files import InputError
from datamodules.blurb import replace
from datamodules.formats import mark_spans
from kg.linking.sentences import sentence_starts

Place = tuple[int, int]  # first character, last + 1


def _around(markers: Sequence[str]) -> bool:
    return any(marker.startswith("[/") for marker in markers)


def _entity_markers(markers: Sequence[str]) -> tuple[str, str, str | None]:
    """(the first entity's marker, the second's, that of two that overlap)."""
    single = [marker for marker in markers if "-" not in marker]
    return single[0], single[-1], next((marker for marker in markers if "-" in marker), None)


def may_overlap(markers: Sequence[str]) -> bool:
    """Whether a task with these markers has pairs of entities that overlap."""
    return _around(markers) or _entity_markers(markers)[2] is not None


def mark_pair(text: str, first: Place, second: Place, markers: Sequence[str]) -> str:
    """`text` with a task's `markers` around, or instead of, two entities. Raises InputError for two
    that cannot be marked."""
    for start, end in (first, second):
        if not 0 <= start < end <= len(text):
            raise InputError(
                f"entity [{start}, {end}): expected a place inside the text of {len(text)}"
                " characters"
            )
    if _around(markers):
        opening = [marker for marker in markers if not marker.startswith("[/")]
        closing = [marker for marker in markers if marker.startswith("[/")]
        return mark_spans(
            text, [(*first, opening[0], closing[0]), (*second, opening[1], closing[1])]
        )
    first_marker, two, both = _entity_markers(markers)
    if not may_overlap(markers) and first[0] < second[1] and second[0] < first[1]:
        raise InputError(
            f"entities {first} and {second} overlap: expected two that do not, as {first_marker}"
            f" and {two} replace them"
        )
    return replace(text, [first], [second], first_marker, two, both or "")[0].strip()


def candidate_pairs(types: Sequence[str | None], markers: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs (first, second) of entities with `types`, in text order, that a task with these markers
    classifies.

    Where the markers replace entities of two types (@CHEMICAL$, @GENE$), pairs of these types,
    compared without case; where both are of one type, every pair once; where they surround
    entities, every pair in both orders.
    """
    numbers = range(len(types))
    ordered = list(permutations(numbers, 2))
    if _around(markers):
        return ordered
    first, two, _ = (
        marker and marker.strip("@$").casefold() for marker in _entity_markers(markers)
    )
    if first == two:
        return list(combinations(numbers, 2))
    folded = [(kind or "").casefold() for kind in types]
    return [(i, j) for i, j in ordered if (folded[i], folded[j]) == (first, two)]


def sentences(text: str, language: str, places: Sequence[Place]) -> list[Place]:
    """The parts of a text that are read on their own: English sentences, joined where an end would
    cut one of `places`; else the whole text, as the examples of Chinese tasks are whole texts
    (CMeIE).
    """
    starts = [0]
    for start in sentence_starts(text) if language == "en" else ():
        is_cut = any(first < start < last for first, last in places)
        if 0 < start < len(text) and not is_cut:
            starts.append(start)
    return list(pairwise([*starts, len(text)]))
