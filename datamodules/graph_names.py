"""Names of knowledge graphs, of some languages and kinds, that encoders are trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.files import InputError
from core.reading import lines, sha256
from core.values import split_commas
from kg.graph import KnowledgeGraph, fingerprint


@dataclass(frozen=True, kw_only=True)
class NameSource:
    """Which names are read.

    Args:
        languages: Languages of names.
        kinds: Kinds of names. Default: all.
        exclude_names: File of names to leave out, one a line, in any case.
    """

    languages: Sequence[str] = ("en",)
    kinds: Sequence[str] | None = None
    exclude_names: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "languages", split_commas(self.languages))
        object.__setattr__(self, "kinds", split_commas(self.kinds or ()) or None)

    def select_names(self, table: pa.Table) -> pa.Table:
        """The names of the languages and kinds."""
        keep = pc.is_in(table["language"], value_set=pa.array(self.languages, pa.string()))
        if self.kinds is not None:
            kinds = pa.array(self.kinds, pa.string())
            keep = pc.and_(keep, pc.is_in(table["kind"], value_set=kinds))
        return table.filter(keep)

    def describe(self, graphs: Sequence[str]) -> dict[str, Any]:
        """What distinguishes these names of `graphs` from others, for a recipe."""
        return {
            "graphs": [fingerprint(graph) for graph in graphs],
            "languages": self.languages,
            "kinds": self.kinds,
            "exclude_names": describe_list(self.exclude_names),
        }

    def report_no_names(self, graphs: Sequence[str]) -> InputError:
        """The error for graphs of which no name is left."""
        languages: set[str] = set()
        for graph in graphs:
            languages.update(KnowledgeGraph.load(graph).names["language"].unique().to_pylist())
        return InputError(
            f"{', '.join(graphs)}: no name is left of languages {', '.join(self.languages)}"
            f" and kinds {', '.join(self.kinds) if self.kinds else 'all'}; the graphs' languages"
            f" are {', '.join(sorted(languages)) or 'none'}"
        )


def read_list(path: str | None) -> list[str]:
    """The lines of a file, none without one."""
    return [] if path is None else [line for _, line in lines(path) if line.strip()]


def describe_list(path: str | None) -> Any:
    """The checksum of a file of lines, for a recipe; without lines, none."""
    return read_list(path) and sha256(str(path))


def shuffle_rich(
    concept: np.ndarray, size: np.ndarray, ids: pa.Array, seed: int
) -> list[tuple[int, int]]:
    """(place in `concept`, a byte) of each concept with three names, or as many as any has, in an
    order that depends on `seed` and each concept's id alone.

    concept, size (concepts,): numbers in `ids`, and the count of their names.
    """
    keys = {}
    for place in np.flatnonzero(size >= min(3, size.max())).tolist():
        text = f"{seed}\t{ids[int(concept[place])].as_py()}"
        keys[place] = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return [(place, keys[place][-1]) for place in sorted(keys, key=lambda place: keys[place])]


def number_texts(text: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """(the distinct strings, sorted; the number of each row's string)."""
    names = pc.unique(text)
    names = names.take(pc.sort_indices(names))
    return names, pc.index_in(text, value_set=names).to_numpy().astype(np.int64)
