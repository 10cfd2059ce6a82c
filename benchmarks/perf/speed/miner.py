"""Hard-pair mining and multi-similarity loss (SapBERT, Eq. 1 and 2) against
pytorch-metric-learning's.

settings   480 names (240 pairs, the paper's batch) and 960, vectors of 384 (MiniLM's); the
           reference is TripletMarginMiner (margin .2, "all") and MultiSimilarityLoss(alpha=1,
           beta=60, base=.5), as SapBERT's released code has them
ratio      of the median times of miner and loss in alternating runs, at the worst setting;
           `backward_ratio` is with the backward pass to the vectors, most of which both spend in
           the same matrix products
memory     at 1,920 names: peak of a fresh process over what it held before; `memory_ratio` is the
           reference's over ours
equal      the same pairs are mined, and the gradients of the vectors agree to 1e-6
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.perf.alone import call_alone
from benchmarks.perf.speed._memory import forget_peak, resident
from core.files import InputError
from models.layers import unit_length
from models.sapbert import hard_pairs, mined_multi_similarity, similarities

SIZE, LARGE = 384, 1920
NOISE = 1.5  # of a name around its concept; about a third of all pairs are hard then


def inputs(names: int) -> tuple[Tensor, Tensor]:
    """((names, SIZE) vectors, (names,) concepts): two names a concept, as in a batch of pairs."""
    rng = torch.Generator().manual_seed(0)
    concept = torch.arange(names // 2).repeat(2)
    centre = torch.randn(names // 2, SIZE, generator=rng)
    return (
        centre.repeat(2, 1) + NOISE * torch.randn(names, SIZE, generator=rng)
    ).requires_grad_(), concept


def reference(f: Tensor, concept: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    from pytorch_metric_learning.losses import MultiSimilarityLoss
    from pytorch_metric_learning.miners import TripletMarginMiner

    triplets = TripletMarginMiner(margin=0.2, type_of_triplets="all")(f, concept)
    return MultiSimilarityLoss(alpha=1, beta=60, base=0.5)(f, concept, triplets), triplets


def ours(f: Tensor, concept: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    loss, counts = mined_multi_similarity(unit_length(f), concept)
    return loss, (counts,)


def step(which: str, f: Tensor, concept: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """(loss, gradient of f, what was mined)."""
    loss, mined = (ours if which == "ours" else reference)(f, concept)
    return loss.detach(), torch.autograd.grad(loss, f)[0], mined


def same(names: int) -> bool:
    f, concept = inputs(names)
    loss, gradient, (counts,) = step("ours", f, concept)
    other_loss, other_gradient, (anchor, positive, negative) = step("reference", f, concept)
    masks = hard_pairs(similarities(normalize(f.detach()))[1], concept)
    equal = counts.tolist() == [int(mask.sum()) for mask in masks]
    for mask, column in zip(masks, (positive, negative), strict=True):
        pairs = torch.zeros(names, names, dtype=torch.bool)
        pairs[anchor, column] = True
        equal = equal and torch.equal(mask, pairs)
    return (
        equal
        and bool(abs(loss - other_loss) <= 1e-5)
        and bool((gradient - other_gradient).abs().max() <= 1e-6)
    )


def print_peak(which: str, names: int) -> None:
    """Print the MB at the peak of one step beyond what the process held before it."""
    data = inputs(names)
    step(which, *inputs(16))  # libraries allocate their own buffers at the first call
    forget_peak()
    before = resident("VmRSS")
    result = step(which, *data)
    print(resident("VmHWM") - before if result else 0.0)


def peak(which: str, names: int) -> float:
    """MB at the peak of one step in a new process, beyond what that held before."""
    # Both give freed blocks back at once: what is in use counts, not what the allocator happens to
    # keep.
    environment = {"MALLOC_MMAP_THRESHOLD_": "131072"}
    sizes = {"which": which, "names": names}
    return float(call_alone("benchmarks.perf.speed.miner:print_peak", sizes, environment))


def compare_setting(names: int, repeats: int) -> dict[str, Any]:
    data = inputs(names)
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats):
        for which, often in (("ours", 5), ("reference", 1)):
            for _ in range(often):
                started = time.perf_counter()
                loss, _ = (ours if which == "ours" else reference)(*data)
                taken[which].append(time.perf_counter() - started)
                torch.autograd.grad(loss, data[0])
                taken[f"{which} back"].append(time.perf_counter() - started)
    median = {which: statistics.median(times) for which, times in taken.items()}
    return {
        "names": names,
        "size": SIZE,
        "threads": torch.get_num_threads(),
        "milliseconds": round(1e3 * median["ours"], 2),
        "reference_milliseconds": round(1e3 * median["reference"], 1),
        "ratio": round(median["reference"] / median["ours"], 1),
        "backward_ratio": round(median["reference back"] / median["ours back"], 1),
        "equal": same(names),
    }


def measure_speed(repeats: int = 5, large: int = LARGE) -> dict[str, Any]:
    """Compare both. Returns the keys that benchmarks.perf.speed asks for, and memory_ratio. Raises
    InputError without the reference.

    Args:
        repeats: Alternating runs of which the median counts.
        large: Names at which memory is measured.
    """
    if importlib.util.find_spec("pytorch_metric_learning") is None:
        raise InputError(
            "pytorch-metric-learning, the reference, is not installed. Run make setup."
        )
    settings = [compare_setting(names, repeats) for names in (480, 960)]
    memory = {which: peak(which, large) for which in ("ours", "reference")}
    worst = min(settings, key=lambda s: s["ratio"])
    return {
        "name": "miner",
        "unit": "milliseconds",
        "ours": worst["milliseconds"],
        "reference": worst["reference_milliseconds"],
        "ratio": worst["ratio"],
        "memory_names": large,
        "memory_mb": round(memory["ours"], 1),
        "reference_memory_mb": round(memory["reference"], 1),
        "memory_ratio": round(memory["reference"] / max(memory["ours"], 0.1), 1),
        "equal": all(s["equal"] for s in settings),
        "settings": settings,
    }
