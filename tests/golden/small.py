"""Three texts, four entities and a vocabulary of twenty-two tokens, small enough to write every
array of a batch by hand.

    text A     the drug treats renal fail ##ure . pain is severe     mentions: drug, renal failure,
    number       0    1      2     3    4     5 6    7  8      9     pain
    text B     heart attack and pain                                 mentions: heart attack, pain
    text C     the pain is severe; held out                          mention: pain
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from datamodules import corpus
from kg.graph import KnowledgeGraph, fingerprint
from kg.pagerank import NeighbourTable
from kg.vectors.embeddings import EmbeddingTable
from tests.fakes import linked
from tests.fakes.graphs import graph

#: the place of a token is its id
VOCABULARY = (
    "[PAD] [UNK] [CLS] [SEP] [MASK]"  # 0 to 4
    " . the drug treats renal fail ##ure and pain heart attack is severe"  # 5 to 17
    " kidney START END ache"  # 18 to 21
).split()
A = [6, 7, 8, 9, 10, 11, 5, 13, 16, 17]
B = [14, 15, 12, 13]
#: how often the training texts mention D, H, P and R
FREQUENCY = [1, 1, 2, 1]
#: entities in the order of the graph: D 0, H 1, P 2, R 3; the types in that of the alphabet:
#: disease 0, drug 1
TYPES = {"D": "drug", "H": "disease", "P": "disease", "R": "disease"}


class Small(NamedTuple):
    """The folders of what pre-training reads."""

    tokenizer: str
    graph: str
    entities: str
    corpus: str
    neighbours: str


def write_tokenizer(folder: Path) -> Path:
    backend = Tokenizer(
        models.WordPiece({t: i for i, t in enumerate(VOCABULARY)}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder)
    return folder


def write(folder: Path) -> Small:
    names = [
        ("D", "drug", "exact", "en"),
        ("H", "heart attack", "exact", "en"),
        ("P", "pain", "exact", "en"),
        ("R", "renal failure", "exact", "en"),
        ("R", "kidney pain", "exact", "en"),
    ]
    triples = [("D", "treats", "R"), ("D", "treats", "P"), ("R", "near", "H")]
    graph(TYPES, triples, names).save(folder / "graph")
    ids = KnowledgeGraph.load(folder / "graph").ids.to_pylist()
    assert ids == ["D", "H", "P", "R"]
    made_of = {"graph": fingerprint(folder / "graph")}
    EmbeddingTable(torch.eye(4), ids, manifest=made_of).save(folder / "entities")
    linked.write(
        folder / "linked",
        [
            linked.document(
                "a",
                "the drug treats renal failure . pain is severe",
                (4, 8, "D"),
                (16, 29, "R"),
                (32, 36, "P"),
            ),
            linked.document("b", "heart attack and pain", (0, 12, "H"), (17, 21, "P")),
            linked.document("c", "the pain is severe", (4, 8, "P")),
        ],
    )
    write_tokenizer(folder / "tokenizer")
    with mock.patch.object(corpus, "is_held_out", lambda text, share: text.startswith("the pain")):
        corpus.build_corpus(
            str(folder / "linked"),
            str(folder / "graph"),
            str(folder / "tokenizer"),
            str(folder / "corpus"),
            max_length=14,
        )
    # D treats R and P, R is near H: neighbour, relation (near 0, treats 1), +1 from head to tail
    none = (-1, 0, 0)
    rows = [
        [(3, 1, 1), (2, 1, 1)],
        [(3, 0, -1), none],
        [(0, 1, -1), none],
        [(0, 1, -1), (1, 0, 1)],
    ]
    relations = KnowledgeGraph.load(folder / "graph").relations
    assert relations == ["near", "treats"]
    NeighbourTable(np.array(rows, np.int32), ids, relations, made_of).save(folder / "neighbours")
    return Small(
        *(str(folder / n) for n in ("tokenizer", "graph", "entities", "corpus", "neighbours"))
    )


class Scripted:
    """A generator whose draws are written down: each call takes the next one."""

    def __init__(self, *draws: Any) -> None:
        self.draws = list(draws)

    def _next(self, *_: Any, **__: Any) -> Any:
        draw = self.draws.pop(0)
        return np.array(draw) if isinstance(draw, list) else draw

    random = integers = choice = permutation = poisson = _next

    def finish(self) -> None:
        """Every draw was taken."""
        assert self.draws == []


def make_data(kind: Any, small: Small, **settings: Any) -> Any:
    """A data module over the texts: 0 is A, 1 is B, both for training, and 2 is C."""
    data = kind(corpus=small.corpus, tokenizer=small.tokenizer, batch_size=1, **settings)
    data.trainer = SimpleNamespace(
        global_rank=0, world_size=1, accumulate_grad_batches=1, global_step=0
    )
    data.setup()
    assert [data.corpus[i].ids.tolist() for i in range(3)] == [A, B, [6, 13, 16, 17]]
    assert data.train_indices.tolist() == [0, 1] and data.held_out_indices.tolist() == [2]
    return data


def list_values(batch: Any) -> Any:
    """The tensors of a batch as lists, without its places."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    if hasattr(batch, "_asdict"):
        fields = batch._asdict().items()
        return {name: list_values(value) for name, value in fields if name != "places"}
    return batch
