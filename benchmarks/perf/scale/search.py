"""Search among many names: bytes on disk, seconds to load, queries a second, recall and memory of
each backend of kg.search.index.

    kepl measure search --items 1000000

The vectors are synthetic: unit length, in clusters of some 1,000, which differ from their centre in
32 directions. The queries come from the same clusters and are not in the index. Each backend is
built in one process and searched in another, with one thread; memory is what a process has for
itself (RssAnon), libraries included: what is memory-mapped does not count.
"""

from __future__ import annotations

import json as jsons
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.perf.speed._memory import resident, sampling
from kg.search.exact import BLOCK
from kg.search.index import EXACT, RECALL, Index, extend, write

BACKENDS = ("torch", "flat", "ivf-sq8", "ivf-pq", "hnsw")
#: rows of a cluster, the numbers that distinguish them, and how far they are apart
CLUSTER, DIRECTIONS, SPREAD = 1000, 32, 0.5
SECONDS = 1.0  #: that queries are repeated for
SYNTHETIC: dict[str, Any] = {"names": "synthetic"}
T = TypeVar("T")


def synthetic(items: int, size: int, seed: int = 0, is_held_out: bool = False) -> Iterator[Tensor]:
    """(items, size) vectors of unit length in blocks; `is_held_out`: others of the same clusters,
    whose number comes from `items`."""
    common = np.random.default_rng(seed)
    centres = (
        torch.from_numpy(common.standard_normal((max(1, items // CLUSTER), size), np.float32))
        / size**0.5
    )
    directions = (
        torch.from_numpy(common.standard_normal((DIRECTIONS, size), np.float32))
        / (DIRECTIONS * size) ** 0.5
    )
    for start in range(0, items, BLOCK):
        random = np.random.default_rng([seed, start, is_held_out])
        count = min(BLOCK, items - start)
        rows = centres[torch.from_numpy(random.integers(len(centres), size=count))]
        apart = (
            torch.from_numpy(random.standard_normal((count, DIRECTIONS), np.float32)) @ directions
        )
        yield normalize(rows + SPREAD * apart, dim=1)


def _alone(function: Callable[..., T], *arguments: Any) -> T:
    """The value that a function returns in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _peak(work: Callable[[], T]) -> tuple[T, float]:
    """(the value of `work`, the most MB that this process had for itself meanwhile)."""
    most = resident("RssAnon")

    def watch() -> None:
        nonlocal most
        most = max(most, resident("RssAnon"))

    with sampling(watch, 0.02):
        result = work()
    watch()
    return result, most


def _one_thread(backend: str) -> None:
    torch.set_num_threads(1)
    if backend != "torch":
        import faiss

        faiss.omp_set_num_threads(1)


def _build_backend(folder: Path, backend: str, items: int, size: int) -> dict[str, Any]:
    """Build a backend; the first one writes the vectors."""
    _one_thread(backend)

    def work() -> None:
        if backend not in EXACT:
            extend(folder, SYNTHETIC, backend)
        elif not folder.exists():
            write(folder, synthetic(items, size), (items, size), SYNTHETIC)

    started = time.perf_counter()
    peak = _peak(work)[1]
    files = [folder / "vectors.npy"]
    if backend not in EXACT:
        files.append(folder / f"{backend}.faiss")
    return {
        "bytes": sum(file.stat().st_size for file in files),
        "build_seconds": round(time.perf_counter() - started, 1),
        "build_mb": round(peak),
    }


def _search_backend(
    folder: Path, backend: str, queries: Tensor
) -> tuple[dict[str, Any], np.ndarray]:
    """Figures of a backend that was built, and the rows that it finds."""
    _one_thread(backend)

    def work() -> tuple[dict[str, Any], np.ndarray]:
        started = time.perf_counter()
        index = Index.load(folder, SYNTHETIC, backend=backend)
        loaded = time.perf_counter() - started
        rows = index.search(queries, RECALL).rows  # a first time: pages come from disk
        count, started = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - started < SECONDS:
            index.search(queries, RECALL)
            count += len(queries)
        return {
            "load_seconds": round(loaded, 2),
            "queries_s": round(count / (time.perf_counter() - started)),
        }, rows

    (figures, rows), peak = _peak(work)
    return figures | {"search_mb": round(peak)}, rows


def measure(
    items: int,
    size: int = 384,
    queries: int = 200,
    backends: Sequence[str] = BACKENDS,
    place: Path | None = None,
) -> list[dict[str, Any]]:
    """Figures of each backend over `items` synthetic vectors, the first an exact one; files are in
    `place` while it works."""
    queries_drawn = next(synthetic(items, size, is_held_out=True))[:queries]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=place) as temporary:
        folder = Path(temporary) / "index"
        exact: np.ndarray | None = None
        for backend in backends:
            built = _alone(_build_backend, folder, backend, items, size)
            figures, nearest = _alone(_search_backend, folder, backend, queries_drawn)
            exact = nearest if exact is None else exact
            pairs = zip(exact, nearest, strict=True)
            recall = float(np.mean([len(np.intersect1d(a, b)) / len(a) for a, b in pairs]))
            rows.append(
                {
                    "backend": backend,
                    "items": items,
                    "size": size,
                    **built,
                    **figures,
                    "recall@20": round(recall, 3),
                }
            )
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The figures as a table of Markdown."""
    head = (
        "| backend | on disk, MB | built in, s | building, MB | loaded in, s | queries/s |"
        " recall@20 | searching, MB |"
    )
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        lines.append(
            f"| {row['backend']} | {row['bytes'] / 1e6:,.0f} | {row['build_seconds']:,.0f} |"
            f" {row['build_mb']:,} | {row['load_seconds']} | {row['queries_s']:,} |"
            f" {row['recall@20']:.3f} | {row['search_mb']:,} |"
        )
    return "\n".join(lines)


def print_search(
    items: int = 1_000_000,
    size: int = 384,
    queries: int = 200,
    backends: Sequence[str] = BACKENDS,
    json: bool = False,
) -> None:
    """Measure each backend of the search among names: disk, time, memory and recall.

    Args:
        items: Names that are searched.
        size: Numbers of a vector; MiniLM has 384.
        queries: Queries that are searched together.
        backends: Backends of the index; the first must be exact.
        json: Print JSON lines.
    """
    # here, since the processes whose memory is measured import this module
    from benchmarks.measurements import save_measurement
    from benchmarks.results import OVERALL

    rows = measure(items, size, queries, backends)
    scores = {row["backend"]: {k: v for k, v in row.items() if k != "backend"} for row in rows}
    scores[OVERALL] = scores[backends[0]]  # the exact one
    settings = {"size": size, "queries": queries}
    task = f"search among {items:,} names"
    save_measurement("search", task, "queries_s", scores, settings=settings)
    print("\n".join(map(jsons.dumps, rows)) if json else table(rows))
