"""Neighbours of the entities that a text mentions: looked up in a memory-mapped table, against
sorted anew for each mention.

reference  as SMedBERT's released code works, written from a description of it: for each mention the
           lists of incoming and outgoing neighbours are put together and sorted by a score of each
           entity; the first K count. In Python, from dictionaries of lists, for every sample
settings   a synthetic graph of the paper's size whose entities are in triples as often as 1 /
           (their rank)^0.9 (hubs), and texts of 40 mentions, drawn as often as they are in triples.
           `evenly` has, beside it, texts whose mentions are drawn evenly: few are hubs, so sorting
           has little to do
ratio      of the times for a text. Both rank by the same score, a global PageRank
equal      the same neighbours with the same relations and directions for every mention
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from kg.pagerank import NeighbourTable, best_relations, pagerank, top, weights

K, MENTIONS = 10, 40
Lists = dict[int, list[tuple[int, int]]]


def synthetic(entities: int, triples: int) -> np.ndarray:
    """(triples, 3) distinct, no loops, one relation for a pair."""
    rng = np.random.default_rng(0)
    chance = 1 / np.arange(1, entities + 1) ** 0.9
    chance /= chance.sum()
    ends = np.stack(
        [rng.choice(entities, triples, p=chance), rng.choice(entities, triples, p=chance)], axis=1
    )
    ends = ends[ends[:, 0] != ends[:, 1]]
    ends = ends[np.unique(np.sort(ends, axis=1), axis=0, return_index=True)[1]]
    return np.stack([ends[:, 0], rng.integers(0, 56, len(ends)), ends[:, 1]], axis=1)


def lists(triples: np.ndarray) -> tuple[Lists, Lists]:
    """(outgoing, incoming): entity -> its (neighbour, relation)."""
    outgoing, incoming = defaultdict(list), defaultdict(list)
    for head, relation, tail in triples.tolist():
        outgoing[head].append((tail, relation))
        incoming[tail].append((head, relation))
    return dict(outgoing), dict(incoming)


def sorted_anew(
    mentions: list[int], outgoing: Lists, incoming: Lists, score: dict[int, float]
) -> np.ndarray:
    """(mentions, K, 3) for one text."""
    rows = np.zeros((len(mentions), K, 3), np.int32)
    rows[:, :, 0] = -1
    for row, entity in zip(rows, mentions, strict=True):
        neighbours = [(k, r, 1) for k, r in outgoing.get(entity, [])] + [
            (k, r, -1) for k, r in incoming.get(entity, [])
        ]
        neighbours.sort(key=lambda neighbour: (-score[neighbour[0]], neighbour[0]))
        for place, neighbour in enumerate(neighbours[:K]):
            row[place] = neighbour
    return rows


def compare_setting(
    name: str,
    texts: np.ndarray,
    table: NeighbourTable,
    outgoing: Lists,
    incoming: Lists,
    score: dict[int, float],
) -> dict[str, Any]:
    started = time.perf_counter()
    wanted = [sorted_anew(mentions, outgoing, incoming, score) for mentions in texts.tolist()]
    reference = (time.perf_counter() - started) / len(texts)
    table[texts[0]]  # the file is in memory from here on, as the dictionaries are
    often = 200
    started = time.perf_counter()
    for _ in range(often):
        for mentions in texts:
            table[mentions]
    ours = (time.perf_counter() - started) / len(texts) / often
    return {
        "setting": name,
        "texts": len(texts),
        "milliseconds": round(1e3 * ours, 4),
        "reference_milliseconds": round(1e3 * reference, 2),
        "ratio": round(reference / ours),
        "equal": all(
            np.array_equal(table[mentions], rows)
            for mentions, rows in zip(texts, wanted, strict=True)
        ),
    }


def measure_speed(
    entities: int = 274_163, triples: int = 4_390_726, texts: int = 10
) -> dict[str, Any]:
    """Compare both. Returns the keys that benchmarks.perf.speed asks for.

    Args:
        entities: Entities; the default is the paper's number.
        triples: Triples; the default is the paper's number.
        texts: Texts of a setting.
    """
    graph = synthetic(entities, triples)
    score = np.round(pagerank(weights(graph, entities)), 12)
    pairs = best_relations(graph, entities)
    outgoing, incoming = lists(graph)
    scores = dict(enumerate(score.tolist()))
    rng = np.random.default_rng(1)
    chance = np.bincount(graph[:, [0, 2]].ravel(), minlength=entities) / graph[:, [0, 2]].size
    drawn = {
        "mentions as often as in triples": rng.choice(entities, (texts, MENTIONS), p=chance),
        "mentions drawn evenly": rng.choice(entities, (texts, MENTIONS)),
    }
    with tempfile.TemporaryDirectory() as place:
        built = NeighbourTable(
            top(pairs, score[pairs[:, 1]], entities, K), [str(i) for i in range(entities)], []
        )
        table = NeighbourTable.load(built.save(Path(place) / "table"))
        hubs, evenly = (
            compare_setting(name, chosen, table, outgoing, incoming, scores)
            for name, chosen in drawn.items()
        )
        megabytes = table.rows.nbytes / 1e6
    return {
        "name": "neighbours",
        "unit": "milliseconds a text",
        "ours": hubs["milliseconds"],
        "reference": hubs["reference_milliseconds"],
        "ratio": hubs["ratio"],
        "equal": hubs["equal"] and evenly["equal"],
        "entities": entities,
        "triples": len(graph),
        "megabytes": round(megabytes, 1),
        "settings": [hubs],
        "evenly": evenly,
    }
