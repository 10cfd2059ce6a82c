"""The names of graphs by concept: which are read, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamodules.graph_names import NameSource, number_texts, read_list
from datamodules.sapbert.alike import normalise_names, unite_concepts
from kg.graph import KnowledgeGraph

#: relation -> whether its tail is the trade concept (else its head is)
TRADE = {"has_tradename": True, "tradename_of": False}


def _read_list(path: str | None) -> pa.Array:
    """The lines of a file, none without one."""
    return pa.array(read_list(path), pa.string())


@dataclass(frozen=True, kw_only=True)
class PairSource(NameSource):
    """Which names are read, and whose they become.

    Args:
        exclude_concepts: File of ids of concepts to leave out, one a line.
        trade_names: Add the names of a trade concept to its ingredient (UMLS).
        unite: Unite concepts of different graphs that have the same name.
    """

    exclude_concepts: str | None = None
    trade_names: bool = True
    unite: bool = False


class _Rows(NamedTuple):
    """Names of graphs, one a row."""

    owner: np.ndarray  # concept of each
    text: pa.ChunkedArray
    language: np.ndarray  # a bit of each


class Names(NamedTuple):
    concepts: pa.Array  # ids
    names: pa.Array  # distinct strings, sorted
    member: np.ndarray  # (rows, 2) concept, name; sorted, distinct
    spoken: np.ndarray  # (names,) the languages of each, a bit of each
    counts: dict[str, int]


def _read_rows(
    graphs: list[KnowledgeGraph],
    source: PairSource,
    concepts: pa.Array,
    united: np.ndarray,
    counts: dict[str, int],
) -> _Rows:
    """The names of the languages and kinds of `source`; `united` is the united concept of each."""
    languages = pa.array(source.languages, pa.string())
    owners, texts, bits = [], [], []
    for graph in graphs:
        table = graph.names
        selected = source.select_names(table)
        counts["names"] += len(table)
        counts["names of other languages or kinds"] += len(table) - len(selected)
        owners.append(united[pc.index_in(selected["id"], value_set=concepts).to_numpy()])
        texts += normalise_names(selected["name"]).chunks
        language = pc.index_in(selected["language"], value_set=languages)
        bits.append(1 << language.to_numpy().astype(np.int64))
    owner = np.concatenate(owners).astype(np.int64)
    return _Rows(owner, pa.chunked_array(texts, pa.string()), np.concatenate(bits))


def _drop_rows(rows: _Rows, drop: np.ndarray, reason: str, counts: dict[str, int]) -> _Rows:
    """`rows` without those to drop, which are counted under `reason`."""
    counts[reason] = int(drop.sum())
    keep = ~drop
    return _Rows(rows.owner[keep], rows.text.filter(pa.array(keep)), rows.language[keep])


def _trade_concepts(
    graphs: list[KnowledgeGraph], concepts: pa.Array, united: np.ndarray
) -> np.ndarray:
    """(rows, 2) ingredient, trade concept; sorted, distinct."""
    parts = [np.zeros((0, 2), np.int64)]
    for graph in graphs:
        for relation, tail_is_trade in TRADE.items():
            trades = graph.triples.filter(pc.equal(graph.triples["relation"], relation))
            columns = ("head", "tail") if tail_is_trade else ("tail", "head")
            ends = [pc.index_in(trades[c], value_set=concepts).to_numpy() for c in columns]
            parts.append(united[np.stack(ends, 1)])
    return np.unique(np.concatenate(parts), axis=0).astype(np.int64)


def read_names(folders: Sequence[str], source: PairSource) -> Names:
    """The names of the graphs and whose they are."""
    counts = {"names": 0, "names of other languages or kinds": 0}
    graphs = [KnowledgeGraph.load(folder) for folder in folders]
    concepts = pc.unique(pa.chunked_array([graph.ids for graph in graphs]))
    each = np.arange(len(concepts))
    united = unite_concepts(graphs, concepts) if source.unite else each
    rows = _read_rows(graphs, source, concepts, united, counts)
    traded = _trade_concepts(graphs if source.trade_names else [], concepts, united)
    if source.unite:
        counts["concepts united with one of an earlier graph"] = int((united != each).sum())
    rows = _drop_rows(rows, pc.equal(rows.text, "").to_numpy(), "empty names", counts)
    listed = pc.is_in(rows.text, value_set=normalise_names(_read_list(source.exclude_names)))
    rows = _drop_rows(rows, listed.to_numpy(), "names that --exclude_names lists", counts)
    excluded = pc.index_in(_read_list(source.exclude_concepts), value_set=concepts).drop_null()
    out = united[excluded.to_numpy()]
    reason = "names of concepts that --exclude_concepts lists"
    rows = _drop_rows(rows, np.isin(rows.owner, out), reason, counts)
    if not len(rows.owner):
        raise source.report_no_names(folders)
    names, number = number_texts(rows.text)
    member = np.unique(rows.owner << 32 | number)
    spoken = np.zeros(len(names), np.int64)
    np.bitwise_or.at(spoken, number, rows.language)
    counts["names repeated in their concept"] = len(rows.owner) - len(member)
    if len(traded):
        before = len(member)
        member = _with_trade_names(member, traded, out)
        counts["trade names given to ingredients"] = len(member) - before
    pairs = np.stack([member >> 32, member & 0xFFFFFFFF], 1)
    return Names(concepts, names, pairs, spoken, counts)


def row_ranges(begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The row numbers of ranges that begin at `begin` and have `size` rows, end to end."""
    return np.arange(size.sum()) - np.repeat(size.cumsum() - size, size) + np.repeat(begin, size)


def _with_trade_names(member: np.ndarray, traded: np.ndarray, out: np.ndarray) -> np.ndarray:
    """`member` (concept << 32 | name, sorted) and, for each (ingredient, trade concept), the
    latter's names to the former."""
    traded = traded[~np.isin(traded[:, 0], out)]
    owner = member >> 32
    begin, end = (np.searchsorted(owner, traded[:, 1], side) for side in ("left", "right"))
    count = end - begin
    place = row_ranges(begin, count)
    concept_and_name = np.repeat(traded[:, 0], count) << 32 | (member[place] & 0xFFFFFFFF)
    return np.unique(np.concatenate([member, concept_and_name]))
