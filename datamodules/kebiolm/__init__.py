"""Batches for KeBioLM's pre-training (Yuan et al., BioNLP 2021, Sections 3.2, 3.3 and 4.1).

What a batch holds is a function of (seed, step, example) alone: data order and masks do not depend on the number of
processes, of accumulated batches or of workers, and a resumed run continues with exactly the batches it still owes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from core.files import written
from datamodules.corpus import Corpus
from datamodules.masking import IGNORE, masked, units
from datamodules.steps import CorpusData
from datamodules.tokenizers import load_tokenizer, tokenizer_fingerprint
from kg.embeddings import EmbeddingTable
from kg.graph import KnowledgeGraph

O, B, I = 0, 1, 2  # noqa: E741  the labels' usual names


class KeBioLMBatch(NamedTuple):
    """One micro-batch of B sequences of length L with M mentions in all.

    counts are over the micro-batches that this process accumulates for one step: a loss is its sum over all processes
    and micro-batches, divided by the all-reduced count.
    """

    input_ids: Tensor  # (B, L) with masked tokens
    original_ids: Tensor  # (B, L) without
    attention_mask: Tensor  # (B, L)
    mlm_labels: Tensor  # (B, L) original id where a token is predicted, else -100
    bio_labels: Tensor  # (B, L) 0 O, 1 B, 2 I; special tokens are O; -100 on padding
    mention: Tensor  # (M, 3) row, first token, last token + 1
    entity: Tensor  # (M,) row of the gold entity in the entity table
    seen: Tensor  # (M,) bool: the entity is mentioned in the training text
    counts: Tensor  # (3,) predicted tokens, labelled tokens, mentions


class KeBioLMData(CorpusData):
    """Linked text as masked batches.

    corpus       folder that ``python -m datamodules.corpus`` wrote
    tokenizer    the encoder's tokenizer: a folder or hub name
    entities     folder of the :class:`EmbeddingTable` whose rows are the entities
    batch_size   sequences per optimiser step over all processes and accumulated batches (the paper's 512)
    min_mentions sequences with fewer are left out of training, never of validation (the paper names no such limit: 0)
    graph        folder of the graph, to check the table against it and to export its names; None: neither
    whole_entity_masking  False masks whole words only (the paper's ablation "-wem")

    Raises InputError when corpus, tokenizer and table do not belong together, or the batch size does not divide.
    """

    def __init__(
        self,
        corpus: str,
        tokenizer: str,
        entities: str,
        batch_size: int = 512,
        max_length: int = 512,
        max_mentions: int = 50,
        min_mentions: int = 0,
        graph: str | None = None,
        mask: float = 0.12,
        random: float = 0.015,
        keep: float = 0.015,
        whole_entity_masking: bool = True,
        eval_batch_size: int = 64,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.corpus_folder, self.tokenizer_name, self.entities, self.graph = corpus, tokenizer, entities, graph
        self.batch_size, self.max_length = batch_size, max_length
        self.max_mentions, self.min_mentions = max_mentions, min_mentions
        self.rates = {"mask": mask, "random": random, "keep": keep}
        self.whole_entity_masking = whole_entity_masking
        self.eval_batch_size, self.num_workers, self.seed = eval_batch_size, num_workers, seed
        self.corpus: Corpus | None = None

    def setup(self, stage: str | None = None) -> None:
        if self.corpus is not None:
            return
        self.tokenizer: PreTrainedTokenizerFast = load_tokenizer(self.tokenizer_name)
        table = EmbeddingTable.load(self.entities)
        if self.graph is not None:
            table.check_graph(KnowledgeGraph.load(self.graph).ids, self.graph)
        corpus = Corpus(self.corpus_folder, tokenizer_fingerprint(self.tokenizer), table.manifest.get("graph"))
        corpus.check_length(self.max_length)
        self.seen = corpus.seen_entities(len(table.entity_ids))
        special = set(self.tokenizer.all_special_ids)
        self.random_ids = np.array([i for i in range(len(self.tokenizer)) if i not in special])
        self.train_indices, self.held_out_indices = corpus.divided(self.batch_size, self.min_mentions)
        self.corpus = corpus

    def batch(self, indices: np.ndarray, epoch: int, blank: bool = False) -> KeBioLMBatch:
        """The sequences `indices`, masked as in `epoch` (-1: the fixed masks of validation).

        A `blank` batch has the same shapes and counts nothing: processes with fewer batches fill up with it.
        """
        assert self.corpus is not None
        cls, sep, pad = (getattr(self.tokenizer, f"{t}_token_id") for t in ("cls", "sep", "pad"))
        assert isinstance(self.tokenizer.mask_token_id, int)
        examples = [self.corpus[int(i)] for i in indices]
        shape = (len(examples), max(len(e.ids) for e in examples) + 2)
        original, corrupted = np.full(shape, pad, np.int64), np.full(shape, pad, np.int64)
        attention = np.zeros(shape, np.int64)
        mlm, bio = np.full(shape, IGNORE, np.int64), np.full(shape, IGNORE, np.int64)
        mentions: list[np.ndarray] = []
        for row, (index, example) in enumerate(zip(indices, examples, strict=True)):
            n, spans = len(example.ids), example.mentions[:, :2]
            rng = np.random.default_rng([self.seed, epoch + 1, int(index)])
            unit = units(example.word_start, spans if self.whole_entity_masking else spans[:0])
            ids, labels = masked(example.ids, unit, rng, self.tokenizer.mask_token_id, self.random_ids, **self.rates)
            for array, inner in ((original, example.ids), (corrupted, ids)):
                array[row, 0], array[row, 1 : n + 1], array[row, n + 1] = cls, inner, sep
            attention[row, : n + 2] = 1
            if blank:
                continue
            mlm[row, 1 : n + 1] = labels
            bio[row, : n + 2] = O
            for start, end in spans + 1:
                bio[row, start], bio[row, start + 1 : end] = B, I
            kept = example.mentions[: self.max_mentions]
            mentions.append(np.concatenate([np.full((len(kept), 1), row), kept + np.array([1, 1, 0])], axis=1))
        flat = np.concatenate(mentions) if mentions else np.zeros((0, 4), np.int64)
        counts = [(mlm != IGNORE).sum(), (bio != IGNORE).sum(), len(flat)]
        arrays = (
            corrupted,
            original,
            attention,
            mlm,
            bio,
            flat[:, :3].astype(np.int64),
            flat[:, 3].astype(np.int64),
            self.seen[flat[:, 3].astype(np.int64)],
            np.array(counts, np.float32),
        )
        return KeBioLMBatch(*(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays))

    def export(self, folder: str | Path) -> None:
        """Write tokenizer, the entities' ids in the order of the table's rows, and the graph's names into `folder`."""
        self.tokenizer.save_pretrained(folder)
        table = EmbeddingTable.load(self.entities)
        with written(Path(folder) / "entities.txt") as handle:
            handle.writelines(f"{i}\n" for i in table.entity_ids)
        if self.graph is not None:
            for name in ("entities", "names"):
                shutil.copyfile(Path(self.graph) / f"{name}.parquet", Path(folder) / f"{name}.parquet")
