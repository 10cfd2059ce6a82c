"""SMedBERT's tables and figures (Zhang et al., ACL 2021)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def figures(
    of: Literal["scores", "diagnosis"] = "scores",
    task: str = "cMedQANER",
    profile: Literal["small", "paper"] | None = None,
    model: str = "smedbert",
    ckpt: str | None = None,
    names: int = 500,
    seed: int = 0,
    out: Path | None = None,
    fresh: bool = False,
) -> None:
    """Figures 3 and 4: a task's score by entity hit ratio, and by neighbours a mention; or what
    knowledge does to names' vectors.

    Args:
        of: scores (Figures 3 and 4), or diagnosis (layer by layer: cosines, dimensions and lengths
            with and without knowledge).
        task: Fine-tuning task of the scores.
        profile: Profile of fine-tuning. Default: the only one there is.
        model: Encoder of the diagnosis.
        ckpt: One exact run of `model`.
        names: Names of the diagnosis.
        seed: Seed of what is drawn.
        out: Folder for the figures.
        fresh: Replace existing files that this command did not write.
    """
    from core.outputs import claimed_files

    if of == "diagnosis":
        from benchmarks.papers.smedbert.diagnosis import FILE, diagnose

        with claimed_files(out, [FILE], fresh):
            diagnose(model, ckpt, names, seed, out)
        return
    from benchmarks.papers.smedbert.lines import draw_all, figure_files

    with claimed_files(out, figure_files(), fresh):
        draw_all(task, profile, out)
