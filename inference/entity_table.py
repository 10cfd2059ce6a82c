"""A linker that reads a mention in its text and finds the nearest rows of an entity table: KeBioLM
(Yuan et al. 2021, Eq. 3).

The model contains the entities of the graph that it was trained on. An entity represents the
dictionary's concept of its id; where there is none, for the concepts that have one of its names
(both normalised). A concept that no entity represents is never found, nor an entity that represents
none: their numbers are printed.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from core.arrays import read_table
from core.dotted import import_object
from core.files import InputError
from core.reading import lines
from datamodules.contexts import balance_sides, sides
from datamodules.rows import length_batches, pad_rows
from datamodules.tokenizers import load_tokenizer
from experiments.names import Encoder
from inference.encoders import Embedder, embedder
from inference.linkers import DEPTH, Candidate, Names, Ranking
from inference.options import LinkerOptions, Work, bfloat16, checked_device, uses_bf16

LOG = logging.getLogger(__name__)
NEAREST = 10 * DEPTH  # entities looked at: several may represent one concept, or none


class Reading(NamedTuple):
    """Tokens that are read at once, with [CLS] and [SEP], and the mentions among them."""

    ids: list[int]
    spans: list[tuple[int, int, int]]  # number of the mention, its first token, its last one + 1


class EntityReader:
    """The model and its table; :meth:`on` makes a linker of it for a dictionary.

    ids    ids of the table's entities, in row order;  names  {id: its names}
    """

    uses = frozenset({"by", "max_length", "tokens", "device", "precision"})

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerFast,
        ids: Sequence[str],
        names: Mapping[str, Sequence[str]],
        identity: str,
        max_length: int = 128,
        tokens: int = 8192,
        device: str = "cpu",
        bf16: bool = False,
    ) -> None:
        self.model, self.tokenizer, self.identity = model.to(device).eval(), tokenizer, identity
        self.ids, self.names_of = ids, names
        self.max_length, self.tokens, self.device, self.bf16 = (
            min(max_length, model.max_length),
            tokens,
            device,
            bf16,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a ranking, beside mention, context and dictionary."""
        return {
            "entities": self.identity,
            "max_length": self.max_length,
            "precision": "bf16" if self.bf16 else "fp32",
        }

    @property
    def options(self) -> dict[str, Any]:
        """What distinguishes it from the same model used otherwise."""
        return {"by": "entities"}

    def on(self, names: Names, work: Work | None = None) -> ByEntities:
        return ByEntities(names, self)

    def inputs(self, mention: str, context: str | None) -> tuple[list[int], int, int]:
        """(ids with [CLS] and [SEP], the mention's first token, its last one + 1), cut to
        max_length around the mention.

        A mention without a token is read as [UNK]; of a longer one than fits the first tokens
        count.
        """
        left, right = sides(mention, context)
        before, mention_ids, after = (
            self.tokenizer(part, add_special_tokens=False)["input_ids"]
            for part in (left, mention, right)
        )
        room = self.max_length - 2
        mention_ids = (list(mention_ids) or [self.tokenizer.unk_token_id])[:room]
        keep, follow = balance_sides(len(before), len(after), room - len(mention_ids))
        start = 1 + keep
        ids = [
            self.tokenizer.cls_token_id,
            *before[len(before) - keep :],
            *mention_ids,
            *after[:follow],
            self.tokenizer.sep_token_id,
        ]
        return ids, start, start + len(mention_ids)

    def readings(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Reading]:
        """What is to be read so that every mention is: a text with several of them once, where it
        fits, else windows of it.

        A mention that shares a token with what is beside it, is longer than a quarter of a window
        or has no token has a reading of its own. Of several windows a mention is read in that with
        the most around it.
        """
        # (mention, first character, last + 1)
        texts: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        result: list[Reading] = []
        for number, (mention, context) in enumerate(zip(mentions, contexts, strict=True)):
            left, right = sides(mention, context)
            texts[left + mention + right].append((number, len(left), len(left) + len(mention)))
        room = self.max_length - 2
        # tokens at least that windows have in common: a mention is whole in one, with something
        # beside it
        shared = room // 4
        if not texts:  # which the tokenizer does not accept
            return []
        encoded = self.tokenizer(
            list(texts), add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        for spans, ids, offsets in zip(
            texts.values(), encoded["input_ids"], encoded["offset_mapping"], strict=True
        ):
            windows: dict[int, Reading] = {}  # by the first token
            count = 1 + max(0, -(-(len(ids) - room) // (room - shared)))
            begins = [round(i * (len(ids) - room) / max(1, count - 1)) for i in range(count)]
            starts, ends = [a for a, _ in offsets], [b for _, b in offsets]
            for number, start, end in spans:
                first, last = bisect_left(starts, start), bisect_right(ends, end)
                whole = first < last and last - first <= shared
                if (
                    not whole
                    or (first and ends[first - 1] > start)
                    or (last < len(ids) and starts[last] < end)
                ):
                    ids_, a, b = self.inputs(mentions[number], contexts[number])
                    result.append(Reading(ids_, [(number, a, b)]))
                    continue
                begin = max(begins, key=partial(_context_tokens, first, last, room, len(ids)))
                if begin not in windows:
                    part = ids[begin : begin + room]
                    windows[begin] = Reading(
                        [self.tokenizer.cls_token_id, *part, self.tokenizer.sep_token_id], []
                    )
                windows[begin].spans.append((number, first - begin + 1, last - begin + 1))
            result += windows.values()
        return result

    @torch.inference_mode()
    def nearest(
        self, mentions: Sequence[str], contexts: Sequence[str | None]
    ) -> list[list[tuple[int, float]]]:
        """[(row of the table, its dot product), best first] of each mention, in batches of readings
        of similar length."""
        readings = sorted(self.readings(mentions, contexts), key=lambda reading: reading.spans)
        lengths = [len(reading.ids) for reading in readings]
        result: list[list[tuple[int, float]]] = [[] for _ in mentions]
        with tqdm(
            total=len(mentions), desc="linking mentions", unit="mention", disable=None, leave=False
        ) as bar:
            for rows_of_batch in length_batches(lengths, self.tokens):
                batch = [readings[row] for row in rows_of_batch]
                rows_of_ids = [reading.ids for reading in batch]
                ids, mask = pad_rows(rows_of_ids, self.tokenizer.pad_token_id)  # type: ignore[arg-type]
                spans = [
                    (row, first, last)
                    for row, reading in enumerate(batch)
                    for _, first, last in reading.spans
                ]
                with bfloat16(self.device, self.bf16):
                    text, _ = self.model.text_states(ids.to(self.device), mask.to(self.device))
                scores, rows = self.model.nearest(
                    text, torch.tensor(spans, device=self.device), NEAREST
                )
                numbers = [number for reading in batch for number, *_ in reading.spans]
                for number, s, r in zip(numbers, scores.tolist(), rows.tolist(), strict=True):
                    result[number] = list(zip(r, s, strict=True))
                bar.update(len(numbers))
        return result


def _context_tokens(first: int, last: int, room: int, length: int, begin: int) -> int:
    """Tokens that a window has on the poorer side of a mention. An end of the text is no lack."""
    end = begin + room
    before = first - begin if begin else room
    behind = end - last if end < length else room
    return min(before, behind)


class ByEntities:
    """The concepts of a dictionary that the nearest entities represent."""

    def __init__(self, names: Names, reader: EntityReader) -> None:
        self.names, self.reader = names, reader
        concepts = set(names.dictionary.ids)
        first: dict[str, str] = {}  # a concept's name, for those that are found by id
        for concept, name in zip(names.dictionary.ids, names.dictionary.names, strict=True):
            first.setdefault(concept, names.normalised(name))
        self.means: list[str | None] = []  # of each row: its concept, where its id is one
        self.names_of: list[list[str]] = []  # of each row: the dictionary's names that represent it
        self.reached: set[str] = set()
        for entity in reader.ids:
            if entity in concepts:
                self.means.append(entity)
                self.names_of.append([first[entity]])
                self.reached.add(entity)
                continue
            unique = dict.fromkeys(map(names.normalised, reader.names_of.get(entity, ())))
            shared = [name for name in unique if name in names.concepts]
            self.means.append(None)
            self.names_of.append(shared)
            for name in shared:
                self.reached.update(names.concepts[name])
        if not self.reached:
            raise InputError(
                f"none of the dictionary's {len(concepts):,} concepts has the id or a name of one"
                f" of the model's {len(reader.ids):,} entities; link by names (BY=names), or with a"
                " model of this dictionary's graph"
            )
        note = (
            f"{len(self.reached):,} of the dictionary's {len(concepts):,} concepts are entities of"
            " the model"
        )
        LOG.info(note)

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        """Ranked concepts of each mention: an entity's concepts in the order of its names, each
        once."""
        result = []
        for entities, context in zip(
            self.reader.nearest(mentions, contexts), contexts, strict=True
        ):
            seen: dict[str, Candidate] = {}
            for row, score in entities:
                mean = self.means[row]
                for name in self.names_of[row]:
                    for concept, tied in (
                        [(mean, False)] if mean else self.names.choose_meaning(name, context)
                    ):
                        seen.setdefault(concept, Candidate(concept, name, score, tied))
            result.append(list(seen.values())[:DEPTH])
        return result


def table_of(folder: str | Path) -> tuple[list[str], dict[str, list[str]]]:
    """(ids of an export's entity table in row order, {id: its names}). Raises InputError where a
    file is missing."""
    ids, names = Path(folder) / "entities.txt", Path(folder) / "names.parquet"
    for file in (ids, names):
        if not file.is_file():
            raise InputError(
                f"{file}: missing; this is no export with entities and their names. Export the run"
                " again."
            )
    grouped = defaultdict(list)
    rows = read_table(names, ["id", "name"], again="Export the run again.")
    for entity, name in zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True):
        grouped[entity].append(name)
    return [line for _, line in lines(ids)], dict(grouped)


def entity_linker(chosen: Encoder, options: LinkerOptions) -> EntityReader | Embedder:
    """A reader of an export's entity table; an embedder with `by` names. Raises InputError for an
    export without a table."""
    if options.by == "names":
        linker = embedder(chosen, options)
        linker.uses |= {"by"}
        return linker
    ids, names = table_of(chosen.folder)
    return EntityReader(
        import_object(chosen.load, "models")(chosen.folder),
        load_tokenizer(chosen.folder),
        ids,
        names,
        chosen.identity,
        max(options.max_length or 128, 8),
        options.tokens,
        checked_device(options.device),
        uses_bf16(options.precision, options.device),
    )
