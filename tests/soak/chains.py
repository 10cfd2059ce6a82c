"""How time and memory of chains grow with one text: python -m tests.soak.chains [--sizes 250 500
1000] [--chains names encoder ...]

Every chain reads one text of so many thousand characters in a process of its own, on one thread,
with tiny random models over a small graph. Exit status 1 where twice the text takes more than MOST
times the CPU seconds, or the memory beside what the process had before it read the text.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from core.json_files import write_json
from inference.chain import Pipeline
from tests.fakes import bert, genbioel, tasks
from tests.fakes.graphs import graph

MOST = 2.5  #: times, from one size to twice that size
NOISE = 30.0  #: MB that memory may grow by without counting
SENTENCES = (
    "A man with renal failure denies heart attacks.",
    "Cold was found in breast and ovarian cancer (BOC).",
    "BOC and the COLD of 1999 are no lesions",
    "His mother had a Kidney-Failure, type 2; he was given foozin.",
)


class Row(NamedTuple):
    chain: str
    characters: int
    seconds: float
    megabytes: float
    mentions: int


def write_graph(folder: Path) -> Path:
    """A graph with homonyms, parts of composites, and names that the texts have in other forms."""
    names = [
        ("D1", "renal failure", "exact", "en"),
        ("D1", "kidney failure, type 2", "exact", "en"),
        ("D2", "heart attack", "exact", "en"),
        ("D3", "cold", "exact", "en"),
        ("D4", "cold", "exact", "en"),
        ("D5", "breast cancer", "exact", "en"),
        ("D6", "ovarian cancer", "exact", "en"),
        ("D7", "lesion", "exact", "en"),
    ]
    types = dict.fromkeys((f"D{number}" for number in range(1, 8)), "disease") | {"foozin": "drug"}
    return graph(types, [("D1", "near", "D2")], names).save(folder / "graph")


def text_of(characters: int) -> str:
    """One text: sentences that differ by a number, in lines of four."""
    parts: list[str] = []
    length = 0
    while length < characters:
        number = len(parts)
        end = "\n" if number % 4 == 3 else " "
        parts.append(f"{number}: {SENTENCES[number % len(SENTENCES)]}{end}")
        length += len(parts[-1])
    return "".join(parts)[:characters]


def write_tagger(folder: Path) -> Path:
    """A tagger of some steps of training on fake data: its folder."""
    from tests.inference.conftest import HEADS, fine_tune

    source = bert.write(folder / "source", tasks.WORDS, layers=2, length=64)
    task = tasks.write(folder / "task", "ner", {"train": 60, "dev": 20, "test": 40}, suite="fakes")
    return fine_tune(folder, source, task, *HEADS["ner"]).folder / "export"


def write_generator(folder: Path) -> Path:
    """A GenBioEL without training: its folder."""
    from tests.models.test_genbioel import module

    model, data = module(genbioel.write(folder / "parts"))
    export = folder / "generator"
    export.mkdir()
    model.eval().export(export)
    data.export(str(export))
    write_json(export / "manifest.json", {"paper": "genbioel", "checksums": {}})
    return export


def write_encoder(folder: Path) -> Path:
    words = ["renal", "failure", "heart", "attack", "cold", "cancer"]
    return bert.write(folder / "encoder", words, layers=1, length=64, dropout=0.0)


def chain_of(name: str, folder: Path) -> str:
    """The chain of a name of CHAINS, its models written into `folder`."""
    if name == "dictionary":
        return "dictionary"
    if name == "names":
        return "dictionary > names"
    if name == "encoder":
        return f"dictionary > {write_encoder(folder)}"
    if name == "tagger":
        return f"{write_tagger(folder)} > names"
    return f"dictionary > {write_generator(folder)}"


CHAINS = ("dictionary", "names", "encoder", "tagger", "generator")


def _read(pipeline: Pipeline, text: str, results: Any) -> None:
    """Link one text in a process of its own."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    (found,) = pipeline.link([text])
    seconds = time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results.put((seconds, (after - before) / 1024, len(found)))


def measure(name: str, sizes: list[int], folder: Path) -> list[Row]:
    """A row for each size, in characters."""
    folder.mkdir(parents=True)
    options = {"beams": 2} if name == "generator" else {}
    pipeline = Pipeline(
        write_graph(folder),
        chain_of(name, folder),
        negation=True,
        **options,  # type: ignore[arg-type]
    )
    pipeline.prepare()
    pipeline.link([text_of(20_000)])  # what is made once
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy what the process had before
    context = multiprocessing.get_context("fork")
    rows = []
    for size in sizes:
        results = context.Queue()
        process = context.Process(target=_read, args=(pipeline, text_of(size), results))
        process.start()
        rows.append(Row(name, size, *results.get()))
        process.join()
        print(
            f"{name:<12}{size:>10,} characters {rows[-1].seconds:8.2f} s"
            f" {rows[-1].megabytes:8.1f} MB {rows[-1].mentions:>8,} mentions",
            flush=True,
        )
    return rows


def worse_than_linear(rows: list[Row]) -> list[str]:
    """What grows by more than MOST from one size to the next one, twice as large."""
    found = []
    for one, two in pairwise(rows):
        times = two.characters / one.characters / 2
        if two.seconds > MOST * times * one.seconds + 0.1:
            found.append(f"{two.chain}: {one.seconds:.2f} s, then {two.seconds:.2f} s")
        if two.megabytes > MOST * times * one.megabytes + NOISE:
            found.append(f"{two.chain}: {one.megabytes:.0f} MB, then {two.megabytes:.0f} MB")
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.soak.chains", description=__doc__)
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[250, 500, 1000], help="thousand characters"
    )
    parser.add_argument("--chains", nargs="+", choices=CHAINS, default=CHAINS)
    given = parser.parse_args(argv)
    os.environ["OMP_NUM_THREADS"] = "1"
    problems = []
    with tempfile.TemporaryDirectory(prefix="kepl-chains-") as folder:
        os.environ["KEPL_RUNS"] = f"{folder}/runs"
        for name in given.chains:
            rows = measure(name, [1000 * size for size in given.sizes], Path(folder) / name)
            problems += worse_than_linear(rows)
    print("\n".join(problems) or f"twice the text takes at most {MOST} times as much")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
