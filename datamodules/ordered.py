"""Linked text in two segments whose order is to be predicted: what SMedBERT, ERNIE and KnowBERT are
trained on.

A sequence is cut near its middle, at the end of a sentence where there is one, and its halves are
swapped half of the time (sentence-order prediction, Lan et al., ICLR 2020); mentions are masked
whole. Order and masks are the first draws of an example, so models that are compared see the same
ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.files import atomic_write
from datamodules.controls import GIVEN
from datamodules.corpus import Example
from datamodules.masking import IGNORE, mask_tokens, units
from datamodules.rows import attention, stack_rows
from datamodules.segments import cut_place, ends_of_sentences, place_segments
from datamodules.steps import CorpusData
from datamodules.tokenizers import replacements
from kg.graph import KnowledgeGraph, fingerprint
from kg.vectors.embeddings import EmbeddingTable


class Ordered(NamedTuple):
    """One sequence of n tokens with [CLS], [SEP] and, between two segments, another [SEP]."""

    ids: np.ndarray  # (n + 2 or 3,) with masked tokens
    original: np.ndarray  # likewise, without
    second: np.ndarray  # likewise, True on the second segment
    labels: np.ndarray  # likewise, the original id where a token is predicted, else -100
    order: int  # 1 where the segments are swapped, 0 where not, -100 where there is only one


class OrderedBatch(NamedTuple):
    """The sequences of a micro-batch, B of length L."""

    input_ids: Tensor  # (B, L) with masked tokens
    original_ids: Tensor  # (B, L) without
    attention_mask: Tensor  # (B, L)
    second: Tensor  # (B, L) 1 on the second of the two segments
    mlm_labels: Tensor  # (B, L) original id where a token is predicted, else -100
    # (B,) 1 where the segments are swapped, 0 where not, -100 where there is only one
    order: Tensor


class OrderedText(CorpusData):
    """A corpus of linked text, and the graph that it is linked with.

    corpus       folder that `kepl data corpus` wrote, one token shorter than
                 `max_length`
    graph        folder of the graph that the corpus is linked with: entity types and names
    entities     folder of the :class:`EmbeddingTable` whose rows are the graph's entities
    max_mentions mentions a sequence that are used; more are left out
    min_mentions sequences with fewer are left out of training, never of validation
    mask, random, keep  shares of tokens that are hidden, replaced and left, all to be predicted;
    one draw a mention
    validation_size  held-out sequences that validation uses at most; None: all
    The rest as in :class:`datamodules.steps.CorpusData`.

    Raises InputError when the parts do not belong together, too.
    """

    def __init__(
        self,
        corpus: str,
        tokenizer: str,
        graph: str,
        entities: str,
        max_mentions: int = 30,
        min_mentions: int = 0,
        mask: float = 0.12,
        random: float = 0.015,
        keep: float = 0.015,
        validation_size: int | None = None,
        **steps: Any,
    ) -> None:
        super().__init__(corpus, tokenizer, **steps)
        self.graph, self.entities = graph, entities
        self.max_mentions, self.min_mentions = max_mentions, min_mentions
        self.rates = {"mask": mask, "random": random, "keep": keep}
        self.validation_size = validation_size

    def read(self) -> None:
        graph = KnowledgeGraph.load(self.graph)
        EmbeddingTable.load(self.entities).check_graph(graph.ids, self.graph)
        self.read_corpus(fingerprint(self.graph), 1)
        # (Z,) how often the training text mentions each
        self.read_control(graph)
        self.frequency = self.entity_counts(len(graph.entities))
        self.set_up(graph)
        self.random_ids = replacements(self.tokenizer)
        self.end_ids = ends_of_sentences(self.tokenizer)

    def set_up(self, graph: KnowledgeGraph) -> None:
        """What a subclass makes of the graph, and of `frequency`."""

    def read_sequence(
        self, index: int, rng: np.random.Generator
    ) -> tuple[Ordered, np.ndarray, np.ndarray]:
        """(sequence number `index`, its mentions (m, 3) first token, last + 1, entity, (m,) bool
        which are masked)."""
        sequence = self.sequence(index)
        n, cut = len(sequence.ids), self.cut(sequence)
        swap = bool(rng.random() < 0.5)
        unit = units(sequence.word_start, sequence.mentions[:, :2])
        ids, predicted = mask_tokens(
            sequence.ids, unit, rng, self.mask_id, self.random_ids, **self.rates
        )
        place, whole = place_segments(n, cut, swap), n + 2 + (cut > 0)
        first_part = n - cut if swap else cut
        middle = first_part + 1 if cut else whole
        rows = np.full((2, whole), self.tokenizer.sep_token_id, np.int64)
        rows[:, 0], rows[0, place], rows[1, place] = self.tokenizer.cls_token_id, ids, sequence.ids
        labels = np.full(whole, IGNORE, np.int64)
        labels[place] = predicted
        spans = sequence.mentions[: self.max_mentions].astype(np.int64)
        start, hidden = place[spans[:, 0]], predicted[spans[:, 0]] != IGNORE
        moved = np.stack([start, start + spans[:, 1] - spans[:, 0], spans[:, 2]], axis=1)
        text = Ordered(
            rows[0], rows[1], np.arange(whole) > middle, labels, int(swap) if cut else IGNORE
        )
        return text, moved, hidden

    def cut(self, example: Example) -> int:
        return cut_place(
            example.word_start, example.mentions[:, :2], np.isin(example.ids, self.end_ids)
        )

    def texts(self, examples: Sequence[Ordered]) -> OrderedBatch:
        """The sequences as tensors."""
        assert isinstance(self.tokenizer.pad_token_id, int)
        ids, original, second, labels, order = zip(*examples, strict=True)
        arrays = (
            stack_rows(ids, self.tokenizer.pad_token_id),
            stack_rows(original, self.tokenizer.pad_token_id),
            attention(ids),
            stack_rows(second, 0),
            stack_rows(labels, IGNORE),
            np.array(order, np.int64),
        )
        return OrderedBatch(*map(torch.from_numpy, arrays))

    def export(self, folder: str | Path) -> None:
        """Write tokenizer, the graph's entities and names, how many triples each entity has, and
        the entities of a control, into `folder`."""
        super().export(folder)
        for name in ("entities", "names"):
            shutil.copyfile(Path(self.graph) / f"{name}.parquet", Path(folder) / f"{name}.parquet")
        save_array(folder, "degree", KnowledgeGraph.load(self.graph).degree())
        if self.exchanged_for is not None:
            save_array(folder, GIVEN.removesuffix(".npy"), self.exchanged_for)


def blank(text: Ordered) -> Ordered:
    """The sequence with nothing to predict."""
    return text._replace(labels=np.full(len(text.labels), IGNORE), order=IGNORE)


def save_array(folder: str | Path, name: str, values: Any) -> None:
    """Write integers as <name>.npy into an export."""
    with atomic_write(Path(folder) / f"{name}.npy", "wb") as handle:
        np.save(handle, np.asarray(values, np.int64), allow_pickle=False)
