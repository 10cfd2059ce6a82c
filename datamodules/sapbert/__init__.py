"""Batches of name pairs for SapBERT's pre-training (Liu et al., NAACL 2021, Sections 2 and A.3)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from core.files import InputError
from datamodules.sapbert.name_pairs import Pairs
from datamodules.steps import Places, StepData
from datamodules.tokenizers import tokenizer_fingerprint


def length_groups(lengths: np.ndarray, most: int) -> list[slice]:
    """At most `most` runs of ascending `lengths` such that padding each to its longest needs the
    fewest tokens."""
    sizes, begin = np.unique(lengths, return_index=True)
    edges = np.append(begin, len(lengths))  # where each length begins
    # cost of the first j lengths
    best = np.where(np.arange(len(edges)) == 0, 0, np.iinfo(np.int64).max // 2)
    back: list[np.ndarray] = []
    for _ in range(min(most, len(sizes))):
        # (i, j): lengths i … j in a group
        cost = best[:-1, None] + (edges[None, 1:] - edges[:-1, None]) * sizes[None]
        cost[np.tril_indices(len(sizes), -1)] = np.iinfo(np.int64).max // 2
        back.append(cost.argmin(0))
        best = np.concatenate([[np.iinfo(np.int64).max // 2], cost.min(0)])
    end, groups = len(sizes), []
    for choice in reversed(back):
        start = int(choice[end - 1])
        groups.append(slice(int(edges[start]), int(edges[end])))
        end = start
    return groups[::-1]


def group_similar(
    chosen: np.ndarray, concept: np.ndarray, neighbours: np.ndarray, together: int
) -> np.ndarray:
    """The pairs `chosen` (n,) in another order: each not yet placed one, then one of up to
    `together` - 1 neighbours.

    concept (n,) of each of them; neighbours (concepts, K), nearest first, -1 for none. A neighbour
    without a pair left is passed over.
    """
    waiting: dict[int, list[int]] = {}  # places of `chosen` by concept, the next one last
    for place in range(len(chosen) - 1, -1, -1):
        waiting.setdefault(int(concept[place]), []).append(place)
    placed, order = np.zeros(len(chosen), bool), []
    for place in range(len(chosen)):
        if placed[place]:
            continue
        group = [place]
        waiting[int(concept[place])].pop()
        for near in neighbours[concept[place]].tolist():
            if len(group) == together:
                break
            if near >= 0 and waiting.get(near):
                group.append(waiting[near].pop())
        placed[group] = True
        order += group
    return chosen[np.array(order, np.int64)]


class SapBERTBatch(NamedTuple):
    """Names sorted by length in groups, each padded to its own longest; N in all."""

    input_ids: tuple[Tensor, ...]  # of each group (N_g, L_g)
    attention_mask: tuple[Tensor, ...]  # likewise
    concept: Tensor  # (N,) in the groups' order
    query: Tensor  # (N,) bool: a held-out name that is searched for (validation only)
    counts: Tensor  # (1,) names
    places: Places | Any = None  # of a training batch: datamodules.steps.place_batch

    def masks(self) -> dict[str, Tensor]:
        return {f"tokens{number}": mask > 0 for number, mask in enumerate(self.attention_mask)}


class _Listed(Dataset[SapBERTBatch]):
    """Validation's batches."""

    def __init__(self, data: SapBERTData, rows: list[np.ndarray]) -> None:
        self.data, self.rows = data, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> SapBERTBatch:
        return self.data.make_batch(*self.rows[i].T)


class SapBERTData(StepData):
    """Pairs as batches. A batch is a function of (seed, step) alone.

    pairs        folder that ``kepl data pairs`` wrote
    batch_size   pairs a step; twice as many names (the paper's 480 names)
    max_length   tokens of a name with [CLS] and [SEP]; longer names are cut
    groups       groups of similar length that a step's names are encoded in
    together     pairs of similar concepts that are in a batch together, 1: none (all pairs of a
                 batch drawn alike);
                 more needs pairs made with --neighbours
    val_names    names that validation searches, those of the held-out names' concepts among them
    The rest as in :class:`datamodules.steps.StepData`.

    Raises InputError when pairs and tokenizer do not belong together, too.
    """

    def __init__(
        self,
        pairs: str,
        tokenizer: str,
        max_length: int = 25,
        groups: int = 4,
        together: int = 1,
        val_names: int = 5000,
        eval_batch_size: int = 512,
        **steps: Any,
    ) -> None:
        super().__init__(pairs, tokenizer, eval_batch_size=eval_batch_size, **steps)
        self.max_length, self.groups = max_length, groups
        self.together, self.val_names = together, val_names

    def read(self) -> None:
        if self.max_length < 3 or self.groups < 1 or self.together < 1:
            raise InputError(
                f"max_length {self.max_length}, groups {self.groups}, together {self.together}:"
                " expected 3, 1 and 1 at least"
            )
        self.pairs = Pairs(self.folder, tokenizer_fingerprint(self.tokenizer))
        if self.together > 1 and self.pairs.neighbours is None:
            raise InputError(
                f"{self.folder}: together {self.together} wants pairs with neighbours. Build them"
                " with --neighbours, or take 1."
            )
        self.train_indices = np.arange(len(self.pairs))

    @lru_cache(maxsize=2)  # noqa: B019  one data module lives as long as its run
    def order(self, epoch: int) -> np.ndarray:
        """(steps, batch_size) pair numbers of an epoch, shuffled: what is mined together is drawn
        from all pairs.

        With `together` > 1 each drawn pair brings a pair of each of its concept's nearest
        neighbours that still have one.
        """
        chosen = np.random.default_rng([self.seed, epoch]).permutation(len(self.pairs))
        if self.together > 1:
            assert self.pairs.neighbours is not None
            chosen = group_similar(
                chosen, self.pairs[chosen][:, 2], self.pairs.neighbours, self.together
            )
        return chosen[: self.steps_per_epoch * self.batch_size].reshape(-1, self.batch_size)

    def batch(self, indices: np.ndarray, epoch: int, blank: bool = False) -> SapBERTBatch:
        """The two names of every pair in `indices`."""
        first, second, concept = self.pairs[indices].T
        return self.make_batch(np.concatenate([first, second]), np.tile(concept, 2))

    def make_batch(
        self, name: np.ndarray, concept: np.ndarray, query: np.ndarray | None = None
    ) -> SapBERTBatch:
        """Names by number, with their concepts, as a batch."""
        tokens, offsets = self.pairs.tokens, self.pairs.offsets
        length = np.minimum(self.pairs.lengths[name] + 2, self.max_length)
        order = np.argsort(length, kind="stable")
        name, concept, length = name[order], concept[order], length[order]
        is_query = np.zeros(len(name), bool) if query is None else query[order].astype(bool)
        ids, masks = [], []
        for group in length_groups(length, self.groups):
            padded = np.full(
                (group.stop - group.start, length[group.stop - 1]),
                self.tokenizer.pad_token_id,
                np.int64,
            )
            for row, (number, size) in enumerate(zip(name[group], length[group], strict=True)):
                begin = offsets[number]
                padded[row, 0] = self.tokenizer.cls_token_id
                padded[row, size - 1] = self.tokenizer.sep_token_id
                padded[row, 1 : size - 1] = tokens[begin : begin + size - 2]
            ids.append(torch.from_numpy(padded))
            masks.append(
                torch.from_numpy(
                    (np.arange(padded.shape[1]) < length[group, None]).astype(np.int64)
                )
            )
        counts = torch.tensor([len(name)], dtype=torch.float32)
        owner, asks = torch.from_numpy(concept.astype(np.int64)), torch.from_numpy(is_query)
        return SapBERTBatch(tuple(ids), tuple(masks), owner, asks, counts)

    def val_dataloader(self) -> DataLoader:
        """Every held-out name, and the names searched, in batches of similar length; the same for
        every process."""
        queries, members = np.asarray(self.pairs.held_out), np.asarray(self.pairs.members)
        is_query = np.isin(members[:, 1], queries[:, 1])
        others = np.random.default_rng(self.seed).permutation(np.flatnonzero(~is_query))[
            : max(0, self.val_names - is_query.sum())
        ]
        searched = members[np.concatenate([np.flatnonzero(is_query), np.sort(others)])]
        rows = np.concatenate(
            [
                np.pad(queries, ((0, 0), (0, 1)), constant_values=1),
                np.pad(searched, ((0, 0), (0, 1))),
            ]
        )
        rows = rows[np.argsort(self.pairs.lengths[rows[:, 0]], kind="stable")]
        shares = [
            rows[i : i + self.eval_batch_size] for i in range(0, len(rows), self.eval_batch_size)
        ]
        return DataLoader(_Listed(self, shares), batch_size=None, num_workers=self.num_workers)
