"""``make finetune``: data, encoder, a run per seed, scores with intervals, and how they compare.

    python -m benchmarks.run finetune NCBI [MODEL=minilm SEEDS=3 PROFILE=small|paper MIRROR=FOLDER ...]

Everything that decides a result stands in the request, whose digest names the folder
``runs/finetune/<task>/<encoder>/<digest>/``; SEEDS is not part of it, so more seeds join those that are there. Settings
that only one encoder takes (`options` of its encoder.yaml) stand in its label: "<encoder> NAME=VALUE".
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import time
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from benchmarks.tasks import prepared, task
from benchmarks.tasks.definition import Definition, config_of
from core.files import InputError, digest, read_json, sha256, write_json
from core.tracking import ROOT, adopt, new_run, runs_folder, store_uri, tracking_uri
from datamodules.finetune import check_text
from datamodules.sources import fetched, place
from datamodules.tasks import Pair, Task, load_task
from experiments.encoders import Encoder, NotTrained, encoder, known, options
from experiments.pretrain import gpus, pretrain
from experiments.stages import Stage, run_stages
from kg.pretrained import pretrained
from models.metrics import bootstrap_interval, compared

SETTINGS = (
    "MODEL", "SEEDS", "CKPT", "PROFILE", "MIRROR", "DATA", "DEVICES", "PRECISION", "FRESH", "ARGS",
)  # fmt: skip
DEFAULT = {"zh": "zh", "en": "minilm"}  #: encoder of a task's language, where none is named
PAPER_SEEDS = 5
LR = "model.init_args.lr"


def seeds_of(text: str) -> list[int]:
    """SEEDS=3 means 0, 1, 2; SEEDS=7,9 means these."""
    if not re.fullmatch(r"\d+(,\d+)*,?", text):
        raise InputError(f"SEEDS={text}: wanted how many (3), or which ones (0,7; one of them: 7,)")
    numbers = [int(n) for n in text.split(",") if n]
    seeds = numbers if "," in text else list(range(numbers[0]))
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"SEEDS={text}: wanted at least one seed, each once")
    return seeds


def folder_name(text: str) -> str:
    return re.sub(r"[^\w.@-]+", "-", text)


def flags(settings: dict[str, Any]) -> list[str]:
    """Settings as arguments of LightningCLI."""
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


def grid_points(grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the grid's values."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def task_folder(definition: Definition, given: dict[str, str]) -> Path:
    """The task on disk: made of the files in DATA= (or a task folder, as it is), or fetched and prepared."""
    tasks = runs_folder() / "data" / "benchmarks" / "tasks"
    name = folder_name(definition.name)
    if given.get("DATA"):
        own = Path(given["DATA"]).resolve()
        if not own.is_dir():
            raise InputError(
                f"DATA={given['DATA']}: no such folder; wanted {definition.name}'s files, or a task folder"
            )
        if not (own / "manifest.json").is_file():
            return prepared(definition.name, own, tasks / f"{name}-{digest(str(own))[:8]}")
        kind = load_task(own).kind
        if kind != definition.kind:
            raise InputError(f"DATA={own}: a {kind} task; {definition.name} is {definition.kind}")
        return own
    mirrors = [Path(m) for m in shlex.split(given.get("MIRROR", ""))]
    return prepared(definition.name, fetched(definition.dataset, place(), mirrors), tasks / name)


def found_encoder(name: str, given: dict[str, str]) -> Encoder:
    """The encoder, pre-trained first if it is a paper's and no run of it is there."""
    try:
        return encoder(name, given.get("CKPT"))
    except NotTrained as error:
        if "/" in name:
            raise
        print(f"{error}\nNow it is pre-trained, with PROFILE=small:", flush=True)
        pretrain(error.paper, "small", {})
        return encoder(name, None)


def own_settings(chosen: Encoder, given: Mapping[str, str]) -> dict[str, float]:
    """{setting that the encoder alone takes: its value}. Raises InputError for one that it does not take, or no number."""
    found: dict[str, float] = {}
    for name, papers in options().items():
        if not given.get(name):
            continue
        if name not in chosen.options:
            raise InputError(
                f"{name}={given[name]}: {chosen.name} takes no such setting; it is one of {', '.join(papers)}"
            )
        if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", given[name]):
            raise InputError(f"{name}={given[name]}: wanted a number, such as 0.5")
        value = float(given[name])
        found[name] = int(value) if value.is_integer() else value
    return found


def estimate(data: Task, epochs: int, runs: int, parameters: int, device: str) -> str:
    """What is ahead: the size of the training text, and the time that a matrix product on this machine makes likely."""
    import torch

    texts = (t for e in data.splits["train"] for t in ((e.first, e.second) if isinstance(e, Pair) else (e.text,)))
    tokens = sum(map(len, texts)) / (1 if data.manifest["language"] == "zh" else 4)  # characters a token, roughly
    matrix = torch.randn(1024, 1024, device=device)
    float((matrix @ matrix).sum())
    started = time.perf_counter()
    for _ in range(5):
        result = matrix @ matrix
    float(result.sum())  # waits for a GPU
    rate = 5 * 2 * 1024**3 / (time.perf_counter() - started)
    seconds = 6 * parameters * tokens * epochs * runs / (0.5 * rate)  # training reaches about half of a plain product
    return (
        f"{len(data.splits['train']):,} training examples, about {tokens:,.0f} tokens; {epochs} epochs x {runs} runs: about "
        f"{max(1, round(seconds / 60))} min here"
    )


def encoder_shape(chosen: Encoder) -> tuple[int, int]:
    """(hidden size, parameters that work on every token: 12 H^2 a layer). Raises InputError when there is no such model."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(pretrained(chosen.folder))
    except (OSError, ValueError) as error:
        raise InputError(
            f"no model {chosen.folder!r}: neither a folder with an encoder nor a model that the hub gave; choose from: "
            f"{known()}, a folder or a hub name ({str(error).splitlines()[0]})"
        ) from error
    return int(config.hidden_size), int(12 * config.num_hidden_layers * config.hidden_size**2)


def small_settings(config: dict[str, Any], chosen: Encoder, hidden: int) -> dict[str, Any]:
    """PROFILE=small's settings of a task for an encoder of width `hidden`.

    The learning rate in the YAML is for a width of 768 and is multiplied by (768 / width)^2: smaller encoders take larger
    ones (1.2e-4 at 384 and 2.7e-4 at 256 for 3e-5 at 768), which one grid for all of them would not offer. What the
    encoder's recipe says comes over it: for every task, and over that for the tasks of one head.
    """
    settings = dict(config["small"])
    settings[LR] = float(f"{float(settings[LR]) * (768 / hidden) ** 2:.3g}")
    head = config["model"]["init_args"]["head"]["class_path"].rpartition(".")[2]
    own = {key: value for key, value in chosen.small.items() if not isinstance(value, dict)}
    return settings | own | chosen.small.get(head, {})


def parent_run(base: Path, experiment: str, name: str, tags: dict[str, str]) -> str:
    """The MLflow run that holds all seeds of one request; made once."""
    known = base / "mlflow.json"
    client = MlflowClient(tracking_uri())
    if known.is_file() and read_json(known)["tracking_uri"] == store_uri():
        try:
            there = str(client.get_run(read_json(known)["run_id"]).info.run_id)
        except MlflowException:
            print(f"{known}: the MLflow store no longer has this run; a new one takes its place")
        else:
            adopt(client, there)
            return there
    client, made = new_run(experiment, name, tags)
    client.update_run(made, status="RUNNING")
    write_json(known, {"run_id": made, "tracking_uri": store_uri()})
    return made


def finetune(name: str, given: dict[str, str]) -> dict[str, Any]:
    """Fine-tune and score; returns the summary that it writes. Raises InputError for what cannot be done."""
    definition = task(name)
    profile = given.get("PROFILE") or "small"
    if profile not in ("small", "paper"):
        raise InputError(f"no profile {profile!r}; choose from: small, paper")
    seeds = seeds_of(given.get("SEEDS") or str(1 if profile == "small" else PAPER_SEEDS))
    path, config = config_of(definition.name)
    folder = task_folder(definition, given)
    model_name = given.get("MODEL") or DEFAULT[definition.language]
    chosen = found_encoder(model_name, given)
    own = own_settings(chosen, given)
    chosen = chosen._replace(name=" ".join([chosen.name, *(f"{name}={value}" for name, value in own.items())]))
    hidden, parameters = encoder_shape(chosen)
    data = load_task(folder)
    check_text(data, chosen.folder)
    devices, words = machine(given, profile)
    small = small_settings(config, chosen, hidden) if profile == "small" else {}
    points = grid_points(config["grid"]) if profile == "paper" else [small]
    request = {
        "task": sha256(folder / "manifest.json"),
        "config": config,
        "encoder": chosen.identity,
        "points": points,
        "args": given.get("ARGS", ""),
    } | ({"options": own} if own else {})
    base = runs_folder() / "finetune" / folder_name(definition.name) / folder_name(chosen.name) / digest(request)[:12]
    base.mkdir(parents=True, exist_ok=True)
    epochs = small.get("trainer.max_epochs", config["trainer"]["max_epochs"])
    runs = len(seeds) + (len(points) - 1 if profile == "paper" else 0)
    ahead = estimate(data, epochs, runs, parameters, "cuda" if devices else "cpu")
    print(f"{definition.name} with {chosen.name}, PROFILE={profile}: {ahead}", flush=True)

    experiment = definition.name
    parent = parent_run(
        base, experiment, chosen.name, {"profile": profile, "encoder": chosen.name, "folder": str(base)}
    )

    def stage(title: str, place: Path, seed: int, settings: dict[str, Any], number: int) -> Stage:
        arguments = ["experiments.finetune", "--config", str(path.relative_to(ROOT)), *words]
        arguments += ["--seed_everything", str(seed), "--task_name", experiment, "--model_name", chosen.name]
        arguments += ["--run_folder", str(place), "--parent", parent]
        arguments += ["--model.init_args.encoder", chosen.folder, "--model.init_args.load", chosen.load]
        arguments += ["--data.init_args.task", str(folder), "--data.init_args.tokenizer", chosen.folder]
        if chosen.linker:
            arguments += ["--data.init_args.linker", chosen.linker, "--data.init_args.linker_folder", chosen.folder]
        arguments += flags({chosen.options[name]: value for name, value in own.items()})
        arguments += [*flags(settings), *(["--fresh", "true"] if given.get("FRESH") else [])]
        arguments += shlex.split(given.get("ARGS", ""))
        gpu = {"CUDA_VISIBLE_DEVICES": str(number % devices)} if devices else None
        return Stage(title, arguments, place.name, environment=gpu)

    def run_all(stages: list[Stage]) -> None:
        at_once = devices or min(os.cpu_count() or 1, len(stages))
        for i in range(0, len(stages), at_once):
            group = stages[i : i + at_once]
            print(", ".join(s.title for s in group), flush=True)
            run_stages(group, base)

    settings = points[0]
    if len(points) > 1:
        places = [base / f"grid-{digest(point)[:8]}" / f"seed{seeds[0]}" for point in points]
        run_all([stage(str(p), place, seeds[0], p, i) for i, (p, place) in enumerate(zip(points, places, strict=True))])
        best = max(range(len(points)), key=lambda i: selected_score(read_json(places[i] / "scores.json")))
        settings = points[best]
        print(f"best on the selection split: {settings}", flush=True)
    chosen_base = base / f"grid-{digest(settings)[:8]}" if len(points) > 1 else base
    run_all([stage(f"seed {seed}", chosen_base / f"seed{seed}", seed, settings, i) for i, seed in enumerate(seeds)])

    summary = summarised(chosen_base, seeds) | {
        "task": definition.name,
        "suite": definition.suite,
        "model": chosen.name,
        "profile": profile,
        "settings": as_run(chosen_base / f"seed{seeds[0]}" / "config.yaml", settings),
        "args": given.get("ARGS", ""),
        "options": own,
        "task_digest": request["task"],
        "mlflow_run": parent,
        "folder": str(chosen_base),
    }
    write_json(base / "summary.json", summary)
    record(parent, summary, base)
    print("\n" + report(summary))
    for other in others(summary):
        print(comparison_line(summary, other))
    return summary


def machine(given: dict[str, str], profile: str) -> tuple[int, list[str]]:
    """(GPUs to spread the seeds over, arguments that choose the machine). Fine-tuning one seed takes one device."""
    if given.get("DEVICES") and not given["DEVICES"].isdigit():
        raise InputError(f"DEVICES={given['DEVICES']}: wanted a number")
    found = gpus() if given.get("DEVICES") or profile == "paper" else 0
    devices = min(int(given.get("DEVICES") or found), found)
    words = ["--config", f"experiments/common/{'gpu' if devices else 'cpu'}.yaml", "--trainer.devices", "1"]
    return devices, words + (["--trainer.precision", given["PRECISION"]] if given.get("PRECISION") else [])


def as_run(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with the values that the run in whose folder `file` lies really had: ARGS= may have changed them."""
    config = yaml.safe_load(file.read_text())
    return {key: reduce(lambda part, name: part[name], key.split("."), config) for key in settings}


def selected_score(scores: dict[str, Any]) -> float:
    return float(scores["select"][scores["metric"]])


def tallies_of(base: Path, seeds: list[int], metric: str) -> dict[int, np.ndarray]:
    """{seed: tallies per test example}."""
    return {s: np.load(base / f"seed{s}" / "tallies.npz", allow_pickle=False)[metric] for s in seeds}


def spread(values: list[float]) -> dict[str, Any]:
    """Mean and sample standard deviation (None for one value)."""
    return {
        "values": values,
        "mean": float(np.mean(values)),
        "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None,
    }


def summarised(base: Path, seeds: list[int]) -> dict[str, Any]:
    """Scores of all seeds, and the interval of their pooled counts over test examples."""
    every = [read_json(base / f"seed{s}" / "scores.json") for s in seeds]
    first = every[0]
    metric = first["metric"]
    pooled = sum(tallies_of(base, seeds, metric).values())
    assert isinstance(pooled, np.ndarray)
    names = [k for k in first["score"] if all(k in e["score"] for e in every)]
    return {
        "metric": metric,
        "seeds": seeds,
        "scored_on": first["scored_on"],
        "selected_on": first["selected_on"],
        "variant": first["variant"],
        "examples": first["examples"],
        "select": spread([selected_score(e) for e in every]),
        "score": spread([e["score"][metric] for e in every]),
        "interval": bootstrap_interval(pooled),
        "other": {k: spread([e["score"][k] for e in every]) for k in names if k != metric},
        "epochs": [e["epoch"] for e in every],
    }


def record(parent: str, summary: dict[str, Any], base: Path) -> None:
    """Write the summary into the parent MLflow run and end it."""
    client = MlflowClient(tracking_uri())
    scored, metric = summary["scored_on"], summary["metric"]
    values = {
        f"{scored}/{metric}": summary["score"]["mean"],
        f"{scored}/{metric}_low": summary["interval"][0],
        f"{scored}/{metric}_high": summary["interval"][1],
        f"select/{metric}": summary["select"]["mean"],
    } | {f"{scored}/{k}": v["mean"] for k, v in summary["other"].items()}
    if summary["score"]["sd"] is not None:
        values[f"{scored}/{metric}_sd"] = summary["score"]["sd"]
    for key, value in values.items():
        client.log_metric(parent, key, value)
    known = client.get_run(parent).data.params
    facts = {k: summary[k] for k in ("task", "suite", "model", "profile", "variant", "scored_on", "selected_on")}
    for key, value in facts.items():
        if key not in known:
            client.log_param(parent, key, str(value))
    client.set_tag(parent, "seeds", ",".join(map(str, summary["seeds"])))
    client.log_artifact(parent, str(base / "summary.json"))
    client.set_terminated(parent)


def report(summary: dict[str, Any]) -> str:
    """The scores as a table."""
    metric, scored = summary["metric"], summary["scored_on"]
    official = f", variant {summary['variant']} (not the official set)" if summary["variant"] else ""
    select = "dev" if summary["selected_on"] == "dev" else "selection"
    lines = [
        f"{summary['task']}{official}, {metric}, {summary['model']}, PROFILE={summary['profile']}",
        f"{'':<16}{select:>10}{scored:>10}   best epoch",
    ]
    for i, seed in enumerate(summary["seeds"]):
        a, b = summary["select"]["values"][i], summary["score"]["values"][i]
        lines.append(f"{f'seed {seed}':<16}{a:>10.4f}{b:>10.4f}   {summary['epochs'][i]}")
    lines.append(f"{'mean':<16}{summary['select']['mean']:>10.4f}{summary['score']['mean']:>10.4f}")
    if summary["score"]["sd"] is not None:
        lines.append(f"{'sd':<16}{summary['select']['sd']:>10.4f}{summary['score']['sd']:>10.4f}")
    low, high = summary["interval"]
    lines.append(
        f"95 % interval of the {scored} score over its {summary['examples']:,} examples: {low:.4f} to {high:.4f}"
    )
    shown = {k: v for k, v in summary["other"].items() if not k.startswith("f1_")}
    lines.append(", ".join(f"{k} {v['mean']:.4f}" for k, v in shown.items()))
    if summary["selected_on"] != "dev":
        lines.append(f"The epoch was chosen on {summary['selected_on']} (by document); {scored} was read once.")
    if scored == "dev":
        lines.append("There is no test split here, so dev is scored; do not set this beside test scores.")
    return "\n".join(lines) + f"\nMLflow run {summary['mlflow_run']} (make dashboard); files in {summary['folder']}"


def others(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Summaries of other encoders on exactly the same task and profile, newest of each."""
    place = runs_folder() / "finetune" / folder_name(summary["task"])
    newest: dict[str, dict[str, Any]] = {}
    for file in sorted(place.glob("*/*/summary.json"), key=lambda p: p.stat().st_mtime):
        other = read_json(file)
        same = all(other.get(k) == summary[k] for k in ("task_digest", "profile", "metric", "scored_on"))
        if same and other["model"] != summary["model"]:
            newest[other["model"]] = other
    return list(newest.values())


def told_p(p: float) -> str:
    """A p-value of a t-test as text, which may be smaller than any number of digits shows."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def comparison_line(summary: dict[str, Any], other: dict[str, Any]) -> str:
    """One line: this encoder against another one, with both tests."""
    common = sorted(set(summary["seeds"]) & set(other["seeds"]))
    if not common:
        return f"against {other['model']}: no common seed"
    metric = summary["metric"]
    c = compared(tallies_of(Path(other["folder"]), common, metric), tallies_of(Path(summary["folder"]), common, metric))
    seeds = "" if c.p_seeds is None else f", paired t over {len(common)} seeds {told_p(c.p_seeds)}"
    return (
        f"against {other['model']} ({other['score']['mean']:.4f}): {c.difference:+.4f}, 95 % interval {c.low:+.4f} to "
        f"{c.high:+.4f}, paired bootstrap over examples p = {c.p_bootstrap:.4f}{seeds}"
    )
