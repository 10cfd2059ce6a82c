"""Sequences packed without padding into one row, and attention over them."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nested import nested_tensor_from_jagged
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from datamodules.steps import Places

#: an encoder's `attention` for which training steps leave the padding out
PACKED = "packed"


class Layout(NamedTuple):
    """An attention mask of a training batch, with what the host has of the batch: nothing has to be
    read from a GPU."""

    mask: Tensor  # (B, L)
    tokens: Tensor  # (T,) the places of its tokens in the flattened mask
    places: Places

    @property
    def whole(self) -> bool:
        """Whether nothing is masked."""
        return len(self.tokens) == self.mask.numel()


class Packing(NamedTuple):
    """The T tokens of B sequences, one sequence behind the other, in place of an attention mask."""

    tokens: Tensor  # (T,) the place of each in the flattened (B, L)
    offsets: Tensor  # (B + 1,) where each sequence begins, and T
    longest: int  # at least the tokens of the longest sequence


def layout(batch: Any) -> Tensor | Layout:
    """The attention mask of a batch, with its `places` where it has some
    (:func:`datamodules.steps.place_batch`)."""
    mask: Tensor = batch.attention_mask
    return mask if batch.places is None else Layout(mask, batch.places["tokens"], batch.places)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | Packing | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **named: Any,
) -> tuple[Tensor, None]:
    """Attention of transformers' interface, (B, heads, L, d) -> ((B, L, heads, d), None); of a
    :class:`Packing` B is 1 and L is T.

    Each sequence of a packing attends to itself: on CUDA one call of a kernel for sequences of
    several lengths.
    """
    if not isinstance(attention_mask, Packing):
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **named
        )
        return result
    _, offsets, longest = attention_mask

    def make_ragged(x: Tensor) -> Tensor:
        rows = nested_tensor_from_jagged(
            x[0].transpose(0, 1), offsets, min_seqlen=1, max_seqlen=longest
        )
        return rows.transpose(1, 2)

    ragged = make_ragged(query), make_ragged(key), make_ragged(value)
    read = scaled_dot_product_attention(*ragged, dropout_p=dropout, scale=scaling)
    return read.transpose(1, 2).values()[None], None


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, sdpa_mask)
