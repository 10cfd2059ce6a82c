"""One linker in a process of its own, of whatever environment: texts in, places and concepts out,
with times and memory.

    <python> benchmarks/peers/worker.py REQUEST

REQUEST is a JSON file: program (a file of benchmarks/peers/programs), names (JSON lines: concept,
name, kind, preferred name of the concept), texts (JSON lines: id, text), out (what is written: {id:
[[start, end, concept or null], ...]}, start_seconds, seconds, memory in MB), at_once (texts that
are linked together) and options of the program. Only the standard library is imported here: peers
have environments of their own.

A program has `make(names, options)`, which reads the names and returns a function from texts to the
places of each.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
import time
from pathlib import Path


def peak_memory() -> float:
    """MB that this process had at most. Linux's getrusage would count the process that started it,
    too."""
    status = Path("/proc/self/status")
    if status.is_file():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main(request: Path) -> None:
    wanted = json.loads(request.read_text(encoding="utf-8"))
    began = time.perf_counter()
    source = Path(__file__).parent / "programs" / f"{wanted['program']}.py"
    spec = importlib.util.spec_from_file_location(f"peer_{wanted['program']}", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with Path(wanted["texts"]).open(encoding="utf-8") as handle:
        texts = [json.loads(line) for line in handle]
    link = module.make(Path(wanted["names"]), wanted["options"])
    link(["A first text."])  # what is built at the first text is part of the start
    ready = time.perf_counter()
    places_of: dict[str, list[list[object]]] = {}
    for begin in range(0, len(texts), wanted["at_once"]):
        some = texts[begin : begin + wanted["at_once"]]
        for (name, _), places in zip(some, link([text for _, text in some]), strict=True):
            places_of[name] = [list(place) for place in places]
    ended = time.perf_counter()
    answer = {
        "found": places_of,
        "start_seconds": ready - began,
        "seconds": ended - ready,
        "memory": peak_memory(),
    }
    partial = Path(wanted["out"]).with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as handle:
        json.dump(answer, handle)
        handle.flush()
        os.fsync(handle.fileno())
    partial.rename(wanted["out"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
