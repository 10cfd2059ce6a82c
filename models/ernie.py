"""ERNIE: Enhanced Language Representation with Informative Entities.

Zhang, Han, Liu, Jiang, Sun and Liu, ACL 2019. https://arxiv.org/abs/1905.07129

    Text-only layers, Eq. (1)                        ERNIEEncoder.forward
    Aggregators of tokens and entities, Eq. (2-6)    Aggregator
    Denoising entity auto-encoder, Eq. (7)           ERNIE.outputs
    Entities hidden and exchanged, Section 3.4       datamodules.ernie

Deviations from the printed paper and its released code, each pinned by a test:
    D1  Sentence order replaces next sentences, as in what it is compared with here (SMedBERT, its
        baselines).
    D2  Eq. (3-5) print no residual connections and norms; both streams have BERT's, as in the
        released code, and tokens keep the weights of the initial BERT.
    D3  Eq. (7) scores an entity against the sequence's others, the released code against all of its
        batch, so that a sequence's gradient depends on its batch mates. Here it is scored against
        the sequence's others and drawn ones, drawn as often as the text mentions them: what a batch
        holds in the mean.
    D4  The released code's last text-only layer receives entities, too, and [CLS] is among the
        entities as a vector of zeros; neither is in the paper, nor here. Its linear layer of Eq.
        (7) is two, with GELU and a norm.
    D5  Each loss is its sum over the global batch divided by its count there; the paper prints
        sums.
    D6  An entity is at the first token of its mention (the paper's words; its figure shows the
        same).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertAttention

from core.files import InputError
from datamodules.ernie import Aligned, ERNIEBatch
from models.encoders import (
    attention_mask_4d,
    bert_layer_config,
    embed_tokens,
    knowledge_layer,
    layers_mask,
    read_export,
    start_as_bert,
    through_layers,
)
from models.layers import in_rows
from models.measures import Measures
from models.ordered import OrderedLM, drop_masked, measure_without_answers
from models.packing import Layout, Packing, layout
from models.transformer_files import token_limit

SETTINGS = ("text_layers", "heads")


class Aggregator(nn.Module):
    """What a layer of BERT needs besides to read entities, Eq. (3-6).

    config  of the BERT;  size  of an entity's vector;  heads  of the entities' attention
    last    after it no entity is read: none leave it
    """

    def __init__(self, config: BertConfig, size: int, heads: int, last: bool) -> None:
        super().__init__()
        if size % heads:
            raise InputError(
                f"heads {heads}: expected a number that divides {size}, the size of an entity's"
                " vector"
            )
        settings = bert_layer_config(config, hidden_size=size, num_attention_heads=heads)
        self.attention = BertAttention(settings)
        # W_e of Eq. (4) before the activation
        self.to_tokens = nn.Linear(size, config.intermediate_size, bias=False)
        self.last = last
        if not last:
            # W_e, b_e of Eq. (4) behind it
            self.to_entity = nn.Linear(config.intermediate_size, size)
            self.dropout, self.norm = (
                nn.Dropout(config.hidden_dropout_prob),
                nn.LayerNorm(size, eps=config.layer_norm_eps),
            )

    def forward(
        self,
        layer: Any,
        states: Tensor,
        mask: Tensor | None,
        entities: Tensor,
        present: Tensor,
        place: Tensor,
        row: Tensor,
        first: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """(states (B, L, H), entities (B, S, d)) behind `layer`.

        there (B, S) bool: which entities there are; place (M,) where each is in it, flattened; row,
        first (M,) of each, its sequence and its token.
        """
        tokens, _ = layer.attention(states, mask)
        hidden = torch.where(present, 0.0, torch.finfo(entities.dtype).min)[:, None, None].to(
            entities.dtype
        )
        informed, _ = self.attention(entities, hidden)  # Eq. (3)
        inner = layer.intermediate.dense(tokens)
        placed = informed.flatten(0, 1)[place]  # (M, d)
        inner = inner.index_put(
            (row, first), self.to_tokens(placed).to(inner.dtype), accumulate=True
        )
        # h_j of Eq. (4), and of Eq. (5) where no entity is
        inner = layer.intermediate.intermediate_act_fn(inner)
        states = layer.output(inner, tokens)
        if self.last:
            return states, entities
        new = self.norm(self.dropout(self.to_entity(inner[row, first])) + placed)
        return states, informed.flatten(0, 1).index_copy(0, place, new.to(informed.dtype)).view_as(
            informed
        )


class ERNIEEncoder(nn.Module):
    """A BERT whose upper layers read the entities of mentions.

    bert         any BERT without pooler
    entity       (Z, d) vectors of the graph's entities
    text_layers  layers that read text only (the paper's 6 of 12); None: the same share of this
    encoder's
    heads        of the entities' attention (4)
    """

    segments = True
    entity: Tensor

    def __init__(
        self, bert: BertModel, entity: Tensor, text_layers: int | None = None, heads: int = 4
    ) -> None:
        super().__init__()
        config = bert.config
        layers = config.num_hidden_layers
        self.bert, self.text_layers = bert, knowledge_layer(text_layers, layers, of_twelve=6)
        self.hidden_size, self.max_length = config.hidden_size, token_limit(config)
        self.settings: dict[str, Any] = {"text_layers": self.text_layers, "heads": heads}
        self.register_buffer("entity", entity.clone().float())
        size = entity.shape[1]
        self.aggregators = nn.ModuleList(
            Aggregator(config, size, heads, layer == layers - 1)
            for layer in range(self.text_layers, layers)
        )
        start_as_bert(config.initializer_range, self.aggregators)

    def resize_token_embeddings(self, size: int) -> None:
        """Make room for `size` tokens; new rows start as BERT's do."""
        self.bert.resize_token_embeddings(size)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | Layout,
        mentions: Aligned | None = None,
        second: Tensor | None = None,
    ) -> Tensor:
        """(B, L) ids and mask -> (B, L, H). mentions: those whose entities are read; second: 1 on
        the second of two texts."""
        if self.bert.config.type_vocab_size < 2:
            second = None
        states = embed_tokens(self.bert, input_ids, second)
        mask = layers_mask(self.bert, states, attention_mask)
        if mentions is None:
            return through_layers(self.bert, states, mask, 0, len(self.bert.encoder.layer))
        states = through_layers(self.bert, states, mask, 0, self.text_layers)
        if isinstance(mask, Packing):  # the aggregators read entities of rows
            mask = attention_mask_4d(self.bert, states, attention_mask)
        row, first = mentions.span[:, 0], mentions.span[:, 1]
        most = attention_mask.places["most"] if isinstance(attention_mask, Layout) else None
        present, place = in_rows(mentions.span, len(input_ids), most)
        entities = states.new_zeros(present.numel(), self.entity.shape[1])
        entities = entities.index_copy(
            0, place, self.entity[mentions.entity].to(states.dtype)
        ).view(*present.shape, -1)
        for layer, aggregator in zip(
            self.bert.encoder.layer[self.text_layers :], self.aggregators, strict=True
        ):
            states, entities = aggregator(layer, states, mask, entities, present, place, row, first)
        return states

    @classmethod
    def from_export(cls, folder: str | Path) -> ERNIEEncoder:
        """The encoder in an export folder. Raises InputError when a file or a weight is missing."""
        return read_export(folder, "ernie", "ERNIE", SETTINGS, cls)


class ERNIE(OrderedLM):
    """Pre-training (Section 3.4): masked words, the order of two segments, and Eq. (7).

    text_layers, heads  as in :class:`ERNIEEncoder`;  the rest as in
    :class:`models.ordered.OrderedLM`
    """

    paper = "ernie"

    def __init__(
        self,
        encoder: str,
        entities: str,
        text_layers: int | None = None,
        heads: int = 4,
        **settings: Any,
    ) -> None:
        super().__init__(encoder, entities, **settings)
        self.text_layers, self.heads = text_layers, heads

    def new_encoder(self, bert: BertModel, entity: Tensor) -> nn.Module:
        return ERNIEEncoder(bert, entity, self.text_layers, self.heads)

    def new_parts(self, hidden: int, size: int) -> dict[str, nn.Module]:
        return {"to_entity": nn.Linear(hidden, size)}

    def measures(self, batch: ERNIEBatch) -> Measures:
        """What OrderedLM measures, and masked-LM losses without the entities of hidden mentions."""
        unmasked = drop_masked(batch.mentions, batch.mlm_labels)
        unlinked = self.encoder(batch.input_ids, layout(batch), unmasked, batch.second)
        linked = self.encoder(batch.input_ids, layout(batch), batch.mentions, batch.second)
        words = self.encoder.bert.embeddings.word_embeddings.weight
        return {
            **super().measures(batch),
            **measure_without_answers(batch, batch.targets, linked, unlinked, self.head, words),
        }

    def outputs(self, batch: ERNIEBatch) -> tuple[Tensor, Tensor, Tensor]:
        states = self.encoder(batch.input_ids, layout(batch), batch.mentions, batch.second)
        wanted = self.to_entity(states[batch.targets[:, 0], batch.targets[:, 1]])  # type: ignore[operator]
        vectors = self.encoder.entity[batch.candidates.clamp_min(0)]
        logits = torch.einsum("pd,pcd->pc", wanted.float(), vectors)  # Eq. (7)
        return states, logits.masked_fill(batch.candidates < 0, -torch.inf), batch.candidates
