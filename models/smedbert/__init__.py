"""SMedBERT: A Knowledge-Enhanced Pre-trained Language Model with Structured Semantics for Medical
Text Mining.

Zhang, Cai, Wang, Qiu, Yang and He, ACL 2021. https://arxiv.org/abs/2108.08983

    Top-K entity sorting, Section 3.2, Eq. (1)         kg.pagerank
    Mention-neighbour hybrid attention, Eq. (2-7)      models.smedbert.attention.HybridAttention
    Gated position infusion, Eq. (8-11)                models.smedbert.attention.PositionInfusion
    Masked neighbour modelling, Eq. (12-19)            models.smedbert.context,
                                                       SMedBERT.neighbour_scores
    Masked mention modelling, Eq. (20-21)              SMedBERT.loss_sums
    Training objective, Eq. (22)                       SMedBERT.training_step
    Masks, sentence order, negatives                   datamodules.smedbert

Deviations from the printed paper and its released code, each pinned by a test:
    D1  Eq. (4) is as printed, with alpha on the logits and h_tau a sum; the released code's mean
        and its alpha on the weights are settings.
    D2  Eq. (19) divides by ||h M_r + h_r||, which is Eq. (16) for an orthogonal M_r. The printed
        norm counts one coordinate more; it is the setting norm="paper".
    D3  Eq. (19) subtracts mu log Q; Jean et al. (2015), whom it cites, subtract log Q, and so does
        this: mu log Q is ten times what mu cos can reach. correction="paper" is the printed one.
        Eq. (15) lacks its minus sign.
    D4  Where the mention is the tail of the triple, h M_r - h_r replaces h M_r + h_r (the released
        code's direction).
    D5  Eq. (20) calls the input embeddings d_2 wide, where W_sa wants d_1: they are the initial
        checkpoint's word embeddings, frozen, and no gradient passes through Y_m, or both sides
        could shrink to one point.
    D6  Knowledge goes into masked mentions, and unmasked ones predict their neighbours (Section
        3.4, as the released code).
    D7  Each loss is its sum over the global batch divided by its count there (tokens, sequences,
        pairs, masked mentions); the paper prints sums.
    D8  Negatives that are neighbours of the mention are no negatives.
    D9  With `infused` (data) a share of the unmasked mentions takes half of its neighbours in, and
        predicts the others: under D6 alone knowledge first meets real characters, not [MASK], in
        fine-tuning. The paper's profile has none of it.
    D10 With `without_neighbours` a linked mention of an entity without neighbours is infused, too,
        with what Eq. (7) makes of an empty sum; the paper does not say what becomes of it. Left as
        it is, its vector cannot be compared with an infused one's.
    D11 The small profile's lambda_2 is 4 / 64: Eq. (21) sums over the 64 dimensions of its vectors,
        and with the printed 4 its few hundred steps learn MMeM and little else. The paper's profile
        has 4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from core.files import InputError
from datamodules.smedbert import SMedBERTBatch
from datamodules.steps import places
from kg.vectors.embeddings import EmbeddingTable
from models.base import PaperModule
from models.encoders import load_mlm_head, start_as_bert, write_export
from models.heads import MLMHead
from models.measures import Measures, term_means, total_loss
from models.metrics import reciprocal_ranks
from models.ordered import drop_masked, measure_without_answers, order_head, text_losses
from models.packing import layout
from models.smedbert.attention import SpanProjection
from models.smedbert.context import Norm, compatibility, sampled_softmax
from models.smedbert.encoder import SMedBERTEncoder
from models.transformer_files import load_bert

TERMS = ("mlm", "sop", "mnem", "mmem")


class SMedBERT(PaperModule):
    """Pre-training (Section 3.5).

    encoder         a BERT: folder or hub name, whose masked-LM head is used where it has one
    entities        folder of an :class:`EmbeddingTable` with relations and projections (TransR)
    knowledge_losses  False: masked words and sentence order only (the ablation "- Know. Loss")
    scale           mu;  neighbour_weight, mention_weight  lambda_1 and lambda_2
    norm            what cosines are divided by, as in :func:`compatibility`
    correction      "jean": log Q, or "paper": mu log Q
    head_lr         learning rate of what starts from scratch (knowledge module, W_sa, heads); None:
                    `lr`, as the paper
    The rest as in :class:`SMedBERTEncoder` and :class:`PaperModule`.

    Raises InputError when the table has no projections, or its projections do not fit its entities.
    """

    words: Tensor  # (V, H) Gamma_p, the initial checkpoint's word embeddings
    relation: Tensor  # (R, d_r) h_r
    projection: Tensor  # (R, d_2, d_r) M_r

    def __init__(
        self,
        encoder: str,
        entities: str,
        knowledge_after: int | None = None,
        hybrid_attention: bool = True,
        type_attention: bool = True,
        type_state: Literal["sum", "mean"] = "sum",
        type_place: Literal["pre", "post"] = "pre",
        without_neighbours: bool = False,
        knowledge_losses: bool = True,
        freeze_entities: bool = True,
        scale: float = 10.0,
        neighbour_weight: float = 2.0,
        mention_weight: float = 4.0,
        norm: Norm = "relation",
        correction: Literal["jean", "paper"] = "jean",
        lr: float = 5e-5,
        warmup_steps: float = 0.1,
        head_lr: float | None = None,
        **training: Any,
    ) -> None:
        super().__init__(lr, warmup_steps=warmup_steps, **training)
        self.source, self.entities, self.head_lr = encoder, entities, head_lr or lr
        self.settings: dict[str, Any] = {
            "knowledge_after": knowledge_after,
            "hybrid_attention": hybrid_attention,
            "type_attention": type_attention,
            "type_state": type_state,
            "type_place": type_place,
            "without_neighbours": without_neighbours,
            "freeze_entities": freeze_entities,
        }
        self.knowledge_losses, self.scale, self.norm = knowledge_losses, scale, norm
        self.correction = scale if correction == "paper" else 1.0
        self.weights = (
            (1.0, 1.0, neighbour_weight, mention_weight)
            if knowledge_losses
            else (1.0, 1.0, 0.0, 0.0)
        )
        self.encoder: SMedBERTEncoder | None = None

    def configure_model(self) -> None:
        """Read encoder and tables; Lightning calls this before it needs parameters."""
        if self.encoder is not None:
            return
        bert = load_bert(self.source, self.attention, self.dropout)
        table = EmbeddingTable.load(self.entities)
        if table.relation is None or table.projection is None:
            raise InputError(
                f"{self.entities}: no relation vectors and projections M_r here. Train TransR: make"
                " kg-cmekg_transr"
            )
        if (
            table.projection.shape[1] != table.entity.shape[1]
            or table.projection.shape[2] != table.relation.shape[1]
        ):
            raise InputError(
                f"{self.entities}: projections {tuple(table.projection.shape)} do not lead from"
                f" entities of size {table.entity.shape[1]} to relations of size"
                f" {table.relation.shape[1]}. Train the table again."
            )
        config = bert.config
        # Gamma_p
        self.register_buffer("words", bert.embeddings.word_embeddings.weight.detach().clone())
        self.register_buffer("relation", table.relation)
        self.register_buffer("projection", table.projection)
        self.encoder = SMedBERTEncoder(bert, table.entity, **self.settings)
        self.head = MLMHead(
            config.hidden_size, config.vocab_size, config.hidden_act, config.layer_norm_eps
        )
        load_mlm_head(self.source, self.head)
        self.order = order_head(config.hidden_size)
        self.context = SpanProjection(
            config.hidden_size, table.entity.shape[1], config.layer_norm_eps
        )  # Eq. (12), (20)
        start_as_bert(config.initializer_range, self.order, self.context)
        self.context.requires_grad_(
            self.knowledge_losses
        )  # several processes wait for every parameter that asks for it
        self.train()  # from_pretrained returns modules in evaluation mode, without dropout

    def rate(self, name: str) -> float:
        return self.lr if name.startswith("encoder.bert.") else self.head_lr

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        return parameter.dim() > 1 and name != "encoder.entity"

    def neighbour_scores(self, states: Tensor, batch: SMedBERTBatch, candidates: Tensor) -> Tensor:
        """mu cos of Eq. (19) for every candidate (P, N) of the P pairs of a mention and one of its
        neighbours.

        states (B, L, H); candidates (P, N) entity indices, -1 for none; the pairs are in the order
        of ``batch.unmasked.neighbours[batch.unmasked.neighbours >= 0]``.
        """
        assert self.encoder is not None
        mentions, pair, groups = batch.unmasked, places(batch, "pairs"), batch.places or {}
        mention = self.context(states, mentions.span, groups.get("longest"))  # h_mf, Eq. (12)
        vectors = self.encoder.entity[candidates.clamp_min(0)]
        return compatibility(
            mention[pair // mentions.neighbours.shape[1]],
            mentions.relation.flatten()[pair],
            mentions.direction.flatten()[pair],
            vectors,
            self.projection,
            self.relation,
            self.scale,
            self.norm,
            groups.get("relations"),
        )

    @property
    def frequency(self) -> Tensor:
        """(Z,) how often the training text mentions each entity."""
        return torch.from_numpy(self.trainer.datamodule.frequency).float()  # type: ignore[attr-defined]

    def states(self, batch: SMedBERTBatch) -> Tensor:
        """(B, L, H) of the masked text; masked mentions, and the data's share of others, take
        knowledge in."""
        assert self.encoder is not None
        return self.encoder(batch.input_ids, layout(batch), batch.infused, batch.second)

    def loss_sums(self, batch: SMedBERTBatch, states: Tensor | None = None) -> Tensor:
        """(4,) sums over the batch of the masked-LM and sentence-order losses, Eq. (15) and Eq.
        (21)."""
        assert self.encoder is not None
        states = self.states(batch) if states is None else states
        text = text_losses(
            states,
            batch,
            self.head,
            self.order,
            self.encoder.bert.embeddings.word_embeddings.weight,
        )
        if not self.knowledge_losses:
            return torch.cat([text, text.new_zeros(2)])
        longest = (batch.places or {}).get("longest")
        score = self.neighbour_scores(states, batch, batch.candidates)
        # Eq. (15)
        near = sampled_softmax(score, batch.log_q, batch.candidates >= 0, self.correction).sum()
        with torch.no_grad():
            words = nn.functional.embedding(batch.original_ids, self.words)
            # Y_m, Eq. (20)
            wanted = self.context(words.to(states.dtype), batch.masked.span, longest)
        contexts = self.context(states, batch.masked.span, longest)  # Eq. (12)
        fit = (contexts.float() - wanted.float()).square().sum()  # Eq. (21)
        return torch.cat([text, torch.stack([near, fit])])

    def training_step(self, batch: SMedBERTBatch, batch_idx: int) -> Tensor:
        # Eq. (22)
        return self.step_mean(self.loss_sums(batch), batch.counts, batch_idx, TERMS, self.weights)

    def measures(self, batch: SMedBERTBatch) -> Measures:
        """The losses, the order's and the words' accuracy, and of the gold neighbour among entities
        of its type its rank by the model and by how often the training text mentions each, and how
        many they are, drawn by Q and drawn evenly."""
        states = self.states(batch)
        tokens, pairs, neighbours, masked = batch.counts
        right = (self.order(states[:, 0]).argmax(-1) == batch.order).sum()
        used = TERMS if self.knowledge_losses else TERMS[:2]
        sums = self.loss_sums(batch, states)[: len(used)]
        values: dict[str, Any] = {
            **term_means(used, sums, batch.counts[: len(used)]),
            "order_accuracy": (right, pairs),
            "tokens": tokens,
            "neighbours": neighbours,
            "masked_mentions": masked,
        }
        if not self.knowledge_losses:
            return values
        assert self.encoder is not None
        unmasked = drop_masked(batch.infused, batch.mlm_labels)
        unlinked = self.encoder(batch.input_ids, layout(batch), unmasked, batch.second)
        words = self.encoder.bert.embeddings.word_embeddings.weight
        span = batch.masked.span
        values |= measure_without_answers(batch, span, states, unlinked, self.head, words)
        for drawn, suffix in ((batch.ranked, ""), (batch.even, "_even")):
            assert drawn is not None
            present = drawn >= 0
            frequency = self.frequency.to(drawn.device)[drawn.clamp_min(0)]
            score = self.neighbour_scores(states, batch, drawn)
            by_model, by_frequency = (
                reciprocal_ranks(score, present),
                reciprocal_ranks(frequency, present),
            )
            values |= {
                f"neighbour_mrr{suffix}": (by_model.sum(), neighbours),
                f"neighbour_mrr{suffix}_frequency": (by_frequency.sum(), neighbours),
                f"neighbour_candidates{suffix}": (present.sum(), neighbours),
            }
        return values

    def summary(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        used = len(TERMS) if self.knowledge_losses else 2
        return means | {"loss": total_loss(means, TERMS[:used], self.weights[:used])}

    def export(self, folder: str | Path) -> None:
        """Write the encoder into `folder` (:func:`models.encoders.write_export`), and what turns
        mentions into entities."""
        assert self.encoder is not None
        write_export(
            folder, "smedbert", self.encoder, self.encoder.settings, {"context": self.context}
        )
