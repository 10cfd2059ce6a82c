"""What SMedBERT, ERNIE and KnowBERT are trained on alike: masked words, and the order of two
segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from transformers import BertModel

from datamodules.masking import IGNORE
from datamodules.steps import places
from kg.vectors.embeddings import EmbeddingTable
from models.base import PaperModule
from models.encoders import load_mlm_head, start_as_bert, write_export
from models.heads import MLMHead
from models.losses import word_loss
from models.measures import Measures, term_means, total_loss
from models.metrics import reciprocal_ranks
from models.transformer_files import load_bert, set_dropout

TERMS = ("mlm", "sop", "entity")
MentionsT = TypeVar("MentionsT", bound=Any)


class Text(Protocol):
    """A batch's part that the losses of the text need
    (:class:`datamodules.ordered.OrderedBatch`)."""

    @property
    def mlm_labels(self) -> Tensor: ...  # (B, L)

    @property
    def order(self) -> Tensor: ...  # (B,)


def order_head(hidden: int) -> nn.Sequential:
    """[CLS] (B, H) -> (B, 2) logits of kept and swapped."""
    return nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2))


def text_losses(
    states: Tensor, batch: Text, head: MLMHead, order: nn.Module, words: Tensor
) -> Tensor:
    """(2,) sums over the batch of the masked-LM and the sentence-order loss, from `states` (B, L,
    H); words (V, H)."""
    predicted = places(batch, "predicted")
    labels = batch.mlm_labels.flatten()[predicted]
    language = word_loss(
        states.flatten(0, 1)[predicted], labels, lambda masked: head(masked, words), len(words)
    )
    order_loss = nn.functional.cross_entropy(
        order(states[:, 0]).float(), batch.order, ignore_index=-100, reduction="sum"
    )
    return torch.stack([language, order_loss])


def drop_masked(mentions: MentionsT, mlm_labels: Tensor) -> MentionsT:
    """The mentions (with a `span` (M, 3) of row, first token, last + 1) whose first token is not to
    be predicted from (B, L) labels."""
    row, first = mentions.span[:, 0], mentions.span[:, 1]
    unmasked = mlm_labels[row, first] == IGNORE
    return type(mentions)(*(part[unmasked] for part in mentions))


def label_outside(mlm_labels: Tensor, span: Tensor) -> Tensor:
    """(B, L) the labels without those inside the mentions `span` (M, 3)."""
    place = torch.arange(mlm_labels.shape[1], device=mlm_labels.device)
    inside = (span[:, 1:2] <= place) & (place < span[:, 2:3])  # (M, L)
    covered = torch.zeros_like(mlm_labels).index_add(0, span[:, 0], inside.long()) > 0
    return mlm_labels.masked_fill(covered, IGNORE)


def measure_without_answers(
    batch: Any, span: Tensor, linked: Tensor, unlinked: Tensor, head: MLMHead, words: Tensor
) -> Measures:
    """Masked-LM losses that an entity of a hidden mention cannot lower: of tokens outside the
    mentions `span` (M, 3), with states `linked` (B, L, H); and of all tokens, with states
    `unlinked`, for which no hidden mention was given its entity."""

    def loss(states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        masked = labels != IGNORE
        total = word_loss(
            states[masked], labels[masked], lambda rows: head(rows, words), len(words)
        )
        return total, masked.sum()

    return {
        "loss_mlm_outside": loss(linked, label_outside(batch.mlm_labels, span)),
        "loss_mlm_unlinked": loss(unlinked, batch.mlm_labels),
    }


class OrderedLM(PaperModule):
    """Pre-training with one objective besides: which of its candidates a mention means.

    encoder      a BERT: folder or hub name, whose masked-LM head is used where it has one
    entities     folder of the :class:`EmbeddingTable` of the graph's entities, which stay as they
                 are
    entity_weight  of the objective's loss
    head_lr      learning rate of what starts from scratch; None: `lr`, as the paper
    The rest as in :class:`PaperModule`. A subclass has `paper`, :meth:`new_encoder`,
    :meth:`new_parts` and :meth:`outputs`.
    """

    paper: str

    def __init__(
        self,
        encoder: str,
        entities: str,
        entity_weight: float = 1.0,
        lr: float = 5e-5,
        warmup_steps: float = 0.1,
        head_lr: float | None = None,
        **training: Any,
    ) -> None:
        super().__init__(lr, warmup_steps=warmup_steps, **training)
        self.source, self.entities, self.head_lr = encoder, entities, head_lr or lr
        self.weights = (1.0, 1.0, entity_weight)
        self.encoder: Any = None

    def new_encoder(self, bert: BertModel, entity: Tensor) -> nn.Module:
        """The paper's encoder over `bert` and the entity vectors (Z, d)."""
        raise NotImplementedError

    def new_parts(self, hidden: int, size: int) -> dict[str, nn.Module]:
        """Modules of the objective that are no part of the encoder, by name."""
        return {}

    def outputs(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """(states (B, L, H), logits (P, C), candidates (P, C) of the mentions); the first is meant,
        -1 and -inf for none."""
        raise NotImplementedError

    def configure_model(self) -> None:
        """Read encoder and table; Lightning calls this before it needs parameters."""
        if self.encoder is not None:
            return
        bert = load_bert(self.source, self.attention, self.dropout)
        table, config = EmbeddingTable.load(self.entities).entity, bert.config
        self.encoder = self.new_encoder(bert, table)
        self.head = MLMHead(
            config.hidden_size, config.vocab_size, config.hidden_act, config.layer_norm_eps
        )
        load_mlm_head(self.source, self.head)
        self.order = order_head(config.hidden_size)
        parts = self.new_parts(config.hidden_size, table.shape[1])
        start_as_bert(config.initializer_range, self.order, *parts.values())
        for name, part in parts.items():
            self.add_module(name, part)
        if self.dropout is not None:
            set_dropout(self.encoder, self.dropout)
        self.train()  # from_pretrained returns modules in evaluation mode, without dropout

    def rate(self, name: str) -> float:
        return self.lr if name.startswith("encoder.bert.") else self.head_lr

    def loss_sums(self, batch: Any, states: Tensor, logits: Tensor) -> Tensor:
        """(3,) sums over the batch of the masked-LM, the sentence-order and the entity loss."""
        words = self.encoder.bert.embeddings.word_embeddings.weight
        entity = -logits.float().log_softmax(1)[:, 0].sum()
        return torch.cat([text_losses(states, batch, self.head, self.order, words), entity[None]])

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        states, logits, _ = self.outputs(batch)
        return self.step_mean(
            self.loss_sums(batch, states, logits), batch.counts, batch_idx, TERMS, self.weights
        )

    @property
    def frequency(self) -> Tensor:
        """(Z,) how often the training text mentions each entity."""
        return torch.from_numpy(self.trainer.datamodule.frequency).float()  # type: ignore[attr-defined]

    def measures(self, batch: Any) -> Measures:
        """The losses, the order's accuracy, and the rank of the entity that is meant among its
        candidates."""
        states, logits, candidates = self.outputs(batch)
        several = (candidates >= 0).sum(1) > 1  # one alone is right whatever the model
        logits, candidates = logits[several], candidates[several]
        present = candidates >= 0
        rank = reciprocal_ranks(logits, present)
        reciprocal = reciprocal_ranks(
            self.frequency.to(candidates.device)[candidates.clamp_min(0)], present
        )
        tokens, pairs, mentions = batch.counts
        right = (self.order(states[:, 0]).argmax(-1) == batch.order).sum()
        return {
            **term_means(TERMS, self.loss_sums(batch, states, logits), batch.counts),
            "entity_accuracy": ((rank == 1).sum(), mentions),
            "entity_mrr": (rank.sum(), mentions),
            "entity_mrr_frequency": (reciprocal.sum(), mentions),
            "order_accuracy": (right, pairs),
            "tokens": tokens,
            "mentions": mentions,
        }

    def summary(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        return means | {"loss": total_loss(means, TERMS, self.weights)}

    def export(self, folder: str | Path) -> None:
        """Write the encoder into `folder` (:func:`models.encoders.write_export`)."""
        write_export(folder, self.paper, self.encoder, self.encoder.settings)
