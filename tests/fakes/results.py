"""Results as the evaluators save them, for what only reads results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.compare import find_comparisons, format_comparisons
from benchmarks.options import Choices
from benchmarks.results import OVERALL, SELECT, Model, Result, result_folder, save_result
from core.tracking import folder_name, runs_folder
from datamodules.options import Files


def markdown(paper: str, number: str, choices: Choices | None = None) -> str:
    """A paper's table as Markdown."""
    table = tables.definition_of(paper, number)
    return tables.format_table(table, *tables.content(table, choices or Choices(), Files()))


def time(age: int) -> str:
    """A time `age` seconds before a fixed one."""
    return (datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=age)).isoformat(
        timespec="microseconds"
    )


def hits(share: float | Sequence[int], count: int = 100) -> np.ndarray:
    """(n, 2) tallies: these hits, or the first examples right, so that the score is `share` of
    `count`."""
    right = (
        np.array(share, float)
        if not isinstance(share, float)
        else np.arange(count) < round(share * count)
    )
    return np.stack([right.astype(float), np.ones(len(right))], axis=1)


def fine_tuned(
    model: str,
    *scores: float | Sequence[int],
    name: str = "cMedQANER",
    run: str = "",
    options: Mapping[str, Any] | None = None,
    age: int = 0,
    metric: str = "entity_f1",
    split: str = "test",
    data: str = "data1",
    profile: str = "small",
    **details: Any,
) -> list[Result]:
    """A result a seed, as `kepl finetune` saves them; the selection split scores a tenth less."""
    made = []
    request = f"{model} {run} {options} {age}"
    for seed, share in enumerate(scores):
        tallies = hits(share)
        value = float(tallies[:, 0].mean())
        place = (
            runs_folder() / "finetune" / folder_name(name) / folder_name(request) / f"seed{seed}"
        )
        about = {
            "profile": profile,
            "args": "",
            "variant": None,
            "selected_on": "dev",
            "parent": f"parent of {request}",
            "epoch": 1,
            "suite": "x",
        }
        made.append(
            save_result(
                Result(
                    kind="finetune",
                    task=name,
                    split=split,
                    metric=metric,
                    model=Model(model, run, model),
                    seed=seed,
                    options=options or {},
                    protocol={"profile": profile, "data": data, "metric": metric, "split": split},
                    scores={
                        OVERALL: {metric: value, "accuracy": value, "examples": len(tallies)},
                        SELECT: {metric: value - 0.1},
                    },
                    tallies={metric: tallies},
                    details=about | details,
                    request=request,
                    created=time(age),
                    mlflow_run=f"run{seed}",
                ),
                place,
            )
        )
    return made


def linked(
    model: str,
    *scores: float | Sequence[int],
    name: str = "NCBI-EL",
    split: str = "test",
    folds: str = "all",
    options: Mapping[str, Any] | None = None,
    groups: Mapping[str, float] | None = None,
    size: int = 10,
    like: Mapping[str, Any] | None = None,
    runs: Sequence[str] = (),
    **protocol: Any,
) -> list[Result]:
    """A result for each score, as `kepl evaluate` saves them of several runs; of a fine-tuned
    linker each has the next seed.

    runs: of pre-training, one for each score.
    """
    made = []
    for number, right in enumerate(scores):
        tallies = hits(right)
        value = float(tallies[:, 0].mean())
        every = {OVERALL: {"acc@1": value, "acc@5": value, "mrr": value, "examples": 100}}
        every |= {title: {"acc@1": own, "examples": size} for title, own in (groups or {}).items()}
        result = Result(
            kind="linking",
            task=name,
            split=split,
            metric="acc@1",
            model=Model(model, runs[number] if runs else "", f"{model}{number}"),
            options=options or {},
            seed=number if "finetuned" in (options or {}) else 0,
            protocol={"task": name, "split": split, "fold_numbers": folds, "mentions": 100}
            | dict(like or {})
            | protocol,
            scores=every,
            tallies={"acc@1": tallies},
            details={"linker": f"{model}{number}", "reasons": {}},
            created=time(0),
            mlflow_run="" if model in ("exact", "tfidf") else f"{model}{number}",
        )
        made.append(save_result(result, result_folder(result)))
    return made


def retrieved(
    model: str,
    *scores: Mapping[str, float | Sequence[int]],
    samples: str = "s",
    runs: Sequence[str] = ("",),
    options: Mapping[str, Any] | None = None,
) -> list[Result]:
    """A result for each run, {D1: share or hits, …}, as `kepl synonyms` saves them."""
    made = []
    for run, own in zip(runs, scores, strict=True):
        tallies = {f"{group}/acc@1": hits(share) for group, share in own.items()}
        result = Result(
            kind="synonyms",
            task="synonyms",
            split="all",
            metric="acc@1",
            model=Model(model, run, model + run),
            options=options or {},
            protocol={"samples": samples, "frequent": 200, "mentions": "m"},
            tallies=tallies,
            scores={
                k.partition("/")[0]: {"acc@1": float(t[:, 0].mean()), "examples": len(t)}
                for k, t in tallies.items()
            },
        )
        made.append(save_result(result, result_folder(result)))
    return made


def probed(
    model: str, recall: float, options: Mapping[str, Any] | None = None, **protocol: Any
) -> Result:
    """A result of all queries and of type 2, as `kepl probe` saves it."""
    tallies = {
        f"{group}/{measure}": hits(share)
        for group in ("all", "type 2")
        for measure, share in (("recall", recall), ("strict", 0.01))
    }
    whole = {
        "queries": "1",
        "limit": None,
        "seed": None,
        "method": "beam",
        "masks": 10,
        "beams": 5,
        "special": False,
    } | protocol
    result = Result(
        kind="probing",
        task="probing",
        split="all",
        metric="recall",
        model=Model(model, "", model),
        options=options or {},
        protocol=whole,
        tallies=tallies,
        details={"asked": "x/hpo"},
        scores={
            g: {"recall": recall, "strict": 0.01, "examples": 100, "relations": 3}
            for g in ("all", "type 2")
        },
    )
    return save_result(result, result_folder(result))


def compare(name: str, base: str | None = None, split: str | None = None) -> str:
    """What `kepl compare` prints of a task."""
    return format_comparisons(find_comparisons(name, split=split), base)
