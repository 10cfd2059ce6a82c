"""Where a task's files come from, as options of commands. Importing it loads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where a task's files come from.

    Args:
        mirror: Folders or archives that hold the files of data sets; searched before any address.
        data: Folder of this task's files, instead of fetching them.
    """

    mirror: Sequence[Path] = ()
    data: Path | None = None
