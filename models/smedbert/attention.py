"""Section 3.3: what the neighbours of a linked entity tell a mention, and how its tokens take that
in."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from models.layers import SpanPooling


class SpanProjection(nn.Module):
    """LN(GELU(f_sp(states) W)), Eq. (2), (12) and (20)."""

    def __init__(self, hidden: int, size: int, eps: float = 1e-12) -> None:
        super().__init__()
        self.pool, self.linear = SpanPooling(hidden), nn.Linear(hidden, size, bias=False)
        self.norm = nn.LayerNorm(size, eps=eps)

    def forward(self, hidden: Tensor, spans: Tensor, longest: int | None = None) -> Tensor:
        """(B, L, H) states, (M, 3) spans -> (M, size).  longest: as in
        :func:`models.layers.span_states`."""
        result: Tensor = self.norm(
            nn.functional.gelu(self.linear(self.pool(hidden, spans, longest)))
        )
        return result


class HybridAttention(nn.Module):
    """Type attention and node attention over the neighbours of mentions, Eq. (3-7).

    size            d_2
    type_attention  False: every type weighs 1 (the ablation "- Type Att.")
    type_state      a type's state h_tau: "sum" of its neighbours' vectors (the paper), or their
                    "mean" (the released code)
    type_place      where alpha multiplies: "pre", the logits of the node softmax (Eq. 4), or
                    "post", its weights (the code)

    In Eq. (4) a small alpha raises a logit that is negative: it draws every logit of its type
    towards 0.
    """

    def __init__(
        self,
        size: int,
        type_attention: bool = True,
        type_state: Literal["sum", "mean"] = "sum",
        type_place: Literal["pre", "post"] = "pre",
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        self.type_attention, self.type_state, self.type_place = (
            type_attention,
            type_state,
            type_place,
        )
        if type_attention:
            self.from_mention = nn.Linear(size, size, bias=False)  # W_t
            self.from_type = nn.Linear(size, size, bias=False)  # W_t'
            self.to_score = nn.Linear(size, 1, bias=False)  # W_a
        # W_q, W_k
        self.query, self.key = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)
        self.value = nn.Linear(size, size)  # W_v, b_v
        # W_l1, b_l1, W_l2
        self.inner, self.outer = nn.Linear(size, 4 * size), nn.Linear(4 * size, size, bias=False)
        self.norm = nn.LayerNorm(size, eps=eps)

    def type_weights(
        self, mention: Tensor, vectors: Tensor, types: Tensor, present: Tensor
    ) -> Tensor:
        """alpha of each neighbour's type, Eq. (3): (M, K), a softmax over the types that a
        mention's neighbours have."""
        if not self.type_attention:
            return torch.ones_like(vectors[..., 0])
        # (M, K, K)
        same = (types[:, :, None] == types[:, None]) & present[:, None] & present[:, :, None]
        count = same.sum(-1).clamp_min(1)
        state = same.to(vectors.dtype) @ vectors  # h_tau of each neighbour's type
        if self.type_state == "mean":
            state = state / count[..., None]
        score = self.to_score(
            torch.tanh(self.from_mention(mention)[:, None] + self.from_type(state))
        )[..., 0].float()
        # Each type is to count once in the softmax, however many neighbours have it.
        once = (score - count.log()).masked_fill(~present, -torch.inf)
        weight = (score - once.logsumexp(1, keepdim=True)).exp()
        return weight.masked_fill(~present, 0.0).to(vectors.dtype)

    def forward(self, mention: Tensor, vectors: Tensor, types: Tensor, present: Tensor) -> Tensor:
        """h-bar of every mention (M, d_2), Eq. (4-7).

        mention (M, d_2) Eq. (2); vectors (M, K, d_2) of the neighbours; types (M, K) int; there (M,
        K) bool. Of a mention without a neighbour the sum of Eq. (6) is empty, and Eq. (7) of 0 is
        left.
        """
        some = present.any(1, keepdim=True)
        present = present | ~some  # or a softmax over nothing: what comes of it is multiplied by 0
        alpha = self.type_weights(mention, vectors, types, present)
        logits = (self.query(mention)[:, None] @ self.key(vectors).transpose(1, 2))[
            :, 0
        ] / math.sqrt(vectors.shape[-1])
        if self.type_place == "pre":
            logits = logits * alpha  # Eq. (4)
        # Eq. (5)
        beta = logits.float().masked_fill(~present, -torch.inf).softmax(1).to(vectors.dtype)
        if self.type_place == "post":
            beta = beta * alpha
        mixed = (beta[:, None] @ self.value(vectors))[:, 0] * some  # Eq. (6)
        # Eq. (7)
        result: Tensor = self.norm(mixed + self.outer(nn.functional.gelu(self.inner(mixed))))
        return result


class PositionInfusion(nn.Module):
    """Gated position infusion, Eq. (8-11): the tokens of a mention take in its knowledge, no other
    token changes."""

    def __init__(self, hidden: int, size: int, eps: float = 1e-12) -> None:
        super().__init__()
        # W_mf, W_bp
        self.fuse, self.back = nn.Linear(2 * size, 2 * size), nn.Linear(2 * size, hidden)
        self.norm = nn.LayerNorm(hidden, eps=eps)
        # W_ug, W_ex
        self.gate, self.extend = nn.Linear(2 * hidden, hidden), nn.Linear(2 * hidden, hidden)

    def forward(
        self,
        hidden: Tensor,
        spans: Tensor,
        knowledge: Tensor,
        mention: Tensor,
        takes: Tensor | None = None,
        tokens: int | None = None,
    ) -> Tensor:
        """(B, L, H) states -> the same with Eq. (11) on the tokens of the disjoint `spans` (M, 3).

        knowledge, mention (M, d_2): Eq. (7) and Eq. (2).  takes: (M,) bool, the spans that take
        knowledge in; None: all.
        tokens: of all spans; None: counted, for which a GPU has to be read.
        """
        fused = nn.functional.gelu(self.fuse(torch.cat([knowledge, mention], -1)))  # Eq. (8)
        informed = self.norm(self.back(fused))  # Eq. (9), (M, H)
        length = hidden.shape[1]
        size = spans[:, 2] - spans[:, 1]
        positions = torch.arange(len(spans), device=spans.device)
        number = torch.repeat_interleave(
            positions, size, output_size=tokens
        )  # of each token's mention
        first = (size.cumsum(0) - size)[number]
        place = (
            torch.arange(len(number), device=spans.device)
            - first
            + (spans[:, 0] * length + spans[:, 1])[number]
        )
        flat = hidden.reshape(-1, hidden.shape[-1])
        before, informed = flat[place], informed[number].to(hidden.dtype)
        gate = torch.tanh(self.gate(torch.cat([before, informed], -1)))  # Eq. (10)
        # Eq. (11)
        after = nn.functional.gelu(self.extend(torch.cat([before, gate * informed], -1))) + before
        if takes is not None:
            after = torch.where(takes[number, None], after, before)
        return flat.index_copy(0, place, after.to(flat.dtype)).view_as(hidden)
