"""EMBERT: A Pre-trained Language Model for Chinese Medical Text Mining.

Cai, Zhang, Wang and He, APWeb-WAIM 2021. https://doi.org/10.1007/978-3-030-85896-4_20

    Context-entity consistency, Section 3.1, Eq. (1-3)     Consistency
    Entity segmentation, Section 3.2, Eq. (4-5)            Segmentation
    Bidirectional entity masking, Section 3.3, Eq. (6-9)   PartPrediction, one for each direction
    Overall loss, Eq. (10)                                 EMBERT.training_step
    Replacing, masking, pairs of segments                  datamodules.embert
    Entity processing, Appendix                            kg.build.segment, kg.build.thesaurus

Deviations from the printed paper, each pinned by a test:
    D1  Eq. (3) and (5) multiply log p by a label of 0 or 1, so that the class 0 would cost nothing:
        both are cross-entropies of two classes.
    D2  Eq. (7) has the position j - s_adj; Eq. (6) has j - s_ato, the position inside the part that
        is predicted, as in SpanBERT (Joshi et al., TACL 2020), and so has this.
    D3  Each direction has a head of its own and a bias of its own over the vocabulary (as what
        survives of the authors' code); the word embeddings are the decoder of both and of the
        masked LM, in one product over the tokens to predict.
    D4  Each loss is its sum over the global batch divided by its count there (tokens, pairs,
        replaced entities); the paper prints sums. `reduction="sum"` sums Eq. (5) and (8) over a
        sequence and is the mean over sequences.
    D5  A hidden part is predicted by the masked LM, too, as in SpanBERT, and counts in its 15 %. A
        part is always [MASK].
    D6  One direction an occurrence, each half of the time: with both parts hidden there is nothing
        left to predict from.
    D7  15 % of the entities that have a synonym are replaced; no number is in the paper. Random
        names take part in no other objective, synonyms in segmentation and bidirectional masking
        only.
    D8  The corruption rates of Table 5 (variants c075, c25) start from the checkpoint of all other
        variants; the paper's start from MC-BERT, which ENCODER= takes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from datamodules.embert import EMBERTBatch
from datamodules.steps import places
from models.base import PaperModule
from models.encoders import last_states, load_mlm_head, save_masked_lm, start_as_bert
from models.heads import MLMHead
from models.measures import Measures, ratio, term_means, total_loss
from models.packing import layout
from models.transformer_files import load_bert

TERMS = ("mlm", "pair", "consistency", "segmentation", "atomic", "adjective")
SIDES = ("atomic", "adjective")  #: a hidden part's side, 0 and 1


class Consistency(nn.Module):
    """Whether a replaced entity fits its context, from the states before and behind it: Eq.
    (1-3)."""

    def __init__(self, hidden: int, eps: float = 1e-12) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * hidden, hidden, bias=False)  # W_1
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.outer = nn.Linear(hidden, 2, bias=False)  # W_2

    def forward(self, states: Tensor, around: Tensor) -> Tensor:
        """(B, L, H), (R, 3) row, token before, token behind -> (R, 2) logits of inconsistent and
        consistent."""
        # Eq. (2)
        h = torch.cat(
            [states[around[:, 0], around[:, 1]], states[around[:, 0], around[:, 2]]], dim=-1
        )
        result: Tensor = self.outer(self.norm(nn.functional.gelu(self.inner(h))))  # Eq. (3)
        return result


class Segmentation(nn.Module):
    """Whether a token ends a sub-entity: Eq. (4)."""

    def __init__(self, hidden: int, eps: float = 1e-12) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden, hidden, bias=False)  # W_4
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.outer = nn.Linear(hidden, hidden)  # W_3, b
        self.decide = nn.Linear(hidden, 2, bias=False)  # W_5

    def forward(self, states: Tensor) -> Tensor:
        """(N, H) -> (N, 2) logits."""
        result: Tensor = self.decide(
            torch.tanh(self.outer(self.norm(nn.functional.gelu(self.inner(states)))))
        )
        return result


class PartPrediction(nn.Module):
    """The tokens of one part of a long entity from the other's first and last state, up to the word
    embeddings: Eq. (6-7)."""

    def __init__(
        self, hidden: int, vocab_size: int, positions: int, size: int, eps: float = 1e-12
    ) -> None:
        super().__init__()
        self.position = nn.Embedding(positions, size)  # p
        self.first = nn.Linear(2 * hidden + size, hidden, bias=False)  # W_6
        self.first_norm = nn.LayerNorm(hidden, eps=eps)
        self.second = nn.Linear(hidden, hidden, bias=False)  # W_7
        self.second_norm = nn.LayerNorm(hidden, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def transform(self, states: Tensor, hidden: Tensor) -> Tensor:
        """(B, L, H), (T, 6) rows of :class:`EMBERTBatch.hidden` -> (T, H) y_j."""
        row, first, last, position = hidden[:, :4].unbind(1)
        h = torch.cat([states[row, first], states[row, last], self.position(position)], dim=-1)
        h = self.first_norm(nn.functional.gelu(self.first(h)))
        result: Tensor = self.second_norm(nn.functional.gelu(self.second(h)))
        return result


class EMBERT(PaperModule):
    """Pre-training (Section 3.4).

    encoder      a BERT: folder or hub name, whose masked-LM head is used where it has one
    consistency_weight, segmentation_weight, masking_weight  lambda_1, lambda_2 and lambda_3; a term
    of weight 0 is left out
    positions    of the tokens of a part, at most; the data hides no longer ones (`longest_part`)
    position_size  of their embeddings (the paper's 200)
    reduction    "sum": Eq. (5) and (8) are sums over a sequence, as printed
    head_lr      learning rate of what starts from scratch; None: `lr`, as the paper
    The rest as in :class:`PaperModule`.
    """

    def __init__(
        self,
        encoder: str,
        consistency_weight: float = 2.0,
        segmentation_weight: float = 2.0,
        masking_weight: float = 0.5,
        positions: int = 30,
        position_size: int = 200,
        reduction: Literal["mean", "sum"] = "mean",
        lr: float = 5e-5,
        warmup_steps: float = 0.1,
        head_lr: float | None = None,
        **training: Any,
    ) -> None:
        super().__init__(lr, warmup_steps=warmup_steps, **training)
        self.source, self.head_lr = encoder, head_lr or lr
        self.weights = (
            1.0,
            1.0,
            consistency_weight,
            segmentation_weight,
            masking_weight,
            masking_weight,
        )
        self.positions, self.position_size, self.reduction = positions, position_size, reduction
        self.used = tuple(w > 0 for w in self.weights)

    def configure_model(self) -> None:
        """Read the encoder; Lightning calls this before it needs parameters."""
        if hasattr(self, "bert"):
            return
        self.bert = load_bert(self.source, self.attention, self.dropout)
        config = self.bert.config
        hidden, eps = config.hidden_size, config.layer_norm_eps
        self.head = MLMHead(hidden, config.vocab_size, config.hidden_act, eps)
        self.pair = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        _, _, consistency, segmentation, masking, _ = self.used
        self.consistency = Consistency(hidden, eps) if consistency else None
        self.segmentation = Segmentation(hidden, eps) if segmentation else None
        sizes = (hidden, config.vocab_size, self.positions, self.position_size, eps)
        # atomic, adjective
        self.parts = nn.ModuleList(PartPrediction(*sizes) for _ in range(2 * masking))
        new = (self.pair, self.consistency, self.segmentation, self.parts)
        start_as_bert(config.initializer_range, *(part for part in new if part is not None))
        load_mlm_head(self.source, self.head)
        self.train()  # from_pretrained returns modules in evaluation mode, without dropout

    def rate(self, name: str) -> float:
        return self.lr if name.startswith("bert.") else self.head_lr

    def states(self, batch: EMBERTBatch) -> Tensor:
        """(B, L, H) x_t."""
        return last_states(self.bert, batch.input_ids, layout(batch), batch.second)

    def word_logits(self, states: Tensor, batch: EMBERTBatch) -> tuple[list[Tensor], list[Tensor]]:
        """(logits (N, V), labels (N,)) of the masked LM and of the atomic and adjective parts: one
        product with the embeddings.

        Only tokens to be predicted take part, so the cost is theirs, not that of padded slots.
        (Section 5 of the spec)
        """
        predicted = places(batch, "predicted")
        vectors, biases = [self.head.transform(states.flatten(0, 1)[predicted])], [self.head.bias]
        labels = [batch.mlm_labels.flatten()[predicted]]
        for side, head in zip(SIDES, self.parts, strict=False):
            chosen = places(batch, side)
            vectors.append(head.transform(states, batch.hidden[chosen]))  # type: ignore[operator]
            biases.append(head.bias)  # type: ignore[arg-type]
            labels.append(batch.hidden_ids[chosen])
        shared = torch.cat(vectors) @ self.bert.embeddings.word_embeddings.weight.T
        parts = shared.split([len(v) for v in vectors])
        return [part.float() + bias for part, bias in zip(parts, biases, strict=True)], labels

    def outputs(self, batch: EMBERTBatch) -> dict[str, tuple[Tensor, Tensor]]:
        """(logits, labels) of every term of the loss that is used; labels of -100 do not count."""
        states = self.states(batch)
        words, labels = self.word_logits(states, batch)
        found = {
            "mlm": (words[0], labels[0]),
            "pair": (self.pair(states[:, 0]).float(), batch.pair),
        }
        if self.consistency is not None:
            found["consistency"] = (
                self.consistency(states, batch.replaced).float(),
                batch.consistent,
            )
        if self.segmentation is not None:
            long = places(batch, "long")
            own = self.segmentation(states.flatten(0, 1)[long]).float()
            found["segmentation"] = own, batch.segment_labels.flatten()[long]
        return found | dict(zip(TERMS[4:], zip(words[1:], labels[1:], strict=True), strict=False))

    @staticmethod
    def loss_sums(outputs: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
        """(6,) sums over the batch of the terms' cross-entropies; 0 for a term that is not used."""
        zero = outputs["mlm"][0].new_zeros(())
        return torch.stack(
            [
                nn.functional.cross_entropy(*outputs[t], reduction="sum", ignore_index=-100)
                if t in outputs
                else zero
                for t in TERMS
            ]
        )

    def divisors(self, counts: Tensor) -> Tensor:
        """(6,) what the sums are divided by, of the batch's `counts` (7,)."""
        if self.reduction == "mean":
            return counts[:6]
        return torch.cat([counts[:3], counts[6:].expand(3)])

    def training_step(self, batch: EMBERTBatch, batch_idx: int) -> Tensor:
        sums = self.loss_sums(self.outputs(batch))
        # Eq. (10)
        return self.step_mean(sums, self.divisors(batch.counts), batch_idx, TERMS, self.weights)

    def measures(self, batch: EMBERTBatch) -> Measures:
        """Losses and accuracies, and what baselines that always answer alike get right."""
        outputs = self.outputs(batch)
        count = dict(zip(TERMS, batch.counts[:6], strict=True))
        found: dict[str, Any] = {f"{term}_count": count[term] for term in TERMS}
        found |= term_means(TERMS, self.loss_sums(outputs), batch.counts[:6])
        for term, (logits, labels) in outputs.items():
            found[f"{term}_accuracy"] = (logits.argmax(-1) == labels).sum(), count[term]
        if self.consistency is not None:
            found["consistent"] = batch.consistent.sum()
        if self.segmentation is not None:
            logits, labels = outputs["segmentation"]
            said, there = logits.argmax(-1) == 1, labels == 1
            found["boundaries"] = there.sum()
            found["segmentation_f1"] = 2 * (said & there).sum(), said.sum() + there.sum()
        for side, right in self.unigram_hits(batch).items():
            found[f"{side}_unigram"] = right, count[side]
        return found

    def unigram_hits(self, batch: EMBERTBatch) -> dict[str, int]:
        """Hidden tokens of each side that are the commonest one in their place."""
        if not self.parts:
            return {}
        common = self.trainer.datamodule.unigrams  # type: ignore[attr-defined]
        by_side = [0, 0]
        for (*_, position, length, side), token in zip(
            batch.hidden.tolist(), batch.hidden_ids.tolist(), strict=True
        ):
            by_side[side] += common.get((side, length, position)) == token
        return dict(zip(SIDES, by_side, strict=True))

    def summary(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        def majority(positive: Tensor, whole: Tensor) -> Tensor:
            """Accuracy of the majority-class baseline."""
            return ratio(torch.maximum(positive, whole - positive), whole)

        means["loss"] = total_loss(means, TERMS, self.weights)
        for positive, term in (("consistent", "consistency"), ("boundaries", "segmentation")):
            if positive in means:
                means[f"{term}_majority"] = majority(means.pop(positive), means[f"{term}_count"])
        unused = [f"loss_{term}" for term, used in zip(TERMS, self.used, strict=True) if not used]
        return {name: value for name, value in means.items() if name not in unused}

    def export(self, folder: str | Path) -> None:
        """Write encoder and masked-LM head as a Hugging Face folder: fine-tuning needs nothing
        else."""
        save_masked_lm(self.bert, self.head, folder)
