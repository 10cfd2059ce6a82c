"""Every downstream task by name, and its data set's files made into a task folder
(:mod:`datamodules.tasks`)."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

from core.artifact import has_manifest
from core.choices import list_known
from core.files import InputError
from core.json_files import digest
from core.reading import sha256
from core.tracking import folder_name, runs_folder
from datamodules.formats import NoLabels
from datamodules.options import Files
from datamodules.tasks import SPLITS, TASK, chinese, english, load_task, save_task
from datamodules.tasks.definition import (
    SUITE_OWN,
    Definition,
    Splits,
    derivation_settings,
    own_folder,
    own_names,
)
from datamodules.tasks.own import own_task

LOG = logging.getLogger(__name__)
#: Raise when a reader makes other examples out of the same files: task folders are then built
#: again.
READERS = 1


def all_tasks() -> dict[str, Definition]:
    """{name: task} of all suites, in their order; aliases are not listed."""
    return {task.name: task for task in (*chinese.TASKS, *english.TASKS)}


def find_task(name: str) -> Definition:
    """The task of a name or an alias (cNNER, CHIP-RE). Raises InputError with the list for any
    other."""
    tasks = all_tasks()
    for definition in tasks.values():
        if name in (definition.name, *definition.aliases):
            return definition
    if own_definition := own_task(name):
        return own_definition
    raise InputError(f"no task {name!r}; {list_known(name, [*tasks, *own_names()])}")


def inputs(definition: Definition, data: Path) -> dict[str, list[Path]]:
    """{split: its files} of the splits whose first file is in `data`. Raises InputError without
    train."""
    result = {}
    for split, names in definition.files.items():
        paths = [data / name for name in names]
        if not paths[0].exists():
            if split == "train":
                raise InputError(
                    f"{paths[0]}: no such file, and task {definition.name} cannot train without it."
                    f" Get it with `make data TASK={definition.name}`, or from a folder that has"
                    " it: MIRROR=<folder>."
                )
            continue
        if missing := [p for p in paths if not p.exists()]:
            raise InputError(
                f"{missing[0]}: no such file; {paths[0].name} cannot be read without it. "
                f"Get it with `make data TASK={definition.name}`."
            )
        result[split] = paths
    return result


def read_splits(
    definition: Definition, data: Path
) -> tuple[Splits, dict[str, dict[str, int]], list[str]]:
    """(examples by split, what was odd in each split's files and how often, notes about splits) of
    a task.

    A dev or test file without gold labels is as good as absent; a note says so.
    """
    splits: Splits = {}
    odd: dict[str, dict[str, int]] = {}
    notes: list[str] = []
    for split, paths in inputs(definition, data).items():
        counts: Counter[str] = Counter()
        try:
            splits[split] = definition.read(paths, split, counts)
        except NoLabels:
            if split == "train":
                raise
            notes.append(f"{split}: {paths[0].name} has no gold labels, so it is not scored")
            continue
        odd[split] = {what: count for what, count in sorted(counts.items()) if count}
    if definition.derived is not None:
        splits = definition.derived(splits, **derivation_settings(definition.name))
    return {s: splits[s] for s in SPLITS if s in splits}, odd, notes


def prepare_task(name: str, data: str | Path, out: str | Path) -> Path:
    """The task's folder `out`, made from its data set's folder `data`; kept when the files and
    readers are the same.

    The manifest says beside save_task's entries: suite, variant (null for the official set), scored
    (the split that scores are reported on: test, or dev where no test is to be had), selection (the
    split that chooses the epoch: dev, or train, a part of which is then held out), odd (what
    readers counted, by split), notes, inputs (sha256 by file). What is odd is printed once, when
    the folder is made. Raises InputError for a missing training file and for every file that cannot
    be read.
    """
    definition, data, out = find_task(name), Path(data), Path(out)
    paths = chain.from_iterable(inputs(definition, data).values())
    files = {path.relative_to(data).as_posix(): path for path in paths}
    made_of = {
        "name": definition.name,
        "kind": definition.kind,
        "metric": definition.metric,
        "language": definition.language,
        "suite": definition.suite,
        "dataset": definition.dataset,
        "variant": definition.variant,
        "markers": list(definition.markers),
        "negative": definition.negative,
        "positive": definition.positive,
        "readers": READERS,
        "inputs": {n: sha256(p) for n, p in sorted(files.items())},
    } | ({"made": settings} if (settings := derivation_settings(definition.name)) else {})
    if TASK.is_kept(out, made_of, quiet=True):
        return out
    splits, odd, notes = read_splits(definition, data)
    scored = "test" if "test" in splits else "dev"
    if scored == "dev":
        notes.append("no test split: dev is scored, and a part of train chooses the epoch")
    elif "dev" not in splits:
        notes.append("no dev split: a part of train chooses the epoch")
    manifest = save_task(
        out,
        splits,
        scored=scored,
        selection="dev" if scored == "test" and "dev" in splits else "train",
        odd=odd,
        notes=[*definition.notes, *notes],
        **made_of,
    )
    for line in format_report(manifest):
        LOG.info(line)
    return out


def format_report(manifest: dict[str, Any]) -> list[str]:
    """Lines that say what is odd about a prepared task: its variant, notes, and counts of what
    readers found."""
    name = manifest["name"]
    lines = []
    if manifest["variant"]:
        lines.append(f"{name}: variant {manifest['variant']!r}, not the official set")
    lines += [f"{name}: {note}" for note in manifest["notes"]]
    for split, counts in manifest["odd"].items():
        lines += [f"{name}: {split}: {count:,} {what}" for what, count in counts.items()]
    return lines + [f"{name}: {count:,} in {what}" for what, count in manifest["warnings"].items()]


def task_folder(definition: Definition, files: Files) -> Path:
    """The task on disk: made of the files in `files.data` (or a task folder, as it is), or fetched
    and prepared."""
    from datamodules.sources import fetch_dataset, place

    if definition.suite == SUITE_OWN:
        return own_folder(definition.name)
    folders = runs_folder() / "data" / "benchmarks" / "tasks"
    name = folder_name(definition.name)
    if files.data is None:
        return prepare_task(
            definition.name,
            fetch_dataset(definition.dataset, place(), files.mirror),
            folders / name,
        )
    data_folder = files.data.resolve()
    if not data_folder.is_dir():
        raise InputError(
            f"DATA={files.data}: no such folder; expected the files of {definition.name}, or a task"
            " folder"
        )
    if not has_manifest(data_folder):
        return prepare_task(
            definition.name, data_folder, folders / f"{name}-{digest(str(data_folder))[:8]}"
        )
    kind = load_task(data_folder).kind
    if kind != definition.kind:
        raise InputError(
            f"DATA={data_folder}: a {kind} task; {definition.name} is {definition.kind}"
        )
    return data_folder


def split_examples(name: str, split: str, files: Files) -> list[Any]:
    """The examples of a task's split. Raises InputError for a split that there is not."""
    splits = load_task(task_folder(find_task(name), files)).splits
    if split not in splits:
        raise InputError(f"SPLIT={split}: {name} has {', '.join(splits)} here")
    return list(splits[split])
