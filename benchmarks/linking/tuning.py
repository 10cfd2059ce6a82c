"""A paper's fine-tuning on a linking task's training mentions, and the scores of what it gives.

    kepl finetune AAP-EL --model sapbert [--folds 0,1 --profile small|paper --mirror FOLDER ...]

For each fold: the training data, a run of the paper's finetune.yaml that starts from MODEL, and
    scores of what it gives,
first as it is and then with dictionary back-off (an exact match comes before what the model finds).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from benchmarks.linking import folds as prepare
from benchmarks.linking.evaluate import score_linker
from benchmarks.options import Evaluation, LinkerTuning, check_task
from benchmarks.results import Result, model_of
from core.artifact import read_manifest
from core.dotted import imported
from core.files import InputError, digest, read_json
from core.settings import given_options
from core.tracking import folder_name, runs_folder
from datamodules.tasks.gold import definition_of, gold_linking
from datamodules.tasks.linking import linking_task
from experiments.linkers import chosen_options, recipe_of, task_settings, train_export
from experiments.names import encoder
from experiments.pretrain import trained_encoder
from inference.load import linkable_of
from inference.options import check_uses

LOG = logging.getLogger(__name__)


def finetuned_scores(asked: LinkerTuning) -> list[list[Result]]:
    """Fine-tune on every fold; the results of evaluation (benchmarks.linking.evaluate) without and
    with back-off. Raises InputError."""
    part, linker, seed = asked.part, asked.linker, asked.seed
    texts = asked.texts.as_gold()
    check_task(asked.task, texts, "--linking")
    if texts.gold:
        gold_linking(texts, part.graph)  # before the training of a linker that is not there yet
    name = texts.name(part.graph) if texts.gold else asked.task
    definition = definition_of(texts, part.graph) if texts.gold else linking_task(name)
    if asked.epochs is not None and asked.epochs < 1:
        raise InputError(f"EPOCHS={asked.epochs}: expected a number of at least 1")
    chosen = trained_encoder(asked.model, asked.ckpt)
    if chosen.paper:  # before the training; a folder of bare weights links nothing yet
        uses = linkable_of(chosen, linker).uses
        check_uses(given_options(linker), uses, f"the linker {asked.model}")
    path, recipe = recipe_of(chosen)
    own, shown = chosen_options(recipe, asked.options)
    settings = task_settings(recipe, name, asked.profile, asked.epochs) | own
    making = {
        k.removeprefix("build."): settings.pop(k) for k in list(settings) if k.startswith("build.")
    }
    making |= {
        k: getattr(prepare.resolved(asked.protocol, definition), k)
        for k in recipe["finetune"].get("protocol", ())
    }
    if "pooling" in recipe["model"]["init_args"]:
        kept = Path(chosen.folder) / "sapbert.json"
        linker = replace(
            linker,
            pooling=linker.pooling or (read_json(kept)["pooling"] if kept.is_file() else "cls"),
        )
        settings["model.init_args.pooling"] = linker.pooling
    build, takes = imported(recipe["finetune"]["build"], "datamodules"), recipe["finetune"]["data"]
    _, loaded = prepare.folds_of(definition, asked.files, part, texts)
    exports = []
    for number, fold in zip(sorted(set(part.folds)) or range(len(loaded)), loaded, strict=True):
        place = folder_name(name) + "-" + digest([str(fold.folder), chosen.identity])[:12]
        work = runs_folder() / "data" / "linking-finetune" / place
        made = build(str(fold.folder), chosen.folder, str(work / takes), seed=seed, **making)
        counts = read_manifest(made)["counts"]
        LOG.info(f"{name}, fold {number}: " + ", ".join(f"{v:,} {k}" for k, v in counts.items()))
        given = {f"data.init_args.{takes}": made, "data.init_args.tokenizer": chosen.folder}
        given |= {"model.init_args.encoder": chosen.folder, **settings}
        export = train_export(
            f"fold {number}",
            path,
            given,
            work / "result.json",
            seed=seed,
            fresh=asked.fresh,
            args=asked.args,
            machine=asked.machine,
        )
        exports.append(export)
    tuned = [encoder(asked.model, folder) for folder in exports]
    linkers = [linkable_of(one, linker) for one in tuned]
    start = model_of(asked.model, chosen)
    system = prepare.Tuned(
        start._replace(identity=linkers[0].identity), {"finetuned": shown}, linkers, seed
    )
    evaluation = Evaluation(
        task=asked.task,
        part=part,
        protocol=asked.protocol,
        linker=linker,
        files=asked.files,
        own=texts,
    )
    return [score_linker(replace(evaluation, backoff=backoff), system) for backoff in (False, True)]
