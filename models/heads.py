"""Prediction heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN


class MLMHead(nn.Module):
    """BERT's masked-language-modelling head: dense, activation, LayerNorm, then the word embeddings
    as the decoder."""

    def __init__(
        self, hidden_size: int, vocab_size: int, activation: str = "gelu", eps: float = 1e-12
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.activation = ACT2FN[activation]
        self.norm = nn.LayerNorm(hidden_size, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def transform(self, hidden: Tensor) -> Tensor:
        """(N, H) states -> (N, H) what is multiplied with the word embeddings."""
        result: Tensor = self.norm(self.activation(self.dense(hidden)))
        return result

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """(N, H) states and the tied (V, H) embeddings -> (N, V) logits."""
        return nn.functional.linear(self.transform(hidden), word_embeddings, self.bias)
