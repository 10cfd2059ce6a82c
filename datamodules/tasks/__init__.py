"""A downstream task on disk, whatever format it came in: a JSONL file per split and a manifest.

``train.jsonl``, ``dev.jsonl``, ``test.jsonl`` hold one example a line; which fields it has depends
on the task's kind:

    ner, nested    id, document, text, entities [[start, end, type], …], words [[start, end], …] or
                   null
    pair, ranking  id, document, first, second, label        (ranking: `document` is the question,
                                                             label "1" a right answer)
    relation       id, document, text, label, gold [label, …]     (text with its markers in it; any
                                                                  gold label is right)

Offsets are in characters, end exclusive. `words` are the units that a tagger labels, where the
source has them. `document` is what must not be split between training and selection.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from core.artifact import Artifact
from core.files import InputError, atomic_write
from core.json_files import json_lines

SPLITS = ("train", "dev", "test")
TASK = Artifact(
    "task",
    "kepl data --help",
    keys=("name", "kind", "metric", "language", "labels", "splits"),
    verified="{}.jsonl",
)


class Tagged(NamedTuple):
    """Text with entities."""

    id: str
    document: str
    text: str
    entities: list[tuple[int, int, str]]
    words: list[tuple[int, int]] | None = None


class Pair(NamedTuple):
    """Two texts and how they relate."""

    id: str
    document: str
    first: str
    second: str
    label: str


class Relation(NamedTuple):
    """A text in which markers replace, or surround, two entities."""

    id: str
    document: str
    text: str
    label: str
    gold: list[str]


Example: TypeAlias = Tagged | Pair | Relation
KINDS: dict[str, type[Tagged] | type[Pair] | type[Relation]] = {
    "ner": Tagged,
    "nested": Tagged,
    "pair": Pair,
    "ranking": Pair,
    "relation": Relation,
}


class Task(NamedTuple):
    """A task as it is in a folder. `splits` maps a split's name to its examples."""

    folder: Path
    manifest: dict[str, Any]
    splits: dict[str, list[Any]]

    @property
    def kind(self) -> str:
        return str(self.manifest["kind"])

    @property
    def labels(self) -> list[str]:
        """Entity types, or classes, of the training split; the negative class first where there is
        one."""
        return list(self.manifest["labels"])


def count_overlapping(entities: Iterable[tuple[int, int, str]]) -> int:
    """How many entities overlap one that begins before them (or at the same place)."""
    count, reached = 0, 0
    for start, end, _ in sorted(entities):
        count += start < reached
        reached = max(reached, end)
    return count


def labels_of(example: Example) -> list[str]:
    """The entity types or classes that an example has."""
    if isinstance(example, Tagged):
        return [e[2] for e in example.entities]
    return example.gold if isinstance(example, Relation) else [example.label]


def counts(kind: str, examples: Sequence[Example]) -> dict[str, int]:
    """What a split holds: examples, documents, and entities (nested ones too), positive answers or
    questions."""
    result = {"examples": len(examples), "documents": len({e.document for e in examples})}
    if KINDS[kind] is Tagged:
        result["entities"] = sum(len(e.entities) for e in examples if isinstance(e, Tagged))
        result["overlapping"] = sum(
            count_overlapping(e.entities) for e in examples if isinstance(e, Tagged)
        )
    if kind == "ranking":
        result["positive"] = sum(e.label == "1" for e in examples if isinstance(e, Pair))
    if kind == "relation":
        result["several_gold"] = sum(len(e.gold) > 1 for e in examples if isinstance(e, Relation))
    return result


def _check_example(name: str, example: Example, kind: str) -> None:
    where = f"task {name}, example {example.id!r}"
    if isinstance(example, Tagged):
        for start, end, label in example.entities:
            if not (0 <= start < end <= len(example.text)) or not label:
                raise InputError(
                    f"{where}: entity ({start}, {end}, {label!r}) is not in its text of"
                    f" {len(example.text)} characters. Fix the source."
                )
    elif isinstance(example, Relation):
        if not example.gold or example.label not in example.gold:
            raise InputError(
                f"{where}: label {example.label!r} is not among its gold labels {example.gold}"
            )
    elif kind == "ranking" and example.label not in ("0", "1"):
        raise InputError(f"{where}: label {example.label!r}; an answer is right (1) or wrong (0)")


def _list_labels(examples: Sequence[Example]) -> set[str]:
    return set(chain.from_iterable(map(labels_of, examples)))


def _text_of(example: Example) -> str | tuple[str, str]:
    return (example.first, example.second) if isinstance(example, Pair) else example.text


def _count_cut_words(example: Tagged) -> int:
    """The entities that begin or end inside one of the example's words."""
    if example.words is None:
        return 0
    starts = {start for start, _ in example.words}
    ends = {end for _, end in example.words}
    return sum(start not in starts or end not in ends for start, end, _ in example.entities)


def warnings(kind: str, splits: Mapping[str, Sequence[Example]]) -> dict[str, int]:
    """{what is wrong with these splits: how often}. Nothing of it is dropped: what cannot be found
    counts as missed."""
    counts: Counter[str] = Counter()
    train_labels = _list_labels(splits["train"])
    train = set(map(_text_of, splits["train"]))
    for split, examples in splits.items():
        texts = list(map(_text_of, examples))
        counts[f"{split}: texts that stand there more than once"] = len(texts) - len(set(texts))
        if split != "train":
            unknown = sorted(_list_labels(examples) - train_labels)
            name = (
                f"{split}: labels that train lacks ({', '.join(unknown[:5])}); no encoder can get"
                " them right"
            )
            counts[name] = sum(label in unknown for e in examples for label in labels_of(e))
            counts[f"{split}: texts that stand in train too"] = sum(text in train for text in texts)
        if kind == "ner":
            counts[f"{split}: overlapping entities, of which a tagger finds only the longest"] = (
                sum(count_overlapping(e.entities) for e in examples if isinstance(e, Tagged))
            )
        if KINDS[kind] is Tagged:
            counts[
                f"{split}: entities that begin or end inside a word, which a tagger cannot find"
            ] = sum(_count_cut_words(e) for e in examples if isinstance(e, Tagged))
    return {k: v for k, v in counts.items() if v}


def save_task(
    folder: str | Path, splits: Mapping[str, Sequence[Example]], **manifest: Any
) -> dict[str, Any]:
    """Write a task and return its manifest, with labels, counts and warnings added.

    `manifest` holds at least name, kind, metric and language ("en" or "zh"); for relations also
    markers (tokens that are added to the vocabulary) and, where there is one, negative (the class
    that micro-F1 leaves out). Raises InputError for a missing or empty training split, one example
    that does not fit its kind, or two with one id.
    """
    name, kind = manifest["name"], manifest["kind"]
    for split in ("train", *splits):
        if not splits.get(split):
            raise InputError(
                f"task {name}: no examples in its {split} split. Check the files it came from."
            )
    if not set(splits) - {"train"}:
        raise InputError(
            f"task {name}: neither a dev nor a test split, so there is nothing to score."
        )
    for split, examples in splits.items():
        for example in examples:
            _check_example(name, example, kind)
        if len({e.id for e in examples}) < len(examples):
            ids = Counter(example.id for example in examples)
            twice = next(i for i, count in ids.items() if count > 1)
            raise InputError(
                f"task {name}: id {twice!r} is twice in its {split} split. Give every example its"
                " own."
            )
    negative = manifest.get("negative")
    labels = sorted(_list_labels(splits["train"]))
    if negative is not None:
        labels = [negative, *(label for label in labels if label != negative)]
    manifest |= {
        "labels": labels,
        "splits": {split: counts(kind, splits[split]) for split in SPLITS if split in splits},
        "warnings": warnings(kind, splits),
    }
    with TASK.create(folder, manifest) as partial:
        for split, examples in splits.items():
            with atomic_write(partial / f"{split}.jsonl") as handle:
                for example in examples:
                    handle.write(json.dumps(example._asdict(), ensure_ascii=False) + "\n")
    return manifest


def load_task(folder: str | Path) -> Task:
    """The task in `folder`. Raises InputError, naming file and line, when it is missing or
    broken."""
    folder = Path(folder)
    manifest = TASK.read(folder)
    if manifest["kind"] not in KINDS:
        raise InputError(f"{folder}: no task ({manifest['kind']}). Build it again.")
    shape = KINDS[manifest["kind"]]
    splits: dict[str, list[Any]] = {}
    for split in manifest["splits"]:
        splits[split] = []
        for where, value in json_lines(folder / f"{split}.jsonl", advice="Build the task again."):
            try:
                if shape is Tagged:
                    value["entities"] = [(int(s), int(t), str(k)) for s, t, k in value["entities"]]
                    if value["words"] is not None:
                        value["words"] = [(int(s), int(t)) for s, t in value["words"]]
                splits[split].append(shape(**value))
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                raise InputError(
                    f"{where}: expected the fields {', '.join(shape._fields)} ({error})"
                ) from error
    return Task(folder, manifest, splits)
