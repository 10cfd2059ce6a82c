"""Masked-language-model pre-training of a BERT: initial checkpoints, and continued pre-training of
an encoder.

Devlin, Chang, Lee and Toutanova, NAACL 2019. https://arxiv.org/abs/1810.04805

    Task #1: Masked LM, Section 3.1     MLM.loss_sum; masks: datamodules.mlm

Deviations from the printed paper, each pinned by a test:
    D1  No next-sentence prediction (the paper's Task #2): there are no documents of sentences here.
    D2  The loss is its sum over the global batch divided by the number of predicted tokens there.
    D3  `positions="sinusoidal"`: the position embeddings start as sinusoids (Vaswani et al. 2017,
        Section 3.5) instead of at random, and are learned from there. What short trainings gain by
        it: docs/embert.md.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from core.files import InputError
from datamodules.mlm import MLMBatch
from datamodules.steps import places
from models.base import PaperModule
from models.encoders import last_states, save_masked_lm
from models.heads import MLMHead
from models.losses import word_loss
from models.measures import Measures
from models.packing import layout
from models.transformer_files import load_bert, set_dropout, token_limit


def sinusoids(positions: int, size: int) -> Tensor:
    """(positions, size) sine and cosine of each position by turns, at frequencies from 1 down to 1
    / 10,000.

    Vaswani et al., NeurIPS 2017, Section 3.5.
    """
    angle = torch.arange(positions)[:, None] * torch.exp(
        -math.log(1e4) * torch.arange(0, size, 2) / size
    )
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :size]


def new_bert(
    vocab_size: int,
    layers: int,
    hidden: int,
    heads: int,
    intermediate: int,
    max_length: int,
    pad_id: int = 0,
    positions: Literal["random", "sinusoidal"] = "random",
) -> BertModel:
    """A BERT with random weights and without pooler.

    positions   what its position embeddings start from; sinusoids are as large as random ones (D3)

    Raises InputError when `heads` does not divide `hidden`.
    """
    if hidden % heads:
        raise InputError(f"hidden {hidden}: expected a multiple of heads, {heads}")
    config = BertConfig(
        vocab_size=vocab_size,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=max_length,
        pad_token_id=pad_id,
    )
    bert = BertModel(config, add_pooling_layer=False)
    if positions == "sinusoidal":
        with torch.no_grad():
            # a sine's rms is sqrt(1/2)
            wave = sinusoids(max_length, hidden) * (config.initializer_range * math.sqrt(2))
            bert.embeddings.position_embeddings.weight.copy_(wave)
    return bert


class MLM(PaperModule):
    """Masked-language-model pre-training.

    encoder     the initial checkpoint, a BERT: folder or hub name; None: a new one of the sizes
                below, with the data's vocabulary
    layers, hidden, heads, intermediate, max_length   sizes of a new one; not looked at for
                                                      `encoder`
    positions   what a new one's position embeddings start from (D3)
    beta2       AdamW's second beta
    The rest as in :class:`PaperModule`.
    """

    def __init__(
        self,
        encoder: str | None = None,
        layers: int = 4,
        hidden: int = 256,
        heads: int = 4,
        intermediate: int = 1024,
        max_length: int = 512,
        positions: Literal["random", "sinusoidal"] = "random",
        lr: float = 1e-4,
        warmup_steps: int = 10_000,
        beta2: float = 0.999,
        **training: Any,
    ) -> None:
        super().__init__(lr, warmup_steps=warmup_steps, **training)
        self.betas = (0.9, beta2)
        self.source = encoder
        self.sizes = {
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "intermediate": intermediate,
            "max_length": max_length,
        }
        self.positions = positions
        self.bert: BertModel | None = None

    def configure_model(self) -> None:
        """Read or make the encoder; Lightning calls this before it needs parameters.

        Raises InputError when the encoder that was given has fewer tokens or positions than the
        data uses.
        """
        if self.bert is not None:
            return
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        if self.source is None:
            pad_id = int(data.tokenizer.pad_token_id)
            bert = new_bert(
                len(data.tokenizer), **self.sizes, pad_id=pad_id, positions=self.positions
            )
            bert.set_attn_implementation(self.attention)
        else:
            bert = load_bert(self.source, self.attention)
        for wanted, got, what in (
            (len(data.tokenizer), bert.config.vocab_size, "tokens"),
            (data.max_length, token_limit(bert.config), "positions"),
        ):
            if wanted > got:
                raise InputError(
                    f"encoder {self.source or 'from scratch'}: {got} {what}, but the data has"
                    f" {wanted}. Use the encoder's own tokenizer, or a shorter max_length."
                )
        if self.dropout is not None:
            set_dropout(bert, self.dropout)
        config = bert.config
        self.bert = bert
        self.head = MLMHead(
            config.hidden_size, config.vocab_size, config.hidden_act, config.layer_norm_eps
        )
        self.train()  # from_pretrained returns modules in evaluation mode, without dropout

    def logits(self, batch: MLMBatch) -> tuple[Tensor, Tensor]:
        """((N, V) float logits, (N,) labels) of the tokens that are predicted."""
        states, labels = self.states_and_labels(batch)
        return self.words(states).float(), labels

    def states_and_labels(self, batch: MLMBatch) -> tuple[Tensor, Tensor]:
        """((N, H) states, (N,) labels) of the tokens that are predicted."""
        assert self.bert is not None
        states, place = (
            last_states(self.bert, batch.input_ids, layout(batch)),
            places(batch, "predicted"),
        )
        return states.flatten(0, 1)[place], batch.labels.flatten()[place]

    def words(self, states: Tensor) -> Tensor:
        """(N, H) states -> (N, V) logits."""
        assert self.bert is not None
        result: Tensor = self.head(states, self.bert.embeddings.word_embeddings.weight)
        return result

    def loss_sum(self, batch: MLMBatch) -> Tensor:
        """(1,) sum over the predicted tokens of -log p(token)."""
        return word_loss(*self.states_and_labels(batch), self.words, len(self.head.bias))[None]

    def training_step(self, batch: MLMBatch, batch_idx: int) -> Tensor:
        return self.step_mean(self.loss_sum(batch), batch.counts, batch_idx)

    def measures(self, batch: MLMBatch) -> Measures:
        logits, labels = self.logits(batch)
        loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
        right = (logits.argmax(-1) == labels).sum()
        tokens = batch.counts[0]
        return {"loss": (loss, tokens), "accuracy": (right, tokens), "tokens": tokens}

    def summary(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        return means | {"perplexity": means["loss"].exp()}

    def export(self, folder: str | Path) -> None:
        """Write encoder and head as a Hugging Face folder that ``AutoModel`` and
        ``AutoModelForMaskedLM`` load."""
        assert self.bert is not None
        save_masked_lm(self.bert, self.head, folder)
