"""Fetch and verify the files of a task, or of a data set: kepl data TASK [--mirror FOLDER ...]."""

from __future__ import annotations

from datamodules.options import Files
from datamodules.sources import fetched, place
from datamodules.sources.listing import sources
from datamodules.tasks.linking import linking_task, linking_tasks
from datamodules.tasks.prepare import find_task


def dataset_of(name: str) -> str | None:
    """The data set of a task, or the data set of that name; None for a task that needs none. Raises
    InputError."""
    if name in linking_tasks():
        return linking_task(name).dataset
    return name if name in sources() else find_task(name).dataset


def fetch_files(name: str, files: Files) -> str:
    """Where the files are, how many, and their licence. Raises InputError for a file that cannot be
    had or is another one."""
    dataset = dataset_of(name)
    if dataset is None:
        return f"{name}: nothing to fetch; its data come with the installed packages"
    source = sources()[dataset]
    folder = fetched(dataset, files.data or place(), files.mirror)
    found = [file.path for file in source.files if (folder / file.path).is_file()]
    return (
        f"{folder}: {len(found)} of {len(source.files)} files of {dataset}, verified\n"
        f"licence: {source.licence}\ncite: {source.citation}"
    )
