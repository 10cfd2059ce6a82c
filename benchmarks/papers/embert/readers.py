"""The encoders of the figures, their means over sentences, and what is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import BertModel

from benchmarks.papers.embert.maps import Text, attention_maps, join_parts
from core.files import InputError
from datamodules.tokenizers import load_tokenizer
from experiments.names import encoder
from models.metrics import bootstrap_interval, compare_systems
from models.transformer_files import load_bert

Values = Sequence[float] | np.ndarray


class Reader(NamedTuple):
    """An encoder and how it is called in figures and tables."""

    name: str
    bert: BertModel
    tokenizer: Any

    @property
    def layers(self) -> int:
        return int(self.bert.config.num_hidden_layers)

    def join(self, parts: Sequence[str]) -> Text:
        """A text given in parts, as the encoder's tokens."""
        return join_parts(self.tokenizer, parts)

    def tokens(self, text: Text) -> list[str]:
        return list(self.tokenizer.convert_ids_to_tokens(text.ids))

    def maps(self, texts: Sequence[Text], layer: int) -> Iterator[np.ndarray]:
        """The attention of `layer` in each text, summed over heads."""
        return attention_maps(self.bert, texts, layer, int(self.tokenizer.pad_token_id))


def reader(name: str, checkpoint: str | None, device: str) -> Reader:
    """The encoder that `name` means, with the attention that returns its weights. Raises InputError
    for one that is no BERT."""
    chosen = encoder(name, checkpoint)
    bert = load_bert(chosen.folder, attention="eager")
    bert.to(torch.device(device))  # type: ignore[arg-type]  # the annotation of the method that it wraps
    return Reader(chosen.name, bert, load_tokenizer(chosen.folder))


def mean_of(values: Values) -> dict[str, float]:
    """Mean, 95 % bootstrap interval over sentences."""
    tallies = np.stack([np.asarray(values), np.ones(len(values))], axis=1)
    low, high = bootstrap_interval(tallies)
    return {"mean": float(np.mean(values)), "low": low, "high": high}


def difference(first: Values, second: Values) -> dict[str, float]:
    """second - first over the same sentences: mean, 95 % interval, p of the paired bootstrap."""
    first_rows, second_rows = (
        np.stack([np.asarray(v), np.ones(len(v))], axis=1) for v in (first, second)
    )
    c = compare_systems({0: first_rows}, {0: second_rows})
    return {"mean": c.difference, "low": c.low, "high": c.high, "p": c.p_bootstrap}


def choose_row(pick: int | None, name: str, values: np.ndarray) -> int:
    """`pick`, or the row of the (lower) median, so that what is drawn is neither the best nor the
    worst."""
    if pick is None:
        return int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])
    if not 0 <= pick < len(values):
        raise InputError(f"{name}={pick}: expected a row from 0 to {len(values) - 1}")
    return pick


def near(left: int, right: int, most: int) -> tuple[int, int]:
    """The numbers of tokens left and right of an entity that are shown: the nearest ones, `most` in
    all."""
    keep = min(left, max(most // 2, most - right))
    return keep, min(right, most - keep)
