"""Batches for EMBERT's pre-training (Cai et al., WISA 2021, Sections 3.1-3.3 and Appendix).

Sequences are cut in two near their middle, and half of the time the second segment is another text's (next-sentence
prediction). Linked entities that have a synonym are replaced now and then, by it or at random (Section 3.1); long ones
are to be segmented (3.2) and lose one of their halves (3.3). As everywhere, a batch is a function of (seed, step, example).
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from core.files import InputError
from datamodules.corpus import Corpus, Example
from datamodules.embert.names import Pieces, Replacements
from datamodules.embert.text import ORIGINAL, SYNONYM, Text, corrupted, joined, part, replaced
from datamodules.masking import IGNORE
from datamodules.segments import cut_place, ends_of_sentences, placed
from datamodules.steps import CorpusData
from datamodules.tokenizers import load_tokenizer, replacements, tokenizer_fingerprint
from kg.graph import KnowledgeGraph, fingerprint
from kg.thesaurus import Thesaurus

COUNTED = 20_000  # training sequences of which the unigrams of long entities' parts are counted, at most


class EMBERTBatch(NamedTuple):
    """One micro-batch of B sequences of length L, with R replaced entities and T tokens of hidden parts.

    counts are over the micro-batches that this process accumulates for one step, as in :mod:`datamodules.steps`.
    """

    input_ids: Tensor  # (B, L) with hidden tokens
    attention_mask: Tensor  # (B, L)
    second: Tensor  # (B, L) 1 on the second of the two segments
    mlm_labels: Tensor  # (B, L) original id where a token is predicted, else -100
    pair: Tensor  # (B,) 1 where the second segment does not follow the first, 0 where it does, -100 where there is one
    replaced: Tensor  # (R, 3) row, the token before a replaced entity, the token behind it
    consistent: Tensor  # (R,) 1 where it is a synonym, 0 where it is a random name
    segment_labels: Tensor  # (B, L) 1 on the last token of a sub-entity, 0 on the others of a long entity, else -100
    hidden: (
        Tensor  # (T, 6) row, first and last token of the part that is left, position and length of the part, direction
    )
    hidden_ids: Tensor  # (T,) original ids
    counts: Tensor  # (7,) tokens of the masked LM, pairs, R, tokens of long entities, T atomic, T adjective, sequences


class EMBERTData(CorpusData):
    """Linked text as batches for EMBERT's objectives.

    corpus       folder that ``python -m datamodules.corpus`` wrote, one token shorter than `max_length`
    tokenizer    the encoder's tokenizer: a folder or hub name
    graph        folder of the graph that the corpus is linked with: ``vocabulary/`` of ``python -m kg.segment build``
    segments     folder that command wrote
    thesaurus    folder that ``python -m kg.thesaurus`` wrote for that graph
    batch_size   sequences per optimiser step over all processes and accumulated batches
    replace      share of the replaceable entities that are replaced (0: no context-entity consistency)
    rate         share of the tokens that are hidden or replaced (the corruption rate, Section 4.6)
    parts        of these at most this share are parts of long entities (0: no bidirectional entity masking)
    entities     the masked LM hides whole entities and phrases, as MC-BERT does, not words
    validation_size  held-out sequences that validation takes at most; None: all
    pair         "nsp": half of the second segments come from another text; "sop": half of the pairs are swapped

    Raises InputError when the parts do not belong together, or the batch size does not divide.
    """

    def __init__(
        self,
        corpus: str,
        tokenizer: str,
        graph: str,
        segments: str,
        thesaurus: str,
        batch_size: int = 256,
        max_length: int = 512,
        min_mentions: int = 0,
        replace: float = 0.15,
        rate: float = 0.15,
        parts: float = 0.5,
        longest_part: int = 30,
        entities: bool = False,
        pair: Literal["nsp", "sop"] = "nsp",
        eval_batch_size: int = 64,
        validation_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.corpus_folder, self.tokenizer_name, self.graph = corpus, tokenizer, graph
        self.segments, self.thesaurus = segments, thesaurus
        self.batch_size, self.max_length, self.min_mentions = batch_size, max_length, min_mentions
        for name, share in (("replace", replace), ("rate", rate), ("parts", parts)):
            if not 0 <= share <= 1:
                raise InputError(f"{name} {share}: wanted a share from 0 to 1")
        self.replace, self.rate, self.parts, self.longest_part = replace, rate, parts, longest_part
        self.whole, self.pair = entities, pair
        self.eval_batch_size, self.validation_size = eval_batch_size, validation_size
        self.num_workers, self.seed = num_workers, seed
        self.corpus: Corpus | None = None

    def setup(self, stage: str | None = None) -> None:
        if self.corpus is not None:
            return
        self.tokenizer: PreTrainedTokenizerFast = load_tokenizer(self.tokenizer_name)
        corpus = Corpus(self.corpus_folder, tokenizer_fingerprint(self.tokenizer), fingerprint(self.graph))
        corpus.check_length(self.max_length, 1)
        graph = KnowledgeGraph.load(self.graph)
        file = Path(self.segments) / "segments.parquet"
        if not file.is_file():
            raise InputError(f"{file}: missing. Make it: python -m kg.segment build --help")
        rows = pq.read_table(file, columns=["name", "pieces"])
        self.pieces = Pieces(zip(rows["name"].to_pylist(), rows["pieces"].to_pylist(), strict=True), self.tokenizer)
        ids = graph.ids.to_pylist()
        same = Thesaurus.load(self.thesaurus)
        known = {i: names for i, entity in enumerate(ids) if (names := same.names(entity))}
        if len(same) and not known:
            raise InputError(
                f"{self.thesaurus}: none of its {len(same)} entities is in {self.graph}. Make it of that graph: "
                "python -m kg.thesaurus --help"
            )
        types = np.unique(np.array(graph.entities["type"].to_pylist()), return_inverse=True)[1]
        named = zip(graph.index_of(graph.names["id"]).tolist(), graph.names["name"].to_pylist(), strict=True)
        self.names = Replacements(named, types, known, self.tokenizer)
        self.random_ids = replacements(self.tokenizer)
        self.end_ids = ends_of_sentences(self.tokenizer)
        self.train_indices, self.held_out_indices = corpus.divided(self.batch_size, self.min_mentions)
        self.corpus = corpus

    def cut(self, example: Example) -> int:
        return cut_place(example.word_start, example.mentions[:, :2], np.isin(example.ids, self.end_ids))

    def text(self, index: int, epoch: int, rng: np.random.Generator) -> tuple[Text, int]:
        """(sequence `index` in two segments, 1 where the second does not follow the first, 0 where it does, -100 for one)."""
        assert self.corpus is not None
        own = self.corpus[index]
        n, cut, limit = len(own.ids), self.cut(own), self.max_length - 3
        wrong = bool(rng.random() < 0.5)
        if not cut:
            return part(own, 0, n), IGNORE
        first, second = part(own, 0, cut), part(own, cut, n)
        if wrong and self.pair == "sop":
            return joined(second, first, limit), 1
        if wrong:
            pool = self.held_out_indices if epoch < 0 else self.train_indices
            other = self.corpus[int(pool[rng.integers(len(pool))])]
            second = part(other, self.cut(other), len(other.ids))
        return joined(first, second, limit), int(wrong)

    def batch(self, indices: np.ndarray, epoch: int, blank: bool = False) -> EMBERTBatch:
        """The sequences `indices`, changed as in `epoch` (-1: validation).

        A `blank` batch counts nothing: processes with fewer batches fill up with it.
        """
        cls, sep, pad = (getattr(self.tokenizer, f"{t}_token_id") for t in ("cls", "sep", "pad"))
        assert isinstance(self.tokenizer.mask_token_id, int)
        texts, pair = [], np.full(len(indices), IGNORE, np.int64)
        made = []
        for row, index in enumerate(indices):
            rng = np.random.default_rng([self.seed, epoch + 1, int(index)])
            text, label = self.text(int(index), epoch, rng)
            text = replaced(text, self.names, self.replace, self.max_length - 3, rng)
            texts.append(text)
            made.append(
                corrupted(text, self.pieces, rng, self.tokenizer.mask_token_id, self.random_ids,
                          self.rate, self.parts, self.whole, self.longest_part)
            )  # fmt: skip
            pair[row] = IGNORE if blank or not text.cut else label
        shape = (len(texts), max(len(t.ids) + 2 + (t.cut > 0) for t in texts))
        ids, attention, second = (np.full(shape, value, np.int64) for value in (pad, 0, 0))
        mlm, segments = np.full(shape, IGNORE, np.int64), np.full(shape, IGNORE, np.int64)
        around, labels, hidden, hidden_ids = [], [], [], []
        for row, (text, found) in enumerate(zip(texts, made, strict=True)):
            place = placed(len(text.ids), text.cut, False)
            end = len(text.ids) + 1 + (text.cut > 0)
            ids[row, 0], ids[row, place], ids[row, end] = cls, found.ids, sep
            if text.cut:
                ids[row, text.cut + 1] = sep
                second[row, text.cut + 2 : end + 1] = 1
            attention[row, : end + 1] = 1
            if blank:
                continue
            mlm[row, place], segments[row, place] = found.mlm, found.segments
            for start, last, _, kind in text.mentions[text.mentions[:, 3] != ORIGINAL]:
                around.append((row, place[start] - 1, place[last - 1] + 1))
                labels.append(kind == SYNONYM)
            table = found.parts
            hidden.append(
                np.column_stack([np.full(len(table), row), place[table[:, 1]], place[table[:, 2]], table[:, 3:]])
            )
            hidden_ids.append(found.part_ids)
        parts = np.concatenate(hidden) if hidden else np.zeros((0, 6), np.int64)
        targets = np.concatenate(hidden_ids) if hidden_ids else np.zeros(0, np.int64)
        sizes = [(mlm != IGNORE).sum(), (pair != IGNORE).sum(), len(around), (segments != IGNORE).sum(),
                 (parts[:, 5] == 0).sum(), (parts[:, 5] == 1).sum(), 0 if blank else len(texts)]  # fmt: skip
        return EMBERTBatch(
            torch.from_numpy(ids),
            torch.from_numpy(attention),
            torch.from_numpy(second),
            torch.from_numpy(mlm),
            torch.from_numpy(pair),
            torch.from_numpy(np.array(around, np.int64).reshape(-1, 3)),
            torch.from_numpy(np.array(labels, np.int64)),
            torch.from_numpy(segments),
            torch.from_numpy(parts),
            torch.from_numpy(targets),
            torch.from_numpy(np.array(sizes, np.float32)),
        )

    @cached_property
    def unigrams(self) -> dict[tuple[int, int, int], int]:
        """(direction, length of the part, position in it) -> the token that stands there most often in the training text.

        What predicting the tokens of parts has to beat. Counted in up to COUNTED training sequences.
        """
        assert self.corpus is not None
        counts: dict[tuple[int, int, int], dict[int, int]] = {}
        rng = np.random.default_rng(self.seed)
        for index in rng.permutation(self.train_indices)[:COUNTED]:
            example = self.corpus[int(index)]
            for start, last, _ in example.mentions:
                ends = self.pieces.of(example.ids[start:last])
                if ends is None or len(ends) < 2:
                    continue
                middle = start + int(ends[-2])
                for side, (begin, end) in enumerate(((middle, last), (start, middle))):
                    for position, token in enumerate(example.ids[begin:end].tolist()):
                        at = counts.setdefault((side, end - begin, position), {})
                        at[token] = at.get(token, 0) + 1
        return {key: max(at, key=lambda t: (at[t], -t)) for key, at in counts.items()}

    def export(self, folder: str | Path) -> None:
        """Write the tokenizer into `folder`: nothing of the graph is needed to use the model."""
        self.tokenizer.save_pretrained(folder)
