"""Numbers of one attention matrix: a[i, j] is the weight with which token i attends to token j,
summed over heads.

Tokens are given as arrays of places. Rows sum to the number of heads; shares do not depend on it.
"""

from __future__ import annotations

import numpy as np
from scipy import stats


def layer_of(place: int, total: int, layers: int) -> int:
    """The layer (from 1) of an encoder of `layers` that is as deep as layer `place` of `total`,
    rounded up."""
    return -(-place * layers // total)


def to_context(attention: np.ndarray, entity: np.ndarray, context: np.ndarray) -> np.ndarray:
    """(C,) what each context token gets from the entity's tokens, added: the direction of the
    paper's text."""
    return np.asarray(attention[np.ix_(entity, context)].sum(0))


def from_context(attention: np.ndarray, entity: np.ndarray, context: np.ndarray) -> np.ndarray:
    """(C,) what each context token gives to the entity's tokens, added: the direction of the
    figure's caption."""
    return np.asarray(attention[np.ix_(context, entity)].sum(1))


DIRECTIONS = {"entity to context": to_context, "context to entity": from_context}


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation, ties sharing their mean rank; 0 where one side is constant and ranks
    nothing."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    """Cosine of the angle between x and y; 0 where one is zero."""
    length = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / length if length else 0.0


LIKENESS = {"spearman": spearman, "cosine": cosine}


def share(
    attention: np.ndarray,
    queries: np.ndarray,
    keys: np.ndarray,
    among: np.ndarray,
    itself: bool = True,
) -> float:
    """The share that `keys` get of the attention that `queries` give to the tokens `among`, which
    contain `keys`; the mean over queries.

    itself: False leaves out of `keys`, not of `among`, the query itself.
    """
    selected = attention[np.ix_(queries, keys)]
    if not itself:
        selected = selected * (queries[:, None] != keys[None, :])
    return float((selected.sum(1) / attention[np.ix_(queries, among)].sum(1)).mean())


def even(queries: np.ndarray, keys: np.ndarray, among: np.ndarray, itself: bool = True) -> float:
    """:func:`share` of attention that is the same everywhere."""
    gets = len(keys) - (0.0 if itself else float(np.isin(queries, keys).mean()))
    return gets / len(among)
