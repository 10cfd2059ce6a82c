"""Fine-tuning on a task: data, encoder, and a run per seed.

Everything that decides a result is in the request, whose digest names the folder
``runs/finetune/<task>/<encoder>/<digest>/``; the seeds are not, so more seeds join those of before.
Each seed's folder holds its result.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from core.artifact import content_digest
from core.executor import engine_of
from core.files import InputError
from core.journal import Journal
from core.json_files import digest, read_json
from core.tracking import ROOT, folder_name, read_inherited_tags, runs_folder
from datamodules.finetune import check_text
from datamodules.pretrained import load
from datamodules.tasks import Pair, Task, load_task
from datamodules.tasks.definition import Definition, config_of
from datamodules.tasks.prepare import find_task, task_folder
from datamodules.tasks.selection import Selection, select_examples
from experiments.machine import Machine, SeedTraining
from experiments.names import Encoder
from experiments.pretrain import gpus, trained_encoder
from experiments.recipes import model_names, options
from experiments.stages import Stage, run_stages

LOG = logging.getLogger(__name__)
DEFAULT = {"zh": "zh", "en": "minilm"}  #: encoder of a task's language, where none is named
PAPER_SEEDS = 5
LR = "model.init_args.lr"


def seeds_of(text: str) -> list[int]:
    """SEEDS=3 means 0, 1, 2; SEEDS=7,9 means these."""
    if not re.fullmatch(r"\d+(,\d+)*,?", text):
        raise InputError(
            f"SEEDS={text}: expected how many (3), or which ones (0,7; one of them: 7,)"
        )
    numbers = [int(n) for n in text.split(",") if n]
    seeds = numbers if "," in text else list(range(numbers[0]))
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"SEEDS={text}: expected at least one seed, each once")
    return seeds


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as arguments of LightningCLI."""
    words = []
    for key, value in settings.items():
        words += [f"--{key}", str(value)]
    return words


def grid_points(grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the grid's values."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def own_settings(chosen: Encoder, typed: Mapping[str, float]) -> dict[str, float]:
    """Options of this encoder alone, whole numbers as such. Raises InputError for one that it does
    not support."""
    for name, value in typed.items():
        if name.upper() not in chosen.option_keys:
            raise InputError(
                f"{name.upper()}={value:g}: {chosen.name} has no such option; it is one of"
                f" {', '.join(options()[name.upper()])}"
            )
    return {
        name: int(value) if float(value).is_integer() else float(value)
        for name, value in typed.items()
    }


def count_tokens(examples: Sequence[Any], language: str) -> float:
    """The tokens of examples, roughly: a Chinese one is a character, others are four."""
    characters = sum(
        len(e.first) + len(e.second) if isinstance(e, Pair) else len(e.text) for e in examples
    )
    return characters / (1 if language == "zh" else 4)


def estimate(
    data: Selection, language: str, epochs: int, runs: int, parameters: int, device: str
) -> str:
    """What is ahead: the size of the training text, and the time that a matrix product on this
    machine makes likely, for training and for what is read after every epoch. No time for an
    encoder without layers (MODEL=bilstm), whose LSTM reads a token after the other."""
    import torch

    train = data.examples["train"]
    tokens = count_tokens(train, language)
    size = (
        f"{len(train):,} training examples, about {tokens:,.0f} tokens; {epochs}"
        f" epochs x {runs} runs"
    )
    if not parameters:  # no product that a time follows from
        return size
    selection_tokens = count_tokens(data.examples["select"], language)
    matrix = torch.randn(1024, 1024, device=device)
    float((matrix @ matrix).sum())
    started = time.perf_counter()
    for _ in range(5):
        result = matrix @ matrix
    float(result.sum())  # waits for a GPU
    rate = 5 * 2 * 1024**3 / (time.perf_counter() - started)
    # training reaches about half of a plain product
    work = 6 * parameters * tokens + 2 * parameters * selection_tokens  # of an epoch, in FLOP
    seconds = work * epochs * runs / (0.5 * rate)
    return f"{size}: about {max(1, round(seconds / 60))} min here"


def encoder_shape(chosen: Encoder) -> tuple[int, int]:
    """(hidden size, parameters that work on every token: 12 H^2 a layer). Raises InputError when
    there is no such model."""
    from transformers import AutoConfig

    try:
        config = load(AutoConfig, chosen.folder)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"no model {chosen.folder!r}: neither a folder with an encoder nor a model of the hub;"
            f" choose from: {model_names()}, a folder or a hub name ({str(error).splitlines()[0]})"
        ) from error
    return int(config.hidden_size), int(12 * config.num_hidden_layers * config.hidden_size**2)


def small_settings(config: dict[str, Any], chosen: Encoder, hidden: int) -> dict[str, Any]:
    """PROFILE=small's settings of a task for an encoder of width `hidden`.

    The learning rate in the YAML is for a width of 768 and is multiplied by (768 / width)^2:
    smaller encoders have larger ones (1.2e-4 at 384 and 2.7e-4 at 256 for 3e-5 at 768), which one
    grid for all of them would not offer. What the encoder's recipe says comes over it: for every
    task, and over that for the tasks of one head.
    """
    settings = dict(config["small"])
    settings[LR] = float(f"{float(settings[LR]) * (768 / hidden) ** 2:.3g}")
    head = config["model"]["init_args"]["head"]["class_path"].rpartition(".")[2]
    flat = {key: value for key, value in chosen.small.items() if not isinstance(value, dict)}
    return settings | flat | chosen.small.get(head, {})


class Seeds(NamedTuple):
    """Finished runs of an encoder on a task: a folder for each seed, all below `base`."""

    task: Definition
    model: str
    encoder: Encoder
    options: dict[str, float]
    data: str  # checksum of the task
    label: str
    base: Path
    folders: list[Path]
    about: dict[str, Any]  # profile, args, options, suite, parent, settings


@dataclass(frozen=True)
class SeedRuns:
    """What every run of one fine-tuning has in common.

    config: the task's YAML file. encoder_shown: the encoder's name with its options. words:
    arguments that choose the machine. config_options: settings of training that were typed.
    """

    training: SeedTraining
    definition: Definition
    config: Path
    folder: Path  # of the task
    encoder: Encoder
    own_options: dict[str, float]  # options of this encoder alone
    config_options: dict[str, Any]
    devices: int
    words: list[str]
    base: Path
    encoder_shown: str

    @property
    def about(self) -> dict[str, Any]:
        """What a run says of itself."""
        return {
            "profile": self.training.profile,
            "args": self.training.args,
            "options": self.own_options | self.config_options,
        }

    def stage(
        self, title: str, place: Path, seed: int, settings: dict[str, Any], number: int
    ) -> Stage:
        """The training of one seed in the folder `place`; `number`: among those of one group."""
        always = {
            "seed_everything": seed,
            "task_name": self.definition.name,
            "model_name": self.encoder_shown,
            "run_folder": place,
            "parent": self.base,
            "request": json.dumps(self.about),
            "model.init_args.encoder": self.encoder.folder,
            "model.init_args.load": self.encoder.load,
            "data.init_args.task": self.folder,
            "data.init_args.tokenizer": self.encoder.folder,
        }
        if self.encoder.linker:
            always["data.init_args.linker"] = self.encoder.linker
            always["data.init_args.linker_folder"] = self.encoder.folder
        keys = self.encoder.option_keys
        options = {keys[name.upper()]: value for name, value in self.own_options.items()}
        arguments = [
            "--config",
            str(self.config.relative_to(ROOT)),
            *self.words,
            *flags(always),
            *flags(options),
            *flags(settings),
            *(["--fresh", "true"] if self.training.fresh else []),
            *shlex.split(self.training.args),
        ]
        gpu = {"CUDA_VISIBLE_DEVICES": str(number % self.devices)} if self.devices else None
        return Stage(title, "experiments.finetune", arguments, place.name, environment=gpu)

    def run(self, stages: list[Stage]) -> None:
        """Run stages side by side: as many as were asked for, as there are devices, or all on a Ray
        cluster."""
        engine = engine_of()
        here = self.training.at_once or self.devices or min(os.cpu_count() or 1, len(stages))
        at_once = len(stages) if engine == "ray" else here
        for i in range(0, len(stages), at_once):
            group = stages[i : i + at_once]
            LOG.info(", ".join(s.title for s in group))
            run_stages(group, self.base, engine)

    def run_seeds(self, seeds: list[int], base: Path, settings: dict[str, Any]) -> list[Path]:
        """Train every seed with the same settings. Returns the folders, below `base`."""
        folders = [base / f"seed{seed}" for seed in seeds]
        pairs = enumerate(zip(seeds, folders, strict=True))
        self.run(
            [self.stage(f"seed {seed}", place, seed, settings, i) for i, (seed, place) in pairs]
        )
        return folders

    def search_grid(self, points: list[dict[str, Any]], seed: int) -> tuple[dict[str, Any], Path]:
        """(settings of the point that is best on the selection split, the folder of its runs)."""
        bases = [self.base / f"grid-{digest(point)[:8]}" for point in points]
        self.run(
            [
                self.stage(str(point), base / f"seed{seed}", seed, point, i)
                for i, (point, base) in enumerate(zip(points, bases, strict=True))
            ]
        )
        scores = [selected_score(read_json(base / f"seed{seed}" / "scores.json")) for base in bases]
        best = scores.index(max(scores))
        LOG.info(f"best on the selection split: {points[best]}")
        return points[best], bases[best]


def train_seeds(
    training: SeedTraining, measure_first: Callable[[str, Task, str, list[int]], None] | None = None
) -> Seeds:
    """A run of experiments.finetune for each seed, below one MLflow run. Raises InputError for what
    cannot be done.

    measure_first: called with the task's name, the task, its checksum and the seeds before anything
    is trained.
    """
    definition = find_task(training.task)
    check_counts(training)
    numbers = seeds_of(training.seeds or str(1 if training.profile == "small" else PAPER_SEEDS))
    path, config = config_of(definition.name)
    folder = task_folder(definition, training.files)
    model = training.model or DEFAULT[definition.language]
    chosen = trained_encoder(model, training.ckpt)
    options = own_settings(chosen, training.options)
    label = " ".join([chosen.name, *(f"{name.upper()}={value}" for name, value in options.items())])
    hidden, parameters = encoder_shape(chosen)
    data = load_task(folder)
    check_text(data, chosen.folder)
    devices, words = devices_of(training.machine, training.profile)
    shared = given_settings(training)
    selection = select_examples(data, training.share, numbers[0])
    points = grid_of(config, training.profile, chosen, hidden, shared)
    checksum = content_digest(folder)
    request = {
        "task": checksum,
        "config": config,
        "encoder": chosen.identity,
        "points": points,
        "args": training.args,
    }
    if options:
        request["options"] = {name.upper(): value for name, value in options.items()}
    base = place_of(definition.name, label, request)
    runs = SeedRuns(
        training, definition, path, folder, chosen, options, shared, devices, words, base, label
    )
    passes = points[0].get("trainer.max_epochs", config["trainer"]["max_epochs"])
    count = len(numbers) + (len(points) - 1 if training.profile == "paper" else 0)
    device = "cuda" if devices else "cpu"
    ahead = estimate(selection, definition.language, passes, count, parameters, device)
    if measure_first is not None:
        measure_first(definition.name, data, checksum, numbers)
    LOG.info(f"{definition.name} with {label}, PROFILE={training.profile}: {ahead}")
    parent = begin_parent(runs)
    settings, chosen_base = points[0], base
    if len(points) > 1:
        settings, chosen_base = runs.search_grid(points, numbers[0])
    folders = runs.run_seeds(numbers, chosen_base, settings)
    about = runs.about | {
        "suite": definition.suite,
        "parent": parent,
        "share": training.share,
        "settings": as_run(folders[0] / "config.yaml", settings),
    }
    return Seeds(definition, model, chosen, options, checksum, label, base, folders, about)


def check_counts(request: SeedTraining) -> None:
    """Raises InputError for a number below 1."""
    for name, value in {"EPOCHS": request.epochs, "AT_ONCE": request.at_once}.items():
        if value is not None and value < 1:
            raise InputError(f"{name}={value}: expected a number of at least 1")


def given_settings(request: SeedTraining) -> dict[str, Any]:
    """The settings of training that were typed."""
    settings: dict[str, Any] = {}
    if request.epochs:
        settings["trainer.max_epochs"] = request.epochs
    if request.lr:
        settings[LR] = request.lr
    if request.share != 1:
        settings["data.init_args.share"] = request.share
    return settings


def grid_of(
    config: dict[str, Any], profile: str, chosen: Encoder, hidden: int, settings: dict[str, Any]
) -> list[dict[str, Any]]:
    """The settings that are tried, each once: the paper's grid, or the one point of the small
    profile, under the encoder's and those that were typed."""
    points = (
        grid_points(config["grid"])
        if profile == "paper"
        else [small_settings(config, chosen, hidden)]
    )
    tried = ({**point, **chosen.settings, **settings} for point in points)
    return list({digest(point): point for point in tried}.values())


def place_of(task: str, label: str, request: dict[str, Any]) -> Path:
    """The folder of the runs that a request decides, made where it is missing."""
    place = runs_folder() / "finetune" / folder_name(task) / folder_name(label)
    place /= digest(request)[:12]
    place.mkdir(parents=True, exist_ok=True)
    return place


def begin_parent(runs: SeedRuns) -> str:
    """Begin the MLflow run above those of the seeds. Returns its id, or the folder where there is
    no store."""
    values = {
        "profile": runs.training.profile,
        "encoder": runs.encoder_shown,
        "folder": str(runs.base),
    }
    with Journal(runs.base, runs.definition.name, runs.encoder_shown, values) as above:
        above.tags(read_inherited_tags())
    return above.run_id or str(runs.base)


def devices_of(machine: Machine, profile: str) -> tuple[int, list[str]]:
    """(GPUs to spread the seeds over, arguments that choose the machine). Fine-tuning one seed uses
    one device."""
    count = gpus() if machine.devices or profile == "paper" else 0
    devices = min(machine.devices or count, count)
    words = [
        "--config",
        f"experiments/common/{'gpu' if devices else 'cpu'}.yaml",
        "--trainer.devices",
        "1",
    ]
    return devices, words + (
        ["--trainer.precision", machine.precision] if machine.precision else []
    )


def as_run(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with the values that the run with `file` in its folder really had: ARGS= may have
    changed them."""
    config = yaml.safe_load(file.read_text())
    return {key: reduce(lambda part, name: part[name], key.split("."), config) for key in settings}


def selected_score(scores: dict[str, Any]) -> float:
    return float(scores["select"][scores["metric"]])
