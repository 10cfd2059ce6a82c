"""The loss of a linear-chain CRF and its gradients, against pytorch-crf, one thread.

settings   batches of 16 sequences of up to 128 and 256 tokens, 11 and 23 labels
equal      losses to 1e-5, gradients of the scores to 1e-5
ratio      of steps a second, each at its fastest
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchcrf import CRF

from benchmarks.perf.speed import one_thread, summarize
from models.crf import LinearChainCRF


def timed_step(loss: Callable[[Tensor], Tensor], scores: Tensor) -> tuple[float, Tensor, Tensor]:
    """(seconds, loss, gradient of the scores) of one step."""
    leaf = scores.clone().requires_grad_()
    started = time.perf_counter()
    value = loss(leaf)
    value.backward()
    assert leaf.grad is not None
    return time.perf_counter() - started, value.detach(), leaf.grad


def measure_setting(labels: int, length: int, repeats: int) -> dict[str, Any]:
    torch.manual_seed(0)
    theirs, ours = CRF(labels, batch_first=True), LinearChainCRF(labels)
    ours.load_state_dict(theirs.state_dict())
    scores, tags = torch.randn(16, length, labels), torch.randint(labels, (16, length))
    mask = torch.arange(length) < torch.randint(length // 3, length + 1, (16, 1))
    fast, slow, equal = [], [], True
    for _ in range(repeats):
        seconds, value, gradient = timed_step(lambda x: ours(x, tags, mask), scores)
        fast.append(seconds)
        seconds, wanted, reference = timed_step(
            lambda x: theirs(x, tags, mask, reduction="token_mean"), scores
        )
        slow.append(seconds)
        same = torch.allclose(value, wanted, atol=1e-5)
        equal = equal and same and torch.allclose(gradient, reference, atol=1e-5)
    return {
        "setting": f"{labels} labels, {length} tokens",
        "ours": round(1 / min(fast), 1),
        "reference": round(1 / min(slow), 1),
        "ratio": round(min(slow) / min(fast), 2),
        "equal": equal,
    }


def measure_speed(repeats: int = 5) -> dict[str, Any]:
    """Compare both. Returns the keys that benchmarks.perf.speed asks for.

    Args:
        repeats: Alternating runs of which the fastest counts.
    """
    with one_thread():
        settings = [
            measure_setting(labels, length, repeats) for labels in (11, 23) for length in (128, 256)
        ]
    return summarize("crf", settings, "steps/s")
