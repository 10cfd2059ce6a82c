"""No two files need each other, not even by an import inside a function."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "kg", "datamodules", "models", "experiments")


def imports() -> dict[str, set[str]]:
    """{module: the modules of these rooms that its file imports, anywhere in it}."""
    files = {p for room in ROOMS for p in (ROOT / room).rglob("*.py")}
    named = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in files
    }
    found: dict[str, set[str]] = {}
    for module, path in named.items():
        found[module] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                inside = {f"{node.module}.{alias.name}" for alias in node.names} & set(named)
                found[module] |= inside or {node.module} & set(named)
            elif isinstance(node, ast.Import):
                found[module] |= {alias.name for alias in node.names} & set(named)
    return found


def test_no_import_cycle() -> None:
    graph = imports()
    assert len(graph) > 100 and "kg.documents.bioc" in graph["kg.documents.formats"]
    TopologicalSorter(graph).prepare()


def test_a_cycle_would_be_found() -> None:
    with pytest.raises(CycleError):
        TopologicalSorter(imports() | {"kg.documents.mentions": {"kg.documents.formats"}}).prepare()
