"""Writes everything that SapBERT's pre-training reads: a BERT, a graph with synonyms, and the pairs
of its names.

Every oddity that is counted is in the graph: a name in another language, an empty one, one repeated
in another case, one that two concepts share, a concept with one name, one without any, a trade
concept, and one of 12 names (66 pairs).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from datamodules.sapbert.name_pairs import build_pairs
from kg.graph import KnowledgeGraph, table
from tests.fakes import bert

SITES = ["renal", "cardiac", "hepatic", "ocular", "dermal", "neural", "gastric", "nasal"]
FORMS = ["failure", "lesion", "tumor", "atrophy", "spasm"]


class Folders(NamedTuple):
    bert: str
    graph: str
    pairs: str


def graph(prefix: str = "E") -> KnowledgeGraph:
    """40 concepts of four names each, and the odd ones."""
    names: list[tuple[str, str, str, str]] = []
    for i, (site, form) in enumerate((s, f) for s in SITES for f in FORMS):
        every = (
            f"{site.title()} {form}",
            f"{form} of  the {site} region",
            f"{site} {form} nos",
            f"{form}, {site}",
        )
        kinds = ("preferred", "synonym", "synonym", "layperson")
        names += [
            (f"{prefix}{i:03d}", name, kind, "en") for name, kind in zip(every, kinds, strict=True)
        ]
    names += [
        (f"{prefix}000", "RENAL  FAILURE", "synonym", "en"),  # repeated
        (f"{prefix}000", "Nierenversagen", "synonym", "de"),
        (f"{prefix}001", "odd shared name", "synonym", "en"),
        (f"{prefix}002", "Odd shared name", "synonym", "en"),
        (f"{prefix}003", " \u00a0", "synonym", "en"),  # empty once trimmed
        (f"{prefix}ONE", "alone", "preferred", "en"),
        (f"{prefix}DRUG", "tumor drug", "preferred", "en"),
        (f"{prefix}DRUG", "the spasm drug", "synonym", "en"),
        (f"{prefix}TRADE", "Nosaspasm", "preferred", "en"),
    ]
    names += [(f"{prefix}MANY", f"many {number}", "synonym", "en") for number in range(12)]
    ids = [*dict.fromkeys(one[0] for one in names), f"{prefix}NONE"]
    columns = dict(
        zip(("id", "name", "kind", "language"), map(list, zip(*names, strict=True)), strict=True)
    )
    return KnowledgeGraph(
        table("entities", {"id": ids, "name": ids, "type": ["finding"] * len(ids)}),
        table("names", columns | {"source": ["fake"] * len(names)}),
        table("definitions", {"id": [], "text": []}),
        table(
            "triples",
            {"head": [f"{prefix}DRUG"], "relation": ["has_tradename"], "tail": [f"{prefix}TRADE"]},
        ),
        {"source": "fake", "version": "1", "licence": "none"},
    )


def write(folder: Path, layers: int = 2, dropout: float = 0.1) -> Folders:
    encoder = bert.write(
        folder / "bert", [*SITES, *FORMS, "of", "the", "region"], layers=layers, dropout=dropout
    )
    graph().save(folder / "graph")
    build_pairs([str(folder / "graph")], str(encoder), str(folder / "pairs"))
    return Folders(str(encoder), str(folder / "graph"), str(folder / "pairs"))
