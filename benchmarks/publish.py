"""Records of finished runs: `kepl publish`. benchmarks.records says what a record is and how
documents show it."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.groups import Group, check_protocol, check_seeds, group_results, seed_of_result
from benchmarks.paired_tests import pair_results
from benchmarks.records import ROOT, Record, save_records
from benchmarks.results import FILE, MEASURED, OUTCOMES, OVERALL, Result, load_result
from core.files import InputError
from models.metrics import score

#: numbers of a measurement that have its unit
RATES = ("ours", "reference")
#: between a score as it is recorded and as it is counted again
TOLERANCE = 1e-6


def load_runs(folders: Sequence[Path]) -> list[Result]:
    """The results in run folders and below them. Raises InputError for a folder without one."""
    results: dict[str, Result] = {}
    for folder in folders:
        files = sorted(folder.glob(f"**/{FILE}"))
        if not files:
            raise InputError(
                f"{folder}: expected a folder with {FILE}, which kepl pretrain, finetune, evaluate,"
                " synonyms, probe, overlap and measure write"
            )
        results |= {str(file.parent.resolve()): load_result(file.parent) for file in files}
    return sorted(results.values(), key=lambda r: r.created)


def publish(
    folders: Sequence[Path],
    group: str,
    against: Sequence[Path] = (),
    machine: str | None = None,
    root: Path = ROOT,
) -> tuple[Path, list[Record]]:
    """Write a record for each system in `folders`, a mean over its seeds, and of its difference
    from the one in `against`. Raises InputError for a result that no command made, and for two
    numbers of one id."""
    if not re.fullmatch(r"[\w-]+", group):
        raise InputError(f"--group {group}: expected letters, digits and hyphens")
    every_result = load_runs(folders)
    measured = [result for result in every_result if result.kind in MEASURED]
    results = [result for result in every_result if result.kind not in MEASURED]
    check_commands(measured)
    check_protocol("publish", results)
    others = load_runs(against) if against else []
    for side in (results, others):
        check_seeds(side)
        check_commands(side)
        check_scores(side)
    base = list(group_results(others).values())
    if len(base) > 1:
        raise InputError(
            f"--against: expected runs of one system, got {', '.join(run.label for run in base)}"
        )
    where = machine or f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    records = []
    for system in group_results(results).values():
        records += score_records(system, where)
        if base and places_of(system) != places_of(base[0]):
            records.append(difference_record(system, base[0], where))
    for result in measured:
        records += measurement_records(result, where)
    counts = Counter(record.id for record in records)
    if repeated := [key for key, count in counts.items() if count > 1]:
        raise InputError(
            f"{repeated[0]}: several results have this id. Publish them into groups of their own."
        )
    return save_records(group, records, root), records


def places_of(group: Group) -> set[Path]:
    """The folders of its results."""
    return {Path(result.folder).resolve() for result in group.results}


def check_commands(results: Sequence[Result]) -> None:
    """Raise InputError for a result that does not say which command made it."""
    for result in results:
        if not result.argv:
            raise InputError(
                f"{result.folder}/{FILE}: no argv, so nobody can make this result again. Make it"
                " with a kepl or make command."
            )


def check_scores(results: Sequence[Result]) -> None:
    """Raise InputError for a score that is not what the outcomes of its examples come to."""
    for result in results:
        value = result.value()
        if value is None or result.metric not in result.tallies:
            continue
        counted = score(result.tallies[result.metric])
        if abs(value - counted) > TOLERANCE:
            raise InputError(
                f"{result.folder}/{FILE}: {result.metric} is {value:.6f}, but {OUTCOMES} beside it"
                f" comes to {counted:.6f}. Score again."
            )


def score_records(group: Group, machine: str) -> list[Record]:
    """A record of a system's score; of a linker's one for each of its scores, and for those of
    every kind of span that was counted text by text; of a pre-training's one for each metric,
    before training and after."""
    first = group.results[0]
    records = [record_of(group, machine)]
    if first.kind not in ("linking", "pretraining"):
        return records
    for part, scores in first.scores.items():
        if first.kind == "linking" and part != OVERALL and part not in first.tallies:
            continue
        for metric in scores:
            if metric != "examples" and (part, metric) != (OVERALL, first.metric):
                records.append(record_of(group, machine, metric, part))
    return records


def record_of(group: Group, machine: str, metric: str | None = None, part: str = OVERALL) -> Record:
    """The mean of a system's scores over its seeds, with the interval over examples where they were
    kept.

    metric: None means the task's own.  part: a group of examples.
    """
    first = group.results[0]
    metric = metric or first.metric
    values = group.values(metric, part)
    is_counted = metric == first.metric or part == OVERALL
    interval = group.interval(metric if part == OVERALL else part) if is_counted else None
    words = [] if part == OVERALL else [part]
    return Record(
        id=slug(first.task, group.label, *words, metric),
        task=f"{first.task}, {first.split}",
        model=group.label,
        metric=", ".join([*words, metric]),
        value=round(float(np.mean(values)), 6),
        sd=round(float(np.std(values, ddof=1)), 6) if len(values) > 1 else None,
        interval=interval and (round(interval[0], 6), round(interval[1], 6)),
        seeds=_seeds(group.results),
        options=dict(first.options),
        argv=_argv(group),
        commit=_commits(group),
        data=dict(first.data),
        machine=machine,
    )


def measurement_records(result: Result, machine: str) -> list[Record]:
    """A record for every number of what was counted or timed; one below 1 has three decimals, a
    count none."""
    records = []
    for group, values in result.scores.items():
        setting = [] if group == OVERALL else [group]
        for metric, value in values.items():
            whole = float(value).is_integer() or abs(value) >= 1000
            record = Record(
                id=slug(result.task, *setting, metric),
                task=result.task,
                model=result.label,
                metric=", ".join([*setting, metric]),
                value=round(float(value), 6),
                digits=0 if whole else 3 if abs(value) < 1 else 2,
                unit=f" {result.details['unit']}" if metric in RATES else "",
                argv=list(result.argv),
                commit=result.commit,
                data=dict(result.data),
                machine=machine,
            )
            records.append(record)
    return records


def difference_record(system: Group, base: Group, machine: str) -> Record:
    """One system minus another, paired by example. Raises InputError where the two cannot be
    paired."""
    check_protocol("publish --against", [*system.results, *base.results])
    first = system.results[0]
    paired = pair_results(system, base, first.metric)
    if paired is None:
        raise InputError(
            f"{system.label} and {base.label}: no common seed, or other examples; differences are"
            " of pairs"
        )
    difference, common = paired
    # what trains nothing is compared with every seed
    compared = [r for r in system.results if seed_of_result(r) in common] or system.results
    return Record(
        id=slug(first.task, system.label, "minus", base.label),
        task=f"{first.task}, {first.split}",
        model=system.label,
        metric=f"{first.metric} minus {base.label}",
        value=round(difference.difference, 6),
        signed=True,
        interval=(round(difference.low, 6), round(difference.high, 6)),
        p=round(difference.p_bootstrap, 6),
        p_seeds=None if difference.p_seeds is None else round(difference.p_seeds, 6),
        seeds=_seeds(compared),
        options=dict(first.options),
        argv=_argv(system),
        commit=_commits(system),
        data=dict(first.data),
        machine=machine,
    )


def slug(*words: str) -> str:
    """An id of words."""
    return re.sub(r"\W+", "-", "-".join(words).lower()).strip("-")


def _seeds(results: Sequence[Result]) -> list[int]:
    return sorted({seed_of_result(result) for result in results})


def _argv(group: Group) -> Sequence[str]:
    """The command that made the newest of the results."""
    return list(max(group.results, key=lambda result: result.created).argv)


def _commits(group: Group) -> str:
    return ", ".join(dict.fromkeys(result.commit for result in group.results if result.commit))
