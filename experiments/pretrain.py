"""From nothing to a pre-trained model: run the stages of ``experiments/<paper>/pipeline.yaml`` one
after the other.

    kepl pretrain kebiolm [--profile small|paper] [--name value ...]        make pretrain-kebiolm
    kepl pretrain kg/cmekg_transr ...      to a graph embedding, by the stages of that YAML file
                                           (make kg-cmekg_transr)

Every stage keeps what it has finished, so the same command resumes after a killed one. A pipeline
has profiles, each with its stages, and one `training` whose variants differ in the configs that are
laid over it; a variant may have `stages` of its own, `arguments` that replace the training's,
`last` configs that are laid over the profile's, and each of these by `profiles`. `data_of` names a
pipeline whose profiles, and their folder, it uses: what is compared with a paper is trained on the
same data.

A stage runs a command, or a package.module:function, with arguments (core.call); {NAME} in them is
an input. `words` are further words of its command line. As a stage of another pipeline, a pipeline
is experiments.pretrain:pretrain.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict

import yaml

from core.call import option_words
from core.choices import list_known
from core.files import InputError
from core.json_files import digest, read_json
from core.tracking import ROOT, runs_folder
from datamodules.pretrained import HUB_NAME, PACKAGED, read_config
from experiments.finetuned_names import NotTrained
from experiments.machine import Inputs, Machine
from experiments.names import Encoder, encoder
from experiments.stages import Stage, run_stages

LOG = logging.getLogger(__name__)


class TrainedRun(TypedDict):
    """What experiments.run reports of a finished run: model is its paper and config, run the name
    that CKPT= takes, start and end the metrics on held-out data."""

    model: str
    run: str
    folder: str
    checkpoints: str
    export: str
    mlflow_run: str
    tracking_uri: str
    start: dict[str, float]
    end: dict[str, float]
    steps: int


class Pretrained(NamedTuple):
    """What a pipeline trained.

    report  where checkpoints and MLflow runs are, and how the metrics moved
    runs    {training: its run}
    metric  of held-out data that stands for the others: the first of the pipeline's report
    """

    report: str
    runs: Mapping[str, TrainedRun] = MappingProxyType({})
    metric: str = ""


def papers() -> list[str]:
    """Papers and initial checkpoints that have a pipeline."""
    return sorted(p.parent.name for p in (ROOT / "experiments").glob("*/pipeline.yaml"))


def graph_embeddings() -> list[str]:
    """kg/<file> of the pipelines among the configs of graph embeddings: those that have stages."""
    files = sorted((ROOT / "experiments" / "kg").glob("*.yaml"))
    return [f"kg/{p.stem}" for p in files if "profiles" in yaml.safe_load(p.read_text())]


def pipeline_of(name: str) -> dict[str, Any]:
    """Profiles, training, variants and report of a pipeline. Raises InputError for an unknown
    name."""
    if name not in papers() + graph_embeddings():
        if name.startswith("kg/"):
            stem = name.removeprefix("kg/")
            stems = [path.removeprefix("kg/") for path in graph_embeddings()]
            raise InputError(f"no graph embedding {stem!r}; {list_known(stem, stems)}")
        raise InputError(f"no paper {name!r}; {list_known(name, papers())}")
    file = f"{name}.yaml" if name in graph_embeddings() else f"{name}/pipeline.yaml"
    pipeline: dict[str, Any] = yaml.safe_load((ROOT / "experiments" / file).read_text())
    if "data_of" in pipeline:
        pipeline["profiles"] = pipeline_of(pipeline["data_of"])["profiles"]
    return pipeline


def gpus() -> int:
    import torch

    return torch.cuda.device_count()


def machine_words(chosen: Machine, gpu: bool = False, plan: bool = False) -> list[str]:
    """Arguments of experiments.run that choose the machine.

    A profile of the paper's size (`gpu`) uses all GPUs; the others use a GPU only when `devices`
    asks for one and there is one, and otherwise run that many gloo processes on the CPU. plan: for
    the machine that the stages will run on, not for this one. Raises InputError when GPUs are
    needed and not available.
    """
    for name in ("devices", "nodes", "workers"):
        number = getattr(chosen, name)
        if number is not None and number < 1:
            raise InputError(f"{name.upper()}={number}: expected a number of at least 1")
    count = gpus() if gpu or chosen.devices else 0
    if gpu and plan:
        count = max(count, chosen.devices or 1)
    if gpu and not count:
        raise InputError(
            "PROFILE=paper needs a CUDA GPU and this machine has none. Run it on a GPU machine, or"
            " take PROFILE=small."
        )
    devices, nodes = chosen.devices or count or 1, chosen.nodes or 1
    if count and devices > count:
        raise InputError(f"DEVICES={devices}, but this machine has {count} GPUs")
    kind = "ddp" if devices * nodes > 1 else "gpu"
    kind = kind if count else "cpu"
    words = ["--config", f"experiments/common/{kind}.yaml", "--trainer.devices", str(devices)]
    words += ["--trainer.num_nodes", str(nodes)] if nodes > 1 else []
    words += ["--trainer.strategy", "ddp"] if devices * nodes > 1 else []
    return words + (["--trainer.precision", chosen.precision] if chosen.precision else [])


def chosen_variants(
    pipeline: dict[str, Any], profile_name: str, variants: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The pipeline's variants to train, in its order: those named, or without names all that are
    not `extra` in the profile.

    Raises InputError for an unknown name.
    """
    listed: dict[str, dict[str, Any]] = pipeline.get("variants", {})
    if unknown := [name for name in variants if name not in listed]:
        choice = list_known(unknown[0], listed) if listed else "this pipeline has none"
        raise InputError(f"VARIANTS: no variant {unknown[0]!r}; {choice}")
    if variants:
        chosen = [name for name in listed if name in variants]
        return {name: variant_of(name, listed[name], profile_name) for name in chosen}
    # true, or the profiles in which it is
    extra = {name: variant.get("extra", []) for name, variant in listed.items()}
    return {
        name: listed[name]
        for name, changes in extra.items()
        if changes is not True and profile_name not in changes
    }


def commands(
    paper: str,
    profile_name: str,
    work: Path,
    inputs: Inputs = Inputs(),
    where: Machine = Machine(),
    seed: int = 0,
    fresh: bool = False,
    variants: Sequence[str] = (),
    args: str = "",
    plan: bool = False,
    rehearsed: bool = False,
) -> list[Stage]:
    """Every stage to run, in order: those of the profile, then the training of each variant.

    rehearsed: a profile of the paper's size runs on the CPU where there is no GPU.
    Raises InputError for an unknown paper, profile or variant, or an input that the profile needs
    and `inputs` lacks.
    """
    pipeline = pipeline_of(paper)
    profiles = pipeline["profiles"]
    if profile_name not in profiles:
        raise InputError(f"no profile {profile_name!r}; {list_known(profile_name, profiles)}")
    profile = profiles[profile_name]
    trained = chosen_variants(pipeline, profile_name, variants)
    inputs_typed = inputs.list_inputs()
    check_needs(profile_name, profile.get("needs", {}), inputs_typed)
    # a plan may run on another machine: there, commands without a number take one process a core
    workers = where.workers or (None if plan else os.cpu_count() or 1)
    values: dict[str, Any] = {"work": str(work), "WORKERS": workers}
    values |= fill_all(profile.get("defaults", {}), values)
    values |= inputs_typed | {"SEED": seed, "FRESH": fresh}
    gpu = bool(profile.get("gpu")) and not (rehearsed and not gpus())
    words = [*machine_words(where, gpu, plan), "--seed_everything", str(seed)]
    words += ["--fresh", "true"] if fresh else []
    # a rehearsal's words are a config below the pipeline's own; those of a person replace it
    typed = shlex.split(args)
    words += typed if rehearsed else []
    stages: list[Stage] = []
    before = [stage for variant in trained.values() for stage in variant.get("stages", [])]
    used: set[str] = set()
    for stage in [*profile["stages"], *before]:
        if stage.get("unless", "") not in inputs_typed:
            used |= names_in(stage)
            values |= fill_all(stage.get("sets", {}), values)
            options = option_words(fill_all(stage.get("arguments", {}), values))
            options += fill(stage.get("words", []), values)
            stages.append(Stage(stage["title"], stage["run"], options))
    training = pipeline["training"] if trained else {}
    common = training.get("arguments", {}) | profile.get("arguments", {})
    used |= names_in([common, list(trained.values())]) if trained else set()
    check_used(paper, profile_name, inputs_typed, used)
    for name, variant in trained.items():
        files = layered_configs(paper, training["configs"], variant, profile)
        arguments = option_words(fill_all(common | variant.get("arguments", {}), values))
        options = [*option_words({"config": files}), *words, *arguments]
        options += ["--result", str(work / f"result-{name}.json"), *([] if rehearsed else typed)]
        together = variant.get("together") if "experiments/common/cpu.yaml" in words else None
        stages.append(Stage(variant["title"], "experiments.run", options, name, together))
    return stages


def names_in(part: Any) -> set[str]:
    """The inputs, {NAME}, that a part of a pipeline.yaml uses."""
    return set(re.findall(r"\{([A-Z]+)\}", json.dumps(part)))


def check_used(
    paper: str, profile_name: str, typed: Mapping[str, list[str]], used: Collection[str]
) -> None:
    """Raises InputError for an input that was given and no stage uses. MIRROR= may find nothing to
    do."""
    for name in typed:
        if name in used or name == "MIRROR":
            continue
        users = []
        for other in papers():
            pipeline = pipeline_of(other)
            profiles = [
                profile
                for profile, settings in pipeline["profiles"].items()
                if name in names_in([settings["stages"], pipeline.get("training")])
            ]
            users += [f"{other} ({', '.join(profiles)})"] if profiles else []
        raise InputError(
            f"{name}: no stage of {paper} uses it with PROFILE={profile_name} and what else is"
            f" given. Leave it out; it belongs to {', '.join(users) or 'no paper'}"
        )


def check_needs(
    profile_name: str, needs: Mapping[str, str], typed: Mapping[str, list[str]]
) -> None:
    """Raises InputError for an input that a profile needs, {name: what it is}, and nobody gave."""
    for name, meaning in needs.items():
        if name not in typed and not (name == "UMLS" and "GRAPH" in typed):
            raise InputError(f"PROFILE={profile_name} needs {name}=... : {meaning}")


def variant_of(name: str, variant: dict[str, Any], profile_name: str) -> dict[str, Any]:
    """A variant as a profile has it: with what its `profiles` say of this one. Raises InputError
    where they do not list it."""
    profiles = variant.get("profiles")
    if profiles is None:
        return variant
    if profile_name not in profiles:
        raise InputError(
            f"VARIANTS={name}: none in PROFILE={profile_name}; {list_known(profile_name, profiles)}"
        )
    return variant | profiles[profile_name]


def layered_configs(
    paper: str, files: Sequence[str], variant: Mapping[str, Any], profile: Mapping[str, Any]
) -> list[str]:
    """The config files of a training, in the order in which they are laid over each other."""
    layers = {"{variant}": variant.get("configs", []), "{profile}": profile.get("configs", [])}
    listed: list[str] = []
    for name in files:
        listed += layers.get(name, [name])
    listed += variant.get("last", [])
    return [f"experiments/{paper}/{file}" for file in listed]


def fill(value: Any, values: Mapping[str, Any]) -> Any:
    """A value of a pipeline with its inputs, {NAME}, filled in. One that is nothing but {NAME}
    becomes the input itself, a list among others; None where that is empty.

    Raises InputError for an unknown name.
    """
    if isinstance(value, list):
        parts: list[Any] = []
        for part in value:
            filled = fill(part, values)
            if filled is not None:
                parts += filled if isinstance(filled, list) else [filled]
        return parts
    if not isinstance(value, str):
        return value
    for name in re.findall(r"\{(\w+)\}", value):
        if name not in values:
            raise InputError(f"{value}: no input {name}; {list_known(name, values)}")
    if re.fullmatch(r"\{\w+\}", value):
        words = values[value[1:-1]]
        return None if words == "" else words
    texts = {k: shlex.join(v) if isinstance(v, list) else v for k, v in values.items()}
    return value.format(**texts)


def fill_all(arguments: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a stage with its inputs filled in."""
    return {name: fill(value, values) for name, value in arguments.items()}


def table(report: dict[str, str], results: Mapping[str, TrainedRun], column: str = "{}") -> str:
    """Start and end of every reported metric, one pair of columns per run; of several runs each is
    headed by `column` with the run's name in it.

    A metric that a run does not have stays empty there. Raises InputError for one that no run has:
    it is misspelt.
    """
    columns = sorted(set[str]().union(*(result["end"] for result in results.values())))
    for label, key in report.items():
        if key not in columns:
            raise InputError(
                f"pipeline.yaml, report, {label!r}: no run has a metric {key!r};"
                f" {list_known(key, columns)}"
            )
    width = max(map(len, report)) + 2
    head = " " * width + "".join(f"{column.format(name):>20}" for name in results)
    lines = [head] if len(results) > 1 else []
    lines.append(" " * width + "".join(f"{'start':>11}{'end':>9}" for _ in results))
    for label, key in report.items():
        cells = (
            f"{r['start'][key]:>11.4f}{r['end'][key]:>9.4f}" if key in r["end"] else " " * 20
            for r in results.values()
        )
        lines.append(f"{label:<{width}}" + "".join(cells).rstrip())
    return "\n".join(lines)


def counts(template: str, results: Mapping[str, TrainedRun]) -> str:
    """`template` filled with what the runs counted at their end; a clause with a count that no run
    has is left out.

    A variant need not count what another does: masked words alone have no mentions, and an
    objective that a variant lacks counts 0. The first run that counts something is quoted.
    """
    units: dict[str, float] = {}
    for run in results.values():
        for key, value in run["end"].items():
            units[key] = units.get(key) or value
    uncounted, counted = [], True
    for clause in template.split(", "):
        fields = {field for _, field, _, _ in Formatter().parse(clause) if field is not None}
        # one without goes with the clause before it
        counted = fields <= set(units) if fields else counted
        if counted:
            uncounted.append(clause.format(**units))
    return ", ".join(uncounted)


def pretrain(
    paper: str,
    profile: str = "small",
    inputs: Inputs = Inputs(),
    where: Machine = Machine(),
    seed: int = 0,
    fresh: bool = False,
    variants: Sequence[str] = (),
    args: str = "",
    plan: bool = False,
) -> Pretrained:
    """Run all stages. plan: only list them.

    variants: these of the pipeline's trainings instead of its usual ones.  args: further words for
        LightningCLI.
    """
    choice = inputs.choice()
    pipeline = pipeline_of(paper)
    check_inputs(paper, pipeline, inputs, plan)
    folder = pipeline.get("data_of", paper).replace("/", "-")
    work = (
        runs_folder() / "data" / f"{folder}-{profile}{'-' + digest(choice)[:8] if choice else ''}"
    )
    stages = commands(paper, profile, work, inputs, where, seed, fresh, variants, args, plan)
    if plan:
        return Pretrained("\n".join(f"# {stage.title}\n{stage.command}" for stage in stages))
    if estimate := pipeline["profiles"][profile].get("estimate"):
        LOG.info(f"This is paper-sized work. {estimate}")
    work.mkdir(parents=True, exist_ok=True)
    run_groups(stages, work)
    results: dict[str, TrainedRun] = {
        s.result: read_json(work / f"result-{s.result}.json") for s in stages if s.result
    }
    if not results:
        return Pretrained(
            f"What was made is in {work}. Trained tables are MLflow runs of the experiment kg (make"
            " dashboard)."
        )
    report = pipeline["report"]
    metric = next(iter(report["rows"].values()))
    return Pretrained(describe_results(report, results, bool(variants)), results, metric)


def run_groups(stages: Sequence[Stage], work: Path) -> None:
    """Run stages one after the other, those that go together at the same time."""
    number = 0
    for _, group in groupby(stages, key=lambda s: s.together or s.title):
        several = list(group)
        started = time.monotonic()
        for stage in several:
            number += 1
            note = f" (at the same time; output in {work / stage.log})"
            heading = stage.title + ("" if stage is several[0] else note)
            LOG.info(f"[{number}/{len(stages)}] {heading}")
        run_stages(several, work)
        LOG.info(f"      {time.monotonic() - started:.0f} s")


def describe_results(
    report: Mapping[str, Any], results: Mapping[str, TrainedRun], some: bool
) -> str:
    """Where the runs are, and a table of their metrics. some: not all trainings were run, and a
    metric of another one has no row."""
    lines = [
        f"{name}: {run['steps']} steps\n  checkpoint  {run['checkpoints']}\n  export     "
        f" {run['export']}\n  MLflow run  {run['mlflow_run']}  (make dashboard)"
        for name, run in results.items()
    ]
    rows = report["rows"]
    if some:
        measured = set[str]().union(*(result["end"] for result in results.values()))
        rows = {label: key for label, key in rows.items() if key in measured}
    held_out = counts(report["held_out"], results)
    lines += [
        f"\nOn held-out text{f' ({held_out})' if held_out else ''}:\n",
        table(rows, results, report["column"]),
    ]
    return "\n".join(lines)


def check_inputs(
    paper: str, pipeline: Mapping[str, Any], inputs: Inputs, plan: bool = False
) -> None:
    """Raise InputError, before anything is built, for a given path that does not exist, and for an
    ENCODER= that the paper's training cannot start from. plan: the stages may run on another
    machine, so a path that does not exist on this one is a warning."""
    for name, words in inputs.list_inputs().items():
        if name in ("GRAPH", "UMLS", "CORPUS"):
            missing = [word for word in words if not Path(word).exists()]
            if missing and not plan:
                raise InputError(f"{name}={missing[0]}: no such file or folder")
            if missing:
                LOG.warning(f"{name}={missing[0]}: no such file or folder on this machine")
    if inputs.encoder is None:
        return
    here = inputs.encoder in PACKAGED or Path(inputs.encoder).exists()
    if plan and not here and HUB_NAME.fullmatch(inputs.encoder) is None:
        LOG.warning(f"ENCODER={inputs.encoder}: no such folder on this machine")
        return
    kind = str(read_config(inputs.encoder).get("model_type", "none"))
    if not takes_type(paper, kind):
        types = (pipeline.get("training") or {}).get("encoder_types") or ["nothing"]
        taking = [other for other in papers() if takes_type(other, kind)]
        others = f"Papers that take it: {', '.join(taking)}." if taking else "No paper takes it."
        raise InputError(
            f"ENCODER={inputs.encoder}: a {kind} model; {paper} starts from {' or '.join(types)}."
            f" {others}"
        )
    if here or not plan:  # a plan fetches no weights
        from datamodules.tokenizers import load_tokenizer  # loads a model library

        load_tokenizer(inputs.encoder, needed=("pad_token",))


def takes_type(paper: str, model_type: str) -> bool:
    """Whether a paper's training can start from a model of this type: of those that it names; of
    any where it names none and starts from a model at all."""
    pipeline = pipeline_of(paper)
    types = (pipeline.get("training") or {}).get("encoder_types")
    return model_type in types if types else "{ENCODER}" in str(pipeline)


def trained_encoder(name: str, ckpt: str | None) -> Encoder:
    """The encoder, pre-trained first if it is a paper's and it has no finished run."""
    try:
        return encoder(name, ckpt)
    except NotTrained as error:
        if "/" in name:
            raise
        LOG.info(f"{error}\nIt is pre-trained first, with PROFILE=small:")
        pretrain(error.paper)
        return encoder(name, None)
