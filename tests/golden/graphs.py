"""What a graph consists of, as rows that a test writes by hand."""

from __future__ import annotations

from typing import Any

from kg.graph import SCHEMAS, KnowledgeGraph


def list_parts(graph: KnowledgeGraph) -> dict[str, Any]:
    """Every row of every part in order, and the manifest; parts without a row and counts of
    nothing are left out."""
    parts = {
        part: list(map(tuple, map(dict.values, getattr(graph, part).to_pylist())))
        for part in SCHEMAS
    }
    left_out = {why: count for why, count in graph.manifest.get("left_out", {}).items() if count}
    facts = graph.manifest | {"left_out": left_out}
    return {key: value for key, value in (parts | facts).items() if value}
