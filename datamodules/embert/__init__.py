"""Batches for EMBERT's pre-training (Cai et al., WISA 2021, Sections 3.1-3.3 and Appendix).

Sequences are cut in two near their middle, and half of the time the second segment is another
text's (next-sentence prediction). Linked entities that have a synonym are replaced now and then, by
it or at random (Section 3.1); long ones are to be segmented (3.2) and lose one of their halves
(3.3). As everywhere, a batch is a function of (seed, step, example).
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.arrays import read_table
from core.files import InputError
from datamodules.corpus import Example
from datamodules.embert.entity_names import Pieces, Replacements
from datamodules.embert.text import (
    ORIGINAL,
    SYNONYM,
    Text,
    corrupt_text,
    join_segments,
    part,
    replace_mentions,
)
from datamodules.masking import IGNORE
from datamodules.rows import attention, number_rows, stack_rows
from datamodules.segments import cut_place, ends_of_sentences, place_segments
from datamodules.steps import CorpusData, Places
from datamodules.tokenizers import replacements
from kg.build.thesaurus import Thesaurus
from kg.graph import KnowledgeGraph, fingerprint

# training sequences of which the unigrams of long entities' parts are counted, at most
COUNTED = 20_000


class EMBERTBatch(NamedTuple):
    """One micro-batch of B sequences of length L, with R replaced entities and T tokens of hidden
    parts.

    counts are over the micro-batches that this process accumulates for one step, as in
    :mod:`datamodules.steps`.
    """

    input_ids: Tensor  # (B, L) with hidden tokens
    attention_mask: Tensor  # (B, L)
    second: Tensor  # (B, L) 1 on the second of the two segments
    mlm_labels: Tensor  # (B, L) original id where a token is predicted, else -100
    # (B,) 1 where the second segment does not follow the first, 0 where it does, -100 where there
    # is one
    pair: Tensor
    replaced: Tensor  # (R, 3) row, the token before a replaced entity, the token behind it
    consistent: Tensor  # (R,) 1 where it is a synonym, 0 where it is a random name
    # (B, L) 1 on the last token of a sub-entity, 0 on the others of a long entity, else -100
    segment_labels: Tensor
    hidden: (
        # (T, 6) row, first and last token of the part that is left, position and length of the
        # part, direction
        Tensor
    )
    hidden_ids: Tensor  # (T,) original ids
    # (7,) tokens of the masked LM, pairs, R, tokens of long entities, T atomic, T adjective,
    # sequences
    counts: Tensor
    places: Places | Any = None  # of a training batch: datamodules.steps.place_batch

    def masks(self) -> dict[str, Tensor]:
        sides = {
            name: self.hidden[:, 5] == number for number, name in enumerate(("atomic", "adjective"))
        }
        text = {"tokens": self.attention_mask > 0, "predicted": self.mlm_labels != IGNORE}
        return text | {"long": self.segment_labels != IGNORE} | sides


class EMBERTExample(NamedTuple):
    """One sequence of n tokens with [CLS], [SEP] and, between two segments, another [SEP]."""

    ids: np.ndarray  # (n + 2 or 3,)
    second: np.ndarray  # likewise
    mlm: np.ndarray  # likewise
    segments: np.ndarray  # likewise
    pair: int
    around: np.ndarray  # (r, 2) tokens before and behind each replaced entity
    consistent: np.ndarray  # (r,)
    hidden: np.ndarray  # (h, 5) of the tokens of parts: first, last, position, length, side
    hidden_ids: np.ndarray  # (h,)
    sequences: int = 1  # that count

    def blank(self) -> EMBERTExample:
        none = np.full(len(self.ids), IGNORE)
        counted = {
            name: getattr(self, name)[:0]
            for name in ("around", "consistent", "hidden", "hidden_ids")
        }
        return self._replace(mlm=none, segments=none, pair=IGNORE, sequences=0, **counted)


class EMBERTData(CorpusData):
    """Linked text as batches for EMBERT's objectives.

    corpus       folder that `kepl data corpus` wrote, one token shorter than
                 `max_length`
    tokenizer    the encoder's tokenizer: a folder or hub name
    graph        folder of the graph that the corpus is linked with: ``vocabulary/`` of ``kepl
                 graph segment build``
    segments     folder that command wrote
    thesaurus    folder that ``kepl graph thesaurus`` wrote for that graph
    replace      share of the replaceable entities that are replaced (0: no context-entity
                 consistency)
    rate         share of the tokens that are hidden or replaced (the corruption rate, Section 4.6)
    parts        of these at most this share are parts of long entities (0: no bidirectional entity
                 masking)
    entities     the masked LM hides whole entities and phrases, as MC-BERT does, not words
    validation_size  held-out sequences that validation uses at most; None: all
    pair         "nsp": half of the second segments come from another text; "sop": half of the pairs
                 are swapped
    The rest as in :class:`datamodules.steps.CorpusData`.

    Raises InputError when the parts do not belong together, too.
    """

    def __init__(
        self,
        corpus: str,
        tokenizer: str,
        graph: str,
        segments: str,
        thesaurus: str,
        min_mentions: int = 0,
        replace: float = 0.15,
        rate: float = 0.15,
        parts: float = 0.5,
        longest_part: int = 30,
        entities: bool = False,
        pair: Literal["nsp", "sop"] = "nsp",
        validation_size: int | None = None,
        **steps: Any,
    ) -> None:
        super().__init__(corpus, tokenizer, **steps)
        self.graph, self.segments, self.thesaurus = graph, segments, thesaurus
        for name, share in (("replace", replace), ("rate", rate), ("parts", parts)):
            if not 0 <= share <= 1:
                raise InputError(f"{name} {share}: expected a share from 0 to 1")
        self.replace, self.rate, self.parts, self.longest_part = replace, rate, parts, longest_part
        self.whole, self.pair = entities, pair
        self.min_mentions, self.validation_size = min_mentions, validation_size

    def read(self) -> None:
        self.read_corpus(fingerprint(self.graph), 1)
        graph = KnowledgeGraph.load(self.graph)
        file = Path(self.segments) / "segments.parquet"
        if not file.is_file():
            raise InputError(f"{file}: missing. Make it: kepl graph segment build --help")
        rows = read_table(file, ["name", "pieces"])
        self.pieces = Pieces(
            zip(rows["name"].to_pylist(), rows["pieces"].to_pylist(), strict=True), self.tokenizer
        )
        ids = graph.ids.to_pylist()
        same = Thesaurus.load(self.thesaurus)
        by_index = ((i, same.names(entity)) for i, entity in enumerate(ids))
        synonyms = {i: names for i, names in by_index if names}
        if len(same) and not synonyms:
            raise InputError(
                f"{self.thesaurus}: none of its {len(same)} entities is in {self.graph}. Make it of"
                " that graph: kepl graph thesaurus --help"
            )
        types = np.unique(np.array(graph.entities["type"].to_pylist()), return_inverse=True)[1]
        named = zip(
            graph.index_of(graph.names["id"]).tolist(), graph.names["name"].to_pylist(), strict=True
        )
        self.names = Replacements(named, types, synonyms, self.tokenizer)
        self.random_ids = replacements(self.tokenizer)
        self.end_ids = ends_of_sentences(self.tokenizer)

    def cut(self, example: Example) -> int:
        return cut_place(
            example.word_start, example.mentions[:, :2], np.isin(example.ids, self.end_ids)
        )

    def text(self, index: int, held_out: bool, rng: np.random.Generator) -> tuple[Text, int]:
        """(sequence `index` in two segments, 1 where the second does not follow the first, 0 where
        it does, -100 for one)."""
        corpus_text = self.corpus[index]
        n, cut, limit = len(corpus_text.ids), self.cut(corpus_text), self.max_length - 3
        wrong = bool(rng.random() < 0.5)
        if not cut:
            return part(corpus_text, 0, n), IGNORE
        first, second = part(corpus_text, 0, cut), part(corpus_text, cut, n)
        if wrong and self.pair == "sop":
            return join_segments(second, first, limit), 1
        if wrong:
            pool = self.held_out_indices if held_out else self.train_indices
            other = self.corpus[int(pool[rng.integers(len(pool))])]
            second = part(other, self.cut(other), len(other.ids))
        return join_segments(first, second, limit), int(wrong)

    def example(self, index: int, rng: np.random.Generator, held_out: bool) -> EMBERTExample:
        text, label = self.text(index, held_out, rng)
        text = replace_mentions(text, self.names, self.replace, self.max_length - 3, rng)
        corrupted = corrupt_text(
            text,
            self.pieces,
            rng,
            self.mask_id,
            self.random_ids,
            self.rate,
            self.parts,
            self.whole,
            self.longest_part,
        )
        whole = len(text.ids) + 2 + (text.cut > 0)
        place = place_segments(len(text.ids), text.cut, False)
        ids = np.full(whole, self.tokenizer.sep_token_id, np.int64)
        ids[0], ids[place] = self.tokenizer.cls_token_id, corrupted.ids
        mlm, segments = np.full((2, whole), IGNORE, np.int64)
        mlm[place], segments[place] = corrupted.mlm, corrupted.segments
        changed = text.mentions[text.mentions[:, 3] != ORIGINAL]
        around = np.column_stack([place[changed[:, 0]] - 1, place[changed[:, 1] - 1] + 1])
        table = corrupted.parts
        hidden = np.column_stack([place[table[:, 1]], place[table[:, 2]], table[:, 3:]])
        second = np.arange(whole) > (text.cut + 1 if text.cut else whole)
        pair = label if text.cut else IGNORE
        return EMBERTExample(
            ids,
            second,
            mlm,
            segments,
            pair,
            around,
            changed[:, 3] == SYNONYM,
            hidden,
            corrupted.part_ids,
        )

    def collate(self, examples: list[EMBERTExample]) -> EMBERTBatch:
        assert isinstance(self.tokenizer.pad_token_id, int)
        ids, second, masked, ends, pairs, around, consistent, hidden, hidden_ids, sequences = zip(
            *examples, strict=True
        )
        mlm = stack_rows(masked, IGNORE)
        segments = stack_rows(ends, IGNORE)
        pair = np.array(pairs, np.int64)
        replaced_ones, parts = number_rows(around, 2), number_rows(hidden, 5)
        sizes = [
            (mlm != IGNORE).sum(),
            (pair != IGNORE).sum(),
            len(replaced_ones),
            (segments != IGNORE).sum(),
            (parts[:, 5] == 0).sum(),
            (parts[:, 5] == 1).sum(),
            sum(sequences),
        ]
        arrays = (
            stack_rows(ids, self.tokenizer.pad_token_id),
            attention(ids),
            stack_rows(second, 0),
            mlm,
            pair,
            replaced_ones,
            np.concatenate(consistent).astype(np.int64),
            segments,
            parts,
            np.concatenate(hidden_ids).astype(np.int64),
            np.array(sizes, np.float32),
        )
        return EMBERTBatch(*(torch.from_numpy(a) for a in arrays))

    @cached_property
    def unigrams(self) -> dict[tuple[int, int, int], int]:
        """(direction, length of the part, position in it) -> the token that occurs there most often
        in the training text.

        What predicting the tokens of parts has to beat. Counted in up to COUNTED training
        sequences.
        """
        counts: dict[tuple[int, int, int], dict[int, int]] = {}
        rng = np.random.default_rng(self.seed)
        for index in rng.permutation(self.train_indices)[:COUNTED]:
            example = self.corpus[int(index)]
            for start, last, _ in example.mentions:
                ends = self.pieces.piece_ends(example.ids[start:last])
                if ends is None or len(ends) < 2:
                    continue
                middle = start + int(ends[-2])
                for side, (begin, end) in enumerate(((middle, last), (start, middle))):
                    for position, token in enumerate(example.ids[begin:end].tolist()):
                        at = counts.setdefault((side, end - begin, position), {})
                        at[token] = at.get(token, 0) + 1
        return {key: max(at, key=lambda t: (at[t], -t)) for key, at in counts.items()}
