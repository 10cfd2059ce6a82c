"""Vectors of entities in context: what an encoder makes of their mentions in linked text.

    kepl data vectors --model kebiolm --corpus FOLDER --graph FOLDER --out FOLDER
    [--pooling mean|boundary]

A mention's vector is the mean of its tokens' last states (boundary: of its first and last token's),
which of KeBioLM are those of the layers that read entities. An entity's vector is the mean over at
most --most of its mentions, the first ones of the corpus. --corpus is a folder of `kepl data
corpus`, made with the model's tokenizer and the graph of --graph. What is written is an
:class:`EmbeddingTable` of the entities that are mentioned, as `kg` makes one of a graph, with the
number of mentions that each is the mean of in ``counts.txt``: to be searched (kg.search.index), or
to start a training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from tqdm import tqdm

from core.choices import list_known
from core.dotted import import_object
from core.files import InputError, atomic_write
from core.json_files import digest
from datamodules.corpus import Corpus
from datamodules.rows import frame_ids, length_batches, pad_rows
from datamodules.tokenizers import load_tokenizer, tokenizer_fingerprint
from experiments.names import encoder
from kg.graph import KnowledgeGraph, fingerprint
from kg.vectors.embeddings import EmbeddingTable

POOLINGS = ("mean", "boundary")


def pool_spans(states: Tensor, spans: Tensor, pooling: str) -> Tensor:
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
        raise InputError(f"--pooling {pooling}: {list_known(pooling, POOLINGS)}")
    wanted: list[tuple[int, np.ndarray]] = []  # example, its mentions that count
    counts: dict[int, int] = {}
    for number in range(len(corpus)):
        mentions = corpus[number].mentions
        positions = []
        for mention in mentions.tolist():
            if counts.get(mention[2], 0) < most:
                counts[mention[2]] = counts.get(mention[2], 0) + 1
                positions.append(mention)
        if positions:
            wanted.append((number, np.array(positions)))
    entities = np.array(sorted(counts), np.int64)
    total = torch.zeros(len(entities), module.hidden_size, dtype=torch.double)
    module = module.to(device).eval()
    lengths = [len(corpus[number].ids) + 2 for number, _ in wanted]
    with tqdm(total=len(wanted), desc="reading mentions", unit="text", disable=None) as bar:
        for rows in length_batches(lengths, tokens):
            batch = [wanted[row] for row in rows]
            texts = [frame_ids(corpus[number].ids, tokenizer) for number, _ in batch]
            ids, mask = pad_rows(texts, tokenizer.pad_token_id)
            flat = np.concatenate(
                [
                    np.column_stack([np.full(len(m), row), m[:, :2] + 1])
                    for row, (_, m) in enumerate(batch)
                ]
            )
            entity_numbers = np.concatenate([m[:, 2] for _, m in batch])
            states = module(ids.to(device), mask.to(device)).float()
            vectors = (
                pool_spans(states, torch.from_numpy(flat.astype(np.int64)).to(device), pooling)
                .cpu()
                .double()
            )
            total.index_add_(
                0, torch.from_numpy(np.searchsorted(entities, entity_numbers)), vectors
            )
            bar.update(len(batch))
    numbers = np.array([counts[int(e)] for e in entities])
    return entities, (total / torch.from_numpy(numbers)[:, None]).float(), numbers


def write_vectors(
    model: str,
    corpus: Path,
    graph: Path,
    out: Path,
    ckpt: str | None = None,
    pooling: str = "mean",
    most: int = 100,
    device: str = "cpu",
) -> str:
    """Write vectors of entities: means over their mentions in linked text.

    Args:
        model: An encoder of plain text, as MODEL= names one.
        corpus: Folder of `kepl data corpus`, of the model's tokenizer.
        graph: Folder of the graph that the corpus was linked to.
        out: Folder for the table.
        ckpt: One exact run of the model.
        pooling: The mean of a mention's tokens, or of its first and last one (boundary).
        most: Mentions of an entity that count.
        device: Device of the model: cpu, cuda.

    Raises InputError for an encoder, a corpus and a graph that do not go together.
    """
    if most < 1:
        raise InputError(f"--most {most}: expected at least 1")
    chosen = encoder(model, ckpt)
    if chosen.linker:
        raise InputError(
            f"--model {model}: it reads linked mentions with their neighbours; expected one that"
            " reads text"
        )
    tokenizer = load_tokenizer(chosen.folder)
    texts = Corpus(corpus, tokenizer_fingerprint(tokenizer), fingerprint(graph))
    module = import_object(chosen.load, "models")(chosen.folder)
    texts.check_length(module.max_length)
    entities, vectors, numbers = entity_vectors(
        module, tokenizer, texts, pooling, most, device=device
    )
    names = KnowledgeGraph.load(graph).ids
    manifest = {
        "source": "means over mentions in text",
        "encoder": model,
        "weights": chosen.identity,
        "pooling": pooling,
        "most": most,
        "graph": fingerprint(graph),
        "corpus": digest(texts.manifest),
    }
    ids = names.take(pa.array(entities)).to_pylist()
    EmbeddingTable(vectors, ids, manifest=manifest).save(out)
    with atomic_write(out / "counts.txt") as handle:
        handle.writelines(f"{n}\n" for n in numbers)
    return f"{out}: vectors of {len(entities):,} entities, {int(numbers.sum()):,} mentions"
