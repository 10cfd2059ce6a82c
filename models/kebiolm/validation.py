"""What KeBioLM's validation measures: detection and linking of mentions, and how far the entity
table moved.

`encoder` is a :class:`models.kebiolm.KeBioLMEncoder`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.kebiolm import KeBioLMBatch
from models.layers import bio_spans, boundary_states
from models.losses import entity_ranks
from models.metrics import span_matches

#: mentions by how often the training text mentions their entity: all of them, never, once, 2 to 5
#: times, more often
GROUPS = {
    "": (0, math.inf),
    "_unseen": (0, 0),
    "_once": (1, 1),
    "_rare": (2, 5),
    "_frequent": (6, math.inf),
}


def detection_counts(encoder: Any, text: Tensor, batch: KeBioLMBatch) -> Tensor:
    """(3,) counts of :func:`span_matches` of the mentions that are detected in the text states."""
    # nothing of a blank batch
    counted = batch.attention_mask * (batch.bio_labels != -100).any(1, keepdim=True)
    return span_matches(
        encoder.detect_mentions(text, counted),
        bio_spans(batch.bio_labels),
        batch.input_ids.shape[1],
    )


def linking_measures(
    encoder: Any, text: Tensor, batch: KeBioLMBatch, unseen: Tensor, mask_id: int
) -> dict[str, Any]:
    """Linking from the states of the text itself, and of the text with all mentions masked.

    unseen  (E,) bool: entities that the training text never mentions
    """
    hidden = batch.original_ids.masked_fill(
        (batch.bio_labels == 1) | (batch.bio_labels == 2), mask_id
    )
    blind, _ = encoder.text_states(hidden, batch.attention_mask)
    groups = {
        name: (batch.frequency >= least) & (batch.frequency <= most)
        for name, (least, most) in GROUPS.items()
    }
    measures: dict[str, Any] = {f"mentions{name}": group.sum() for name, group in groups.items()}
    for states, masked in ((text, ""), (blind, "_masked")):
        right, rank, among_unseen = _link_mentions(encoder, states, batch, unseen)
        for name, group in groups.items():
            measures[f"linking_acc1{name}{masked}"] = right[group].sum(), group.sum()
            measures[f"linking_mrr{name}{masked}"] = rank[group].sum(), group.sum()
        group = groups["_unseen"]
        measures[f"linking_mrr_among_unseen{masked}"] = among_unseen[group].sum(), group.sum()
    return measures


def _link_mentions(
    encoder: Any, text: Tensor, batch: KeBioLMBatch, unseen: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(M,) of each mention: is the nearest entity the gold one, 1 / its rank among all, 1 / the
    rank of an unseen one among unseen ones."""
    with torch.autocast(text.device.type, enabled=False):
        query = encoder.mention_projection(boundary_states(text, batch.mention).float())
    right = encoder.link(text, batch.mention)[2][:, 0] == batch.entity
    rank = 1 / entity_ranks(query, encoder.entity, batch.entity)
    unlinked = batch.frequency == 0
    among = query.new_zeros(len(query), dtype=torch.double)
    among[unlinked] = 1 / entity_ranks(
        query[unlinked], encoder.entity, batch.entity[unlinked], unseen
    )
    return right, rank, among


def entity_shift(entity: Tensor, start: Tensor, unseen: Tensor) -> dict[str, Tensor]:
    """The mean cosine of the entity table's rows to their start: of all, and of those that the
    training text never mentions; nothing where there are no such rows."""
    with torch.no_grad():
        cosine = nn.functional.cosine_similarity(entity.float().cpu(), start)
    shifts = {
        "entities/cosine_to_start": cosine.mean(),
        "entities/cosine_to_start_unseen": cosine[unseen].mean(),
    }
    return {name: value for name, value in shifts.items() if not value.isnan()}
