"""Tables of counts, and of several measures a row: lines of text, the first one their heads."""

from __future__ import annotations

import logging
from pathlib import Path

from benchmarks.counts import split_sizes
from benchmarks.linking.sizes import linking_sizes
from benchmarks.options import Choices
from benchmarks.results import OVERALL
from benchmarks.tables.cells import pair_heads, spread
from benchmarks.tables.measured import System, Table, find_linking
from core.files import InputError
from datamodules.options import Files

LOG = logging.getLogger(__name__)


def populations(table: Table, choices: Choices, files: Files) -> list[list[str]]:
    """Groups of mentions by systems, on one task."""
    results = find_linking(table["task"], table["split"], choices)
    columns = {
        name: System(c["measured"]).select_results(results) if "measured" in c else []
        for name, c in table["columns"].items()
    }
    lines = [["", "mentions as published", "mentions", *pair_heads(columns, "measured")]]
    for row in table["rows"]:
        group = OVERALL if row["population"] == "overall" else row["population"]
        sizes = [int(r.scores[group]["examples"]) for r in results if group in r.scores]
        line = [row["name"], str(row.get("mentions", "")), f"{sizes[0]:,}" if sizes else ""]
        for name, counts in columns.items():
            value = row["reported"].get(name)
            values = [result.value(group=group) for result in counts]
            measured = spread([100 * v for v in values if v is not None])
            line += ["" if value is None else f"{value:.1f}", measured]
        lines.append(line)
    return lines


def sizes(table: Table, choices: Choices, files: Files) -> list[list[str]]:
    """Sizes of tasks as published, beside those of the available files."""
    graph = Path(choices.graph) if choices.graph else None
    columns = table["columns"]
    here: dict[str, dict[str, int]] = {}
    for name, column in columns.items():
        here[name] = {}
        if "task" not in column:
            continue
        try:
            unit = column.get("unit")
            here[name] = (
                split_sizes(column["task"], unit, files)
                if unit
                else linking_sizes(column["task"], files, graph)
            )
        except InputError as error:  # a data set that is not available leaves its cells empty
            LOG.warning(f"{name}: not counted: {error}")
    lines = [["", *pair_heads(columns, "here")]]
    for row in table["rows"]:
        line = [row["name"]]
        for name in columns:
            published, counted = row.get("reported", {}).get(name), here[name].get(row["counts"])
            line += [f"{n:,}" if isinstance(n, int) else "" for n in (published, counted)]
        lines.append(line)
    return lines
