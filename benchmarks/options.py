"""Groups of options that commands share, as typed records. Importing them loads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Only scores of one protocol are compared.

    Args:
        normalise: Rules for names, joined by + (kg.search.names). Default: BioSyn's.
        abbreviations: Expand abbreviations that a mention's text defines (Schwartz-Hearst).
            Default: as the task says.
        train_names: Add the mentions of the training split to the dictionary.
        composite: A string of a composite mention is right with any of its concepts (union), or
            each needs its own.
        nil: Mentions whose concept the dictionary lacks are wrong, or left out. Default: as the
            task says.
        names: Names of each concept in the dictionary: all, the shortest, or one drawn at random
            (always the same).
    """

    normalise: str | None = None
    abbreviations: bool | None = None
    train_names: bool = False
    composite: Literal["union", "each"] = "union"
    nil: Literal["wrong", "left-out"] | None = None
    names: Literal["all", "shortest", "sample"] = "all"


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Which results a table shows, where there are several.

    Args:
        split: Split of linking tasks. Default: as the table says.
        folds: Folds of linking tasks that have several. Default: all.
        profile: Profile of fine-tuning. Default: the only one there is.
        samples: Folder of the samples of synonym retrieval.
        graph: Graph that is probed or counted: hpo, medlama, or a folder.
        limit: Probing with so many queries.
        seed: Probing with queries drawn by this seed.
        method: Probing by this method.
        masks: Probing with answers of up to so many tokens.
        beam: Probing with so many beams.
        model: A KeBioLM whose entities are counted, instead of a graph's.
        ckpt: One exact run of it.
    """

    split: str | None = None
    folds: Sequence[int] = ()
    profile: Literal["small", "paper"] | None = None
    samples: Path | None = None
    graph: str | None = None
    limit: int | None = None
    seed: int | None = None
    method: Literal["beam", "confidence"] | None = None
    masks: int | None = None
    beam: int | None = None
    model: str | None = None
    ckpt: str | None = None
