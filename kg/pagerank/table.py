"""The best neighbours of every entity as a memory-mapped table."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from core.artifact import Artifact
from core.files import InputError
from core.reading import excerpt, lines, sha256
from kg.entity_rows import check_entities, read_ids, write_ids
from kg.graph import KnowledgeGraph, fingerprint
from kg.pagerank.ppr import DENSE, personal, personal_steps, ranges
from kg.pagerank.scores import ALPHA, pagerank, weights

DIGITS = 12  #: decimals of a score; what agrees in them is a tie


def best_relations(triples: np.ndarray, entities: int) -> np.ndarray:
    """(pairs, 4) m, k, relation, direction: each entity m with each of its neighbours k once, in
    order.

    Direction is 1 where m is the head and -1 where it is the tail. Of several relations the first
    outgoing one counts, by its index, and an incoming one only without any.
    """
    between_entities = triples[triples[:, 0] != triples[:, 2]]
    ones = np.ones(len(between_entities), np.int64)
    out = np.column_stack([between_entities, ones])
    into = np.column_stack([between_entities[:, ::-1], -ones])
    both = np.concatenate([out, into])[:, [0, 2, 1, 3]]
    both = both[np.lexsort((both[:, 2], -both[:, 3], both[:, 1], both[:, 0]))]
    new = np.ones(len(both), bool)
    new[1:] = (both[1:, :2] != both[:-1, :2]).any(axis=1)
    return both[new]


def top(pairs: np.ndarray, score: np.ndarray, entities: int, k: int) -> np.ndarray:
    """(entities, k, 3) int32: entity, relation, direction of the `k` neighbours with the best
    scores, best first.

    `pairs` (n, 4) as best_relations returns them, `score` (n,). Ties go to the neighbour that comes
    first in the graph. Empty places hold -1, 0, 0.
    """
    order = np.lexsort((pairs[:, 1], -np.round(score, DIGITS), pairs[:, 0]))
    ordered = pairs[order]
    rank = ranges(np.bincount(ordered[:, 0], minlength=entities))
    table = np.zeros((entities, k, 3), np.int32)
    table[:, :, 0] = -1
    chosen = rank < k
    table[ordered[chosen, 0], rank[chosen]] = ordered[chosen, 1:]
    return table


NEIGHBOURS = Artifact("neighbour table", "kepl graph neighbours --help", verified="neighbours.npy")


@dataclass(eq=False)
class NeighbourTable:
    """The best neighbours of every entity of a graph.

    rows        (entities, k, 3) int32, memory-mapped when loaded: entity index or -1, relation
                index, direction (1 where the row's entity is the head, -1 where it is the tail, 0
                in an empty place), best first
    entity_ids, relation_ids    the graph's, by index
    manifest    settings, the graph's fingerprint, counts, and what scores may be missing

    Raises InputError when ids and rows do not correspond.
    """

    rows: np.ndarray
    entity_ids: list[str]
    relation_ids: list[str]
    manifest: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rows.ndim != 3 or self.rows.shape[2] != 3 or self.rows.dtype != np.int32:
            raise InputError(
                f"rows: expected (entities, k, 3) int32, got {self.rows.shape} {self.rows.dtype}"
            )
        if len(self.rows) != len(self.entity_ids):
            raise InputError(
                f"rows: {len(self.rows)} rows but {len(self.entity_ids)} ids; they must correspond"
                " one to one"
            )

        # the same memory; indexing a memmap object costs more than the lookup
        self._plain = np.asarray(self.rows)

    @property
    def k(self) -> int:
        return int(self.rows.shape[1])

    def __getitem__(self, entities: np.ndarray) -> np.ndarray:
        """Entity indices (n,), or -1 for no entity -> (n, k, 3) int32."""
        entities = np.asarray(entities)
        rows = self._plain.take(entities, axis=0)
        if (unknown := entities < 0).any():
            rows[unknown] = (-1, 0, 0)
        return rows

    def save(self, folder: str | Path) -> Path:
        """Write ``neighbours.npy``, ids and manifest to `folder`, whole or not at all. Returns the
        folder."""
        with NEIGHBOURS.create(folder, self.manifest) as partial:
            np.save(partial / "neighbours.npy", self.rows)
            write_ids(partial, self.entity_ids, self.relation_ids)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> NeighbourTable:
        """The table in `folder`. Raises InputError when a file is missing or is not what the
        manifest says."""
        folder = Path(folder)
        file = folder / "neighbours.npy"
        manifest = NEIGHBOURS.read(folder)
        entities, relations = read_ids(folder)
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
        return cls(rows, entities, relations, manifest)

    def check_graph(self, ids: pa.Array, graph: str) -> None:
        """Raise InputError unless the rows are the entities `ids` of the graph named `graph`, in
        order."""
        remedy = "Make the table of this graph: kepl graph neighbours --help"
        check_entities("neighbour", self.entity_ids, ids, graph, remedy)


def frequencies(path: str | Path, graph: KnowledgeGraph) -> np.ndarray:
    """(entities,) how often the corpus mentions each entity, from lines ``id<TAB>count``; 0 for an
    entity without line.

    Raises InputError with file and line for a wrong line, an unknown id, an id that occurs twice or
    a count below 0.
    """
    index = {name: i for i, name in enumerate(graph.ids.to_pylist())}
    counts = np.full(len(index), -1.0)
    for number, line in lines(path):
        name, tab, count = line.rpartition("\t")
        if not tab or re.fullmatch("[0-9]{1,12}", count) is None:
            raise InputError(
                f"{path}:{number}: expected 'id<TAB>count', a whole number of at least 0, got"
                f" {excerpt(line)}"
            )
        if name not in index:
            raise InputError(
                f"{path}:{number}: unknown entity id {name!r}; count the mentions of this graph's"
                " entities"
            )
        if counts[index[name]] >= 0:
            raise InputError(f"{path}:{number}: id {name!r} occurs twice; add its counts up")
        counts[index[name]] = int(count)
    return np.maximum(counts, 0)


def _check_settings(
    k: int, alpha: float, n_iter: int | None, dense: int, counts: str | None
) -> None:
    """Raise InputError for settings of :func:`rank` that are out of range."""
    if k < 1 or not 0 < alpha < 1 or dense < 1 or (n_iter is not None and n_iter < 1):
        raise InputError(
            "expected k, dense and n_iter of at least 1 and alpha between 0 and 1, "
            f"got k {k}, alpha {alpha}, n_iter {n_iter}, dense {dense}"
        )
    if counts and n_iter is None:
        raise InputError(
            "counts: they set where the iteration starts, which acts only with n_iter; give it or"
            " drop counts"
        )


def rank(
    graph: str,
    out: str,
    k: int = 10,
    alpha: float = ALPHA,
    n_iter: int | None = None,
    counts: str | None = None,
    dense: int = DENSE,
    fresh: bool = False,
) -> NeighbourTable:
    """Rank the neighbours of every entity by personalised PageRank; save the best `k` of each.

    Args:
        graph: Folder of a graph (kepl graph build, refine or merge).
        out: Folder for the table.
        k: Neighbours of an entity.
        alpha: Probability of a jump.
        n_iter: Steps of the iteration. Default: until it converges.
        counts: File of id<TAB>mentions in the corpus, for Eq. (1); acts with n_iter.
        dense: Most rows of a dense matrix.
        fresh: Make it again even if the same table is there.

    Raises InputError for settings out of range and a graph without entities.
    """
    _check_settings(k, alpha, n_iter, dense, counts)
    settings = {
        "graph": fingerprint(graph),
        "k": k,
        "alpha": alpha,
        "n_iter": n_iter,
        "dense": dense,
    }
    settings["counts"] = sha256(Path(counts)) if counts and Path(counts).is_file() else counts
    if NEIGHBOURS.is_kept(out, {"settings": settings}, fresh):
        stored = NeighbourTable.load(out)
        _print_counts(stored.manifest)
        return stored
    loaded, started = KnowledgeGraph.load(graph), time.perf_counter()
    if not len(loaded.entities):
        raise InputError(f"{graph}: no entities; a neighbour table needs a graph with some")
    frequency = frequencies(counts, loaded) if counts else None
    rows, facts = _rank_neighbours(loaded, k, alpha, n_iter, frequency, dense)
    table = NeighbourTable(
        rows,
        loaded.ids.to_pylist(),
        loaded.relations,
        {
            "settings": settings,
            "graph": settings["graph"],
            "seconds": time.perf_counter() - started,
            **facts,
        },
    )
    table.save(out)
    _print_counts(table.manifest)
    return table


def _rank_neighbours(
    graph: KnowledgeGraph,
    k: int,
    alpha: float,
    n_iter: int | None,
    frequency: np.ndarray | None,
    dense: int,
) -> tuple[np.ndarray, dict[str, Any]]:
    """(the rows of the table, counts for its manifest)."""
    triples, z = graph.triple_indices(), len(graph.entities)
    weight = weights(triples, z)
    scores = (
        personal(weight, alpha, dense)
        if n_iter is None
        else personal_steps(weight, alpha, n_iter, progress=True)
    )
    pairs = best_relations(triples, z)
    score = (1 - 1 / z) * scores.score + pagerank(weight, alpha, n_iter, frequency)[pairs[:, 1]]
    loops = int((triples[:, 0] == triples[:, 2]).sum())
    number = np.diff(weight.indptr)
    facts = {
        "entities": z,
        "without_neighbours": int((number == 0).sum()),
        "with_more_than_k": int((number > k).sum()),
        "left_out": {
            "triples from an entity to itself": loops,
            "triples that stand there twice": len(triples) - loops - int(weight.sum()) // 2,
        },
        "score_missing_at_most": float(scores.missing.max(initial=0)),
    }
    return top(pairs, score, z, k), facts


def _print_counts(facts: dict[str, Any]) -> None:
    print(
        f"{facts['entities']:,} entities, {facts['without_neighbours']:,} without neighbours,"
        f" {facts['with_more_than_k']:,} with more than {facts['settings']['k']};"
        f" {facts['seconds']:.1f} s; no score more than {facts['score_missing_at_most']:.2g} too"
        " small"
    )
    for reason, count in facts["left_out"].items():
        if count:
            print(f"left out: {count:,} {reason}")
