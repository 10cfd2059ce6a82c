"""Where a run computes and what it is made of, as options of commands. Importing it loads nothing
else."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a run computes.

    Args:
        devices: GPUs of each machine, or processes on a CPU. Default: one process; in PROFILE=paper
            all GPUs.
        nodes: Machines that train together.
        precision: Arithmetic, as Lightning names it (32-true, bf16-mixed). Default: that of the
            profile.
        workers: Processes that link and prepare text. Default: one a core.
    """

    devices: int | None = None
    nodes: int | None = None
    precision: str | None = None
    workers: int | None = None


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a pipeline starts from, instead of what it would build or fetch.

    Args:
        graph: Folder of a graph, or of several that are merged.
        umls: META folder of a UMLS release.
        corpus: Files with text.
        encoder: Encoder to start from: a packaged name, a folder, or a hub name.
        linker: What links the text, with its own options: dictionary, or "scispacy --pipeline
            NAME".
        mirror: Folders or archives that hold the files of data sets.
    """

    graph: Sequence[str] = ()
    umls: Path | None = None
    corpus: Sequence[str] = ()
    encoder: str | None = None
    linker: Sequence[str] = ()
    mirror: Sequence[str] = ()

    SEVERAL: ClassVar[tuple[str, ...]] = ("GRAPH", "CORPUS", "LINKER", "MIRROR")

    def list_inputs(self) -> dict[str, list[str]]:
        """{NAME: its words} of the inputs that are given."""
        words = {
            "UMLS": [str(self.umls)] if self.umls else [],
            "ENCODER": [self.encoder] if self.encoder else [],
        }
        words |= {name: list(getattr(self, name.lower())) for name in self.SEVERAL}
        return {name: own for name, own in words.items() if own}

    def choice(self) -> dict[str, str]:
        """What decides a pipeline's folder: all inputs but where files are looked for."""
        return {
            name: shlex.join(words)
            for name, words in self.list_inputs().items()
            if name != "MIRROR"
        }
