"""Batches for KeBioLM's pre-training (Yuan et al., BioNLP 2021, Sections 3.2, 3.3 and 4.1).

What a batch holds is a function of (seed, step, example) alone: data order and masks do not depend
on the number of processes, of accumulated batches or of workers, and a resumed run continues with
exactly the batches it still owes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.files import InputError, atomic_write
from datamodules.masking import IGNORE, mask_tokens, units
from datamodules.rows import attention, frame_ids, number_rows, stack_rows
from datamodules.steps import CorpusData, Places
from kg.graph import KnowledgeGraph, fingerprint
from kg.vectors.embeddings import EmbeddingTable

O, B, I = 0, 1, 2  # noqa: E741  the labels' usual names


class KeBioLMBatch(NamedTuple):
    """One micro-batch of B sequences of length L with M mentions in all.

    counts are over the micro-batches that this process accumulates for one step: a loss is its sum
    over all processes and micro-batches, divided by the all-reduced count.
    """

    input_ids: Tensor  # (B, L) with masked tokens
    original_ids: Tensor  # (B, L) without
    attention_mask: Tensor  # (B, L)
    mlm_labels: Tensor  # (B, L) original id where a token is predicted, else -100
    bio_labels: Tensor  # (B, L) 0 O, 1 B, 2 I; special tokens are O; -100 on padding
    mention: Tensor  # (M, 3) row, first token, last token + 1
    entity: Tensor  # (M,) row of the gold entity in the entity table
    frequency: Tensor  # (M,) how often the training text mentions the entity
    counts: Tensor  # (3,) predicted tokens, labelled tokens, mentions
    places: Places | Any = None  # of a training batch: datamodules.steps.place_batch

    def masks(self) -> dict[str, Tensor]:
        return {"tokens": self.attention_mask > 0, "predicted": self.mlm_labels != IGNORE}


class KeBioLMExample(NamedTuple):
    """One sequence of n tokens and [CLS] and [SEP] around them."""

    ids: np.ndarray  # (n + 2,) with masked tokens
    original: np.ndarray  # (n + 2,) without
    mlm: np.ndarray  # (n + 2,)
    bio: np.ndarray  # (n + 2,)
    mentions: np.ndarray  # (m, 3) first token, last token + 1, entity

    def blank(self) -> KeBioLMExample:
        none = np.full(len(self.ids), IGNORE)
        return self._replace(mlm=none, bio=none, mentions=self.mentions[:0])


class KeBioLMData(CorpusData):
    """Linked text as masked batches.

    entities     folder of the :class:`EmbeddingTable` whose rows are the entities
    batch_size   the paper's 512
    min_mentions sequences with fewer are left out of training, never of validation (the paper names
    no such limit: 0)
    graph        folder of the graph, to check the table against it and to export its names; None:
                 neither
    whole_entity_masking  False masks whole words only (the paper's ablation "-wem")
    The rest as in :class:`datamodules.steps.CorpusData`.

    Raises InputError when corpus, tokenizer and table do not belong together, too.
    """

    def __init__(
        self,
        corpus: str,
        tokenizer: str,
        entities: str,
        max_mentions: int = 50,
        min_mentions: int = 0,
        graph: str | None = None,
        mask: float = 0.12,
        random: float = 0.015,
        keep: float = 0.015,
        whole_entity_masking: bool = True,
        **steps: Any,
    ) -> None:
        super().__init__(corpus, tokenizer, **steps)
        self.entities, self.graph = entities, graph
        self.max_mentions, self.min_mentions = max_mentions, min_mentions
        self.rates = {"mask": mask, "random": random, "keep": keep}
        self.whole_entity_masking = whole_entity_masking

    def read(self) -> None:
        table = EmbeddingTable.load(self.entities)
        made_with = table.manifest.get("graph")
        if self.graph is not None:
            graph = KnowledgeGraph.load(self.graph)
            table.check_graph(graph.ids, self.graph)
            self.read_control(graph)
            # the vectors may be of other triples of the same entities (a permuted graph)
            made_with = fingerprint(self.graph)
        elif self.control is not None:
            raise InputError(f"control {self.control}: it exchanges a graph's entities; give graph")
        self.read_corpus(made_with)
        self.frequency = self.entity_counts(len(table.entity_ids))  # (E,)
        special = set(self.tokenizer.all_special_ids)
        self.random_ids = np.array([i for i in range(len(self.tokenizer)) if i not in special])

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> KeBioLMExample:
        sequence = self.sequence(index)
        spans = sequence.mentions[:, :2]
        unit = units(sequence.word_start, spans if self.whole_entity_masking else spans[:0])
        ids, labels = mask_tokens(
            sequence.ids, unit, rng, self.mask_id, self.random_ids, **self.rates
        )
        bio = np.full(len(ids) + 2, O)
        for start, end in spans + 1:
            bio[start], bio[start + 1 : end] = B, I
        mentions = sequence.mentions[: self.max_mentions] + np.array([1, 1, 0])
        original = frame_ids(sequence.ids, self.tokenizer)
        return KeBioLMExample(
            frame_ids(ids, self.tokenizer),
            original,
            np.pad(labels, 1, constant_values=IGNORE),
            bio,
            mentions,
        )

    def collate(self, examples: list[KeBioLMExample]) -> KeBioLMBatch:
        assert isinstance(self.tokenizer.pad_token_id, int)
        ids, original, mlm, bio, mentions = zip(*examples, strict=True)
        labels, outside = stack_rows(mlm, IGNORE), stack_rows(bio, IGNORE)
        flat = number_rows(mentions, 3)
        counts = np.array(
            [(labels != IGNORE).sum(), (outside != IGNORE).sum(), len(flat)], np.float32
        )
        pad = self.tokenizer.pad_token_id
        arrays = (
            stack_rows(ids, pad),
            stack_rows(original, pad),
            attention(ids),
            labels,
            outside,
            flat[:, :3],
            flat[:, 3],
        )
        return KeBioLMBatch(
            *(
                torch.from_numpy(np.ascontiguousarray(a))
                for a in (*arrays, self.frequency[flat[:, 3]], counts)
            )
        )

    def export(self, folder: str | Path) -> None:
        """Write tokenizer, the entities' ids in the order of the table's rows, and the graph's
        names into `folder`."""
        super().export(folder)
        table = EmbeddingTable.load(self.entities)
        with atomic_write(Path(folder) / "entities.txt") as handle:
            handle.writelines(f"{i}\n" for i in table.entity_ids)
        if self.graph is not None:
            for name in ("entities", "names"):
                shutil.copyfile(
                    Path(self.graph) / f"{name}.parquet", Path(folder) / f"{name}.parquet"
                )
