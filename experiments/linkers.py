"""A linker or a reranker trained on the mentions of a linking task.

A paper's finetune.yaml has, beside the run's settings,

    finetune  takes     model_type of what it starts from, where that is no export of a paper with a
                        recipe of its own
              build     dotted name, in `datamodules`, of what makes the data: (task folder,
                        tokenizer, out, seed=)
              data      the data's setting that takes the folder made
              protocol  settings of the scoring (benchmarks.linking.protocol) that `build` takes too
              options   settings of the command, each with its help, the run's setting that it sets
                        and its values, the default first; another one is shown in the label of the
                        result
    epochs    by profile and task
    tasks     settings by profile and task, those with build. before them for `build`;  small  of
              PROFILE=small
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from core.choices import list_known
from core.files import InputError
from core.json_files import read_json
from core.tracking import ROOT
from datamodules.pretrained import load
from experiments.machine import Machine
from experiments.names import Encoder
from experiments.pretrain import machine_words
from experiments.seeds import flags
from experiments.stages import Stage, run_stages

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
    settings = dict(recipe.get("small") or {}) if profile == "small" else {}
    for key in ("epochs", "tasks"):
        if table := (recipe.get(key) or {}).get(profile):
            changes = table.get(name.split(":")[0], table["other"])
            settings |= {"trainer.max_epochs": int(changes)} if key == "epochs" else changes
    return settings | ({"trainer.max_epochs": epochs, "trainer.max_steps": -1} if epochs else {})


def chosen_options(
    recipe: Mapping[str, Any], typed: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """({the run's setting: value} of the recipe's options, those that are not the default). Raises
    InputError for others."""
    options = recipe["finetune"].get("options", {})
    if unknown := sorted(name for name in typed if name.upper() not in options):
        listed = ", ".join(options) or "none"
        raise InputError(
            f"{unknown[0].upper()}={typed[unknown[0]]}: this model has no such option; it has:"
            f" {listed}"
        )
    settings: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, option in options.items():
        values = {str(value): meaning for value, meaning in option["values"].items()}
        default = next(iter(values))
        value = typed.get(name.lower(), default)
        if value not in values:
            raise InputError(f"{name}={value}: {list_known(value, values)}")
        settings[option["setting"]] = values[value]
        others |= {} if value == default else {name.lower(): value}
    return settings, others


def train_export(
    title: str,
    config: Path,
    settings: Mapping[str, Any],
    result: Path,
    *,
    seed: int,
    fresh: bool,
    args: str,
    machine: Machine | None,
) -> str:
    """Train by `config` with `settings` laid over it. Returns the folder of the export, which the
    file `result` names.

    args: further words for LightningCLI.
    """
    words = ["--config", str(config.relative_to(ROOT))]
    words += machine_words(machine or Machine())
    words += ["--seed_everything", str(seed), "--result", str(result), *flags(settings)]
    words += ["--fresh", "true"] if fresh else []
    stage = Stage(title, "experiments.run", words + shlex.split(args), config.parent.name)
    run_stages([stage], result.parent)
    return str(read_json(result)["export"])
