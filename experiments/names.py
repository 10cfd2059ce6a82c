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

As an encoder, a fine-tuned model is its encoder with the fine-tuned weights. encoder.yaml says

    load    dotted name, in `models`, of what makes the encoder of an export folder
    linker  dotted name, in `datamodules`, of what makes its mentions, if it asks for them
    stem    the run that the bare name means
    small   settings that fine-tuning in PROFILE=small changes for it; under the name of a head
            (PairClassifier), those of the tasks with that head
    masked_lm  dotted name, in `models`, of what fills masks with it; without the key, a masked LM
               in the usual layout
    options    settings of `make finetune` that this encoder alone supports, numbers:
               {HITS: {setting: <config key>, help: …}}

    kepl import model NAME --out FOLDER     copies the export that NAME means: what a pipeline
                                            starts from
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from core.artifact import has_manifest, read_manifest
from core.files import InputError, atomic_folder, check_new_folder
from core.json_files import digest
from core.reading import sha256
from core.tracking import ROOT, folder_name, newest_export, runs_folder
from datamodules.pretrained import (
    HUB_NAME,
    PACKAGED,
    files_identity,
    find_pretrained,
    identity,
    read_object,
)
from datamodules.tasks.definition import own_names
from datamodules.untrained import UNTRAINED, untrained_folder

PLAIN = "models.encoders.TextEncoder"
MASKED_LM = "models.probing.masked_lm"

LOG = logging.getLogger(__name__)


class NotTrained(InputError):
    """A paper's encoder that no finished run holds; `paper` is what must be pre-trained."""

    def __init__(self, paper: str, message: str) -> None:
        super().__init__(message)
        self.paper = paper


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


class FineTuned(NamedTuple):
    """The export of a fine-tuned model. `label` is short, fit for a folder's name; `manifest` is
    the export's."""

    label: str
    folder: Path
    manifest: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.manifest["kind"])

    @property
    def identity(self) -> str:
        """The same for the same weights, tokenizer and tables."""
        return str(self.manifest["identity"])


def recipes() -> list[str]:
    """Names of experiments/ that say how their export is loaded."""
    return sorted(p.parent.name for p in (ROOT / "experiments").glob("*/encoder.yaml"))


def model_names() -> str:
    """The names that need no folder and no hub, for messages."""
    return ", ".join([*recipes(), *sorted([*PACKAGED, *UNTRAINED])])


def tasks() -> list[str]:
    """Names of the tasks that can be fine-tuned on, without their variants (cMedQA, not
    cMedQA:clean)."""
    listed = sorted(p.stem for p in (ROOT / "experiments" / "finetune").glob("*.yaml"))
    return [*listed, *own_names()]


def _find_finished(task: str, label: str = "*") -> list[Path]:
    """Folders of the finished runs of a task with a usable export:
    <encoder>/<digest>/[grid-<point>/]seed<k>."""
    base = _task_folder(task)
    runs = list(base.glob(f"{label}/*/seed*/finished.json"))
    runs += base.glob(f"{label}/*/grid-*/seed*/finished.json")
    return [done.parent for done in sorted(runs) if _holds_fine_tuned(done.parent / "export")]


def list_trained(task: str) -> list[str]:
    """The encoders with a fine-tuned model of `task`."""
    return sorted({run.relative_to(_task_folder(task)).parts[0] for run in _find_finished(task)})


def _recipe(paper: str) -> dict[str, Any]:
    recipe: dict[str, Any] = yaml.safe_load(
        (ROOT / "experiments" / paper / "encoder.yaml").read_text()
    )
    return recipe


def default_stem(paper: str) -> str | None:
    """The run that a paper's bare name means."""
    return _recipe(paper).get("stem")


class OwnOption(NamedTuple):
    """A setting of `make finetune` that only some encoders support."""

    name: str
    help: str


def own_options() -> list[OwnOption]:
    """Every option that a recipe names."""
    options = []
    for paper in recipes():
        for name, option in _recipe(paper).get("options", {}).items():
            options.append(OwnOption(name, option["help"]))
    return options


def options() -> dict[str, list[str]]:
    """{setting of `make finetune` that only some encoders support: the recipes that name it}."""
    papers: dict[str, list[str]] = {}
    for paper in recipes():
        for setting in _recipe(paper).get("options", {}):
            papers.setdefault(setting, []).append(paper)
    return papers


def _task_folder(task: str) -> Path:
    return runs_folder() / "finetune" / folder_name(task)


def _holds_fine_tuned(folder: Path) -> bool:
    """Whether `folder` is a fine-tuned model's export (experiments.finetune.write_export)."""
    return has_manifest(folder) and "head" in read_manifest(folder)


def is_task(name: str) -> bool:
    """Whether the first part of a name (NCBI/minilm, cMedQA:clean/zh) is a task."""
    return name.partition("/")[0].partition(":")[0] in tasks()


def close_names(name: str, more: Iterable[str] = ()) -> list[str]:
    """Names that `name` may be a slip of: of a paper or a task in its first part, of a packaged
    encoder or one of `more` as a whole."""
    first, _, rest = name.partition("/")
    single = () if rest else (*PACKAGED, *UNTRAINED, *more)  # names of one part
    near = get_close_matches(first, [*recipes(), *tasks(), *single], 3, 0.75)
    if rest in [*recipes(), *PACKAGED]:  # ncbi/minilm: `ncbi` alone is an owner on the hub
        near += [
            task for task in tasks() if task.casefold() == first.casefold() and task not in near
        ]
    return [f"{word}/{rest}" if rest else word for word in near]


class _Run(NamedTuple):
    digest: str
    seed: int
    finished: int  # when
    score: float  # on the selection split
    default: bool  # settings
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.digest}-seed{self.seed}"


def _run(folder: Path, base: Path) -> _Run:
    manifest = read_manifest(folder / "export")
    request, tuned = manifest.get("request") or {}, manifest.get("fine_tuned") or {}
    return _Run(
        folder.relative_to(base).parts[0],
        int(folder.name.removeprefix("seed")),
        (folder / "finished.json").stat().st_mtime_ns,
        tuned.get("select", {}).get(tuned.get("metric"), 0.0),
        not request.get("args") and not request.get("options"),
        folder,
    )


def _label(model: str, labels: list[str]) -> str | None:
    """The one of `labels` that means an encoder's name (kebiolm/pretrain_rand, a hub name)."""
    return next(
        (
            label
            for label in (model, folder_name(model), model.replace("/", "--"))
            if label in labels
        ),
        None,
    )


def _task_export(name: str) -> Path:
    """The export that TASK/encoder or TASK/encoder@<digest>-seed<k> means. Raises InputError that
    lists what is trained."""
    task, _, model = name.partition("/")
    labels, at = list_trained(task), ""
    label = _label(model, labels)
    if label is None:  # the last @ separates the run; the folder of an encoder may have one itself
        model, _, at = model.rpartition("@") if "@" in model else (model, "", "")
        label = _label(model, labels)
    command = f"make finetune TASK={task} MODEL={model or '<encoder>'}"
    if label is None:
        near = get_close_matches(model, labels)
        hint = f" Did you mean {' or '.join(f'{task}/{close}' for close in near)}?" if near else ""
        raise InputError(
            f"no fine-tuned model {name!r}.{hint} Trained on {task}:"
            f" {', '.join(labels) or 'nothing yet'}. Run `{command}` first."
        )
    runs = [_run(folder, _task_folder(task) / label) for folder in _find_finished(task, label)]
    available = ", ".join(sorted({f"{task}/{label}@{run.name}" for run in runs}))
    if at:
        digest, _, seed = at.rpartition("-seed")
        chosen = [
            run
            for run in runs
            if digest and run.digest.startswith(digest) and str(run.seed) == seed
        ]
        if len({run.digest for run in chosen}) != 1:
            raise InputError(
                f"{name}: {'several runs fit' if chosen else 'no such run'}; expected one of"
                f" {available}"
            )
    else:
        default = [run for run in runs if run.default]
        if not default and len({run.digest for run in runs}) == 1:  # nothing else can be meant
            default = runs
            LOG.info(f"{name}: its only run, {task}/{label}@{runs[0].name}, of other settings")
        if not default:
            raise InputError(
                f"{name}: no run with default settings; name one of {available}, or run `{command}`"
            )
        newest = max(default, key=lambda run: run.finished).digest
        lowest = min(run.seed for run in default if run.digest == newest)
        chosen = [run for run in default if run.digest == newest and run.seed == lowest]
    # of a grid's points, the best
    return max(chosen, key=lambda run: (run.score, run.finished)).folder / "export"


def is_fine_tuned(name: str) -> bool:
    """Whether a name means a fine-tuned model: a folder with one, or TASK/encoder, trained or
    not."""
    if Path(name).is_dir():
        return any(_holds_fine_tuned(folder) for folder in (Path(name), Path(name) / "export"))
    return is_task(name)


def fine_tuned_names() -> list[str]:
    """TASK/encoder of every fine-tuned model, those of variants (cMedQA:clean) left out."""
    return [f"{task}/{model}" for task in tasks() for model in list_trained(task)]


def find_finetuned(name: str) -> FineTuned:
    """The fine-tuned model that `name` means: a folder (an export, or a run's folder with one) or
    TASK/encoder.

    Raises InputError, which lists what is trained, for a name that means none.
    """
    if Path(name).is_dir():
        folder = next(
            (f for f in (Path(name), Path(name) / "export") if _holds_fine_tuned(f)), None
        )
        if folder is None:
            raise InputError(
                f"{name}: no fine-tuned model's export here (a manifest with a head); run `make"
                " finetune` first"
            )
        folder = folder.resolve()
        return FineTuned(f"{folder.name}-{digest(str(folder))[:6]}", folder, read_manifest(folder))
    if is_task(name):
        folder = _task_export(name)
        return FineTuned(folder_name(name), folder, read_manifest(folder))
    near = [match for match in close_names(name) if is_task(match)]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    available = ", ".join(fine_tuned_names()) or "nothing yet"
    raise InputError(
        f"no fine-tuned model {name!r}.{hint} Expected a folder or TASK/encoder;"
        f" trained: {available}"
    )


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
    if _holds_fine_tuned(folder):
        return _encoder_from_fine_tuning(name, folder)
    manifest = read_manifest(folder)
    paper, identity = str(manifest.get("paper")), manifest.get("identity")
    if paper not in recipes():
        raise InputError(
            f"{folder}: an export of {paper!r}, which has no experiments/{paper}/encoder.yaml"
        )
    recipe = _recipe(paper)
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
        export = newest_export(paper, stem or _recipe(paper).get("stem"))
        if export is None:
            run = f"make pretrain-{paper}"
            raise NotTrained(
                paper, f"MODEL={name}: no finished run in runs/{name}. Run `{run}` first."
            )
        return _encoder_from_export(name.replace("/", "-"), export)
    if is_task(name):
        return _encoder_from_fine_tuning(folder_name(name), _task_export(name))
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
