"""Models that were fine-tuned here, and the tasks they are of: what TASK/encoder means.

TASK/encoder is the newest digest with default settings (no ARGS, no options), its lowest finished
seed; TASK/encoder@<digest>-seed<k> is one run, whatever its settings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from core.artifact import has_manifest, read_manifest
from core.files import InputError
from core.json_files import digest
from core.tracking import ROOT, folder_name, runs_folder
from datamodules.pretrained import PACKAGED
from datamodules.tasks.definition import own_names
from datamodules.untrained import UNTRAINED
from experiments.recipes import recipes

LOG = logging.getLogger(__name__)


class NotTrained(InputError):
    """A paper's encoder that no finished run holds; `paper` is what must be pre-trained."""

    def __init__(self, paper: str, message: str) -> None:
        super().__init__(message)
        self.paper = paper


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
    return [done.parent for done in sorted(runs) if holds_fine_tuned(done.parent / "export")]


def list_trained(task: str) -> list[str]:
    """The encoders with a fine-tuned model of `task`."""
    return sorted({run.relative_to(_task_folder(task)).parts[0] for run in _find_finished(task)})


def _task_folder(task: str) -> Path:
    return runs_folder() / "finetune" / folder_name(task)


def holds_fine_tuned(folder: Path) -> bool:
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


def find_export(name: str) -> Path:
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
        return any(holds_fine_tuned(folder) for folder in (Path(name), Path(name) / "export"))
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
        folder = next((f for f in (Path(name), Path(name) / "export") if holds_fine_tuned(f)), None)
        if folder is None:
            raise InputError(
                f"{name}: no fine-tuned model's export here (a manifest with a head); run `make"
                " finetune` first"
            )
        folder = folder.resolve()
        return FineTuned(f"{folder.name}-{digest(str(folder))[:6]}", folder, read_manifest(folder))
    if is_task(name):
        folder = find_export(name)
        return FineTuned(folder_name(name), folder, read_manifest(folder))
    near = [match for match in close_names(name) if is_task(match)]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    available = ", ".join(fine_tuned_names()) or "nothing yet"
    raise InputError(
        f"no fine-tuned model {name!r}.{hint} Expected a folder or TASK/encoder;"
        f" trained: {available}"
    )
