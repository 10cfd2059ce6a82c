"""Batches for SMedBERT's pre-training (Zhang et al., ACL 2021, Sections 3.4, 3.5 and Appendix B).

The text is that of :mod:`datamodules.ordered`. A masked mention takes in the knowledge of its
neighbours in the graph; an unmasked one predicts them among negatives; a share of these takes half
of them in, as it will all in fine-tuning, and predicts the others. As everywhere, a batch is a
function of (seed, step, example).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.files import InputError
from core.json_files import write_json
from datamodules.masking import IGNORE
from datamodules.mentions import Mentions, mentions
from datamodules.ordered import Ordered, OrderedText, blank, save_array
from datamodules.rows import group_rows, longest, number_rows
from datamodules.smedbert.negatives import Sampler, once, without_neighbours
from datamodules.steps import Places
from kg.graph import KnowledgeGraph
from kg.pagerank import NeighbourTable

#: entities of its type that validation ranks a neighbour among at most, itself included: drawn by
#: Q, and evenly
RANKED = 100


class SMedBERTBatch(NamedTuple):
    """One micro-batch of B sequences of length L, with P pairs of an unmasked mention and one of
    its neighbours.

    counts are over the micro-batches that this process accumulates for one step, as in
    :mod:`datamodules.steps`.
    """

    input_ids: Tensor  # (B, L) with masked tokens
    original_ids: Tensor  # (B, L) without
    attention_mask: Tensor  # (B, L)
    second: Tensor  # (B, L) 1 on the second of the two segments
    mlm_labels: Tensor  # (B, L) original id where a token is predicted, else -100
    # (B,) 1 where the segments are swapped, 0 where not, -100 where there is only one
    order: Tensor
    masked: Mentions  # mentions whose tokens are predicted
    unmasked: Mentions  # others that have neighbours and are asked for them
    infused: Mentions  # those that take knowledge in: the masked ones, and a share of the others
    # (P, 1 + n) the neighbour, then negatives; -1 for a negative that is a neighbour after all
    candidates: Tensor
    log_q: Tensor  # (P, 1 + n) log Q of each among the entities of the neighbour's type
    counts: Tensor  # (4,) predicted tokens, sequences of two segments, P, masked mentions
    # validation (P, R) the neighbour, then others of its type drawn by Q; -1 for none
    ranked: Tensor | None = None
    even: Tensor | None = None  # validation (P, R) the same with others drawn evenly
    places: Places | Any = None  # of a training batch: datamodules.steps.place_batch

    def masks(self) -> dict[str, Tensor]:
        text = {"tokens": self.attention_mask > 0, "predicted": self.mlm_labels != IGNORE}
        return text | {"pairs": self.unmasked.neighbours >= 0}

    def sizes(self) -> dict[str, Any]:
        spans = (self.masked.span, self.unmasked.span, self.infused.span)
        relation = self.unmasked.relation[self.unmasked.neighbours >= 0]
        tokens = int((self.infused.span[:, 2] - self.infused.span[:, 1]).sum())
        return {
            "longest": max(map(longest, spans)),
            "infused": tokens,
            "relations": group_rows(relation),
        }


class SMedBERTExample(NamedTuple):
    """One sequence and its mentions."""

    text: Ordered
    unmasked: np.ndarray  # (m, 3) first token, last token + 1, entity
    masked: np.ndarray  # likewise
    half_told: np.ndarray  # likewise, unmasked ones that take half of their neighbours in
    # draws the negatives of its pairs: whichever micro-batch it is in, they are the same
    rng: np.random.Generator
    held_out: bool  # other entities to rank its neighbours among are drawn, too

    def blank(self) -> SMedBERTExample:
        none = {name: getattr(self, name)[:0] for name in ("unmasked", "masked", "half_told")}
        return self._replace(text=blank(self.text), **none)


def halves(mentions: Mentions, noise: Sequence[np.ndarray]) -> tuple[Mentions, Mentions]:
    """The mentions with half of their neighbours (rounded down), those of the least `noise` (a list
    of (m, K)), and the rest."""
    exists = mentions.neighbours.numpy() >= 0
    order = np.where(exists, np.concatenate(noise), 2.0).argsort(1).argsort(1)
    first = torch.from_numpy(order < exists.sum(1, keepdims=True) // 2)

    def only(which: Tensor) -> Mentions:
        none = {"neighbours": -1, "relation": 0, "direction": 0, "type": -1}
        return mentions._replace(
            **{name: getattr(mentions, name).where(which, value) for name, value in none.items()}
        )

    return only(first), only(~first)


def _draw_negatives(
    draw: Callable[[np.ndarray, int, np.random.Generator], np.ndarray],
    gold: Sequence[np.ndarray],
    n: int,
    rngs: Sequence[np.random.Generator],
) -> np.ndarray:
    """`n` drawn entities for each of `gold`, by the random numbers of its sequence."""
    return np.concatenate(
        [draw(entities, n, rng) for entities, rng in zip(gold, rngs, strict=True)]
    )


class SMedBERTData(OrderedText):
    """Linked text with neighbours as masked batches.

    neighbours   folder of the :class:`NeighbourTable` (``kepl graph neighbours``)
    k            neighbours a mention at most (the paper's 10)
    infused      share of the unmasked mentions that take half of their neighbours in and are asked
                 for the others: the same ones would give the answer away; 0: masked ones alone take
                 knowledge in, as in the paper
    n_negatives  negatives a pair (the released code's 35)
    The rest as in :class:`OrderedText`.

    Raises InputError when the parts do not belong together, or the batch size does not divide.
    """

    def __init__(
        self,
        neighbours: str,
        k: int = 10,
        infused: float = 0.0,
        n_negatives: int = 35,
        **text: Any,
    ) -> None:
        super().__init__(**text)
        if not 0 <= infused <= 1:
            raise InputError(f"infused {infused}: expected a share from 0 to 1")
        self.neighbours, self.k, self.infused = neighbours, k, infused
        self.n_negatives = n_negatives

    def set_up(self, graph: KnowledgeGraph) -> None:
        self.table = NeighbourTable.load(self.neighbours)
        self.table.check_graph(graph.ids, self.graph)
        if self.k > self.table.k:
            raise InputError(
                f"{self.neighbours}: {self.table.k} neighbours an entity, but k is {self.k}. "
                f"Build the table again with --k {self.k}."
            )
        self.kinds, self.types = np.unique(
            np.array(graph.entities["type"].to_pylist()), return_inverse=True
        )
        self.sampler = Sampler(self.types, self.frequency)

    def find_neighbours(self, spans: np.ndarray) -> Mentions:
        """Mentions of rows (m, 4): sequence, first token, last token + 1, entity."""
        entity = spans[:, 3]
        return mentions(
            spans[:, :3], entity, np.asarray(self.table[entity])[:, : self.k], self.types
        )

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> SMedBERTExample:
        text, moved, hidden = self.read_sequence(index, rng)
        half_told = (
            ~hidden & (rng.random(len(hidden)) < self.infused)
            if self.infused
            else np.zeros(len(hidden), bool)
        )
        return SMedBERTExample(
            text, moved[~hidden & ~half_told], moved[hidden], moved[half_told], rng, held_out
        )

    def collate(self, examples: list[SMedBERTExample]) -> SMedBERTBatch:
        texts, plain, hidden, half_told, rngs, _ = zip(*examples, strict=True)
        text = self.texts(texts)
        unmasked = self.find_neighbours(number_rows(plain, 3))
        hidden_ones = self.find_neighbours(number_rows(hidden, 3))
        halved = self.find_neighbours(number_rows(half_told, 3))
        neighbours = torch.cat([unmasked.neighbours, halved.neighbours])
        halved, rest = halves(
            halved, [r.random((len(t), self.k)) for t, r in zip(half_told, rngs, strict=True)]
        )
        mentions = Mentions(*(torch.cat(parts) for parts in zip(unmasked, rest, strict=True)))
        order = torch.argsort(mentions.span[:, 0], stable=True)  # negatives are drawn by sequence
        order = order[(mentions.neighbours[order] >= 0).any(1)]
        unmasked, near = Mentions(*(part[order] for part in mentions)), neighbours[order].numpy()
        gold_of = unmasked.neighbours.numpy()
        pair, place = (gold_of >= 0).nonzero()
        gold = gold_of[pair, place]
        row = unmasked.span[:, 0].numpy()[pair]
        entities = [gold[row == r] for r in range(len(examples))]
        drawn = _draw_negatives(self.sampler.draw, entities, self.n_negatives, rngs)
        candidates = np.concatenate([gold[:, None], without_neighbours(drawn, near[pair])], axis=1)
        log_q = np.concatenate(
            [self.sampler.log_q[gold][:, None], self.sampler.log_q[drawn]], axis=1
        )
        counts = [
            (text.mlm_labels >= 0).sum(),
            (text.order >= 0).sum(),
            len(gold),
            len(hidden_ones.span),
        ]
        result = SMedBERTBatch(
            *text,
            hidden_ones,
            unmasked,
            Mentions(*(torch.cat(parts) for parts in zip(hidden_ones, halved, strict=True))),
            torch.from_numpy(candidates),
            torch.from_numpy(log_q.astype(np.float32)),
            torch.tensor(counts, dtype=torch.float32),
        )
        if not examples[0].held_out:
            return result
        n = RANKED - 1
        drawn = _draw_negatives(self.sampler.draw, entities, n, rngs)
        even = _draw_negatives(self.sampler.others, entities, n, rngs)
        others = once(without_neighbours(drawn, near[pair])), without_neighbours(even, near[pair])
        ranked, even = (np.concatenate([gold[:, None], other], axis=1) for other in others)
        return result._replace(ranked=torch.from_numpy(ranked), even=torch.from_numpy(even))

    def export(self, folder: str | Path) -> None:
        """Write what an :class:`OrderedText` does, entity types, the neighbour table, and how many
        of them count into `folder`."""
        super().export(folder)
        save_array(folder, "types", self.types)
        shutil.copytree(self.neighbours, Path(folder) / "neighbours")
        write_json(Path(folder) / "linker.json", {"k": self.k})
