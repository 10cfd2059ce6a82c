"""Which examples of a task are trained on, which one chooses with, and which are scored.

`train`; `select`, on which an epoch or a threshold is chosen; `score`, which is evaluated once.
Without a dev split, or without a test split (then dev is scored), `select` is a tenth of train's
documents, chosen by hash: the same ones for every seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from core.files import InputError
from datamodules.tasks import Task


class Selection(NamedTuple):
    """Examples by what they are for: `train`, `select` and `score`."""

    examples: dict[str, list[Any]]
    scored: str  # the split that `score` is
    selected_on: str  # what `select` is, in words


def document_hash(document: str, seed: int = 0) -> str:
    """What decides whether a document is held out or kept; the same in every run."""
    return hashlib.sha256(f"{seed}/{document}".encode()).hexdigest()


def divide(examples: Sequence[Any], where: Any) -> tuple[list[Any], list[Any]]:
    """(nine tenths, a tenth) of the examples, by document; the same ones for every seed. Raises
    InputError for one document alone."""
    documents = sorted({e.document for e in examples}, key=document_hash)
    if len(documents) < 2:
        raise InputError(
            f"{where}: no dev split, and train is one document, so none can be held out"
            " to select on"
        )
    held_out = set(documents[: max(1, len(documents) // 10)])
    return [e for e in examples if e.document not in held_out], [
        e for e in examples if e.document in held_out
    ]


def keep_share(examples: Sequence[Any], share: float, seed: int) -> list[Any]:
    """The part of the examples that a learning curve trains on: whole documents, at least one, in
    the order of the file. A smaller share of one seed is a part of each larger one.

    Raises InputError for a share that is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise InputError(f"share {share:g}: expected more than 0 and at most 1")
    documents = sorted({e.document for e in examples}, key=lambda d: document_hash(d, seed + 1))
    chosen = set(documents[: max(1, round(share * len(documents)))])
    return [e for e in examples if e.document in chosen]


def select_examples(task: Task, share: float = 1.0, seed: int = 0) -> Selection:
    """The examples of a task by what they are for; of the training ones a `share`, by `seed`.

    Raises InputError when nothing can be held out, or for a share outside (0, 1].
    """
    splits = task.splits
    scored = "test" if "test" in splits else "dev"
    train, select, selected_on = splits["train"], splits.get("dev", []), "dev"
    if scored == "dev" or "dev" not in splits:
        selected_on = "a tenth of train"
        train, select = divide(train, task.folder)
    if share != 1:
        train = keep_share(train, share, seed)
    return Selection(
        {"train": train, "select": select, "score": splits[scored]}, scored, selected_on
    )
