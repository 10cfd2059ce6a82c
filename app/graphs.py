"""`kepl graph`: build a graph of any source, or count what is in one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.files import InputError
from core.settings import TRUTH, Option, expected, unknown


def build(words: Sequence[str]) -> int:
    """`kepl graph build SOURCE [PATH] --out FOLDER`: the options of kg.build, each also as NAME=value. Returns the exit code.

    Raises InputError for a setting that the source does not take, with the nearest one, and for a switch that is not yes or no.
    """
    from kg import build as kg_build

    if not words or words[0].startswith("-"):
        return kg_build.main(words)
    source = kg_build.source_module(words[0])
    options = {"out": Option("out", Path, None, ""), "fresh": Option("fresh", bool, False, "")}
    options |= {name: Option(name, p.annotation, p.default, "") for name, p in kg_build.options_of(source).items()}
    switches = {f"no_{name}": name for name, option in options.items() if option.type is bool}
    plain = list(words[:1])
    for word in words[1:]:
        setting = re.fullmatch(r"([A-Z][A-Z0-9_]*)=(.*)", word, re.S)
        if not setting and not word.startswith("--"):
            plain.append(word)
            continue
        name, value = setting.groups() if setting else (word[2:].partition("=")[0], None)
        key = name.lower().replace("-", "_")
        if key not in options and not (value is None and (key in switches or key == "help")):
            raise InputError(unknown("make" if setting else "flag", name, options, f"kepl graph build {words[0]}"))
        flag = f"--{key.replace('_', '-')}"
        if value is None:
            plain.append(word)
        elif options[key].type is bool:
            if value.lower() not in TRUTH:
                raise InputError(f"{name}={value}: expected {expected(bool)}")
            plain += [flag] if TRUTH[value.lower()] else [f"--no-{flag[2:]}"] if key != "fresh" else []
        elif value:
            plain += [f"{flag}={value}"]
    return kg_build.main(plain)


def graph_info(folder: Path) -> dict[str, Any]:
    """Counts of a graph, of its types and relations; where it comes from. Raises InputError."""
    from kg.graph import KnowledgeGraph

    graph = KnowledgeGraph.load(folder)
    about = {k: v for k, v in graph.manifest.items() if k in ("source", "version", "licence")}
    counts = {
        "types": Counter(graph.entities["type"].to_pylist()),
        "relations of triples": Counter(graph.triples["relation"].to_pylist()),
        "languages": Counter(graph.names["language"].to_pylist()),
    }  # fmt: skip
    return about | graph.counts() | {name: dict(counter.most_common()) for name, counter in counts.items()}


def format_info(info: dict[str, Any], most: int = 20) -> str:
    """The counts as aligned lines; of types and relations the `most` frequent ones."""
    lines = []
    for key, value in info.items():
        if not isinstance(value, dict):
            lines.append(f"{key:<20}{value:,}" if isinstance(value, int) else f"{key:<20}{value}")
            continue
        shown = list(value.items())
        lines += [f"{key}:", *(f"  {count:>12,}  {name}" for name, count in shown[:most])]
        lines += [f"  {'':>12}  and {len(shown) - most:,} more"] if len(shown) > most else []
    return "\n".join(lines)
