"""Commands as the tests call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core import call
from core.settings import grouped_arguments
from kg.build.sources import tables
from kg.graph import KnowledgeGraph


def command(name: str) -> Callable[[Sequence[str]], int]:
    """A function that runs the command `name` with options, and returns its exit code."""
    return lambda words: call.main([*name.split(), *words])


def read_tables(path: str | Path, **options: Any) -> KnowledgeGraph:
    """The graph of tables, read with the options of `kepl graph build tables`."""
    return tables.read(path, **grouped_arguments(tables.read, options, options))
