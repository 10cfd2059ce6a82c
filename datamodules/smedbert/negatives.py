"""Negatives of masked neighbour modelling: entities of the neighbour's own type (Section 3.4.1 and
Appendix B)."""

from __future__ import annotations

import numpy as np


class Sampler:
    """Draws entities of a given entity's type.

    types (Z,) int from 0; frequency (Z,) how often the training text mentions each.
    log_q (Z,): log Q(e) = log of (t_e + 1) / the same summed over e's type. One is added because an
    entity that the text never mentions would otherwise have Q = 0, whose logarithm is in Eq. (19).
    """

    def __init__(self, types: np.ndarray, frequency: np.ndarray) -> None:
        self.types, weight = types, frequency.astype(np.float64) + 1
        self.log_q = np.log(weight) - np.log(np.bincount(types, weight))[types]
        self.by_type = np.argsort(types, kind="stable")
        self.sizes = np.bincount(types)
        self.first = np.cumsum(self.sizes) - self.sizes
        # Type t owns the interval [t, t + 1): its entities' shares of it in turn, so one search
        # serves all types.
        total = np.cumsum(weight[self.by_type])
        before = np.concatenate([[0.0], total])[self.first]
        kind = types[self.by_type]
        self.bounds = kind + (total - before[kind]) / np.bincount(types, weight)[kind]
        self.bounds[self.first + self.sizes - 1] = np.arange(len(self.sizes)) + 1.0

    def draw(self, gold: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        """(P, n) entities of the types of `gold` (P,), drawn with replacement by Q."""
        place = self.types[gold][:, None] + rng.random((len(gold), n))
        return self.by_type[np.searchsorted(self.bounds, place, side="right")]

    def others(self, gold: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        """(P, n) different entities of the types of `gold` (P,), never `gold` itself, drawn evenly;
        -1 where there are fewer."""
        result = np.full((len(gold), n), -1, np.int64)
        for row, entity in enumerate(gold):
            kind = self.types[entity]
            group = self.by_type[self.first[kind] : self.first[kind] + self.sizes[kind]]
            picked = rng.choice(len(group), min(n + 1, len(group)), replace=False)
            chosen = group[picked]
            chosen = chosen[chosen != entity][:n]
            result[row, : len(chosen)] = chosen
        return result


def once(entities: np.ndarray) -> np.ndarray:
    """`entities` (P, n) with -1 for each that is in its row before."""
    order = np.argsort(entities, axis=1, kind="stable")
    ordered = np.take_along_axis(entities, order, axis=1)
    again = np.zeros(entities.shape, bool)
    np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return np.where(again, -1, entities)


def without_neighbours(entities: np.ndarray, neighbours: np.ndarray) -> np.ndarray:
    """`entities` (P, n) with -1 for each that is among the `neighbours` (P, K) of its row."""
    return np.where((entities[:, :, None] == neighbours[:, None]).any(-1), -1, entities)
