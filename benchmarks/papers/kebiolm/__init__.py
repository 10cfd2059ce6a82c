"""KeBioLM's tables and figures (Yuan et al., BioNLP 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def figures(run: Sequence[Path] = (), out: Path | None = None) -> None:
    """How far the entity vectors move from where TransE (or chance) put them: mean cosine to the
    start, by training step.

    Args:
        run: Folders of pre-training runs, each a line. Default: every run in runs/kebiolm.
        out: Folder for the figure. Default: runs/figures/kebiolm.
    """
    from benchmarks.papers.kebiolm.drift import draw

    draw(run, out)
