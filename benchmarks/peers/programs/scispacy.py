"""scispaCy's candidate generator (Neumann et al., BioNLP 2019) over the graph, behind a detector of
this project.

scispaCy's own detectors are downloads. options: graph (folder), detector (as in a chain),
threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def make(
    names: Path, options: dict[str, Any]
) -> Callable[[Sequence[str]], list[list[tuple[int, int, str | None]]]]:
    """See benchmarks.peers.worker."""
    from inference.chain import Pipeline
    from kg.graph import KnowledgeGraph
    from kg.linking.passage import Passage
    from kg.linking.scispacy import NearestNames

    pipeline = Pipeline(options["graph"], f"{options['detector']} > names")
    near = NearestNames.from_graph(
        KnowledgeGraph.load(options["graph"]), threshold=options["threshold"]
    )

    def link(texts: Sequence[str]) -> list[list[tuple[int, int, str | None]]]:
        detected = pipeline.detect([Passage(text) for text in texts])
        spans = [(n, m.start, m.end) for n, mentions in enumerate(detected) for m in mentions]
        candidates = near.best([texts[n][start:end] for n, start, end in spans])
        result: list[list[tuple[int, int, str | None]]] = [[] for _ in texts]
        for (number, start, end), best in zip(spans, candidates, strict=True):
            result[number].append((start, end, best and best[0]))
        return result

    return link
