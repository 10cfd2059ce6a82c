"""SMedBERT's tables and figures (Zhang et al., ACL 2021)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def figures(task: str = "cMedQANER", profile: Literal["small", "paper"] | None = None, out: Path | None = None) -> None:
    """Figures 3 and 4: a task's score by entity hit ratio, and by neighbours a mention.

    Args:
        task: Fine-tuning task.
        profile: Profile of fine-tuning. Default: the only one there is.
        out: Folder for the figures.
    """
    from benchmarks.papers.smedbert.lines import draw_all

    draw_all(task, profile, out)
