"""Batches for GenBioEL (Yuan et al., NAACL 2022): KB-guided pre-training, fine-tuning, and BART's
denoising as baseline.

Seq2seq EL, Section 2.1                       inputs
KB-guided pre-training, Section 2.2, E.1, E.2  samples, templates, names
Synonyms-aware fine-tuning, Section 2.3        mentions
Denoising (BART, Section 2.2 and 3)            denoising
a tokenizer of one's own                       tokenizer
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from core.files import InputError, write_json
from datamodules.genbioel.denoising import infilled, permuted
from datamodules.genbioel.finetuning import MentionSamples
from datamodules.genbioel.inputs import FILE, Inputs
from datamodules.genbioel.samples import GraphSamples
from datamodules.genbioel.store import manifest_of
from datamodules.masking import IGNORE
from datamodules.rows import attention, padded
from datamodules.steps import (
    Flat,
    Places,
    held_out_batches,
    length_order,
    make_batch,
    train_batches,
)
from datamodules.tokenizers import load_tokenizer, tokenizer_fingerprint

OBJECTIVES = ("linking", "denoising")


class GenBioELBatch(NamedTuple):
    """One micro-batch of B samples; counts as in :mod:`datamodules.steps`."""

    input_ids: Tensor  # (B, L) of the encoder
    attention_mask: Tensor  # (B, L)
    decoder_input_ids: Tensor  # (B, T); padding is at the end, where no label looks back at it
    labels: Tensor  # (B, T) the token that follows each, of the name and its </s>; else -100
    counts: Tensor  # (1,) labels
    places: Places | Any = None  # of a training batch: datamodules.steps.placed

    def masks(self) -> dict[str, Tensor]:
        return {"tokens": self.attention_mask > 0, "predicted": self.labels != IGNORE}


class GenBioELExample(NamedTuple):
    """One sample."""

    encoder: list[int]
    decoder: list[int]
    labels: list[int]

    def blank(self) -> GenBioELExample:
        return self._replace(labels=[IGNORE] * len(self.labels))


class GenBioELData(pl.LightningDataModule):
    """Samples as batches. A batch is a function of (seed, step, sample) alone.

    samples      folder that ``python -m datamodules.genbioel samples`` wrote, or build_mentions
    tokenizer    the model's: a folder or hub name
    batch_size   samples per optimiser step over all processes and accumulated batches
    objective    "linking": the name is predicted; "denoising": BART's own objective on the same
                 text, which is the
                 encoder's without markers and then the decoder's, a full stop behind each
    target       rule for targets of fine-tuning (datamodules.genbioel.finetuning.TARGETS)
    prompt, max_length, max_mention, max_name, max_words   as in
                                                           :class:`datamodules.genbioel.inputs.Inputs`
    few          concepts without definition of so many names use Table 10's third kind of template
                 (1: released code)
    mask, span   share of tokens that are hidden and mean length of spans (BART: 30 %, Poisson(3)),
                 for denoising

    Raises InputError when samples and tokenizer do not belong together, or the batch size does not
    divide.
    """

    def __init__(
        self,
        samples: str,
        tokenizer: str,
        batch_size: int = 384,
        objective: str = "linking",
        target: str = "tfidf",
        prompt: bool = True,
        max_length: int = 1024,
        max_mention: int = 128,
        max_name: int = 128,
        max_words: int = 384,
        few: int = 2,
        mask: float = 0.3,
        span: float = 3.0,
        eval_batch_size: int = 64,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.folder, self.tokenizer_name = samples, tokenizer
        self.batch_size, self.objective, self.target, self.few = batch_size, objective, target, few
        self.limits = {
            "max_length": max_length,
            "max_mention": max_mention,
            "max_name": max_name,
            "max_words": max_words,
        }
        self.prompt, self.mask, self.span = prompt, mask, span
        self.eval_batch_size, self.num_workers, self.seed = eval_batch_size, num_workers, seed
        self.source: GraphSamples | MentionSamples | None = None

    def setup(self, stage: str | None = None) -> None:
        if self.source is not None:
            return
        if self.objective not in OBJECTIVES:
            raise InputError(
                f"objective {self.objective!r}: expected one of {', '.join(OBJECTIVES)}"
            )
        if not 0 < self.mask < 1 or self.span <= 0 or self.few < 1:
            raise InputError(
                f"mask {self.mask}, span {self.span}, few {self.few}: expected 0 to 1, more than 0,"
                " 1 or more"
            )
        self.tokenizer = load_tokenizer(self.tokenizer_name)
        self.inputs = Inputs(self.tokenizer, **self.limits, prompt=self.prompt)
        manifest = manifest_of(self.folder, tokenizer_fingerprint(self.tokenizer))
        recipe = manifest["recipe"]
        if (
            recipe["max_name"] > self.inputs.max_name
            or recipe.get("max_words", 0) > self.inputs.max_words
        ):
            raise InputError(
                f"{self.folder}: made with max_name {recipe['max_name']}, max_words"
                f" {recipe.get('max_words', 0)}, but the data accepts {self.inputs.max_name},"
                f" {self.inputs.max_words}. Build the samples with these, or raise the data's."
            )
        if manifest["kind"] == "graph":
            self.source = GraphSamples(self.folder, self.inputs, self.few)
        else:
            self.source = MentionSamples(self.folder, self.inputs, self.target)
        if not len(self.source.held_out):
            raise InputError(f"{self.folder}: no sample is held out for validation. Use more data.")
        if len(self.source.train) < self.batch_size:
            raise InputError(
                f"{self.folder}: {len(self.source.train)} samples are fewer than one batch of"
                f" {self.batch_size}. Use more data or a smaller batch_size."
            )
        self.stop = self.tokenizer(".", add_special_tokens=False)["input_ids"]
        tokens = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
        self.ends = np.array([token.endswith(".") for token in tokens])

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one pass over the samples; what is left over after whole batches waits
        its turn."""
        assert self.source is not None
        return len(self.source.train) // self.batch_size

    @lru_cache(maxsize=2)  # noqa: B019  one data module lives as long as its run
    def order(self, epoch: int) -> np.ndarray:
        """(steps, batch_size) sample numbers of an epoch: shuffled, batches of similar length, in
        random order."""
        assert self.source is not None
        rng = np.random.default_rng([self.seed, epoch])
        return length_order(self.source.train, self.source.lengths, self.batch_size, rng)

    def linked(
        self, sample: int, rng: np.random.Generator
    ) -> tuple[list[int], list[int], list[int]]:
        """(encoder's ids, decoder's ids, labels) of a sample: Section 2.1."""
        assert self.source is not None
        left, mention, right, target = self.source.parts(sample, rng)
        asked = self.inputs.query_ids(mention)
        labels = [IGNORE] * (len(asked) - 1) + [*target, self.inputs.eos]
        return self.inputs.around(left, mention, right), [*asked, *target], labels

    def text(self, sample: int, rng: np.random.Generator) -> list[int]:
        """The sample as plain text: the encoder's sentence without markers, and the decoder's,
        "mention is target"."""
        assert self.source is not None
        left, mention, right, target = self.source.parts(sample, rng)
        second = [*mention, self.inputs.linking, *target, *self.stop]
        first = [*left, *mention, *right][: max(0, self.inputs.max_length - 3 - len(second))]
        if first and not self.ends[first[-1]]:
            first += self.stop
        return [*first, *second][: self.inputs.max_length - 2]

    def denoised(
        self, sample: int, rng: np.random.Generator
    ) -> tuple[list[int], list[int], list[int]]:
        """(encoder's ids, decoder's ids, labels) of a sample: Lewis et al., Section 2.2; <s> text
        </s> is predicted."""
        ids = np.array(self.text(sample, rng), np.int64)
        noisy = infilled(permuted(ids, self.ends, rng), rng, self.inputs.mask, self.mask, self.span)
        noisy = noisy[: self.inputs.max_length - 2]
        bos, eos = self.inputs.bos, self.inputs.eos
        return [bos, *noisy.tolist(), eos], [eos, bos, *ids.tolist()], [bos, *ids.tolist(), eos]

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> GenBioELExample:
        return GenBioELExample(
            *(self.linked if self.objective == "linking" else self.denoised)(index, rng)
        )

    def collate(self, examples: list[GenBioELExample]) -> GenBioELBatch:
        encoder, decoder, labels = zip(*examples, strict=True)
        predicted = padded(labels, IGNORE)
        counts = np.array([(predicted != IGNORE).sum()], np.float32)
        arrays = (
            padded(encoder, self.inputs.pad),
            attention(encoder),
            padded(decoder, self.inputs.pad),
            predicted,
            counts,
        )
        return GenBioELBatch(*(torch.from_numpy(a) for a in arrays))

    def batch(self, indices: np.ndarray, epoch: int, blank: bool = False) -> GenBioELBatch:
        """:func:`datamodules.steps.make_batch`."""
        made: GenBioELBatch = make_batch(self, indices, epoch, blank)
        return made

    def train_dataloader(self) -> Flat:
        return train_batches(self)

    def val_dataloader(self) -> DataLoader:
        """Every held-out sample once, over all processes; equally many batches for each."""
        assert self.source is not None
        return held_out_batches(
            self, self.source.held_out, self.source.lengths, self.eval_batch_size
        )

    def export(self, folder: str) -> None:
        """Write the tokenizer and how inputs are made into `folder`."""
        self.tokenizer.save_pretrained(folder)
        write_json(Path(folder) / FILE, self.inputs.settings)
