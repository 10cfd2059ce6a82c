"""The encoder: a BERT whose mentions take in their neighbours between two of its layers (Section
3.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from transformers import BertModel

from datamodules.mentions import Mentions
from datamodules.steps import Places
from models.encoders import (
    embed_tokens,
    knowledge_layer,
    layers_mask,
    read_export,
    start_as_bert,
    through_layers,
)
from models.packing import Layout
from models.smedbert.attention import HybridAttention, PositionInfusion, SpanProjection
from models.transformer_files import token_limit

#: known of the places in a batch that is not of training
NOTHING: Places = {}
#: What an export says about the encoder it holds.
SETTINGS = (
    "knowledge_after",
    "hybrid_attention",
    "type_attention",
    "type_state",
    "type_place",
    "without_neighbours",
)


class SMedBERTEncoder(nn.Module):
    """A BERT with the mention-neighbour hybrid attention.

    bert              any BERT without pooler
    entity            (Z, d_2) vectors of the graph's entities, Gamma_ent
    knowledge_after   layers before the knowledge module (the paper's 10 of 12); None: the same
                      share of this encoder's
    hybrid_attention  False: no knowledge module at all (the ablation "- Hybrid Att.")
    without_neighbours  whether a linked mention that has no neighbour is infused, too, with what
    Eq. (7) makes of none; False: it
                      stays as it is
    freeze_entities   keep the entity vectors as they are
    The rest as in :class:`HybridAttention`.
    """

    segments = True

    def __init__(
        self,
        bert: BertModel,
        entity: Tensor,
        knowledge_after: int | None = None,
        hybrid_attention: bool = True,
        type_attention: bool = True,
        type_state: Literal["sum", "mean"] = "sum",
        type_place: Literal["pre", "post"] = "pre",
        without_neighbours: bool = False,
        freeze_entities: bool = True,
    ) -> None:
        super().__init__()
        config = bert.config
        hidden, size, eps = config.hidden_size, entity.shape[1], config.layer_norm_eps
        self.bert, self.hybrid_attention = bert, hybrid_attention
        self.knowledge_after = knowledge_layer(knowledge_after, config.num_hidden_layers)
        self.hidden_size, self.max_length = hidden, token_limit(config)
        self.settings: dict[str, Any] = {
            "knowledge_after": self.knowledge_after,
            "hybrid_attention": hybrid_attention,
            "type_attention": type_attention,
            "type_state": type_state,
            "type_place": type_place,
            "without_neighbours": without_neighbours,
        }
        self.entity = nn.Parameter(entity.clone().float(), requires_grad=not freeze_entities)
        if hybrid_attention:
            self.mention = SpanProjection(hidden, size, eps)  # Eq. (2)
            self.attention = HybridAttention(size, type_attention, type_state, type_place, eps)
            self.infusion = PositionInfusion(hidden, size, eps)
            start_as_bert(config.initializer_range, self.mention, self.attention, self.infusion)

    def resize_token_embeddings(self, size: int) -> None:
        """Make room for `size` tokens; new rows start as BERT's do."""
        self.bert.resize_token_embeddings(size)

    def infuse(self, states: Tensor, mentions: Mentions, places: Places = NOTHING) -> Tensor:
        """States (B, L, H) with the knowledge of the mentions: of those that have a neighbour, or
        of all."""
        present = mentions.neighbours >= 0
        takes = None if self.settings["without_neighbours"] else present.any(1)
        vectors = self.entity[mentions.neighbours.clamp_min(0)]
        mention_states = self.mention(states, mentions.span, places.get("longest"))
        knowledge = self.attention(
            mention_states, vectors.to(mention_states.dtype), mentions.type, present
        )
        result: Tensor = self.infusion(
            states, mentions.span, knowledge, mention_states, takes, places.get("infused")
        )
        return result

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | Layout,
        mentions: Mentions | None = None,
        second: Tensor | None = None,
    ) -> Tensor:
        """(B, L) ids and mask -> (B, L, H). mentions: those that take knowledge in; second: 1 on
        the second of two texts."""
        if self.bert.config.type_vocab_size < 2:
            second = None
        states = embed_tokens(self.bert, input_ids, second)
        mask = layers_mask(self.bert, states, attention_mask)
        states = through_layers(self.bert, states, mask, 0, self.knowledge_after)
        if self.hybrid_attention and mentions is not None:
            states = self.infuse(
                states,
                mentions,
                attention_mask.places if isinstance(attention_mask, Layout) else NOTHING,
            )
        return through_layers(
            self.bert, states, mask, self.knowledge_after, len(self.bert.encoder.layer)
        )

    @classmethod
    def from_export(cls, folder: str | Path) -> SMedBERTEncoder:
        """The encoder in an export folder. Raises InputError when a file or a weight is missing."""
        return read_export(folder, "smedbert", "SMedBERT", SETTINGS, cls)
