"""The end of the report of a scored linker."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.groups import group_results
from benchmarks.paired_tests import others
from benchmarks.results import Result, list_stored


def format_rest(results: Sequence[Result], metric: str) -> list[str]:
    """The protocol of the last result, the file of its predictions, and the other linkers of that
    protocol."""
    ours = results[-1]
    lines = ["", "protocol"]
    lines += [f"  {k:<30}{v}" for k, v in ours.protocol.items() if v is not None]
    lines.append(f"predictions: {ours.folder}/predictions.jsonl")
    scored = {result.folder for result in results}
    pool = list_stored("linking", ours.task)
    return lines + others(group_results(results)[ours.label], pool, metric, scored)
