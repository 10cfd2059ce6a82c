"""The entities of KeBioLM's released checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

from core.files import InputError, atomic_write
from core.json_files import json_lines
from kg.graph import KnowledgeGraph


def convert(source: Path, out: Path, graph: str | None = None) -> None:
    """Beside the authors' weights: the entities' ids in the order of the table's rows, and a
    graph's names, into `out`.

    Args:
        source: Folder with `entity.jsonl`: {"id": row, "entity_name": CUI}, [PAD_ENT] and the like
            among them.
        graph: Folder of a graph of the same UMLS release: links by name and the names of predicted
            entities need it.

    Raises InputError for a broken line, a row that occurs twice, and a graph that has none of the
    entities.
    """
    file = source / "entity.jsonl"
    ids: dict[int, str] = {}
    for where, record in json_lines(file, advice='Expected {"id": row, "entity_name": CUI}.'):
        row, name = record.get("id"), record.get("entity_name")
        if type(row) is not int or row < 0 or row in ids or not isinstance(name, str):
            raise InputError(
                f"{where}: expected a row that no other line has and a name, got {row!r}, {name!r}."
            )
        ids[row] = name
    if not ids:
        raise InputError(f"{file}: no entities in this file. Fetch it again.")
    with atomic_write(out / "entities.txt") as handle:
        handle.writelines(f"{ids.get(row, f'[ROW_{row}]')}\n" for row in range(max(ids) + 1))
    if graph is not None:
        concepts = set(KnowledgeGraph.load(graph).entities["id"].to_pylist())
        if not concepts & set(ids.values()):
            raise InputError(
                f"{graph}: has none of the checkpoint's {len(ids):,} entities. Expected a graph of"
                " UMLS, ids as CUIs."
            )
        for name in ("entities", "names"):
            shutil.copyfile(Path(graph) / f"{name}.parquet", out / f"{name}.parquet")
