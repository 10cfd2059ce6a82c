"""KnowledgeGraph: entities, their names and definitions, and triples; on disk a folder of Parquet
files and a manifest.

    entities     id, name, type               one row per entity; its position is its index
                                              everywhere
    names        id, name, kind, language, source   every name, the preferred one included
    definitions  id, text
    triples      head, relation, tail         entity ids and a relation label
    equivalences head, relation, tail         pairs that mean the same thing (aliases that are
                                              entities, brand and generic)

Equivalences are separate so that nothing that learns from triples (embeddings, PageRank, templates)
ever sees the pairs that an evaluation asks for. A graph without any is saved without the file and
has the fingerprint it always had.

Arrow tables hold all of it: the full UMLS Metathesaurus fits in a few GB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from core.arrays import read_table
from core.artifact import Artifact
from core.choices import list_known
from core.files import InputError
from core.json_files import digest

FORMAT = 1
GRAPH = Artifact("knowledge graph", "kepl graph build --help", FORMAT, keys=("counts",))
SCHEMAS = {
    "entities": pa.schema([("id", pa.string()), ("name", pa.string()), ("type", pa.string())]),
    "names": pa.schema([(c, pa.string()) for c in ("id", "name", "kind", "language", "source")]),
    "definitions": pa.schema([("id", pa.string()), ("text", pa.string())]),
    "triples": pa.schema([("head", pa.string()), ("relation", pa.string()), ("tail", pa.string())]),
    "equivalences": pa.schema(
        [("head", pa.string()), ("relation", pa.string()), ("tail", pa.string())]
    ),
}
REFERENCES = (
    ("names", "id"),
    ("definitions", "id"),
    ("triples", "head"),
    ("triples", "tail"),
    ("equivalences", "head"),
    ("equivalences", "tail"),
)
#: How well a name kind represents its entity, best first; kinds that are not listed come last.
KINDS = (
    "preferred",
    "exact",
    "synonym",
    "symbol",
    "plural",
    "uk_spelling",
    "layperson",
    "narrow",
    "broad",
    "related",
    "abbreviation",
    "obsolete",
)


def split_types(types: str) -> frozenset[str]:
    """The types of an entity or a mention that has several, `Finding|Disease`, in lower case."""
    return frozenset(name.strip().casefold() for name in types.split("|"))


def place_of_kind(kind: str) -> int:
    """The place of a kind of names in KINDS, in whatever case; behind them for any other."""
    kind = kind.lower()
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def check_kinds(kinds: Iterable[str]) -> frozenset[str]:
    """Kinds of names, in lower case. Raises InputError for one that is none of KINDS."""
    chosen = frozenset(kind.strip().lower() for kind in kinds)
    if unknown := sorted(chosen - {*KINDS}):
        raise InputError(f"kinds: no kind of names {unknown[0]!r}; {list_known(unknown[0], KINDS)}")
    return chosen


class Numbers:
    """The position of each of some ids among them: as a dictionary has it, in the bytes of the
    longest id and four, for each."""

    def __init__(self, ids: pa.Array) -> None:
        encoded = np.array(ids.cast(pa.binary()).to_pylist() or [b""])[: len(ids)]
        self._order = np.argsort(encoded).astype(np.int32)
        self._sorted = encoded[self._order]

    def positions(self, ids: Sequence[str]) -> np.ndarray:
        """(len(ids),) int64: the place of each id, -1 for one that is not there."""
        wanted = np.array([identifier.encode() for identifier in ids] or [b""])[: len(ids)]
        if not len(self._sorted):
            return np.full(len(ids), -1)
        place = np.searchsorted(self._sorted, wanted).clip(max=len(self._sorted) - 1)
        return np.where(self._sorted[place] == wanted, self._order[place], -1).astype(np.int64)


@dataclass(eq=False)
class KnowledgeGraph:
    """A graph in memory. `manifest` carries at least source, version and licence (strings).

    Raises InputError when an id is repeated, or a name, definition, triple or equivalence refers to
    an entity that is not there.
    """

    entities: pa.Table
    names: pa.Table
    definitions: pa.Table
    triples: pa.Table
    manifest: dict[str, Any] = field(default_factory=dict)
    equivalences: pa.Table = field(
        default_factory=lambda: pa.Table.from_batches([], SCHEMAS["equivalences"])
    )

    def __post_init__(self) -> None:
        for part, schema in SCHEMAS.items():
            table = getattr(self, part)
            if table.column_names != schema.names:
                raise InputError(
                    f"{part}: expected the columns {schema.names}, got {table.column_names}"
                )
            if table.schema != schema:
                try:
                    setattr(self, part, table.cast(schema))
                except pa.ArrowException as error:
                    raise InputError(
                        f"{part}: expected columns of text, got {table.schema.types} ({error})"
                    ) from error
            for column in schema.names:
                if getattr(self, part).column(column).null_count:
                    raise InputError(
                        f"{part}: column {column} has empty values; every row needs one"
                    )
        if len(pc.unique(self.entities["id"])) != len(self.entities):
            counts = pc.value_counts(self.entities["id"]).to_pylist()
            twice = next(c["values"] for c in counts if c["counts"] > 1)
            raise InputError(f"entities: id {twice!r} occurs more than once; ids must be unique")
        for part, column in REFERENCES:
            places = pc.index_in(getattr(self, part)[column], value_set=self.ids)
            if places.null_count:
                row = int(np.flatnonzero(pc.is_null(places).to_numpy(zero_copy_only=False))[0])
                raise InputError(
                    f"{part}: row {row}: unknown entity id"
                    f" {getattr(self, part)[column][row].as_py()!r} in {column}; add it to the"
                    " entities or drop the row"
                )

    @classmethod
    def from_rows(
        cls, parts: Mapping[str, Iterable[Sequence[str]]], manifest: dict[str, Any]
    ) -> KnowledgeGraph:
        """The graph of rows by part, each row in the order of the part's columns; a part that is
        left out has none."""
        tables = {part: rows_table(part, parts.get(part, ())) for part in SCHEMAS}
        return cls(**tables, manifest=manifest)

    def with_rows(
        self, parts: Mapping[str, Iterable[Sequence[str]]], facts: dict[str, Any]
    ) -> KnowledgeGraph:
        """The graph with further rows by part, and further facts in its manifest."""
        whole: dict[str, Any] = {
            part: pa.concat_tables([getattr(self, part), rows_table(part, rows)])
            for part, rows in parts.items()
        }
        return replace(self, **whole, manifest=self.manifest | facts)

    @cached_property
    def ids(self) -> pa.Array:
        """Entity ids by index."""
        return self.entities["id"].combine_chunks()

    @cached_property
    def relations(self) -> list[str]:
        """Relation labels in alphabetical order; their position is their index."""
        return sorted(pc.unique(self.triples["relation"]).to_pylist())

    def rows(self, part: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a part: the values of `columns`, or of all."""
        table = getattr(self, part)
        return zip(*(table[c].to_pylist() for c in columns or table.column_names), strict=True)

    def index_of(self, ids: pa.ChunkedArray | pa.Array) -> np.ndarray:
        """Entity indices (int32) of known ids."""
        return numbers(pc.index_in(ids, value_set=self.ids))

    def triple_indices(self) -> np.ndarray:
        """(triples, 3) int64: head index, relation index, tail index."""
        relation = pc.index_in(
            self.triples["relation"], value_set=pa.array(self.relations, pa.string())
        )
        columns = [
            self.index_of(self.triples["head"]),
            relation.to_numpy(),
            self.index_of(self.triples["tail"]),
        ]
        return np.stack([c.astype(np.int64) for c in columns], axis=1)

    def preferred_first(self) -> pa.Table:
        """The names by entity, in the table's order, the preferred one of each before its
        others."""
        entity = (
            self.names["id"]
            .combine_chunks()
            .dictionary_encode()
            .indices.to_numpy(zero_copy_only=False)
        )
        other = pc.not_equal(self.names["kind"], "preferred").to_numpy()
        return self.names.take(pa.array(np.lexsort((other, entity))))  # a stable sort

    def degree(self) -> np.ndarray:
        """(entities,) int64: the triples that each entity is head or tail of."""
        ends = [self.index_of(self.triples[column]) for column in ("head", "tail")]
        return np.bincount(np.concatenate(ends), minlength=len(self.entities))

    def counts(self) -> dict[str, int]:
        """Rows of each part, and the relations of the triples."""
        parts = {part: len(getattr(self, part)) for part in SCHEMAS}
        equivalences = parts.pop("equivalences")
        return parts | {"relations": len(self.relations), "equivalences": equivalences}

    @property
    def saved_parts(self) -> list[str]:
        """The parts that a saved graph has a file of."""
        return [part for part in SCHEMAS if part != "equivalences" or len(self.equivalences)]

    @cached_property
    def fingerprint(self) -> str:
        """What :func:`fingerprint` says of the graph once it is saved."""
        checksums = {}
        for part in self.saved_parts:
            content = pa.BufferOutputStream()
            pq.write_table(getattr(self, part), content, compression="zstd")
            checksums[f"{part}.parquet"] = hashlib.sha256(content.getvalue()).hexdigest()
        return digest(checksums)

    def save(self, folder: str | Path) -> Path:
        """Write the graph to `folder`, whole or not at all. Returns the folder."""
        folder = Path(folder)
        parts = self.saved_parts
        manifest = self.manifest | {"format": FORMAT, "counts": self.counts()}
        with GRAPH.create(folder, manifest) as partial:
            for part in parts:
                pq.write_table(getattr(self, part), partial / f"{part}.parquet", compression="zstd")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> KnowledgeGraph:
        """The graph in `folder`. Raises InputError when a file is missing or is not what the
        manifest says."""
        folder = Path(folder)
        manifest = GRAPH.manifest(folder)
        optional = {"equivalences.parquet"} - manifest["sha256"].keys()
        files = [f"{part}.parquet" for part in SCHEMAS]
        files = [name for name in files if name not in optional or (folder / name).exists()]
        GRAPH.check(folder, manifest, files)
        tables = {
            name.removesuffix(".parquet"): read_table(folder / name, again="Build the graph again.")
            for name in files
        }
        return cls(**tables, manifest=manifest)


def numbers(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """An Arrow column of whole numbers without gaps. Its own to_numpy imports pandas, a quarter of
    the start of `kepl link`."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    dtype = np.dtype(str(whole.type))
    return (
        np.frombuffer(whole.buffers()[1], dtype, len(whole), dtype.itemsize * whole.offset)
        if len(whole)
        else np.empty(0, dtype)
    )


def table(part: str, rows: dict[str, Any]) -> pa.Table:
    """A table of the graph's schema for `part` from columns of strings."""
    return pa.table({k: pa.array(v, pa.string()) for k, v in rows.items()}, schema=SCHEMAS[part])


def rows_table(part: str, rows: Iterable[Sequence[str]]) -> pa.Table:
    """A table of the graph's schema for `part` from rows, in the order of its columns."""
    rows = list(rows)
    columns = {}
    for place, name in enumerate(SCHEMAS[part].names):
        columns[name] = [row[place] for row in rows]
    return table(part, columns)


def fingerprint(folder: str | Path) -> str:
    """One digest that names a saved graph's content. Raises InputError when there is no graph in
    the folder."""
    return digest(GRAPH.manifest(folder)["sha256"])
