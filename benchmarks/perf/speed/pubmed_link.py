"""Linking PubMed's XML with eight workers: CPU seconds of the process that has most to do.

In ours every worker has files of its own (kg.linking.run on core.executor). The reference is one
process that reads for eight which link, so that with more workers the reader needs the time. What
is made before the first document, and shared by all processes (the tree of names), is left out of
both.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from benchmarks.perf.random_data import graph_like, pubmed
from benchmarks.perf.speed import summarize
from core.executor import parts_folder
from kg.documents.formats import documents
from kg.documents.mentions import Document
from kg.documents.parts import make_plan, part_name
from kg.linking.matcher import DictionaryLinker
from kg.linking.run import record_of, write_part

WORKERS, AT_ONCE = 8, 64  # AT_ONCE: documents that the reader hands over together


def _time_linking(linker: DictionaryLinker, task: Any, path: Path) -> dict[str, Any]:
    write_part(linker, task, path, format=None, empty="error", encoding="utf-8")
    return {"seconds": time.process_time()}  # of this process since it began


def _busiest(waiting: float, done: list[dict[str, Any]]) -> float:
    """CPU seconds of the process with most of them; `waiting` are those of the one that began the
    others."""
    return max(waiting, *(part["seconds"] for part in done))


def read_all(files: list[Path]) -> str:
    return "".join(file.read_text("utf-8") for file in files)


def ours(linker: DictionaryLinker, files: list[Path], out: Path) -> tuple[float, str]:
    """(CPU seconds of the busiest process, what was written)."""
    plan = make_plan(out, files, None, 1)
    with parts_folder(out, {}, what="parts", pattern="part-*") as folder:
        parts = plan.save(out)
        start = time.process_time()
        done = folder.map(_time_linking, parts, lambda: linker, workers=WORKERS, engine="processes")
        waiting = time.process_time() - start
    written = [out / part_name(number) for number in range(len(parts))]
    return _busiest(waiting, done), read_all(written)


_begun: tuple[DictionaryLinker, Path]  # of the reference's workers, which are forks


def _link_batch(batch: tuple[int, list[Document]]) -> dict[str, Any]:
    linker, folder = _begun
    number, read = batch
    with open(folder / part_name(number), "w", encoding="utf-8") as handle:
        linked = linker.link_all([document.text for document in read])
        for document, mentions in zip(read, linked, strict=True):
            handle.write(json.dumps(record_of(document, mentions), ensure_ascii=False) + "\n")
    return {"seconds": time.process_time()}


def _read(files: list[Path]) -> Iterator[tuple[int, list[Document]]]:
    coming = documents(files)
    for number in count():
        if not (batch := list(islice(coming, AT_ONCE))):
            return
        yield number, batch


def reference(linker: DictionaryLinker, files: list[Path], out: Path) -> tuple[float, str]:
    """The same of one process that reads for eight others."""
    global _begun
    _begun = linker, out
    out.mkdir()
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        start = time.process_time()
        done = list(pool.imap(_link_batch, _read(files)))
        reading = time.process_time() - start
    return _busiest(reading, done), read_all(sorted(out.iterdir()))


def measure_speed(documents: int = 20_000, files: int = 160, names: int = 60_000) -> dict[str, Any]:
    """Compare both on plain and on compressed files. Returns the keys that benchmarks.perf.speed
    asks for.

    Args:
        documents: Articles of PubMed.
        files: Files that hold the articles.
        names: Names to link; HPO has as many.
    """
    graph, texts = graph_like(names, names)
    linker = DictionaryLinker.from_graph(graph)
    settings: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        for compressed in (False, True):
            kind = "compressed" if compressed else "plain"
            paths = pubmed(Path(place) / kind, texts, documents, files, compressed)
            seconds, written = ours(linker, paths, Path(place) / f"{kind}-out")
            other, wanted = reference(linker, paths, Path(place) / f"{kind}-other")
            settings.append(
                {
                    "setting": f"{kind} XML",
                    "unit": "CPU seconds of the busiest process",
                    "workers": WORKERS,
                    "documents": documents,
                    "files": files,
                    "names": names,
                    "bytes": sum(path.stat().st_size for path in paths),
                    "equal": written == wanted,
                    "ours": round(seconds, 3),
                    "reference": round(other, 3),
                    "ratio": round(other / seconds, 2),
                }
            )
    return summarize("pubmed_link", settings)
