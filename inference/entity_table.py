"""A linker that reads a mention in its text and finds the nearest rows of an entity table: KeBioLM (Yuan et al. 2021, Eq. 3).

The model knows the entities of the graph that it was trained on. An entity stands for the dictionary's concept of its id;
where there is none, for the concepts that have one of its names (both normalised). A concept that no entity stands for is
never found, nor an entity found that stands for none: how many there are is printed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from core.arrays import read_table
from core.dotted import imported
from core.files import InputError, lines
from datamodules.contexts import balanced, sides
from datamodules.tokenizers import load_tokenizer
from experiments.encoders import Encoder
from inference.encoders import Embedder, embedder
from inference.linkers import DEPTH, Candidate, Names, Ranking
from inference.options import LinkerOptions, Work, checked_device

LOG = logging.getLogger(__name__)
NEAREST = 10 * DEPTH  # entities looked at: several may stand for one concept, or for none


class EntityReader:
    """The model and its table; :meth:`on` makes a linker of it for a dictionary.

    ids    ids of the table's entities, in row order;  names  {id: its names}
    """

    def __init__(
        self, model: Any, tokenizer: PreTrainedTokenizerFast, ids: Sequence[str], names: Mapping[str, Sequence[str]],
        identity: str, max_length: int = 128, tokens: int = 8192, device: str = "cpu", bf16: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.tokenizer, self.identity = model.to(device).eval(), tokenizer, identity
        self.ids, self.names_of = ids, names
        self.max_length, self.tokens, self.device, self.bf16 = min(max_length, model.max_length), tokens, device, bf16

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a ranking, beside mention, context and dictionary."""
        return {"entities": self.identity, "max_length": self.max_length, "precision": "bf16" if self.bf16 else "fp32"}

    @property
    def options(self) -> dict[str, Any]:
        """What tells it from the same model used otherwise."""
        return {"by": "entities"}

    def on(self, names: Names, work: Work | None = None) -> ByEntities:
        return ByEntities(names, self)

    def inputs(self, mention: str, context: str | None) -> tuple[list[int], int, int]:
        """(ids with [CLS] and [SEP], the mention's first token, its last one + 1), cut to max_length around the mention.

        A mention without a token is read as [UNK]; of a longer one than fits the first tokens count.
        """
        left, right = sides(mention, context)
        before, own, after = (
            self.tokenizer(part, add_special_tokens=False)["input_ids"] for part in (left, mention, right)
        )
        room = self.max_length - 2
        own = (list(own) or [self.tokenizer.unk_token_id])[:room]
        keep, follow = balanced(len(before), len(after), room - len(own))
        start = 1 + keep
        ids = [
            self.tokenizer.cls_token_id,
            *before[len(before) - keep :],
            *own,
            *after[:follow],
            self.tokenizer.sep_token_id,
        ]
        return ids, start, start + len(own)

    @torch.inference_mode()
    def nearest(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[list[tuple[int, float]]]:
        """[(row of the table, its dot product), best first] of each mention, in batches of similar length."""
        asked = [self.inputs(m, c) for m, c in zip(mentions, contexts, strict=True)]
        order = sorted(range(len(asked)), key=lambda i: (-len(asked[i][0]), i))
        result: list[list[tuple[int, float]]] = [[] for _ in asked]
        start = 0
        with tqdm(total=len(asked), desc="linking mentions", unit="mention", disable=None, leave=False) as bar:
            while start < len(order):
                longest = len(asked[order[start]][0])
                batch = order[start : start + max(1, self.tokens // longest)]
                ids = torch.full((len(batch), longest), int(self.tokenizer.pad_token_id))  # type: ignore[call-overload]
                mask = torch.zeros(len(batch), longest, dtype=torch.long)
                for row, i in enumerate(batch):
                    ids[row, : len(asked[i][0])] = torch.tensor(asked[i][0])
                    mask[row, : len(asked[i][0])] = 1
                spans = torch.tensor([(row, *asked[i][1:]) for row, i in enumerate(batch)], device=self.device)
                with torch.autocast(self.device.partition(":")[0], torch.bfloat16, enabled=self.bf16):
                    text, _ = self.model.text_states(ids.to(self.device), mask.to(self.device))
                scores, rows = self.model.nearest(text, spans, NEAREST)
                for i, s, r in zip(batch, scores.tolist(), rows.tolist(), strict=True):
                    result[i] = list(zip(r, s, strict=True))
                start += len(batch)
                bar.update(len(batch))
        return result


class ByEntities:
    """The concepts of a dictionary that the nearest entities stand for."""

    def __init__(self, names: Names, reader: EntityReader) -> None:
        self.names, self.reader = names, reader
        concepts = set(names.dictionary.ids)
        first: dict[str, str] = {}  # a concept's name, for those that are found by id
        for concept, name in zip(names.dictionary.ids, names.dictionary.names, strict=True):
            first.setdefault(concept, names.normalised(name))
        self.means: list[list[tuple[str, str]]] = []  # of each row: (concept, the dictionary's name that stands for it)
        for entity in reader.ids:
            own = list(dict.fromkeys(names.normalised(name) for name in reader.names_of.get(entity, ())))
            shared = [(concept, name) for name in own for concept in names.concepts.get(name, ())]
            self.means.append([(entity, first[entity])] if entity in concepts else shared)
        self.reached = {concept for row in self.means for concept, _ in row}
        if not self.reached:
            raise InputError(
                f"none of the dictionary's {len(concepts):,} concepts has the id or a name of one of the model's "
                f"{len(reader.ids):,} entities; link by names (BY=names), or with a model of this dictionary's graph"
            )
        told = f"{len(self.reached):,} of the dictionary's {len(concepts):,} concepts are entities of the model"
        LOG.info(told)

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        """Ranked concepts of each mention: an entity's concepts in the order of its names, each once."""
        result = []
        for found in self.reader.nearest(mentions, contexts):
            seen: dict[str, Candidate] = {}
            for row, score in found:
                for concept, name in self.means[row]:
                    seen.setdefault(concept, Candidate(concept, name, score))
            result.append(list(seen.values())[:DEPTH])
        return result


def table_of(folder: str | Path) -> tuple[list[str], dict[str, list[str]]]:
    """(ids of an export's entity table in row order, {id: its names}). Raises InputError where a file is missing."""
    ids, names = Path(folder) / "entities.txt", Path(folder) / "names.parquet"
    for file in (ids, names):
        if not file.is_file():
            raise InputError(f"{file}: missing; this is no export with entities and their names. Export the run again.")
    found = defaultdict(list)
    rows = read_table(names, ["id", "name"], again="Export the run again.")
    for entity, name in zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True):
        found[entity].append(name)
    return [line for _, line in lines(ids)], dict(found)


def entity_linker(chosen: Encoder, options: LinkerOptions) -> EntityReader | Embedder:
    """A reader of an export's entity table; an embedder with `by` names. Raises InputError for an export without a table."""
    if options.by == "names":
        return embedder(chosen, options)
    ids, names = table_of(chosen.folder)
    return EntityReader(
        imported(chosen.load, "models")(chosen.folder), load_tokenizer(chosen.folder), ids, names, chosen.identity,
        max(options.max_length or 128, 8), options.tokens, checked_device(options.device), options.precision == "bf16",
    )  # fmt: skip
