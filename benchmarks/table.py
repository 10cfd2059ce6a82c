"""``make table``: a paper's table, reported beside measured. Only reads runs.

    python -m benchmarks.run table sapbert 2 [FOLDS=0 SPLIT=dev]

experiments/<paper>/table<N>.yaml has the rows and the reported numbers; what was measured stands in
runs/linking/<task>/<stamp>/*/summary.json (`make evaluate`). Runs of one label under one protocol are seeds: mean ± sd (n).
A column with runs of several protocols is refused, saying in which part they differ. FOLDS and SPLIT choose among them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.linking.scores import differing
from kg.files import InputError, read_json
from kg.tracking import ROOT, runs_folder

SETTINGS = ("FOLDS", "SPLIT")


def definition_of(paper: str, number: str) -> dict[str, Any]:
    """A table's YAML. Raises InputError with the list when there is none of that number."""
    there = {p.stem.removeprefix("table"): p for p in sorted((ROOT / "experiments" / paper).glob("table*.yaml"))}
    if number not in there:
        raise InputError(f"no table {number!r} of {paper!r}; choose from: {', '.join(there) or 'none'}")
    found: dict[str, Any] = yaml.safe_load(there[number].read_text())
    return found


def measured(task: str, split: str, folds: str) -> dict[str, list[dict[str, Any]]]:
    """{label: its runs' scores} of a column, from every run under the one protocol there is. Raises InputError for two.

    A run also measured both floors; they count once, under their own labels.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    first: dict[str, Any] | None = None
    floors: dict[str, dict[str, Any]] = {}
    place = runs_folder() / "linking" / re.sub(r"[^\w.@-]+", "-", task)
    for file in sorted(Path(place).glob("*/*/summary.json")):
        summary = read_json(file)
        stamp = summary["stamp"]
        if stamp["split"] != split or stamp.get("fold_numbers", "all") != folds:
            continue
        first = first or stamp
        if parts := differing(first, stamp):
            told = "; ".join(f"{p}: {first.get(p)!r} and {stamp.get(p)!r}" for p in parts)
            raise InputError(
                f"{task}: runs of different protocols ({told}) in {place}. Move those aside that are not meant."
            )
        found.setdefault(summary["model"], []).append(summary["results"][summary["model"]])
        floors |= {k: v for k, v in summary["results"].items() if k in ("exact", "tfidf")}
    return found | {k: [v] for k, v in floors.items()}


def cell(runs: list[dict[str, Any]], metric: str) -> str:
    """mean ± sd (n) in percent; one run: its score and, for Acc@1, the interval."""
    values = [100 * run[metric] for run in runs]
    if len(values) > 1:
        return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f} ({len(values)})"
    low, high = (100 * runs[0][k] for k in ("low", "high"))
    return f"{values[0]:.1f}" + (f" [{low:.1f}, {high:.1f}]" if metric == "acc@1" else "")


def markdown(paper: str, number: str, given: Mapping[str, str]) -> str:
    """The table as Markdown: per column and metric what is reported (r) and measured (m). Raises InputError."""
    table = definition_of(paper, number)
    columns, metrics = table["columns"], table["metrics"]
    runs = {
        name: measured(c["task"], given.get("SPLIT") or c["split"], given.get("FOLDS") or "all")
        for name, c in columns.items()
    }
    heads = [
        f"{name} {m.removeprefix('acc')} {kind}"
        for name in columns
        for m in metrics
        for kind in ("as published", "measured")
    ]
    lines = [["", *heads]]
    for row in table["rows"]:
        line = [row["name"]]
        for name in columns:
            reported = row.get("reported", {}).get(name) or [None] * len(metrics)
            own = runs[name].get(row.get("measured", ""), [])
            for metric, value in zip(metrics, reported, strict=True):
                line += ["" if value is None else f"{value:.1f}", cell(own, metric) if own else ""]
        lines.append(line)
    used = [0] + [i for i in range(1, len(lines[0])) if any(line[i] for line in lines[1:])]
    text = [f"{table['title']}", ""]
    for place, line in enumerate(lines):
        text.append("| " + " | ".join(line[i] for i in used) + " |")
        if place == 0:
            text.append("|" + "---|" * len(used))
    return "\n".join(text)
