"""What knowledge does to the states of names that are linked, layer by layer.

    kepl figures smedbert OF=diagnosis [MODEL=smedbert NAMES=500 SEED=0 OUT=FOLDER]

Each name is read three times: plainly, with what its entity is given (SMedBERT: its neighbours),
and with what another name's is. Its vector is the mean of its tokens' states without [CLS] and
[SEP], as in the retrieval of synonyms (Table 1).

    to plain    cosine of the name read with knowledge to the name read plainly
    to foreign  cosine of the name with its own to the name with another's knowledge: near 1,
    knowledge shifts all names alike
    others      mean cosine among different names: near 1, names can hardly be distinguished
    dimensions  (sum of eigenvalues)^2 / sum of their squares, of the covariance of the names' unit
                vectors: in how many directions names differ; from 1 to the hidden size
    norm        mean length

Every encoder whose export links mentions can be asked: MODEL=ernie, MODEL=knowbert, a folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.arrays import read_table
from core.dotted import import_object
from core.files import InputError, atomic_write
from core.spreadsheets import CsvWriter
from core.tracking import runs_folder
from datamodules.rows import pad_rows
from datamodules.tokenizers import load_tokenizer
from experiments.names import encoder

FILE = "diagnosis.csv"

MEASURES = (
    "to plain",
    "to foreign",
    "others, plain",
    "others",
    "dimensions, plain",
    "dimensions",
    "norm, plain",
    "norm",
)
AT_ONCE = 64  # names


class Row(NamedTuple):
    """The measures behind a layer (0: the embeddings)."""

    layer: int
    values: dict[str, float]


def among_others(vectors: Tensor) -> float:
    """Mean cosine of different rows of (n, d)."""
    unit = torch.nn.functional.normalize(vectors, dim=1)
    n = len(unit)
    return float(((unit.sum(0) ** 2).sum() - n) / (n * (n - 1)))


def dimensions(vectors: Tensor) -> float:
    """The number of directions in which the rows (n, d), at unit length, differ."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=1)
    spread = torch.linalg.svdvals(unit - unit.mean(0)) ** 2
    return float(spread.sum() ** 2 / (spread**2).sum().clamp_min(1e-300))


def measures(plain: Tensor, right: Tensor, foreign: Tensor) -> dict[str, float]:
    """MEASURES of a layer's vectors (n, d) of the names read in the three ways."""
    cosine = torch.nn.functional.cosine_similarity
    values = (
        cosine(right, plain).mean(),
        cosine(right, foreign).mean(),
        among_others(plain),
        among_others(right),
        dimensions(plain),
        dimensions(right),
        plain.norm(dim=1).mean(),
        right.norm(dim=1).mean(),
    )
    return dict(zip(MEASURES, map(float, values), strict=True))


@contextmanager
def record_states(bert: Any) -> Iterator[list[Tensor]]:
    """The states (B, L, H) behind the embeddings and every layer of what is read inside."""
    states: list[Tensor] = []

    def keep(_module: Any, _given: Any, result: Tensor) -> None:
        states.append(result)

    # ERNIE's layers are called part by part
    ends = (bert.embeddings, *(layer.output for layer in bert.encoder.layer))
    hooks = [part.register_forward_hook(keep) for part in ends]
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


def linked_alone(
    names: list[str], link: Any, offsets: list[list[tuple[int, int]]]
) -> tuple[list[int], Any]:
    """(the names with exactly one mention that is given something, those mentions in order)."""
    mentions = link(names, offsets)
    informed = torch.ones(len(mentions.span), dtype=torch.bool)
    if hasattr(mentions, "neighbours"):
        informed = mentions.neighbours[:, 0] >= 0
    rows = mentions.span[:, 0].tolist()
    counts = Counter(rows)
    mask = torch.tensor(
        [m for m, row in enumerate(rows) if counts[row] == 1 and bool(informed[m])],
        dtype=torch.long,
    )
    return [rows[m] for m in mask.tolist()], type(mentions)(*(part[mask] for part in mentions))


def slice_mentions(mentions: Any, begin: int) -> Any:
    """The mentions of a batch, one a row, from row `begin` on."""
    part = type(mentions)(*(values[begin : begin + AT_ONCE] for values in mentions))
    span = part.span.clone()
    span[:, 0] = torch.arange(len(span))
    return part._replace(span=span)


@torch.inference_mode()
def diagnose_model(
    model: str = "smedbert", ckpt: str | None = None, names: int = 500, seed: int = 0
) -> tuple[list[Row], int]:
    """(what knowledge does behind each layer, of how many names). Raises InputError when the
    encoder is given no mentions."""
    chosen = encoder(model, ckpt)
    if chosen.linker is None:
        raise InputError(
            f"MODEL={model}: it links no mentions; expected an encoder that does (smedbert, ernie,"
            " knowbert)"
        )
    read = import_object(chosen.load, "models")(chosen.folder).eval()
    tokenizer = load_tokenizer(chosen.folder)
    link = import_object(chosen.linker, "datamodules")(chosen.folder)
    column = read_table(Path(chosen.folder) / "names.parquet", ["name"])["name"]
    distinct = sorted(set(column.to_pylist()))
    order = np.random.default_rng(seed).permutation(len(distinct))
    drawn = [distinct[i] for i in order[: 4 * names]]
    encoded = tokenizer(drawn, truncation=True, max_length=32, return_offsets_mapping=True)
    rows, mentions = linked_alone(drawn, link, encoded["offset_mapping"])
    rows, mentions = rows[:names], type(mentions)(*(part[:names] for part in mentions))
    if len(rows) < 2:
        raise InputError(
            f"MODEL={model}: {len(rows)} of {len(drawn)} names are linked alone; expected at"
            " least 2"
        )
    other = mentions._replace(
        **{k: part.roll(1, 0) for k, part in mentions._asdict().items() if k != "span"}
    )
    vectors: dict[str, list[list[Tensor]]] = {"plain": [], "own": [], "foreign": []}
    ends = torch.tensor(tokenizer.all_special_ids)
    for begin in range(0, len(rows), AT_ONCE):
        ids = [encoded["input_ids"][row] for row in rows[begin : begin + AT_ONCE]]
        padded, mask = pad_rows(ids, tokenizer.pad_token_id or 0)
        text = mask * ~torch.isin(padded, ends)
        for way, knowledge in (("plain", None), ("own", mentions), ("foreign", other)):
            part = None if knowledge is None else slice_mentions(knowledge, begin)
            with record_states(read.bert) as states:
                read(padded, mask, part)
            pooled = [
                (s * text[..., None]).sum(1) / text.sum(1, keepdim=True).clamp_min(1)
                for s in states
            ]
            vectors[way].append(pooled)
    layers = zip(*map(_join_batches, vectors.values()), strict=True)
    return [Row(i, measures(*three)) for i, three in enumerate(layers)], len(rows)


def _join_batches(batches: list[list[Tensor]]) -> list[Tensor]:
    """The vectors of all names behind each layer."""
    return [torch.cat(parts) for parts in zip(*batches, strict=True)]


def table(rows: list[Row], model: str, count: int) -> str:
    """The measures as text."""
    head = f"{'layer':<6}" + "".join(f"{name:>19}" for name in MEASURES)
    lines = [
        f"{row.layer:<6}" + "".join(f"{row.values[name]:>19.3f}" for name in MEASURES)
        for row in rows
    ]
    title = (
        f"{model}: {count} names that are linked, read plainly, with their own and with another's"
        " knowledge"
    )
    return "\n".join([title, head, *lines])


def diagnose(model: str, ckpt: str | None, names: int, seed: int, out: Path | None) -> Path:
    """Print the table, and write it as diagnosis.csv into `out`; returns the file."""
    rows, count = diagnose_model(model, ckpt, names, seed)
    print(table(rows, model, count))
    file = (out or runs_folder() / "figures" / "diagnosis") / FILE
    with atomic_write(file) as handle:
        writer = CsvWriter(handle)
        writer.writerow(["model", "names", "layer", *MEASURES])
        for row in rows:
            values = [f"{row.values[name]:.6f}" for name in MEASURES]
            writer.writerow([model, count, row.layer, *values])
    print(file)
    return file
