"""Batches as a function of the optimiser step: what every pre-training data module shares.

Data order does not depend on the number of processes, of accumulated batches or of workers, and a
resumed run continues with exactly the batches it still owes. A batch is a NamedTuple with a tensor
`counts`: what its losses are divided by, summed over the micro-batches that one process accumulates
for one step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import PreTrainedTokenizerFast

from core.files import InputError
from datamodules.controls import give_entities
from datamodules.corpus import Corpus
from datamodules.corpus import Example as CorpusExample
from datamodules.tokenizers import load_tokenizer, tokenizer_fingerprint
from kg.graph import KnowledgeGraph


class Stepped(Protocol):
    """A data module whose training steps are numbered."""

    trainer: Any  # None outside of a training
    batch_size: int  # examples per optimiser step over all processes and accumulated batches
    num_workers: int

    @property
    def steps_per_epoch(self) -> int: ...

    def order(self, epoch: int) -> np.ndarray:
        """(steps, batch_size) example numbers of an epoch."""

    def batch(self, indices: np.ndarray, epoch: int, blank: bool = False) -> Any:
        """The examples `indices` as in `epoch` (-1: validation); a `blank` batch has their shapes
        and counts nothing."""


class Example(Protocol):
    """What one example adds to a batch."""

    def blank(self) -> Example:
        """The same without all that counts: labels, mentions."""


class Exampled(Protocol):
    """A data module whose batches are made of examples, each drawn by a generator of its own."""

    seed: int

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> Any:
        """Example number `index` (:class:`Example`); every draw comes from `rng`.  held_out: for
        validation."""

    def collate(self, examples: list[Any]) -> Any:
        """The examples as one batch."""


#: what the host has of a batch: the places of what is True in its masks, and numbers that sizes
#: depend on
Places = Mapping[str, Any]


def place_batch(batch: Any) -> Any:
    """`batch` with its `places`: what its `masks()` have, found on the host, so that no training
    step waits for a GPU to find it.

    A batch without a field `places` stays as it is. The places of a mask are (N,) int64, in the
    flattened mask.
    """
    if not hasattr(batch, "places"):
        return batch
    masks = {name: mask.flatten().nonzero()[:, 0] for name, mask in batch.masks().items()}
    return batch._replace(places=masks | (batch.sizes() if hasattr(batch, "sizes") else {}))


def places(batch: Any, name: str) -> Tensor:
    """(N,) the places of what is True in the batch's mask `name`, flattened; a batch of validation
    has to look for them."""
    positions: Tensor = (
        batch.masks()[name].flatten().nonzero()[:, 0]
        if batch.places is None
        else batch.places[name]
    )
    return positions


def make_batch(data: Exampled, indices: np.ndarray, epoch: int, blank: bool = False) -> Any:
    """The examples `indices`, drawn as in `epoch` (-1: the fixed draws of validation).

    A `blank` batch has the same shapes and counts nothing: processes with fewer batches fill up
    with it.
    """
    examples = [
        data.example(int(i), np.random.default_rng([data.seed, epoch + 1, int(i)]), epoch < 0)
        for i in indices
    ]
    return data.collate([example.blank() for example in examples] if blank else examples)


def sort_pools(chosen: np.ndarray, lengths: np.ndarray, batch_size: int) -> np.ndarray:
    """`chosen` (n,) in pools of 50 batches, each sorted by length; lengths: of all examples, by
    number."""
    pool = 50 * batch_size
    pools = [chosen[i : i + pool] for i in range(0, len(chosen), pool)]
    return np.concatenate([p[np.argsort(lengths[p], kind="stable")] for p in pools])


def length_order(
    indices: np.ndarray, lengths: np.ndarray, batch_size: int, rng: np.random.Generator
) -> np.ndarray:
    """(steps, batch_size) of `indices`: shuffled, batches of similar length, in random order; what
    is left over waits.

    lengths: (examples,) of all examples, by number.
    """
    chosen = rng.permutation(indices)[: len(indices) // batch_size * batch_size]
    return rng.permutation(sort_pools(chosen, lengths, batch_size).reshape(-1, batch_size))


class _Steps(Sampler[int]):
    """Numbers of optimiser steps: an epoch of them from the trainer's step, which is read at each
    new iteration."""

    def __init__(self, data: Stepped) -> None:
        self.length, self.data = data.steps_per_epoch, data

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        start = self.data.trainer.global_step if self.data.trainer is not None else 0
        yield from range(start, start + self.length)


class _Windows(Dataset[list[Any]]):
    """Item s: the micro-batches that this process accumulates in optimiser step s."""

    def __init__(self, data: Stepped, rank: int, world: int, accumulate: int) -> None:
        self.data, self.rank, self.world, self.accumulate = data, rank, world, accumulate

    def __getitem__(self, step: int) -> list[Any]:
        epoch, position = divmod(step, self.data.steps_per_epoch)
        shares = self.data.order(epoch)[position].reshape(self.world, self.accumulate, -1)[
            self.rank
        ]
        batches = [self.data.batch(share, epoch) for share in shares]
        counts = torch.stack([b.counts for b in batches]).sum(0)
        return [place_batch(b._replace(counts=counts)) for b in batches]


class Flat:
    """Iterates the micro-batches of a loader of windows; what Lightning uses as the training
    loader."""

    def __init__(self, loader: DataLoader, accumulate: int) -> None:
        self.loader, self.accumulate = loader, accumulate

    def __len__(self) -> int:
        return len(self.loader) * self.accumulate

    def __iter__(self) -> Iterator[Any]:
        for window in self.loader:
            yield from window


class _Held(Dataset[Any]):
    """Batches of validation; None is a blank one, with which a process that has fewer fills up."""

    def __init__(self, data: Stepped, shares: list[np.ndarray | None], filler: np.ndarray) -> None:
        self.data, self.shares, self.filler = data, shares, filler

    def __len__(self) -> int:
        return len(self.shares)

    def __getitem__(self, i: int) -> Any:
        share = self.shares[i]
        return (
            self.data.batch(self.filler, -1, blank=True)
            if share is None
            else self.data.batch(share, -1)
        )


def train_batches(data: Stepped) -> Flat:
    """This process's share of every training step. Raises InputError when the batch size does not
    divide."""
    rank, world, accumulate = 0, 1, 1
    if data.trainer is not None:
        rank, world = data.trainer.global_rank, data.trainer.world_size
        accumulate = data.trainer.accumulate_grad_batches
    if data.batch_size % (world * accumulate):
        raise InputError(
            f"batch_size {data.batch_size} cannot be shared by {world} processes x {accumulate}"
            " accumulated batches. Choose numbers whose product divides it."
        )
    loader: DataLoader = DataLoader(
        _Windows(data, rank, world, accumulate),
        batch_size=None,
        sampler=_Steps(data),
        num_workers=data.num_workers,
        persistent_workers=False,
    )
    return Flat(loader, accumulate)


def held_out_batches(
    data: Stepped, indices: np.ndarray, lengths: np.ndarray, batch_size: int
) -> DataLoader:
    """Every example of `indices` once, over all processes; equally many batches for each."""
    rank, world = (
        (0, 1) if data.trainer is None else (data.trainer.global_rank, data.trainer.world_size)
    )
    order = indices[np.argsort(lengths[indices], kind="stable")]
    shares = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    rounds = -(-len(shares) // world)
    batches = [
        shares[r * world + rank] if r * world + rank < len(shares) else None for r in range(rounds)
    ]
    return DataLoader(
        _Held(data, batches, indices[:1]), batch_size=None, num_workers=data.num_workers
    )


class StepData(pl.LightningDataModule):
    """Examples as numbered steps: the base of the data modules.

    folder           what the examples are read from
    tokenizer        the encoder's: a folder or hub name
    batch_size       examples per optimiser step over all processes and accumulated batches
    eval_batch_size  examples a batch of validation
    num_workers      processes that make batches
    seed             of all draws

    A subclass sets what is listed here in :meth:`read`, and has ``example`` and ``collate``
    (:class:`Exampled`).

    Raises InputError when the examples are fewer than one batch, or the batch size does not divide.
    """

    tokenizer: PreTrainedTokenizerFast
    train_indices: np.ndarray
    held_out_indices: np.ndarray
    lengths: np.ndarray  # (examples,) tokens, about
    validation_size: int | None = None  # held-out examples that validation uses at most

    def __init__(
        self,
        folder: str,
        tokenizer: str,
        batch_size: int,
        eval_batch_size: int = 64,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.folder, self.tokenizer_name = folder, tokenizer
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.num_workers, self.seed = num_workers, seed
        self.is_read = False

    def setup(self, stage: str | None = None) -> None:
        """Load the tokenizer and read the examples, once."""
        if self.is_read:
            return
        self.tokenizer = load_tokenizer(self.tokenizer_name)
        self.read()
        if len(self.train_indices) < self.batch_size:
            raise InputError(
                f"{self.folder}: {len(self.train_indices)} training examples are fewer than one"
                f" batch of {self.batch_size}. Use more data or a smaller batch_size (ARGS="
                f'"--data.init_args.batch_size {max(1, len(self.train_indices) // 4)}").'
            )
        self.is_read = True

    def read(self) -> None:
        """Read the examples; the tokenizer is loaded already."""
        raise NotImplementedError

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> Any:
        raise NotImplementedError

    def collate(self, examples: list[Any]) -> Any:
        raise NotImplementedError

    def batch(self, indices: np.ndarray, epoch: int, blank: bool = False) -> Any:
        """:func:`make_batch`."""
        return make_batch(self, indices, epoch, blank)

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one pass over the training examples; what is left over after whole
        batches waits its turn."""
        return len(self.train_indices) // self.batch_size

    @lru_cache(maxsize=2)  # noqa: B019  one data module lives as long as its run
    def order(self, epoch: int) -> np.ndarray:
        """(steps, batch_size) example numbers of an epoch: shuffled, batches of similar length, in
        random order."""
        rng = np.random.default_rng([self.seed, epoch])
        return length_order(self.train_indices, self.lengths, self.batch_size, rng)

    def train_dataloader(self) -> Flat:
        return train_batches(self)

    def val_dataloader(self) -> DataLoader:
        """Every held-out example once, over all processes; equally many batches for each.

        With a `validation_size`, so many of them, drawn by the seed 0 whatever the run's.
        """
        chosen = self.held_out_indices
        if self.validation_size is not None and self.validation_size < len(chosen):
            chosen = np.sort(
                np.random.default_rng(0).choice(chosen, self.validation_size, replace=False)
            )
        return held_out_batches(self, chosen, self.lengths, self.eval_batch_size)

    def export(self, folder: str | Path) -> None:
        """Write the tokenizer into `folder`."""
        self.tokenizer.save_pretrained(folder)


class CorpusData(StepData):
    """Steps over a corpus: the base of the data modules of linked text.

    corpus      folder that `kepl data corpus` wrote
    max_length  tokens a sequence, with special ones
    control     what is given in place of the entities that the text names
                (:mod:`datamodules.controls`); None: themselves
    The rest as in :class:`StepData`.

    A subclass calls :meth:`read_corpus` in its ``read``. Raises InputError when corpus and
    tokenizer do not belong together, too.
    """

    corpus: Corpus
    min_mentions = 0  # sequences with fewer are left out of training, never of validation

    def __init__(
        self,
        corpus: str,
        tokenizer: str,
        batch_size: int,
        max_length: int = 512,
        control: str | None = None,
        **steps: Any,
    ) -> None:
        super().__init__(corpus, tokenizer, batch_size, **steps)
        self.max_length, self.control = max_length, control
        self.exchanged_for: np.ndarray | None = None  # (Z,) the entity in place of each

    def read_corpus(self, graph: str | None = None, special: int = 0) -> None:
        """Open the corpus, which is linked with the graph of that fingerprint, for examples of
        `special` more tokens than [CLS] and [SEP] around a sequence."""
        self.corpus = Corpus(self.folder, tokenizer_fingerprint(self.tokenizer), graph)
        self.corpus.check_length(self.max_length, special)
        self.train_indices, self.held_out_indices = self.corpus.divide(self.min_mentions)
        self.lengths = self.corpus.lengths

    def read_control(self, graph: KnowledgeGraph) -> None:
        """Exchange the entities of `graph` as `control` says. Raises InputError for no control."""
        if self.control is not None:
            self.exchanged_for = give_entities(self.control, graph)

    def sequence(self, index: int) -> CorpusExample:
        """Sequence number `index`, with the entities that are given."""
        text = self.corpus[index]
        if self.exchanged_for is None:
            return text
        mentions = text.mentions.copy()
        mentions[:, 2] = self.exchanged_for[mentions[:, 2]]
        return text._replace(mentions=mentions)

    def entity_counts(self, entities: int) -> np.ndarray:
        """(entities,) int64: how often each is given in the training text."""
        counts = self.corpus.entity_counts(entities)
        if self.exchanged_for is None:
            return counts
        return np.bincount(self.exchanged_for, counts, entities).astype(np.int64)

    @property
    def mask_id(self) -> int:
        """The id of [MASK]."""
        assert isinstance(self.tokenizer.mask_token_id, int)
        return self.tokenizer.mask_token_id
