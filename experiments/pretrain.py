"""From nothing to a pre-trained model: run the stages of ``experiments/<paper>/pipeline.yaml`` one after the other.

    python -m experiments.pretrain kebiolm [--profile small|paper] [NAME=VALUE ...]
    python -m experiments.pretrain kg/cmekg_transr ...      to a graph embedding, by the stages of that YAML file

Every stage keeps what it has finished, so the same command goes on where a killed one stopped.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from itertools import groupby
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from core.files import InputError, digest, read_json
from core.tracking import ROOT, runs_folder, use_experiment
from experiments.stages import Stage, dies_with_its_parent, run_stages

MACHINE = ("DEVICES", "NODES", "PRECISION", "WORKERS")
SEVERAL = ("CORPUS", "LINKER", "MIRROR", "GRAPH")  #: settings that may hold several words, quoted as in a shell
CHOICES = ("GRAPH", "UMLS", "CORPUS", "ENCODER", "LINKER")  #: each combination has a folder of its own
INPUTS = (*CHOICES, "MIRROR", "SEED", "FRESH", "ARGS", "ARMS", "PLAN", *MACHINE)


def papers() -> list[str]:
    """Papers and start encoders that have a pipeline."""
    return sorted(p.parent.name for p in (ROOT / "experiments").glob("*/pipeline.yaml"))


def graph_embeddings() -> list[str]:
    """kg/<file> of the pipelines among the configs of graph embeddings: those that have stages."""
    files = sorted((ROOT / "experiments" / "kg").glob("*.yaml"))
    return [f"kg/{p.stem}" for p in files if "small" in yaml.safe_load(p.read_text())]


def pipeline_of(name: str) -> dict[str, Any]:
    """Profiles and report of a pipeline. Raises InputError for an unknown name."""
    if name not in papers() + graph_embeddings():
        if name.startswith("kg/"):
            choice = ", ".join(g.removeprefix("kg/") for g in graph_embeddings())
            raise InputError(f"no graph embedding {name.removeprefix('kg/')!r}; choose from: {choice}")
        raise InputError(f"no paper {name!r}; choose from: {', '.join(papers())}")
    file = f"{name}.yaml" if name in graph_embeddings() else f"{name}/pipeline.yaml"
    pipeline: dict[str, Any] = yaml.safe_load((ROOT / "experiments" / file).read_text())
    return pipeline


def gpus() -> int:
    import torch

    return torch.cuda.device_count()


def machine(given: dict[str, str], profile: dict[str, Any]) -> list[str]:
    """Arguments of experiments.run that choose the machine.

    A profile of the paper's size takes all GPUs; the others take a GPU only when DEVICES asks for one and there is one,
    and otherwise run DEVICES gloo processes on the CPU. Raises InputError for a number that is none, and when GPUs are
    wanted that are not there.
    """
    for name in ("DEVICES", "NODES"):
        if given.get(name) and not given[name].isdigit():
            raise InputError(f"{name}={given[name]}: wanted a number")
    found = gpus() if profile.get("gpu") or given.get("DEVICES") else 0
    if profile.get("gpu") and given.get("PLAN"):  # for the machine that the stages will run on
        found = max(found, int(given.get("DEVICES") or 1))
    if profile.get("gpu") and not found:
        raise InputError(
            "PROFILE=paper needs a CUDA GPU and this machine has none. Run it on a GPU machine, or take PROFILE=small."
        )
    devices, nodes = int(given.get("DEVICES") or found or 1), int(given.get("NODES") or 1)
    if found and devices > found:
        raise InputError(f"DEVICES={devices}, but this machine has {found} GPUs")
    kind = "cpu" if not found else "ddp" if devices * nodes > 1 else "gpu"
    chosen = ["--config", f"experiments/common/{kind}.yaml", "--trainer.devices", str(devices)]
    chosen += ["--trainer.num_nodes", str(nodes)] if nodes > 1 else []
    chosen += ["--trainer.strategy", "ddp"] if devices * nodes > 1 else []
    chosen += ["--trainer.precision", given["PRECISION"]] if given.get("PRECISION") else []
    return chosen


def several(value: str) -> list[str]:
    """The words of a setting that may hold several; one that is a path as it stands is one word."""
    return [value] if value and Path(value).exists() else shlex.split(value)


def commands(paper: str, profile_name: str, given: dict[str, str], work: Path) -> list[Stage]:
    """Every stage to run, in order.

    Raises InputError for an unknown paper or profile, or an input that the profile needs and `given` lacks.
    """
    pipeline = pipeline_of(paper)
    profiles = [k for k in pipeline if k != "report"]
    if profile_name not in profiles:
        raise InputError(f"no profile {profile_name!r}; choose from: {', '.join(profiles)}")
    profile = pipeline[profile_name]
    for name, meaning in profile.get("needs", {}).items():
        if not given.get(name) and not (name == "UMLS" and given.get("GRAPH")):
            raise InputError(f"PROFILE={profile_name} needs {name}=... : {meaning}")
    values = {"work": str(work), "WORKERS": given.get("WORKERS") or str(os.cpu_count() or 1)}
    values |= {k: v.format(**values) for k, v in profile.get("defaults", {}).items()}
    values |= {"SEED": "0"} | {k: v for k, v in given.items() if v}
    values["FRESH"] = "true" if given.get("FRESH") else "false"
    extra = [*machine(given, profile), "--seed_everything", given.get("SEED") or "0"]
    extra += ["--fresh", "true"] if given.get("FRESH") else []
    extra += shlex.split(given.get("ARGS", ""))
    arms = given.get("ARMS", "").split()
    trained = [stage["result"] for stage in profile["stages"] if "result" in stage]
    if unknown := [arm for arm in arms if arm not in trained]:
        raise InputError(f"ARMS: no {unknown[0]!r} here; choose from: {', '.join(trained) or 'none'}")
    plan: list[Stage] = []
    for stage in profile["stages"]:
        left_out = stage["result"] not in arms if arms and "result" in stage else not arms and stage.get("extra")
        if given.get(stage.get("unless", "")) or left_out:
            continue
        values |= {k: v.format(**values) for k, v in stage.get("sets", {}).items()}
        words = []
        for word in stage["run"].split():
            if word == "{machine}":
                words += extra
            elif (name := word.strip("{}")) in SEVERAL and (given.get(name) or not values.get(name)):
                words += several(given.get(name, ""))
            else:
                words.append(word.format(**values))
        if result := stage.get("result"):
            words += ["--result", str(work / f"result-{result}.json")]
        together = stage.get("together") if "experiments/common/cpu.yaml" in extra else None
        plan.append(Stage(stage["title"], words, result, together))
    return plan


def table(report: dict[str, str], results: dict[str, dict[str, Any]], column: str = "{}") -> str:
    """Start and end of every reported metric, one pair of columns per run, headed by `column` with the run's name in it.

    A metric that a run does not have stays empty there. Raises InputError for one that no run has: it is misspelt.
    """
    there = sorted({key for r in results.values() for key in r["end"]})
    for label, key in report.items():
        if key not in there:
            raise InputError(
                f"pipeline.yaml, report, {label!r}: no run has a metric {key!r}; choose from: {', '.join(there)}"
            )
    width = max(map(len, report)) + 2
    head = " " * width + "".join(f"{column.format(name):>20}" for name in results)
    lines = [head, " " * width + "".join(f"{'start':>11}{'end':>9}" for _ in results)]
    for label, key in report.items():
        cells = (
            f"{r['start'][key]:>11.4f}{r['end'][key]:>9.4f}" if key in r["end"] else " " * 20 for r in results.values()
        )
        lines.append(f"{label:<{width}}" + "".join(cells).rstrip())
    return "\n".join(lines)


def counts(template: str, results: dict[str, dict[str, Any]]) -> str:
    """`template` filled with what the runs counted at their end; a clause with a count that no run has is left out.

    A training that ARMS= chose need not know of what another counts: masked words alone know no mentions.
    """
    there = {key: value for run in results.values() for key, value in run["end"].items()}
    said, counted = [], True
    for clause in template.split(", "):
        fields = {field for _, field, _, _ in Formatter().parse(clause) if field is not None}
        counted = fields <= set(there) if fields else counted  # one without goes with the clause before it
        if counted:
            said.append(clause.format(**there))
    return ", ".join(said)


def pretrain(paper: str, profile: str, given: dict[str, str]) -> None:
    """Run all stages, then print where checkpoints and MLflow runs are and how the metrics moved. PLAN: only print the stages."""
    choice = {k: v for k, v in given.items() if k in CHOICES and v}
    work = runs_folder() / "data" / f"{paper.replace('/', '-')}-{profile}{'-' + digest(choice)[:8] if choice else ''}"
    plan = commands(paper, profile, given, work)
    pipeline = pipeline_of(paper)
    if (estimate := pipeline[profile].get("estimate")) and not given.get("PLAN"):
        print(f"This is paper-sized work. {estimate}", flush=True)
    if given.get("PLAN"):
        for stage in plan:
            print(f"# {stage.title}\npython -m {shlex.join(stage.words)}")
        return
    work.mkdir(parents=True, exist_ok=True)
    number = 0
    for _, group in groupby(plan, key=lambda s: s.together or s.title):
        stages = list(group)
        if len(stages) > 1:
            use_experiment(paper)  # of two processes that make the MLflow store at the same time one fails
        started = time.monotonic()
        for stage in stages:
            number += 1
            beside = f" (beside it; output in {work / stage.log})" if stage is not stages[0] else ""
            print(f"[{number}/{len(plan)}] {stage.title}{beside}", flush=True)
        run_stages(stages, work)
        print(f"      {time.monotonic() - started:.0f} s", flush=True)
    results: dict[str, dict[str, Any]] = {
        s.result: read_json(work / f"result-{s.result}.json") for s in plan if s.result
    }
    if not results:
        print(f"\nWhat was made is in {work}. Trained tables are MLflow runs of the experiment kg (make dashboard).")
        return
    print()
    for name, run in results.items():
        print(
            f"{name}: {run['steps']} steps\n  checkpoint  {run['checkpoints']}\n  export      {run['export']}\n"
            f"  MLflow run  {run['mlflow_run']}  (make dashboard)"
        )
    report = pipeline["report"]
    held_out = counts(report["held_out"], results)
    print(f"\nOn held-out text{f' ({held_out})' if held_out else ''}:\n")
    rows = report["rows"]
    if given.get("ARMS"):  # a metric may be one of the trainings that were left out
        rows = {label: key for label, key in rows.items() if any(key in run["end"] for run in results.values())}
    print(table(rows, results, report["column"]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.pretrain", description=__doc__)
    parser.add_argument("paper", help=f"one of: {', '.join(papers() + graph_embeddings())}")
    parser.add_argument("--profile", default="small")
    parser.add_argument("settings", nargs="*", help=f"NAME=VALUE with NAME one of {', '.join(INPUTS)}")
    options = parser.parse_intermixed_args()  # settings may stand behind --profile, as the Makefile writes them
    if "MAKELEVEL" in os.environ:
        dies_with_its_parent()
    try:
        given = dict(s.split("=", 1) if "=" in s else (s, "") for s in options.settings)
        if unknown := sorted(set(given) - set(INPUTS)):
            raise InputError(f"no setting {unknown[0]!r}; choose from: {', '.join(INPUTS)}")
        pretrain(options.paper, options.profile, given)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
