"""Entity linking over 477,000 entities x 100 (KeBioLM, Eq. 3 and 10), forward and backward, against
the plain full-logit version.

settings   320 mentions (16 sequences of 20) and 800 (16 of 50, the paper's most)
memory     peak of a fresh process (or of the GPU) over what it held before, gradients included;
           `ratio` is of these
seconds    medians of alternating runs; `time_ratio` above 1 means that ours is faster
equal      loss, mixture, and gradients of queries and table agree to 1e-4
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch import Tensor

from benchmarks.perf.alone import call_alone
from benchmarks.perf.speed._memory import forget_peak, resident
from models.losses import entity_softmax

ENTITIES, SIZE, CANDIDATES = 477_000, 100, 100


def plain(query: Tensor, table: Tensor, gold: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """All logits at once: their log-softmax at the gold row, and the k largest mixed."""
    logits = query @ table.T
    values, best = logits.topk(k, dim=1)
    mixture = torch.nn.functional.embedding_bag(
        best, table, per_sample_weights=values.softmax(1), mode="sum"
    )
    return torch.nn.functional.cross_entropy(logits, gold, reduction="none"), mixture


def inputs(mentions: int, entities: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    table = (
        torch.nn.functional.normalize(torch.randn(entities, SIZE, generator=rng))
        .to(device)
        .requires_grad_()
    )
    query = (3 * torch.randn(mentions, SIZE, generator=rng)).to(device).requires_grad_()
    return (
        query,
        table,
        torch.randint(entities, (mentions,), generator=rng).to(device),
        torch.randn(SIZE, generator=rng).to(device),
    )


def step(
    which: str, query: Tensor, table: Tensor, gold: Tensor, weight: Tensor
) -> tuple[Tensor, ...]:
    """(loss, mixture, gradient of queries, gradient of the table) of one forward and backward
    pass."""
    if which == "ours":
        loss, mixture, _ = entity_softmax(query, table, gold, CANDIDATES)
    else:
        loss, mixture = plain(query, table, gold, CANDIDATES)
    gradients = torch.autograd.grad(loss.mean() + (mixture @ weight).mean(), (query, table))
    return loss.detach(), mixture.detach(), *gradients


def print_peak(which: str, mentions: int, entities: int, device: str) -> None:
    """Print the MB at the peak of one step beyond what the process held before it."""
    data = inputs(mentions, entities, device)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() / 1e6
        result = step(which, *data)
        print(torch.cuda.max_memory_allocated() / 1e6 - before if result else 0.0)
        return
    step(which, *inputs(8, 1000, device))  # libraries allocate their own buffers at the first call
    forget_peak()
    before = resident("VmRSS")
    result = step(which, *data)
    print(resident("VmHWM") - before if result else 0.0)


def peak(which: str, mentions: int, entities: int, device: str) -> float:
    """MB at the peak of one step in a new process, beyond what that held before."""
    sizes = {"which": which, "mentions": mentions, "entities": entities, "device": device}
    return float(call_alone("benchmarks.perf.speed.entity_softmax:print_peak", sizes))


def seconds(which: str, data: tuple[Tensor, ...], device: str) -> float:
    started = time.perf_counter()
    step(which, *data)
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def compare_setting(mentions: int, entities: int, repeats: int, device: str) -> dict[str, Any]:
    data = inputs(mentions, entities, device)
    equal = all(
        torch.allclose(a, b, atol=1e-4, rtol=1e-4)
        for a, b in zip(step("ours", *data), step("plain", *data), strict=True)
    )
    taken: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(repeats):
        for which, times in taken.items():
            times.append(seconds(which, data, device))
    medians = {which: statistics.median(times) for which, times in taken.items()}
    memory = {which: peak(which, mentions, entities, device) for which in taken}
    return {
        "mentions": mentions,
        "entities": entities,
        "size": SIZE,
        "candidates": CANDIDATES,
        "device": device,
        "threads": torch.get_num_threads(),
        "equal": equal,
        "memory_mb": round(memory["ours"], 1),
        "plain_memory_mb": round(memory["plain"], 1),
        "memory_ratio": round(memory["plain"] / memory["ours"], 2),
        "seconds": round(medians["ours"], 3),
        "plain_seconds": round(medians["plain"], 3),
        "time_ratio": round(medians["plain"] / medians["ours"], 2),
    }


def measure_speed(
    repeats: int = 3, entities: int = ENTITIES, device: str = "cpu"
) -> dict[str, Any]:
    """Compare both on both settings. Returns the keys that benchmarks.perf.speed asks for, and the
    worst time_ratio.

    Args:
        repeats: Alternating runs of which the median counts.
        entities: Rows of the table.
        device: cpu or cuda.
    """
    settings = [compare_setting(mentions, entities, repeats, device) for mentions in (320, 800)]
    worst = min(settings, key=lambda s: s["memory_ratio"])
    return {
        "name": "entity_softmax",
        "ours": worst["memory_mb"],
        "reference": worst["plain_memory_mb"],
        "ratio": worst["memory_ratio"],
        "time_ratio": min(s["time_ratio"] for s in settings),
        "equal": all(s["equal"] for s in settings),
        "settings": settings,
    }
