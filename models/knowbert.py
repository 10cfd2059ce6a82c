"""KnowBERT: Knowledge Enhanced Contextual Word Representations.

Peters, Neumann, Logan, Schwartz, Joshi, Singh and Smith, EMNLP 2019.
https://arxiv.org/abs/1909.04164

    Mention-span representations, Section 3.3      Recontextualisation.pool, .spans
    Entity linker, Section 3.3                     Recontextualisation.scores
    Knowledge enhanced entity-span representations Recontextualisation.forward
    Recontextualization                            Recontextualisation.forward
    Candidates and their priors, Section 3.2       datamodules.knowbert

Deviations from the printed paper and its released code, each pinned by a test:
    D1  Candidates are of a dictionary: entities that share a name, or whose name is inside one,
        with the shares of the training text's mentions as priors. A mention that is masked has
        none; in the released code it has an entity [MASK].
    D2  Sentence order replaces next sentences, as in what it is compared with here (SMedBERT, its
        baselines).
    D3  The linker's loss is the log-likelihood, without the margin loss, and no candidate is left
        out for a low score: a mention of a dictionary means one of its candidates, so there is no
        NULL.
    D4  Linker and text are trained together from the first step; the paper trains the linker alone
        first.
    D5  W_2 starts as the pseudo-inverse of W_1 (Section 3.3), which torch computes; the released
        code's (W^T W)^-1 W^T does not exist for a W that leads to fewer dimensions.
    D6  A sequence without a mention stays as it is; in the released code it attends to padding.
    D7  Norms of span, entity and output vectors as in the released code; the paper prints none.
    D8  Each loss is its sum over the global batch divided by its count there, the linker's over
        mentions of several candidates.
    D9  The norms' epsilon is the initial checkpoint's layer_norm_eps; the released code has 1e-5
        for spans and entities, and BERT's 1e-12 elsewhere.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertIntermediate, BertLayer, BertOutput

from core.files import InputError
from datamodules.knowbert import Candidates, KnowBERTBatch
from models.encoders import (
    bert_layer_config,
    embed_tokens,
    knowledge_layer,
    layers_mask,
    read_export,
    start_as_bert,
    through_layers,
)
from models.layers import SpanPooling, in_rows
from models.ordered import OrderedLM
from models.packing import Layout, layout
from models.transformer_files import token_limit

SETTINGS = ("knowledge_after", "heads")
SCORED = 100  # units between a candidate's two numbers and its score, as in the released code


class Recontextualisation(nn.Module):
    """The knowledge attention and recontextualisation component (KAR), Section 3.3.

    config  of the BERT;  size  of an entity's vector;  heads  of both attentions
    """

    def __init__(self, config: BertConfig, size: int, heads: int) -> None:
        super().__init__()
        if size % heads:
            raise InputError(
                f"heads {heads}: expected a number that divides {size}, the size of an entity's"
                " vector"
            )
        eps, dropout = config.layer_norm_eps, config.hidden_dropout_prob
        settings = bert_layer_config(
            config, hidden_size=size, num_attention_heads=heads, intermediate_size=4 * size
        )
        self.project = nn.Linear(config.hidden_size, size)  # W_1, b_1
        self.pool, self.span_norm = SpanPooling(size), nn.LayerNorm(size, eps=eps)
        self.spans = BertLayer(settings)  # the spans read each other
        self.entity_norm = nn.LayerNorm(size, eps=eps)
        self.score = nn.Sequential(nn.Linear(2, SCORED), nn.ReLU(), nn.Linear(SCORED, 1))
        self.enhanced_norm = nn.LayerNorm(size, eps=eps)
        self.read = nn.MultiheadAttention(
            size, heads, config.attention_probs_dropout_prob, batch_first=True
        )
        self.read_norm, self.inner, self.outer = (
            nn.LayerNorm(size, eps=eps),
            BertIntermediate(settings),
            BertOutput(settings),
        )
        self.back = nn.Linear(size, config.hidden_size)  # W_2, b_2
        self.norm, self.dropout = nn.LayerNorm(config.hidden_size, eps=eps), nn.Dropout(dropout)
        start_as_bert(config.initializer_range, self)
        with torch.no_grad():
            self.back.weight.copy_(torch.linalg.pinv(self.project.weight))

    def scores(self, span: Tensor, vectors: Tensor, prior: Tensor, present: Tensor) -> Tensor:
        """psi of every candidate (M, C), -inf for none: of its prior and its product with the span.

        span (M, d), vectors (M, C, d), prior (M, C), there (M, C) bool.
        """
        product = torch.einsum("md,mcd->mc", span, vectors) / math.sqrt(span.shape[-1])
        result: Tensor = self.score(torch.stack([product, prior.to(product.dtype)], -1))[..., 0]
        return result.float().masked_fill(~present, -torch.inf)

    def forward(
        self,
        states: Tensor,
        mentions: Candidates,
        entity: Tensor,
        most: int | None = None,
        longest: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(states (B, L, H) that took the mentions' entities in, psi (M, C)); entity (Z, d).

        most, longest: mentions of a sequence and tokens of a mention, as in models.layers.in_rows
            and span_states
        """
        projected = self.project(states)
        taken, place = in_rows(mentions.span, len(states), most)
        low = torch.finfo(projected.dtype).min
        hidden = torch.where(taken, 0.0, low).to(projected.dtype)  # (B, S)
        pooled = self.span_norm(self.pool(projected, mentions.span, longest))
        rows = (
            pooled.new_zeros(taken.numel(), pooled.shape[-1])
            .index_copy(0, place, pooled)
            .view(*taken.shape, -1)
        )
        spans = self.spans(rows, hidden[:, None, None])  # (B, S, d)
        span = spans.flatten(0, 1)[place]  # (M, d)
        present = mentions.entity >= 0
        vectors = self.entity_norm(entity[mentions.entity.clamp_min(0)].to(span.dtype))
        psi = self.scores(span, vectors, mentions.prior, present)
        mixed = torch.einsum("mc,mcd->md", psi.softmax(1).to(vectors.dtype), vectors)
        enhanced = self.enhanced_norm(span + self.dropout(mixed))
        spans = spans.flatten(0, 1).index_copy(0, place, enhanced.to(spans.dtype)).view_as(spans)
        read, _ = self.read(projected, spans, spans, key_padding_mask=hidden, need_weights=False)
        informed = self.read_norm(projected + self.dropout(read))
        informed = self.outer(self.inner(informed), informed)
        new = self.norm(states + self.dropout(self.back(informed)))
        return torch.where(taken.any(1)[:, None, None], new, states), psi


class KnowBERTEncoder(nn.Module):
    """A BERT that takes in what its mentions may mean between two of its layers.

    bert             any BERT without pooler
    entity           (Z, d) vectors of the graph's entities
    knowledge_after  layers before it (the paper's 10 of 12, KnowBert-Wiki); None: the same share of
    this encoder's
    heads            of its attentions (4)
    """

    segments = True
    entity: Tensor

    def __init__(
        self, bert: BertModel, entity: Tensor, knowledge_after: int | None = None, heads: int = 4
    ) -> None:
        super().__init__()
        config = bert.config
        self.bert, self.knowledge_after = (
            bert,
            knowledge_layer(knowledge_after, config.num_hidden_layers),
        )
        self.hidden_size, self.max_length = config.hidden_size, token_limit(config)
        self.settings: dict[str, Any] = {"knowledge_after": self.knowledge_after, "heads": heads}
        self.register_buffer("entity", entity.clone().float())
        self.knowledge = Recontextualisation(config, entity.shape[1], heads)

    def resize_token_embeddings(self, size: int) -> None:
        """Make room for `size` tokens; new rows start as BERT's do."""
        self.bert.resize_token_embeddings(size)

    def read(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | Layout,
        mentions: Candidates | None,
        second: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """(states (B, L, H), psi (M, C) of the mentions' candidates)."""
        if self.bert.config.type_vocab_size < 2:
            second = None
        states = embed_tokens(self.bert, input_ids, second)
        mask = layers_mask(self.bert, states, attention_mask)
        states = through_layers(self.bert, states, mask, 0, self.knowledge_after)
        psi = states.new_zeros(0, 1)
        if mentions is not None:
            places = attention_mask.places if isinstance(attention_mask, Layout) else {}
            states, psi = self.knowledge(
                states, mentions, self.entity, places.get("most"), places.get("longest")
            )
        return (
            through_layers(
                self.bert, states, mask, self.knowledge_after, len(self.bert.encoder.layer)
            ),
            psi,
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        mentions: Candidates | None = None,
        second: Tensor | None = None,
    ) -> Tensor:
        """(B, L) ids and mask -> (B, L, H). mentions: those whose candidates are read; second: 1 on
        the second of two texts."""
        return self.read(input_ids, attention_mask, mentions, second)[0]

    @classmethod
    def from_export(cls, folder: str | Path) -> KnowBERTEncoder:
        """The encoder in an export folder. Raises InputError when a file or a weight is missing."""
        return read_export(folder, "knowbert", "KnowBERT", SETTINGS, cls)


class KnowBERT(OrderedLM):
    """Pre-training (Section 3.4): masked words, the order of two segments, and the entity linker's
    log-likelihood.

    knowledge_after, heads  as in :class:`KnowBERTEncoder`;  the rest as in
    :class:`models.ordered.OrderedLM`
    """

    paper = "knowbert"

    def __init__(
        self,
        encoder: str,
        entities: str,
        knowledge_after: int | None = None,
        heads: int = 4,
        **settings: Any,
    ) -> None:
        super().__init__(encoder, entities, **settings)
        self.knowledge_after, self.heads = knowledge_after, heads

    def new_encoder(self, bert: BertModel, entity: Tensor) -> nn.Module:
        return KnowBERTEncoder(bert, entity, self.knowledge_after, self.heads)

    def outputs(self, batch: KnowBERTBatch) -> tuple[Tensor, Tensor, Tensor]:
        states, psi = self.encoder.read(
            batch.input_ids, layout(batch), batch.mentions, batch.second
        )
        return states, psi, batch.mentions.entity
