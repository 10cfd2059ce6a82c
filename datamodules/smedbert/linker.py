"""Mentions of fine-tuning texts, linked with what a SMedBERT export holds: `linker` in
experiments/smedbert/encoder.yaml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from core.files import InputError
from core.json_files import read_json
from datamodules.links import links
from datamodules.mentions import Mentions, mentions
from kg.pagerank import NeighbourTable


def linker(
    folder: str | Path, hits: float = 1.0, k: int | None = None, foreign: float = 0.0
) -> Callable[[list[str], list[list[tuple[int, int]]]], Mentions]:
    """What finds the mentions of texts, as :func:`datamodules.links.links`, with the neighbours of
    their entities.

    hits     share of the mentions that are given knowledge (Figure 3)
    k        neighbours a mention; None: as many as in pre-training. The export's table may hold
             more
    foreign  share of those that are given the neighbours of another entity

    Raises InputError when the folder lacks a file, or for a share or number of neighbours that
    cannot be.
    """
    folder = Path(folder)
    link = links(folder, hits, foreign, ("types.npy", "neighbours", "linker.json"))
    types = np.load(folder / "types.npy", allow_pickle=False)
    table = NeighbourTable.load(folder / "neighbours")
    k = int(read_json(folder / "linker.json")["k"]) if k is None else k
    if not 1 <= k <= table.k:
        raise InputError(
            f"k {k}: expected 1 to {table.k}, the neighbours an entity has in"
            f" {folder / 'neighbours'}"
        )

    def link_texts(texts: list[str], offsets: list[list[tuple[int, int]]]) -> Mentions:
        rows = link(texts, offsets)
        return mentions(rows[:, :3], rows[:, 3], np.asarray(table[rows[:, 3]])[:, :k], types)

    return link_texts
