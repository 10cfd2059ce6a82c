"""A source's own running text (definitions, comments) as JSONL that the linker reads.

kepl graph texts hpo [PATH] --out FILE [--share 0.2] [--without RELATION,RELATION]
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Sequence
from pathlib import Path

from core.files import InputError, atomic_write
from core.outputs import check_no_input, check_own
from core.values import split_commas
from kg.build.source import source_module


def is_chosen(name: str, share: float) -> bool:
    """Whether the text `name` belongs to a `share` of all; depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") < share * 2**64


def write_texts(
    source: str,
    path: Path | None = None,
    *,
    out: Path,
    share: float = 1.0,
    without: Sequence[str] = (),
) -> None:
    """Write a source's own running text (definitions, comments, templated sentences) as JSON lines.

    Args:
        source: A module in kg/build/sources that has texts().
        path: Where the source's files are. Default: in an installed package.
        out: JSONL file to write, one {id, text} per line.
        share: Share of the texts, chosen by their ids.
        without: Relations of which nothing is said, with commas.
    """
    module = source_module(source)
    if not hasattr(module, "texts"):
        raise InputError(
            f"source {source!r} has no running text of its own; give CORPUS= text files instead"
        )
    if not 0 < share <= 1:
        raise InputError(f"--share {share}: expected a share above 0 and at most 1")
    relations = frozenset(split_commas(without))
    if relations and "without" not in inspect.signature(module.texts).parameters:
        raise InputError(f"--without: the texts of {source!r} are not made from relations")
    places = [path] if path else []
    check_no_input(out, places)
    check_own(out, "text of a graph's source", lambda line: line.startswith('{"id": "'))
    settings = {"without": relations} if relations else {}
    count = 0
    with atomic_write(out) as handle:
        for entity, kind, text in module.texts(*places, **settings):
            if is_chosen(name := f"{entity}/{kind}", share):
                handle.write(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n")
                count += 1
    print(f"{out}: {count:,} texts")
