"""What a process that was killed leaves behind: files under temporary names."""

from __future__ import annotations

import os
from pathlib import Path

from core import files

NOBODY = 2**30  # a number that no process has


def left_by(path: Path, process: int = NOBODY, began: str = "77", kind: str = "") -> Path:
    """The temporary name that this process of this machine, begun then, would have taken for
    `path`."""
    own = files._target(path, kind)
    return own.with_name(
        own.name.replace(f"-{os.getpid()}-{files._began(os.getpid())}-", f"-{process}-{began}-")
    )
