"""Linked mentions of a batch with the graph's neighbours of their entities: what an encoder that
asks for them is given."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Mentions(NamedTuple):
    """M mentions with up to K neighbours each; spans of one sequence are disjoint."""

    span: Tensor  # (M, 3) row, first token, last token + 1
    entity: Tensor  # (M,) index in the graph
    neighbours: Tensor  # (M, K) entity indices, best first; -1 behind the last
    relation: Tensor  # (M, K) relation index; 0 where there is no neighbour
    # (M, K) +1 where the mention is the triple's head, -1 its tail; 0 where there is no neighbour
    direction: Tensor
    type: Tensor  # (M, K) the neighbour's type; -1 where there is none


def mentions(
    spans: np.ndarray, entity: np.ndarray, neighbours: np.ndarray, types: np.ndarray
) -> Mentions:
    """Mentions from spans (M, 3), entities (M,), their rows (M, K, 3) of a neighbour table and all
    entities' types (Z,)."""
    near, relation, direction = (neighbours[:, :, i].astype(np.int64) for i in range(3))
    exists = near >= 0
    kind = np.where(exists, types[np.maximum(near, 0)], -1)
    arrays = (
        spans.reshape(-1, 3),
        entity,
        np.where(exists, near, -1),
        np.where(exists, relation, 0),
        np.where(exists, direction, 0),
        kind,
    )
    return Mentions(*(torch.from_numpy(np.ascontiguousarray(a, dtype=np.int64)) for a in arrays))
