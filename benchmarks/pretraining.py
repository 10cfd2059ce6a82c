"""What a pre-training had measured on held-out data, before and after, as a result that `kepl
publish` reads: a number for each metric, a mean over the seeds of a paper's runs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.results import OVERALL, Model, Result, save_once, short_name
from core.json_files import digest, read_json
from experiments.pretrain import Pretrained, TrainedRun

#: group of scores: before training
START = "start"


def save_pretraining(run: TrainedRun, metric: str) -> Result:
    """Save what a finished run had measured in its folder; what is there of the same is kept.

    run     as experiments.run reports it
    metric  that stands for the others; where the run lacks it, its first
    """
    folder = Path(run["folder"])
    scores = {OVERALL: run["end"], START: run["start"]}
    paper = run["model"].partition("/")[0]
    facts = read_json(folder / "environment.json")
    result = Result(
        kind="pretraining",
        task=f"pre-training of {paper}",
        split="held-out text",
        metric=metric if metric in run["end"] else next(iter(run["end"])),
        protocol={"paper": paper},
        model=Model(short_name(run["model"]), run["run"], digest(scores)),
        scores=scores,
        seed=int(facts["seed"]),
        data={name: value for name, value in facts.items() if name.startswith("data.")},
        details={"steps": run["steps"]},
        commit=facts["commit"],
        mlflow_run=run["mlflow_run"],
    )
    return save_once(result, folder)


def save_pretrainings(trained: Pretrained) -> list[Result]:
    """Save what each run of a pipeline had measured."""
    return [save_pretraining(run, trained.metric) for run in trained.runs.values()]
