"""Tables of scores: what a paper reports beside the runs here, as cells."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import scored
from benchmarks.finetune import told_p
from benchmarks.linking.scores import differing, tallies
from benchmarks.synonyms import sum_of
from benchmarks.table.cells import Cell
from core.files import InputError, read_json
from core.tracking import runs_folder
from models.metrics import compared, one_sample


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


def linked(task: str, split: str, folds: str, varies: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """{label: the summaries of its runs, their scores under "own"} of a column.

    A run also measured both floors; they count once, under their own labels.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    floors: dict[str, list[dict[str, Any]]] = {}
    for summary in summaries_of(task, split, folds, varies):
        results = summary["results"]
        found.setdefault(summary["model"], []).append(summary | {"own": results[summary["model"]]})
        floors |= {k: [{"own": v}] for k, v in results.items() if k in ("exact", "tfidf")}
    return found | floors


def scores(table: Mapping[str, Any], given: Mapping[str, str]) -> list[Cell]:
    """Linkers by tasks, each in several metrics."""
    columns, metrics, varies = table["columns"], table["metrics"], table.get("varies", ())
    runs = {
        name: linked(c["task"], given.get("SPLIT") or c["split"], given.get("FOLDS") or "all", varies)
        for name, c in columns.items()
    }
    rival = rival_of(table)
    found = []
    for row in table["rows"]:
        for name in columns:
            reported = row.get("reported", {}).get(name) or [None] * len(metrics)
            own = runs[name].get(row.get("measured", ""), [])
            for metric, value in zip(metrics, reported, strict=True):
                single = own[0]["own"] if len(own) == 1 and metric == "acc@1" else None
                tests: tuple[str, ...] = ()
                if metric == "acc@1" and rival and row["name"] != rival["name"]:
                    tests = _against(rival["name"], own, runs[name].get(rival["measured"], []), _ranked)
                found.append(Cell(
                    row["name"], f"{name} {metric.removeprefix('acc')}", value, tuple(100 * one["own"][metric] for one in own),
                    (100 * single["low"], 100 * single["high"]) if single else None, tests, _places(own), digits=1,
                ))  # fmt: skip
    return found


def finetune(table: Mapping[str, Any], given: Mapping[str, str]) -> list[Cell]:
    """Encoders by fine-tuning tasks, and by metrics of their pre-training."""
    labels = {row["measured"] for row in table["rows"] if "measured" in row}
    tasks = dict.fromkeys(column["task"] for column in table["columns"].values() if "task" in column)
    runs = {task: scored.fine_tuned(task, labels, given.get("PROFILE")) for task in tasks}
    for task in tasks:
        for line in scored.remarks(task, runs[task]):
            print(line, file=sys.stderr)
    rival, baseline = rival_of(table), row_of(table, "baseline")
    found = []
    for row in table["rows"]:
        for name, column in table["columns"].items():
            label, tests = row.get("measured", ""), []
            values: list[float] = []
            interval: tuple[float, float] | None = None
            places: tuple[str, ...] = ()
            if "task" in column and label in runs[column["task"]]:
                own, split, metric = runs[column["task"]][label], column["split"], column.get("metric")
                values = [100 * v for v in scored.values(own, split, metric)]
                one = scored.interval(own, split, metric)
                interval = (100 * one[0], 100 * one[1]) if one and values else None
                places = _places(own) if values else ()
                if values and baseline and baseline["name"] != row["name"]:
                    tests += _below(baseline["name"], values, baseline["reported"].get(name))
                other = (
                    runs[column["task"]].get(rival["measured"], []) if rival and rival["name"] != row["name"] else []
                )
                if other and rival and metric is None and split == own[0]["scored_on"]:
                    tests += _systems(rival["name"], label, own, rival["measured"], other)
            elif "pretraining" in column and label:
                folder, ends = scored.pretrained(label)
                metric, scale = column["pretraining"], column.get("scale", 1)
                values = [scale * end[metric] for end in ends if metric in end]
                places = (str(folder),) if values else ()
            reported = row.get("reported", {}).get(name)
            found.append(Cell(row["name"], name, reported, tuple(values), interval, tuple(tests), places))
    return found


def synonyms(table: Mapping[str, Any], given: Mapping[str, str]) -> list[Cell]:
    """Encoders by D1, D2 and D3."""
    found = scored.retrieved({row["measured"] for row in table["rows"] if "measured" in row}, sum_of(given))
    return _each(table, found, lambda column, name: (name, "acc@1", "low", "high"))


def probing(table: Mapping[str, Any], given: Mapping[str, str]) -> list[Cell]:
    """Masked language models by types of queries."""
    found = scored.probed({row["measured"] for row in table["rows"] if "measured" in row}, given)

    def keys(column: Mapping[str, Any], name: str) -> tuple[str, str, str, str]:
        measure = column["measure"]
        return column["type"], measure, f"{measure} low", f"{measure} high"

    return _each(table, found, keys)


def _each(
    table: Mapping[str, Any], found: Mapping[str, Sequence[Mapping[str, Any]]],
    keys: Callable[[Mapping[str, Any], str], tuple[str, str, str, str]],
) -> list[Cell]:  # fmt: skip
    """Cells of `results` in summaries; `keys` of a column: its name there, and those of score and interval."""
    cells = []
    for row in table["rows"]:
        for name, column in table["columns"].items():
            part, score, low, high = keys(column, name)
            runs = [run for run in found.get(row.get("measured", ""), ()) if part in run["results"]]
            own = [run["results"][part] for run in runs]
            interval = (100 * own[0][low], 100 * own[0][high]) if len(own) == 1 else None
            values = tuple(100 * one[score] for one in own)
            cells.append(
                Cell(row["name"], name, row.get("reported", {}).get(name), values, interval, (), _places(runs))
            )
    return cells


# tests


def row_of(table: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """The row that the table's `key` names. Raises InputError when it names none."""
    if key not in table:
        return None
    found = [row for row in table["rows"] if row["name"] == table[key]]
    if len(found) != 1:
        raise InputError(f"{table['title']}: {key}: no row {table[key]!r}; wanted the name of one")
    return dict(found[0])


def rival_of(table: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The row that `against` names, with what was measured of it."""
    found = row_of(table, "against")
    if found is not None and "measured" not in found:
        raise InputError(f"{table['title']}: against: nothing is measured in row {found['name']!r}")
    return found


def _below(name: str, values: Sequence[float], reported: float | None) -> list[str]:
    """One-sample t of seeds against a number that a paper reports."""
    if reported is None or len(values) < 2:
        return []
    t, p = one_sample(values, reported)
    return [f"one-sample t against {name} as published ({reported:.2f}): {np.mean(values) - reported:+.2f}, "
            f"t = {t:.2f}, {told_p(p)}, {len(values)} seeds"]  # fmt: skip


def _systems(
    name: str, label: str, own: Sequence[Mapping[str, Any]], rival: str, other: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Both paired tests of two fine-tuned encoders, over the seeds that they share."""
    one, two = scored.system(label, own), scored.system(rival, other)
    common = sorted(set(one.tallies) & set(two.tallies)) if one.kind == two.kind else []
    if not common:
        return []
    c = compared({s: two.tallies[s] for s in common}, {s: one.tallies[s] for s in common})
    seeds = "" if c.p_seeds is None else f", paired t over {len(common)} {one.kind} seeds {told_p(c.p_seeds)}"
    return [f"against {name}: {100 * c.difference:+.2f} [{100 * c.low:+.2f}, {100 * c.high:+.2f}], "
            f"paired bootstrap over examples p = {c.p_bootstrap:.4f}{seeds}"]  # fmt: skip


def _ranked(several: Sequence[Mapping[str, Any]]) -> np.ndarray | None:
    """Summed tallies of a linker's runs; None where they kept no ranks."""
    files = [Path(one["folder"]) / "ranks.npy" for one in several if "folder" in one]
    if not files or not all(file.is_file() for file in files):
        return None
    return np.sum([tallies(np.load(file, allow_pickle=False))["acc@1"] for file in files], axis=0)


def _against(
    name: str, own: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]],
    read: Callable[[Sequence[Mapping[str, Any]]], np.ndarray | None],
) -> tuple[str, ...]:  # fmt: skip
    """The paired bootstrap of two linkers over their mentions, runs of one summed."""
    one, two = read(own), read(other)
    if one is None or two is None or one.shape != two.shape:
        return ()
    c = compared({0: two}, {0: one})
    return (f"against {name}: {100 * c.difference:+.2f} [{100 * c.low:+.2f}, {100 * c.high:+.2f}], "
            f"paired bootstrap over mentions p = {c.p_bootstrap:.4f}",)  # fmt: skip


def _places(several: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """MLflow runs of summaries, or their folders where they have none."""
    found = [one.get("mlflow_run") or one.get("folder") for one in several]
    return tuple(str(one) for one in found if one)
