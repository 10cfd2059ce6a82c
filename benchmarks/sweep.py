"""Many runs under one parent: a grid, or a search by Optuna. `kepl sweep FILE`, `make sweep
CONFIG=FILE`; benchmarks.sweep_file describes the file.

Every run is an MLflow run (with children, where the command makes some) under the sweep's own. What
is finished is kept: the same command resumes a killed sweep, and repeats what failed.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from benchmarks.sweep_file import Point, Sweep, read_sweep
from core.commands import Running, start_command
from core.executor import engine_of
from core.files import InputError, atomic_write, lock_file
from core.journal import JOURNAL, Journal, explaining_store, sync
from core.json_files import digest, read_json, write_json
from core.spreadsheets import CsvWriter
from core.tracking import ROOT, commit, runs_folder, tracking_uri

LOG = logging.getLogger(__name__)
WRONG_INPUT = 2  #: exit code of a command
POINT = "sweep.point"  #: the tag that says which of the grid's settings a run has


def arguments(sweep: Sweep, point: Point) -> list[str]:
    """The command's words for one point: the sweep's settings, then its own; config settings go
    into ARGS."""
    named: dict[str, str] = {}
    args: list[str] = []
    for name, value in (sweep.settings | point).items():
        if "." in name:
            args += [f"--{name}", str(value)]
        else:
            named[name] = str(value)
    if args:
        named["ARGS"] = " ".join(filter(None, (named.get("ARGS", ""), shlex.join(args))))
    return [*sweep.words, *(f"{k}={v}" for k, v in named.items())]


def label(point: Point) -> str:
    return " ".join(f"{k.rpartition('.')[2]}={v}" for k, v in point.items()) or "as it is"


def parent_of(sweep: Sweep, folder: Path) -> str:
    """The sweep's own MLflow run; made once. Raises InputError where MLflow, which the runs are
    compared in, does not answer."""
    tags = {"kind": "sweep", "commit": commit(), "folder": str(folder)}
    with Journal(folder, sweep.experiment, f"sweep {sweep.name}", tags) as journal:
        journal.params({"command": shlex.join(sweep.words), **sweep.settings})
    if not journal.run_id:
        raise InputError(
            f"MLflow at {tracking_uri()} does not answer, and a sweep compares its runs there."
            " Start it first."
        )
    return journal.run_id


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
        variables = dict(os.environ)
        variables["KEPL_TAGS"] = json.dumps(
            {"mlflow.parentRunId": self.parent, POINT: json.dumps(point, ensure_ascii=False)}
        )
        if self.at_once > 1:
            threads = 1 if self.engine == "ray" else max(1, self.cores // self.at_once)
            variables.setdefault("OMP_NUM_THREADS", str(threads))
            chooses = "DEVICES" in self.sweep.settings | point
            if self.engine != "ray" and self.gpus and not chooses:
                variables["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        return variables

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
            return [future.result() for future in waiting]
        finally:
            points.stopped = True  # of an interrupt: nothing new begins, what runs ends
            for future in waiting:
                future.cancel()
            for process in list(points.running):
                process.terminate()


def results(sweep: Sweep, parent: str) -> list[dict[str, Any]]:
    """The point, id, name and metrics of every MLflow run right under `parent`, in the order of the
    points.

    Runs that recorded while MLflow did not answer are delivered first. A killed sweep or a failed
    run leaves equal runs of a point: the newest counts, and one without an end counts only where
    no other has one. A point without a run has a row without metrics.
    """
    sync(parent=parent)
    client = MlflowClient(tracking_uri())
    runs: list[Run] = []
    token = None
    while True:
        page = client.search_runs(
            [e.experiment_id for e in client.search_experiments()],
            f"tags.`mlflow.parentRunId` = '{parent}'",
            page_token=token,
        )
        runs += list(page)
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
        for point, run in _newest(runs)
    ]
    with_runs = {digest(row["point"]) for row in rows}
    rows += [
        {"point": p, "run": "", "name": "(no run)", "metrics": {}}
        for p in sweep.points
        if digest(p) not in with_runs
    ]
    return sorted(rows, key=lambda row: order.get(digest(row["point"]), len(order)))


def _newest(runs: list[Run]) -> list[tuple[Point, Run]]:
    """(point, run) of the runs that count: the newest of equal name and parameters, among a point's
    finished runs, or among all where none is finished."""
    by_point: dict[str, list[tuple[Point, Run]]] = {}
    for run in sorted(runs, key=lambda r: int(r.info.start_time)):
        point = json.loads(run.data.tags.get(POINT, "{}"))
        by_point.setdefault(digest(point), []).append((point, run))
    counted: list[tuple[Point, Run]] = []
    for group in by_point.values():
        finished = [pair for pair in group if pair[1].info.status == "FINISHED"]
        equal = {digest([r.info.run_name, r.data.params]): (p, r) for p, r in finished or group}
        counted += equal.values()
    return counted


def table(sweep: Sweep, rows: list[dict[str, Any]]) -> list[list[str]]:
    """Head and rows: the settings that vary, the run's name, its metrics (`report`'s, else all but
    the training's), its id."""
    settings = dict.fromkeys(name for point in sweep.points for name in point)
    varied = [name for name in settings if len({p.get(name) for p in sweep.points}) > 1]
    recorded = {metric for row in rows for metric in row["metrics"]}
    training = ("train/", "lr", "epoch", "system/")
    metrics = sorted(metric for metric in recorded if not metric.startswith(training))
    if sweep.report:
        metrics = [metric for metric in sweep.report if metric in metrics]
    lines = [[*varied, "name", *metrics, "MLflow run"]]
    for row in rows:
        point_metrics = row["metrics"]
        point = [str(row["point"].get(name, "")) for name in varied]
        values = [
            f"{point_metrics[metric]:.4f}" if metric in point_metrics else "" for metric in metrics
        ]
        lines.append([*point, row["name"], *values, row["run"]])
    return lines


def format_table(lines: list[list[str]]) -> str:
    """A table for the terminal, its columns aligned."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = []
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        rows.append("  ".join(cells).rstrip())
    return "\n".join(rows)


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
        if file.name != "mlflow.json"
    ]
    codes = [0] * len(points)
    while len(points) < trials:
        study = optuna.create_study(
            direction="minimize" if goal.startswith("-") else "maximize",
            sampler=optuna.samplers.TPESampler(seed=len(points)),
        )
        rows = results(sweep._replace(points=points), parent)
        scores = {digest(row["point"]): row["metrics"].get(goal.lstrip("-")) for row in rows}
        for point, code in zip(points, codes, strict=True):
            value = scores.get(digest(point))
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
