"""A paper's table, reported beside measured. Only reads results; RUN=1 first makes those that are
missing.

    kepl table sapbert 2 [--folds 0 --split dev --profile small ...]        make table PAPER=sapbert TABLE=2

benchmarks/papers/<paper>/table<N>.yaml has the rows and the reported numbers, and which result is
measured: `measured` is a model, or a mapping with `model` and its options. Results of one system
are seeds: mean ± sd (n). A column with results of several protocols is refused, with the parts that
differ; `varies` names the parts that a table is about. `against` names a row with which every other
measured one is compared (paired bootstrap over examples, paired t over seeds), `baseline` one whose
published numbers are tested against by a one-sample t over seeds, as KeBioLM's Table 2 does. `kind`
of a table:

    scores       (default) systems by linking tasks, percent; `metrics` of each column
    finetune     systems by fine-tuning tasks, percent; a column has a `split` and may name a
                 `metric` other than the task's; one with `pretraining` has that metric of the
                 held-out text at the end of each seed's pre-training, times its `scale`
    synonyms     systems by D1, D2 and D3, percent
    probing      systems by types of queries, percent: a column has a `type` and a `measure`
                 (recall, strict)
    populations  groups of mentions by systems, on one task: `population` of a row, `measured` of a
    column
    sizes        names, concepts and mentions by linking tasks, or splits of a fine-tuning task in
                 the column's `unit`
    or the dotted name, in `benchmarks`, of a function of (table, choices, files) that returns lines
    of text, the heads first

Markdown and a CSV with a line a cell go to runs/tables or OUT=.
"""  # noqa: E501

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from benchmarks.options import Choices
from benchmarks.tables import counted, measured
from benchmarks.tables.cells import (
    Cell,
    as_csv,
    as_markdown,
    format_comparison,
    lines_as_csv,
    significance,
)
from benchmarks.tables.missing import run_missing
from core.choices import list_known
from core.dotted import import_object
from core.files import InputError, atomic_write
from core.outputs import claimed_files
from core.tracking import runs_folder
from datamodules.options import Files

PAPERS = Path(__file__).parents[1] / "papers"
MEASURED = {
    "scores": measured.scores,
    "finetune": measured.finetune,
    "synonyms": measured.synonyms,
    "probing": measured.probing,
}
COUNTED = {"populations": counted.populations, "sizes": counted.sizes}


def definition_of(paper: str, number: str) -> dict[str, Any]:
    """A table's YAML. Raises InputError with the list when there is none of that number."""
    papers = sorted({p.parent.name for p in PAPERS.glob("*/table*.yaml")})
    if paper not in papers:
        raise InputError(f"no tables of paper {paper!r}; {list_known(paper, papers)}")
    files = {p.stem.removeprefix("table"): p for p in sorted((PAPERS / paper).glob("table*.yaml"))}
    if number not in files:
        raise InputError(f"no table {number!r} of {paper}; {list_known(number, files)}")
    table: dict[str, Any] = yaml.safe_load(files[number].read_text())
    return table


def content(
    table: dict[str, Any], choices: Choices, files: Files
) -> tuple[list[list[str]], list[Cell]]:
    """(lines of text, their heads first; cells) of a table; a table of counts has no cells. Raises
    InputError."""
    kind = table.get("kind", "scores")
    if kind in MEASURED:
        cells = MEASURED[kind](table, choices)
        return format_comparison(cells), cells
    count = COUNTED[kind] if kind in COUNTED else import_object(kind, "benchmarks")
    return count(table, choices, files), []


def format_table(table: dict[str, Any], lines: list[list[str]], cells: list[Cell]) -> str:
    tests = significance(cells)
    return "\n".join([table["title"], "", as_markdown(lines), *([""] if tests else []), *tests])


def write_table(
    paper: str,
    number: str,
    choices: Choices | None = None,
    files: Files | None = None,
    out: Path | None = None,
    run: bool = False,
    seeds: str | None = None,
    fresh: bool = False,
) -> tuple[str, list[Path]]:
    """(the table as Markdown, the Markdown and CSV files that it is written to). run: first make
    the missing results. fresh: replace files in `out` that this command did not write."""
    table, choices, files = definition_of(paper, number), choices or Choices(), files or Files()
    stem = (out or runs_folder() / "tables") / f"{paper}_table{number}"
    paths = [stem.with_suffix(".md"), stem.with_suffix(".csv")]
    with claimed_files(out, [path.name for path in paths], fresh):
        if run:
            run_missing(table, choices, files, seeds)
        lines, cells = content(table, choices, files)
        text = format_table(table, lines, cells)
        bodies = (text + "\n", as_csv(cells) if cells else lines_as_csv(lines))
        for file, body in zip(paths, bodies, strict=True):
            with atomic_write(file) as handle:
                handle.write(body)
    return text, paths
