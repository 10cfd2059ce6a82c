"""``make table``: a paper's table, reported beside measured. Only reads runs.

    python -m benchmarks.run table sapbert 2 [FOLDS=0 SPLIT=dev PROFILE=small SAMPLES=FOLDER GRAPH=hpo MIRROR=FOLDER]

experiments/<paper>/table<N>.yaml has the rows and the reported numbers; what was measured stands in
runs/linking/<task>/<stamp>/*/summary.json (`make evaluate`). Runs of one label under one protocol are seeds: mean ± sd (n).
A column with runs of several protocols is refused, saying in which part they differ; `varies` names the parts that a
table is about. FOLDS and SPLIT choose among them. `kind` of a table:

    scores       (default) systems by tasks: `measured` of a row is the label of its runs
    populations  sub-populations by systems, on one task: `population` of a row, `measured` of a column
    sizes        names, concepts and mentions by linking tasks, or splits of a fine-tuning task in the column's `unit`,
                 counted in the files at hand (MIRROR=)
    finetune     systems by fine-tuning tasks, percent: `measured` of a row is the label that `make finetune` gave, its newest
                 summary is taken (PROFILE= chooses); a column has a `split` and may name a `metric` other than the task's;
                 a column with `pretraining` has that metric of the held-out text at the end of each seed's pre-training,
                 times its `scale`
    synonyms     systems by D1, D2 and D3, percent: `measured` of a row is the label of `make synonyms` (SAMPLES= chooses)
    probing      systems by types of queries, percent: `measured` of a row is the label of `make probe`, a column has a `type` and a
                 `measure` (recall, strict). One set of queries and one way of asking in a table: GRAPH=, LIMIT=, METHOD= … choose
    overlap      annotated mentions of NER and RE sets (rows) and how many a graph knows (GRAPH=, or MODEL=: a KeBioLM)
    queries      counts of queries that were made by `make probe` (columns, beside those published): `counts` of a row
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks import scored
from benchmarks.counts import split_sizes
from benchmarks.linking.scores import differing
from benchmarks.linking.sizes import sizes
from benchmarks.overlap import overlaps
from kg.files import InputError, read_json
from kg.tracking import ROOT, runs_folder

SETTINGS = (
    "FOLDS",
    "SPLIT",
    "MIRROR",
    "PROFILE",
    "SAMPLES",
    "GRAPH",
    "LIMIT",
    "SEED",
    "METHOD",
    "MASKS",
    "BEAM",
    "MODEL",
    "CKPT",
)


def definition_of(paper: str, number: str) -> dict[str, Any]:
    """A table's YAML. Raises InputError with the list when there is none of that number."""
    there = {p.stem.removeprefix("table"): p for p in sorted((ROOT / "experiments" / paper).glob("table*.yaml"))}
    if number not in there:
        raise InputError(f"no table {number!r} of {paper!r}; choose from: {', '.join(there) or 'none'}")
    found: dict[str, Any] = yaml.safe_load(there[number].read_text())
    return found


def summaries_of(task: str, split: str, folds: str, varies: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What `make evaluate` found on a task's split, every run under the one protocol there is. Raises InputError for two.

    `varies` names the parts of the protocol that may differ.
    """
    found: list[dict[str, Any]] = []
    first: dict[str, Any] | None = None
    place = runs_folder() / "linking" / re.sub(r"[^\w.@-]+", "-", task)
    for file in sorted(Path(place).glob("*/*/summary.json")):
        summary = read_json(file)
        stamp = summary["stamp"]
        if stamp["split"] != split or stamp.get("fold_numbers", "all") != folds:
            continue
        first = first or stamp
        if parts := [part for part in differing(first, stamp) if part not in varies]:
            told = "; ".join(f"{p}: {first.get(p)!r} and {stamp.get(p)!r}" for p in parts)
            raise InputError(
                f"{task}: runs of different protocols ({told}) in {place}. Move those aside that are not meant."
            )
        found.append(summary)
    return found


def measured(task: str, split: str, folds: str, varies: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """{label: its runs' scores} of a column. A run also measured both floors; they count once, under their own labels."""
    found: dict[str, list[dict[str, Any]]] = {}
    floors: dict[str, dict[str, Any]] = {}
    for summary in summaries_of(task, split, folds, varies):
        found.setdefault(summary["model"], []).append(summary["results"][summary["model"]])
        floors |= {k: v for k, v in summary["results"].items() if k in ("exact", "tfidf")}
    return found | {k: [v] for k, v in floors.items()}


def spread(values: Sequence[float], digits: int = 1) -> str:
    """mean ± sd (n); one value as it is; nothing without any."""
    if len(values) < 2:
        return "".join(f"{v:.{digits}f}" for v in values)
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f} ({len(values)})"


def cell(runs: list[dict[str, Any]], metric: str) -> str:
    """mean ± sd (n) in percent; one run: its score and, for Acc@1, the interval."""
    values = [100 * run[metric] for run in runs]
    if len(values) > 1:
        return spread(values)
    low, high = (100 * runs[0][k] for k in ("low", "high"))
    return f"{values[0]:.1f}" + (f" [{low:.1f}, {high:.1f}]" if metric == "acc@1" else "")


def _scores(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    columns, metrics, varies = table["columns"], table["metrics"], table.get("varies", ())
    runs = {
        name: measured(c["task"], given.get("SPLIT") or c["split"], given.get("FOLDS") or "all", varies)
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
    return lines


def _populations(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
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


def _sizes(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    columns = table["columns"]
    here: dict[str, dict[str, int]] = {}
    missing: list[str] = []
    for name, column in columns.items():
        here[name] = {}
        if "task" not in column:
            continue
        try:
            unit = column.get("unit")
            here[name] = split_sizes(column["task"], unit, given) if unit else sizes(column["task"], given)
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


def _beside(table: Mapping[str, Any], cells: Mapping[str, Mapping[str, str]]) -> list[list[str]]:
    """Rows by columns, reported (percent, two decimals) beside `cells`: {column: {label: what was measured}}."""
    columns = table["columns"]
    lines = [["", *(f"{name} {kind}" for name in columns for kind in ("as published", "measured"))]]
    for row in table["rows"]:
        line = [row["name"]]
        for name in columns:
            value = row.get("reported", {}).get(name)
            line += ["" if value is None else f"{value:.2f}", cells.get(name, {}).get(row.get("measured", ""), "")]
        lines.append(line)
    return lines


def _percent(values: Sequence[float], interval: tuple[float, float] | None) -> str:
    """mean ± sd (n), or a single value with its interval if it has one."""
    shown = spread([100 * v for v in values], 2)
    return shown if not values or interval is None else f"{shown} [{100 * interval[0]:.2f}, {100 * interval[1]:.2f}]"


def _finetune(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    labels = {row["measured"] for row in table["rows"] if "measured" in row}
    tasks = dict.fromkeys(column["task"] for column in table["columns"].values() if "task" in column)
    runs = {task: scored.fine_tuned(task, labels, given.get("PROFILE")) for task in tasks}
    cells = {}
    for name, column in table["columns"].items():
        if "task" in column:
            split, metric = column["split"], column.get("metric")
            cells[name] = {
                label: _percent(scored.values(some, split, metric), scored.interval(some, split, metric))
                for label, some in runs[column["task"]].items()
            }
        elif "pretraining" in column:
            metric, scale = column["pretraining"], column.get("scale", 1)
            ends = {label: scored.pretrained(label)[1] for label in sorted(labels)}
            cells[name] = {
                label: spread([scale * end[metric] for end in each if metric in end], 2) for label, each in ends.items()
            }
    for task in tasks:
        for line in scored.remarks(task, runs[task]):
            print(line, file=sys.stderr)
    return _beside(table, cells)


def _synonyms(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    labels = {row["measured"] for row in table["rows"] if "measured" in row}
    samples = read_json(Path(given["SAMPLES"]) / "manifest.json")["sha256"] if given.get("SAMPLES") else None
    found = scored.retrieved(labels, samples)
    cells: dict[str, dict[str, str]] = {}
    for name in table["columns"]:
        cells[name] = {}
        for label, runs in found.items():
            own = [run["results"][name] for run in runs if name in run["results"]]
            single = (own[0]["low"], own[0]["high"]) if len(own) == 1 else None
            cells[name][label] = _percent([one["acc@1"] for one in own], single)
    return _beside(table, cells)


def _probing(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
    labels = {row["measured"] for row in table["rows"] if "measured" in row}
    found = scored.probed(labels, given)
    cells: dict[str, dict[str, str]] = {}
    for name, column in table["columns"].items():
        cells[name] = {}
        for label, runs in found.items():
            own = [run["results"][column["type"]] for run in runs if column["type"] in run["results"]]
            measure = column["measure"]
            single = (own[0][f"{measure} low"], own[0][f"{measure} high"]) if len(own) == 1 else None
            cells[name][label] = _percent([one[measure] for one in own], single)
    return _beside(table, cells)


def _overlap(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
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
        print(f"{name}: not counted: {why}", file=sys.stderr)
    return lines


def _queries(table: Mapping[str, Any], given: Mapping[str, str]) -> list[list[str]]:
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


KINDS = {
    "scores": _scores, "populations": _populations, "sizes": _sizes, "finetune": _finetune, "synonyms": _synonyms,
    "probing": _probing, "queries": _queries, "overlap": _overlap,
}  # fmt: skip


def markdown(paper: str, number: str, given: Mapping[str, str]) -> str:
    """The table as Markdown, reported beside measured. Columns without anything stay out. Raises InputError."""
    table = definition_of(paper, number)
    lines = KINDS[table.get("kind", "scores")](table, given)
    used = [0] + [i for i in range(1, len(lines[0])) if any(line[i] for line in lines[1:])]
    text = [f"{table['title']}", ""]
    for place, line in enumerate(lines):
        text.append("| " + " | ".join(line[i] for i in used) + " |")
        if place == 0:
            text.append("|" + "---|" * len(used))
    return "\n".join(text)
