"""Controls of an experiment: entities that a model is given in place of those that a text names.

    marks    the same entity at every mention: what is left says that something is marked
    foreign  another entity of the same type, always the same for each: what is left says that
             something of this type is there, with the wrong knowledge

Text, mentions, parameters and steps are those of the system that is compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.choices import list_known
from core.files import InputError
from kg.graph import KnowledgeGraph

CONTROLS = ("marks", "foreign")
#: file of an export: (entities,) the entity that is given in place of each
GIVEN = "given.npy"


def exchange_entities(types: Sequence[str], degree: np.ndarray, seed: int = 0) -> np.ndarray:
    """(Z,) for each entity another of its type, each once; of those with triples one with triples.
    Those that are alone of their kind are exchanged among themselves.

    types: (Z,); degree: (Z,) triples of each.
    """
    kind = np.unique(np.array(types, str), return_inverse=True)[1] * 2 + (degree > 0)
    is_alone = np.bincount(kind, minlength=1)[kind] == 1
    kind = np.where(is_alone, -1 - (degree > 0), kind)
    order = np.random.default_rng(seed).permutation(len(kind))
    order = order[np.argsort(kind[order], kind="stable")]
    other = np.arange(len(kind))
    for alike in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
        other[alike] = np.roll(alike, 1)  # in a circle: none is its own
    return other


def give_entities(control: str, graph: KnowledgeGraph) -> np.ndarray:
    """(Z,) the entity that is given in place of each. Raises InputError for no control of
    CONTROLS."""
    if control not in CONTROLS:
        raise InputError(f"control: no control {control!r}; {list_known(control, CONTROLS)}")
    degree = graph.degree()
    if control == "marks":
        return np.full(len(degree), int(degree.argmax()))
    return exchange_entities(graph.entities["type"].to_pylist(), degree)
