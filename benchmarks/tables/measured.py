"""Tables of scores: what a paper reports beside the results here, as cells."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.groups import Group, check_protocol, group_results, seed_of, training_of
from benchmarks.options import Choices
from benchmarks.paired_tests import Style, difference, p_value
from benchmarks.results import BASELINES, OVERALL, SELECT, Result, list_stored
from benchmarks.synonyms import samples_checksum
from benchmarks.tables.cells import Cell
from core.files import InputError
from core.json_files import read_json
from core.tracking import ROOT, runs_folder
from experiments.recipes import default_stem
from models.metrics import one_sample

LOG = logging.getLogger(__name__)
Table = Mapping[str, Any]


class System:
    """A measured row or column: a model and its options."""

    def __init__(self, description: str | Mapping[str, Any]) -> None:
        conditions = {"model": description} if isinstance(description, str) else dict(description)
        self.model: str = conditions.pop("model")
        self.options: dict[str, Any] = conditions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, System) and (self.model, self.options) == (
            other.model,
            other.options,
        )

    def select_results(self, results: Iterable[Result]) -> list[Result]:
        """The results of this system."""
        return [
            r for r in results if r.model.name == self.model and dict(r.options) == self.options
        ]

    def group(self, results: Iterable[Result]) -> Group | None:
        """Its results as seeds, None where there are none. Raises InputError for runs of several
        pre-trainings."""
        groups = list(group_results(self.select_results(results)).values())
        if len(groups) > 1:
            firsts = [system.results[0] for system in groups]
            place = runs_folder() / firsts[0].kind
            trainings = ", ".join(
                f"{training_of(r.model.run) or 'unknown'} as in {Path(r.folder).relative_to(place)}"
                for r in firsts
            )
            raise InputError(
                f"{firsts[0].task}: {firsts[0].label} has results of several pre-trainings"
                f" ({trainings}), which are not seeds of one. Move those aside that are not meant,"
                f" in {place}."
            )
        return groups[0] if groups else None


def distinct(wanted: Iterable[System]) -> list[System]:
    """The systems, each once."""
    result: list[System] = []
    for system in wanted:
        if system not in result:
            result.append(system)
    return result


def systems(table: Table) -> list[System]:
    """The systems of a table's rows, or of its columns, in order."""
    places = (*table["rows"], *table["columns"].values())
    return distinct(System(place["measured"]) for place in places if "measured" in place)


# results of a table


def find_linking(
    task: str, split: str, choices: Choices, varies: Sequence[str] = ()
) -> list[Result]:
    """Results of a linking task's split, all of one protocol but for `varies`; of each baseline the
    last one alone."""
    folds = ",".join(map(str, sorted(set(choices.folds)))) or "all"  # as a protocol records them
    split = choices.split or split
    results = [
        r
        for r in list_stored("linking", task)
        if r.split == split and r.protocol["fold_numbers"] == folds
    ]
    check_protocol(task, results, varies, "Say which with SPLIT= or FOLDS=.")
    # every evaluation of a linker measures the baselines beside it: one result is enough
    last = {r.model.name: r for r in results if r.is_baseline}
    return [r for r in results if not r.is_baseline or last[r.model.name] is r]


def fine_tuned(task: str, wanted: Sequence[System], profile: str | None = None) -> list[Result]:
    """Results of a fine-tuning task, all of one protocol."""
    results = [
        r
        for r in list_stored("finetune", task)
        if profile in (None, r.protocol["profile"]) and "share" not in r.protocol
    ]
    chosen: list[Result] = []
    for system in distinct(wanted):
        group = system.group(results)
        if group:
            chosen += group.results
    check_protocol(task, chosen, (), "Say which with PROFILE=.")
    return chosen


def find_retrieval(wanted: Sequence[System], samples: str | None) -> list[Result]:
    """Results of synonym retrieval on the samples with this checksum, or on the only ones there
    are."""
    results = [r for r in list_stored("synonyms") if samples in (None, r.protocol["samples"])]
    chosen = [r for system in distinct(wanted) for r in system.select_results(results)]
    check_protocol("synonyms", chosen, (), "Say which with SAMPLES=.")
    return chosen


def find_probing(wanted: Sequence[System], choices: Choices) -> list[Result]:
    """Results of probing with the queries and in the way that `choices` say, or in the only way
    there is."""
    keys = {"limit": "limit", "seed": "seed", "method": "method", "masks": "masks", "beam": "beams"}
    chosen = {
        key: getattr(choices, name)
        for name, key in keys.items()
        if getattr(choices, name) is not None
    }

    def fits(result: Result) -> bool:
        if choices.graph and Path(result.details["asked"]).name != Path(choices.graph).name:
            return False
        return all(result.protocol[key] == value for key, value in chosen.items())

    results = [r for r in list_stored("probing") if fits(r)]
    chosen_results = [r for system in distinct(wanted) for r in system.select_results(results)]
    check_protocol(
        "probing",
        chosen_results,
        (),
        f"Say which with GRAPH=, {'=, '.join(k.upper() for k in keys)}=.",
    )
    return chosen_results


def find_pretraining(model: str) -> tuple[Path | None, list[dict[str, float]]]:
    """(the configuration's folder, metrics at the end of each of its finished runs, by seed) of a
    paper's newest pre-training.

    model: as MODEL= accepts it, "kebiolm" or "kebiolm/pretrain_wem". (None, []) when none is
        finished.
    """
    paper, _, stem = model.partition("/")
    if not (ROOT / "experiments" / paper / "encoder.yaml").is_file():
        return None, []
    finished = [
        *(runs_folder() / paper / (stem or default_stem(paper) or "")).glob("*/seed*/finished.json")
    ]
    if not finished:
        return None, []
    folder = max(finished, key=lambda p: p.stat().st_mtime_ns).parents[1]
    runs = sorted(
        (p.parent for p in finished if p.parents[1] == folder), key=lambda p: seed_of(p.name) or 0
    )
    return folder, [read_json(run / "end.json") for run in runs]


# cells


def scores(table: Table, choices: Choices) -> list[Cell]:
    """Linkers by tasks, each in several metrics."""
    columns, metrics, varies = table["columns"], table["metrics"], table.get("varies", ())
    results = {
        name: find_linking(c["task"], c["split"], choices, varies) for name, c in columns.items()
    }
    rival = rival_of(table)
    cells = []
    for row in table["rows"]:
        system = System(row["measured"]) if "measured" in row else None
        for name in columns:
            reported = row.get("reported", {}).get(name) or [None] * len(metrics)
            group = system.group(results[name]) if system else None
            baseline = system is not None and system.model in BASELINES["linking"]
            for metric, value in zip(metrics, reported, strict=True):
                interval: tuple[float, float] | None = None
                tests: tuple[str, ...] = ()
                if group and metric == "acc@1":
                    interval = _percent(group.interval(metric)) if len(group.results) == 1 else None
                    if not baseline:
                        tests = _against(rival, row, group, results[name], metric, "mentions")
                values = [100 * v for v in group.values(metric)] if group else []
                places = group.places if group and not baseline else ()
                title = f"{name} {metric.removeprefix('acc')}"
                cells.append(
                    Cell(
                        row["name"], title, value, tuple(values), interval, tests, places, digits=1
                    )
                )
    return cells


def finetune(table: Table, choices: Choices) -> list[Cell]:
    """Encoders by fine-tuning tasks, and by metrics of their pre-training."""
    tasks = dict.fromkeys(
        column["task"] for column in table["columns"].values() if "task" in column
    )
    results = {task: fine_tuned(task, systems(table), choices.profile) for task in tasks}
    for task in tasks:
        for line in remarks(task, results[task]):
            LOG.warning(line)
    rival, baseline = rival_of(table), row_of(table, "baseline")
    cells = []
    for row in table["rows"]:
        system = System(row["measured"]) if "measured" in row else None
        for name, column in table["columns"].items():
            values: list[float] = []
            interval: tuple[float, float] | None = None
            tests: tuple[str, ...] = ()
            places: tuple[str, ...] = ()
            if system and "task" in column and (own_group := system.group(results[column["task"]])):
                first, metric = own_group.results[0], column.get("metric")
                group = OVERALL if column["split"] == first.split else SELECT
                wanted_metric = metric or first.metric
                if group == OVERALL or (
                    column["split"] == first.details["selected_on"]
                    and wanted_metric == first.metric
                ):
                    values = [100 * v for v in own_group.values(wanted_metric, group)]
                scored = group == OVERALL and wanted_metric == first.metric
                if values and scored and len(own_group.results) == 1:
                    interval = _percent(own_group.interval(wanted_metric))
                places = own_group.places if values else ()
                if values and baseline and baseline["name"] != row["name"]:
                    tests += _below(baseline["name"], values, baseline["reported"].get(name))
                if metric is None and group == OVERALL:
                    tests += _against(
                        rival, row, own_group, results[column["task"]], wanted_metric, "examples"
                    )
            elif system and "pretraining" in column:
                folder, ends = find_pretraining(system.model)
                metric, scale = column["pretraining"], column.get("scale", 1)
                values = [scale * end[metric] for end in ends if metric in end]
                places = (str(folder),) if values else ()
            reported = row.get("reported", {}).get(name)
            cells.append(Cell(row["name"], name, reported, tuple(values), interval, tests, places))
    return cells


def synonyms(table: Table, choices: Choices) -> list[Cell]:
    """Encoders by D1, D2 and D3."""
    results = find_retrieval(systems(table), samples_checksum(choices.samples))
    return _by_group(table, results, {name: (name, "acc@1") for name in table["columns"]})


def probing(table: Table, choices: Choices) -> list[Cell]:
    """Masked language models by types of queries."""
    results = find_probing(systems(table), choices)
    return _by_group(
        table, results, {name: (c["type"], c["measure"]) for name, c in table["columns"].items()}
    )


def _by_group(
    table: Table, results: Sequence[Result], columns: Mapping[str, tuple[str, str]]
) -> list[Cell]:
    """Cells of columns that are each a (group of examples, metric)."""
    cells = []
    for row in table["rows"]:
        own_group = System(row["measured"]).group(results) if "measured" in row else None
        for name, (group, metric) in columns.items():
            values = [100 * v for v in own_group.values(metric, group)] if own_group else []
            single = own_group and len(own_group.results) == 1 and values
            interval = (
                _percent(own_group.interval(f"{group}/{metric}")) if own_group and single else None
            )
            places = own_group.places if own_group and values else ()
            cells.append(
                Cell(
                    row["name"],
                    name,
                    row.get("reported", {}).get(name),
                    tuple(values),
                    interval,
                    (),
                    places,
                )
            )
    return cells


def _percent(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if interval is None else (100 * interval[0], 100 * interval[1])


def remarks(task: str, results: Sequence[Result]) -> list[str]:
    """Remarks on the scores of a column: the variant of the data, and the ARGS= of single
    trainings."""
    variants = {r.details["variant"] for r in results if r.details["variant"]}
    lines = [f"{task}: variant {variant} (not the official set)" for variant in sorted(variants)]
    arguments = {r.label: r.details["args"] for r in results if r.details["args"]}
    return lines + [
        f"{task}: {label} was fine-tuned with ARGS={args!r}" for label, args in arguments.items()
    ]


# tests


def row_of(table: Table, key: str) -> Mapping[str, Any] | None:
    """The row that the table's `key` names. Raises InputError when it names none."""
    if key not in table:
        return None
    rows = [row for row in table["rows"] if row["name"] == table[key]]
    if len(rows) != 1:
        raise InputError(
            f"{table['title']}: {key}: no row {table[key]!r}; expected the name of one"
        )
    return dict(rows[0])


def rival_of(table: Table) -> Mapping[str, Any] | None:
    """The row that `against` names. Raises InputError when nothing is measured in it."""
    row = row_of(table, "against")
    if row is not None and "measured" not in row:
        raise InputError(f"{table['title']}: against: nothing is measured in row {row['name']!r}")
    return row


def _below(name: str, values: Sequence[float], reported: float | None) -> tuple[str, ...]:
    """One-sample t of seeds against a number that a paper reports."""
    if reported is None or len(values) < 2:
        return ()
    t, p = one_sample(values, reported)
    return (
        (
            f"one-sample t against {name} as published ({reported:.2f}):"
            f" {np.mean(values) - reported:+.2f}, t = {t:.2f}, {p_value(p)}, {len(values)} seeds"
        ),
    )


def _against(
    rival: Mapping[str, Any] | None,
    row: Mapping[str, Any],
    group: Group,
    results: Sequence[Result],
    metric: str,
    over: str,
) -> tuple[str, ...]:
    """Both paired tests against the table's rival."""
    if rival is None or rival["name"] == row["name"]:
        return ()
    other = System(rival["measured"]).group(results)
    if other is None:
        return ()
    tests = difference(group, other, metric, Style(100, 2, over), brackets=True)
    return (f"against {rival['name']}: {tests}",) if tests else ()
