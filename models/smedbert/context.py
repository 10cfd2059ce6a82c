"""Section 3.4: a mention's final state is to fit its neighbours in the graph (MNeM) and its own
words (MMeM)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from datamodules.rows import group_rows

Norm = Literal["relation", "paper", "exact"]


#: what :func:`datamodules.rows.group_rows` says of the relations of pairs
Relations = tuple[Tensor, list[tuple[int, int]]]


def by_relation(
    pairs: Tensor, relations: Relations, product: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """(P, n): ``product`` of the rows of `pairs` (P, m) of each relation and its number; no matrix
    is gathered for a pair."""
    order, groups = relations
    parts = pairs[order].split([count for _, count in groups])
    products = [product(rows, r) for rows, (r, _) in zip(parts, groups, strict=True)] or [
        product(pairs, 0)
    ]
    return torch.cat(products)[order.argsort()]


def translate_mentions(
    mention: Tensor,
    relation: Tensor,
    direction: Tensor,
    projection: Tensor,
    vectors: Tensor,
    relations: Relations | None = None,
) -> Tensor:
    """h M_r + d h_r of every pair, (P, d_r): where TransR expects the neighbour's e M_r.

    mention (P, d); relation (P,) rows of `projection` (R, d, d_r) and `vectors` (R, d_r); direction
    (P,) +1 where the mention is the head of the triple, -1 where it is the tail.
    """
    result = by_relation(
        mention, relations or group_rows(relation), lambda rows, r: rows @ projection[r]
    )
    return result + direction[:, None].to(mention.dtype) * vectors[relation]


def back_projected(
    target: Tensor, relation: Tensor, projection: Tensor, relations: Relations | None = None
) -> Tensor:
    """v M_r^T of every pair, (P, d_r) -> (P, d): its product with e is v's with e M_r, so e is
    never projected (Eq. 18)."""
    return by_relation(
        target, relations or group_rows(relation), lambda rows, r: rows @ projection[r].T
    )


def compatibility(
    mention: Tensor,
    relation: Tensor,
    direction: Tensor,
    candidates: Tensor,
    projection: Tensor,
    vectors: Tensor,
    scale: float = 10.0,
    norm: Norm = "relation",
    relations: Relations | None = None,
) -> Tensor:
    """f_s(e_m, r, e) of every candidate (P, N), before the correction for sampling.

    mention (P, d), relation and direction (P,), candidates (P, N, d); projection (R, d, d_r),
    vectors (R, d_r); scale mu.

    norm    what the product of Eq. (18) is divided by:
            "relation"  ||h M_r + h_r|| ||e||, which is Eq. (16) where M_r is orthogonal
            "paper"     ||[h, 1] M_Pr|| ||e||, as Eq. (19) is printed; the first norm counts one
                        coordinate more
            "exact"     Eq. (16): ||h M_r + h_r|| ||e M_r||; projects every candidate, for tests and
                        small graphs
    relations  :func:`datamodules.rows.group_rows` of `relation`; None: grouped here, for which a
               GPU has to be read
    """
    with torch.autocast(mention.device.type, enabled=False):
        mention, candidates = mention.float(), candidates.float()
        relations = relations or group_rows(relation)
        target = translate_mentions(mention, relation, direction, projection, vectors, relations)
        back = back_projected(target, relation, projection, relations)  # (P, d)
        product = (candidates @ back[:, :, None])[..., 0]  # Eq. (18)
        if norm == "exact":
            projected = torch.einsum("pnd,pde->pne", candidates, projection[relation]).norm(dim=-1)
        else:
            projected = candidates.norm(dim=-1)
        if norm == "paper":
            # v . h_r, the last of M_Pr
            extra = (target * direction[:, None] * vectors[relation]).sum(-1, keepdim=True)
            length = torch.cat([back, extra], -1).norm(dim=-1)
        else:
            length = target.norm(dim=-1)
        return scale * product / (length[:, None] * projected).clamp_min(1e-8)


def sampled_softmax(
    score: Tensor, log_q: Tensor, present: Tensor, correction: float = 1.0
) -> Tensor:
    """-log of the first candidate's share among all, Eq. (15) with the correction of Eq. (19):
    (P,).

    score (P, 1 + n), the positive first; log_q (P, 1 + n) log Q of each under the sampler; there
    (P, 1 + n) bool, False for a negative that is a neighbour after all. correction: what log Q is
    multiplied by; 1 as in Jean et al. (2015), mu as Eq. (19) is printed.
    """
    logits = (score - correction * log_q).masked_fill(~present, -torch.inf)
    return logits.logsumexp(1) - logits[:, 0]
