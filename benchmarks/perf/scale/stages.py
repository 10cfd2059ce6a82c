"""What `kepl measure scale` measures: a function for each stage that prepares its
input, and one that is measured.

A stage counts its items: documents, names, triples or concepts. What one stage writes is the input
of the next with the same items, in one folder for each number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import BertConfig, BertModel

from benchmarks.perf.random_data import graph_like, pubmed, umls_like
from benchmarks.perf.synthetic import umls
from datamodules.corpus import Corpus, build_corpus
from datamodules.pretrained import find_pretrained
from datamodules.tokenizers import load_tokenizer
from inference.encoders import Embedder, write_index
from inference.options import Work
from kg.build.source import build_graph
from kg.documents.parts import InParts
from kg.graph import KnowledgeGraph
from kg.linking.matcher import DictionaryLinker
from kg.linking.run import link_corpus
from kg.search.index import Index
from kg.search.trie import Ragged, Trie
from kg.vectors.train import Training
from models.encoders import TextEncoder

NAMES, IN_A_FILE, VOCABULARY, DIM = 60_000, 2_500, 30_522, 100
HIDDEN, QUERIES = 64, 100
INDEX = {"names": "synthetic"}


class Stage(NamedTuple):
    """unit: what is counted; prepare(items, folder) writes what work(items, folder) needs, and is
    not measured."""

    name: str
    unit: str
    prepare: Callable[[int, Path], object]
    work: Callable[[int, Path], object]


def _texts(items: int, at: Path) -> None:
    graph, texts = graph_like(NAMES, 10 * NAMES)
    graph.save(at / "graph")
    pubmed(at / "pubmed", texts, items, -(-items // IN_A_FILE))


def _link(items: int, at: Path) -> None:
    manifest = link_corpus(at / "graph", [at / "pubmed"], at / "linked", work=InParts(workers=1))
    assert manifest["documents"] == items


def _build_corpus(items: int, at: Path) -> None:
    build_corpus(
        str(at / "linked"),
        str(at / "graph"),
        find_pretrained("minilm"),
        str(at / "corpus"),
        long_texts="truncate",
    )


def _read_corpus(items: int, at: Path) -> None:
    corpus = Corpus(at / "corpus")
    assert sum(
        len(corpus[number].ids) for number in np.random.default_rng(0).permutation(items)
    ) == len(corpus.tokens)


def _write_names(items: int, at: Path) -> None:
    """Names of a vocabulary's pieces: one to nine, the frequent ones more often."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.poisson(4, items) + 1, 1, 9)
    tokens = (random.random(int(lengths.sum())) ** 3 * VOCABULARY).astype(np.int32)
    np.savez(at / "names.npz", tokens=tokens, offsets=np.concatenate([[0], lengths.cumsum()]))


def _build_trie(items: int, at: Path) -> None:
    with np.load(at / "names.npz") as arrays:
        names = Ragged(arrays["tokens"], arrays["offsets"])
    Trie.build(names, vocabulary=VOCABULARY).save(at / "trie")


def _load_trie(items: int, at: Path) -> None:
    trie = Trie.load(at / "trie", "")
    assert len(trie.leaf_nodes) + len(trie.others) == items


def _write_encoder(items: int, at: Path) -> None:
    """The names, and an encoder of random weights: two layers, so that the rest of the work is seen
    beside it."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=2, intermediate_size=2 * HIDDEN
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(at / "encoder")
    load_tokenizer(find_pretrained("minilm")).save_pretrained(at / "encoder")
    (at / "names.txt").write_text("\n".join(umls_like(items, 0)[0]["name"].to_pylist()), "utf-8")


def _embed(items: int, at: Path) -> None:
    encoder = Embedder(
        TextEncoder(str(at / "encoder")), load_tokenizer(str(at / "encoder")), "random"
    )
    write_index(
        (at / "names.txt").read_text("utf-8").split("\n"),
        encoder,
        at / "index",
        INDEX,
        "torch",
        Work(),
    )


def _search(items: int, at: Path) -> None:
    index = Index.load(at / "index", INDEX)
    queries = torch.nn.functional.normalize(
        torch.randn(QUERIES, HIDDEN, generator=torch.Generator().manual_seed(0))
    )
    assert index.search(queries, 20).rows.shape == (QUERIES, 20)


def _write_triples(items: int, at: Path) -> None:
    graph_like(max(60, items // 2), items)[0].save(at / "triples")


def _load_graph(items: int, at: Path) -> None:
    assert len(KnowledgeGraph.load(at / "triples").triple_indices()) == items


def _train(items: int, at: Path) -> None:
    graph, out = str(at / "triples"), str(at / "transe")
    Training(graph=graph, out=out, dim=DIM, epochs=1, held_out=0, sparse=True).run()


def _write_release(items: int, at: Path) -> None:
    """UMLS's files in its proportions: 2.5 names and 6 relations a concept."""
    umls(
        at / "release",
        1.0,
        concepts=items,
        names=items * 5 // 2,
        relations=6 * items,
        definitions=items // 100,
    )


def _build_umls(items: int, at: Path) -> None:
    build_graph("umls", at / "release", at / "umls")


def _link_umls(items: int, at: Path) -> None:
    """The dictionary linker of all names, and a text of twenty."""
    graph = KnowledgeGraph.load(at / "umls")
    rows = np.linspace(0, len(graph.names) - 1, 20).astype(int)
    assert DictionaryLinker.from_graph(graph).link(
        ", ".join(graph.names["name"].take(rows).to_pylist())
    )


def _train_umls(items: int, at: Path) -> None:
    Training(
        graph=str(at / "umls"),
        out=str(at / "umls_transe"),
        dim=DIM,
        epochs=1,
        batch_size=8192,
        held_out=0,
        sparse=True,
    ).run()


def _nothing(items: int, at: Path) -> None:
    pass


STAGES = (
    Stage("linking", "documents", _texts, _link),
    Stage("corpus, build", "documents", _nothing, _build_corpus),
    Stage("corpus, read in random order", "documents", _nothing, _read_corpus),
    Stage("names, into vectors", "names", _write_encoder, _embed),
    Stage(f"search, {QUERIES} queries, exact", "names", _nothing, _search),
    Stage("trie, build and save", "names", _write_names, _build_trie),
    Stage("trie, load", "names", _nothing, _load_trie),
    Stage("graph, load", "triples", _write_triples, _load_graph),
    Stage("TransE, an epoch", "triples", _nothing, _train),
    Stage("UMLS, build", "concepts", _write_release, _build_umls),
    Stage("UMLS, load and link", "concepts", _nothing, _link_umls),
    Stage("UMLS, a TransE epoch", "concepts", _nothing, _train_umls),
)
