"""Small graphs whose entities are named by their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kg.graph import KnowledgeGraph, table


def graph(
    types: Mapping[str, str],
    triples: Sequence[tuple[str, str, str]],
    names: Sequence[tuple[str, str, str, str]] = (),
    equivalences: Sequence[tuple[str, str, str]] = (),
    missing: str | None = None,
) -> KnowledgeGraph:
    """Entities by id with their types; `names` (id, name, kind, language) come to the preferred
    ones.

    missing: the type of entities that only triples name.
    """
    known = dict(types)
    if missing is not None:
        known |= {e: missing for head, _, tail in triples for e in (head, tail) if e not in known}
    rows = [(entity, entity, "preferred", "zh") for entity in known] + list(names)
    return KnowledgeGraph(
        entities=table(
            "entities", {"id": list(known), "name": list(known), "type": list(known.values())}
        ),
        names=table(
            "names",
            {c: [r[i] for r in rows] for i, c in enumerate(("id", "name", "kind", "language"))}
            | {"source": ["fake"] * len(rows)},
        ),
        definitions=table("definitions", {"id": [], "text": []}),
        triples=table(
            "triples",
            {c: [t[i] for t in triples] for i, c in enumerate(("head", "relation", "tail"))},
        ),
        equivalences=table(
            "equivalences",
            {c: [t[i] for t in equivalences] for i, c in enumerate(("head", "relation", "tail"))},
        ),
        manifest={"source": "fake", "version": "1", "licence": "none"},
    )


def write(folder: Path, names: Mapping[str, Sequence[str]], kind: str = "disease") -> Path:
    """A graph of entities of one type with these names, the first of each preferred, in a
    folder."""
    made = graph(dict.fromkeys(names, kind), [])
    rows = [
        (entity, name, "exact" if number else "preferred", "en", "fake")
        for entity, own in names.items()
        for number, name in enumerate(own)
    ]
    columns = ("id", "name", "kind", "language", "source")
    preferred = [own[0] for own in names.values()]
    replace(
        made,
        entities=table(
            "entities", {"id": list(names), "name": preferred, "type": [kind] * len(names)}
        ),
        names=table("names", {c: [row[n] for row in rows] for n, c in enumerate(columns)}),
    ).save(folder)
    return folder
