"""One datamodule for every downstream task: tokens, windows, length-bucketed batches, and
predictions back in the text.

It reads a task folder (:mod:`datamodules.tasks`). Test examples are scored in their own text: what
a window cuts off is a gold entity that nobody predicted, so it counts as missed and is never lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerFast

from core.dotted import import_object
from core.files import InputError
from datamodules.rows import pad_rows
from datamodules.steps import sort_pools
from datamodules.tagging import (
    SENTENCE_ENDS,
    bio_decoded,
    bio_labels,
    overlapping_windows,
    unit_spans,
    units,
    windows,
)
from datamodules.tasks import Pair, Relation, Tagged, Task, load_task
from datamodules.tasks.selection import select_examples
from datamodules.tokenizers import load_tokenizer

IGNORE = -100
MAX_UNKNOWN = 0.10  # share of unknown tokens above which an encoder cannot be judged on a text


class FinetuneBatch(NamedTuple):
    """B sequences of length L. A field that the task's kind does not use is None."""

    input_ids: Tensor  # (B, L)
    attention_mask: Tensor  # (B, L)
    feature: Tensor  # (B,) number of the sequence in its split
    second: Tensor | None = None  # pair, ranking (B, L): 1 on the second text
    mentions: Any = None  # what the encoder's linker made of the texts
    unit: Tensor | None = None  # (B, U) position of each unit's first token; 0 on padding
    unit_mask: Tensor | None = None  # (B, U) bool
    labels: Tensor | None = None  # ner (B, U), -100 on padding; pair, relation (B,)
    spans: Tensor | None = None  # nested (S, 4) gold row, first unit, last unit, type
    anchor: Tensor | None = None  # relation (B, 2) positions of the two markers


class Feature(NamedTuple):
    """One sequence: a window of an example, or a whole one."""

    example: int  # number in its split
    ids: list[int]  # tokens with [CLS] and [SEP]
    offsets: list[tuple[int, int]]  # characters of each token in `text`; (0, 0) for special tokens
    text: str
    first_unit: int = 0  # of the window, in its example
    unit: list[int] = []  # position of each unit's first token  # noqa: RUF012  a NamedTuple's default, never changed
    anchor: tuple[int, int] = (0, 0)
    label: int = IGNORE
    second: int = 0  # where the second of two texts begins, in tokens


def refuse_unknown(
    manifest: dict[str, Any],
    tokenizer: PreTrainedTokenizerFast,
    ids: Iterable[int],
    special: Collection[int],
) -> None:
    """Raise InputError when more than a tenth of the tokens `ids`, without the `special` ones, is
    [UNK]."""
    counted = Counter(ids)
    unknown = counted[int(tokenizer.unk_token_id)]  # type: ignore[arg-type]
    total = unknown + sum(
        n for i, n in counted.items() if i not in special and i != tokenizer.unk_token_id
    )
    if unknown > MAX_UNKNOWN * total:
        raise InputError(
            f"{manifest['name']}: {unknown / total:.0%} of the text is [UNK] for tokenizer"
            f" {tokenizer.name_or_path!r}, more than {MAX_UNKNOWN:.0%}. Take an encoder of the"
            f" text's language ({manifest['language']})."
        )


def check_text(task: Task, tokenizer_name: str) -> None:
    """Raise InputError when the tokenizer does not cover the task's training text; a quick look at
    2,000 examples."""
    tokenizer = load_tokenizer(tokenizer_name)
    examples = task.splits["train"][:: max(1, len(task.splits["train"]) // 2000)]
    texts: list[str] = []
    for example in examples:
        is_pair = isinstance(example, Pair)
        texts += [example.first, example.second] if is_pair else [example.text]
    for marker in task.manifest.get("markers") or []:
        texts = [t.replace(marker, " ") for t in texts]
    if task.manifest["language"] == "zh":  # as a tagger reads it: every character for itself
        texts = [" ".join(t) for t in texts]
    encoded = tokenizer(
        texts, add_special_tokens=False, return_attention_mask=False, verbose=False
    )["input_ids"]
    ids = chain.from_iterable(encoded)
    refuse_unknown(task.manifest, tokenizer, ids, tokenizer.all_special_ids)


class FinetuneData(pl.LightningDataModule):
    """A task as batches for an encoder.

    task        folder of the task (:func:`datamodules.tasks.save_task`)
    tokenizer   the encoder's: folder or hub name
    max_length  tokens a sequence, with [CLS] and [SEP]
    linker      dotted name, in `datamodules`, of what makes the encoder's mentions, where it asks
                for them: called with `linker_folder` (the encoder's export) it returns a function
                of the texts and their tokens' offsets whose result the encoder accepts as
                `mentions`
    linker_settings  further arguments of the linker
    negatives   ranking: wrong answers that a right one is compared with in an epoch

    share       of the training documents, by `seed` (datamodules.tasks.selection), which also says
                what the splits `train`, `select` and `score` are

    Raises InputError when more than a tenth of the training text is unknown to the tokenizer.
    """

    def __init__(
        self,
        task: str,
        tokenizer: str,
        max_length: int = 512,
        batch_size: int = 16,
        eval_batch_size: int = 64,
        linker: str | None = None,
        linker_folder: str | None = None,
        linker_settings: dict[str, Any] | None = None,
        negatives: int = 4,
        num_workers: int = 0,
        seed: int = 0,
        share: float = 1.0,
    ) -> None:
        super().__init__()
        self.folder, self.tokenizer_name, self.max_length = task, tokenizer, max_length
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.linker_name = linker
        self.linker_folder = linker_folder
        self.linker_settings = linker_settings or {}
        self.linker: Callable[[list[str], list[list[tuple[int, int]]]], Any] | None = None
        self.negatives, self.num_workers, self.seed = negatives, num_workers, seed
        self.share = share
        self.features: dict[str, list[Feature]] = {}
        self.examples: dict[str, list[Any]] = {}

    # --- splits -----------------------------------------------------------------------------------

    def setup(self, stage: str | None = None) -> None:
        if self.features:
            return
        self.task = load_task(self.folder)
        manifest = self.task.manifest
        self.read_as(
            self.task.kind, self.task.labels, manifest["language"], manifest.get("markers") or []
        )
        chosen = select_examples(self.task, self.share, self.seed)
        self.examples, self.scored, self.selected_on = chosen
        self.features = {k: self.build_features(v) for k, v in self.examples.items()}
        self.check_unknown()

    def read_as(
        self, kind: str, labels: Sequence[str], language: str, markers: Sequence[str]
    ) -> None:
        """Load tokenizer and linker for examples of `kind`: all that :meth:`build_features` and
        :meth:`batch` need besides the examples."""
        self.kind = kind
        self.labels = list(labels)
        self.language = language
        self.markers = list(markers)
        self.tokenizer: PreTrainedTokenizerFast = load_tokenizer(self.tokenizer_name)
        self.tokenizer.add_tokens(self.markers, special_tokens=True)
        if self.linker_name is not None:
            self.linker = import_object(self.linker_name, "datamodules")(
                self.linker_folder, **self.linker_settings
            )

    def marker_ids(self, markers: list[str]) -> list[int]:
        return [int(i) for i in self.tokenizer.convert_tokens_to_ids(markers)] if markers else []  # type: ignore[union-attr]

    def check_unknown(self) -> None:
        special = set(self.tokenizer.all_special_ids) | set(self.marker_ids(self.markers))
        ids = chain.from_iterable(feature.ids for feature in self.features["train"])
        refuse_unknown(self.task.manifest, self.tokenizer, ids, special)

    # --- features ---------------------------------------------------------------------------------

    def build_features(self, examples: Sequence[Any]) -> list[Feature]:
        """Every example as one or more sequences."""
        if not examples:
            return []
        if isinstance(examples[0], Tagged):
            return [f for i, e in enumerate(examples) for f in self.cut_windows(i, e)]
        if isinstance(examples[0], Relation):
            return [self.make_relation(i, e) for i, e in enumerate(examples)]
        return [self.make_pair(i, e) for i, e in enumerate(examples)]

    def cut_windows(self, number: int, example: Tagged, overlap: int = 0) -> Iterator[Feature]:
        """The example's windows; with `overlap`, windows of a text that is too long for one share
        about so many tokens."""
        unit = units(example, self.language)
        if not unit:
            return
        pieces = self.tokenizer(
            [example.text[s:e] for s, e in unit],
            add_special_tokens=False,
            return_attention_mask=False,
            verbose=False,
        )["input_ids"]
        # a character that the tokenizer drops
        pieces = [p or [self.tokenizer.unk_token_id] for p in pieces]
        ends = [example.text[e - 1] in SENTENCE_ENDS for _, e in unit]
        room = self.max_length - 2
        sizes = [min(len(p), room) for p in pieces] if overlap else [len(p) for p in pieces]
        for first, last in (
            overlapping_windows(sizes, room, overlap) if overlap else windows(sizes, ends, room)
        ):
            ids, offsets, position = [self.tokenizer.cls_token_id], [(0, 0)], []
            for i in range(first, last):
                position.append(len(ids))
                ids += pieces[i][:room]
                offsets += [unit[i]] * len(pieces[i][:room])
            yield Feature(
                number,
                [*ids, self.tokenizer.sep_token_id],
                [*offsets, (0, 0)],
                example.text,
                first,
                position,
            )

    def make_pair(self, number: int, example: Pair) -> Feature:
        encoded = self.tokenizer(
            [example.first, example.second],
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            verbose=False,
        )
        (first, second), (at_first, at_second) = encoded["input_ids"], encoded["offset_mapping"]
        room = self.max_length - 3
        half = room // 2
        size = max(half, room - len(second))  # of the first text: the longer of the two is cut
        first, at_first = first[:size], at_first[:size]
        second, at_second = second[: room - len(first)], at_second[: room - len(first)]
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        shift = len(example.first) + 1  # of the second text, in the two joined
        label = self.labels.index(example.label) if example.label in self.labels else IGNORE
        return Feature(
            number,
            [cls, *first, sep, *second, sep],
            [(0, 0), *at_first, (0, 0), *((s + shift, e + shift) for s, e in at_second), (0, 0)],
            f"{example.first} {example.second}",
            label=label,
            second=len(first) + 2,
        )

    def make_relation(self, number: int, example: Relation) -> Feature:
        encoded = self.tokenizer(
            example.text,
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            verbose=False,
        )
        ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
        opening = set(self.marker_ids([m for m in self.markers if not m.startswith("[/")]))
        # the first two, in text order
        at = [i for i, token in enumerate(ids) if token in opening][:2]
        room = self.max_length - 2
        first = 0
        if len(ids) > room:  # the window around the markers, as far to the left as it can be
            wanted = at[-1] + room // 4 if at else 0
            first = min(max(0, wanted - room), at[0] if at else 0, len(ids) - room)
        ids, offsets = ids[first : first + room], offsets[first : first + room]
        inside = [i - first + 1 for i in at if 0 <= i - first < room]
        anchor = (inside[0], inside[-1]) if inside else (0, 0)  # one marker for both, none: [CLS]
        label = self.labels.index(example.label) if example.label in self.labels else IGNORE
        return Feature(
            number,
            [self.tokenizer.cls_token_id, *ids, self.tokenizer.sep_token_id],
            [(0, 0), *offsets, (0, 0)],
            example.text,
            anchor=anchor,
            label=label,
        )

    # --- batches ----------------------------------------------------------------------------------

    def batch(self, split: str, numbers: Sequence[int]) -> FinetuneBatch:
        """The sequences `numbers` of a split, padded to the longest."""
        features = [self.features[split][int(i)] for i in numbers]
        ids, mask = pad_rows([f.ids for f in features], self.tokenizer.pad_token_id)  # type: ignore[arg-type]
        result = FinetuneBatch(ids, mask, torch.tensor([int(i) for i in numbers]))
        if self.linker is not None:
            result = result._replace(
                mentions=self.linker([f.text for f in features], [f.offsets for f in features])
            )
        if self.kind in ("ner", "nested"):
            return self._with_units(split, features, result)
        labels = torch.tensor([f.label for f in features])
        if self.kind == "relation":
            return result._replace(labels=labels, anchor=torch.tensor([f.anchor for f in features]))
        second = torch.zeros_like(ids)
        for row, f in enumerate(features):
            second[row, f.second : len(f.ids)] = 1
        return result._replace(labels=labels, second=second)

    def _with_units(
        self, split: str, features: list[Feature], batch: FinetuneBatch
    ) -> FinetuneBatch:
        width = max(len(f.unit) for f in features)
        unit = torch.zeros(len(features), width, dtype=torch.long)
        mask = torch.zeros(len(features), width, dtype=torch.bool)
        labels = torch.full((len(features), width), IGNORE)
        spans: list[tuple[int, int, int, int]] = []
        for row, f in enumerate(features):
            n = len(f.unit)
            unit[row, :n], mask[row, :n] = torch.tensor(f.unit), True
            if split not in self.examples:  # new texts, which have no gold entities
                continue
            example = self.examples[split][f.example]
            gold = unit_spans(example.entities, units(example, self.language))
            if self.kind == "ner":
                total = len(units(example, self.language))
                labels[row, :n] = torch.tensor(
                    bio_labels(gold, total, self.labels)[f.first_unit : f.first_unit + n]
                )
            else:
                spans += [
                    (row, s - f.first_unit, e - 1 - f.first_unit, self.labels.index(t))
                    for s, e, t in gold
                    if f.first_unit <= s and e <= f.first_unit + n and t in self.labels
                ]
        flat = torch.tensor(spans, dtype=torch.long).reshape(-1, 4)
        return batch._replace(
            unit=unit,
            unit_mask=mask,
            labels=labels if self.kind == "ner" else None,
            spans=flat if self.kind == "nested" else None,
        )

    def order(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch as sequence numbers: shuffled, of similar length, in random
        order.

        For ranking a batch is pairs of rows: a right answer, then a wrong one to the same question.
        """
        rng = np.random.default_rng([self.seed, epoch])
        features = self.features["train"]
        if self.kind == "ranking":
            items = self._duels(rng)
        else:
            labelled = [i for i, f in enumerate(features) if f.unit or f.label != IGNORE]
            items = np.array(labelled, np.int64)[:, None]
        tokens = np.array([len(feature.ids) for feature in features])
        lengths = tokens[items].max(axis=1)
        ordered = items[sort_pools(rng.permutation(len(items)), lengths, self.batch_size)]
        batches = [
            ordered[i : i + self.batch_size].ravel()
            for i in range(0, len(ordered), self.batch_size)
        ]
        return [batches[i] for i in rng.permutation(len(batches))]

    def _duels(self, rng: np.random.Generator) -> np.ndarray:
        """(n, 2) right and wrong answers: `negatives` wrong ones of the same question for each
        right one.

        A question with only right answers gets wrong ones from other questions, where an answer of
        its own is none.
        """
        right: dict[str, list[int]] = defaultdict(list)
        wrong: dict[str, list[int]] = defaultdict(list)
        for i, f in enumerate(self.features["train"]):
            example = self.examples["train"][f.example]
            (right if example.label == "1" else wrong)[example.document].append(i)
        others = np.array(list(chain.from_iterable(wrong.values())))
        if not right or not len(others):
            raise InputError(
                f"{self.folder}: ranking needs right and wrong answers in train; there is only one"
                " kind"
            )
        duels = []
        for question, answers in right.items():
            for answer in answers:
                pool = np.array(wrong[question]) if wrong.get(question) else others
                chosen = rng.choice(pool, size=min(self.negatives, len(pool)), replace=False)
                duels += [(answer, int(c)) for c in chosen]
        return np.array(duels)

    def train_dataloader(self) -> DataLoader:
        epoch = self.trainer.current_epoch if self.trainer is not None else 0
        return self._loader("train", self.order(epoch))

    def evaluation(self, split: str) -> DataLoader:
        """Every sequence of a split once, longest first."""
        order = np.argsort([-len(f.ids) for f in self.features[split]], kind="stable")
        return self._loader(
            split,
            [
                order[i : i + self.eval_batch_size]
                for i in range(0, len(order), self.eval_batch_size)
            ],
        )

    def val_dataloader(self) -> DataLoader:
        return self.evaluation("select")

    def test_dataloader(self) -> DataLoader:
        return self.evaluation("score")

    def _loader(
        self, split: str, batches: Sequence[Sequence[int]] | Sequence[np.ndarray]
    ) -> DataLoader:
        return DataLoader(
            _Batches(self, split, batches), batch_size=None, num_workers=self.num_workers
        )

    # --- predictions ------------------------------------------------------------------------------

    def gold(self, split: str) -> list[list[Any]]:
        """Per example: gold spans (start, end, type) in characters, or gold classes."""
        return [_gold_of(example) for example in self.examples[split]]

    def decode_outputs(self, split: str, outputs: dict[int, Any]) -> list[Any]:
        """Predictions per example from the head's outputs per sequence.

        ner: labels per unit; nested: (first unit, last unit, type) rows; both become spans in
            characters.
        pair, relation: a class number, which becomes its name. ranking: a score, as it is.
        Raises KeyError when a sequence has no output.
        """
        if self.kind not in ("ner", "nested"):
            rows = [outputs[i] for i in range(len(self.features[split]))]
            if self.kind == "ranking":
                return [float(row) for row in rows]
            return [self.labels[int(row)] for row in rows]
        entities: list[list[tuple[int, int, str]]] = [[] for _ in self.examples[split]]
        labels: list[list[int]] = [[] for _ in self.examples[split]]
        for i, f in enumerate(self.features[split]):
            if self.kind == "ner":
                # windows come in the text's order
                labels[f.example] += [int(x) for x in outputs[i][: len(f.unit)]]
            else:
                entities[f.example] += [
                    (int(s) + f.first_unit, int(e) + 1 + f.first_unit, self.labels[int(t)])
                    for s, e, t in outputs[i]
                ]
        result = []
        for example, spans, example_labels in zip(
            self.examples[split], entities, labels, strict=True
        ):
            unit = units(example, self.language)
            spans = bio_decoded(example_labels, self.labels) if self.kind == "ner" else spans
            result.append([(unit[s][0], unit[e - 1][1], t) for s, e, t in spans])
        return result


def _gold_of(example: Tagged | Relation | Pair) -> list[Any]:
    if isinstance(example, Tagged):
        return list(example.entities)
    return list(example.gold) if isinstance(example, Relation) else [example.label]


class _Batches(Dataset[FinetuneBatch]):
    def __init__(self, data: FinetuneData, split: str, batches: Any) -> None:
        self.data, self.split, self.batches = data, split, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> FinetuneBatch:
        if i >= len(self.batches):
            raise IndexError(i)
        return self.data.batch(self.split, self.batches[i])
