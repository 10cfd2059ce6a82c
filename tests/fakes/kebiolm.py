"""Writes everything that KeBioLM's pre-training reads: a BERT, a graph, its entity table, linked
text and the corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from datamodules import corpus
from kg.graph import KnowledgeGraph, fingerprint, table
from kg.vectors.embeddings import EmbeddingTable
from tests.fakes import bert
from tests.fakes import linked as fake_linked

PLAIN = (
    "the of with and in severe may cause patient shows signs under a rare chronic form between"
    " onset".split()
)
FIRST = ["renal", "cardiac", "hepatic", "ocular", "dermal", "neural", "gastric", "nasal"]
SECOND = ["failure", "lesion", "tumor", "atrophy", "spasm"]


class Folders(NamedTuple):
    bert: str
    graph: str
    entities: str
    linked: str
    corpus: str


def write(
    folder: Path,
    texts: int = 120,
    size: int = 16,
    seed: int = 0,
    layers: int = 3,
    dropout: float = 0.1,
    parts: int = 2,
) -> Folders:
    """Sentences of plain words around two-word entity names; some sentences have no mention, some
    have many."""
    rng = np.random.default_rng(seed)
    names = [f"{a} {b}" for a in FIRST for b in SECOND]
    ids = [f"E{i:03d}" for i in range(len(names))]
    encoder = bert.write(folder / "bert", PLAIN + FIRST + SECOND, layers=layers, dropout=dropout)
    head = [ids[i] for i in range(len(ids) - 1)]
    tail = [ids[i + 1] for i in range(len(ids) - 1)]
    graph = KnowledgeGraph(
        table("entities", {"id": ids, "name": names, "type": ["finding"] * len(ids)}),
        table(
            "names",
            {
                "id": ids,
                "name": names,
                "kind": ["preferred"] * len(ids),
                "language": ["en"] * len(ids),
                "source": ["fake"] * len(ids),
            },
        ),
        table("definitions", {"id": [], "text": []}),
        table("triples", {"head": head, "relation": ["near"] * len(head), "tail": tail}),
        {"source": "fake", "version": "1", "licence": "none"},
    )
    graph.save(folder / "graph")
    vectors = torch.nn.functional.normalize(
        torch.randn(len(ids), size, generator=torch.Generator().manual_seed(seed + 99))
    )
    EmbeddingTable(vectors, ids, manifest={"graph": fingerprint(folder / "graph")}).save(
        folder / "entities"
    )
    linked: list[list[dict[str, Any]]] = [[] for _ in range(parts)]
    for part in range(parts):
        for number in range(part, texts, parts):
            text, mentions = "", []
            for _ in range(int(rng.integers(1, 7))):
                text += " ".join(rng.choice(PLAIN, int(rng.integers(1, 6)))) + " "
                if rng.random() < 0.7:
                    entity = int(rng.integers(len(ids)))
                    mentions.append((len(text), len(text) + len(names[entity]), ids[entity]))
                    text += names[entity] + " "
            linked[part].append(fake_linked.document(str(number), text, *mentions))
    fake_linked.write(folder / "linked", *linked)
    corpus.build_corpus(
        str(folder / "linked"),
        str(folder / "graph"),
        str(encoder),
        str(folder / "corpus"),
        max_length=128,
    )
    return Folders(*(str(folder / n) for n in ("bert", "graph", "entities", "linked", "corpus")))
