"""A paper's fine-tuning on a linking task's training mentions, and the scores of what it gives.

    kepl finetune AAP-EL --model sapbert [--folds 0,1 --profile small|paper --mirror FOLDER ...]

For each fold: the training data, a run of the paper's finetune.yaml that starts from MODEL, and
scores of what it gives, first as it is and then with dictionary back-off (an exact match comes
before what the model finds).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.linking import folds as prepare
from benchmarks.linking.evaluate import score_linker
from benchmarks.options import Evaluation, LinkerTuning, check_epochs, check_task
from benchmarks.results import Result, model_of
from core.artifact import read_manifest
from core.dotted import import_object
from core.json_files import digest, read_json
from core.settings import given_options
from core.tracking import folder_name, runs_folder
from datamodules.tasks.gold import definition_of, gold_linking
from datamodules.tasks.linking import Task, linking_task
from experiments.linkers import chosen_options, recipe_of, task_settings, train_export
from experiments.names import Encoder, encoder
from experiments.pretrain import trained_encoder
from inference.load import linkable_of
from inference.options import LinkerOptions, check_uses

LOG = logging.getLogger(__name__)


def finetuned_scores(tuning: LinkerTuning) -> list[list[Result]]:
    """Fine-tune on every fold; the results of evaluation (benchmarks.linking.evaluate) without and
    with back-off. Raises InputError."""
    part, linker, seed = tuning.part, tuning.linker, tuning.seed
    texts = tuning.texts.as_gold()
    check_task(tuning.task, texts, "--linking")
    if texts.gold:
        gold_linking(texts, part.graph)  # before the training of a linker that is not there yet
    name = texts.name(part.graph) if texts.gold else tuning.task
    definition = definition_of(texts, part.graph) if texts.gold else linking_task(name)
    check_epochs(tuning.epochs)
    chosen = trained_encoder(tuning.model, tuning.ckpt)
    if chosen.paper:  # before the training; a folder of bare weights links nothing yet
        uses = linkable_of(chosen, linker).uses
        check_uses(given_options(linker), uses, f"the linker {tuning.model}")
    options, options_shown = chosen_options(recipe_of(chosen)[1], tuning.options)
    settings = task_settings(recipe_of(chosen)[1], name, tuning.profile, tuning.epochs) | options
    settings, linker = training_settings(tuning, chosen, settings, definition, linker)
    exports = train_folds(tuning, chosen, name, definition, settings)
    tuned = [encoder(tuning.model, folder) for folder in exports]
    linkers = [linkable_of(trained, linker) for trained in tuned]
    start = model_of(tuning.model, chosen)
    system = prepare.Tuned(
        start._replace(identity=linkers[0].identity), {"finetuned": options_shown}, linkers, seed
    )
    evaluation = Evaluation(
        task=tuning.task,
        part=part,
        protocol=tuning.protocol,
        linker=linker,
        files=tuning.files,
        annotated=texts,
    )
    return [score_linker(replace(evaluation, backoff=backoff), system) for backoff in (False, True)]


def training_settings(
    tuning: LinkerTuning,
    chosen: Encoder,
    settings: Mapping[str, Any],
    definition: Task,
    linker: LinkerOptions,
) -> tuple[dict[str, Any], LinkerOptions]:
    """(`settings`, with what the protocol says of the data as build.NAME, and the pooling;
    the linker's options with the pooling that is trained)."""
    _, recipe = recipe_of(chosen)
    settings = dict(settings)
    protocol = prepare.resolve_protocol(tuning.protocol, definition)
    for key in recipe["finetune"].get("protocol", ()):
        settings[f"build.{key}"] = getattr(protocol, key)
    if "pooling" in recipe["model"]["init_args"]:
        recipe_file = Path(chosen.folder) / "sapbert.json"
        usual: Any = read_json(recipe_file)["pooling"] if recipe_file.is_file() else "cls"
        linker = replace(linker, pooling=linker.pooling or usual)
        settings["model.init_args.pooling"] = linker.pooling
    return settings, linker


def train_folds(
    tuning: LinkerTuning,
    chosen: Encoder,
    name: str,
    definition: Task,
    settings: Mapping[str, Any],
) -> list[str]:
    """Make the data of every fold and train on it. Returns the folders of the exports."""
    path, recipe = recipe_of(chosen)
    making, training = dict[str, Any](), dict[str, Any]()
    for key, value in settings.items():
        if key.startswith("build."):
            making[key.removeprefix("build.")] = value
        else:
            training[key] = value
    build = import_object(recipe["finetune"]["build"], "datamodules")
    takes = recipe["finetune"]["data"]
    texts = tuning.texts.as_gold()
    _, loaded = prepare.folds_of(definition, tuning.files, tuning.part, texts)
    numbers = tuning.part.numbers or range(len(loaded))
    exports = []
    for number, fold in zip(numbers, loaded, strict=True):
        place = folder_name(name) + "-" + digest([str(fold.folder), chosen.identity])[:12]
        work = runs_folder() / "data" / "linking-finetune" / place
        data = build(str(fold.folder), chosen.folder, str(work / takes), seed=tuning.seed, **making)
        counts = read_manifest(data)["counts"]
        LOG.info(f"{name}, fold {number}: " + ", ".join(f"{v:,} {k}" for k, v in counts.items()))
        fold_settings = {
            f"data.init_args.{takes}": data,
            "data.init_args.tokenizer": chosen.folder,
            "model.init_args.encoder": chosen.folder,
        }
        export = train_export(
            f"fold {number}",
            path,
            fold_settings | training,
            work / "result.json",
            seed=tuning.seed,
            fresh=tuning.fresh,
            args=tuning.args,
            machine=tuning.machine,
        )
        exports.append(export)
    return exports
