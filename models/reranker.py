"""A cross-encoder that scores all candidates of a mention in one pass.

Sanz-Cruzado and Lever, Accelerating Cross-Encoders in Biomedical Entity Linking, BioNLP 2025.
https://aclanthology.org/2025.bionlp-1.13

    one pass over mention, text and candidates    datamodules.reranker.RerankerInputs
    a score for each candidate                    RerankerModel

Only the paper's abstract was available; what it leaves open is decided here:
    D1  A candidate's state is the mean over its tokens; one linear layer scores it.
    D2  NIL is a candidate, too, scored by a linear layer from the state of [CLS]; it is right where
        no other one is.
    D3  The score of whatever found the candidate is added, times a learned number: training starts
        from its order.
    D4  The loss is -log of the probability of all right candidates together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.artifact import check_export
from core.files import InputError
from core.tensors import read_tensors
from datamodules.reranker import RerankerBatch
from models.base import PaperModule
from models.encoders import TextEncoder, start_as_bert, write_export
from models.measures import Measures
from models.packing import layout
from models.transformer_files import initial_deviation, set_dropout


class RerankerModel(TextEncoder):
    """A BERT that scores candidates, and an encoder like any other.

    name        the BERT to start from: folder or hub name
    confidence  what the scores of the candidates' finder start to be multiplied by (D3)
    """

    def __init__(self, name: str, attention: str = "sdpa", confidence: float = 20.0) -> None:
        super().__init__(name, attention)
        self.score, self.nil = nn.Linear(self.hidden_size, 1), nn.Linear(self.hidden_size, 1)
        start_as_bert(initial_deviation(self.bert.config), self.score, self.nil)
        self.confidence = nn.Parameter(torch.tensor(confidence))

    @classmethod
    def from_export(cls, folder: str | Path) -> RerankerModel:
        """The model in an export folder (:meth:`Reranker.export`). Raises InputError for one that
        is none, or damaged."""
        file = Path(folder) / "reranker.safetensors"
        if not file.is_file():
            raise InputError(f"{file}: missing; this is no reranker's export. Train it again.")
        check_export(folder)
        model = cls(str(folder))
        missing, _ = model.load_state_dict(
            read_tensors(file, "Train the reranker again."), strict=False
        )
        if absent := [name for name in missing if not name.startswith("bert.")]:
            raise InputError(f"{file}: missing {absent}. Train the reranker again.")
        return model.eval()

    def log_probabilities(self, batch: RerankerBatch) -> Tensor:
        """(B, K + 1) of the candidates and, last, NIL; -inf where there is no candidate. In
        float32."""
        states = self(batch.input_ids, layout(batch), second=batch.second)  # (B, L, H)
        number = torch.arange(batch.scores.shape[1], device=states.device)
        share = (batch.owner[..., None] == number).to(states.dtype)  # (B, L, K)
        means = share.mT @ states / share.sum(1).clamp_min(1)[..., None]  # (B, K, H)
        with torch.autocast(states.device.type, enabled=False):
            scores = self.score(means.float())[..., 0] + self.confidence * batch.scores
            logits = torch.cat([scores, self.nil(states[:, 0].float())], 1)
            return logits.masked_fill(~batch.exists, -torch.inf).log_softmax(1)


class Reranker(PaperModule):
    """Training on linked mentions.

    encoder, confidence  as in :class:`RerankerModel`
    The rest as in :class:`PaperModule`.
    """

    def __init__(
        self,
        encoder: str,
        confidence: float = 20.0,
        lr: float = 5e-5,
        warmup_steps: float | None = 0.1,
        **training: Any,
    ) -> None:
        super().__init__(lr, warmup_steps=warmup_steps, **training)
        self.source, self.start = encoder, confidence
        self.model: RerankerModel | None = None

    def configure_model(self) -> None:
        """Read the encoder; Lightning calls this before it needs parameters. Raises InputError for
        one with too few positions."""
        if self.model is not None:
            return
        model = RerankerModel(self.source, self.attention, self.start)
        longest = self.trainer.datamodule.sizes.longest  # type: ignore[attr-defined]
        if longest > model.max_length:
            raise InputError(
                f"encoder {self.source}: {model.max_length} positions, but an input may have"
                f" {longest}. Use fewer candidates, or less context."
            )
        if self.dropout is not None:
            set_dropout(model, self.dropout)
        self.model = model
        self.train()  # from_pretrained returns modules in evaluation mode, without dropout

    def rate(self, name: str) -> float:
        return 100 * self.lr if name.endswith("confidence") else self.lr

    def losses(self, logp: Tensor, right: Tensor) -> Tensor:
        """(1,) -log of the probability of the right candidates (D4), summed over the mentions that
        count."""
        counted = right.any(1)
        correct = logp.masked_fill(~right, -torch.inf).masked_fill(~counted[:, None], 0)
        return -torch.where(counted, correct.logsumexp(1), 0).sum()[None]

    def training_step(self, batch: RerankerBatch, batch_idx: int) -> Tensor:
        assert self.model is not None
        return self.step_mean(
            self.losses(self.model.log_probabilities(batch), batch.right), batch.counts, batch_idx
        )

    def measures(self, batch: RerankerBatch) -> Measures:
        """Loss; share of mentions whose best candidate is right, before and after; with any right
        one; NIL or not, said rightly."""
        assert self.model is not None
        logp, right = self.model.log_probabilities(batch), batch.right
        best = logp[:, :-1].argmax(1, keepdim=True)
        correct = right[:, :-1].gather(1, best)[:, 0]
        nil = (logp.argmax(1) == logp.shape[1] - 1) == right[:, -1]
        counted = right.any(1)
        mentions = batch.counts[0]
        return {
            "loss": (self.losses(logp, right), mentions),
            "acc1": (correct.sum(), mentions),
            "acc1_before": (right[:, 0].sum(), mentions),
            "findable": (right[:, :-1].any(1).sum(), mentions),
            "nil_accuracy": ((nil & counted).sum(), mentions),
            "mentions": mentions,
        }

    def export(self, folder: str | Path) -> None:
        """Write the BERT as a Hugging Face folder and the rest in reranker.safetensors; the data
        adds how inputs are made."""
        assert self.model is not None
        write_export(folder, "reranker", self.model, {})
