"""A chain of this project (inference.chain). options: graph (folder), chain, nil, linker (its
options by name)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def make(
    names: Path, options: dict[str, Any]
) -> Callable[[Sequence[str]], list[list[tuple[int, int, str | None]]]]:
    """See benchmarks.peers.worker."""
    from inference.chain import Pipeline

    pipeline = Pipeline(options["graph"], options["chain"], options["nil"], 1, **options["linker"])
    pipeline.prepare()

    def link(texts: Sequence[str]) -> list[list[tuple[int, int, str | None]]]:
        linked = pipeline.link(texts)
        return [[(m.start, m.end, m.entity) for m in mentions] for mentions in linked]

    return link
