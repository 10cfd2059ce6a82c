"""Types of entities by votes: each triple that leads to an entity says a type for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def most(votes: Counter[str]) -> str:
    """The one with the most votes; "" when there is none or two draw."""
    first = votes.most_common(2)
    return first[0][0] if first and (len(first) == 1 or first[0][1] > first[1][1]) else ""


def types_of_diseases(diseases: Iterable[str], votes: Mapping[str, Counter[str]]) -> dict[str, str]:
    """entity -> type: of a disease "disease", whatever the votes say; of any other entity the one
    with the most votes."""
    types = dict.fromkeys(diseases, "disease")
    others = {entity: most(counts) for entity, counts in votes.items() if entity not in types}
    return types | others
