"""Writes everything that SMedBERT's pre-training reads: a Chinese graph, its tables, linked text, a
corpus and a BERT."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from kg.graph import KnowledgeGraph, fingerprint, table
from kg.pagerank import rank
from kg.vectors.embeddings import EmbeddingTable
from tests.fakes import bert, chinese
from tests.fakes.chinese import PLAIN

FIRST = "肺 肾 肝 胃 心 脑 肤 骨".split()
SECOND = "炎 癌 痛 肿 瘤".split()
DRUGS = [f"{a}{b}片" for a in "阿布西利" for b in "平安宁康"]


class Folders(NamedTuple):
    bert: str
    graph: str
    entities: str
    neighbours: str
    linked: str
    corpus: str


def write(
    folder: Path,
    texts: int = 160,
    size: int = 12,
    seed: int = 0,
    layers: int = 3,
    dropout: float = 0.1,
) -> Folders:
    """Sentences about diseases and drugs; a drug treats diseases, a disease is near others, some
    entities have no triple."""
    rng = np.random.default_rng(seed)
    diseases = [a + b for a in FIRST for b in SECOND]
    names = [*diseases, *DRUGS, "孤独症", "独行"]
    ids = [f"Z{i:03d}" for i in range(len(names))]
    kinds = ["disease"] * len(diseases) + ["drug"] * len(DRUGS) + ["disease", "未知"]
    characters = sorted(set("".join(names) + PLAIN + "。！？；，"))
    encoder = bert.write(
        folder / "bert", [], layers=layers, dropout=dropout, characters="".join(characters)
    )
    rows = [("near", i, (i + 1) % len(diseases)) for i in range(len(diseases))]
    rows += [
        ("treats", len(diseases) + d, int(t))
        for d in range(len(DRUGS))
        for t in rng.choice(len(diseases), 5, False)
    ]
    graph = KnowledgeGraph(
        table("entities", {"id": ids, "name": names, "type": kinds}),
        table(
            "names",
            {"id": ids, "name": names}
            | {
                key: [value] * len(ids)
                for key, value in (("kind", "preferred"), ("language", "zh"), ("source", "fake"))
            },
        ),
        table("definitions", {"id": [], "text": []}),
        table(
            "triples",
            {
                "head": [ids[h] for _, h, _ in rows],
                "relation": [r for r, _, _ in rows],
                "tail": [ids[t] for _, _, t in rows],
            },
        ),
        {"source": "fake", "version": "1", "licence": "none"},
    )
    graph.save(folder / "graph")
    g = torch.Generator().manual_seed(seed)
    EmbeddingTable(
        torch.nn.functional.normalize(torch.randn(len(ids), size, generator=g)),
        ids,
        torch.randn(2, size, generator=g) / 4,
        graph.relations,
        torch.eye(size).expand(2, size, size) + torch.randn(2, size, size, generator=g) / 10,
        {"graph": fingerprint(folder / "graph")},
    ).save(folder / "entities")
    rank(str(folder / "graph"), str(folder / "neighbours"), k=6)
    chinese.linked_corpus(folder, encoder, names, rng, texts, clauses=(1, 6), share=0.7)
    return Folders(
        *(str(folder / n) for n in ("bert", "graph", "entities", "neighbours", "linked", "corpus"))
    )
