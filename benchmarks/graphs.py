"""The graph that GRAPH= means."""

from __future__ import annotations

from pathlib import Path

from core.files import InputError
from core.tracking import runs_folder
from kg.build.source import build_graph


def graph_folder(name: str) -> Path:
    """hpo (that of `make pretrain-kebiolm`, built if it is not there), or a folder of
    kg.build.source.
    Raises InputError for others."""
    if name == "hpo":
        folder = runs_folder() / "data" / "kebiolm-small" / "graph"
        build_graph("hpo", None, folder)
        return folder
    if not Path(name).is_dir():
        raise InputError(
            f"GRAPH={name}: no such folder; expected hpo, or a folder with a graph (kepl"
            " graph build --help)"
        )
    return Path(name)
