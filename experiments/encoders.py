"""Which encoder a name means.

A name is a paper or another folder of experiments/ with an encoder.yaml (its newest finished run), paper/stem, a short
name of a packaged encoder (minilm), a folder, or a hub name. encoder.yaml says

    load    dotted name, in `models`, of what makes the encoder of an export folder
    linker  dotted name, in `datamodules`, of what makes its mentions, if it asks for them
    stem    the run that the bare name means
    small   settings that fine-tuning in PROFILE=small changes for it; under the name of a head (PairClassifier), those of
            the tasks with that head
    masked_lm  dotted name, in `models`, of what fills masks with it; without the key, a masked LM in the usual layout
    options  settings of `make finetune` that this encoder alone takes, numbers: {HITS: {setting: <config key>, help: …}}

    python -m experiments.encoders NAME --out FOLDER     copies the export that NAME means: what a pipeline starts from
"""

from __future__ import annotations

import argparse
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from core.files import InputError, digest, read_json, sha256, written_folder
from core.tracking import ROOT, newest_export
from kg.pretrained import PACKAGED, pretrained

PLAIN = "models.encoders.BertEncoder"
MASKED_LM = "models.probing.masked_lm"


class NotTrained(InputError):
    """A paper's encoder that no finished run holds; `paper` is what must be pre-trained."""

    def __init__(self, paper: str, message: str) -> None:
        super().__init__(message)
        self.paper = paper


class Encoder(NamedTuple):
    """What fine-tuning needs to know of an encoder."""

    name: str  # short, fit for a folder's name
    folder: str  # what `load` takes: a folder, or a name that the hub or a package resolves
    load: str
    linker: str | None
    identity: str  # the same for the same weights
    small: dict[str, Any]
    paper: str | None = None  # whose export it is
    options: dict[str, str] = {}  # noqa: RUF012  a NamedTuple's default, never changed
    masked_lm: str = MASKED_LM


def recipes() -> list[str]:
    """Names of experiments/ that say how their export is loaded."""
    return sorted(p.parent.name for p in (ROOT / "experiments").glob("*/encoder.yaml"))


def known() -> str:
    """The names that need no folder and no hub, for messages."""
    return ", ".join([*recipes(), *sorted(PACKAGED)])


def _recipe(paper: str) -> dict[str, Any]:
    recipe: dict[str, Any] = yaml.safe_load((ROOT / "experiments" / paper / "encoder.yaml").read_text())
    return recipe


def default_stem(paper: str) -> str | None:
    """The run that a paper's bare name means."""
    return _recipe(paper).get("stem")


class OwnOption(NamedTuple):
    """A setting of `make finetune` that only some encoders take."""

    name: str
    help: str


def own_options() -> list[OwnOption]:
    """Every option that a recipe names."""
    return [OwnOption(name, own["help"]) for paper in recipes() for name, own in _recipe(paper).get("options", {}).items()]


def options() -> dict[str, list[str]]:
    """{setting of `make finetune` that only some encoders take: the recipes that name it}."""
    found: dict[str, list[str]] = {}
    for paper in recipes():
        for setting in _recipe(paper).get("options", {}):
            found.setdefault(setting, []).append(paper)
    return found


def _of_export(name: str, folder: Path) -> Encoder:
    paper = str(read_json(folder / "manifest.json").get("paper"))
    if paper not in recipes():
        raise InputError(f"{folder}: an export of {paper!r}, which has no experiments/{paper}/encoder.yaml")
    recipe = _recipe(paper)
    return Encoder(
        name, str(folder), recipe["load"], recipe.get("linker"), sha256(folder / "manifest.json"), recipe.get("small") or {},
        paper, {k: v["setting"] for k, v in recipe.get("options", {}).items()}, recipe.get("masked_lm", MASKED_LM),
    )  # fmt: skip


def _plain(name: str, folder: Path) -> Encoder:
    weights = sorted(p for p in folder.glob("*") if p.suffix in (".safetensors", ".bin", ".json", ".txt"))
    if not (folder / "config.json").is_file():
        raise InputError(f"MODEL={folder}: a folder without config.json; wanted an export or a Hugging Face folder")
    return Encoder(name, str(folder), PLAIN, None, digest({p.name: sha256(p) for p in weights}), {})


def _export_in(checkpoint: Path) -> Path:
    for folder in (checkpoint, checkpoint / "export", checkpoint.parent, checkpoint.parent.parent / "export"):
        if (folder / "manifest.json").is_file() and (folder / "config.json").is_file():
            return folder
    raise InputError(f"CKPT={checkpoint}: no finished run here; wanted its folder, or its export/")


def encoder(name: str, checkpoint: str | None = None) -> Encoder:
    """The encoder that `name` means; `checkpoint` names one exact run of it.

    Raises NotTrained for a paper without a finished run, and InputError for a folder that holds no encoder, or a name
    that can mean nothing.
    """
    if checkpoint:
        folder = _export_in(Path(checkpoint).resolve())
        return _of_export(f"{name}@{folder.parent.parent.name}-{folder.parent.name}", folder)
    paper, _, stem = name.partition("/")
    if paper in recipes() and not (stem and Path(name).exists()):
        export = newest_export(paper, stem or _recipe(paper).get("stem"))
        if export is None:
            run = f"make pretrain-{paper}"
            raise NotTrained(paper, f"MODEL={name}: no finished run in runs/{name}. Run `{run}` first.")
        return _of_export(name.replace("/", "-"), export)
    if name in PACKAGED:
        package = PACKAGED[name][0]
        return Encoder(name, name, PLAIN, None, f"{package} {distribution(package).version}", {})
    folder = Path(name)
    if folder.is_dir():
        folder = folder.resolve()
        label = f"{folder.name}-{digest(str(folder))[:6]}"
        if (folder / "manifest.json").is_file() and "paper" in read_json(folder / "manifest.json"):
            return _of_export(label, folder)
        return _plain(label, folder)
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        raise InputError(f"no model {name!r}: no such folder; choose from: {known()}, a folder or a hub name")
    return Encoder(name.replace("/", "--"), name, PLAIN, None, name, {})


def copied(name: str, out: Path) -> bool:
    """Copy the encoder that `name` means to folder `out`; False if the same one is there. Raises InputError as :func:`encoder`."""
    source = Path(pretrained(encoder(name).folder))
    if not source.is_dir():
        raise InputError(f"{name}: a model of the hub, not a folder; give its name as ENCODER={name} instead")
    if (out / "config.json").is_file() and sha256(out) == sha256(source):
        return False
    with written_folder(out) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)
    return True


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.encoders", description=__doc__)
    parser.add_argument("name", help="as MODEL= takes it")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        new = copied(options.name, options.out)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{options.out}: {options.name}{'' if new else ', there already; kept'}")


if __name__ == "__main__":
    main()
