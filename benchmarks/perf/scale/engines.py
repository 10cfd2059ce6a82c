"""Linking PubMed's XML in one process, in two, and on two simulated nodes of a Ray cluster, with a
worker and then a node lost.

    kepl measure engines --documents 100000 --files 40

Every way must write the same bytes: exit status 1 where one does not. A row says how many parts
were made, the seconds, and CPU seconds of the process with most of them. Needs the extra `ray`.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measurements import save_measurement
from benchmarks.perf.random_data import graph_like, pubmed
from benchmarks.results import OVERALL
from core.executor import parts_folder
from core.json_files import digest
from core.reading import sha256
from kg.documents.parts import make_plan, part_name
from kg.graph import KnowledgeGraph
from kg.linking.matcher import DictionaryLinker
from kg.linking.run import write_part

COLUMNS = ("way", "parts made", "seconds", "CPU seconds of the busiest", "same bytes")


def _begin(graph: str) -> DictionaryLinker:
    return DictionaryLinker.from_graph(KnowledgeGraph.load(graph))


def _time_linking(linker: DictionaryLinker, task: Any, path: Path, log: str) -> dict[str, Any]:
    start = time.process_time()
    write_part(linker, task, path, format=None, empty="error", encoding="utf-8")
    with open(Path(log) / f"made-{os.getpid()}", "a") as handle:
        handle.write(f"{path.name}\n")
    return {"process": os.getpid(), "seconds": time.process_time() - start}


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A Ray cluster of two nodes with a processor each, on this machine; yields the cluster and the
    node that can be lost."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        node = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster, node
    finally:
        ray.shutdown()
        cluster.shutdown()


def _when_some_are_done(out: Path, parts: int, lose: Callable[[], None]) -> threading.Thread:
    """Call `lose` once a quarter of the parts is done."""

    def watch() -> None:
        while len(list((out / "markers").glob("part-*"))) < max(1, parts // 4):
            time.sleep(0.05)
        lose()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def link_with_engine(
    graph: Path,
    files: list[Path],
    out: Path,
    engine: str,
    workers: int,
    lose: Callable[[Path], None] | None = None,
) -> dict[str, Any]:
    """Link `files` to `out` and say what it took. `lose` is called in the middle, with the folder
    of the workers' logs."""
    log = out.with_name(f"{out.name}.log")
    log.mkdir()
    start = time.perf_counter()
    plan = make_plan(out, files, None, 1)
    with parts_folder(out, {}, what="parts", pattern="part-*") as folder:
        parts = plan.save(out)
        watch = _when_some_are_done(out, len(parts), partial(lose, log)) if lose else None
        done = folder.map(
            partial(_time_linking, log=str(log)),
            parts,
            partial(_begin, str(graph)),
            workers=workers,
            engine=engine,
        )
        if watch:
            watch.join()
        folder.finish(parts, {})
    spent: Counter[int] = Counter()
    for part in done:
        spent[part["process"]] += part["seconds"]
    written = " ".join(path.read_text() for path in log.iterdir()).split()
    assert {part_name(n) for n in range(len(parts))} == set(written)
    return {
        "parts made": len(written),
        "seconds": round(time.perf_counter() - start, 1),
        "CPU seconds of the busiest": round(max(spent.values()), 1),
        "bytes": digest({path.name: sha256(path) for path in out.glob("part-*")}),
    }


def _kill_a_worker(log: Path) -> None:
    os.kill(int(next(iter(log.iterdir())).name.removeprefix("made-")), 9)


def measure(documents: int, files: int, names: int) -> list[dict[str, Any]]:
    """A row with COLUMNS for each way."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        at = Path(place)
        graph, texts = graph_like(names, names)
        graph.save(at / "graph")
        paths = pubmed(at / "pubmed", texts, documents, files)
        run = partial(link_with_engine, at / "graph", paths)
        for way, engine, workers in (
            ("one process", "processes", 1),
            ("two processes", "processes", 2),
        ):
            rows.append({"way": way} | run(at / way, engine, workers))
        with two_nodes():
            rows.append({"way": "two Ray nodes"} | run(at / "ray", "ray", 2))
            rows.append(
                {"way": "two Ray nodes, a worker killed"}
                | run(at / "killed", "ray", 2, lose=_kill_a_worker)
            )
        with two_nodes() as (cluster, node):
            done = run(
                at / "removed",
                "ray",
                2,
                lose=lambda log: cluster.remove_node(node, allow_graceful=False),
            )
            rows.append({"way": "two Ray nodes, one removed"} | done)
    return [row | {"same bytes": row["bytes"] == rows[0]["bytes"]} for row in rows]


def print_engines(documents: int = 100_000, files: int = 40, names: int = 60_000) -> int:
    """Link PubMed's XML in one process, in two, and on two nodes of a Ray cluster that are lost.

    Args:
        documents: Articles that are linked.
        files: Files that hold the articles.
        names: Names of the dictionary.
    """
    rows = measure(documents, files, names)
    print(" | ".join(COLUMNS))
    for row in rows:
        print(" | ".join(str(row[column]) for column in COLUMNS))
    figures: dict[str, dict[str, float]] = {}
    for row in rows:
        numbers = {key: value for key, value in row.items() if isinstance(value, int | float)}
        figures[row["way"]] = {key: float(number) for key, number in numbers.items()}
    figures[OVERALL] = figures["one process"]
    settings = {"files": files, "names": names}
    task = f"linking {documents:,} articles"
    save_measurement("engines", task, "seconds", figures, settings=settings)
    return 0 if all(row["same bytes"] for row in rows) else 1
