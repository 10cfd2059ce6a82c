"""Batches for GenBioEL (Yuan et al., NAACL 2022): KB-guided pre-training, fine-tuning, and BART's
denoising as baseline.

Seq2seq EL, Section 2.1                       inputs
KB-guided pre-training, Section 2.2, E.1, E.2  samples, templates, names
Synonyms-aware fine-tuning, Section 2.3        mentions
Denoising (BART, Section 2.2 and 3)            denoising
a tokenizer of one's own                       tokenizer
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.files import InputError
from core.json_files import write_json
from datamodules.genbioel.denoising import infill_spans, permute_sentences
from datamodules.genbioel.finetuning import MentionSamples
from datamodules.genbioel.inputs import FILE, Inputs
from datamodules.genbioel.samples import GraphSamples
from datamodules.genbioel.store import manifest_of
from datamodules.masking import IGNORE
from datamodules.rows import attention, stack_rows
from datamodules.steps import Places, StepData
from datamodules.tokenizers import tokenizer_fingerprint, tokens_by_id

OBJECTIVES = ("linking", "denoising")


class GenBioELBatch(NamedTuple):
    """One micro-batch of B samples; counts as in :mod:`datamodules.steps`."""

    input_ids: Tensor  # (B, L) of the encoder
    attention_mask: Tensor  # (B, L)
    decoder_input_ids: Tensor  # (B, T); padding is at the end, where no label looks back at it
    labels: Tensor  # (B, T) the token that follows each, of the name and its </s>; else -100
    counts: Tensor  # (1,) labels
    places: Places | Any = None  # of a training batch: datamodules.steps.place_batch

    def masks(self) -> dict[str, Tensor]:
        return {"tokens": self.attention_mask > 0, "predicted": self.labels != IGNORE}


class GenBioELExample(NamedTuple):
    """One sample."""

    encoder: list[int]
    decoder: list[int]
    labels: list[int]

    def blank(self) -> GenBioELExample:
        return self._replace(labels=[IGNORE] * len(self.labels))


class GenBioELData(StepData):
    """Samples as batches.

    samples      folder that `kepl data samples` wrote, or build_mentions
    objective    "linking": the name is predicted; "denoising": BART's own objective on the same
                 text, which is the encoder's without markers and then the decoder's, a full stop
                 behind each
    target       rule for targets of fine-tuning (datamodules.genbioel.finetuning.TARGETS)
    prompt, max_length, max_mention, max_name, max_words   as in
                                                           :class:`datamodules.genbioel.inputs.Inputs`
    few          concepts without definition of so many names use Table 10's third kind of template
                 (1: released code)
    mask, span   share of tokens that are hidden and mean length of spans (BART: 30 %, Poisson(3)),
                 for denoising
    The rest as in :class:`datamodules.steps.StepData`.

    Raises InputError when samples and tokenizer do not belong together, too.
    """

    def __init__(
        self,
        samples: str,
        tokenizer: str,
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
        **steps: Any,
    ) -> None:
        super().__init__(samples, tokenizer, **steps)
        self.objective, self.target, self.few = objective, target, few
        self.limits = {
            "max_length": max_length,
            "max_mention": max_mention,
            "max_name": max_name,
            "max_words": max_words,
        }
        self.prompt, self.mask, self.span = prompt, mask, span

    def read(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InputError(
                f"objective {self.objective!r}: expected one of {', '.join(OBJECTIVES)}"
            )
        if not 0 < self.mask < 1 or self.span <= 0 or self.few < 1:
            raise InputError(
                f"mask {self.mask}, span {self.span}, few {self.few}: expected 0 to 1, more than 0,"
                " 1 or more"
            )
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
        self.source: GraphSamples | MentionSamples
        if manifest["kind"] == "graph":
            self.source = GraphSamples(self.folder, self.inputs, self.few)
        else:
            self.source = MentionSamples(self.folder, self.inputs, self.target)
        if not len(self.source.held_out):
            raise InputError(f"{self.folder}: no sample is held out for validation. Use more data.")
        self.train_indices, self.held_out_indices = self.source.train, self.source.held_out
        self.lengths = self.source.lengths
        self.stop = self.tokenizer(".", add_special_tokens=False)["input_ids"]
        self.ends = np.array([token.endswith(".") for token in tokens_by_id(self.tokenizer)])

    def make_linking_example(
        self, sample: int, rng: np.random.Generator
    ) -> tuple[list[int], list[int], list[int]]:
        """(encoder's ids, decoder's ids, labels) of a sample: Section 2.1."""
        left, mention, right, target = self.source.parts(sample, rng)
        query_ids = self.inputs.query_ids(mention)
        labels = [IGNORE] * (len(query_ids) - 1) + [*target, self.inputs.eos]
        return self.inputs.around(left, mention, right), [*query_ids, *target], labels

    def text(self, sample: int, rng: np.random.Generator) -> list[int]:
        """The sample as plain text: the encoder's sentence without markers, and the decoder's,
        "mention is target"."""
        left, mention, right, target = self.source.parts(sample, rng)
        second = [*mention, self.inputs.linking, *target, *self.stop]
        first = [*left, *mention, *right][: max(0, self.inputs.max_length - 3 - len(second))]
        if first and not self.ends[first[-1]]:
            first += self.stop
        return [*first, *second][: self.inputs.max_length - 2]

    def make_denoising_example(
        self, sample: int, rng: np.random.Generator
    ) -> tuple[list[int], list[int], list[int]]:
        """(encoder's ids, decoder's ids, labels) of a sample: Lewis et al., Section 2.2; <s> text
        </s> is predicted."""
        ids = np.array(self.text(sample, rng), np.int64)
        noisy = infill_spans(
            permute_sentences(ids, self.ends, rng), rng, self.inputs.mask, self.mask, self.span
        )
        noisy = noisy[: self.inputs.max_length - 2]
        bos, eos = self.inputs.bos, self.inputs.eos
        return [bos, *noisy.tolist(), eos], [eos, bos, *ids.tolist()], [bos, *ids.tolist(), eos]

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> GenBioELExample:
        if self.objective == "linking":
            return GenBioELExample(*self.make_linking_example(index, rng))
        return GenBioELExample(*self.make_denoising_example(index, rng))

    def collate(self, examples: list[GenBioELExample]) -> GenBioELBatch:
        encoder, decoder, labels = zip(*examples, strict=True)
        predicted = stack_rows(labels, IGNORE)
        counts = np.array([(predicted != IGNORE).sum()], np.float32)
        arrays = (
            stack_rows(encoder, self.inputs.pad),
            attention(encoder),
            stack_rows(decoder, self.inputs.pad),
            predicted,
            counts,
        )
        return GenBioELBatch(*(torch.from_numpy(a) for a in arrays))

    def export(self, folder: str | Path) -> None:
        """Write the tokenizer and how inputs are made into `folder`."""
        super().export(folder)
        write_json(Path(folder) / FILE, self.inputs.settings)
