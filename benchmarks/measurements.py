"""What is counted or timed, rather than scored over examples: results of a kind of their own, which
`kepl publish` turns into a record for every number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.results import (
    MEASURED,
    OVERALL,
    Model,
    Result,
    result_folder,
    save_once,
    save_result,
)


def save_measurement(
    kind: str,
    task: str,
    metric: str,
    scores: Mapping[str, Mapping[str, float]],
    model: str = "kepl",
    data: Mapping[str, str] | None = None,
    unit: str = "",
    settings: Mapping[str, Any] | None = None,
    commit: str = "",
) -> Result:
    """Save the numbers of one measurement; a later one of the same task and model replaces it.

    task     what was measured: a benchmark, or a set of texts
    metric   the number that stands for the others, among those of "overall"
    scores   {group, "overall" or a setting: {metric: value}}
    model    whose numbers they are
    data     {what was read: its checksum}
    unit     of rates
    settings what else one measurement differs in from another of the task
    commit   that measured it, maybe earlier; empty: the checkout's, now
    Raises ValueError for another kind, or scores without `metric`.
    """
    if kind not in MEASURED or metric not in scores.get(OVERALL, {}):
        raise ValueError(f"{kind}, {metric}: expected one of {', '.join(MEASURED)} and its number")
    result = Result(
        kind=kind,
        task=task,
        split="",
        metric=metric,
        protocol={"task": task, **(settings or {})},
        model=Model(model),
        scores=scores,
        data=dict(data or {}),
        details={"unit": unit},
        commit=commit,
    )
    save = save_once if commit else save_result
    return save(result, result_folder(result))
