"""Batches for KeBioLM's pre-training (Yuan et al., BioNLP 2021, Sections 3.2, 3.3 and 4.1).

What a batch holds is a function of (seed, step, example) alone: data order and masks do not depend on the number of
processes, of accumulated batches or of workers, and a resumed run continues with exactly the batches it still owes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import PreTrainedTokenizerFast

from datamodules.corpus import Corpus
from datamodules.masking import IGNORE, masked, units
from datamodules.tokenizers import load_tokenizer, tokenizer_fingerprint
from kg.embeddings import EmbeddingTable
from kg.files import InputError, written
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


class _Steps(Sampler[int]):
    """Numbers of optimiser steps: `length` of them from `start()` on, which is asked for at each new iteration."""

    def __init__(self, length: int, data: KeBioLMData) -> None:
        self.length, self.data = length, data

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        start = self.data.trainer.global_step if self.data.trainer is not None else 0
        yield from range(start, start + self.length)


class _Windows(Dataset[list[KeBioLMBatch]]):
    """Item s: the micro-batches that this process accumulates in optimiser step s."""

    def __init__(self, data: KeBioLMData, rank: int, world: int, accumulate: int) -> None:
        self.data, self.rank, self.world, self.accumulate = data, rank, world, accumulate

    def __getitem__(self, step: int) -> list[KeBioLMBatch]:
        epoch, position = divmod(step, self.data.steps_per_epoch)
        shares = self.data.order(epoch)[position].reshape(self.world, self.accumulate, -1)[self.rank]
        batches = [self.data.batch(share, epoch) for share in shares]
        counts = torch.stack([b.counts for b in batches]).sum(0)
        return [b._replace(counts=counts) for b in batches]


class _Flat:
    """Iterates the micro-batches of a loader of windows; what Lightning takes for the training loader."""

    def __init__(self, loader: DataLoader, accumulate: int) -> None:
        self.loader, self.accumulate = loader, accumulate

    def __len__(self) -> int:
        return len(self.loader) * self.accumulate

    def __iter__(self) -> Iterator[KeBioLMBatch]:
        for window in self.loader:
            yield from window


class KeBioLMData(pl.LightningDataModule):
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
        if corpus.manifest["settings"]["max_length"] > self.max_length:
            raise InputError(
                f"{self.corpus_folder}: sequences of up to {corpus.manifest['settings']['max_length']} tokens, "
                f"but max_length is {self.max_length}. Build the corpus with --max_length {self.max_length}."
            )
        self.seen = corpus.seen_entities(len(table.entity_ids))
        special = set(self.tokenizer.all_special_ids)
        self.random_ids = np.array([i for i in range(len(self.tokenizer)) if i not in special])
        self.train_indices, self.held_out_indices = corpus.indices(False), corpus.indices(True)
        self.train_indices = self.train_indices[corpus.mention_counts[self.train_indices] >= self.min_mentions]
        if not len(self.held_out_indices):
            raise InputError(
                f"{self.corpus_folder}: no text is held out for validation. Use more text, or build the corpus again with a "
                "larger --held_out share."
            )
        if len(self.train_indices) < self.batch_size:
            raise InputError(
                f"{self.corpus_folder}: {len(self.train_indices)} training sequences are fewer than one "
                f"batch of {self.batch_size}. Use more text or a smaller batch_size."
            )
        self.corpus = corpus

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one pass over the training text; what is left over after whole batches waits its turn."""
        return len(self.train_indices) // self.batch_size

    @lru_cache(maxsize=2)  # noqa: B019  one data module lives as long as its run
    def order(self, epoch: int) -> np.ndarray:
        """(steps, batch_size) sequence numbers of an epoch: shuffled, batches of similar length, in random order."""
        assert self.corpus is not None
        rng = np.random.default_rng([self.seed, epoch])
        chosen = rng.permutation(self.train_indices)[: self.steps_per_epoch * self.batch_size]
        pool = 50 * self.batch_size
        sorted_pools = [
            p[np.argsort(self.corpus.lengths[p], kind="stable")]
            for p in (chosen[i : i + pool] for i in range(0, len(chosen), pool))
        ]
        return rng.permutation(np.concatenate(sorted_pools).reshape(-1, self.batch_size))

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

    def train_dataloader(self) -> _Flat:
        rank, world, accumulate = 0, 1, 1
        if self.trainer is not None:
            rank, world = self.trainer.global_rank, self.trainer.world_size
            accumulate = self.trainer.accumulate_grad_batches
        if self.batch_size % (world * accumulate):
            raise InputError(
                f"batch_size {self.batch_size} cannot be shared by {world} processes x {accumulate} accumulated "
                "batches. Choose numbers whose product divides it."
            )
        windows = _Windows(self, rank, world, accumulate)
        return _Flat(
            DataLoader(
                windows,
                batch_size=None,
                sampler=_Steps(self.steps_per_epoch, self),
                num_workers=self.num_workers,
                persistent_workers=False,
            ),
            accumulate,
        )

    def val_dataloader(self) -> DataLoader:
        """Every held-out sequence once, over all processes; equally many batches for each."""
        assert self.corpus is not None
        rank, world = (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        order = self.held_out_indices[np.argsort(self.corpus.lengths[self.held_out_indices], kind="stable")]
        shares = [order[i : i + self.eval_batch_size] for i in range(0, len(order), self.eval_batch_size)]
        rounds = -(-len(shares) // world)
        own = [shares[r * world + rank] if r * world + rank < len(shares) else None for r in range(rounds)]
        batches = _Held(self, own)
        return DataLoader(batches, batch_size=None, num_workers=self.num_workers)

    def export(self, folder: str | Path) -> None:
        """Write tokenizer, the entities' ids in the order of the table's rows, and the graph's names into `folder`."""
        self.tokenizer.save_pretrained(folder)
        table = EmbeddingTable.load(self.entities)
        with written(Path(folder) / "entities.txt") as handle:
            handle.writelines(f"{i}\n" for i in table.entity_ids)
        if self.graph is not None:
            for name in ("entities", "names"):
                shutil.copyfile(Path(self.graph) / f"{name}.parquet", Path(folder) / f"{name}.parquet")


class _Held(Dataset[KeBioLMBatch]):
    def __init__(self, data: KeBioLMData, shares: list[np.ndarray | None]) -> None:
        self.data, self.shares = data, shares

    def __len__(self) -> int:
        return len(self.shares)

    def __getitem__(self, i: int) -> KeBioLMBatch:
        share = self.shares[i]
        if share is None:
            return self.data.batch(self.data.held_out_indices[:1], -1, blank=True)
        return self.data.batch(share, -1)
