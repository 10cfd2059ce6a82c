"""What a downstream task is, before any of its data is read. The suites (chineseblue.py, blurb.py)
list them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml

from core.artifact import has_manifest, read_manifest
from core.tracking import ROOT, runs_folder

Splits = dict[str, list[Any]]


class Read(Protocol):
    def __call__(self, paths: Sequence[Path], split: str, counts: Counter[str]) -> list[Any]:
        """The examples of `split` from its files, in the order that the definition lists them."""


class Published(NamedTuple):
    """Sizes that `source` prints, by split, counted in `unit`: examples, mentions, triples or
    questions."""

    source: str
    unit: str
    sizes: Mapping[str, int]


class Definition(NamedTuple):
    """A task: what is scored and how its data set's files become examples.

    files      {split: paths in the data set's folder}; a split is there when its first file is.
               Test may lack labels.
    read       the reader; `derived` makes splits out of others (dev out of train) and says how in
               `notes`. It accepts the settings under `made` in the task's YAML
               (:func:`derivation_settings`), if there are any.
    metric     entity_f1 (strict spans and types), f1 (of class `positive`), accuracy, micro_f1 (all
               classes but `negative`), acc1 (share of questions whose best answer is right)
    mentions   (files, split) -> the annotated mentions in examples, where markers replaced them
    variant    what makes this another set than the official one; None for the official one. Never
               scored as official.
    """

    name: str
    suite: str
    kind: str
    language: str
    metric: str
    dataset: str
    files: Mapping[str, tuple[str, ...]]
    read: Read
    published: tuple[Published, ...] = ()
    aliases: tuple[str, ...] = ()
    variant: str | None = None
    markers: tuple[str, ...] = ()
    negative: str | None = None
    positive: str | None = None
    derived: Callable[..., Splits] | None = None
    notes: tuple[str, ...] = ()
    mentions: Callable[[Sequence[Path], str], list[str]] | None = None


SUITE_OWN = "own"  #: the suite of one's own tasks (datamodules.tasks.own)


def own_folder(name: str) -> Path:
    """Where one's own task of a name is kept."""
    return runs_folder() / "data" / SUITE_OWN / name


def own_names() -> list[str]:
    """Names of one's own tasks."""
    return sorted(p.name for p in (runs_folder() / "data" / SUITE_OWN).glob("*") if has_manifest(p))


def like_of(name: str) -> str | None:
    """The task whose settings one's own task uses; None where there is none of the name."""
    folder = own_folder(name)
    return str(read_manifest(folder)["like"]) if has_manifest(folder) else None


def config_of(name: str) -> tuple[Path, dict[str, Any]]:
    """A task's YAML; a variant (cMedQA:clean) has that of its task, one's own task that of the task
    like it."""
    path = ROOT / "experiments" / "finetune" / f"{name.split(':')[0]}.yaml"
    if not path.is_file():
        path = path.with_stem(like_of(name) or path.stem)
    return path, yaml.safe_load(path.read_text())


def derivation_settings(name: str) -> dict[str, Any]:
    """How a task is made whose splits are not published: the section `made` of its YAML; empty for
    all others."""
    settings: dict[str, Any] = config_of(name)[1].get("made") or {}
    return settings
