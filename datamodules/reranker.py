"""Batches for the reranker: a mention in its text beside all its candidates (Sanz-Cruzado and
Lever, BioNLP 2025).

A folder of samples holds ``train.jsonl``, ``held_out.jsonl`` and a manifest; a line is a
:class:`Sample`. The model reads

    [CLS] mention [SEP] left mention right [SEP] candidate 1 [SEP] candidate 2 [SEP] ...

with segment 1 from the first candidate on. Without context the second part is the mention alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.artifact import Artifact
from core.files import InputError, atomic_write
from core.json_files import json_lines, read_object, write_json
from datamodules.contexts import balance_sides, sides
from datamodules.rows import attention, stack_rows
from datamodules.steps import Places, StepData
from datamodules.tokenizers import load_tokenizer

FILE = "reranker_inputs.json"
AGAIN = "Make the samples again."
SAMPLES = Artifact("samples of a reranker", "kepl rerank --help", keys=("kind", "counts"))


class Sample(NamedTuple):
    """A mention to rank candidates for, best first; `right`: the numbers of those that are right,
    none where none is."""

    mention: str
    context: str | None  # as datamodules.contexts.mark_mention makes it
    candidates: list[str]
    scores: list[float]  # of whatever found the candidates
    right: list[int]


def save_samples(
    folder: str | Path, samples: Mapping[str, Sequence[Sample]], **manifest: Any
) -> Path:
    """Write samples (train, held_out) to `folder`, with a manifest. Raises InputError where either
    has none."""
    for part in ("train", "held_out"):
        if not samples.get(part):
            raise InputError(
                f"{folder}: no mention for {part}; a reranker needs more texts with linked mentions"
            )
    counts = {part: len(rows) for part, rows in samples.items()}
    counts["without a right candidate"] = sum(not row.right for row in samples["train"])
    with SAMPLES.create(folder, {**manifest, "kind": "reranker", "counts": counts}) as partial:
        for part, rows in samples.items():
            with atomic_write(partial / f"{part}.jsonl") as handle:
                handle.writelines(
                    json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in rows
                )
    return Path(folder)


def load_samples(folder: str | Path) -> dict[str, list[Sample]]:
    """{part: samples} of a folder that :func:`save_samples` wrote. Raises InputError where it is
    none, or damaged."""
    folder = Path(folder)
    SAMPLES.read(folder)
    samples: dict[str, list[Sample]] = {}
    for part in ("train", "held_out"):
        samples[part] = []
        for where, record in json_lines(folder / f"{part}.jsonl", advice=AGAIN):
            try:
                samples[part].append(Sample(**record))
            except TypeError as error:
                raise InputError(
                    f"{where}: expected the fields {', '.join(Sample._fields)} ({error})"
                ) from error
    return samples


@dataclass(frozen=True)
class Sizes:
    """How much the model reads, in tokens without special ones.

    candidates  most candidates; further ones are not looked at
    mention, context, name  tokens of a mention, of the text around it (half on each side if both
                            need it), of a candidate
    """

    candidates: int = 10
    mention: int = 16
    context: int = 32
    name: int = 12

    def __post_init__(self) -> None:
        if min(self.candidates, self.mention, self.name) < 1 or self.context < 0:
            raise InputError(f"{self}: expected at least 1 (context: 0)")

    @property
    def longest(self) -> int:
        """Tokens of the longest input."""
        return 3 + 2 * self.mention + self.context + self.candidates * (self.name + 1)


class RerankerExample(NamedTuple):
    """One mention as the model reads it."""

    ids: list[int]
    second: list[int]  # segment
    owner: list[int]  # number of the candidate that a token belongs to; K for none
    scores: np.ndarray  # (K,) less the first one; 0 where there is no candidate
    exists: np.ndarray  # (K + 1,) bool: candidates that exist; the last is NIL
    right: np.ndarray  # (K + 1,) bool
    counts: bool = True

    def blank(self) -> RerankerExample:
        return self._replace(counts=False)


class RerankerBatch(NamedTuple):
    """B mentions with at most K candidates, and NIL behind them; L tokens."""

    input_ids: Tensor  # (B, L)
    attention_mask: Tensor  # (B, L)
    second: Tensor  # (B, L)
    owner: Tensor  # (B, L)
    scores: Tensor  # (B, K)
    exists: Tensor  # (B, K + 1) bool
    right: Tensor  # (B, K + 1) bool; no entry in a row that does not count
    counts: Tensor  # (1,) mentions
    places: Places | Any = None  # of a training batch: datamodules.steps.place_batch

    def masks(self) -> dict[str, Tensor]:
        return {"tokens": self.attention_mask > 0}


class RerankerInputs:
    """Samples into tokens.  tokenizer: the encoder's, a folder or hub name."""

    def __init__(self, tokenizer: Any, sizes: Sizes) -> None:
        self.tokenizer, self.sizes = tokenizer, sizes

    @classmethod
    def from_export(cls, folder: str | Path) -> RerankerInputs:
        """As :meth:`export` wrote them."""
        return cls(load_tokenizer(str(folder)), Sizes(**read_object(Path(folder) / FILE)))

    def export(self, folder: str | Path) -> None:
        self.tokenizer.save_pretrained(folder)
        write_json(Path(folder) / FILE, asdict(self.sizes))

    def tokens(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
        return ids

    def example(self, sample: Sample, order: Sequence[int] | None = None) -> RerankerExample:
        """A sample's best K candidates, in `order` or best first."""
        sizes, sep = self.sizes, self.tokenizer.sep_token_id
        most = min(sizes.candidates, len(sample.candidates))
        chosen = list(range(most)) if order is None else [n for n in order if n < most]
        mention = self.tokens(sample.mention)[: sizes.mention]
        left, right = map(self.tokens, sides(sample.mention, sample.context))
        before, after = balance_sides(len(left), len(right), sizes.context)
        ids = [
            self.tokenizer.cls_token_id,
            *mention,
            sep,
            *left[len(left) - before :],
            *mention,
            *right[:after],
            sep,
        ]
        owner, second = [sizes.candidates] * len(ids), [0] * len(ids)
        scores = np.zeros(sizes.candidates, np.float32)
        exists, is_right = np.zeros((2, sizes.candidates + 1), bool)
        for place, number in enumerate(chosen):
            name = [*self.tokens(sample.candidates[number])[: sizes.name], sep]
            ids += name
            owner += [place] * len(name)
            second += [1] * len(name)
            scores[place] = sample.scores[number] - sample.scores[0]
            exists[place], is_right[place] = True, number in sample.right
        exists[-1], is_right[-1] = True, not is_right.any()
        return RerankerExample(ids, second, owner, scores, exists, is_right)

    def batch(self, examples: Sequence[RerankerExample]) -> RerankerBatch:
        counted = np.array([example.counts for example in examples])
        arrays = (
            stack_rows([e.ids for e in examples], self.tokenizer.pad_token_id),
            attention([e.ids for e in examples]),
            stack_rows([e.second for e in examples], 0),
            stack_rows([e.owner for e in examples], self.sizes.candidates),
            np.stack([e.scores for e in examples]),
            np.stack([e.exists for e in examples]),
            np.stack([e.right for e in examples]) & counted[:, None],
            np.array([counted.sum()], np.float32),
        )
        return RerankerBatch(*(torch.from_numpy(array) for array in arrays))


class RerankerData(StepData):
    """Samples as batches.

    samples      folder that :func:`save_samples` wrote
    shuffle      candidates are in a drawn order in training, so that places say nothing; their
                 scores do
    candidates, mention, context, name   as in :class:`Sizes`
    The rest as in :class:`datamodules.steps.StepData`.
    """

    def __init__(
        self,
        samples: str,
        tokenizer: str,
        shuffle: bool = True,
        candidates: int = 10,
        mention: int = 16,
        context: int = 32,
        name: int = 12,
        eval_batch_size: int = 32,
        **steps: Any,
    ) -> None:
        super().__init__(samples, tokenizer, eval_batch_size=eval_batch_size, **steps)
        self.shuffle, self.sizes = shuffle, Sizes(candidates, mention, context, name)

    def read(self) -> None:
        self.inputs = RerankerInputs(self.tokenizer, self.sizes)
        parts = load_samples(self.folder)
        train = len(parts["train"])
        self.samples = [*parts["train"], *parts["held_out"]]
        self.train_indices, self.held_out_indices = np.split(np.arange(len(self.samples)), [train])
        self.lengths = np.array([len(self.inputs.example(sample).ids) for sample in self.samples])

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> RerankerExample:
        sample = self.samples[index]
        drawn = (
            None
            if held_out or not self.shuffle
            else rng.permutation(len(sample.candidates)).tolist()
        )
        return self.inputs.example(sample, drawn)

    def collate(self, examples: list[RerankerExample]) -> RerankerBatch:
        return self.inputs.batch(examples)

    def export(self, folder: str | Path) -> None:
        """Write the tokenizer and the sizes of inputs into `folder`."""
        self.inputs.export(folder)
