"""``make finetune TASK=<linking task>``: a paper's fine-tuning on a linking task's training mentions.

    python -m benchmarks.run finetune AAP-EL MODEL=sapbert [FOLDS=0,1 PROFILE=small|paper MIRROR=FOLDER ...]

For each fold: the training data, a run of the paper's finetune.yaml that starts from MODEL, and scores of what it gives,
first as it is and then with dictionary back-off (an exact match goes before what the model finds). The other settings are
those of `evaluate`; EPOCHS, SEED, ARGS, FRESH are the training's. finetune.yaml says, beside the run's settings,

    finetune  takes     model_type of what it starts from, where that is no export of a paper with a recipe of its own
              build     dotted name, in `datamodules`, of what makes the data: (task folder, tokenizer, out, seed=)
              data      the data's setting that takes the folder made
              protocol  settings of the scoring (benchmarks.linking.evaluate.Protocol) that `build` takes too
              options   settings of the command, each with the run's setting that it stands for and its values, the
                        default first; another one is told in the label under which the run is scored
    epochs    by profile and task
    tasks     settings by profile and task, those with build. before them for `build`;  small  of PROFILE=small
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from transformers import AutoConfig

from benchmarks.linking import evaluate as scoring
from benchmarks.tasks.linking import task
from core.dotted import imported
from core.files import InputError, digest, read_json
from core.tracking import ROOT, runs_folder
from experiments.encoders import Encoder, NotTrained, encoder
from experiments.pretrain import machine, pretrain
from experiments.stages import Stage, run_stages
from kg.pretrained import pretrained

OWN = ("FOLDS", "PROFILE", "EPOCHS", "SEED", "ARGS", "FRESH", "DEVICES")
RECIPES = {p.parent.name: p for p in sorted((ROOT / "experiments").glob("*/finetune.yaml"))}
OPTIONS = {key for p in RECIPES.values() for key in yaml.safe_load(p.read_text())["finetune"].get("options", ())}
SETTINGS = tuple(dict.fromkeys((*scoring.SETTINGS, *OWN, *sorted(OPTIONS))))
PROFILES = ("small", "paper")


def recipe_of(chosen: Encoder) -> tuple[Path, dict[str, Any]]:
    """(the finetune.yaml of the encoder's paper, or the first that takes its kind of model; what stands in it).

    Raises InputError when there is none.
    """
    if chosen.paper in RECIPES:
        return RECIPES[chosen.paper], yaml.safe_load(RECIPES[chosen.paper].read_text())
    try:
        kind = AutoConfig.from_pretrained(pretrained(chosen.folder)).model_type
    except (OSError, ValueError) as error:
        raise InputError(
            f"MODEL={chosen.name}: neither a folder with a model nor one that the hub gave ({str(error).splitlines()[0]})"
        ) from error
    recipes = {path: yaml.safe_load(path.read_text()) for path in RECIPES.values()}
    for path, recipe in recipes.items():
        if recipe["finetune"]["takes"] == kind:
            return path, recipe
    takes = ", ".join(sorted({r["finetune"]["takes"] for r in recipes.values()}))
    raise InputError(f"MODEL={chosen.name}: a {kind} model; linking tasks are fine-tuned on from: {takes}")


def task_settings(recipe: Mapping[str, Any], name: str, profile: str, given: Mapping[str, str]) -> dict[str, Any]:
    """What finetune.yaml and EPOCHS= say for a task in a profile; a variant (COMETA:closed) takes that of its task."""
    if profile not in PROFILES:
        raise InputError(f"no profile {profile!r}; choose from: {', '.join(PROFILES)}")
    found = dict(recipe.get("small") or {}) if profile == "small" else {}
    for key in ("epochs", "tasks"):
        if table := (recipe.get(key) or {}).get(profile):
            own = table.get(name.split(":")[0], table["other"])
            found |= {"trainer.max_epochs": int(own)} if key == "epochs" else own
    if given.get("EPOCHS"):
        if not given["EPOCHS"].isdigit() or not int(given["EPOCHS"]):
            raise InputError(f"EPOCHS={given['EPOCHS']}: wanted a number of at least 1")
        found |= {"trainer.max_epochs": int(given["EPOCHS"]), "trainer.max_steps": -1}
    return found


def chosen_options(recipe: Mapping[str, Any], given: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """({the run's setting: value} of the recipe's options, what the label says of those that are not the default)."""
    known = recipe["finetune"].get("options", {})
    if unknown := sorted(key for key in OPTIONS if given.get(key) and key not in known):
        raise InputError(
            f"{unknown[0]}={given[unknown[0]]}: this model has no such option; it has: {', '.join(known) or 'none'}"
        )
    settings, told = {}, ""
    for key, option in known.items():
        default = next(iter(option["values"]))
        value = scoring.choice(given, key, tuple(option["values"]), default)
        settings[option["setting"]] = option["values"][value]
        told += "" if value == default else f", {key.lower()} {value}"
    return settings, told


def finetune(name: str, given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Fine-tune on every fold; returns evaluate's summaries without and with back-off. Raises InputError."""
    definition = task(name)
    profile, seed = given.get("PROFILE") or "small", given.get("SEED") or "0"
    if not seed.isdigit():
        raise InputError(f"SEED={seed}: wanted a number")
    if given.get("BACKOFF"):
        raise InputError("BACKOFF: fine-tuning scores both, without and with it; leave it out")
    model = given.get("MODEL") or "sapbert"
    try:
        chosen = encoder(model, given.get("CKPT"))
    except NotTrained as error:
        if "/" in model:
            raise
        print(f"{error}\nNow it is pre-trained, with PROFILE=small:", flush=True)
        pretrain(error.paper, "small", {})
        chosen = encoder(model)
    path, recipe = recipe_of(chosen)
    options, told = chosen_options(recipe, given)
    settings = task_settings(recipe, name, profile, given) | options
    making = {k.removeprefix("build."): settings.pop(k) for k in list(settings) if k.startswith("build.")}
    making |= {k: getattr(scoring.protocol_of(definition, given), k) for k in recipe["finetune"].get("protocol", ())}
    scored = {k: v for k, v in given.items() if k in (*scoring.SETTINGS, "FOLDS") and k != "CKPT"}
    pooled = "pooling" in recipe["model"]["init_args"]
    if pooled:
        own = Path(chosen.folder) / "sapbert.json"
        kept = read_json(own)["pooling"] if own.is_file() else "cls"
        scored["POOLING"] = settings["model.init_args.pooling"] = scoring.choice(
            given, "POOLING", ("cls", "mean"), kept
        )
    build, takes = imported(recipe["finetune"]["build"], "datamodules"), recipe["finetune"]["data"]
    _, folds = scoring.folds_of(definition, scored)
    numbers = scoring.fold_numbers(scored) or range(len(folds))
    exports = []
    for number, fold in zip(numbers, folds, strict=True):
        place = re.sub(r"[^\w.@-]+", "-", name) + "-" + digest([str(fold.folder), chosen.identity])[:12]
        work = runs_folder() / "data" / "linking-finetune" / place
        made, _ = build(str(fold.folder), chosen.folder, str(work / takes), seed=int(seed), **making)
        counts = read_json(made / "manifest.json")["counts"]
        print(f"{name}, fold {number}: " + ", ".join(f"{v:,} {k}" for k, v in counts.items()), flush=True)
        words = ["experiments.run", "--config", str(path.relative_to(ROOT)), *machine(dict(given), {})]
        words += ["--seed_everything", seed, f"--data.init_args.{takes}", str(made)]
        words += ["--model.init_args.encoder", chosen.folder, "--data.init_args.tokenizer", chosen.folder]
        words += ["--result", str(work / "result.json")]
        words += [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        words += ["--fresh", "true"] if given.get("FRESH") else []
        run_stages([Stage(f"fold {number}", words + shlex.split(given.get("ARGS", "")), path.parent.name)], work)
        exports.append(read_json(work / "result.json")["export"])
    title = f"{chosen.name.partition('@')[0].replace('/', '-')} fine-tuned"
    tuned = [encoder(title, folder) for folder in exports]
    linkers = [imported(one.links, "benchmarks")(scored, title, one) for one in tuned]
    label = linkers[0][0].replace(title, title + told)
    return [
        scoring.evaluate(name, scored | {"BACKOFF": backoff}, (label, [linker for _, linker in linkers]))
        for backoff in ("no", "yes")
    ]
