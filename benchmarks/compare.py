"""Systems that were scored on a task, best first, with paired tests, as text and as a page.

kepl compare TASK|synonyms [--base ENCODER] [--page FILE]
kepl compare --gold FILE --graph GRAPH [--chains CHAIN …]      on one's own annotated texts
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from benchmarks.groups import Group, find_differences, group_results, list_replaced
from benchmarks.options import Evaluation
from benchmarks.paired_tests import format_tests, style_of, versus
from benchmarks.results import Result, list_stored
from benchmarks.synonyms import DATASETS, samples_checksum
from core.files import InputError, atomic_write
from core.outputs import check_own
from datamodules.tasks.linking import END_TO_END, linking_tasks
from datamodules.tasks.prepare import find_task
from models.metrics import score


def alike(results: list[Result]) -> list[Result]:
    """Those of the protocol of the newest."""
    return [r for r in results if not find_differences(r.protocol, results[-1].protocol)]


class Comparison(NamedTuple):
    """Systems on one protocol, and the score that they are compared by."""

    title: str
    groups: list[Group]
    key: str
    left_out: Sequence[str] = ()  # a line for what was scored and is not compared


def find_comparisons(
    name: str,
    profile: Literal["small", "paper"] = "small",
    samples: Path | None = None,
    split: str | None = None,
) -> list[Comparison]:
    """The systems on the protocol of the newest result. Raises InputError when there is no
    result."""
    if name == "synonyms":
        checksum = samples_checksum(samples)
        results = [r for r in list_stored("synonyms") if checksum in (None, r.protocol["samples"])]
        if not results:
            raise InputError("nothing was scored on these synonyms: `make synonyms` first")
        groups = list(group_results(alike(results)).values())
        comparisons = []
        for part in DATASETS:
            key = f"{part}/acc@1"
            scored = [group for group in groups if group.tallies(key)]
            if scored:
                comparisons.append(Comparison(f"{part}, Acc@1 among 20 names", scored, key))
        return comparisons
    if name in linking_tasks() or name in END_TO_END:
        return [compare_linkers(name, split)]
    definition = find_task(name)
    results = [
        r
        for r in list_stored("finetune", definition.name)
        if r.protocol["profile"] == profile and "share" not in r.protocol
    ]
    if not results:
        raise InputError(
            f"no results of {definition.name} with PROFILE={profile}: `make finetune"
            f" TASK={definition.name}` first"
        )
    newest = results[-1]
    title = f"{definition.name}, {newest.split} {newest.metric}, PROFILE={profile}"
    same = alike(results)
    groups = list(group_results(same).values())
    left_out = list_replaced(same, groups)
    if others := len(results) - len(same):
        left_out.append(f"left out: {others} of other data or another split")
    return [Comparison(title, groups, newest.metric, left_out)]


def compare_linkers(name: str, split: str | None = None, advice: str = "") -> Comparison:
    """The linkers, or chains, that were scored on a task or on one's own texts.

    advice: the command that scores one. Raises InputError where there is no result.
    """
    results = [r for r in list_stored("linking", name) if split in (None, r.split)]
    if not results:
        raise InputError(f"no results of {name}: `{advice or f'make evaluate TASK={name}'}` first")
    title = f"{name}, {results[-1].split} {results[-1].metric}"
    return Comparison(title, list(group_results(alike(results)).values()), results[-1].metric)


def compare_chains(evaluations: Sequence[Evaluation]) -> Comparison:
    """Chains on one's own annotated texts, each scored first."""
    from benchmarks.linking.ends import score_chain

    results = [score_chain(evaluation) for evaluation in evaluations]
    first = results[0]
    groups = list(group_results(results).values())
    return Comparison(f"{first.task}, {first.split} {first.metric}", groups, first.metric)


def format_comparisons(comparisons: Sequence[Comparison], base: str | None = None) -> str:
    """Each comparison as text: the best against each other, or each against `base`. Raises
    InputError for a base that is none of the systems."""
    blocks = []
    for comparison in comparisons:
        text = versus(comparison.title, comparison.groups, comparison.key, base)
        blocks.append("\n".join([text, *comparison.left_out]))
    return "\n\n".join(blocks)


BAR = 420  # pixels of the axis of a page's intervals


def write_page(comparisons: Sequence[Comparison], path: Path, base: str | None = None) -> Path:
    """Comparisons as a page (HTML) that needs no other file: scores with their intervals drawn, the
    best first, and the tests of each pair. Raises InputError for a file that is something else."""
    check_own(path, "page of a comparison", lambda line: "<title>Comparison</title>" in line)
    parts = ["<h1>Comparison</h1>"]
    for comparison in comparisons:
        rows = sorted(comparison.groups, key=lambda g: -_mean(g, comparison.key))
        ends = [g.interval(comparison.key) or (0.0, 0.0) for g in rows]
        low, high = min(e[0] for e in ends), max(e[1] for e in ends)
        parts.append(f"<h2>{html.escape(comparison.title)}</h2><table>")
        parts.append("<tr><th>system</th><th>score</th><th>95 % interval</th><th></th></tr>")
        for group, (first, last) in zip(rows, ends, strict=True):
            mean = _mean(group, comparison.key)
            bar = _draw_interval(mean, first, last, low, high)
            scale, digits, _ = style_of(group)
            bounds = [f"{scale * value:.{digits}f}" for value in (mean, first, last)]
            cells = [html.escape(group.label), bounds[0], f"{bounds[1]} to {bounds[2]}", bar]
            parts.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        lines = [*format_tests(rows, comparison.key, base), *comparison.left_out]
        parts.append("</table>" + "".join(f"<p>{html.escape(line)}</p>" for line in lines))
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Comparison</title><style>'
        "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}"
        "td,th{text-align:left;padding:.2rem .8rem .2rem 0}</style>"
    )
    with atomic_write(path) as handle:
        handle.write(head + "\n".join(parts) + "</html>\n")
    return path


def _mean(group: Group, key: str) -> float:
    return float(np.mean([score(tallies) for tallies in group.tallies(key).values()]))


def _draw_interval(mean: float, first: float, last: float, low: float, high: float) -> str:
    """An interval on the axis from low to high, as SVG."""
    width = max(high - low, 1e-9)
    x1, x, x2 = (8 + BAR * (value - low) / width for value in (first, mean, last))
    title = f"{mean:.4f}, 95 % interval {first:.4f} to {last:.4f}"
    return (
        f'<svg width="{BAR + 16}" height="18" role="img" aria-label="{title}">'
        f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="9" y2="9" stroke="#555" stroke-width="2"/>'
        f'<circle cx="{x:.1f}" cy="9" r="4" fill="#1a4fa3"/></svg>'
    )
