"""Entities of a name, and what a graph says of an entity: `kepl graph find`, `kepl graph show`."""

from __future__ import annotations

import json as jsons
import unicodedata
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.choices import nearest
from core.files import InputError
from kg.graph import KnowledgeGraph
from kg.ids import Ids
from kg.linking.normal import comparable

MOST = 20  #: neighbours of a relation that are shown


def search_key(text: str) -> str:
    """The words of a name without case, accents and punctuation."""
    words = unicodedata.normalize("NFD", comparable(text))
    plain = "".join(c for c in words if not unicodedata.combining(c))
    return " ".join(word for word in plain.split() if any(map(str.isalnum, word)))


class Found(NamedTuple):
    """Entities of a name, as records, and how many there are."""

    entities: list[dict[str, Any]]
    total: int


class NameSearch:
    """The names of a graph, for one search after the other."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        names = graph.names["name"].to_pylist()
        self.keys = pa.array([search_key(name) for name in names], pa.string())
        self.owners = graph.index_of(graph.names["id"])

    def find(self, name: str, most: int | None = None) -> Found:
        """The entities that have a name, whatever its case, or whose names contain it; those with
        exactly the name first, then by the length of their shortest such name. Raises InputError
        for a name without a letter or digit."""
        wanted = search_key(name)
        if not wanted:
            raise InputError(f"name {name!r}: expected a name, or a part of one")
        rows = pc.indices_nonzero(pc.match_substring(self.keys, wanted)).to_numpy()
        keys = self.keys.take(pa.array(rows))
        exact = pc.equal(keys, wanted).to_numpy(zero_copy_only=False)
        order = np.lexsort((self.owners[rows], pc.utf8_length(keys).to_numpy(), ~exact))
        _, first = np.unique(self.owners[rows][order], return_index=True)  # an entity's best name
        best = order[np.sort(first)]
        records = [self._describe(int(rows[i]), bool(exact[i])) for i in best[:most]]
        return Found(records, len(best))

    def _describe(self, row: int, exact: bool) -> dict[str, Any]:
        """{id, name, type, found, kind, exact} of the entity of a name."""
        entity = self.graph.entities.slice(int(self.owners[row]), 1).to_pylist()[0]
        name = self.graph.names.slice(row, 1).to_pylist()[0]
        about = {key: entity[key] for key in ("id", "name", "type")}
        return about | {"found": name["name"], "kind": name["kind"], "exact": exact}


def _select_rows(table: pa.Table, column: str, value: str) -> pa.Table:
    return table.filter(pc.equal(table[column], value))


def describe_entity(graph: KnowledgeGraph, entity: str) -> dict[str, Any]:
    """What a graph says of an entity: name, type, names by kind, definition, neighbours by
    relation, equivalent ids. Raises InputError for an id that the graph lacks."""
    identifier = Ids.from_graph(graph).entity(entity)
    if identifier is None:
        near = nearest(entity, graph.ids.to_pylist()[:50_000])
        raise InputError(f"no entity {entity!r} in this graph; {near}kepl graph find looks by name")
    (row,) = _select_rows(graph.entities, "id", identifier).to_pylist()
    names = _select_rows(graph.names, "id", identifier).select(["name", "kind", "language"])
    texts = _select_rows(graph.definitions, "id", identifier)["text"].to_pylist()
    titles = dict(graph.rows("entities", "id", "name"))
    neighbours: dict[str, list[str]] = defaultdict(list)
    same: list[str] = []
    for side, other, arrow in (("head", "tail", "{}"), ("tail", "head", "{} of")):
        for triple in _select_rows(graph.triples, side, identifier).to_pylist():
            place = triple[other]
            neighbours[arrow.format(triple["relation"])].append(f"{place} {titles[place]}")
        same += _select_rows(graph.equivalences, side, identifier)[other].to_pylist()
    return {
        "id": identifier,
        "name": row["name"],
        "type": row["type"],
        "names": names.to_pylist(),
        "definition": texts[0] if texts else None,
        "neighbours": dict(neighbours),
        "same as": same,
    }


def format_entity(about: dict[str, Any]) -> str:
    """What :func:`describe_entity` found, as lines."""
    lines = [f"{about['id']}  {about['name']}  [{about['type'] or 'no type'}]"]
    lines += [f"  {n['kind']:<12}{n['name']}  ({n['language']})" for n in about["names"]]
    lines += [f"  definition  {about['definition']}"] if about["definition"] else []
    for relation, places in about["neighbours"].items():
        lines.append(f"  {relation} ({len(places):,})")
        lines += [f"    {place}" for place in places[:MOST]]
        lines += [f"    … and {len(places) - MOST:,} more"] if len(places) > MOST else []
    lines += [f"  same as     {', '.join(about['same as'])}"] if about["same as"] else []
    return "\n".join(lines)


def find_name(folder: Path, name: str, top: int = 20, json: bool = False) -> str:
    """List the entities that have a name, or whose names contain it.

    Args:
        folder: Folder of the graph.
        name: Name, or a part of one; case, accents and punctuation do not count.
        top: Entities that are listed.
        json: Print JSON lines.

    Examples:
      kepl graph find graph "marfan"
    """
    hits, count = NameSearch(KnowledgeGraph.load(folder)).find(name, top)
    if not count:
        raise InputError(f"{folder}: no entity has a name with {name!r}")
    if json:
        return "\n".join(jsons.dumps(row, ensure_ascii=False) for row in hits)
    lines = [
        f"{row['id']}  {row['name']}  [{row['type'] or 'no type'}]"
        + ("" if row["found"] == row["name"] else f"  by {row['kind']} {row['found']!r}")
        for row in hits
    ]
    return "\n".join([*lines, *([f"… and {count - top:,} more"] if count > top else [])])


def show_entity(folder: Path, entity: str, json: bool = False) -> str:
    """Show what a graph says of an entity: names, definition, neighbours, equivalent ids.

    Args:
        folder: Folder of the graph.
        entity: Its id, in any spelling that links accept.
        json: Print one JSON object.

    Examples:
      kepl graph show graph HP:0001166
    """
    about = describe_entity(KnowledgeGraph.load(folder), entity)
    return jsons.dumps(about, ensure_ascii=False) if json else format_entity(about)
