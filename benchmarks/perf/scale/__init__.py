"""How time, memory and open files grow with the data.

    make scale SIZES=10k,100k,1M      kepl measure scale --sizes 10k 100k 1M

Every stage runs in a process of its own, on one thread, at each number of items. A row says the CPU
seconds for 1,000 items, the peak of the process's memory (libraries included; what is memory-mapped
does not count), the most files that were open at once, and the bytes it wrote. A line below a
stage's rows says by how much memory grew from the smallest to the largest size. Each row is kept as
a result in runs/scale, in place of an earlier one of its stage and size, and all are drawn in
runs/scale.png.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks.perf.alone import call_alone
from benchmarks.perf.scale.picture import draw
from benchmarks.perf.scale.stages import STAGES, Stage
from benchmarks.perf.speed._memory import resident, sampling
from core.files import InputError
from core.tracking import runs_folder
from core.values import split_commas

COLUMNS = ("stage", "items", "CPU s / 1,000", "peak MB", "open files", "MB written")
UNITS = {"k": 1_000, "M": 1_000_000}


def size_of(text: str) -> int:
    """A number of items: "10k", "1M" or "500". Raises InputError."""
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    if not number.isdecimal() or not int(number):
        raise InputError(f"sizes: expected numbers like 500, 10k or 1M, got {text!r}")
    return int(number) * unit


def format_count(items: int) -> str:
    """10000 -> 10k."""
    for unit, count in reversed(UNITS.items()):
        if items % count == 0:
            return f"{items // count}{unit}"
    return str(items)


def count_bytes(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def watch_stage(stage: Stage, items: int, at: Path) -> dict[str, float]:
    """Do a stage's work in this process, and say what it took."""
    memory, files = resident("RssAnon"), 0

    def watch() -> None:
        nonlocal memory, files
        memory = max(memory, resident("RssAnon"))
        files = max(files, len(os.listdir("/proc/self/fd")) - 1)

    before = count_bytes(at)
    start = time.process_time()
    with sampling(watch, 0.005):
        stage.work(items, at)
    seconds = time.process_time() - start
    return {
        "seconds": seconds,
        "memory": max(memory, resident("RssAnon")),
        "files": files,
        "bytes": count_bytes(at) - before,
    }


def measure_stage(stage: Stage, items: int, at: Path) -> dict[str, Any]:
    """The same of a new process, its input prepared by another. Raises RuntimeError when it
    fails."""
    changes = {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "KEPL_RUNS": str(at / "runs"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{at / 'mlflow.db'}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    at.mkdir(parents=True, exist_ok=True)
    for what in ("prepare", "work"):
        arguments = {"what": what, "stage": stage.name, "items": items, "folder": at}
        figures = call_alone("benchmarks.perf.scale:print_stage", arguments, changes)
    return dict(figures)


def print_stage(what: Literal["prepare", "work"], stage: str, items: int, folder: Path) -> None:
    """Prepare a stage's input in this process, or do its work and print what it took as JSON."""
    chosen = next(candidate for candidate in STAGES if candidate.name == stage)
    if what == "prepare":
        chosen.prepare(items, folder)
    print(json.dumps(watch_stage(chosen, items, folder) if what == "work" else None))


def save_stage(stage: Stage, items: int, figures: dict[str, float]) -> None:
    """Save what a stage took as a result, for `kepl publish`, and draw all that are kept."""
    # here, since the processes whose memory is measured import this module
    from benchmarks.measurements import save_measurement
    from benchmarks.results import OVERALL

    task = f"{stage.name}, {format_count(items)} {stage.unit}"
    settings = {"stage": stage.name, "unit": stage.unit, "items": items}
    save_measurement("scale", task, "memory", {OVERALL: figures}, settings=settings)
    draw(stored_rows(), runs_folder() / "scale.png")


def stored_rows() -> list[dict[str, Any]]:
    """What was measured of each stage, {stage, unit, items, seconds, memory, files, bytes}: in the
    order of stages, then of sizes."""
    from benchmarks.results import OVERALL, list_stored

    order = {stage.name: number for number, stage in enumerate(STAGES)}
    rows = [
        {**result.protocol, **result.scores[OVERALL]}
        for result in list_stored("scale")
        if result.protocol["stage"] in order
    ]
    return sorted(rows, key=lambda row: (order[row["stage"]], row["items"]))


def print_rows(sizes: list[int], only: str | None, place: Path) -> None:
    """Print rows of COLUMNS for each stage and size, as they come, then the growth of its
    memory."""
    for stage in STAGES:
        if only and only not in (stage.unit, stage.name):
            continue
        measured = {}
        for items in sizes:
            measured_row = measured[items] = measure_stage(stage, items, place / str(items))
            row = [
                stage.name,
                f"{format_count(items)} {stage.unit}",
                f"{measured_row['seconds'] / items * 1000:.4f}",
                f"{measured_row['memory']:.0f}",
                f"{measured_row['files']:.0f}",
                f"{measured_row['bytes'] / 1e6:.1f}",
            ]
            print("| " + " | ".join(row) + " |", flush=True)
            save_stage(stage, items, measured_row)
        if len(sizes) > 1:
            first, last = sizes[0], sizes[-1]
            slope = (measured[last]["memory"] - measured[first]["memory"]) * 1e6 / (last - first)
            span = f"{format_count(first)} to {format_count(last)}"
            print(f"| {stage.name} | {span} | | {slope:.0f} bytes an item | | |", flush=True)


def print_scale(
    sizes: Sequence[str] = ("10k", "100k"), only: str | None = None, folder: Path | None = None
) -> None:
    """Print how time, memory and open files grow with the data, stage by stage.

    Args:
        sizes: Numbers of items, smallest first.
        only: The stages that count documents, names, triples or concepts; or one stage's name.
        folder: Folder for the data, which stay there. Default: a temporary one.
    """
    numbers = [size_of(size) for size in split_commas(sizes)]
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    with tempfile.TemporaryDirectory() as place:
        print_rows(numbers, only, folder or Path(place))
