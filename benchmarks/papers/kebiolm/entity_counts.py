"""KeBioLM's tables of counts: Table 1, annotated mentions that a graph contains; Table 5, queries
of probing."""

from __future__ import annotations

import logging

from benchmarks.options import Choices
from benchmarks.overlap import overlaps
from benchmarks.tables.measured import Table
from core.artifact import has_manifest, read_manifest
from core.tracking import runs_folder
from datamodules.options import Files

LOG = logging.getLogger(__name__)


def overlap_lines(table: Table, choices: Choices, files: Files) -> list[list[str]]:
    """Table 1: annotated mentions of NER and RE sets, and how many a graph, or a KeBioLM's table,
    has a name for."""
    tasks = [row["task"] for row in table["rows"]]
    counts = overlaps(tasks, choices.graph, choices.model, choices.ckpt, files)
    lines = [["", *(f"{name} as published" for name in table["columns"])]]
    measures = {
        name: column["measure"] for name, column in table["columns"].items() if "measure" in column
    }
    lines[0] += [
        f"{name} here" if name == "mentions" else f"{name} to {counts.source}" for name in measures
    ]
    for row in table["rows"]:
        values = [row.get("reported", {}).get(name) for name in table["columns"]]
        overlap = counts.overlaps.get(row["task"])
        values += [getattr(overlap, measure) if overlap else None for measure in measures.values()]
        lines.append([row["name"], *("" if v is None else f"{v:,}" for v in values)])
    for name, why in counts.missing.items():
        LOG.warning(f"{name}: not counted: {why.splitlines()[0]}")
    return lines


def query_lines(table: Table, choices: Choices, files: Files) -> list[list[str]]:
    """Table 5: counts of the probing queries that were made here, beside those published."""
    folders = sorted(p for p in (runs_folder() / "data" / "probing").glob("*") if has_manifest(p))
    here = {p.name: read_manifest(p)["counts"] for p in folders if choices.graph in (None, p.name)}
    lines = [["", *(f"{name} as published" for name in table["columns"]), *here]]
    for row in table["rows"]:
        values = [
            *(row["reported"].get(name) for name in table["columns"]),
            *(c.get(row["counts"]) for c in here.values()),
        ]
        lines.append([row["name"], *("" if v is None else f"{v:,}" for v in values)])
    return lines
