"""Batches for ERNIE's pre-training (Zhang et al., ACL 2019, Sections 3.4 and 3.5).

The text is that of :mod:`datamodules.ordered`. A mention's entity is at its first token; of every
mention's, the model predicts it, while some are hidden from it or exchanged. As everywhere, a batch
is a function of (seed, step, example).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.files import InputError
from datamodules.links import links
from datamodules.masking import IGNORE
from datamodules.ordered import Ordered, OrderedText, blank
from datamodules.rows import most, number_rows, stack_rows
from datamodules.steps import Places
from kg.graph import KnowledgeGraph


class Aligned(NamedTuple):
    """M mentions and their entities, in text order; spans of one sequence are disjoint."""

    span: Tensor  # (M, 3) row, first token, last token + 1
    entity: Tensor  # (M,) index in the graph


class ERNIEBatch(NamedTuple):
    """One micro-batch of B sequences of length L; counts as in :mod:`datamodules.steps`."""

    input_ids: Tensor  # (B, L) with masked tokens
    original_ids: Tensor  # (B, L) without
    attention_mask: Tensor  # (B, L)
    second: Tensor  # (B, L) 1 on the second of the two segments
    mlm_labels: Tensor  # (B, L) original id where a token is predicted, else -100
    # (B,) 1 where the segments are swapped, 0 where not, -100 where there is only one
    order: Tensor
    mentions: Aligned  # what the model is given
    targets: Tensor  # (P, 3) row, first token, last token + 1 of every mention
    candidates: Tensor  # (P, C) entities: its own, the sequence's others, drawn ones; -1 for none
    counts: Tensor  # (3,) predicted tokens, sequences of two segments, P
    places: Places | Any = None  # of a training batch: datamodules.steps.place_batch

    def masks(self) -> dict[str, Tensor]:
        return {"tokens": self.attention_mask > 0, "predicted": self.mlm_labels != IGNORE}

    def sizes(self) -> dict[str, Any]:
        return {"most": most(self.mentions.span)}


class ERNIEExample(NamedTuple):
    """One sequence and its mentions."""

    text: Ordered
    mentions: np.ndarray  # (m, 3) first token, last token + 1, entity
    inputs: np.ndarray  # (m',3) those that the model is given, some with another entity
    drawn: np.ndarray  # (n,) entities to distinguish theirs from

    def blank(self) -> ERNIEExample:
        return self._replace(text=blank(self.text), mentions=self.mentions[:0])


class ERNIEData(OrderedText):
    """Linked text with an entity at each mention.

    exchanged    share of the mentions that are given another entity than theirs (Section 3.4: 5 %)
    hidden       share that is given none (15 %)
    n_negatives  entities drawn for each sequence, as often as the training text mentions them, to
                 distinguish its own from

    The rest as in :class:`OrderedText`.

    Raises InputError when the parts do not belong together, or for shares that cannot be.
    """

    def __init__(
        self, exchanged: float = 0.05, hidden: float = 0.15, n_negatives: int = 35, **text: Any
    ) -> None:
        super().__init__(**text)
        if min(exchanged, hidden) < 0 or exchanged + hidden > 1:
            raise InputError(
                f"exchanged {exchanged}, hidden {hidden}: expected shares from 0 to 1, at most 1"
                " together"
            )
        self.exchanged, self.hidden, self.n_negatives = exchanged, hidden, n_negatives

    def set_up(self, graph: KnowledgeGraph) -> None:
        self.cumulated = np.cumsum(self.frequency)

    def by_frequency(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n,) entities drawn as often as the training text mentions them."""
        mentions = max(1, int(self.cumulated[-1]))
        drawn = rng.integers(mentions, size=n)
        return np.searchsorted(self.cumulated, drawn, side="right")

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> ERNIEExample:
        text, mentions, _ = self.read_sequence(index, rng)
        fate, other = rng.random(len(mentions)), self.by_frequency(len(mentions), rng)
        inputs = mentions.copy()
        exchanged = fate < self.exchanged
        inputs[exchanged, 2] = other[exchanged]
        inputs = inputs[exchanged | (fate >= self.exchanged + self.hidden)]
        return ERNIEExample(text, mentions, inputs, self.by_frequency(self.n_negatives, rng))

    def collate(self, examples: list[ERNIEExample]) -> ERNIEBatch:
        texts, mentions, inputs, drawn = zip(*examples, strict=True)
        text, targets, read = self.texts(texts), number_rows(mentions, 3), number_rows(inputs, 3)
        among = [
            np.unique(np.concatenate([m[:, 2], d])) for m, d in zip(mentions, drawn, strict=True)
        ]
        others = stack_rows(among, -1)[targets[:, 0]]  # (P, C - 1)
        others = np.where(others == targets[:, 3:], -1, others)
        counts = [(text.mlm_labels >= 0).sum(), (text.order >= 0).sum(), len(targets)]
        aligned = Aligned(torch.from_numpy(read[:, :3].copy()), torch.from_numpy(read[:, 3].copy()))
        return ERNIEBatch(
            *text,
            aligned,
            torch.from_numpy(targets[:, :3].copy()),
            torch.from_numpy(np.concatenate([targets[:, 3:], others], axis=1)),
            torch.tensor(counts, dtype=torch.float32),
        )


def linker(
    folder: str | Path, hits: float = 1.0, foreign: float = 0.0
) -> Callable[[list[str], list[list[tuple[int, int]]]], Aligned]:
    """What finds the mentions of texts, as :func:`datamodules.links.links`: `linker` in
    experiments/ernie/encoder.yaml.

    hits     share of the mentions that are given their entity
    foreign  share of those that are given another
    """
    link = links(folder, hits, foreign)

    def link_texts(texts: list[str], offsets: list[list[tuple[int, int]]]) -> Aligned:
        rows = torch.from_numpy(link(texts, offsets))
        return Aligned(rows[:, :3], rows[:, 3])

    return link_texts
