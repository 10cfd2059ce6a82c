"""SapBERT's tables and figures (Liu et al., NAACL 2021)."""

from __future__ import annotations

from pathlib import Path

from benchmarks.papers.sapbert.similarity_options import Shown
from inference.options import LinkerOptions, Pooling


def figures(
    model: str = "sapbert",
    base: str | None = None,
    ckpt: str | None = None,
    pairs: Path | None = None,
    out: Path | None = None,
    fresh: bool = False,
    pooling: Pooling | None = None,
    device: str = "cpu",
    *,
    chosen: Shown,
) -> None:
    """Figures 1 and 2: names in the plane, and similarities of positive and negative pairs, before
    and after training.

    Args:
        model: Encoder after training.
        base: Encoder before training. Default: what the run of `model` started from.
        ckpt: One exact run of `model`.
        pairs: Folder of pairs of names. Default: what the run of `model` was trained on.
        out: Folder for the figures.
        fresh: Replace existing files that this command did not write.
        pooling: Vector of a name. Default: the model's own.
        device: cpu or cuda.
    """
    from benchmarks.papers.sapbert.name_similarity import FILES, draw
    from core.outputs import claimed_files

    options = LinkerOptions(pooling=pooling, device=device)
    with claimed_files(out, FILES, fresh):
        draw(model, ckpt, base, pairs, out, chosen, options)
