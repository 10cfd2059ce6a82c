"""Fetch and verify the files of a task, or of a data set: kepl data TASK [--mirror FOLDER ...]."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.artifact import read_manifest
from core.files import InputError, digest
from core.tracking import folder_name, runs_folder
from datamodules.linking import SPLITS
from datamodules.options import Files
from datamodules.sources import fetched, place
from datamodules.sources.listing import sources
from datamodules.tasks.linking import linking_task, linking_tasks, prepare_folds
from datamodules.tasks.prepare import all_tasks, find_task, task_folder


def dataset_of(name: str) -> str | None:
    """The data set of a task, or the data set of that name; None for a task that needs none. Raises
    InputError."""
    if name in linking_tasks():
        return linking_task(name).dataset
    return name if name in sources() else find_task(name).dataset


def fetch_files(name: str, files: Files) -> str:
    """Where the files are, how many, and their licence. With DATA= the files are read from that
    folder, as fine-tuning and evaluation do, and nothing is fetched. Raises InputError for a file
    that cannot be had or is another one."""
    if files.data is not None:
        return read_folder(name, files)
    dataset = dataset_of(name)
    if dataset is None:
        return f"{name}: nothing to fetch; its data come with the installed packages"
    source = sources()[dataset]
    folder = fetched(dataset, place(), files.mirror)
    found = [file.path for file in source.files if (folder / file.path).is_file()]
    return (
        f"{folder}: {len(found)} of {len(source.files)} files of {dataset}, verified\n"
        f"licence: {source.licence}\ncite: {source.citation}"
    )


def read_folder(name: str, files: Files) -> str:
    """Prepare a task from the folder of DATA=, and say what each split has. Raises InputError for a
    data set, which is fetched and not read, and for files that are missing or broken."""
    if name in sources() and name not in {*all_tasks(), *linking_tasks()}:
        raise InputError(f"{name}: a data set; DATA= reads the files of a task (kepl tasks)")
    if name in linking_tasks():
        definition = linking_task(name)
        own = files.data.resolve() if files.data else None
        out = runs_folder() / "data" / "benchmarks" / "linking"
        out /= f"{folder_name(name)}-{digest([str(own)])[:8]}"
        folders, what = list(prepare_folds(definition.name, own, out)[0].values()), "mentions"
    else:
        folders, what = [task_folder(find_task(name), files)], "examples"
    sizes: dict[str, int] = {}
    for folder in folders:
        sizes |= {s: int(one[what]) for s, one in read_manifest(folder)["splits"].items()}
    return _format_sizes(name, folders[0], sizes, what)


def _format_sizes(name: str, folder: Path, sizes: Mapping[str, int], what: str) -> str:
    told = ", ".join(f"{split} {sizes[split]:,}" for split in SPLITS if split in sizes)
    return f"{name}: {told} {what}\nprepared in {folder}"
