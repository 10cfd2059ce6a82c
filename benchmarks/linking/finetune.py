"""``make finetune TASK=<linking task>``: SapBERT's fine-tuning on mention-synonym pairs (Liu et al. 2021, Section A.3).

    python -m benchmarks.run finetune AAP-EL MODEL=sapbert [FOLDS=0,1 PROFILE=small|paper MIRROR=FOLDER ...]

For each fold: pairs of train's mentions with the names of their concepts, a run of experiments/sapbert/finetune.yaml
that starts from MODEL, and scores of what it gives, first as it is and then with dictionary back-off (an exact match goes
before what the model finds). The other settings are those of `evaluate`; EPOCHS, SEED, ARGS, FRESH are the training's.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.linking import evaluate as scoring
from benchmarks.linking.tasks import task
from datamodules.sapbert.pairs import build_mentions
from experiments.encoders import NotTrained, encoder
from experiments.pretrain import machine, pretrain
from experiments.stages import Stage, run_stages
from kg.files import InputError, digest, read_json
from kg.tracking import ROOT, runs_folder

CONFIG = ROOT / "experiments" / "sapbert" / "finetune.yaml"
OWN = ("FOLDS", "PROFILE", "EPOCHS", "SEED", "ARGS", "FRESH", "DEVICES")
SETTINGS = tuple(dict.fromkeys((*scoring.SETTINGS, *OWN)))


def epochs_of(name: str, profile: str, given: Mapping[str, str]) -> int:
    """EPOCHS=, or what finetune.yaml has for the task in this profile."""
    if given.get("EPOCHS"):
        if not given["EPOCHS"].isdigit() or not int(given["EPOCHS"]):
            raise InputError(f"EPOCHS={given['EPOCHS']}: wanted a number of at least 1")
        return int(given["EPOCHS"])
    table = yaml.safe_load(CONFIG.read_text())["epochs"]
    if profile not in table:
        raise InputError(f"no profile {profile!r}; choose from: {', '.join(table)}")
    return int(table[profile].get(name.split(":")[0], table[profile]["other"]))


def finetune(name: str, given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Fine-tune on every fold; returns evaluate's summaries without and with back-off. Raises InputError."""
    definition = task(name)
    profile, seed = given.get("PROFILE") or "small", given.get("SEED") or "0"
    if not seed.isdigit():
        raise InputError(f"SEED={seed}: wanted a number")
    if given.get("BACKOFF"):
        raise InputError("BACKOFF: fine-tuning scores both, without and with it; leave it out")
    epochs = epochs_of(name, profile, given)
    model = given.get("MODEL") or "sapbert"
    try:
        chosen = encoder(model, given.get("CKPT"))
    except NotTrained as error:
        if "/" in model:
            raise
        print(f"{error}\nNow it is pre-trained, with PROFILE=small:", flush=True)
        pretrain(error.paper, "small", {})
        chosen = encoder(model)
    own = Path(chosen.folder) / "sapbert.json"
    pooling = scoring.choice(given, "POOLING", ("cls", "mean"), read_json(own)["pooling"] if own.is_file() else "cls")
    scored = {k: v for k, v in given.items() if k in (*scoring.SETTINGS, "FOLDS") and k != "CKPT"} | {
        "POOLING": pooling
    }
    _, folds = scoring.folds_of(definition, scored)
    numbers = scoring.fold_numbers(scored) or range(len(folds))
    exports = []
    for number, fold in zip(numbers, folds, strict=True):
        place = re.sub(r"[^\w.@-]+", "-", name) + "-" + digest([str(fold.folder), chosen.identity])[:12]
        work = runs_folder() / "data" / "linking-finetune" / place
        pairs, _ = build_mentions(str(fold.folder), chosen.folder, str(work / "pairs"), seed=int(seed))
        counts = read_json(pairs / "manifest.json")["counts"]
        print(f"{name}, fold {number}: " + ", ".join(f"{v:,} {k}" for k, v in counts.items()), flush=True)
        words = ["experiments.run", "--config", str(CONFIG.relative_to(ROOT)), *machine(dict(given), {})]
        words += ["--seed_everything", seed, "--trainer.max_epochs", str(epochs), "--data.init_args.pairs", str(pairs)]
        words += ["--model.init_args.encoder", chosen.folder, "--data.init_args.tokenizer", chosen.folder]
        words += ["--model.init_args.pooling", pooling, "--result", str(work / "result.json")]
        if profile == "small":
            small = yaml.safe_load(CONFIG.read_text())["small"]
            words += [word for key, value in small.items() for word in (f"--{key}", str(value))]
        words += ["--fresh", "true"] if given.get("FRESH") else []
        run_stages([Stage(f"fold {number}", words + shlex.split(given.get("ARGS", "")), "sapbert")], work)
        exports.append(read_json(work / "result.json")["export"])
    title = f"{chosen.name.partition('@')[0].replace('/', '-')} fine-tuned"
    embedders = [scoring.embedder_of(scored, title, encoder(title, folder))[1] for folder in exports]
    return [
        scoring.evaluate(name, scored | {"BACKOFF": backoff}, (f"{title} {pooling}", embedders))
        for backoff in ("no", "yes")
    ]
