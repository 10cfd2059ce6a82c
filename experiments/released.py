"""Authors' released checkpoints as exports, so that every command accepts them as MODEL=<folder>.

    kepl import released kebiolm downloads/kebiolm --out models/kebiolm [--graph FOLDER]
                                   pytorch_model.bin, vocab.txt, entity.jsonl
    kepl import released sapbert downloads/sapbert --out models/sapbert [--pooling mean]
    kepl import released genbioel downloads/genbioel --out models/genbioel [--prompt no]
                                   a Hugging Face folder of a BERT, of a BART

experiments/<paper>/encoder.yaml names what does it, under `released`. Weights are loaded with
weights_only and written as safetensors. The checkpoints are not here: they are on the authors'
project pages, under licences of their own.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from core.artifact import has_manifest, read_manifest, write_manifest
from core.choices import list_known
from core.dotted import import_object
from core.files import InputError, atomic_folder, check_new_folder
from core.json_files import digest
from core.reading import sha256
from core.settings import NEEDED, Option, options_of, with_options
from core.tracking import ROOT, commit
from datamodules.tokenizers import load_tokenizer
from experiments.card import identify

WORDS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)


def recipes() -> dict[str, dict[str, str]]:
    """{paper: what makes an export's files of a released checkpoint}."""
    recipes_of = {
        p.parent.name: yaml.safe_load(p.read_text())
        for p in sorted((ROOT / "experiments").glob("*/encoder.yaml"))
    }
    return {
        paper: recipe["released"] for paper, recipe in recipes_of.items() if "released" in recipe
    }


def released_papers() -> list[str]:
    """Papers with released checkpoints."""
    return list(recipes())


def converters(paper: str) -> dict[str, Callable[..., None]]:
    """{room: what makes its files of a released checkpoint}. Raises InputError for a paper without
    one."""
    if paper not in recipes():
        raise InputError(
            f"no released checkpoint of {paper!r} is known; {list_known(paper, recipes())}"
        )
    return {
        room: import_object(name, name.split(".")[0]) for room, name in recipes()[paper].items()
    }


def released_command(paper: str) -> Callable[..., str]:
    """Make an export of an authors' released checkpoint: PAPER SOURCE --out FOLDER.

    The function for a paper has the options source, out and those of its converters.
    """
    options: dict[str, Option] = {}
    for converter in converters(paper).values():
        options |= options_of(converter)
    for name in ("source", "out"):
        options.pop(name, None)

    def import_released(source: Path, out: Path, **settings: Any) -> str:
        changed = {
            name: value for name, value in settings.items() if value != options[name].default
        }
        folder = make_export(paper, source, out, **changed)
        return f"{folder}: give it as MODEL={folder}"

    needed = [
        Option("source", Path, NEEDED, "Folder of the checkpoint, as its authors released it."),
        Option("out", Path, NEEDED, "Folder for the export."),
    ]
    about = (
        f"Make an export of {paper}'s released checkpoint, which commands accept as MODEL=FOLDER."
    )
    return with_options(import_released, about, [*needed, *options.values()])


def _list_settings(converter: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(converter).parameters.values()
    return [parameter.name for parameter in parameters if parameter.default is not parameter.empty]


def make_export(paper: str, source: str | Path, out: str | Path, **settings: Any) -> Path:
    """An export folder of a released checkpoint in folder `source`. Raises InputError for what is
    no such checkpoint."""
    parts = converters(paper)
    folder = Path(source)
    if not folder.is_dir():
        raise InputError(
            f"{source}: no such folder. Fetch the checkpoint first; of the hub: hf download NAME"
            " --local-dir FOLDER"
        )
    taken = {room: _list_settings(converter) for room, converter in parts.items()}
    taken_names = list(chain.from_iterable(taken.values()))
    if unknown := sorted(set(settings) - set(taken_names)):
        raise InputError(
            f"no setting {unknown[0]!r} of {paper}; choose from: {', '.join(taken_names) or 'none'}"
        )
    if not has_manifest(Path(out)) or "released" not in read_manifest(Path(out)):
        check_new_folder(out, [folder])
    with atomic_folder(out) as export:
        for room, function in parts.items():
            arguments: dict[str, Any] = {k: v for k, v in settings.items() if k in taken[room]}
            function(folder, export, **arguments)
        if not (export / "tokenizer.json").is_file():
            _tokenizer(folder, export)
        weights = {
            p.name: sha256(p)
            for p in sorted(folder.iterdir())
            if p.is_file() and not p.name.startswith(".")
        }
        manifest: dict[str, Any] = {
            "paper": paper,
            "stem": "released",
            "seed": None,
            "scores": {},
            "commit": commit(),
        }
        manifest |= identify(export) | {
            "released": digest(weights),
            "files": weights,
            "settings": settings,
        }
        write_manifest(export, manifest)
    return Path(out)


def _tokenizer(source: Path, out: Path) -> None:
    """The checkpoint's tokenizer, read beside the config that says of which model it is."""
    present = [name for name in WORDS if (source / name).is_file()]
    if not present:
        raise InputError(f"{source}: no tokenizer; expected one of {', '.join(WORDS)}")
    for name in present:
        shutil.copyfile(source / name, out / name)
    load_tokenizer(str(out)).save_pretrained(out)
