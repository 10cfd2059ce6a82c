"""Vectors of entities in context: what an encoder makes of their mentions in linked text.

    python -m experiments.vectors --model kebiolm --corpus FOLDER --graph FOLDER --out FOLDER
    [--pooling mean|boundary]

A mention's vector is the mean of its tokens' last states (boundary: of its first and last token's),
which of KeBioLM are those of the layers that read entities. An entity's vector is the mean over at
most --most of its mentions, the first ones of the corpus. --corpus is a folder of ``python -m
datamodules.corpus``, made with the model's tokenizer and the graph of
--graph. What is written is an :class:`EmbeddingTable` of the entities that are mentioned, as `kg`
makes one of a graph, with the number of mentions that each is the mean of in ``counts.txt``: to be
searched (kg.search.index), or to start a training.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from tqdm import tqdm

from core.dotted import imported
from core.files import InputError, digest, written
from datamodules.corpus import Corpus
from datamodules.tokenizers import load_tokenizer, tokenizer_fingerprint
from experiments.names import encoder
from kg.graph import KnowledgeGraph, fingerprint
from kg.vectors.embeddings import EmbeddingTable

POOLINGS = ("mean", "boundary")


def pooled(states: Tensor, spans: Tensor, pooling: str) -> Tensor:
    """(B, L, H), (M, 3) row, first, last + 1 -> (M, H): the mean of each span's states, or of its
    first and last one."""
    row, start, end = spans.unbind(1)
    if pooling == "boundary":
        return (states[row, start] + states[row, end - 1]) / 2
    sums = torch.nn.functional.pad(states.double().cumsum(1), (0, 0, 1, 0))
    return ((sums[row, end] - sums[row, start]) / (end - start)[:, None]).to(states.dtype)


@torch.inference_mode()
def entity_vectors(
    module: Any,
    tokenizer: Any,
    corpus: Corpus,
    pooling: str = "mean",
    most: int = 100,
    tokens: int = 8192,
    device: str = "cpu",
) -> tuple[np.ndarray, Tensor, np.ndarray]:
    """(numbers of the mentioned entities, ascending; their vectors (E, H); mentions that each is
    the mean of)."""
    if pooling not in POOLINGS:
        raise InputError(f"--pooling {pooling}: choose from: {', '.join(POOLINGS)}")
    wanted: list[tuple[int, np.ndarray]] = []  # example, its mentions that count
    counts: dict[int, int] = {}
    for number in range(len(corpus)):
        mentions = corpus[number].mentions
        kept = []
        for mention in mentions.tolist():
            if counts.get(mention[2], 0) < most:
                counts[mention[2]] = counts.get(mention[2], 0) + 1
                kept.append(mention)
        if kept:
            wanted.append((number, np.array(kept)))
    entities = np.array(sorted(counts), np.int64)
    total = torch.zeros(len(entities), module.hidden_size, dtype=torch.double)
    module = module.to(device).eval()
    order = sorted(wanted, key=lambda one: (-len(corpus[one[0]].ids), one[0]))
    start = 0
    with tqdm(total=len(order), desc="reading mentions", unit="text", disable=None) as bar:
        while start < len(order):
            longest = len(corpus[order[start][0]].ids) + 2
            batch = order[start : start + max(1, tokens // longest)]
            ids = torch.full((len(batch), longest), int(tokenizer.pad_token_id))
            mask = torch.zeros_like(ids)
            for row, (number, _) in enumerate(batch):
                own = [tokenizer.cls_token_id, *corpus[number].ids.tolist(), tokenizer.sep_token_id]
                ids[row, : len(own)], mask[row, : len(own)] = torch.tensor(own), 1
            flat = np.concatenate(
                [
                    np.column_stack([np.full(len(m), row), m[:, :2] + 1])
                    for row, (_, m) in enumerate(batch)
                ]
            )
            of = np.concatenate([m[:, 2] for _, m in batch])
            states = module(ids.to(device), mask.to(device)).float()
            made = (
                pooled(states, torch.from_numpy(flat.astype(np.int64)).to(device), pooling)
                .cpu()
                .double()
            )
            total.index_add_(0, torch.from_numpy(np.searchsorted(entities, of)), made)
            start += len(batch)
            bar.update(len(batch))
    numbers = np.array([counts[int(e)] for e in entities])
    return entities, (total / torch.from_numpy(numbers)[:, None]).float(), numbers


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Vectors of entities: means over their mentions in linked text."
    )
    parser.add_argument(
        "--model", required=True, help="an encoder of plain text, as MODEL= names one"
    )
    parser.add_argument("--ckpt", help="one exact run of it")
    parser.add_argument(
        "--corpus",
        required=True,
        help="folder of python -m datamodules.corpus, of the model's tokenizer",
    )
    parser.add_argument(
        "--graph", required=True, help="folder of the graph that the corpus was linked to"
    )
    parser.add_argument("--out", required=True, help="folder to write")
    parser.add_argument("--pooling", default="mean", help="mean or boundary (mean)")
    parser.add_argument(
        "--most", type=int, default=100, help="mentions of an entity that count (100)"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda (cpu)")
    a = parser.parse_args(arguments)
    try:
        if a.most < 1:
            raise InputError(f"--most {a.most}: expected at least 1")
        chosen = encoder(a.model, a.ckpt)
        if chosen.linker:
            raise InputError(
                f"--model {a.model}: it reads linked mentions with their neighbours; expected one"
                " that reads text"
            )
        tokenizer = load_tokenizer(chosen.folder)
        corpus = Corpus(a.corpus, tokenizer_fingerprint(tokenizer), fingerprint(a.graph))
        module = imported(chosen.load, "models")(chosen.folder)
        corpus.check_length(module.max_length)
        entities, vectors, numbers = entity_vectors(
            module, tokenizer, corpus, a.pooling, a.most, device=a.device
        )
        names = KnowledgeGraph.load(a.graph).ids
        manifest = {
            "source": "means over mentions in text",
            "encoder": a.model,
            "weights": chosen.identity,
            "pooling": a.pooling,
            "most": a.most,
            "graph": fingerprint(a.graph),
            "corpus": digest(corpus.manifest),
        }
        EmbeddingTable(vectors, names.take(pa.array(entities)).to_pylist(), manifest=manifest).save(
            a.out
        )
        with written(Path(a.out) / "counts.txt") as handle:
            handle.writelines(f"{n}\n" for n in numbers)
    except InputError as error:
        sys.exit(f"error: {error}")
    print(f"{a.out}: vectors of {len(entities):,} entities, {int(numbers.sum()):,} mentions")


if __name__ == "__main__":
    main()
