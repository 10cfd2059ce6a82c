"""``make table``: a paper's table, reported beside measured. Only reads runs; RUN=1 first makes the runs that are missing.

    python -m benchmarks.run table sapbert 2 [FOLDS=0 SPLIT=dev PROFILE=small SAMPLES=FOLDER GRAPH=hpo MIRROR=FOLDER OUT=FOLDER]

experiments/<paper>/table<N>.yaml has the rows and the reported numbers; what was measured stands in
runs/linking/<task>/<stamp>/*/summary.json (`make evaluate`). Runs of one label under one protocol are seeds: mean ± sd (n).
A column with runs of several protocols is refused, saying in which part they differ; `varies` names the parts that a
table is about. FOLDS and SPLIT choose among them. Markdown goes to the terminal and, with a CSV that has a line a cell (mean, sd,
number of seeds, interval, tests, MLflow runs), into runs/tables or OUT=. `against` of a table names a row with which every other
measured one is compared (paired bootstrap over examples, paired t over seeds), `baseline` one whose published numbers are tested
against by a one-sample t over seeds, as KeBioLM's Table 2 does. `kind` of a table:

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

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.table import counted, measured
from benchmarks.table.cells import Cell, as_csv, as_markdown, beside, lines_as_csv, significance
from benchmarks.table.measured import summaries_of
from benchmarks.table.missing import run_missing
from core.files import InputError, written
from core.tracking import ROOT, runs_folder

__all__ = ["SETTINGS", "definition_of", "made", "markdown", "summaries_of", "written_table"]
SETTINGS = (
    "FOLDS", "SPLIT", "MIRROR", "PROFILE", "SAMPLES", "GRAPH", "LIMIT", "SEED", "METHOD", "MASKS", "BEAM", "MODEL", "CKPT", "OUT",
    "RUN", "SEEDS",
)  # fmt: skip
MEASURED = {
    "scores": measured.scores, "finetune": measured.finetune, "synonyms": measured.synonyms, "probing": measured.probing,
}  # fmt: skip
COUNTED = {
    "populations": counted.populations, "sizes": counted.sizes, "overlap": counted.overlap, "queries": counted.queries,
}  # fmt: skip


def definition_of(paper: str, number: str) -> dict[str, Any]:
    """A table's YAML. Raises InputError with the list when there is none of that number."""
    there = {p.stem.removeprefix("table"): p for p in sorted((ROOT / "experiments" / paper).glob("table*.yaml"))}
    if number not in there:
        raise InputError(f"no table {number!r} of {paper!r}; choose from: {', '.join(there) or 'none'}")
    found: dict[str, Any] = yaml.safe_load(there[number].read_text())
    return found


def made(paper: str, number: str, given: Mapping[str, str]) -> tuple[str, list[list[str]], list[Cell]]:
    """(title, lines of text with their heads first, cells) of a table; a table of counts has no cells. Raises InputError."""
    table = definition_of(paper, number)
    kind = table.get("kind", "scores")
    if kind in COUNTED:
        return table["title"], COUNTED[kind](table, given), []
    cells = MEASURED[kind](table, given)
    return table["title"], beside(cells), cells


def told(title: str, lines: list[list[str]], cells: list[Cell]) -> str:
    """The table as Markdown, reported beside measured, its tests below."""
    return "\n".join([title, "", as_markdown(lines), *([""] if significance(cells) else []), *significance(cells)])


def markdown(paper: str, number: str, given: Mapping[str, str]) -> str:
    """The table as Markdown. Columns without anything stay out. Raises InputError."""
    return told(*made(paper, number, given))


def written_table(paper: str, number: str, given: Mapping[str, str]) -> tuple[str, list[Path]]:
    """(the table as Markdown, the Markdown and CSV files that it is written to)."""
    if given.get("RUN"):
        run_missing(definition_of(paper, number), given)
    title, lines, cells = made(paper, number, given)
    text = told(title, lines, cells)
    stem = Path(given.get("OUT") or runs_folder() / "tables") / f"{paper}_table{number}"
    files = [stem.with_suffix(".md"), stem.with_suffix(".csv")]
    for file, content in zip(files, (text + "\n", as_csv(cells) if cells else lines_as_csv(lines)), strict=True):
        with written(file) as handle:
            handle.write(content)
    return text, files
