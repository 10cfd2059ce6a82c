"""Names of concepts as Appendix E.1 prepares them: normalised, and each left to one concept.

The same for a graph that is pre-trained on and for the dictionary of a task, whose names a mention
is linked to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.files import InputError
from datamodules.linking import Dictionary
from kg.search.names import SYMBOLS, normaliser

RULES = (
    "lower+symbols"  #: of kg.search.names; what :func:`normalise_names` does to many names at once
)


def _space_symbols(text: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(text, r"[\s\p{Z}]+", " "))


def normalise_names(names: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Names in lower case, white space and symbols as one space; of symbols alone, as they are."""
    lower = _space_symbols(pc.utf8_lower(names))
    bare = _space_symbols(pc.replace_substring_regex(lower, SYMBOLS, " "))
    return pc.if_else(pc.equal(bare, ""), lower, bare)


def left_to_one(member: np.ndarray, keep_last: bool = False) -> np.ndarray:
    """(rows,) bool: the rows of `member` (rows, 2) concept, name that stay when each name is left
    to one concept.

    A name of several concepts stays with the one that has the fewest names (Appendix E.1), of equal
    ones the first. Names are gone through by number, and what was taken from a concept no longer
    counts for it. `keep_last`: the last name of a concept is not taken from it.
    """
    uses = np.bincount(member[:, 1]) if len(member) else np.zeros(0, np.int64)
    size = np.bincount(member[:, 0]) if len(member) else np.zeros(0, np.int64)
    stays = np.ones(len(member), bool)
    shared = np.flatnonzero(uses[member[:, 1]] > 1) if len(member) else np.zeros(0, np.int64)
    shared = shared[np.lexsort((member[shared, 0], member[shared, 1]))]
    edges = np.flatnonzero(np.diff(member[shared, 1])) + 1
    for rows in np.split(shared, edges) if len(shared) else []:
        owners = member[rows, 0]
        owner = rows[np.lexsort((owners, size[owners]))[0]]
        for row in rows:
            if row != owner and not (keep_last and size[member[row, 0]] == 1):
                stays[row] = False
                size[member[row, 0]] -= 1
    return stays


class NameSet(NamedTuple):
    """The names S of a task's concepts (Section 2), and whose they are."""

    names: list[str]  # normalised, distinct, sorted; their place is their number
    concepts: list[str]  # ids, sorted
    members: np.ndarray  # (rows, 2) concept, name; sorted, distinct
    counts: dict[str, int]

    def name_numbers(self, concept: int) -> np.ndarray:
        """The numbers of a concept's names."""
        begin, end = np.searchsorted(self.members[:, 0], [concept, concept + 1])
        numbers: np.ndarray = self.members[begin:end, 1]
        return numbers


def name_set(dictionary: Dictionary, one_concept: bool = True, keep_last: bool = False) -> NameSet:
    """The dictionary's names as they are trained on and generated; `one_concept`: each left to one
    concept (not for NCBI).

    Raises InputError for an empty dictionary.
    """
    if not dictionary.ids:
        raise InputError("no names in the dictionary. Check the task.")
    rule = normaliser(RULES)
    text = [rule(name) for name in dictionary.names]
    names, concepts = sorted(set(text)), sorted(set(dictionary.ids))
    number = {name: i for i, name in enumerate(names)}
    place = {concept: i for i, concept in enumerate(concepts)}
    pairs = {(place[i], number[n]) for i, n in zip(dictionary.ids, text, strict=True)}
    members = np.array(sorted(pairs), np.int64)
    counts = {
        "dictionary names": len(names),
        "dictionary names of several concepts": int((np.bincount(members[:, 1]) > 1).sum()),
    }
    if one_concept:
        members = members[left_to_one(members, keep_last)]
        counts["concepts that are left without a name"] = len(concepts) - len(
            np.unique(members[:, 0])
        )
    return NameSet(names, concepts, members, counts)
