"""The trie of GenBioEL's names as flat arrays against nested dictionaries, as GENRE and its
descendants hold theirs.

Names are synthetic: 3 to 9 pieces each, 6 on average, of a vocabulary of 50,265. Each side works in
    a fresh process:

memory     resident memory of the trie: what the dictionaries added; of ours what it adds to load
           the folder and to touch every page of it
ratio      of bytes a name; `build_ratio` of the times to build. `array_bytes` is what the arrays
           hold, on disk as in memory
equal      both hold the same names
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.perf.alone import call_alone
from benchmarks.perf.speed._memory import resident
from benchmarks.perf.speed._names import EOS, VOCABULARY, nest_names, synthetic


def print_dictionaries(count: int) -> None:
    """Build them; print what it took, and a digest of the names in them."""
    arrays = synthetic(count)
    gc.collect()
    before, started = resident("VmRSS"), time.perf_counter()
    trie = nest_names(*arrays)
    seconds, after = time.perf_counter() - started, resident("VmRSS")
    digest = names = 0
    open_: list[tuple[tuple[int, ...], dict[int, Any]]] = [((), trie)]
    while open_:
        path, node = open_.pop()
        for token, below in node.items():
            if token == EOS:
                digest, names = digest ^ hash(path), names + 1
            else:
                open_.append(((*path, token), below))
    figures = {"build_seconds": seconds, "megabytes": after - before}
    print(json.dumps(figures | {"names": names, "digest": digest}))


def print_arrays(folder: Path) -> None:
    """Load and touch the trie in `folder`; print what it took, and a digest of its names."""
    from kg.search.trie import ARRAYS, Trie  # not in the other process, which needs no torch

    before, started = resident("VmRSS"), time.perf_counter()
    trie = Trie.load(folder, "synthetic")
    seconds = time.perf_counter() - started
    for name in ARRAYS:
        getattr(trie, name).max(initial=0)
    after, digest = resident("VmRSS"), 0
    for path in trie.names():
        digest ^= hash(tuple(path.tolist()))
    figures = {"load_seconds": seconds, "megabytes": after - before}
    print(json.dumps(figures | {"names": len(trie), "digest": digest}))


def measure_speed(names: int = 900_000) -> dict[str, Any]:
    """Compare both. Returns the keys that benchmarks.perf.speed asks for.

    Args:
        names: Names of the trie.
    """
    from kg.search.trie import Ragged, Trie

    ragged = Ragged(*synthetic(names))
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        trie = Trie.build(ragged, vocabulary=VOCABULARY, identity="synthetic")
        build = time.perf_counter() - started
        folder = trie.save(Path(place) / "trie")
        ours = call_alone("benchmarks.perf.speed.trie:print_arrays", {"folder": folder})
    reference = call_alone("benchmarks.perf.speed.trie:print_dictionaries", {"count": names})
    setting = {
        "setting": f"{names} names",
        "distinct": ours["names"],
        "pieces": round(len(ragged.tokens) / names, 2),
        "bytes": round(1e6 * ours["megabytes"] / ours["names"], 1),
        "reference_bytes": round(1e6 * reference["megabytes"] / reference["names"], 1),
        "array_bytes": round(trie.nbytes / len(trie), 1),
        "ratio": round(reference["megabytes"] / max(ours["megabytes"], 0.1), 1),
        "build_seconds": round(build, 2),
        "reference_build_seconds": round(reference["build_seconds"], 2),
        "build_ratio": round(reference["build_seconds"] / build, 1),
        "load_seconds": round(ours["load_seconds"], 2),
        "equal": ours["names"] == reference["names"] and ours["digest"] == reference["digest"],
    }
    return {
        "name": "trie",
        "unit": "bytes a name",
        "ours": setting["bytes"],
        "reference": setting["reference_bytes"],
        "ratio": setting["ratio"],
        "equal": setting["equal"],
        "settings": [setting],
    }
