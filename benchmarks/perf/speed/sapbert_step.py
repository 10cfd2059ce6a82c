"""A SapBERT step on MiniLM and HPO's names: one call over length groups, against two calls that pad
all names to 25.

Both run the same encoder, miner, loss and backward pass, so that only how names are encoded
differs; the released code pads as the reference does. Names a second, the median of alternating
steps on the same pairs, dropout off. `equal` says that loss and gradients of the step agree.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.perf.speed import one_thread, summarize
from datamodules.sapbert import SapBERTBatch, SapBERTData
from datamodules.sapbert.name_pairs import build_pairs
from kg.build.sources import hpo
from models.sapbert import SapBERT

LENGTH = 25


def pad_pairs(data: SapBERTData, numbers: np.ndarray) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(ids, mask, concept) of the first names of the pairs, and of the second, each padded to
    25."""
    assert data.pairs is not None
    rows = data.pairs[numbers]
    batches = []
    for column in (0, 1):
        ids = torch.full((len(rows), LENGTH), int(data.tokenizer.pad_token_id))  # type: ignore[call-overload]
        mask = torch.zeros(len(rows), LENGTH)
        for row in range(len(rows)):
            pair_ids = data.make_batch(rows[row, column, None], rows[row, 2, None]).input_ids[0][0]
            ids[row, : len(pair_ids)], mask[row, : len(pair_ids)] = pair_ids, 1
        batches.append((ids, mask.long(), torch.from_numpy(rows[:, 2])))
    return batches


def ours(model: SapBERT, batch: SapBERTBatch) -> Tensor:
    loss = model.alignment(model(batch), batch.concept)[0]
    loss.backward()
    return loss.detach()


def plain(model: SapBERT, sides: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    assert model.encoder is not None
    f = torch.cat([model.encoder.vectors(ids, mask) for ids, mask, _ in sides])
    loss = model.alignment(
        torch.nn.functional.normalize(f, dim=1), torch.cat([concept for *_, concept in sides])
    )[0]
    loss.backward()
    return loss.detach()


def compare_setting(model: SapBERT, data: SapBERTData, pairs: int, repeats: int) -> dict[str, Any]:
    numbers = np.random.default_rng(0).permutation(len(data.pairs))[:pairs]  # type: ignore[arg-type]
    batch, sides = data.batch(numbers, 0), pad_pairs(data, numbers)
    results: list[tuple[Tensor, list[Tensor]]] = []
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for which, run_one in enumerate((lambda: ours(model, batch), lambda: plain(model, sides))):
            model.zero_grad()
            started = time.perf_counter()
            loss = run_one()
            taken[which].append(time.perf_counter() - started)
            if len(results) < 2:
                results.append(
                    (loss, [p.grad.clone() for p in model.parameters() if p.grad is not None])
                )
    (loss, gradients), (other, others) = results
    equal = bool((loss - other).abs() <= 1e-5) and all(
        torch.allclose(a, b, atol=1e-5, rtol=1e-3) for a, b in zip(gradients, others, strict=True)
    )
    fast, slow = map(statistics.median, taken)
    return {
        "setting": f"{pairs} pairs",
        "ours": round(2 * pairs / fast, 1),
        "reference": round(2 * pairs / slow, 1),
        "ratio": round(slow / fast, 2),
        "padded_tokens": [sum(i.numel() for i in batch.input_ids), 2 * pairs * LENGTH],
        "equal": equal,
    }


def measure_speed(pairs: int = 240, repeats: int = 3) -> dict[str, Any]:
    """Compare both on one thread. Returns the keys that benchmarks.perf.speed asks for.

    Args:
        pairs: Pairs of a step.
        repeats: Alternating steps of which the median counts.
    """
    with one_thread(), tempfile.TemporaryDirectory() as place:
        hpo.read().save(Path(place) / "graph")
        folder = build_pairs([f"{place}/graph"], "minilm", f"{place}/pairs")
        data = SapBERTData(str(folder), "minilm", batch_size=pairs, max_length=LENGTH)
        data.setup()
        model = SapBERT("minilm", dropout=0.0)
        model.configure_model()
        settings = [compare_setting(model, data, pairs, repeats)]
    return summarize("sapbert_step", settings, "names/s")
