"""Losses: those with a cheaper exact form than their formula, and those over chosen pairs of a
batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class _EntitySoftmax(torch.autograd.Function):
    """Entity linking over a large table without ever holding the (mentions, entities) logits.

    Forward walks the table in chunks and keeps a running log-sum-exp and a running top-k; backward
    walks it again.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(
        ctx: Any, query: Tensor, table: Tensor, gold: Tensor | None, k: int, chunk: int
    ) -> tuple[Tensor, ...]:
        mentions, k = len(query), min(k, len(table))
        normaliser = query.new_full((mentions,), -torch.inf)
        values, index = (
            query.new_empty(mentions, 0),
            torch.empty(mentions, 0, dtype=torch.long, device=query.device),
        )
        for begin in range(0, len(table), chunk):
            logits = query @ table[begin : begin + chunk].T  # (M, chunk)
            best, where = logits.topk(min(k, logits.shape[1]), dim=1)
            values, index = torch.cat([values, best], 1), torch.cat([index, where + begin], 1)
            if values.shape[1] > k:
                values, kept = values.topk(k, dim=1)
                index = index.gather(1, kept)
            if gold is not None:
                peak = torch.maximum(normaliser, best[:, 0])
                logits.sub_(peak[:, None]).exp_()
                normaliser = peak + ((normaliser - peak).exp() + logits.sum(1)).log()
        values, order = values.sort(dim=1, descending=True)
        index = index.gather(1, order)
        weight = values.softmax(1)
        mixture = torch.nn.functional.embedding_bag(
            index, table, per_sample_weights=weight, mode="sum"
        )
        if gold is None:
            loss = query.new_zeros(mentions)
        else:
            loss = normaliser - (query * table[gold]).sum(1)
        ctx.save_for_backward(query, table, gold, normaliser, index, weight)
        ctx.chunk = chunk
        ctx.mark_non_differentiable(index)
        return loss, mixture, index

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        query, table, gold, normaliser, index, weight = ctx.saved_tensors
        from_loss, from_mixture, _ = gradients
        to_query = torch.zeros_like(query)
        to_table = torch.zeros_like(table) if ctx.needs_input_grad[1] else None
        if gold is not None:
            for begin in range(0, len(table), ctx.chunk):
                rows = table[begin : begin + ctx.chunk]
                # d loss / d logits
                share = (query @ rows.T).sub_(normaliser[:, None]).exp_().mul_(from_loss[:, None])
                to_query += share @ rows
                if to_table is not None:
                    torch.mm(share.T, query, out=to_table[begin : begin + ctx.chunk])
            to_query -= from_loss[:, None] * table[gold]
            if to_table is not None:
                to_table.index_add_(0, gold, -from_loss[:, None] * query)
        # bounds the gathered (m, k, d) rows
        piece = max(1, 2**20 // max(1, index.shape[1] * table.shape[1]))
        for begin in range(0, len(query), piece):
            part = slice(begin, begin + piece)
            rows = table[index[part]]  # (m, k, d)
            to_weight = (rows @ from_mixture[part, :, None]).squeeze(-1)  # (m, k)
            to_logit = weight[part] * (to_weight - (weight[part] * to_weight).sum(1, keepdim=True))
            to_query[part] += (to_logit[:, None] @ rows).squeeze(1)
            if to_table is not None:
                to_rows = (
                    weight[part, :, None] * from_mixture[part, None]
                    + to_logit[:, :, None] * query[part, None]
                )
                to_table.index_add_(0, index[part].flatten(), to_rows.flatten(0, 1))
        return to_query, to_table, None, None, None


def entity_softmax(
    query: Tensor, table: Tensor, gold: Tensor | None = None, k: int = 100, chunk: int = 8192
) -> tuple[Tensor, Tensor, Tensor]:
    """Link mentions to the rows of an entity table by dot product.

    query (M, d), table (E, d), gold (M,) rows or None. Returns

        loss     (M,)     -log softmax over all E rows at the gold one (KeBioLM, Eq. 10); zeros
                          without `gold`
        mixture  (M, d)   the k best rows weighted by their softmax (KeBioLM, Eq. 3)
        best     (M, k)   those rows' numbers, best first

    Exact, computed in float32 whatever autocast says. Beyond inputs and gradients it needs memory
    for one (M, chunk) block, not for (M, E).
    """
    if table.dim() != 2 or query.shape[-1] != table.shape[1]:
        raise ValueError(
            f"query {tuple(query.shape)} and table {tuple(table.shape)}: expected (M, d) and (E, d)"
        )
    with torch.autocast(query.device.type, enabled=False):
        return _EntitySoftmax.apply(query.float(), table.float(), gold, k, chunk)


@torch.no_grad()
def entity_ranks(
    query: Tensor, table: Tensor, gold: Tensor, among: Tensor | None = None, chunk: int = 8192
) -> Tensor:
    """(M,) the rank of each gold row (M,) of `table` (E, d) by dot product with `query` (M, d),
    from 1.

    among: (E,) bool, the rows that count besides the gold one; None: all. Of equal scores the gold
        one has the middle place.
    """
    # scores that round alike would share a rank
    with torch.autocast(query.device.type, enabled=False):
        query, table = query.float(), table.float()
        chunks = [(begin, min(begin + chunk, len(table))) for begin in range(0, len(table), chunk)]
        own, rank = query.new_empty(len(query), 1), query.new_ones(len(query), dtype=torch.double)
        # by the same product as the others' scores: equal rows have equal scores
        for begin, end in chunks:
            here = ((gold >= begin) & (gold < end)).nonzero()[:, 0]
            if len(here):
                own[here] = (query @ table[begin:end].T)[here, gold[here] - begin, None]
        for begin, end in chunks:
            scores = query @ table[begin:end].T
            counts = torch.arange(begin, end, device=table.device)[None] != gold[:, None]
            if among is not None:
                counts &= among[begin:end]
            rank += ((scores > own) & counts).sum(1) + ((scores == own) & counts).sum(1) / 2
        return rank


def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """() sum over N tokens of -(1 - ε) log p(y) - ε/V Σ_v log p(v), label smoothing (Szegedy et al.
    2016), in float32.

    logits (N, V), labels (N,); ε is `smoothing`.
    """
    return nn.functional.cross_entropy(
        logits.float(), labels, reduction="sum", label_smoothing=smoothing
    )


def word_loss(
    states: Tensor,
    labels: Tensor,
    logits: Callable[[Tensor], Tensor],
    vocabulary: int,
    smoothing: float = 0.0,
    block: int = 2**27,
) -> Tensor:
    """() sum over N tokens of -log p(label), where ``logits(states)`` are (N, V) of `states` (N,
    H); labels (N,).

    vocabulary  V;  smoothing  as in :func:`smoothed_loss`;  block  logits in memory at once, at
    most Of more logits than `block` those of some tokens at a time are made, and made again for the
    gradient.
    """

    def part(states: Tensor, labels: Tensor) -> Tensor:
        return smoothed_loss(logits(states), labels, smoothing)

    size = max(1, block // vocabulary)
    if len(states) <= size:
        return part(states, labels)
    parts = zip(states.split(size), labels.split(size), strict=True)
    return torch.stack(
        [checkpoint(part, *own, use_reentrant=False, preserve_rng_state=False) for own in parts]
    ).sum()


def multi_similarity(
    similarity: Tensor,
    positive: Tensor,
    negative: Tensor,
    alpha: float = 60.0,
    beta: float = 1.0,
    epsilon: float = 0.5,
) -> Tensor:
    """Multi-similarity loss over chosen pairs (Wang et al. 2019; SapBERT, Eq. 2), a mean over all N
    anchors.

    similarity (N, N), positive and negative (N, N) bool: the pairs of every anchor (row). An anchor
    without pairs adds 0.
    """
    return _MultiSimilarity.apply(similarity, positive, negative, alpha, beta, epsilon)


def multi_similarity_rows(
    similarity: Tensor,
    positive: Tensor,
    negative: Tensor,
    alpha: float,
    beta: float,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """((A,) the term of each anchor in Eq. (2), (A, N) its derivative by the anchor's
    similarities); no autograd."""
    repelled, push = _log_one_plus_sum(alpha * similarity - alpha * epsilon, negative)
    attracted, pull = _log_one_plus_sum(beta * epsilon - beta * similarity, positive)
    return repelled / alpha + attracted / beta, push.sub_(pull)


class _MultiSimilarity(torch.autograd.Function):
    """Eq. (2) with its gradient, which the forward pass has computed: the softmax weights of each
    row's pairs."""

    @staticmethod
    def forward(
        ctx: Any,
        similarity: Tensor,
        positive: Tensor,
        negative: Tensor,
        alpha: float,
        beta: float,
        epsilon: float,
    ) -> Tensor:
        terms, weight = multi_similarity_rows(similarity, positive, negative, alpha, beta, epsilon)
        ctx.save_for_backward(weight.div_(len(similarity)))
        return terms.mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0] * gradients[0], None, None, None, None, None


def info_nce(
    similarity: Tensor, positive: Tensor, negative: Tensor, temperature: float = 0.07
) -> Tensor:
    """InfoNCE (Oord et al. 2018) over chosen pairs: a mean over all positive pairs; 0 when there is
    none.

    -log of the share that the positive has among itself and the anchor's negatives; arguments as
    multi_similarity's.
    """
    logits = similarity / temperature
    against = logits.masked_fill(~negative, -torch.inf).logsumexp(1, keepdim=True)  # (N, 1)
    losses = torch.logaddexp(logits, against) - logits
    return torch.where(positive, losses, 0).sum() / positive.sum().clamp_min(1)


def nca(similarity: Tensor, positive: Tensor, negative: Tensor, scale: float = 1.0) -> Tensor:
    """Neighbourhood components analysis (Goldberger et al. 2005) over chosen pairs, a mean over all
    N anchors.

    -log of the probability that an anchor picks one of its positives among its pairs, by a softmax
    over the negative squared distance of unit vectors times `scale`; an anchor without positives
    adds 0. Arguments as multi_similarity's.
    """
    logits = 2 * scale * (similarity - 1)  # -scale ||f_i - f_j||^2
    chosen = positive.any(1)
    positive = positive | ~chosen[:, None]  # or a gradient through a softmax over nothing
    right = logits.masked_fill(~positive, -torch.inf).logsumexp(1)
    every = logits.masked_fill(~(positive | negative), -torch.inf).logsumexp(1)
    return torch.where(chosen, every - right, 0).sum() / len(similarity)


def _log_one_plus_sum(exponent: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """((N,) log(1 + sum of e^exponent over the chosen of each row), (N, N) its derivative);
    overwrites `exponent`."""
    exponent.masked_fill_(~chosen, -torch.inf)
    peak = exponent.amax(1, keepdim=True).clamp_min_(0)
    exponent.sub_(peak).exp_()
    total = exponent.sum(1, keepdim=True) + (-peak).exp()
    return (peak + total.log())[:, 0], exponent.div_(total)
