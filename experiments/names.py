"""Which encoder, or which fine-tuned model, a name means. A name is the first of these that fits:

    folder           an export, a fine-tuned model's export, a Hugging Face folder
    name=folder      the same, with its results under the name: that of a table's row, for example
    paper[/stem]     a folder of experiments/ with an encoder.yaml: its newest finished run
    TASK/encoder     what `make finetune TASK= MODEL=` trained: the newest digest with default
                     settings (no ARGS, no options), its lowest finished seed;
                     TASK/encoder@<digest>-seed<k> names one run, whatever its settings
    short name       a packaged encoder (minilm), or one without training (bilstm)
    hub name         asked of the Hugging Face hub, unless its first part is, or nearly is, a paper
                     or a task

As an encoder, a fine-tuned model is its encoder with the fine-tuned weights. Recipes
(encoder.yaml): :mod:`experiments.recipes`.

    kepl import model NAME --out FOLDER     copies the export that NAME means: what a pipeline
                                            starts from
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from core.artifact import has_manifest, read_manifest
from core.files import InputError, atomic_folder, check_new_folder
from core.json_files import digest
from core.reading import sha256
from core.tracking import folder_name, newest_export
from datamodules.pretrained import (
    HUB_NAME,
    PACKAGED,
    files_identity,
    find_pretrained,
    identity,
    read_object,
)
from datamodules.untrained import UNTRAINED, untrained_folder
from experiments.finetuned_names import (
    NotTrained,
    close_names,
    find_export,
    holds_fine_tuned,
    is_task,
)
from experiments.recipes import model_names, read_recipe, recipes

PLAIN = "models.encoders.TextEncoder"
MASKED_LM = "models.probing.masked_lm"

LOG = logging.getLogger(__name__)


class Encoder(NamedTuple):
    """What fine-tuning needs to know of an encoder."""

    name: str  # short, fit for a folder's name
    folder: str  # what `load` accepts: a folder, or a name that the hub or a package resolves
    load: str
    linker: str | None
    weights: str | None  # its identity; None: of a hub model, known once its files are here
    small: dict[str, Any]
    paper: str | None = None  # whose export it is
    option_keys: dict[str, str] = {}  # noqa: RUF012  a NamedTuple's default, never changed
    masked_lm: str = MASKED_LM
    settings: dict[str, Any] = {}  # noqa: RUF012  of fine-tuning, in every profile

    @property
    def identity(self) -> str:
        """The same for the same weights and tokenizer. Raises InputError for a model that the hub
        does not have."""
        return self.weights if self.weights is not None else identity(self.folder)


#: what the name of a class of transformers says of the head over a model's states
HEADS = {
    "ForTokenClassification": "token",
    "ForSequenceClassification": "pair",
    "ForCausalLM": "causal",
    "LMHeadModel": "causal",
}


def architecture(chosen: Encoder) -> str:
    """The head that a plain model's config.json names: token (a token classifier), pair (a sequence
    classifier with one label: a cross-encoder), causal (a causal language model); "" for an
    encoder, and for every model of a paper.

    Raises InputError for a model that the hub does not have.
    """
    file = Path(find_pretrained(chosen.folder)) / "config.json"
    if chosen.load != PLAIN or chosen.paper or not file.is_file() or has_manifest(file.parent):
        return ""
    config = read_object(file)
    if (file.parent / "modules.json").is_file():  # sentence-transformers: made to embed
        return ""
    for name in config.get("architectures") or []:
        for ending, head in HEADS.items():
            if not str(name).endswith(ending):
                continue
            labels = config.get("id2label") or {}
            # transformers writes no labels where there are its default two
            one_label = len(labels) == 1 or config.get("num_labels") == 1
            return head if head != "pair" or one_label else ""
    return ""


def may_be_hub_name(name: str) -> bool:
    """Whether a name is of the hub's form, and no slip of a paper's or a task's."""
    return "/" in name and HUB_NAME.fullmatch(name) is not None and not close_names(name)


def _encoder_from_fine_tuning(label: str, folder: Path) -> Encoder:
    """The encoder of a fine-tuned model."""
    manifest = read_manifest(folder)
    linker = manifest["linker"]
    return Encoder(
        label,
        str(folder / "encoder"),
        manifest["model"]["init_args"]["load"],
        linker and linker["name"],
        str(manifest["identity"]),
        {},
    )


def _encoder_from_export(name: str, folder: Path) -> Encoder:
    if holds_fine_tuned(folder):
        return _encoder_from_fine_tuning(name, folder)
    manifest = read_manifest(folder)
    paper, identity = str(manifest.get("paper")), manifest.get("identity")
    if paper not in recipes():
        raise InputError(
            f"{folder}: an export of {paper!r}, which has no experiments/{paper}/encoder.yaml"
        )
    recipe = read_recipe(paper)
    return Encoder(
        name,
        str(folder),
        recipe["load"],
        recipe.get("linker"),
        str(identity),
        recipe.get("small") or {},
        paper,
        {k: v["setting"] for k, v in recipe.get("options", {}).items()},
        recipe.get("masked_lm", MASKED_LM),
    )


def _kind_of_folder(folder: Path) -> str:
    """What a folder without a model in it is, where its files say so."""
    if (folder / "adapter_config.json").is_file():
        return " (an adapter of PEFT: merge it into its model first, merge_and_unload)"
    if (folder / "0_Transformer" / "config.json").is_file():
        return (
            " (an older layout of sentence-transformers: move the files of 0_Transformer up, and"
            ' leave its path in modules.json empty, "")'
        )
    if any(folder.glob("*.ckpt")):
        return " (a checkpoint of Lightning: its run has an export/ beside it)"
    return ""


def _plain(name: str, folder: Path) -> Encoder:
    if not (folder / "config.json").is_file():
        raise InputError(
            f"MODEL={folder}: a folder without config.json{_kind_of_folder(folder)}; expected an"
            " export or a Hugging Face folder"
        )
    return Encoder(name, str(folder), PLAIN, None, files_identity(folder), {})


def _export_in(checkpoint: Path) -> Path:
    for folder in (
        checkpoint,
        checkpoint / "export",
        checkpoint.parent,
        checkpoint.parent.parent / "export",
    ):
        if has_manifest(folder) and (folder / "config.json").is_file():
            return folder
    raise InputError(
        f"CKPT={checkpoint}: no finished run here; expected its folder, or its export/"
    )


def split_name(name: str) -> tuple[str, str | None]:
    """(the name that results have, the folder) of name=folder; (name, None) of any other, and of a
    folder whose own name has the sign."""
    label, separator, place = name.partition("=")
    return (label, place) if separator and not Path(name).is_dir() else (name, None)


def encoder(name: str, checkpoint: str | None = None) -> Encoder:
    """The encoder that `name` means; `checkpoint` names one exact run of it.

    A hub name is taken as it is: the hub is asked when the model is loaded. `name=folder` is what
    is in the folder, with results under the name, such as that of a table's row.
    Raises NotTrained for a paper without a finished run, and InputError for a folder that has no
    encoder, or a name that means nothing.
    """
    title, place = split_name(name)
    if place is not None:
        if checkpoint or not place or not Path(place).is_dir():
            raise InputError(
                f"MODEL={name}: expected NAME=FOLDER with a folder that is here, and no CKPT="
            )
        return encoder(place)._replace(name=title.replace("/", "--"))
    if checkpoint:
        folder = _export_in(Path(checkpoint).resolve())
        return _encoder_from_export(
            f"{name}@{folder.parent.parent.name}-{folder.parent.name}", folder
        )
    folder = Path(name)
    paper, _, stem = name.partition("/")
    # a paper's name means its run, wherever it is typed
    if folder.is_dir() and not (paper in recipes() and not stem):
        folder = folder.resolve()
        label = f"{folder.name}-{digest(str(folder))[:6]}"
        if has_manifest(folder) and "paper" in read_manifest(folder):
            return _encoder_from_export(label, folder)
        return _plain(label, folder)
    if paper in recipes():
        export = newest_export(paper, stem or read_recipe(paper).get("stem"))
        if export is None:
            run = f"make pretrain-{paper}"
            raise NotTrained(
                paper, f"MODEL={name}: no finished run in runs/{name}. Run `{run}` first."
            )
        return _encoder_from_export(name.replace("/", "-"), export)
    if is_task(name):
        return _encoder_from_fine_tuning(folder_name(name), find_export(name))
    if name in PACKAGED:
        return Encoder(name, name, PLAIN, None, identity(name), {})
    if name in UNTRAINED:
        folder = untrained_folder(name)
        settings = UNTRAINED[name].settings
        return _plain(name, folder)._replace(settings=settings)
    if near := close_names(name):
        hint = f"Did you mean {' or '.join(near)}?"
        raise InputError(
            f"no model {name!r}. {hint} Choose from: {model_names()}, TASK/encoder or a folder"
        )
    if not HUB_NAME.fullmatch(name) or name.startswith((".", "~")):
        raise InputError(
            f"no model {name!r}: no such folder; choose from: {model_names()}, TASK/encoder, a"
            " folder or a hub name"
        )
    return Encoder(name.replace("/", "--"), name, PLAIN, None, None, {})


def copy_encoder(name: str, out: Path) -> str:
    """Copy the encoder that a name means: an initial checkpoint for a pipeline. Returns what was
    done, in words.

    Args:
        name: The encoder, as MODEL= accepts it.
        out: Folder for the copy; the same content there is kept.

    Raises InputError as :func:`encoder`.
    """
    chosen = encoder(name).folder
    if not Path(chosen).is_dir() and chosen not in PACKAGED:
        raise InputError(
            f"{name}: a model of the hub, not a folder; give its name as ENCODER={name} instead"
        )
    source = Path(find_pretrained(chosen))
    if (out / "config.json").is_file() and sha256(out) == sha256(source):
        return f"{out}: {name}, there already; kept"
    check_new_folder(out, [source])
    with atomic_folder(out) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)
    return f"{out}: {name}"
