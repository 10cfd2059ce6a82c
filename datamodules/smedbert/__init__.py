"""Batches for SMedBERT's pre-training (Zhang et al., ACL 2021, Sections 3.4, 3.5 and Appendix B).

A sequence is cut near its middle, at the end of a sentence where there is one, and its halves are swapped half of the
time (sentence-order prediction, Lan et al., ICLR 2020). A masked mention takes in the knowledge of its neighbours in
the graph; an unmasked one predicts them among negatives, or, a share of them, takes them in as it will in fine-tuning.
As everywhere, a batch is a function of (seed, step, example).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.files import InputError, write_json, written
from datamodules.corpus import Corpus, Example
from datamodules.masking import IGNORE, masked, units
from datamodules.mentions import Mentions, mentions
from datamodules.rows import attention, numbered, padded
from datamodules.segments import cut_place, ends_of_sentences, placed
from datamodules.smedbert.negatives import Sampler, once, without_neighbours
from datamodules.steps import CorpusData
from datamodules.tokenizers import load_tokenizer, replacements, tokenizer_fingerprint
from kg.embeddings import EmbeddingTable
from kg.graph import KnowledgeGraph, fingerprint
from kg.pagerank import NeighbourTable


class SMedBERTBatch(NamedTuple):
    """One micro-batch of B sequences of length L, with P pairs of an unmasked mention and one of its neighbours.

    counts are over the micro-batches that this process accumulates for one step, as in :mod:`datamodules.steps`.
    """

    input_ids: Tensor  # (B, L) with masked tokens
    original_ids: Tensor  # (B, L) without
    attention_mask: Tensor  # (B, L)
    second: Tensor  # (B, L) 1 on the second of the two segments
    mlm_labels: Tensor  # (B, L) original id where a token is predicted, else -100
    order: Tensor  # (B,) 1 where the segments are swapped, 0 where not, -100 where there is only one
    masked: Mentions  # mentions whose tokens are predicted
    unmasked: Mentions  # others that have neighbours and are asked for them
    infused: Mentions  # those that take knowledge in: the masked ones, and a share of the others
    candidates: Tensor  # (P, 1 + n) the neighbour, then negatives; -1 for a negative that is a neighbour after all
    log_q: Tensor  # (P, 1 + n) log Q of each among the entities of the neighbour's type
    counts: Tensor  # (4,) predicted tokens, sequences of two segments, P, masked mentions
    ranked: Tensor | None = None  # validation (P, R) the neighbour, then others of its type drawn by Q; -1 for none
    even: Tensor | None = None  # validation (P, R) the same with others drawn evenly


class SMedBERTExample(NamedTuple):
    """One sequence of n tokens with [CLS], [SEP] and, between two segments, another [SEP]."""

    ids: np.ndarray  # (n + 2 or 3,) with masked tokens
    original: np.ndarray  # likewise, without
    second: np.ndarray  # likewise
    labels: np.ndarray  # likewise
    order: int
    unmasked: np.ndarray  # (m, 3) first token, last token + 1, entity
    masked: np.ndarray  # likewise
    told: np.ndarray  # likewise, unmasked ones that take knowledge in
    rng: np.random.Generator  # draws the negatives of its pairs: whichever micro-batch it is in, they are the same
    held_out: bool  # other entities to rank its neighbours among are drawn, too

    def blank(self) -> SMedBERTExample:
        none = np.full(len(self.labels), IGNORE)
        return self._replace(labels=none, order=IGNORE, **{k: getattr(self, k)[:0] for k in ("unmasked", "masked", "told")})


class SMedBERTData(CorpusData):
    """Linked text with neighbours as masked batches.

    corpus       folder that ``python -m datamodules.corpus`` wrote, one token shorter than `max_length`
    tokenizer    the encoder's tokenizer: a folder or hub name
    graph        folder of the graph that the corpus is linked with: entity types and names
    entities     folder of the :class:`EmbeddingTable` whose rows are the graph's entities
    neighbours   folder of the :class:`NeighbourTable` (``python -m kg.pagerank``)
    k            neighbours a mention at most (the paper's 10)
    batch_size   sequences per optimiser step over all processes and accumulated batches
    max_mentions mentions a sequence that are used; more are left out
    min_mentions sequences with fewer are left out of training, never of validation
    mask, random, keep  shares of tokens that are hidden, replaced and left, all to be predicted; one draw a mention
    infused      share of the unmasked mentions that take knowledge in and are not asked for their neighbours, which would give
                 the answer away; 0: masked ones alone take it in, as in the paper
    n_negatives  negatives a pair (the released code's 35)
    validation_size  held-out sequences that validation takes at most; None: all
    n_ranked     entities that validation ranks the neighbour among at most, itself included: of its type, drawn by Q, and evenly

    Raises InputError when the parts do not belong together, or the batch size does not divide.
    """

    def __init__(
        self,
        corpus: str,
        tokenizer: str,
        graph: str,
        entities: str,
        neighbours: str,
        k: int = 10,
        batch_size: int = 512,
        max_length: int = 512,
        max_mentions: int = 30,
        min_mentions: int = 0,
        mask: float = 0.12,
        random: float = 0.015,
        keep: float = 0.015,
        infused: float = 0.0,
        n_negatives: int = 35,
        n_ranked: int = 100,
        eval_batch_size: int = 64,
        validation_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.corpus_folder, self.tokenizer_name, self.graph = corpus, tokenizer, graph
        self.entities, self.neighbours, self.k = entities, neighbours, k
        self.batch_size, self.max_length = batch_size, max_length
        self.max_mentions, self.min_mentions = max_mentions, min_mentions
        if not 0 <= infused <= 1:
            raise InputError(f"infused {infused}: expected a share from 0 to 1")
        self.rates, self.infused = {"mask": mask, "random": random, "keep": keep}, infused
        self.n_negatives, self.n_ranked, self.validation_size = n_negatives, n_ranked, validation_size
        self.eval_batch_size, self.num_workers, self.seed = eval_batch_size, num_workers, seed
        self.corpus: Corpus | None = None

    def setup(self, stage: str | None = None) -> None:
        if self.corpus is not None:
            return
        self.tokenizer = load_tokenizer(self.tokenizer_name)
        graph = KnowledgeGraph.load(self.graph)
        EmbeddingTable.load(self.entities).check_graph(graph.ids, self.graph)
        self.table = NeighbourTable.load(self.neighbours)
        self.table.check_graph(graph.ids, self.graph)
        if self.k > self.table.k:
            raise InputError(
                f"{self.neighbours}: {self.table.k} neighbours an entity, but k is {self.k}. "
                f"Build the table again with --k {self.k}."
            )
        corpus = Corpus(self.corpus_folder, tokenizer_fingerprint(self.tokenizer), fingerprint(self.graph))
        corpus.check_length(self.max_length, 1)
        self.kinds, self.types = np.unique(np.array(graph.entities["type"].to_pylist()), return_inverse=True)
        self.frequency = corpus.entity_counts(len(graph.entities))
        self.sampler = Sampler(self.types, self.frequency)
        self.random_ids = replacements(self.tokenizer)
        self.end_ids = ends_of_sentences(self.tokenizer)
        self.train_indices, self.held_out_indices = corpus.divided(self.batch_size, self.min_mentions)
        self.corpus = corpus

    def linked(self, spans: np.ndarray) -> Mentions:
        """Mentions of rows (m, 4): sequence, first token, last token + 1, entity."""
        entity = spans[:, 3]
        return mentions(spans[:, :3], entity, np.asarray(self.table[entity])[:, : self.k], self.types)

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> SMedBERTExample:
        found = self.sequence(index)
        n, cut = len(found.ids), self.cut(found)
        swap = bool(rng.random() < 0.5)
        unit = units(found.word_start, found.mentions[:, :2])
        ids, predicted = masked(found.ids, unit, rng, self.mask_id, self.random_ids, **self.rates)
        place, whole = placed(n, cut, swap), n + 2 + (cut > 0)
        middle = (n - cut if swap else cut) + 1 if cut else whole
        rows = np.full((2, whole), self.tokenizer.sep_token_id, np.int64)
        rows[:, 0], rows[0, place], rows[1, place] = self.tokenizer.cls_token_id, ids, found.ids
        labels = np.full(whole, IGNORE, np.int64)
        labels[place] = predicted
        spans = found.mentions[: self.max_mentions].astype(np.int64)
        start, hidden = place[spans[:, 0]], predicted[spans[:, 0]] != IGNORE
        moved = np.stack([start, start + spans[:, 1] - spans[:, 0], spans[:, 2]], axis=1)
        second, order = np.arange(whole) > middle, int(swap) if cut else IGNORE
        told = ~hidden & (rng.random(len(hidden)) < self.infused) if self.infused else np.zeros(len(hidden), bool)
        asked = moved[~hidden & ~told]
        return SMedBERTExample(rows[0], rows[1], second, labels, order, asked, moved[hidden], moved[told], rng, held_out)

    def collate(self, examples: list[SMedBERTExample]) -> SMedBERTBatch:
        assert isinstance(self.tokenizer.pad_token_id, int)
        ids, original, second, predicted, orders, plain, hidden, told, rngs, _ = zip(*examples, strict=True)
        labels, order = padded(predicted, IGNORE), np.array(orders, np.int64)
        unmasked, hidden_ones, told_ones = (self.linked(numbered(part, 3)) for part in (plain, hidden, told))
        unmasked = Mentions(*(part[(unmasked.neighbours >= 0).any(1)] for part in unmasked))
        near = unmasked.neighbours.numpy()
        pair, place = (near >= 0).nonzero()
        gold = near[pair, place]
        row = unmasked.span[:, 0].numpy()[pair]
        own = [gold[row == r] for r in range(len(examples))]
        drawn = np.concatenate([self.sampler.drawn(g, self.n_negatives, r) for g, r in zip(own, rngs, strict=True)])
        candidates = np.concatenate([gold[:, None], without_neighbours(drawn, near[pair])], axis=1)
        log_q = np.concatenate([self.sampler.log_q[gold][:, None], self.sampler.log_q[drawn]], axis=1)
        counts = [(labels != IGNORE).sum(), (order != IGNORE).sum(), len(gold), len(hidden_ones.span)]
        result = SMedBERTBatch(
            torch.from_numpy(padded(ids, self.tokenizer.pad_token_id)),
            torch.from_numpy(padded(original, self.tokenizer.pad_token_id)),
            torch.from_numpy(attention(ids)),
            torch.from_numpy(padded(second, 0)),
            torch.from_numpy(labels),
            torch.from_numpy(order),
            hidden_ones,
            unmasked,
            Mentions(*(torch.cat(parts) for parts in zip(hidden_ones, told_ones, strict=True))),
            torch.from_numpy(candidates),
            torch.from_numpy(log_q.astype(np.float32)),
            torch.from_numpy(np.array(counts, np.float32)),
        )
        if not examples[0].held_out:
            return result
        n = self.n_ranked - 1
        drawn, even = (
            np.concatenate([draw(g, n, r) for g, r in zip(own, rngs, strict=True)])
            for draw in (self.sampler.drawn, self.sampler.others)
        )
        others = once(without_neighbours(drawn, near[pair])), without_neighbours(even, near[pair])
        ranked, evenly = (torch.from_numpy(np.concatenate([gold[:, None], o], axis=1)) for o in others)
        return result._replace(ranked=ranked, even=evenly)

    def cut(self, example: Example) -> int:
        return cut_place(example.word_start, example.mentions[:, :2], np.isin(example.ids, self.end_ids))

    def export(self, folder: str | Path) -> None:
        """Write tokenizer, the graph's entities and names, its neighbour table, and how many of them count into `folder`."""
        self.tokenizer.save_pretrained(folder)
        graph = KnowledgeGraph.load(self.graph)
        for name in ("entities", "names"):
            shutil.copyfile(Path(self.graph) / f"{name}.parquet", Path(folder) / f"{name}.parquet")
        for name, values in (("types", self.types), ("degree", graph.degree())):
            with written(Path(folder) / f"{name}.npy", "wb") as handle:
                np.save(handle, values.astype(np.int64), allow_pickle=False)
        shutil.copytree(self.neighbours, Path(folder) / "neighbours")
        write_json(Path(folder) / "linker.json", {"k": self.k})
