"""What a graph says of one entity: names, definition, neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from kg.graph import KnowledgeGraph

MOST = 30  # neighbours, and names, that are returned


class Entities:
    """Looks entities up by id, in O(its names and triples)."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        self.ids: list[str] = graph.ids.to_pylist()
        self.row = {entity: row for row, entity in enumerate(self.ids)}
        self.names = _Rows(graph.index_of(graph.names["id"]), len(self.ids))
        self.definitions = _Rows(graph.index_of(graph.definitions["id"]), len(self.ids))
        triples = graph.triple_indices()  # (T, 3) head, relation, tail
        self.triples = triples
        self.out, self.into = (
            _Rows(triples[:, 0], len(self.ids)),
            _Rows(triples[:, 2], len(self.ids)),
        )

    def about(self, entity: str) -> dict[str, Any] | None:
        """Names, definition, neighbours (MOST of each at most) of an entity; None when the graph
        has none of this id."""
        row = self.row.get(entity)
        if row is None:
            return None
        graph = self.graph
        names = self.names.positions(row)
        definition = self.definitions.positions(row)
        neighbours = [self._neighbour(i, 2, "out") for i in self.out.positions(row)[:MOST]]
        neighbours += [
            self._neighbour(i, 0, "in") for i in self.into.positions(row)[: MOST - len(neighbours)]
        ]
        return {
            "id": entity,
            "name": graph.entities["name"][row].as_py(),
            "type": graph.entities["type"][row].as_py(),
            "names": [graph.names["name"][int(i)].as_py() for i in names[:MOST]],
            "definition": graph.definitions["text"][int(definition[0])].as_py()
            if len(definition)
            else None,
            "neighbours": neighbours,
            "triples": len(self.out.positions(row)) + len(self.into.positions(row)),
        }

    def _neighbour(self, triple: int, place: int, direction: str) -> dict[str, Any]:
        other = int(self.triples[triple, place])
        relation = self.graph.relations[int(self.triples[triple, 1])]
        return {
            "relation": relation,
            "direction": direction,
            "id": self.ids[other],
            "name": self.graph.entities["name"][other].as_py(),
        }


class _Rows:
    """Which rows of a table belong to an entity."""

    def __init__(self, owner: np.ndarray, count: int) -> None:
        self.order = np.argsort(owner, kind="stable")
        self.first = np.searchsorted(owner[self.order], np.arange(count + 1))

    def positions(self, entity: int) -> np.ndarray:
        return self.order[self.first[entity] : self.first[entity + 1]]
