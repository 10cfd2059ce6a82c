"""Many runs under one parent: a grid, or a search by Optuna. `kepl sweep FILE`, `make sweep
CONFIG=FILE`.

    command: finetune cMedQANER          # or pretrain <paper>, evaluate <task>, synonyms, probe
    settings: {MIRROR: downloads/, SEEDS: "0,1"}       # of every run, as `make` accepts them
    grid:                                # every combination
      MODEL: [zh, embert]
      model.init_args.lr: [1.0e-4, 3.0e-4]
    runs:                                # optional: lists what does not go by a grid; each with
                                         every combination
      - {PROFILE: small}
    at_once: 2                           # optional; AT_ONCE= replaces it
    report: [test/entity_f1]             # optional: which metrics the table shows

or, instead of grid and runs,

    search: tpe                          # Optuna's tree-structured Parzen estimator
    space: {model.init_args.lr: {log: [1.0e-5, 1.0e-3]}, EPOCHS: {from: [1, 10]}, MODEL: [zh,
        embert]}
    trials: 20
    goal: select/entity_f1               # the metric to maximise; `-` before it minimises

Names in capitals are settings of the command; names with dots are settings of its configs
(`ARGS="--name value"`). Every run is an MLflow run (with children, where the command makes some)
under the sweep's own. What is finished is kept: the same command resumes a killed sweep, and
repeats what failed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from mlflow import MlflowClient
from mlflow.entities import Run

from core.choices import list_known
from core.commands import Running, start_command
from core.executor import engine_of
from core.files import InputError, atomic_write, lock_file
from core.journal import JOURNAL, Journal, explaining_store, sync
from core.json_files import digest, read_json, write_json
from core.reading import excerpt
from core.spreadsheets import CsvWriter
from core.tracking import ROOT, commit, runs_folder, tracking_uri
from core.yaml_files import read_yaml

#: command -> (its words, the MLflow experiment; both may name the command's own word)
COMMANDS = {
    "pretrain": ("pretrain {0}", "{0}"),
    "kg": ("pretrain kg/{0}", "kg"),
    "finetune": ("finetune {0}", "{0}"),
    "evaluate": ("evaluate {0}", "{0}"),
    "synonyms": ("synonyms", "synonyms"),
    "probe": ("probe", "probing"),
}
KEYS = (
    "command",
    "settings",
    "grid",
    "runs",
    "search",
    "space",
    "trials",
    "goal",
    "at_once",
    "report",
)
Value = str | int | float | bool
Point = dict[str, Value]
LOG = logging.getLogger(__name__)
WRONG_INPUT = 2  #: exit code of a command
POINT = "sweep.point"  #: the tag that says which of the grid's settings a run has


class Search(NamedTuple):
    """A search by Optuna: choices, or (low, high, whether on a log scale) of each setting."""

    space: dict[str, list[Value] | tuple[float, float, bool]]
    trials: int
    goal: str


class Sweep(NamedTuple):
    """What a sweep's file asks for; of a search, `points` are the trials so far."""

    name: str
    words: list[str]
    experiment: str
    settings: Point
    points: list[Point]
    at_once: int
    report: list[str]
    search: Search | None = None

    @property
    def identity(self) -> str:
        """A digest of what is run, not of how many at once."""
        return digest([self.words, self.settings, self.search or self.points])[:12]


def _values(file: Path, key: str, given: Any) -> Point:
    """{name: value}. Raises InputError for what is no mapping of names to plain values."""
    if not isinstance(given, dict):
        raise InputError(f"{file}: {key}: expected names with values, got {excerpt(given)}")
    for name, value in given.items():
        if not isinstance(name, str) or not (
            re.fullmatch("[A-Z][A-Z0-9_]*", name) or re.fullmatch(r"\w+(\.\w+)+", name)
        ):
            raise InputError(
                f"{file}: {key}: {name!r} is no setting; expected a name in capitals (MODEL) or one"
                " of a config, with dots (model.init_args.lr)"
            )
        if isinstance(value, (dict, list)) or value is None:
            raise InputError(f"{file}: {key}: {name}: expected one value, got {excerpt(value)}")
    return dict(given)


def _names(given: Any) -> set[Any]:
    return {*given} if isinstance(given, dict) else set()


def read_sweep(file: str | Path) -> Sweep:
    """A sweep's file. Raises InputError for one that is not there, no YAML, or asks for what there
    is not."""
    file = Path(file)
    given = read_yaml(file, f"{', '.join(KEYS)} (kepl sweep --help)")
    if unknown := [key for key in given if key not in KEYS]:
        raise InputError(f"{file}: no key {unknown[0]!r}; {list_known(unknown[0], KEYS)}")
    command, *rest = shlex.split(str(given.get("command") or "")) or [""]
    if command not in COMMANDS:
        raise InputError(
            f"{file}: command: expected one of {', '.join(COMMANDS)}, got {command or 'none'!r}"
        )
    words, experiment = COMMANDS[command]
    if len(rest) != words.count("{0}"):
        raise InputError(
            f"{file}: command: expected `{command}{' NAME' * words.count('{0}')}`, got"
            f" {given['command']!r}"
        )
    own = " ".join(rest)
    settings = _values(file, "settings", given.get("settings") or {})
    at_once, report = given.get("at_once", 1), given.get("report") or []
    if type(at_once) is not int or at_once < 1:
        raise InputError(f"{file}: at_once: expected a number, 1 or more, got {at_once!r}")
    if not isinstance(report, list) or not all(isinstance(name, str) for name in report):
        raise InputError(f"{file}: report: expected a list of metrics, got {excerpt(report)}")
    grid_names, runs = _names(given.get("grid")), given.get("runs") or [{}]
    if not isinstance(runs, list):
        raise InputError(f"{file}: runs: expected a list, got {excerpt(runs)}")
    of_runs = {name for run in runs for name in _names(run)}
    twice = grid_names & ({*settings} | of_runs) | {*settings} & _names(given.get("space"))
    if twice:
        raise InputError(
            f"{file}: {min(twice)}: it is there twice, with one value and with several. Name it"
            " once."
        )
    whole = Sweep(
        file.stem, words.format(own).split(), experiment.format(own), settings, [], at_once, report
    )
    if "search" in given:
        return whole._replace(search=_search(file, given))
    grid = given.get("grid") or {}
    if not isinstance(grid, dict) or not all(isinstance(v, list) and v for v in grid.values()):
        raise InputError(
            f"{file}: grid: expected a list of values for every name, such as MODEL: [zh, minilm]"
        )
    points = [
        _values(file, "runs", run) | _values(file, "grid", dict(zip(grid, values, strict=True)))
        for run in runs
        for values in product(*grid.values())
    ]
    if command == "finetune" and any("SEEDS" in p for p in points):
        raise InputError(
            f"{file}: SEEDS: all seeds of one fine-tuning are one run with children; give them in"
            ' settings, SEEDS: "0,1,2", not in grid or runs'
        )
    if len({digest(p) for p in points}) < len(points):
        raise InputError(f"{file}: a run is in it twice; each value of the grid may be named once")
    return whole._replace(points=points)


def _search(file: Path, given: dict[str, Any]) -> Search:
    """The search of a sweep's file. Raises InputError for what is none."""
    space, trials, goal = given.get("space"), given.get("trials", 20), given.get("goal")
    if given["search"] != "tpe":
        raise InputError(f"{file}: search: expected tpe, got {given['search']!r}")
    if "grid" in given or "runs" in given:
        raise InputError(f"{file}: a search has a space instead of grid and runs")
    if not isinstance(space, dict) or not space:
        raise InputError(
            f"{file}: space: expected settings with {{log: [low, high]}}, {{from: [low, high]}} or"
            " a list of values"
        )
    if type(trials) is not int or trials < 1 or not isinstance(goal, str):
        raise InputError(
            f"{file}: trials, goal: expected a number of trials and the name of a metric, got"
            f" {trials!r} and {goal!r}"
        )
    found: dict[str, list[Value] | tuple[float, float, bool]] = {}
    for name, values in space.items():
        ends = (
            next(iter(values.values())) if isinstance(values, dict) and len(values) == 1 else None
        )
        if isinstance(values, list) and values:
            found[name] = list(values)
        elif (
            {*values} <= {"log", "from"}
            and isinstance(ends, list)
            and [type(e) in (int, float) for e in ends] == [True, True]
        ):
            found[name] = (ends[0], ends[1], "log" in values)
            least = "above 0" if "log" in values else "at most the other"
            if ends[0] > ends[1] or ("log" in values and ends[0] <= 0):
                raise InputError(
                    f"{file}: space: {name}: expected a low end, {least}, and a high one, got"
                    f" {ends[0]} and {ends[1]}"
                )
        else:
            raise InputError(
                f"{file}: space: {name}: expected {{log: [low, high]}}, {{from: [low, high]}} or a"
                " list of values"
            )
        for value in values if isinstance(values, list) else (0,):
            _values(file, "space", {name: value})
    return Search(found, trials, goal)


def arguments(sweep: Sweep, point: Point) -> list[str]:
    """The command's words for one point: the sweep's settings, then its own; config settings go
    into ARGS."""
    every = {name: str(value) for name, value in (sweep.settings | point).items()}
    named = {k: v for k, v in every.items() if "." not in k}
    args = [word for k, v in every.items() if "." in k for word in (f"--{k}", v)]
    if args:
        named["ARGS"] = " ".join(filter(None, (named.get("ARGS", ""), shlex.join(args))))
    return [*sweep.words, *(f"{k}={v}" for k, v in named.items())]


def label(point: Point) -> str:
    return " ".join(f"{k.rpartition('.')[2]}={v}" for k, v in point.items()) or "as it is"


def parent_of(sweep: Sweep, folder: Path) -> str:
    """The sweep's own MLflow run; made once. Raises InputError where MLflow, which the runs are
    compared in, does not answer."""
    tags = {"kind": "sweep", "commit": commit(), "folder": str(folder)}
    with Journal(folder, sweep.experiment, f"sweep {sweep.name}", tags) as own:
        own.params({"command": shlex.join(sweep.words), **sweep.settings})
    if not own.run_id:
        raise InputError(
            f"MLflow at {tracking_uri()} does not answer, and a sweep compares its runs there."
            " Start it first."
        )
    return own.run_id


class _Points:
    """Runs the points of a sweep, some at a time, each with its share of cores or its GPU."""

    def __init__(
        self, sweep: Sweep, folder: Path, parent: str, at_once: int, launcher: Sequence[str]
    ) -> None:
        self.sweep, self.folder, self.parent = sweep, folder, parent
        self.at_once, self.launcher = at_once, launcher
        self.engine = engine_of()
        self.cores, self.gpus = len(os.sched_getaffinity(0)), _visible_gpus(at_once)
        self.slots: SimpleQueue[int] = SimpleQueue()
        for slot in range(at_once):
            self.slots.put(slot)
        self.running: set[Running] = set()
        self.stopped = False

    def environment(self, point: dict[str, Any], slot: int) -> dict[str, str]:
        """The environment of a point's process."""
        own = dict(os.environ)
        own["KEPL_TAGS"] = json.dumps(
            {"mlflow.parentRunId": self.parent, POINT: json.dumps(point, ensure_ascii=False)}
        )
        if self.at_once > 1:
            threads = 1 if self.engine == "ray" else max(1, self.cores // self.at_once)
            own.setdefault("OMP_NUM_THREADS", str(threads))
            chooses = "DEVICES" in self.sweep.settings | point
            if self.engine != "ray" and self.gpus and not chooses:
                own["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        return own

    def run(self, number: int) -> int:
        """The exit code of a point; 0 where it is done already."""
        point = self.sweep.points[number]
        name = digest(point)[:12]
        done, log = self.folder / f"{name}.json", self.folder / f"{name}.log"
        who = f"[{number + 1}/{len(self.sweep.points)}] {label(point)}"
        if done.is_file():
            LOG.info(f"{who}: done already")
            return 0
        slot = self.slots.get()
        words = arguments(self.sweep, point)
        try:
            if self.stopped:
                return 130
            LOG.info(f"{who}: kepl {shlex.join(words)}")
            began = time.monotonic()
            devices = (self.sweep.settings | point).get("DEVICES")
            process = start_command(
                [*self.launcher, *words],
                ROOT,
                self.environment(point, slot),
                log,
                engine=self.engine,
                gpus=None if devices is None else int(devices),
            )
            self.running.add(process)
            code = process.wait()
            self.running.discard(process)
            seconds = round(time.monotonic() - began, 1)
        finally:
            self.slots.put(slot)
        how = "done" if code == 0 else f"FAILED ({code}), see {log}"
        LOG.info(f"{who}: {how} after {seconds:.0f} s")
        if code == 0:
            write_json(done, {"point": point, "words": words, "seconds": seconds})
        return code


def _visible_gpus(at_once: int) -> list[str]:
    """The GPUs that points may be given."""
    gpus = [g for g in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if g]
    if at_once > 1 and not gpus:
        import torch

        gpus = [str(i) for i in range(torch.cuda.device_count())]
    return gpus


def run_points(
    sweep: Sweep, folder: Path, parent: str, at_once: int, launcher: Sequence[str]
) -> list[int]:
    """The exit code of every point, in order; what is done already is not run. Output goes to a log
    file each.

    launcher: the words before those of a command.
    """
    points = _Points(sweep, folder, parent, at_once, launcher)
    with ThreadPoolExecutor(at_once) as pool:
        waiting = [pool.submit(points.run, number) for number in range(len(sweep.points))]
        try:
            return [w.result() for w in waiting]
        finally:
            points.stopped = True  # of an interrupt: nothing new begins, what runs ends
            for w in waiting:
                w.cancel()
            for process in list(points.running):
                process.terminate()


def results(sweep: Sweep, parent: str) -> list[dict[str, Any]]:
    """Of every MLflow run right under `parent`: its point, id, name and metrics, in the order of
    the points.

    Runs that recorded while MLflow did not answer are delivered first. Of equal runs of a point,
    which a killed sweep or a failed run leaves, the newest counts; one without an end counts
    where no other has one. A point without a run has a row without metrics.
    """
    sync(parent=parent)
    client = MlflowClient(tracking_uri())
    found: list[Run] = []
    token = None
    while True:
        page = client.search_runs(
            [e.experiment_id for e in client.search_experiments()],
            f"tags.`mlflow.parentRunId` = '{parent}'",
            page_token=token,
        )
        found += list(page)
        if not (token := page.token):
            break
    order = {digest(p): i for i, p in enumerate(sweep.points)}
    rows = [
        {
            "point": point,
            "run": run.info.run_id,
            "name": run.info.run_name,
            "metrics": dict(run.data.metrics),
        }
        for point, run in _newest(found)
    ]
    there = {digest(row["point"]) for row in rows}
    rows += [
        {"point": p, "run": "", "name": "(no run)", "metrics": {}}
        for p in sweep.points
        if digest(p) not in there
    ]
    return sorted(rows, key=lambda row: order.get(digest(row["point"]), len(order)))


def _newest(runs: list[Run]) -> list[tuple[Point, Run]]:
    """(point, run) of the runs that count: of a point's finished ones, or of all where none is, the
    newest of equal name and parameters."""
    own: dict[str, list[tuple[Point, Run]]] = {}
    for run in sorted(runs, key=lambda r: int(r.info.start_time)):
        point = json.loads(run.data.tags.get(POINT, "{}"))
        own.setdefault(digest(point), []).append((point, run))
    counted: list[tuple[Point, Run]] = []
    for group in own.values():
        finished = [pair for pair in group if pair[1].info.status == "FINISHED"]
        equal = {digest([r.info.run_name, r.data.params]): (p, r) for p, r in finished or group}
        counted += equal.values()
    return counted


def table(sweep: Sweep, rows: list[dict[str, Any]]) -> list[list[str]]:
    """Head and rows: the settings that vary, the run's name, its metrics (`report`'s, else all but
    the training's), its id."""
    varied = [
        k
        for k in dict.fromkeys(k for p in sweep.points for k in p)
        if len({p.get(k) for p in sweep.points}) > 1
    ]
    every = sorted(
        {
            m
            for row in rows
            for m in row["metrics"]
            if not m.startswith(("train/", "lr", "epoch", "system/"))
        }
    )
    metrics = [m for m in sweep.report if m in every] if sweep.report else every
    body = [
        [
            *(str(row["point"].get(k, "")) for k in varied),
            row["name"],
            *(f"{row['metrics'][m]:.4f}" if m in row["metrics"] else "" for m in metrics),
            row["run"],
        ]
        for row in rows
    ]
    return [[*varied, "name", *metrics, "MLflow run"], *body]


def format_table(lines: list[list[str]]) -> str:
    """A table for the terminal, its columns aligned."""
    width = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, width, strict=True)).rstrip()
        for line in lines
    )


def search_points(
    sweep: Sweep, folder: Path, parent: str, run: Callable[[Sweep], list[int]], at_once: int
) -> tuple[Sweep, list[int]]:
    """(the sweep with the points that were tried, their exit codes). The sampler first receives the
    finished trials of before."""
    import optuna

    assert sweep.search is not None
    space, trials, goal = sweep.search
    kinds: dict[str, optuna.distributions.BaseDistribution] = {}
    for name, values in space.items():
        if isinstance(values, list):
            kinds[name] = optuna.distributions.CategoricalDistribution(values)
        elif isinstance(values[0], int) and isinstance(values[1], int):
            kinds[name] = optuna.distributions.IntDistribution(
                int(values[0]), int(values[1]), log=values[2]
            )
        else:
            kinds[name] = optuna.distributions.FloatDistribution(
                float(values[0]), float(values[1]), log=values[2]
            )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    points = [
        read_json(file)["point"]
        for file in sorted(folder.glob("*.json"))
        if file.name not in ("mlflow.json",)
    ]
    codes = [0] * len(points)
    while len(points) < trials:
        study = optuna.create_study(
            direction="minimize" if goal.startswith("-") else "maximize",
            sampler=optuna.samplers.TPESampler(seed=len(points)),
        )
        rows = results(sweep._replace(points=points), parent)
        known = {digest(row["point"]): row["metrics"].get(goal.lstrip("-")) for row in rows}
        for point, code in zip(points, codes, strict=True):
            value = known.get(digest(point))
            if code == 0 and value is not None:
                study.add_trial(
                    optuna.trial.create_trial(params=point, distributions=kinds, value=value)
                )
        new = [study.ask(kinds).params for _ in range(min(at_once, trials - len(points)))]
        codes += run(sweep._replace(points=new))
        points += new
        if not any(code == 0 for code in codes):
            break  # nothing to learn from
    return sweep._replace(points=points), codes


def run_sweep(
    config: str | Path,
    launcher: Sequence[str],
    at_once: int | None = None,
    fresh: bool = False,
    check: Callable[[list[str]], object] = list,
) -> int:
    """Run or resume a sweep; returns the exit code: 0, 2 when runs failed for what they were
    given, else 1. Raises InputError for a wrong file.

    launcher: the words that start a command, before its own.  check: called with each command's
        words before any is started.
    """
    if at_once is not None and at_once < 1:
        raise InputError(f"AT_ONCE={at_once}: expected a number of at least 1")
    sweep = read_sweep(config)
    for point in sweep.points or [{}]:
        check(arguments(sweep, point))
    at_once = at_once or sweep.at_once
    folder = runs_folder() / "sweeps" / sweep.name / sweep.identity
    with lock_file(
        folder / "lock",
        "ab+",
        f"{folder}: another process runs this sweep. Wait for it, or stop it first.",
    ):
        if fresh:
            for old in (*folder.glob("*.json"), folder / JOURNAL):
                old.unlink(missing_ok=True)
        parent = parent_of(sweep, folder)
        number = sweep.search.trials if sweep.search else len(sweep.points)
        LOG.info(f"sweep {sweep.name}: {number} runs, {at_once} at once; output in {folder}")

        def run(some: Sweep) -> list[int]:
            return run_points(some, folder, parent, at_once, launcher)

        with explaining_store():
            sweep, codes = (
                search_points(sweep, folder, parent, run, at_once)
                if sweep.search
                else (sweep, run(sweep))
            )
            lines = table(sweep, results(sweep, parent))
            with atomic_write(folder / "sweep.csv") as handle:
                CsvWriter(handle).writerows(lines)
            client = MlflowClient(tracking_uri())
            client.log_artifact(parent, str(folder / "sweep.csv"))
            client.set_terminated(parent, "FAILED" if any(codes) else "FINISHED")
    print(format_table(lines) + f"\n\nsweep.csv in {folder}; MLflow run {parent} (make dashboard)")
    failures = [code for code in codes if code]
    if failures:
        LOG.error(f"{len(failures)} of {len(codes)} runs failed; the same command repeats them")
    if set(failures) == {WRONG_INPUT}:
        return WRONG_INPUT
    return int(bool(failures))
