"""Options of SapBERT's figures. Importing them loads no model library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Which names and pairs are shown.

    Args:
        method: How names are put into the plane; umap needs umap-learn.
        concepts: Concepts whose names are shown.
        batches: Batches of pairs that are counted.
        seed: Seed of what is drawn.
    """

    method: Literal["tsne", "umap"] = "tsne"
    concepts: int = 20
    batches: int = 10
    seed: int = 0
