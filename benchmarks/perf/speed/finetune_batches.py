"""Length-bucketed batches against shuffled ones: the same training epoch, the same examples, one
thread.

The reference is the usual loader: shuffled examples, padded to the longest of the batch. Both go
through the same encoder, head, loss and optimiser. `equal` says that both see every example once
and that the loss of an example does not depend on its batch mates.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.perf.speed import one_thread, summarize
from datamodules.finetune import FinetuneData
from datamodules.tasks import Tagged, save_task
from models.encoders import TextEncoder
from models.finetune import Tagger

WORDS = "the of patients with disease and gene in was treated for cells by a expression".split()


def texts(folder: Path, count: int, spread: float) -> Path:
    """A tagging task whose lengths are log-normal around 25 words, as abstract sentences are (sd of
    the log: `spread`)."""
    rng = random.Random(0)
    examples = []
    for i in range(count):
        length = round(rng.lognormvariate(3.1, spread))
        words = [rng.choice(WORDS) for _ in range(max(3, min(120, length)))]
        examples.append(Tagged(str(i), str(i), " ".join(words), [(0, len(words[0]), "x")]))
    save_task(
        folder,
        {"train": examples, "dev": examples[:2], "test": examples[:2]},
        name="t",
        kind="ner",
        metric="entity_f1",
        language="en",
    )
    return folder


def epoch(
    data: FinetuneData, order: list[np.ndarray], encoder: TextEncoder, head: Tagger
) -> tuple[float, int]:
    """(seconds of forward and backward passes, tokens with padding)."""
    tokens, started = 0, time.perf_counter()
    for numbers in order:
        batch = data.batch("train", numbers.tolist())
        head.loss(encoder(batch.input_ids, batch.attention_mask), batch).backward()
        encoder.zero_grad(set_to_none=True)
        head.zero_grad(set_to_none=True)
        tokens += batch.input_ids.numel()
    return time.perf_counter() - started, tokens


def losses(
    data: FinetuneData, order: list[np.ndarray], encoder: TextEncoder, head: Tagger
) -> dict[int, float]:
    """Loss of the first examples, by number, computed in the batches of `order`."""
    result: dict[int, float] = {}
    wanted = set(range(8))
    with torch.no_grad():
        for numbers in order:
            if wanted & set(numbers.tolist()):
                batch = data.batch("train", numbers.tolist())
                scores = head.scores(encoder(batch.input_ids, batch.attention_mask), batch)
                assert batch.labels is not None
                each = torch.nn.functional.cross_entropy(
                    scores.transpose(1, 2), batch.labels, ignore_index=-100, reduction="none"
                ).sum(1)
                result |= {
                    n: float(v) for n, v in zip(numbers.tolist(), each, strict=True) if n in wanted
                }
    return result


def measure_setting(
    name: str, count: int, spread: float, batch_size: int, repeats: int
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        data = FinetuneData(str(texts(Path(place) / "t", count, spread)), "minilm", 256, batch_size)
        data.setup()
        torch.manual_seed(0)
        encoder = TextEncoder("minilm").eval()  # no dropout: losses can be compared
        head = Tagger(encoder.hidden_size, 1, dropout=0.0)
        ours = data.order(0)
        shuffled = np.random.default_rng(0).permutation(count)
        plain = [shuffled[i : i + batch_size] for i in range(0, count, batch_size)]
        equal = (
            sorted(np.concatenate(ours).tolist())
            == sorted(np.concatenate(plain).tolist())
            == list(range(count))
        )
        a, b = losses(data, ours, encoder, head), losses(data, plain, encoder, head)
        equal = (
            equal
            and set(a) == set(b)
            and all(abs(a[k] - b[k]) <= 1e-3 * max(1, abs(a[k])) for k in a)
        )
        times = [
            (epoch(data, ours, encoder, head), epoch(data, plain, encoder, head))
            for _ in range(repeats)
        ]
    fast, slow = min(t[0][0] for t in times), min(t[1][0] for t in times)
    return {
        "setting": name,
        "ours": round(count / fast, 2),
        "reference": round(count / slow, 2),
        "ratio": round(slow / fast, 3),
        "padded_tokens": [times[0][0][1], times[0][1][1]],
        "equal": equal,
    }


def measure_speed(examples: int = 384, repeats: int = 2) -> dict[str, Any]:
    """Compare both with batches of 16 (the papers') and 32. Returns the keys that
    benchmarks.perf.speed asks for.

    Args:
        examples: Training examples of an epoch.
        repeats: Alternating epochs of which the fastest counts.
    """
    with one_thread():
        settings = [
            measure_setting(f"batches of {n}", examples, 0.55, n, repeats) for n in (16, 32)
        ]
    return summarize("finetune_batches", settings, "training examples/s")
