"""A paper's fine-tuning on a linking task's training mentions, and the scores of what it gives.

    kepl finetune AAP-EL --model sapbert [--folds 0,1 --profile small|paper --mirror FOLDER ...]

For each fold: the training data, a run of the paper's finetune.yaml that starts from MODEL, and
    scores of what it gives,
first as it is and then with dictionary back-off (an exact match comes before what the model finds).
finetune.yaml has, beside the run's settings,

    finetune  takes     model_type of what it starts from, where that is no export of a paper with a
                        recipe of its own
              build     dotted name, in `datamodules`, of what makes the data: (task folder,
                        tokenizer, out, seed=)
              data      the data's setting that takes the folder made
              protocol  settings of the scoring (benchmarks.linking.protocol) that `build` takes too
              options   settings of the command, each with its help, the run's setting that it sets
                        and its values, the
                        default first; another one is shown in the label of the result
    epochs    by profile and task
    tasks     settings by profile and task, those with build. before them for `build`;  small  of
              PROFILE=small
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import yaml

from benchmarks.finetune import trained_encoder
from benchmarks.linking import evaluate as scoring
from benchmarks.options import Protocol
from benchmarks.results import Result, model_of
from core.dotted import imported
from core.files import InputError, digest, read_json
from core.tracking import ROOT, folder_name, runs_folder
from datamodules.options import Files
from datamodules.pretrained import load
from datamodules.tasks.linking import task
from experiments.machine import Machine
from experiments.names import Encoder, encoder
from experiments.pretrain import machine as machine_words
from experiments.stages import Stage, run_stages
from inference.load import linkable_of
from inference.options import LinkerOptions

LOG = logging.getLogger(__name__)
RECIPES = {p.parent.name: p for p in sorted((ROOT / "experiments").glob("*/finetune.yaml"))}


def recipe_of(chosen: Encoder) -> tuple[Path, dict[str, Any]]:
    """(the finetune.yaml of the encoder's paper, or the first that takes its kind of model; its
    content).

    Raises InputError when there is none.
    """
    if chosen.paper in RECIPES:
        return RECIPES[chosen.paper], yaml.safe_load(RECIPES[chosen.paper].read_text())
    from transformers import AutoConfig

    try:
        kind = load(AutoConfig, chosen.folder).model_type
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"MODEL={chosen.name}: neither a folder with a model nor one that the hub gave"
            f" ({str(error).splitlines()[0]})"
        ) from error
    recipes = {path: yaml.safe_load(path.read_text()) for path in RECIPES.values()}
    for path, recipe in recipes.items():
        if recipe["finetune"]["takes"] == kind:
            return path, recipe
    takes = ", ".join(sorted({r["finetune"]["takes"] for r in recipes.values()}))
    raise InputError(
        f"MODEL={chosen.name}: a {kind} model; linking tasks are fine-tuned on from: {takes}"
    )


def task_settings(
    recipe: Mapping[str, Any], name: str, profile: str, epochs: int | None = None
) -> dict[str, Any]:
    """What finetune.yaml says for a task in a profile, and `epochs`; a variant (COMETA:closed)
    takes that of its task."""
    found = dict(recipe.get("small") or {}) if profile == "small" else {}
    for key in ("epochs", "tasks"):
        if table := (recipe.get(key) or {}).get(profile):
            own = table.get(name.split(":")[0], table["other"])
            found |= {"trainer.max_epochs": int(own)} if key == "epochs" else own
    return found | ({"trainer.max_epochs": epochs, "trainer.max_steps": -1} if epochs else {})


def chosen_options(
    recipe: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """({the run's setting: value} of the recipe's options, those that are not the default). Raises
    InputError for others."""
    known = recipe["finetune"].get("options", {})
    if unknown := sorted(name for name in given if name.upper() not in known):
        told = ", ".join(known) or "none"
        raise InputError(
            f"{unknown[0].upper()}={given[unknown[0]]}: this model has no such option; it has:"
            f" {told}"
        )
    settings: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, option in known.items():
        values = {str(value): meaning for value, meaning in option["values"].items()}
        default = next(iter(values))
        value = given.get(name.lower(), default)
        if value not in values:
            raise InputError(f"{name}={value}: choose from: {', '.join(values)}")
        settings[option["setting"]] = values[value]
        others |= {} if value == default else {name.lower(): value}
    return settings, others


def compute(
    name: str,
    model: str = "sapbert",
    *,
    ckpt: str | None = None,
    split: str | None = None,
    folds: Sequence[int] = (),
    graph: Path | None = None,
    protocol: Protocol | None = None,
    linker: LinkerOptions | None = None,
    files: Files | None = None,
    profile: Literal["small", "paper"] = "small",
    epochs: int | None = None,
    seed: int = 0,
    fresh: bool = False,
    args: str = "",
    options: Mapping[str, Any] | None = None,
    machine: Machine | None = None,
) -> list[list[Result]]:
    """Fine-tune on every fold; the results of evaluation (benchmarks.linking.evaluate) without and
    with back-off.

    options: those of the paper's finetune.yaml, by name.  args: further words for LightningCLI.
        Raises InputError.
    """
    definition = task(name)
    if epochs is not None and epochs < 1:
        raise InputError(f"EPOCHS={epochs}: expected a number of at least 1")
    protocol, linker, files = protocol or Protocol(), linker or LinkerOptions(), files or Files()
    chosen = trained_encoder(model, ckpt)
    path, recipe = recipe_of(chosen)
    own, shown = chosen_options(recipe, options or {})
    settings = task_settings(recipe, name, profile, epochs) | own
    making = {
        k.removeprefix("build."): settings.pop(k) for k in list(settings) if k.startswith("build.")
    }
    making |= {
        k: getattr(scoring.resolved(protocol, definition), k)
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
    _, loaded = scoring.folds_of(definition, files, split, folds, graph)
    exports = []
    for number, fold in zip(sorted(set(folds)) or range(len(loaded)), loaded, strict=True):
        place = folder_name(name) + "-" + digest([str(fold.folder), chosen.identity])[:12]
        work = runs_folder() / "data" / "linking-finetune" / place
        made, _ = build(str(fold.folder), chosen.folder, str(work / takes), seed=seed, **making)
        counts = read_json(made / "manifest.json")["counts"]
        LOG.info(f"{name}, fold {number}: " + ", ".join(f"{v:,} {k}" for k, v in counts.items()))
        words = [
            "experiments.run",
            "--config",
            str(path.relative_to(ROOT)),
            *machine_words(machine or Machine()),
        ]
        words += ["--seed_everything", str(seed), f"--data.init_args.{takes}", str(made)]
        words += [
            "--model.init_args.encoder",
            chosen.folder,
            "--data.init_args.tokenizer",
            chosen.folder,
        ]
        words += ["--result", str(work / "result.json")]
        words += [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        words += ["--fresh", "true"] if fresh else []
        run_stages([Stage(f"fold {number}", words + shlex.split(args), path.parent.name)], work)
        exports.append(read_json(work / "result.json")["export"])
    tuned = [encoder(model, folder) for folder in exports]
    linkers = [linkable_of(one, linker) for one in tuned]
    start = model_of(model, chosen)
    system = scoring.Tuned(
        start._replace(identity=linkers[0].identity), {"finetuned": shown}, linkers, seed
    )
    return [
        scoring.compute(
            name,
            split=split,
            folds=folds,
            backoff=backoff,
            graph=graph,
            protocol=protocol,
            linker=linker,
            files=files,
            tuned=system,
        )
        for backoff in (False, True)
    ]
