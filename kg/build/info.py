"""What is in a graph, counted (`kepl graph info`)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any


def graph_info(folder: Path) -> dict[str, Any]:
    """Counts of a graph, of its types and relations; where it comes from. Raises InputError."""
    from kg.graph import KnowledgeGraph

    graph = KnowledgeGraph.load(folder)
    about = {k: v for k, v in graph.manifest.items() if k in ("source", "version", "licence")}
    counts = {
        "types": Counter(graph.entities["type"].to_pylist()),
        "relations of triples": Counter(graph.triples["relation"].to_pylist()),
        "languages": Counter(graph.names["language"].to_pylist()),
    }
    return (
        about
        | graph.counts()
        | {name: dict(counter.most_common()) for name, counter in counts.items()}
    )


def format_info(info: dict[str, Any], most: int = 20) -> str:
    """The counts as aligned lines; of types and relations the `most` frequent ones."""
    lines = []
    for key, value in info.items():
        if not isinstance(value, dict):
            lines.append(f"{key:<20}{value:,}" if isinstance(value, int) else f"{key:<20}{value}")
            continue
        entries = list(value.items())
        lines += [f"{key}:", *(f"  {count:>12,}  {name}" for name, count in entries[:most])]
        lines += [f"  {'':>12}  and {len(entries) - most:,} more"] if len(entries) > most else []
    return "\n".join(lines)
