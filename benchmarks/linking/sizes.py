"""How large a linking task is: its dictionary's names and concepts, and the mentions of each
split."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datamodules.linking import Linking, load_linking
from datamodules.options import Files
from datamodules.tasks.fetch import prepared_folds
from datamodules.tasks.linking import linking_task


def linking_sizes(name: str, files: Files, graph: Path | None = None) -> dict[str, int]:
    """{names, concepts, train, dev, test: how many}, of the dictionary that test (or else dev) is
    scored with.

    Distinct names; of a task in folds the mean over them, rounded. A split that is not available is
    left out. Raises InputError where the data set is not available.
    """
    sizes: list[dict[str, int]] = []
    for fold in prepared_folds(linking_task(name), files, graph):
        loaded: dict[str, Linking] = {split: load_linking(folder) for split, folder in fold.items()}
        last = loaded.get("test") or loaded["dev"]
        counts = {
            "names": len(set(last.dictionary.names)),
            "concepts": len(set(last.dictionary.ids)),
        }
        counts["train"] = len(last.splits.get("train", ()))
        counts |= {split: len(of_split.splits[split]) for split, of_split in loaded.items()}
        sizes.append(counts)
    return {key: round(float(np.mean([of_fold[key] for of_fold in sizes]))) for key in sizes[0]}
