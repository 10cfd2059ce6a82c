"""TransE and TransR on PyKEEN's models: with free length, and faster steps of the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pykeen.models import ERModel
from pykeen.models import TransE as PyKEENTransE
from pykeen.models import TransR as PyKEENTransR
from pykeen.nn.init import PretrainedInitializer
from pykeen.nn.representation import Embedding
from pykeen.triples import CoreTriplesFactory
from pykeen.utils import clamp_norm
from torch import Tensor

from kg.graph import KnowledgeGraph
from kg.vectors.embeddings import EmbeddingTable

MODELS = ("TransE", "TransR")


class TransE(PyKEENTransE):
    """PyKEEN's TransE whose L2 scores against all entities come from one matrix product instead of
    all differences.

    sparse  whether a step changes the rows of its batch alone: gradients are sparse, and what is
            not in the batch, being of length 1 already, is not shortened again
    unit    whether entities have length 1; otherwise they are as long as training makes them
    """

    norm: int
    sparse = False

    def __init__(
        self, *, scoring_fct_norm: int = 2, sparse: bool = False, unit: bool = True, **kwargs: Any
    ) -> None:
        if not unit:
            kwargs["entity_constrainer"] = None
        super().__init__(scoring_fct_norm=scoring_fct_norm, **kwargs)
        self.norm, self.sparse = scoring_fct_norm, sparse
        for part in self._tables():
            part._embeddings.sparse = sparse

    def _tables(self) -> list[Embedding]:
        return [
            part
            for part in (*self.entity_representations, *self.relation_representations)
            if isinstance(part, Embedding)
        ]

    def post_parameter_update(self) -> None:
        """Constrain what a step has changed."""
        if not self.sparse:
            return super().post_parameter_update()
        for part in self._tables():
            weight = part._embeddings.weight
            if part.constrainer is not None and weight.grad is not None:
                changed = weight.grad.coalesce().indices()[0]
                weight.data[changed] = part.constrainer(weight.data[changed])

    def score_t(
        self,
        hr_batch: Tensor,
        *,
        slice_size: int | None = None,
        mode: Any = None,
        tails: Tensor | None = None,
    ) -> Tensor:
        """-||h + r - t|| for every t. (batch, 2) indices -> (batch, entities)."""
        if self.norm != 2 or tails is not None:
            return super().score_t(hr_batch, slice_size=slice_size, mode=mode, tails=tails)
        entity, relation = self.entity_representations[0](), self.relation_representations[0]()
        return -torch.cdist(entity[hr_batch[:, 0]] + relation[hr_batch[:, 1]], entity)

    def score_h(
        self,
        rt_batch: Tensor,
        *,
        slice_size: int | None = None,
        mode: Any = None,
        heads: Tensor | None = None,
    ) -> Tensor:
        """-||h + r - t|| for every h. (batch, 2) indices -> (batch, entities)."""
        if self.norm != 2 or heads is not None:
            return super().score_h(rt_batch, slice_size=slice_size, mode=mode, heads=heads)
        entity, relation = self.entity_representations[0](), self.relation_representations[0]()
        return -torch.cdist(entity[rt_batch[:, 1]] - relation[rt_batch[:, 0]], entity)


class GroupedProduct(torch.autograd.Function):
    """x[i] @ M[relation[i]] for rows sorted by relation, one product per relation.

    Indexing M row by row would hold one matrix per row, and a gradient of all of M per relation.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: Tensor, sizes: list[int]) -> Tensor:
        """(n, d), (relations, d, d_r), rows per relation -> (n, d_r)."""
        ctx.save_for_backward(x, matrices)
        ctx.sizes = sizes
        out = x.new_empty(len(x), matrices.shape[2])
        for relation, rows in _spans(sizes):
            torch.mm(x[rows], matrices[relation], out=out[rows])
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        x, matrices = ctx.saved_tensors
        of_x, of_matrices = torch.empty_like(x), torch.zeros_like(matrices)
        for relation, rows in _spans(ctx.sizes):
            torch.mm(gradient[rows], matrices[relation].T, out=of_x[rows])
            torch.mm(x[rows].T, gradient[rows], out=of_matrices[relation])
        return of_x, of_matrices, None


def _spans(sizes: list[int]) -> list[tuple[int, slice]]:
    """(relation, its rows) of each relation that has some."""
    ends = np.cumsum(sizes)
    return [
        (r, slice(end - size, end))
        for r, (size, end) in enumerate(zip(sizes, ends.tolist(), strict=True))
        if size
    ]


def shorten_rows(x: Tensor, maxnorm: float, p: int = 2, dim: int = -1) -> Tensor:
    """x with the vectors that are longer than `maxnorm` shortened to it, in place: PyKEEN's
    clamp_norm of parameters."""
    values = x.detach()
    norm = torch.linalg.vector_norm(values, ord=p, dim=dim, keepdim=True)
    if (norm >= maxnorm).any():
        values *= torch.where(norm < maxnorm, 1.0, maxnorm / norm)
    return x


class TransR(PyKEENTransR):
    """PyKEEN's TransR, same parameters and scores, that multiplies once per relation of a batch.

    The stock model gathers one M_r per triple. `norm` is that of the scores and of every clamp.

    unit  whether nothing is longer than 1; otherwise c is left out, and entities, relations and
          projections are as long as training makes them
    """

    def __init__(self, *, scoring_fct_norm: int = 2, unit: bool = True, **kwargs: Any) -> None:
        constrainer = shorten_rows if unit else None
        super().__init__(
            scoring_fct_norm=scoring_fct_norm,
            entity_constrainer=constrainer,  # type: ignore[arg-type]
            relation_constrainer=constrainer,  # type: ignore[arg-type]
            **kwargs,
        )
        self.norm, self.unit = scoring_fct_norm, unit

    def clamp(self, x: Tensor) -> Tensor:
        """c(x) of vectors (n, d): those that are longer than 1 shortened to it."""
        return clamp_norm(x, maxnorm=1.0, p=self.norm, dim=-1) if self.unit else x

    def project(self, x: Tensor, relation: int) -> Tensor:
        """c(x M_r): (n, d) -> (n, d_r)."""
        matrix = self.relation_representations[1](torch.tensor([relation], device=x.device))[0]
        return self.clamp(x @ matrix)

    def score_hrt(self, hrt_batch: Tensor, *, mode: Any = None) -> Tensor:
        """-||c(h M_r) + r - c(t M_r)||. (n, 3) indices -> (n, 1)."""
        n = len(hrt_batch)
        relation = hrt_batch[:, 1].repeat(2)
        order = torch.argsort(relation, stable=True)
        x = self.entity_representations[0](hrt_batch[:, [0, 2]].T.reshape(-1)[order])
        matrices = self.relation_representations[1]()
        sizes = torch.bincount(relation, minlength=len(matrices)).tolist()
        product = GroupedProduct.apply(x, matrices, sizes)
        place = torch.empty_like(order)
        place[order] = torch.arange(2 * n, device=order.device)
        both = self.clamp(product)[place]
        r = self.relation_representations[0](hrt_batch[:, 1])
        return -(both[:n] + r - both[n:]).norm(p=self.norm, dim=-1, keepdim=True)

    def _against_all(self, entity: Tensor, relation: Tensor, sign: int) -> Tensor:
        """-||c(e M_r) + sign r - c(x M_r)|| for every entity x, all projected once per relation.
        (n,), (n,) -> (n, entities)."""
        entities, relations = self.entity_representations[0](), self.relation_representations[0]()
        scores = entities.new_empty(len(entity), len(entities))
        for r in relation.unique().tolist():
            rows = relation == r
            projected = self.project(entities, r)
            scores[rows] = -torch.cdist(
                projected[entity[rows]] + sign * relations[r], projected, p=self.norm
            )
        return scores

    def score_t(
        self,
        hr_batch: Tensor,
        *,
        slice_size: int | None = None,
        mode: Any = None,
        tails: Tensor | None = None,
    ) -> Tensor:
        """Scores of every t. (n, 2) indices -> (n, entities)."""
        if tails is not None:
            return super().score_t(hr_batch, slice_size=slice_size, mode=mode, tails=tails)
        return self._against_all(hr_batch[:, 0], hr_batch[:, 1], 1)

    def score_h(
        self,
        rt_batch: Tensor,
        *,
        slice_size: int | None = None,
        mode: Any = None,
        heads: Tensor | None = None,
    ) -> Tensor:
        """Scores of every h. (n, 2) indices -> (n, entities)."""
        if heads is not None:
            return super().score_h(rt_batch, slice_size=slice_size, mode=mode, heads=heads)
        return self._against_all(rt_batch[:, 1], rt_batch[:, 0], -1)


def network(
    model: str, factory: CoreTriplesFactory, dim: int, relation_dim: int, norm: int, **kwargs: Any
) -> ERModel:
    """The untrained model."""
    if model == "TransE":
        return TransE(triples_factory=factory, embedding_dim=dim, scoring_fct_norm=norm, **kwargs)
    return TransR(
        triples_factory=factory,
        embedding_dim=dim,
        relation_dim=relation_dim,
        scoring_fct_norm=norm,
        **kwargs,
    )


def table_of(model: ERModel, graph: KnowledgeGraph, manifest: dict[str, Any]) -> EmbeddingTable:
    """The vectors of a trained model, with M_r if it has them."""
    with torch.no_grad():
        parts = [
            model.entity_representations[0](),
            *(part() for part in model.relation_representations),
        ]
    entity, relation, *projection = (part.detach().cpu() for part in parts)
    return EmbeddingTable(
        entity,
        graph.ids.to_pylist(),
        relation,
        graph.relations,
        projection[0] if projection else None,
        manifest,
    )


class _Given(PretrainedInitializer):
    """Initialises with a copy: PyKEEN also lets torch initialise the weights in place, which would
    change the tensor."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x).clone()


def started_from(entity: Tensor, relation: Tensor) -> dict[str, Any]:
    """Arguments of a TransR that starts as the TransE with these vectors: they are its own, and
    every M_r is the identity.

    They must come as initialisers: PyKEEN's training begins with another initialisation.
    """
    identity = torch.eye(entity.shape[1]).expand(len(relation), -1, -1)
    names = ("entity_initializer", "relation_initializer", "relation_projection_initializer")
    values = (entity, relation, identity)
    return {name: _Given(v.detach().cpu().clone()) for name, v in zip(names, values, strict=True)}
