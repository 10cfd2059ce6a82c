"""Writes what masked-LM pre-training reads: a CMeKG graph, its texts, a vocabulary, unlinked parts
and the corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from datamodules import corpus, vocabulary
from kg.build.sources import cmekg
from kg.documents.parts import InParts
from kg.linking.run import ChosenLinker, link_corpus
from tests.fakes import cmekg as fake


class Folders(NamedTuple):
    graph: str
    texts: str
    vocabulary: str
    corpus: str


def write(folder: Path, drugs: int = 40, held_out: float = 0.2) -> Folders:
    file = fake.write(folder, drugs)
    cmekg.read(file).save(folder / "graph")
    with open(folder / "texts.jsonl", "w") as handle:
        for entity, kind, text in cmekg.texts(file):
            handle.write(
                json.dumps({"id": f"{entity}/{kind}", "text": text}, ensure_ascii=False) + "\n"
            )
    graph, texts, words, out = (
        str(folder / n) for n in ("graph", "texts.jsonl", "vocabulary", "corpus")
    )
    vocabulary.build_vocabulary(graph, [texts], words)
    given, one = ChosenLinker(linker="given"), InParts(workers=1)
    link_corpus(graph, [texts], folder / "linked", chosen=given, work=one)
    corpus.build_corpus(
        str(folder / "linked"),
        graph,
        words,
        out,
        max_length=128,
        held_out=held_out,
        long_texts="split",
    )
    return Folders(graph, texts, words, out)
