"""Writes everything that EMBERT's pre-training reads: a Chinese graph, its long names' pieces,
synonyms, a corpus, a BERT."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kg.build.thesaurus import build_thesaurus
from kg.graph import KnowledgeGraph, table
from tests.fakes import bert, chinese
from tests.fakes.chinese import PLAIN

KINDS = ["慢性", "急性", "先天性", "老年"]
PLACES = ["肺", "肾", "肝", "胃"]
ILLS = ["炎", "肿瘤", "脓肿"]
DRUGS = ["甲平片", "乙安片", "丙宁片", "丁康片"]


class Folders(NamedTuple):
    bert: str
    graph: str
    segments: str
    thesaurus: str
    linked: str
    corpus: str


def long_names() -> list[tuple[str, list[str]]]:
    """Names of long entities and their pieces: a kind, and a place with an ill, which is the atomic
    part."""
    return [(k + p + i, [k, p + i]) for k in KINDS for p in PLACES for i in ILLS]


def write(
    folder: Path, texts: int = 160, seed: int = 0, layers: int = 3, dropout: float = 0.1
) -> Folders:
    """Sentences about diseases and drugs; every disease has a second name of another length, drugs
    have none."""
    rng = np.random.default_rng(seed)
    long = long_names()
    names = [n for n, _ in long] + DRUGS
    other = {n: f"{p[1]}之{p[0]}" if i % 2 else f"{p[1]}病{i % 7}" for i, (n, p) in enumerate(long)}
    ids = [f"Z{i:03d}" for i in range(len(names))]
    characters = sorted(set("".join([*names, *other.values()]) + PLAIN + "。！？；，"))
    encoder = bert.write(
        folder / "bert", [], layers=layers, dropout=dropout, characters="".join(characters)
    )
    both = [(i, n, "preferred") for i, n in zip(ids, names, strict=True)]
    both += [(i, other[n], "alias") for i, n in zip(ids, names, strict=True) if n in other]
    KnowledgeGraph(
        table(
            "entities",
            {"id": ids, "name": names, "type": ["疾病"] * len(long) + ["药物"] * len(DRUGS)},
        ),
        table(
            "names",
            {
                "id": [i for i, _, _ in both],
                "name": [n for _, n, _ in both],
                "kind": [k for _, _, k in both],
                "language": ["zh"] * len(both),
                "source": ["fake"] * len(both),
            },
        ),
        table("definitions", {"id": [], "text": []}),
        table("triples", {"head": ids[:4], "relation": ["near"] * 4, "tail": ids[1:5]}),
        {"source": "fake", "version": "1", "licence": "none"},
    ).save(folder / "graph")
    (folder / "segments").mkdir(parents=True)
    rows = {
        "name": [n for n, _ in long],
        "pieces": [p for _, p in long],
        "how": ["cut points"] * len(long),
    }
    pq.write_table(pa.table(rows), folder / "segments" / "segments.parquet")
    build_thesaurus(folder / "graph", folder / "thesaurus")
    chinese.linked_corpus(folder, encoder, names, rng, texts, clauses=(2, 5), share=0.8)
    return Folders(
        *(str(folder / n) for n in ("bert", "graph", "segments", "thesaurus", "linked", "corpus"))
    )
