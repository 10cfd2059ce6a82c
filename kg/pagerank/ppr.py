"""The personal part of PEPR at the neighbours of every entity, all at once: by elimination, or step
by step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import lapack
from tqdm import tqdm

from kg.pagerank.scores import ALPHA

DENSE = 16_000  #: rows of the dense matrix, 2 GB
DENSE_SHARE = (
    #: an entity with more neighbours than this share of all that are left is cheaper in the dense
    #: matrix
    0.01
)
ENTRIES = 50_000_000  #: of the matrix that is left; elimination ends where there are more, 600 MB
BLOCK = 256  #: entities at a time
PAIRS = 4_000_000  #: pairs of neighbours at a time


class Personal(NamedTuple):
    """PPR at neighbours. Both have an entry for every entry (m, k) of the weights, in their order.

    score    PPR(m)[k], never too large
    missing  at most this much too small
    """

    score: np.ndarray
    missing: np.ndarray


class _Level(NamedTuple):
    """Entities that were eliminated at once, none of them beside another."""

    entities: np.ndarray
    # (entities of the level, all), positive: their entries in the matrix, signs changed
    edges: sparse.csr_matrix
    diagonal: np.ndarray


def ranges(lengths: np.ndarray) -> np.ndarray:
    """0 .. length - 1 for each of `lengths`, one after the other."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _without(
    matrix: sparse.csr_matrix, ids: np.ndarray, out: np.ndarray, width: int
) -> tuple[_Level, sparse.csr_matrix, np.ndarray]:
    """(the level, the matrix without the rows `out`, their ids): the Schur complement. No row in
    `out` may touch another."""
    inner = np.setdiff1d(np.arange(len(ids)), out)
    edges, diagonal = -matrix[out][:, inner].tocsr(), matrix.diagonal()[out]
    edges.eliminate_zeros()
    smaller = (matrix[inner][:, inner] - edges.T @ sparse.diags(1 / diagonal) @ edges).tocsr()
    level = sparse.csr_matrix(
        (edges.data, ids[inner][edges.indices], edges.indptr), shape=(len(out), width)
    )
    level.sort_indices()
    return _Level(ids[out], level, diagonal), smaller, ids[inner]


def _eliminate(matrix: sparse.csr_matrix) -> tuple[list[_Level], sparse.csr_matrix, np.ndarray]:
    """(levels, what is left of the matrix, the entities that are left): those with few neighbours
    go first.

    It ends where an entity costs more here, the square of its neighbours, than in a dense inverse,
    or memory would run out.
    """
    width = matrix.shape[0]
    ids, levels = np.arange(width), list[_Level]()
    shuffled = np.random.default_rng(0).permutation(width) / width
    while True:
        count = np.diff(matrix.indptr) - 1
        most = min(1.5 * max(np.quantile(count, 0.1), 2) + 1, DENSE_SHARE * len(ids))
        if len(ids) == 1 or count.min() > most or matrix.nnz > ENTRIES:
            return levels, matrix, ids
        rank = count + shuffled[ids]
        lowest = np.full(len(ids), np.inf)
        row, column = np.repeat(np.arange(len(ids)), count + 1), matrix.indices
        other = row != column
        np.minimum.at(lowest, row[other], rank[column[other]])
        level, matrix, ids = _without(
            matrix, ids, np.flatnonzero((rank < lowest) & (count <= most)), width
        )
        levels.append(level)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverse of a symmetric positive definite matrix, which is overwritten."""
    factor, info = lapack.dpotrf(matrix, lower=1, overwrite_a=1)
    inverse, also = lapack.dpotri(factor, lower=1, overwrite_c=1)
    assert info == also == 0  # the diagonal exceeds the sum of the rest of each row
    for first in range(0, len(inverse), 1024):  # dpotri writes one half
        last = first + 1024
        block = inverse[first:last, first:last]
        block[:] = np.tril(block) + np.tril(block, -1).T
        inverse[first:last, last:] = inverse[last:, first:last].T
    return inverse


class _Visits:
    """G = (D - (1 - alpha) W)^-1 at the pairs of neighbours: alpha degree[k] G[m, k] = PPR(m)[k].

    Elimination turns D - (1 - alpha) W into the same for fewer and fewer entities, with an entry
    between any two neighbours of an eliminated one. Backwards, the entries of G between an entity
    and its neighbours follow from those among the neighbours, which are all computed by then. What
    is left in the end is inverted as a dense matrix of at most `most` rows. Where more is left, its
    less connected entities are eliminated as if none were beside another, and of the walks with
    steps between them only those of one such step are counted, for the entities at its ends.
    """

    def __init__(self, matrix: sparse.csr_matrix, most: int) -> None:
        n = matrix.shape[0]
        levels, rest, ids = _eliminate(matrix)
        across = None
        if len(ids) > most:
            sums = np.zeros(n)
            among = np.sort(np.argsort(-np.diff(rest.indptr), kind="stable")[most:])
            sums[ids] = np.asarray(rest.sum(axis=1)).ravel()
            across = sparse.triu(-rest[among][:, among], 1).tocsr()
            level, rest, ids = _without(rest, ids, among, n)
            levels.append(level)
        self.inside = np.full(n, -1, np.int64)  # row in the dense matrix
        self.inside[ids] = np.arange(len(ids))
        self.dense = _inverse(rest.toarray(order="F"))
        self.diagonal, self.lost, self.scale = np.zeros(n), np.zeros(n), 1.0
        self.diagonal[ids] = np.diagonal(self.dense)
        gone = np.concatenate([np.zeros(0, np.int64), *(level.entities for level in levels)])
        # when it was eliminated; all in the dense matrix come last
        self.place = np.full(n, len(gone))
        self.place[gone] = np.arange(len(gone))
        pairs = [level.edges for level in levels]
        if across is not None:
            coo = across.tocoo()
            wide = (np.ones(coo.nnz), (coo.row, levels[-1].entities[coo.col]))
            pairs[-1] = (pairs[-1] + sparse.csr_matrix(wide, shape=pairs[-1].shape)).tocsr()
            pairs[-1].sort_indices()
        rows = np.concatenate([np.zeros(0, np.int64), *(np.diff(p.indptr) for p in pairs)])
        columns = np.concatenate([np.zeros(0, np.int32), *(p.indices for p in pairs)])
        self.keys = np.repeat(np.arange(len(gone)), rows) * n + columns  # ascending
        self.value, self.error = np.zeros(len(columns)), np.zeros(len(columns))
        self.diagonal_error = np.zeros(n)
        if across is not None:
            self._across(levels.pop(), across, sums, ids)
        for level in reversed(levels):
            self._back(level)

    def at(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(G[a, b], how much more it may be) of pairs that are neighbours or the same."""
        first = np.where(self.place[a] <= self.place[b], a, b)
        second = a + b - first
        value, error = np.zeros(len(a)), np.zeros(len(a))
        inside, same = self.inside[first] >= 0, a == b
        f, s = first[inside], second[inside]
        value[inside] = self.dense[self.inside[f], self.inside[s]]
        if self.scale != 1:
            error[inside] = self._bound_error(f, s)
        value[same], error[same] = self.diagonal[a[same]], self.diagonal_error[a[same]]
        outside = ~inside & ~same
        place = np.searchsorted(
            self.keys, self.place[first[outside]] * len(self.place) + second[outside]
        )
        value[outside], error[outside] = self.value[place], self.error[place]
        return value, error

    def _bound_error(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.scale * np.minimum(
            self.lost[a] * self.diagonal[b], self.lost[b] * self.diagonal[a]
        )

    def _level_slice(self, level: _Level) -> slice:
        """Where the pairs of a level are among `keys`."""
        edge = np.array([self.place[level.entities[0]], self.place[level.entities[-1]] + 1]) * len(
            self.place
        )
        first, last = np.searchsorted(self.keys, edge)
        return slice(first, last)

    def _back(self, level: _Level) -> None:
        """G[i, k] = sum over i's neighbours l of b[i, l] G[l, k] / M[i, i];  G[i, i] = (1 + sum of
        b[i, k] G[i, k]) / M[i, i]."""
        places, edges = self._level_slice(level), level.edges
        count = np.diff(edges.indptr)
        ends = np.cumsum(count.astype(np.int64) ** 2)
        first = 0
        while first < len(count):
            most = (ends[first - 1] if first else 0) + PAIRS
            last = max(first + 1, int(np.searchsorted(ends, most, side="right")))
            low, high = edges.indptr[first], edges.indptr[last]
            size = count[first:last]
            counts = np.repeat(size, size)  # for each neighbour k: how many l there are
            begin = np.repeat(edges.indptr[first:last], size)
            k = np.repeat(np.arange(low, high), counts)
            other = np.repeat(begin, counts) + ranges(counts)
            both = self.at(edges.indices[other].astype(np.int64), edges.indices[k].astype(np.int64))
            group = k - low
            entity = np.repeat(np.arange(len(size)), size)
            for source, target, diagonal, weight in zip(
                both,
                (self.value, self.error),
                (self.diagonal, self.diagonal_error),
                (1.0, 0.0),
                strict=True,
            ):
                inverse = 1 / level.diagonal[first:last]
                sums = np.bincount(group, weights=edges.data[other] * source, minlength=high - low)
                sums = sums * np.repeat(inverse, size)
                target[places.start + low : places.start + high] = sums
                weighted = edges.data[low:high] * sums
                own_sums = np.bincount(entity, weights=weighted, minlength=len(size))
                diagonal[level.entities[first:last]] = (weight + own_sums) * inverse
            first = last

    def _across(
        self, level: _Level, across: sparse.csr_matrix, sums: np.ndarray, ids: np.ndarray
    ) -> None:
        """The level of entities that were eliminated as if none were beside another; `across` has
        what is between them.

        With G~ the inverse of the matrix without `across`, G~ <= G, and G - G~ <= min(s[a] G~[b,
        b], s[b] G~[a, a]) / (1 - max s), where s = 1 - G~ M 1 is the probability that is lost of
        each entity's walks (M 1 are `sums`).
        """
        n, edges = level.entities, level.edges[:, ids].tocsr()
        arriving = sums[ids] + edges.T @ (sums[n] / level.diagonal)
        returning = self.dense @ arriving
        self.lost[ids] = np.maximum(1 - returning, 0)
        self.lost[n] = np.maximum(1 - (sums[n] + edges @ returning) / level.diagonal, 0)
        self.scale = 1 / (1 - self.lost.max())
        places = self._level_slice(level)
        row, column = (
            self.keys[places] // len(self.place),
            self.keys[places] % len(self.place),
        )
        row -= self.place[n[0]]
        value, other = np.zeros(len(row)), self.inside[column] < 0
        # row in the level, of columns that are no dense ones
        at = self.place[column] - self.place[n[0]]
        for first in range(0, len(n), BLOCK):
            last = min(first + BLOCK, len(n))
            towards = (edges[first:last] @ self.dense) / level.diagonal[first:last, None]
            own_sums = np.asarray(edges[first:last].multiply(towards).sum(axis=1)).ravel()
            self.diagonal[n[first:last]] = (1 + own_sums) / level.diagonal[first:last]
            here = (row >= first) & (row < last)
            entries = np.flatnonzero(here & ~other)
            value[entries] = towards[row[entries] - first, self.inside[column[entries]]]
            for part in np.array_split(
                np.flatnonzero(here & other), 1 + int((here & other).sum()) // BLOCK
            ):
                through = edges[at[part]]
                products = (
                    through.data
                    * towards[
                        np.repeat(row[part] - first, np.diff(through.indptr)), through.indices
                    ]
                )
                group = np.repeat(np.arange(len(part)), np.diff(through.indptr))
                value[part] = np.bincount(group, products, len(part)) / level.diagonal[at[part]]
        pair = np.flatnonzero(other)
        if len(pair):
            step = np.asarray(across[row[pair], at[pair]]).ravel()
            value[pair] += self.diagonal[n[row[pair]]] * step * self.diagonal[column[pair]]
        self.value[places], self.error[places] = (
            value,
            self._bound_error(n[row], column),
        )
        everyone = np.concatenate([n, ids])
        self.diagonal_error[everyone] = self._bound_error(everyone, everyone)


def personal(weight: sparse.csr_matrix, alpha: float = ALPHA, dense: int = DENSE) -> Personal:
    """PPR(m)[k] for all neighbours m, k: where a walk from m is when it jumps, which it does with
    probability alpha a step.

    Exact to rounding, unless the graph is so large and so evenly connected that more than `dense`
    entities are left after the less connected ones were eliminated; `missing` then says how much
    too small a score may be.
    """
    degree = np.asarray(weight.sum(axis=1)).ravel()
    linked = np.flatnonzero(degree)
    if not len(linked):
        return Personal(np.zeros(0), np.zeros(0))
    matrix = (sparse.diags(degree) - (1 - alpha) * weight).tocsr()[linked][:, linked]
    matrix.sort_indices()
    number = np.cumsum(degree > 0) - 1
    row = np.repeat(np.arange(len(degree)), np.diff(weight.indptr))
    value, error = _Visits(matrix, dense).at(number[row], number[weight.indices])
    scale = alpha * degree[weight.indices]
    # a score is at most 1
    return Personal(scale * value, np.minimum(scale * error, 1 - scale * value))


def personal_steps(
    weight: sparse.csr_matrix, alpha: float, n_iter: int, progress: bool = False
) -> Personal:
    """PPR(m)[k] for all neighbours m, k when the iteration, started at 0, ends after `n_iter`
    steps. Seconds a step and block."""
    degree = np.asarray(weight.sum(axis=1)).ravel()
    count, entities = np.diff(weight.indptr), len(degree)
    row, column = np.repeat(np.arange(entities), count), weight.indices.astype(np.int64)
    # Score[m, k] / degree[k] is symmetric: each pair is computed from the end with more neighbours.
    source = (count[row] > count[column]) | ((count[row] == count[column]) & (row < column))
    score = np.zeros(len(row))
    step = ((1 - alpha) * weight @ sparse.diags(1 / np.maximum(degree, 1))).tocsr()
    for block in tqdm(
        np.array_split(np.unique(row[source]), 1 + len(np.unique(row[source])) // BLOCK),
        disable=not progress,
    ):
        first = np.zeros((entities, len(block)))
        first[block, np.arange(len(block))] = alpha
        v = np.zeros_like(first)
        for _ in range(n_iter):
            v = step @ v + first
        place = np.full(entities, -1)
        place[block] = np.arange(len(block))
        entries = np.flatnonzero(source & (place[row] >= 0))
        score[entries] = v[column[entries], place[row[entries]]]
    # the place of (k, m) for each (m, k); the pattern is symmetric
    back = np.argsort(column * entities + row)
    score = np.where(source, score, score[back] * degree[column] / degree[row])
    return Personal(score, np.zeros(len(row)))
