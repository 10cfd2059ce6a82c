"""Batches for KnowBERT's pre-training (Peters et al., EMNLP 2019, Sections 3.2 to 3.4).

The text is that of :mod:`datamodules.ordered`. A mention has candidates, the entities that its
entity may be taken for by name: those that share one of its names, and those whose name is inside
one. Masked mentions have none, which would tell what is masked. As everywhere, a batch is a
function of (seed, step, example).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ahocorasick
import numpy as np
import torch
from torch import Tensor

from core.files import InputError
from datamodules.links import links
from datamodules.masking import IGNORE
from datamodules.ordered import Ordered, OrderedText, blank, save_array
from datamodules.rows import longest, most, number_rows
from datamodules.steps import Places
from kg.graph import KnowledgeGraph
from kg.linking.matchable import never_matches


class Candidates(NamedTuple):
    """M mentions and the C entities that each may mean; spans of one sequence are disjoint and in
    text order."""

    span: Tensor  # (M, 3) row, first token, last token + 1
    # (M, C) indices in the graph, first the one that the dictionary links; -1 behind the last
    entity: Tensor
    prior: Tensor  # (M, C) their shares of the training text's mentions, 0 where there is none


class KnowBERTBatch(NamedTuple):
    """One micro-batch of B sequences of length L; counts as in :mod:`datamodules.steps`."""

    input_ids: Tensor  # (B, L) with masked tokens
    original_ids: Tensor  # (B, L) without
    attention_mask: Tensor  # (B, L)
    second: Tensor  # (B, L) 1 on the second of the two segments
    mlm_labels: Tensor  # (B, L) original id where a token is predicted, else -100
    # (B,) 1 where the segments are swapped, 0 where not, -100 where there is only one
    order: Tensor
    mentions: Candidates  # those that are not masked
    # (3,) predicted tokens, sequences of two segments, mentions with two candidates or more
    counts: Tensor
    places: Places | Any = None  # of a training batch: datamodules.steps.place_batch

    def masks(self) -> dict[str, Tensor]:
        return {"tokens": self.attention_mask > 0, "predicted": self.mlm_labels != IGNORE}

    def sizes(self) -> dict[str, Any]:
        return {"most": most(self.mentions.span), "longest": longest(self.mentions.span)}


class KnowBERTExample(NamedTuple):
    """One sequence and its mentions."""

    text: Ordered
    mentions: np.ndarray  # (m, 3) first token, last token + 1, entity; unmasked ones

    def blank(self) -> KnowBERTExample:
        return KnowBERTExample(blank(self.text), self.mentions[:0])


def candidate_table(graph: KnowledgeGraph, frequency: np.ndarray, most: int) -> np.ndarray:
    """(Z, most) for each entity itself, then others that its names may mean, -1 behind the last.

    Others are entities with one of its names, or with a name that is inside one: longer names
    first, then those that the text mentions more often (`frequency` (Z,)), then the lower index.
    """
    entity, names = graph.index_of(graph.names["id"]).tolist(), graph.names["name"].to_pylist()
    meant: dict[str, set[int]] = defaultdict(set)
    for entity_id, name in zip(entity, names, strict=True):
        if not never_matches(name):
            meant[name].add(entity_id)
    automaton = ahocorasick.Automaton()
    for name in meant:
        automaton.add_word(name, name)
    automaton.make_automaton()
    longest: list[dict[int, int]] = [{} for _ in range(len(graph.entities))]
    for name in meant:
        inside = {inner for _, inner in automaton.iter(name)}
        for entity_id in meant[name]:
            for inner in inside:
                for other in meant[inner]:
                    longest[entity_id][other] = max(len(inner), longest[entity_id].get(other, 0))
    table = np.full((len(graph.entities), most), -1, np.int64)
    for entity_id, others in enumerate(longest):
        others.pop(entity_id, None)
        order = sorted(others, key=lambda other: (-others[other], -frequency[other], other))
        table[entity_id, : len(order) + 1] = [entity_id, *order[: most - 1]][:most]
    return table


def candidates(rows: np.ndarray, table: np.ndarray, frequency: np.ndarray) -> Candidates:
    """Mentions of rows (M, 4): sequence, first token, last token + 1, entity; each count is one
    more than the text's."""
    entity = table[rows[:, 3]]
    counted = np.where(entity >= 0, frequency[entity] + 1, 0)
    prior = (counted / counted.sum(1, keepdims=True)).astype(np.float32)
    return Candidates(
        torch.from_numpy(rows[:, :3].copy()), torch.from_numpy(entity), torch.from_numpy(prior)
    )


class KnowBERTData(OrderedText):
    """Linked text with the candidates of its mentions.

    n_candidates  of a mention at most, the one that is linked among them (the paper's 30)
    The rest as in :class:`OrderedText`.

    Raises InputError when the parts do not belong together.
    """

    def __init__(self, n_candidates: int = 30, **text: Any) -> None:
        super().__init__(**text)
        if n_candidates < 2:
            raise InputError(f"n_candidates {n_candidates}: expected at least 2")
        self.n_candidates = n_candidates

    def set_up(self, graph: KnowledgeGraph) -> None:
        self.table = candidate_table(graph, self.frequency, self.n_candidates)

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> KnowBERTExample:
        text, mentions, hidden = self.read_sequence(index, rng)
        return KnowBERTExample(text, mentions[~hidden])

    def collate(self, examples: list[KnowBERTExample]) -> KnowBERTBatch:
        texts, mentions = zip(*examples, strict=True)
        text = self.texts(texts)
        batch_candidates = candidates(number_rows(mentions, 3), self.table, self.frequency)
        counts = [
            (text.mlm_labels >= 0).sum(),
            (text.order >= 0).sum(),
            (batch_candidates.entity[:, 1] >= 0).sum(),
        ]
        return KnowBERTBatch(*text, batch_candidates, torch.tensor(counts, dtype=torch.float32))

    def export(self, folder: str | Path) -> None:
        """Write what an :class:`OrderedText` does, the candidates of each entity, and how often the
        text mentions each."""
        super().export(folder)
        save_array(folder, "candidates", self.table)
        save_array(folder, "frequency", self.frequency)


def linker(
    folder: str | Path, hits: float = 1.0, foreign: float = 0.0
) -> Callable[[list[str], list[list[tuple[int, int]]]], Candidates]:
    """What finds the mentions of texts and their candidates: `linker` in
    experiments/knowbert/encoder.yaml.

    hits     share of the mentions that are kept (:func:`datamodules.links.links`)
    foreign  share of those that are given another entity's candidates
    """
    link = links(folder, hits, foreign, ("candidates.npy", "frequency.npy"))
    table = np.load(Path(folder) / "candidates.npy", allow_pickle=False)
    frequency = np.load(Path(folder) / "frequency.npy", allow_pickle=False)
    return lambda texts, offsets: candidates(link(texts, offsets), table, frequency)
