"""Batches for plain masked-language-model pre-training (BERT, Devlin et al., NAACL 2019), for
encoders to start from.

Text comes as a built corpus (`kepl data corpus`); its mentions are not looked at, so
text linked with `--linker given`, which has none, will do. As everywhere, a batch is a function of
(seed, step, example) alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from datamodules.masking import IGNORE, mask_tokens, units
from datamodules.rows import attention, frame_ids, stack_rows
from datamodules.steps import CorpusData, Places
from datamodules.tokenizers import replacements

NO_SPANS = np.zeros((0, 2), np.int64)


class MLMBatch(NamedTuple):
    """One micro-batch of B sequences of length L; counts as in :mod:`datamodules.steps`."""

    input_ids: Tensor  # (B, L) with masked tokens
    attention_mask: Tensor  # (B, L)
    labels: Tensor  # (B, L) original id where a token is predicted, else -100
    counts: Tensor  # (1,) predicted tokens
    places: Places | Any = None  # of a training batch: datamodules.steps.place_batch

    def masks(self) -> dict[str, Tensor]:
        return {"tokens": self.attention_mask > 0, "predicted": self.labels != IGNORE}


class MLMExample(NamedTuple):
    """One sequence of n tokens and [CLS] and [SEP] around them."""

    ids: np.ndarray  # (n + 2,) with masked tokens
    labels: np.ndarray  # (n + 2,)

    def blank(self) -> MLMExample:
        return self._replace(labels=np.full(len(self.labels), IGNORE))


class MLMData(CorpusData):
    """A corpus as masked batches.

    mask, random, keep  shares of tokens that are hidden, replaced and left, all to be predicted
    (BERT: 15 %, 80/10/10)
    whole_words  draw words, not tokens; a Chinese character is a word of its own here
    The rest as in :class:`datamodules.steps.CorpusData`.
    """

    def __init__(
        self,
        corpus: str,
        tokenizer: str,
        mask: float = 0.12,
        random: float = 0.015,
        keep: float = 0.015,
        whole_words: bool = True,
        **steps: Any,
    ) -> None:
        super().__init__(corpus, tokenizer, **steps)
        self.rates = {"mask": mask, "random": random, "keep": keep}
        self.whole_words = whole_words

    def read(self) -> None:
        self.read_corpus()
        self.random_ids = replacements(self.tokenizer)

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> MLMExample:
        tokens = self.corpus[index]
        unit = units(
            tokens.word_start if self.whole_words else np.ones(len(tokens.ids), bool), NO_SPANS
        )
        ids, labels = mask_tokens(
            tokens.ids, unit, rng, self.mask_id, self.random_ids, **self.rates
        )
        return MLMExample(frame_ids(ids, self.tokenizer), np.pad(labels, 1, constant_values=IGNORE))

    def collate(self, examples: list[MLMExample]) -> MLMBatch:
        assert isinstance(self.tokenizer.pad_token_id, int)
        ids, predicted = zip(*examples, strict=True)
        labels = stack_rows(predicted, IGNORE)
        counts = np.array([(labels != IGNORE).sum()], np.float32)
        arrays = (stack_rows(ids, self.tokenizer.pad_token_id), attention(ids), labels, counts)
        return MLMBatch(*(torch.from_numpy(a) for a in arrays))
