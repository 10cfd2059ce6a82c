"""Names of knowledge graphs, of some languages and kinds, that encoders are trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.files import InputError, lines
from kg.graph import KnowledgeGraph


@dataclass(frozen=True)
class Source:
    """Which names are read, and of which graphs."""

    graphs: list[str]
    languages: tuple[str, ...]
    kinds: tuple[str, ...] | None
    exclude_names: str | None

    def select_names(self, table: pa.Table) -> pa.Table:
        """The names of the languages and kinds."""
        keep = pc.is_in(table["language"], value_set=pa.array(self.languages, pa.string()))
        if self.kinds is not None:
            kinds = pa.array(self.kinds, pa.string())
            keep = pc.and_(keep, pc.is_in(table["kind"], value_set=kinds))
        return table.filter(keep)

    def report_no_names(self, graphs: list[KnowledgeGraph]) -> InputError:
        """The error for graphs of which no name is left."""
        heard = {name for g in graphs for name in pc.unique(g.names["language"]).to_pylist()}
        return InputError(
            f"{', '.join(self.graphs)}: no name is left of languages {', '.join(self.languages)}"
            f" and kinds {', '.join(self.kinds) if self.kinds else 'all'}; the graphs' languages"
            f" are {', '.join(sorted(heard)) or 'none'}"
        )


def read_list(path: str | None) -> list[str]:
    """The lines of a file, none without one."""
    return [] if path is None else [line for _, line in lines(path) if line.strip()]


def number_texts(text: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """(the distinct strings, sorted; the number of each row's string)."""
    names = pc.unique(text)
    names = names.take(pc.sort_indices(names))
    return names, pc.index_in(text, value_set=names).to_numpy().astype(np.int64)
