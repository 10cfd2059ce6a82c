"""A rehearsal of a paper-sized profile: its own stages at its own sizes, on synthetic inputs and
for a few steps.

    make pretrain-kebiolm PROFILE=paper REHEARSE=2 SCALE=0.001 [DEVICES=2]

The profile's `rehearsal` in `experiments/<paper>/pipeline.yaml` says what is laid over it, and
nothing else is:

    inputs       {NAME: {write: <function of benchmarks.perf.synthetic>, to: <file>, its arguments:
                 the paper's sizes}}
    micro_batch  examples of a process on a CPU, where a step of the paper's batch would take hours;
    a GPU keeps that batch
    settings     further settings of experiments.run, such as how much validation reads
    larger       {layers, hidden} of the paper's model, where the one rehearsed is smaller

Inputs, outputs and MLflow runs are below runs/rehearsals, where no MODEL= looks for a model. What a
rehearsal leaves there the next one of the same paper removes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from core.call import command_words
from core.commands import child_environment, python_command
from core.files import InputError, atomic_write, lock_file
from core.json_files import read_json, write_json
from core.tracking import ROOT, runs_folder
from experiments.machine import Inputs, Machine
from experiments.pretrain import commands, gpus, pipeline_of, table
from experiments.stages import Stage, run_stages

LOG = logging.getLogger(__name__)
WRITER = "benchmarks.perf.synthetic:write_inputs"
SCALE = 0.001
#: name -> (processors, FLOP a second of each in bfloat16, dense, as its maker states it)
HARDWARE = {
    "2 x RTX 3090": (2, 71e12),
    "1 x A100": (1, 312e12),
    "8 x A100": (8, 312e12),
    "8 x H100 SXM": (8, 989e12),
}
#: share of a GPU's peak that training is assumed to reach, until it was rehearsed on one
ASSUMED = 0.4


class Cost(NamedTuple):
    """The cost of a stage: seconds, the seconds of its start among them, bytes of memory, and bytes
    that it left on disk."""

    title: str
    seconds: float
    start: float
    memory: int
    disk: int
    meter: dict[str, Any] | None = None  # of a training: what experiments.meter wrote


class Whole(NamedTuple):
    """The paper's training."""

    steps: float
    batch: int
    flop: float
    larger: float = 1.0


def whole_run(
    meter: Mapping[str, Any], config: Mapping[str, Any], scale: float, larger: float = 1.0
) -> Whole:
    """The training that `config` describes, from a rehearsed one at `scale`: the FLOP of an example
    times the examples.

    larger: how many times the FLOP of the rehearsed model the paper's needs for an example.
    """
    batch, trainer = int(config["data"]["init_args"]["batch_size"]), config["trainer"]
    steps = trainer.get("max_steps", -1)
    if steps < 1:
        steps = trainer["max_epochs"] * meter["examples"] / scale / batch
    return Whole(steps, batch, meter["flop"] / meter["batch"] * larger * steps * batch, larger)


def whole_stage(cost: Cost, scale: float) -> float:
    """Seconds of a stage before training at the paper's size, on the same machine: what depends on
    the data grows with it."""
    return cost.start + max(0.0, cost.seconds - cost.start) / scale


def hours(flop: float, processors: int, peak: float, share: float) -> float:
    return flop / (processors * peak * share) / 3600


def laid_over(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Nested settings, later layers over earlier ones."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if isinstance(value, Mapping):
                below = merged.get(key)
                value = laid_over([below if isinstance(below, Mapping) else {}, value])
            merged[key] = value
    return merged


def size(folder: Path) -> int:
    """Bytes of all files in `folder`."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def check(
    paper: str, profile: str, steps: int | None, scale: float, inputs: Inputs
) -> dict[str, Any]:
    """The pipeline's settings for a rehearsal of the profile. Raises InputError for settings that
    do not go together."""
    if steps is None:
        raise InputError(
            f"SCALE={scale:g}: the size of a rehearsal; give REHEARSE=<steps> as well, or leave"
            " it out"
        )
    if steps < 1:
        raise InputError(f"REHEARSE={steps}: expected a number of steps, 1 or more")
    if not 0 < scale <= 1:
        raise InputError(
            f"SCALE={scale:g}: expected a share of the paper's data, above 0 and at most 1"
        )
    profiles = pipeline_of(paper)["profiles"]
    rehearsal: dict[str, Any] | None = profiles.get(profile, {}).get("rehearsal")
    if rehearsal is None:
        other = [
            name for name, profile_settings in profiles.items() if "rehearsal" in profile_settings
        ]
        advice = f"take PROFILE={other[0]}" if other else "its pipeline.yaml has no rehearsal"
        raise InputError(
            f"REHEARSE={steps}: {paper} has no rehearsal of PROFILE={profile}; {advice}"
        )
    if repeated := sorted(set(rehearsal["inputs"]) & set(inputs.list_inputs())):
        raise InputError(f"{repeated[0]}=: a rehearsal writes its own; leave it out, or REHEARSE=")
    return rehearsal


class Memory(threading.Thread):
    """Watches what the processes that this one started hold: `peak`, bytes of all together, each
    page counted where it is mapped.

    Not the rusage of a stage that has ended: that begins with its parent's (Linux), and counts one
        process alone.
    """

    def __init__(self, seconds: float = 0.2) -> None:
        super().__init__(daemon=True)
        self.seconds, self.peak, self.ended = seconds, 0, threading.Event()

    def run(self) -> None:
        command = Path("/proc/self/cmdline")
        started = command.read_bytes() if command.is_file() else b""
        while not self.ended.wait(self.seconds):
            self.peak = max(self.peak, held_below(os.getpid(), started))

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()


def held_below(process: int, started: bytes = b"") -> int:
    """Bytes of memory of all processes that `process`, its children and so on have started; 0 where
    there is no /proc.

    started: the command line of a child that is about to become another program and still holds
        what this process does.
    """
    total = 0
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # ended meanwhile
            for child in file.read_text().split():
                if Path(f"/proc/{child}/cmdline").read_bytes() != started:
                    pages = int(Path(f"/proc/{child}/statm").read_text().split()[1])
                    total += pages * os.sysconf("SC_PAGE_SIZE") + held_below(int(child))
    return total


def with_inputs(inputs: Inputs, recipes: Mapping[str, Mapping[str, Any]], folder: Path) -> Inputs:
    """`inputs` with those that are written."""
    paths = {name: folder / recipe["to"] for name, recipe in recipes.items()}
    changed: dict[str, Any] = {
        n.lower(): (str(p),) if n in Inputs.SEVERAL else str(p) for n, p in paths.items()
    }
    return replace(inputs, **changed)


def overlay(
    rehearsal: Mapping[str, Any], steps: int, processes: int, on_gpu: bool, file: Path
) -> dict[str, Any]:
    """The settings that are laid over those of a training: steps, batch and what measures them."""
    meter = {"class_path": "experiments.meter.Meter", "init_args": {"file": str(file)}}
    settings: dict[str, Any] = {
        "trainer": {"max_steps": steps, "limit_val_batches": steps, "callbacks": [meter]}
    }
    if not on_gpu:
        batch = int(rehearsal["micro_batch"])
        settings["data"] = {
            "init_args": {"batch_size": batch * processes, "eval_batch_size": batch}
        }
    return laid_over([settings, rehearsal.get("settings", {})])


def start_of(run: str, environment: Mapping[str, str]) -> float:
    """Seconds that a stage's command takes to do nothing."""
    begun = time.monotonic()
    words = python_command(*command_words(run, ["--help"]))
    subprocess.run(
        words, cwd=ROOT, env=child_environment(environment), stdout=subprocess.DEVNULL, check=False
    )
    return time.monotonic() - begun


def config_of(stage: Stage, path: Path) -> dict[str, Any]:
    """The settings of a training by its config files, without the one that the rehearsal lays over
    them."""
    files = [Path(b) for a, b in pairwise(stage.options) if a == "--config" and Path(b) != path]
    return laid_over([yaml.safe_load((ROOT / file).read_text()) for file in files])


def run_rehearsal(
    paper: str,
    profile: str,
    steps: int | None,
    scale: float | None,
    inputs: Inputs,
    where: Machine,
    seed: int = 0,
    variants: Sequence[str] = (),
    args: str = "",
    plan: bool = False,
) -> str:
    """Run the profile's stages for `steps` of training at `scale` of the paper's data; returns what
    they took as a table.

    plan: only list the stages. Raises InputError as :func:`check`, and for another rehearsal of the
        paper that runs.
    """
    share = SCALE if scale is None else scale
    rehearsal = check(paper, profile, steps, share, inputs)
    assert steps is not None
    above = runs_folder() / "rehearsals"
    home = above / paper
    file, meter = home / "rehearsal.yaml", home / "meter.json"
    environment = {
        "KEPL_RUNS": str(home / "runs"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{above / 'mlflow.db'}",
        "HF_HUB_OFFLINE": "1",
    }
    own_stages = with_inputs(inputs, rehearsal["inputs"], home / "inputs")
    args = f"--config {shlex.quote(str(file))} {args}"
    stages = commands(
        paper, profile, home / "work", own_stages, where, seed, True, variants, args, rehearsed=True
    )
    if plan:
        return "\n".join(f"# {stage.title}\n{stage.command}" for stage in stages)
    with lock_file(
        above / f"{paper}.lock",
        "w",
        f"{home}: another rehearsal of {paper} is running. Wait for it, or stop it first.",
    ):
        descriptions = write_inputs(home, rehearsal["inputs"], share)
        if not (above / "mlflow.db").is_file():
            make_store(environment["MLFLOW_TRACKING_URI"])
        processes = (where.devices or max(1, gpus())) * (where.nodes or 1)
        with atomic_write(file) as handle:
            yaml.safe_dump(overlay(rehearsal, steps, processes, gpus() > 0, meter), handle)
        costs, wholes = measure_stages(stages, environment, home, meter, file, share, rehearsal)
        results = {
            s.result: read_json(home / "work" / f"result-{s.result}.json")
            for s in stages
            if s.result
        }
    rows = pipeline_of(paper)["report"]["rows"]
    if not variants:
        table(rows, results)  # raises for a metric of the report that no run has
    return format_costs(paper, profile, share, descriptions, costs, wholes)


def write_inputs(home: Path, inputs: Any, share: float) -> Any:
    """Write the synthetic inputs of a rehearsal into its emptied folder. Returns what was said of
    them."""
    shutil.rmtree(home, ignore_errors=True)
    (home / "work").mkdir(parents=True)
    file = home / "inputs.json"
    write_json(file, {"inputs": inputs, "folder": str(home / "inputs"), "scale": share})
    run_stages([Stage("Synthetic inputs", WRITER, ["--file", str(file)])], home)
    return read_json(file)["said"]


def make_store(uri: str) -> None:
    """Make the tables of an MLflow store, which is no part of any stage."""
    program = "import mlflow, sys; mlflow.MlflowClient(sys.argv[1]).search_experiments()"
    words = python_command("-c", program, uri)
    subprocess.run(words, cwd=ROOT, env=child_environment(), check=True)


def measure_stages(
    stages: Sequence[Stage],
    environment: dict[str, str],
    home: Path,
    meter: Path,
    file: Path,
    share: float,
    rehearsal: Mapping[str, Any],
) -> tuple[list[Cost], list[Any]]:
    """Run the stages. Returns what each took, and for each training what the whole one would take.

    meter: where a training writes its speed; file: the rehearsal's own settings.
    """
    costs, wholes = [], []
    starts: dict[str, float] = {}
    for number, stage in enumerate(stages, 1):
        if not stage.result and stage.run not in starts:
            starts[stage.run] = start_of(stage.run, environment)
        LOG.info(f"[{number}/{len(stages)}] {stage.title}")
        before, begun = size(home), time.monotonic()
        try:
            with Memory() as memory:
                run_stages([stage._replace(environment=environment)], home / "work")
        except SystemExit:
            LOG.error("This was a rehearsal: the same command begins again from the first stage.")
            raise
        seconds = time.monotonic() - begun
        measured = read_json(meter) if stage.result else None
        start = starts.get(stage.run, 0.0)
        costs.append(Cost(stage.title, seconds, start, memory.peak, size(home) - before, measured))
        if measured:
            larger = times_larger(rehearsal, measured)
            wholes.append(whole_run(measured, config_of(stage, file), share, larger))
    return costs, wholes


def times_larger(rehearsal: Mapping[str, Any], meter: Mapping[str, Any]) -> float:
    """Parameters of the paper's layers, where `larger` says them, over those of the rehearsed:
    layers x hidden squared."""
    if not (sizes := rehearsal.get("larger")):
        return 1.0
    return float(sizes["layers"] * sizes["hidden"] ** 2 / (meter["layers"] * meter["hidden"] ** 2))


def amount(number: float, unit: str) -> str:
    """A number with a prefix: 1.23 GB, 45.6 TFLOP."""
    power = min(6, max(0, int(math.log10(number) // 3))) if number >= 1 else 0
    value = number / 1000**power
    return f"{value:.{0 if power == 0 or value >= 100 else 1}f} {'_kMGTPE'[power].strip('_')}{unit}"


def duration(seconds: float) -> str:
    """Seconds as a person says them: 41 s, 12 min, 3.4 h, 5.1 days."""
    for limit, unit, name in (
        (120, 1, "s"),
        (7200, 60, "min"),
        (172800, 3600, "h"),
        (math.inf, 86400, "days"),
    ):
        if seconds < limit:
            return f"{seconds / unit:.{0 if name in ('s', 'min') else 1}f} {name}"
    raise AssertionError(seconds)


def format_costs(
    paper: str,
    profile: str,
    scale: float,
    descriptions: Mapping[str, str],
    costs: Sequence[Cost],
    wholes: Sequence[Whole],
) -> str:
    """The tables and formulas of a rehearsal."""
    cores = os.cpu_count() or 1
    lines = [
        f"{paper}, PROFILE={profile}, rehearsed at {scale:g} of the paper's data on a machine of"
        f" {cores} cores"
    ]
    lines += [f"  {name:<8} {text}" for name, text in descriptions.items()]
    width = max(len(c.title) for c in costs) + 2
    lines += ["", f"{'stage':<{width}}{'time':>9}{'memory':>10}{'disk':>10}{'paper, here':>14}"]
    whole_of = iter(wholes)
    notes: list[str] = []
    for cost in costs:
        here = whole_stage(cost, scale)
        if cost.meter:
            whole = next(whole_of)
            here = cost.meter["seconds"] * whole.flop / cost.meter["flop"]
            notes += _training(cost, cost.meter, whole, scale)
        cells = (
            f"{cost.seconds:.1f} s",
            amount(cost.memory, "B"),
            amount(cost.disk, "B"),
            duration(here),
        )
        lines.append(
            f"{cost.title:<{width}}{cells[0]:>9}{cells[1]:>10}{cells[2]:>10}{cells[3]:>14}"
        )
    lines += [
        "",
        (
            "memory: of all its processes.  disk: what it left.  paper, here: the stage at the"
            " paper's size on this machine;"
        ),
        (
            f"before training start + (time - start) / {scale:g} with start = time of the command"
            " with --help; training as below."
        ),
    ]
    return "\n".join([*lines, *notes])


def _training(cost: Cost, meter: Mapping[str, Any], whole: Whole, scale: float) -> list[str]:
    gpu = meter["device"] != "cpu"
    reached = meter["flop"] / meter["seconds"] / meter["peak"]
    kind = (
        f"{meter['processes']} x {meter['device'] if gpu else 'process on the CPU'},"
        f" {meter['precision']}"
    )
    batch = "" if meter["batch"] == whole.batch else f", a micro-batch of the paper's {whole.batch}"
    gpu_memory = f", {amount(meter['gpu_memory'], 'B')} of GPU memory" if gpu else ""
    peak = (
        f"{amount(meter['peak'], 'FLOP/s')}, measured as products of {meter['precision']} matrices"
    )
    lines = [
        "",
        f"{cost.title}: {meter['steps']} steps, {kind}; {meter['batch']} examples a step{batch}",
        (
            f"  a step        {meter['seconds']:.2f} s, {meter['tokens']:,.0f} tokens in sequences"
            f" of {meter['length']:.0f}, {meter['tokens'] / meter['seconds']:,.0f} tokens a"
            f" second{gpu_memory}"
        ),
        "  FLOP          6 x parameters x tokens + 12 x hidden x length x tokens, of each layer",
        (
            f"                {meter['layers']} layers x {meter['hidden']},"
            f" {meter['parameters'] / 1e6:,.1f} million parameters: {amount(meter['flop'], 'FLOP')}"
            " a step"
        ),
        f"  share         FLOP / time / peak = {reached:.1%} of {peak}",
        (
            f"  the paper's   {whole.steps:,.0f} steps x {whole.batch} examples x FLOP of an"
            f" example{f' x {whole.larger:.2f} for the larger model' if whole.larger != 1 else ''}"
            f" = {amount(whole.flop, 'FLOP')}"
        ),
        "  takes         FLOP / (processors x peak x share)",
        (
            f"    {'this machine':<14}{duration(3600 * hours(whole.flop, 1, meter['peak'], reached)):>10}"  # noqa: E501
            "  peak and share as measured"
        ),
    ]
    share, why = (
        (reached, "measured") if gpu else (ASSUMED, "assumed: rehearse on a GPU to measure it")
    )
    for name, (processors, top) in HARDWARE.items():
        taken = duration(3600 * hours(whole.flop, processors, top, share))
        lines.append(
            f"    {name:<14}{taken:>10}  {amount(top, 'FLOP/s')} each; share {share:.0%}, {why}"
        )
    return lines
