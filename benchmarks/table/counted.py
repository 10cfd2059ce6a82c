"""Tables of counts, and of several measures a row: lines of text, the first one their heads."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.counts import split_sizes
from benchmarks.linking.sizes import sizes as linking_sizes
from benchmarks.overlap import overlaps
from benchmarks.table.cells import spread
from benchmarks.table.measured import summaries_of
from core.files import InputError, read_json
from core.tracking import runs_folder


def populations(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    split, folds = given.get("SPLIT") or table["split"], given.get("FOLDS") or "all"
    runs: dict[str, list[dict[str, Any]]] = {}
    for summary in summaries_of(table["task"], split, folds):
        own = summary["results"][summary["model"]]["acc@1"]
        whole = {"overall": {"mentions": summary["stamp"]["mentions"], "model": own}}
        runs.setdefault(summary["model"], []).append(summary["populations"] | whole)
    columns = table["columns"]
    kinds = ("as published", "measured")
    lines = [["", "mentions as published", "mentions", *(f"{name} {kind}" for name in columns for kind in kinds)]]
    for row in table["rows"]:
        sizes = [p[row["population"]]["mentions"] for each in runs.values() for p in each if row["population"] in p]
        line = [row["name"], str(row.get("mentions", "")), f"{sizes[0]:,}" if sizes else ""]
        for name, column in columns.items():
            value = row["reported"].get(name)
            each = [100 * p[row["population"]]["model"] for p in runs.get(column.get("measured", ""), ())
                    if row["population"] in p]  # fmt: skip
            line += ["" if value is None else f"{value:.1f}", spread(each)]
        lines.append(line)
    return lines


def sizes(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    columns = table["columns"]
    here: dict[str, dict[str, int]] = {}
    missing: list[str] = []
    for name, column in columns.items():
        here[name] = {}
        if "task" not in column:
            continue
        try:
            unit = column.get("unit")
            here[name] = split_sizes(column["task"], unit, given) if unit else linking_sizes(column["task"], given)
        except InputError as error:  # told under the table: a data set that is not at hand leaves its cells empty
            missing.append(f"{name}: not counted: {error}")
    kinds = ("as published", "here")
    lines = [["", *(f"{name} {kind}" for name in columns for kind in kinds)]]
    for row in table["rows"]:
        line = [row["name"]]
        for name in columns:
            published, counted = row.get("reported", {}).get(name), here[name].get(row["counts"])
            line += [f"{n:,}" if isinstance(n, int) else "" for n in (published, counted)]
        lines.append(line)
    for line_of in missing:
        print(line_of, file=sys.stderr)
    return lines


def overlap(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    asked, found, missing = overlaps([row["task"] for row in table["rows"]], given)
    lines = [["", *(f"{name} as published" for name in table["columns"])]]
    measures = {name: column["measure"] for name, column in table["columns"].items() if "measure" in column}
    lines[0] += [f"{name} here" if name == "mentions" else f"{name} to {asked}" for name in measures]
    for row in table["rows"]:
        values = [row.get("reported", {}).get(name) for name in table["columns"]]
        own = found.get(row["task"])
        values += [getattr(own, measure) if own else None for measure in measures.values()]
        lines.append([row["name"], *("" if v is None else f"{v:,}" for v in values)])
    for name, why in missing.items():
        print(f"{name}: not counted: {why.splitlines()[0]}", file=sys.stderr)
    return lines


def queries(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    made = sorted((runs_folder() / "data" / "probing").glob("*/manifest.json"))
    here = {f.parent.name: read_json(f)["counts"] for f in made if given.get("GRAPH") in (None, f.parent.name)}
    lines = [["", *(f"{name} as published" for name in table["columns"]), *here]]
    for row in table["rows"]:
        values = [
            *(row["reported"].get(name) for name in table["columns"]),
            *(c.get(row["counts"]) for c in here.values()),
        ]
        lines.append([row["name"], *("" if v is None else f"{v:,}" for v in values)])
    return lines
