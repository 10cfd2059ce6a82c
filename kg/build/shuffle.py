"""A graph that knows nothing: its triples, permuted.   kepl graph shuffle GRAPH --out FOLDER

The tails of each relation are exchanged among its triples, within the tails' types: every entity
keeps its names, its type and how often it is head and tail of each relation. A permuted triple that
would join an entity with itself is exchanged again where that is possible. Equivalences stay: no
vector is made of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from core.outputs import check_no_input
from kg.graph import GRAPH, SCHEMAS, KnowledgeGraph, fingerprint

#: how often triples of an entity with itself are exchanged again
TRIES = 20


def exchange_tails(
    heads: np.ndarray, tails: np.ndarray, kind: np.ndarray, seed: int = 0
) -> np.ndarray:
    """(n,) the tails, permuted among the rows of one `kind`; next to no row has its head as
    tail."""
    rng = np.random.default_rng(seed)
    mixed = tails.copy()
    order = np.argsort(kind, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
        mixed[rows] = tails[rng.permutation(rows)]
        for _ in range(TRIES):
            loops = rows[mixed[rows] == heads[rows]]
            if not len(loops) or len(rows) < 2:
                break
            others = rng.choice(rows, len(loops))
            for first, other in zip(loops.tolist(), others.tolist(), strict=True):
                mixed[[first, other]] = mixed[[other, first]]
    return mixed


def shuffle_graph(graph: str, out: str, seed: int = 0, fresh: bool = False) -> Path:
    """Write a graph whose triples are permuted: within relation and type, with every degree kept.
    Returns its folder.

    Args:
        graph: Folder of a knowledge graph.
        out: Folder for the permuted one; a complete one of the same graph and seed is kept.
        seed: Of the permutation.
        fresh: Write it again.

    Raises InputError for a graph that cannot be read, or an `out` that is the graph.
    """
    folder = Path(out)
    check_no_input(folder, [Path(graph)])
    settings = {"permuted": fingerprint(graph), "seed": seed}
    if GRAPH.is_kept(folder, settings, fresh):
        return folder
    whole = KnowledgeGraph.load(graph)
    triples = whole.triples
    head, tail = (whole.index_of(triples[column]) for column in ("head", "tail"))
    relation = np.unique(triples["relation"].to_numpy(), return_inverse=True)[1]
    types = np.unique(whole.entities["type"].to_numpy(), return_inverse=True)[1]
    kind = relation.astype(np.int64) * (types.max(initial=0) + 1) + types[tail]
    mixed = exchange_tails(head, tail, kind, seed)
    columns = [triples["head"], triples["relation"], whole.ids.take(pa.array(mixed))]
    permuted = KnowledgeGraph(
        whole.entities,
        whole.names,
        whole.definitions,
        pa.table(columns, schema=SCHEMAS["triples"]),
        whole.manifest | settings,
        whole.equivalences,
    )
    permuted.save(folder)
    same = int((mixed == tail).sum())
    loops = int((mixed == head).sum())
    print(
        f"{folder}: {len(mixed):,} triples permuted within relation and type;"
        f" {same:,} ({same / max(len(mixed), 1):.1%}) have the tail they had, {loops:,} their head"
    )
    return folder
