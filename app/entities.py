"""What a graph says of one entity: names, definition, source, neighbours."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np

from kg.graph import KnowledgeGraph
from kg.ids import Ids

MOST = 30  # neighbours, and names of a language, that are returned
#: Prefixes of ids that bioregistry.io leads to the source of: ours -> its own
PREFIXES = {
    "HP": "hp",
    "MONDO": "mondo",
    "DOID": "doid",
    "MESH": "mesh",
    "OMIM": "omim",
    "ORPHA": "orphanet",
    "UMLS": "umls",
    "NCIT": "ncit",
    "SNOMEDCT": "snomedct",
    "SNOMEDCT_US": "snomedct",
    "CHEBI": "chebi",
    "GO": "go",
    "CL": "cl",
    "UBERON": "uberon",
    "EFO": "efo",
    "HGNC": "hgnc",
    "NCBIGENE": "ncbigene",
    "RXNORM": "rxnorm",
    "LOINC": "loinc",
    "ICD10": "icd10",
    "DRUGBANK": "drugbank",
    "WIKIDATA": "wikidata",
}


def source_address(entity: str) -> str | None:
    """The address that leads to an entity's page at its source; None for an id of another kind.

    >>> source_address("HP:0001166")
    'https://bioregistry.io/hp:0001166'
    """
    prefix, colon, local = entity.partition(":")
    pattern = PREFIXES.get(prefix.upper())
    if pattern is None or not colon or not re.fullmatch(r"[A-Za-z0-9._-]+", local):
        return None
    return f"https://bioregistry.io/{pattern}:{local}"


class Entities:
    """Looks entities up by id, in O(its names and triples)."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        self.ids: list[str] = graph.ids.to_pylist()
        self.row = {entity: row for row, entity in enumerate(self.ids)}
        self.spellings = Ids.from_graph(graph)
        self.names = _Rows(graph.index_of(graph.names["id"]), len(self.ids))
        self.definitions = _Rows(graph.index_of(graph.definitions["id"]), len(self.ids))
        same = graph.equivalences
        self.same_heads, self.same_tails = (
            _Rows(graph.index_of(same[side]), len(self.ids)) for side in ("head", "tail")
        )
        triples = graph.triple_indices()  # (T, 3) head, relation, tail
        self.triples = triples
        self.out, self.into = (
            _Rows(triples[:, 0], len(self.ids)),
            _Rows(triples[:, 2], len(self.ids)),
        )

    def about(self, entity: str) -> dict[str, Any] | None:
        """Names (MOST of a language at most), definition, source, equivalent ids, neighbours (MOST
        at most) of an entity; None when the graph has none of this id."""
        entry = self.spellings.entity(entity)
        if entry is None:
            return None
        entity, row, graph = entry, self.row[entry], self.graph
        definition = self.definitions.positions(row)
        neighbours = [self._neighbour(i, 2, "out") for i in self.out.positions(row)[:MOST]]
        neighbours += [
            self._neighbour(i, 0, "in") for i in self.into.positions(row)[: MOST - len(neighbours)]
        ]
        return {
            "id": entity,
            "name": graph.entities["name"][row].as_py(),
            "type": graph.entities["type"][row].as_py(),
            "names": self._names(row),
            "definition": graph.definitions["text"][int(definition[0])].as_py()
            if len(definition)
            else None,
            "source": source_address(entity),
            "same_as": self._equivalents(row),
            "neighbours": neighbours,
            "triples": len(self.out.positions(row)) + len(self.into.positions(row)),
        }

    def _names(self, row: int) -> list[dict[str, str]]:
        """An entity's names, with kind and language."""
        spoken = Counter[str]()
        names = []
        for position in self.names.positions(row):
            name = self.graph.names.slice(int(position), 1).to_pylist()[0]
            spoken[name["language"]] += 1
            if spoken[name["language"]] <= MOST:
                names.append({key: name[key] or "" for key in ("name", "kind", "language")})
        return names

    def _equivalents(self, row: int) -> list[str]:
        """The other ends of an entity's equivalences."""
        table = self.graph.equivalences
        heads = [table["tail"][int(i)].as_py() for i in self.same_heads.positions(row)]
        return heads + [table["head"][int(i)].as_py() for i in self.same_tails.positions(row)]

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
