"""KeBioLM: Improving Biomedical Pretrained Language Models with Knowledge.

Yuan, Liu, Tan, Huang and Huang, BioNLP 2021. https://arxiv.org/abs/2104.10344

    Text-only encoding, Eq. (1)              KeBioLMEncoder.text_states
    Mention detection, Eq. (2)               KeBioLMEncoder.detector
    k nearest entities, Eq. (3)              models.losses.entity_softmax, KeBioLMEncoder.nearest
    Text-entity fusion encoding, Eq. (4-5)   KeBioLMEncoder.fused_states
    Pre-training loss, Eq. (6-10)            KeBioLM.training_step
    Whole-entity masking, Section 3.2        datamodules.masking
    Probing, Section 4.6                     masked_lm, models.probing

Deviations from the printed paper and its released code, each pinned by a test:
    D1  The released code writes an entity on the token behind its mention, too, and on the first
        two tokens of sequences with fewer mentions than their batch mates that of a mention which
        is [CLS]. Here it is on exactly its mention's tokens; `compat: released`, under which the
        released weights were trained, writes as the released code does.
    D2  The released code normalises (LayerNorm) after Eq. (4), which the paper does not have. Only
        `compat` does so here.
    D3  Each loss is its sum over the global batch divided by its count there; the paper prints
        sums.
    D4  The detection loss counts [CLS] and [SEP] as outside tokens, so that fine-tuning, which
        detects mentions by argmax, never finds one there.
    D5  [PAD], [SEP] and what follows them never belong to a detected mention (the released code
        scans [SEP], and so does `compat: released`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import BertModel

from core.files import InputError
from core.tensors import read_tensors
from datamodules.kebiolm import KeBioLMBatch
from datamodules.steps import places
from kg.vectors.embeddings import EmbeddingTable
from models.base import PaperModule
from models.encoders import (
    layer_at,
    layers_mask,
    read_export,
    start_as_bert,
    states_at,
    through_layers,
    write_export,
)
from models.heads import MLMHead
from models.kebiolm.validation import detection_counts, entity_shift, linking_measures
from models.layers import added_to_spans, bio_spans, boundary_states
from models.losses import entity_softmax, word_loss
from models.measures import Measures, term_means, total_loss
from models.metrics import f1
from models.packing import Layout, Packing, layout
from models.probing import MaskedLM
from models.transformer_files import load_bert, token_limit

TERMS = ("mlm", "ed", "el")
SPANS = ("spans_both", "spans_predicted", "spans_gold")
SETTINGS = ("text_layers", "candidates", "max_mentions", "compat")


class KeBioLMEncoder(nn.Module):
    """A BERT whose upper layers read entities.

    bert         any BERT without pooler; its first `text_layers` layers read text only (the paper's
                 8 of 12)
    entity       (E, d) start values of the entity table
    candidates   entities mixed for a mention (k = 100)
    max_mentions mentions a sequence that are fused; more are left out (50)
    compat       "released": as the released code computes, which its weights are used to (D1, D2,
                 D5); what is written then depends on the batch. True: its LayerNorm after Eq. (4)
                 alone
    """

    def __init__(
        self,
        bert: BertModel,
        entity: Tensor,
        text_layers: int = 8,
        candidates: int = 100,
        max_mentions: int = 50,
        compat: bool | Literal["released"] = False,
    ) -> None:
        super().__init__()
        if compat not in (False, True, "released"):
            raise InputError(f"compat {compat!r}: expected false, true or released")
        layers = bert.config.num_hidden_layers
        if not 0 < text_layers <= layers:
            raise InputError(
                f"text_layers {text_layers}: expected 1 to {layers}, the encoder's layers"
            )
        hidden, size = bert.config.hidden_size, entity.shape[1]
        self.bert, self.text_layers, self.candidates = bert, text_layers, candidates
        self.fuses = text_layers < layers
        self.max_mentions, self.compat = max_mentions, compat
        self.hidden_size, self.max_length = hidden, token_limit(bert.config)
        self.tokenizer, self.linker = None, None  # mentions are detected, not looked up
        self.entity = nn.Parameter(entity.clone().float())
        self.detector = nn.Linear(hidden, 3)  # W_l, b_l
        self.mention_projection = nn.Linear(2 * hidden, size)  # W_m, b_m before Eq. (3)
        self.entity_projection = nn.Linear(size, hidden)  # W_e, b_e
        self.norm = (
            nn.LayerNorm(hidden, eps=bert.config.layer_norm_eps) if compat else nn.Identity()
        )
        new = (self.detector, self.mention_projection, self.entity_projection)
        start_as_bert(bert.config.initializer_range, *new)
        self.entity_projection.requires_grad_(self.fuses)

    def resize_token_embeddings(self, size: int) -> None:
        """Make room for `size` tokens; new rows start as BERT's do."""
        self.bert.resize_token_embeddings(size)

    def text_states(
        self, input_ids: Tensor, attention_mask: Tensor | Layout
    ) -> tuple[Tensor, Tensor | Packing | None]:
        """(h (B, L, H), the layers' attention mask)."""
        states = self.bert.embeddings(input_ids=input_ids)
        mask = layers_mask(self.bert, states, attention_mask)
        return through_layers(self.bert, states, mask, 0, self.text_layers), mask  # Eq. (1)

    def detect_mentions(self, text: Tensor, attention_mask: Tensor) -> Tensor:
        """Mentions (M, 3) by argmax of Eq. (2), never on the first and last token of a sequence
        (`compat: released`: the first)."""
        labels = self.detector(text).argmax(-1)
        last = attention_mask.sum(1, keepdim=True) - int(self.compat != "released")
        position = torch.arange(labels.shape[1], device=labels.device)
        return bio_spans(
            labels.masked_fill((position == 0) | (position >= last), 0), self.max_mentions
        )

    def link(
        self, text: Tensor, mention: Tensor, gold: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(Eq. (10) per mention (M,), e'_m (M, d), the nearest entities (M, k)) of mentions (M,
        3)."""
        with torch.autocast(text.device.type, enabled=False):
            query = self.mention_projection(boundary_states(text, mention).float())
        return entity_softmax(query, self.entity, gold, self.candidates)

    def nearest(self, text: Tensor, mention: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """((M, k) dot products of Eq. (3), best first, (M, k) their entities) of mentions (M,
        3)."""
        query = self.mention_projection(boundary_states(text, mention).float())
        table, k = self.entity.float(), min(k, len(self.entity))
        at_once = max(1, 2**24 // len(table))  # mentions: no more than 64 MB of products
        candidates = [(part @ table.T).topk(k) for part in query.split(at_once)]
        scores, best = (torch.cat(parts) for parts in zip(*candidates, strict=True))
        return scores, best

    def fused_states(
        self, text: Tensor, mask: Tensor | Packing | None, mention: Tensor, mixture: Tensor
    ) -> Tensor:
        """h^f (B, L, H), from the text states and each mention's entity mixture (M, d).

        Without fusion layers the text states themselves (Section 4.5, (iii)).
        """
        return (
            self._fuse(text, mask, mention, mixture, len(self.bert.encoder.layer))
            if self.fuses
            else text
        )

    def _as_released(self, text: Tensor, mention: Tensor, mixture: Tensor) -> tuple[Tensor, Tensor]:
        """Where the released code writes which mixture: (spans (N, 3), (N, d)), the spans disjoint
        (D1).

        A mention goes one token further, unless another begins there. Rows with fewer mentions than
        the fullest are filled up with the mention (0, 1), which is written last, and so also two
        tokens long.
        """
        counts = torch.bincount(mention[:, 0], minlength=len(text))
        fewer = (counts < counts.max()).nonzero()[:, 0]
        first = torch.stack([fewer, torch.zeros_like(fewer), torch.ones_like(fewer)], 1)
        following = torch.cat([mention[1:], mention.new_tensor([[-1, 0, 0]])])
        same = following[:, 0] == mention[:, 0]
        end = torch.where(
            same, torch.minimum(mention[:, 2] + 1, following[:, 1]), mention[:, 2] + 1
        ).clamp_max(text.shape[1])
        begin = torch.where(
            torch.isin(mention[:, 0], fewer), mention[:, 1].clamp_min(2), mention[:, 1]
        )
        unmasked = begin < end
        spans = torch.stack([mention[:, 0], begin, end], 1)[unmasked]
        written = torch.cat([spans, first + first.new_tensor([0, 0, 1])])
        return written, torch.cat([mixture[unmasked], self.link(text, first)[1]])

    def _fuse(
        self,
        text: Tensor,
        mask: Tensor | Packing | None,
        mention: Tensor,
        mixture: Tensor,
        last: int,
    ) -> Tensor:
        if self.compat == "released" and len(mention):
            mention, mixture = self._as_released(text, mention, mixture)
        fused = self.norm(added_to_spans(text, mention, self.entity_projection(mixture)))  # Eq. (4)
        return through_layers(self.bert, fused, mask, self.text_layers, last)  # Eq. (5)

    def at(self, input_ids: Tensor, attention_mask: Tensor, places: Tensor) -> Tensor:
        """(B, L) ids and mask, (B, m) positions -> (B, m, H): what `forward` has there. For
        inference."""
        if not self.fuses:
            return states_at(self.bert, input_ids, attention_mask, places)
        text, mask = self.text_states(input_ids, attention_mask)
        mentions = self.detect_mentions(text, attention_mask)
        _, mixture, _ = self.link(text, mentions)
        last = len(self.bert.encoder.layer) - 1
        states = self._fuse(text, mask, mentions, mixture, last)
        return layer_at(self.bert.encoder.layer[last], states, attention_mask, places)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, mentions: Tensor | None = None
    ) -> Tensor:
        """(B, L) ids and mask -> (B, L, H). `mentions` (M, 3) row, first, last + 1; None: found by
        argmax."""
        text, mask = self.text_states(input_ids, attention_mask)
        if mentions is None:
            mentions = self.detect_mentions(text, attention_mask)
        _, mixture, _ = self.link(text, mentions)
        return self.fused_states(text, mask, mentions, mixture)

    @classmethod
    def from_export(cls, folder: str | Path) -> KeBioLMEncoder:
        """The encoder in an export folder (:meth:`KeBioLM.export`). Raises InputError when a file
        or a weight is missing."""
        return read_export(folder, "kebiolm", "KeBioLM", SETTINGS, cls)


def masked_lm(folder: str | Path) -> MaskedLM:
    """The masked language model in an export: fused entities of detected mentions, and the
    pre-trained head.

    Raises InputError when the export has no head.
    """
    encoder = KeBioLMEncoder.from_export(folder)
    config = encoder.bert.config
    state = read_tensors(Path(folder) / "kebiolm.safetensors", "Export it again.")
    head_state = {k.removeprefix("head."): v for k, v in state.items() if k.startswith("head.")}
    head = MLMHead(config.hidden_size, config.vocab_size, config.hidden_act, config.layer_norm_eps)
    if lacking := sorted(set(head.state_dict()) - set(head_state)):
        raise InputError(
            f"{folder}/kebiolm.safetensors: no head.{lacking[0]}; it cannot predict words. Export"
            " it again."
        )
    head.load_state_dict(head_state)
    words = encoder.bert.embeddings.word_embeddings.weight
    return MaskedLM(encoder, head.transform, words, head.bias, encoder.max_length).eval()


class KeBioLM(PaperModule):
    """Pre-training (Section 3.2).

    encoder         a BERT: folder or hub name (the paper: PubMedBERT)
    entities        folder of the :class:`EmbeddingTable` that initialises the entity table
    random_entities start from random vectors as long as the table's instead (the ablation "+rand")
    freeze_entities keep the table as it is (the ablation "+frz")
    text_layers, of_layers  of so many layers, so many read text only; an encoder of another depth
    has the same share.
                    None: `text_layers` of its own
    knowledge       False: masked words only, nothing detected, linked or fused: what KeBioLM is
                    compared with
    head_lr         learning rate of what starts from scratch (detector, W_e, MLM head); None: `lr`,
                    as the paper
    entity_lr       learning rate of the entity table; None: `lr`, as the paper
    entity_rows     "all": a step moves every row of the entity table, as the paper's AdamW does,
                    which makes steps of the whole rate of the least gradients of Eq. (10); "gold":
                    those alone that a mention of the step is linked to
    entity_length   whether rows keep the length they started with
    The rest as in :class:`KeBioLMEncoder` and :class:`PaperModule`.
    """

    def __init__(
        self,
        encoder: str,
        entities: str,
        text_layers: int = 8,
        of_layers: int | None = None,
        knowledge: bool = True,
        candidates: int = 100,
        max_mentions: int = 50,
        random_entities: bool = False,
        freeze_entities: bool = False,
        lr: float = 5e-5,
        warmup_steps: int = 10_000,
        head_lr: float | None = None,
        entity_lr: float | None = None,
        entity_rows: Literal["all", "gold"] = "all",
        entity_length: bool = False,
        **training: Any,
    ) -> None:
        super().__init__(lr, warmup_steps=warmup_steps, **training)
        if entity_rows not in ("all", "gold"):
            raise InputError(f"entity_rows {entity_rows!r}: expected all or gold")
        self.entity_rows, self.entity_length = entity_rows, entity_length
        self._stepped: tuple[Tensor, Tensor] | None = None
        self.head_lr, self.entity_lr = head_lr or lr, entity_lr or lr
        self.source, self.entities = encoder, entities
        self.of_layers, self.knowledge = of_layers, knowledge
        self.settings: dict[str, Any] = {
            "text_layers": text_layers,
            "candidates": candidates,
            # of an export: none detected, none fused
            "max_mentions": max_mentions if knowledge else 0,
            "compat": False,
        }
        self.random_entities, self.freeze_entities = random_entities, freeze_entities
        self.encoder: KeBioLMEncoder | None = None

    def configure_model(self) -> None:
        """Read encoder and entity table; Lightning calls this before it needs parameters."""
        if self.encoder is not None:
            return
        bert = load_bert(self.source, self.attention, self.dropout)
        entity = EmbeddingTable.load(self.entities).entity
        if self.random_entities:
            entity = nn.functional.normalize(torch.randn(entity.shape)) * entity.norm(
                dim=1, keepdim=True
            )
        if self.of_layers is not None:
            share = self.settings["text_layers"] / self.of_layers
            self.settings["text_layers"] = max(1, round(share * bert.config.num_hidden_layers))
        self.encoder = KeBioLMEncoder(bert, entity, **self.settings)
        self.start, self._gold = entity, torch.zeros(len(entity), dtype=torch.bool)
        self.length = entity.norm(dim=1, keepdim=True)
        self.encoder.entity.requires_grad_(not self.freeze_entities)
        if not self.knowledge:
            for name, parameter in self.encoder.named_parameters():
                parameter.requires_grad_(name.startswith("bert."))
        config = bert.config
        self.head = MLMHead(
            config.hidden_size, config.vocab_size, config.hidden_act, config.layer_norm_eps
        )
        self.train()  # from_pretrained returns modules in evaluation mode, without dropout

    def rate(self, name: str) -> float:
        if name == "encoder.entity":
            return self.entity_lr
        # The projection onto a table that is learned keeps the encoder's slow rate: an entity that
        # is mentioned once is found again only while its mention's projection stays where it was.
        # Where the table is frozen, all that is learned of entities is in the projection.
        slow = ["encoder.bert."]
        slow += [] if self.freeze_entities else ["encoder.mention_projection."]
        return self.lr if name.startswith(tuple(slow)) else self.head_lr

    def decays(self, name: str, parameter: nn.Parameter) -> bool:
        return parameter.dim() > 1 and name != "encoder.entity"

    def language_loss(self, states: Tensor, batch: KeBioLMBatch) -> Tensor:
        """() sum over the masked tokens of Eq. (8)."""
        assert self.encoder is not None
        predicted = places(batch, "predicted")
        words = self.encoder.bert.embeddings.word_embeddings.weight
        labels = batch.mlm_labels.flatten()[predicted]
        masked = states.flatten(0, 1)[predicted]  # Eq. (7), masked tokens only
        return word_loss(masked, labels, lambda part: self.head(part, words), len(words))

    def loss_sums(self, batch: KeBioLMBatch) -> Tensor:
        """(3,) sums over the batch of Eq. (8), Eq. (9) and Eq. (10)."""
        assert self.encoder is not None
        text, mask = self.encoder.text_states(batch.input_ids, layout(batch))
        if not self.knowledge:
            layers = self.encoder.bert.encoder.layer
            states = through_layers(
                self.encoder.bert, text, mask, self.encoder.text_layers, len(layers)
            )
            none = states.new_zeros(())
            return torch.stack([self.language_loss(states, batch), none, none])
        detection = nn.functional.cross_entropy(
            self.encoder.detector(text).flatten(0, 1).float(),
            batch.bio_labels.flatten(),
            ignore_index=-100,
            reduction="sum",
        )  # Eq. (9)
        linking, mixture, _ = self.encoder.link(text, batch.mention, batch.entity)  # Eq. (10)
        fused = self.encoder.fused_states(text, mask, batch.mention, mixture)
        language = self.language_loss(fused, batch)
        return torch.stack([language, detection, linking.sum()])

    def training_step(self, batch: KeBioLMBatch, batch_idx: int) -> Tensor:
        self._gold = self._gold.to(batch.entity.device)
        self._gold.index_fill_(0, batch.entity, True)
        return self.step_mean(self.loss_sums(batch), batch.counts, batch_idx, TERMS)  # Eq. (6)

    def measures(self, batch: KeBioLMBatch) -> Measures:
        """Losses on masked text; detection and linking on the text itself, and linking with all
        mentions masked."""
        assert self.encoder is not None
        used = TERMS if self.knowledge else TERMS[:1]
        values: dict[str, Any] = term_means(
            used, self.loss_sums(batch)[: len(used)], batch.counts[: len(used)]
        )
        if not self.knowledge:
            return values | {"mentions": batch.counts[2]}
        text, _ = self.encoder.text_states(batch.original_ids, batch.attention_mask)
        spans = detection_counts(self.encoder, text, batch)
        unseen = self.unseen.to(text.device)
        return (
            values
            | dict(zip(SPANS, spans, strict=True))
            | linking_measures(self.encoder, text, batch, unseen, self.mask_id)
        )

    def summary(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        if not self.knowledge:
            return means | {"loss": means["loss_mlm"]}
        spans = torch.stack([means.pop(name) for name in SPANS])
        return means | {"loss": total_loss(means, TERMS), "detection_f1": f1(spans)}

    def validation_metrics(self) -> dict[str, Tensor]:
        return super().validation_metrics() | (self.shift() if self.knowledge else {})

    @property
    def unseen(self) -> Tensor:
        """(E,) bool: entities that the training text never mentions."""
        return torch.from_numpy(self.trainer.datamodule.frequency == 0)  # type: ignore[attr-defined]

    def shift(self) -> dict[str, Tensor]:
        """:func:`entity_shift` of the entity table."""
        assert self.encoder is not None
        return entity_shift(self.encoder.entity, self.start, self.unseen)

    def _moves_entities(self) -> bool:
        return self.knowledge and not self.freeze_entities

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """With `entity_rows: gold`, entities that no mention of the step is linked to have no
        gradient."""
        if not self._moves_entities():
            return
        assert self.encoder is not None and self.encoder.entity.grad is not None
        if self.entity_rows == "all":
            self._stepped = torch.ones_like(self._gold), self.encoder.entity.detach()
            return
        moved = self.trainer.strategy.reduce(self._gold.float(), reduce_op="sum") > 0
        self.encoder.entity.grad.masked_fill_(~moved[:, None], 0)
        # momentum must not move them either
        self._stepped = moved, self.encoder.entity.detach().clone()

    def on_train_batch_end(self, *_: Any) -> None:
        """After a step, put back the rows that were not to move, and set the others to their length
        again (`entity_length`)."""
        if self._stepped is not None:
            assert self.encoder is not None
            entity, (moved, former) = self.encoder.entity, self._stepped
            with torch.no_grad():
                if self.entity_length:
                    self.length = self.length.to(entity.device)
                    entity.copy_(nn.functional.normalize(entity) * self.length)
                if self.entity_rows == "gold":
                    entity.copy_(torch.where(moved[:, None], entity, former))
            self._stepped, self._gold = None, torch.zeros_like(self._gold)
            if self.trainer.global_step % self.trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
                self.log_dict(self.shift(), batch_size=1, rank_zero_only=True)

    @property
    def mask_id(self) -> int:
        return int(self.trainer.datamodule.tokenizer.mask_token_id)  # type: ignore[attr-defined]

    def export(self, folder: str | Path) -> None:
        """Write the encoder into `folder` (:func:`models.encoders.write_export`), and the masked-LM
        head."""
        assert self.encoder is not None
        write_export(folder, "kebiolm", self.encoder, self.settings, {"head": self.head})
