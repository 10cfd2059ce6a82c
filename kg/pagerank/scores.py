"""PEPR by its definition, for one entity at a time: weights between entities, V_0 of Eq. (1), the
iteration."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from core.files import InputError

ALPHA = 0.15


def weights(triples: np.ndarray, entities: int) -> sparse.csr_matrix:
    """(entities, entities) symmetric: how many distinct triples there are between two different
    entities.

    `triples` (n, 3) are indices of head, relation, tail.
    """
    distinct = np.unique(triples[triples[:, 0] != triples[:, 2]], axis=0)
    head, tail = distinct[:, 0], distinct[:, 2]
    one_way = sparse.csr_matrix((np.ones(len(distinct)), (head, tail)), shape=(entities, entities))
    both = (one_way + one_way.T).tocsr()
    both.sort_indices()
    return both


def start(entities: int, frequency: np.ndarray | None = None) -> np.ndarray:
    """Eq. (1): V_0 (entities,) from how often the corpus mentions each entity; they add up to 1.

    Raises InputError when `frequency` (entities,) has another length or a negative value.
    """
    v = np.full(entities, 1 / entities)
    if frequency is None:
        return v
    if frequency.shape != (entities,) or (frequency < 0).any():
        raise InputError(f"frequency: expected {entities} numbers of at least 0, one an entity")
    seen = frequency > 0
    v[seen] = frequency[seen] / max(frequency.sum(), 1)
    return v / v.sum()


def iterate(
    weight: sparse.csr_matrix,
    jump: np.ndarray,
    alpha: float = ALPHA,
    n_iter: int | None = None,
    frequency: np.ndarray | None = None,
) -> np.ndarray:
    """V_i = (1 - alpha) A V_{i-1} + alpha P from V_0: after `n_iter` steps, or when V no longer
    changes.

    `jump` is P (entities,). Without `n_iter` the result is the fixed point to 1e-13 of its sum.
    """
    degree = np.asarray(weight.sum(axis=1)).ravel()
    isolated, share = degree == 0, 1 / np.maximum(degree, 1)
    v, done = start(len(degree), frequency), 0
    while n_iter is None or done < n_iter:
        following = (1 - alpha) * (weight @ (share * v) + v[isolated].sum() / len(v)) + alpha * jump
        moved, v, done = float(np.abs(following - v).sum()), following, done + 1
        if n_iter is None and moved * (1 - alpha) / alpha < 1e-13 * v.sum():
            break
    return v


def pepr(
    weight: sparse.csr_matrix,
    entity: int,
    alpha: float = ALPHA,
    n_iter: int | None = None,
    frequency: np.ndarray | None = None,
) -> np.ndarray:
    """(entities,) scores for one mention's entity, by the definition: the reference, seconds an
    entity on large graphs."""
    jump = np.full(weight.shape[0], 1 / weight.shape[0])
    jump[entity] = 1
    return iterate(weight, jump, alpha, n_iter, frequency)


def pagerank(
    weight: sparse.csr_matrix,
    alpha: float = ALPHA,
    n_iter: int | None = None,
    frequency: np.ndarray | None = None,
) -> np.ndarray:
    """(entities,) the part of the scores that is the same for all mentions: every jump is
    uniform."""
    return iterate(weight, np.full(weight.shape[0], 1 / weight.shape[0]), alpha, n_iter, frequency)
