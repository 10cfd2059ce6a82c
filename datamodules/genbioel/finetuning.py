"""Samples of synonym-aware fine-tuning from an entity-linking task (Yuan et al., NAACL 2022,
Section 2.3, Appendix A).

    names.parquet, concepts.parquet, members.npy    the task's names S and whose they are
                                                    (datamodules.genbioel.concept_names)
    name-tokens.npy, name-offsets.npy               tokens of the names, a blank before each
    left-*, mention-*, right-*                      likewise of each sample's mention and its sides,
                                                    in the words window
    targets.npy        (samples, 3)                 the target name by each rule of TARGETS
    similarity.npy     (samples,)                   cosine of mention and target by the first rule
    held_out.npy       (samples,) bool              for validation: whole documents

Rules for targets, one of the names of the mention's concepts (Section 2.3, Section 4 "Selection of
Names"):

    tfidf      the highest cosine of character 3-gram TF-IDF vectors; of equal ones the shortest,
               then the first in order
    shortest   the shortest, then the first in order
    sample     drawn once for each concept, so that one name may represent it in a dictionary too
               (:func:`kg.search.names.one_name`)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.artifact import content_digest
from core.files import InputError
from datamodules.contexts import sides
from datamodules.genbioel.concept_names import RULES, NameSet, name_set
from datamodules.genbioel.inputs import Inputs, plain, window
from datamodules.genbioel.store import FORMAT, SAMPLES, Rows, array, manifest_of, save_rows
from datamodules.linking import Linking, Mention, context_of, load_linking
from datamodules.tokenizers import load_tokenizer, token_rows, tokenizer_fingerprint
from kg.linking.abbreviations import ShortForms
from kg.search.names import TfIdf, normaliser, one_name

TARGETS = ("tfidf", "shortest", "sample")
HELD_OUT = 500  #: mentions for validation at most


def without_overlaps(mentions: Sequence[Mention]) -> list[Mention]:
    """`mentions` but those that overlap one that begins before, or as early and is longer, in its
    document."""
    placed = [
        (m.document, m.start, -m.end, i)
        for i, m in enumerate(mentions)
        if m.start is not None and m.end is not None
    ]
    dropped: set[int] = set()
    document, reach = None, 0
    for name, start, end, i in sorted(placed):
        if name != document:
            document, reach = name, 0
        if start < reach:
            dropped.add(i)
        else:
            reach = -end
    return [m for i, m in enumerate(mentions) if i not in dropped]


def representative_names(names: NameSet, rule: str, seed: int = 0) -> np.ndarray:
    """(concepts,) the number of the name that represents each concept (kg.search.names.one_name),
    -1 where it has none."""
    representative = np.full(len(names.concepts), -1, np.int64)
    number = {name: i for i, name in enumerate(names.names)}
    concept, begin = np.unique(names.members[:, 0], return_index=True)
    for concept_number, rows in zip(concept, np.split(names.members[:, 1], begin[1:]), strict=True):
        representative[concept_number] = number[
            one_name(
                [names.names[n] for n in rows], rule, f"{seed}\t{names.concepts[concept_number]}"
            )
        ]
    return representative


class SelectedMention(NamedTuple):
    """A string to link, with what is right."""

    text: str
    left: str
    right: str
    concepts: list[int]
    document: str


def _read_split(
    linking: Linking, split: str, composites: bool, counts: dict[str, int]
) -> list[Mention]:
    """The mentions of a split that are used; what is left out is counted."""
    if split not in linking.splits:
        raise InputError(
            f"{linking.folder}: no split {split!r}; it has {', '.join(linking.splits)}"
        )
    mentions = linking.splits[split]
    single = without_overlaps(mentions)
    used = [m for m in single if composites or (len(m.parts) <= 1 and len(m.gold) <= 1)]
    counts["mentions"] += len(mentions)
    counts["overlapping mentions"] += len(mentions) - len(single)
    counts["composite mentions left out"] += len(single) - len(used)
    return used


def select_mentions(
    linking: Linking,
    names: NameSet,
    splits: Sequence[str],
    composites: bool,
    abbreviations: bool,
    words: int,
    counts: dict[str, int],
) -> list[SelectedMention]:
    """The mentions of `splits` by Appendix A's rules; what is left out is counted in `counts`.

    Each part of a composite mention is one of its own, right for the concepts at its place, or for
    all of them where their numbers differ. A mention of several concepts is right for each.
    """
    dictionary, number = (
        linking.dictionary,
        {concept_id: i for i, concept_id in enumerate(names.concepts)},
    )
    named = set(names.members[:, 0].tolist())
    without_name = "mentions whose concept has no name here"
    left_out = ("overlapping mentions", "composite mentions left out", without_name)
    counts |= dict.fromkeys(("mentions", *left_out), 0)
    forms: dict[str, ShortForms] = {}
    chosen: list[SelectedMention] = []
    selected = (_read_split(linking, split, composites, counts) for split in splits)
    for mention in chain.from_iterable(selected):
        document = linking.documents.get(mention.document, "")
        if abbreviations and mention.document not in forms:
            forms[mention.document] = ShortForms(document)
        around = window(*sides(mention.mention, context_of(mention, linking.documents)), words)
        paired = len(mention.gold) == len(mention.parts)
        begin = len(document) if mention.start is None else mention.start
        for place, part in enumerate(mention.parts):
            gold = [mention.gold[place]] if paired else mention.gold
            right = chain.from_iterable(map(dictionary.concepts_of, gold))
            concepts = sorted({number[concept] for concept in right} & named)
            if not concepts:
                counts[without_name] += 1
                continue
            text = plain(forms[mention.document].expand(part, begin) if abbreviations else part)
            chosen.append(
                SelectedMention(text, around.left, around.right, concepts, mention.document)
            )
    return chosen


def targets(
    mentions: Sequence[SelectedMention], names: NameSet, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """((samples, 3) the target by each rule of TARGETS, (samples,) cosine of the first)."""
    order = sorted(range(len(names.names)), key=lambda n: (len(names.names[n]), names.names[n]))
    rank = np.argsort(order)  # of each name by length, then in order
    stands = [representative_names(names, rule, seed) for rule in TARGETS[1:]]
    rule = normaliser(RULES)
    choices: list[np.ndarray] = []  # names of each mention's concepts
    texts: list[str] = []  # each mention's text, once for each of its names
    for mention in mentions:
        numbers = np.concatenate([names.name_numbers(c) for c in mention.concepts])
        choices.append(numbers)
        texts += [rule(mention.text)] * len(numbers)
    sizes, flat = np.array(list(map(len, choices))), np.concatenate(choices)
    cosine = TfIdf(names.names).cosines(texts, flat)
    rows = np.zeros((len(mentions), len(TARGETS)), np.int64)
    best = np.zeros(len(mentions), np.float32)
    for i, (start, size) in enumerate(zip(sizes.cumsum() - sizes, sizes, strict=True)):
        candidates, close = flat[start : start + size], np.round(cosine[start : start + size], 6)
        first = np.lexsort((rank[candidates], -close))[0]
        rows[i, 0], best[i] = candidates[first], close[first]
        shortest = [stands[0][c] for c in mentions[i].concepts]
        rows[i, 1] = min(shortest, key=lambda n: rank[n])
        rows[i, 2] = stands[1][mentions[i].concepts[0]]
    return rows, best


def _held_out(mentions: Sequence[SelectedMention], most: int, seed: int) -> np.ndarray:
    """(samples,) bool: those of documents drawn until they are a twentieth of all, `most` at most.
    One document stays."""
    rows: dict[str, list[int]] = defaultdict(list)
    for i, mention in enumerate(mentions):
        rows[mention.document].append(i)
    chosen = np.zeros(len(mentions), bool)
    wanted = min(most, max(1, len(mentions) // 20))
    drawn = np.random.default_rng(seed).permutation(len(rows))
    documents = list(rows)
    for place in drawn[: len(drawn) - 1]:
        if chosen.sum() >= wanted:
            break
        chosen[rows[documents[place]]] = True
    return chosen


def _drop_names(names: NameSet, lengths: np.ndarray, most: int) -> NameSet:
    """`names` without the members of no or more than `most` tokens, which are counted."""
    fits = (lengths > 0) & (lengths < most)
    dropped = {"dictionary names without tokens, or of more than --max_name": int((~fits).sum())}
    members = names.members[fits[names.members[:, 1]]]
    return names._replace(members=members, counts=names.counts | dropped)


def _write(
    folder: Path,
    names: NameSet,
    tokens: dict[str, tuple[np.ndarray, np.ndarray]],
    arrays: dict[str, np.ndarray],
    manifest: dict[str, Any],
) -> None:
    """The folder, whole or not at all."""
    strings = {"name": names.names}, {"id": names.concepts}
    with SAMPLES.create(folder, manifest | {"kind": "mentions"}) as partial:
        for file, column in zip(("names", "concepts"), strings, strict=True):
            pq.write_table(pa.table(column), partial / f"{file}.parquet", compression="zstd")
        for name, rows in tokens.items():
            save_rows(partial, name, rows)
        for name, values in arrays.items():
            np.save(partial / f"{name}.npy", values)


def _choose_targets(
    mentions: Sequence[SelectedMention], names: NameSet, seed: int
) -> dict[str, np.ndarray]:
    """What each mention is trained on, and which are held out."""
    rows, similarity = targets(mentions, names, seed)
    return {
        "members": names.members.astype(np.int32),
        "targets": rows.astype(np.int32),
        "similarity": similarity,
        "held_out": _held_out(mentions, HELD_OUT, seed),
    }


def _count_samples(
    task: str,
    splits: Sequence[str],
    mentions: Sequence[SelectedMention],
    tokens: tuple[np.ndarray, np.ndarray],
    counts: dict[str, int],
) -> None:
    """Count the samples by the `tokens` of the mentions. Raises InputError when there is none."""
    counts["mentions without context"] = sum(not m.left and not m.right for m in mentions)
    counts["mentions without tokens"] = int((np.diff(tokens[1]) == 0).sum())
    counts["samples"] = len(mentions) - counts["mentions without tokens"]
    if not counts["samples"]:
        raise InputError(
            f"{task}: no mention of {' and '.join(splits)} has a concept with a name, so there is"
            " nothing to fine-tune on"
        )


def build_mentions(
    task: str,
    tokenizer: str,
    out: str,
    splits: Sequence[str] = ("train",),
    composites: bool = True,
    abbreviations: bool = False,
    one_concept: bool = True,
    keep_last: bool = False,
    max_words: int = 384,
    max_name: int = 128,
    seed: int = 0,
) -> Path:
    """The folder with samples for fine-tuning on the task folder `task`.

    splits         whose mentions are trained on
    composites     use the parts of composite mentions, each by itself; or leave out all mentions of
                   several strings or concepts, as Table 6's count of NCBI does
    abbreviations  write out words of mentions that their text defines as abbreviations
    one_concept, keep_last   as in :func:`datamodules.genbioel.concept_names.name_set`
    max_words      words of context, on both sides together

    A twentieth of the mentions, HELD_OUT at most, are for validation.

    Raises InputError for a task without such mentions, and when `out` holds something else.
    """
    folder, loaded, linking = Path(out), load_tokenizer(tokenizer), load_linking(task)
    Inputs(loaded)
    recipe: dict[str, Any] = {
        "format": FORMAT,
        "task": content_digest(task),
        "tokenizer": tokenizer_fingerprint(loaded),
        "splits": list(splits),
        "composites": composites,
        "abbreviations": abbreviations,
        "one_concept": one_concept,
        "keep_last": keep_last,
        "max_words": max_words,
        "max_name": max_name,
        "held_out": HELD_OUT,
        "seed": seed,
    }
    if SAMPLES.is_kept(folder, {"recipe": recipe}):
        return folder
    names = name_set(linking.dictionary, one_concept, keep_last)
    tokens = {"name": token_rows(pa.array(names.names, pa.string()), loaded, " ")}
    names = _drop_names(names, np.diff(tokens["name"][1]), max_name)
    counts = names.counts
    mentions = select_mentions(linking, names, splits, composites, abbreviations, max_words, counts)
    for column, field in (("left", "left"), ("mention", "text"), ("right", "right")):
        texts = pa.array([getattr(m, field) for m in mentions], pa.string())
        tokens[column] = token_rows(texts, loaded, " ")
    _count_samples(task, splits, mentions, tokens["mention"], counts)
    arrays = _choose_targets(mentions, names, seed)
    counts["held out of them"] = int(arrays["held_out"].sum())
    _write(folder, names, tokens, arrays, {"recipe": recipe, "counts": counts})
    return folder


class MentionSamples:
    """A folder that :func:`build_mentions` wrote, memory-mapped; `rule` one of TARGETS.

    Raises InputError when it is none, of another tokenizer, or for another rule.
    """

    def __init__(self, folder: str | Path, inputs: Inputs, rule: str = "tfidf") -> None:
        if rule not in TARGETS:
            raise InputError(f"target {rule!r}: expected one of {', '.join(TARGETS)}")
        self.folder = Path(folder)
        self.manifest = manifest_of(folder, tokenizer_fingerprint(inputs.tokenizer))
        self.names, self.mention = Rows(self.folder, "name"), Rows(self.folder, "mention")
        self.left, self.right = Rows(self.folder, "left"), Rows(self.folder, "right")
        self.targets = array(self.folder, "targets")[:, TARGETS.index(rule)]
        held_out, has = np.asarray(array(self.folder, "held_out")), self.mention.lengths > 0
        self.train, self.held_out = np.flatnonzero(~held_out & has), np.flatnonzero(held_out & has)
        self.lengths = self.left.lengths + self.mention.lengths + self.right.lengths

    def parts(
        self, sample: int, rng: np.random.Generator
    ) -> tuple[list[int], list[int], list[int], list[int]]:
        """Tokens (left, mention, right, target)."""
        return (
            self.left[sample],
            self.mention[sample],
            self.right[sample],
            self.names[int(self.targets[sample])],
        )
