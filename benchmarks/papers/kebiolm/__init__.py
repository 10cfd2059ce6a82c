"""KeBioLM's tables and figures (Yuan et al., BioNLP 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def figures(run: Sequence[Path] = (), out: Path | None = None, fresh: bool = False) -> None:
    """How far the entity vectors move from where TransE (or chance) put them: mean cosine to the
    start, by training step.

    Args:
        run: Folders of pre-training runs, each a line. Default: every run in runs/kebiolm.
        out: Folder for the figure. Default: runs/figures/kebiolm.
        fresh: Replace existing files that this command did not write.
    """
    from benchmarks.papers.kebiolm.drift import FILES, draw
    from core.outputs import claimed_files

    with claimed_files(out, FILES, fresh):
        draw(run, out)
