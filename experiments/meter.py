"""What a training step costs: tokens, floating-point operations, seconds, and the share of the
processor's peak.

A layer of P parameters costs 6 P FLOP a token, forward and backward: a multiplication and an
addition for each parameter, and twice that for the two gradients (Kaplan et al. 2020, Section 2.1).
Attention scores and their weighted sums add 12 x hidden x length. Embeddings, which are looked up,
heads and losses are left out: the share of the peak counts their time as lost. Padding is left out,
too: only real tokens count.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from core.files import InputError
from core.json_files import write_json
from models.packing import Packing

#: of the matrices whose product measures the peak; between small ones a GPU waits for the host
SIDE, GPU_SIDE = 2048, 8192
DEVICE_LOCK = "KEPL_DEVICE_LOCK"  #: environment variable: the file that :func:`alone` locks


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A block that waits until no other process with the same DEVICE_LOCK is in one: they measure a
    device, one at a time."""
    if not (name := os.environ.get(DEVICE_LOCK)):
        yield
        return
    with open(name, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def flop(parameters: float, tokens: Any, layers: int, hidden: int, length: Any) -> Any:
    """FLOP of training on T `tokens` in sequences of `length`, by layers of P `parameters`: 6 P T +
    12 layers hidden length T."""
    return 6 * parameters * tokens + 12 * layers * hidden * length * tokens


def product_peak(
    device: torch.device, dtype: torch.dtype, side: int | None = None, seconds: float = 0.5
) -> float:
    """FLOP a second of the fastest of several products of two `side` x `side` matrices."""
    side = side or (GPU_SIDE if device.type == "cuda" else SIDE)
    a, b = torch.randn(2, side, side, device=device).to(dtype)
    best, end = math.inf, time.perf_counter() + seconds
    while best == math.inf or time.perf_counter() < end:
        started = _now(device)
        a @ b
        best = min(best, _now(device) - started)
    return 2 * side**3 / best


def _now(device: torch.device) -> float:
    """The time once all that was asked of `device` is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def real_lengths(rows: int, length: int, mask: Any) -> Any:
    """(rows,) tokens of each sequence that is no padding, from what a layer accepts as its mask.

    mask: None, a :class:`Packing`, (B, L), or (B, 1, queries, L) with True, or 0, where a query
        reads; the last query of a decoder reads every token.
    """
    if mask is None:
        return torch.full((rows,), length, dtype=torch.float64)
    if isinstance(mask, Packing):
        return mask.offsets.diff().double()
    read = mask if mask.ndim == 2 else mask[:, 0, -1]
    real = read >= 0 if read.is_floating_point() else read.bool()
    return real.sum(-1).double().expand(rows)


def states_and_mask(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Tensor, Any]:
    """(states, mask) of a layer's arguments."""
    states = arguments[0] if arguments else named["hidden_states"]
    return states, arguments[1] if len(arguments) > 1 else named.get("attention_mask")


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class Meter(pl.Callback):
    """Writes what the steps of a training cost to the JSON file `file`; the numbers are process
    0's, times the processes.

    Its training and validations run while no other of a check does (:func:`alone`). The first step
    is left out where there are several: it allocates memory and sets up communication. Raises
    InputError for a loss that is not finite, and for a model without transformer layers.
    """

    def __init__(self, file: str, side: int | None = None) -> None:
        self.file, self.side = file, side
        # numbers, or tensors: what the host does not know stays on the device until a step's end
        self.tokens: Any = 0.0
        self.flop: Any = 0.0
        self.lengths: Any = 0.0
        # time, tokens, FLOP and tokens x length so far, after each step
        self.marks: list[tuple[float, float, float, float]] = []

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        self.turn = contextlib.ExitStack()
        self.turn.enter_context(alone())

    def teardown(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        self.turn.close()

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        layers = [part for part in module.modules() if isinstance(part, GradientCheckpointingLayer)]
        if not layers:
            raise InputError(
                f"{type(module).__name__}: no transformer layers, so there is nothing to count"
            )
        stacks = [
            part
            for part in module.modules()
            if isinstance(part, nn.ModuleList) and len(part) and part[0] in layers
        ]
        first = {id(stack[0]) for stack in stacks}
        self.layers = len(layers)
        self.sizes = {id(layer): count_parameters(layer) for layer in layers}
        self.hidden = 0

        def count_inputs(layer: nn.Module, inputs: Any, named: Any) -> None:
            self.count(layer, *states_and_mask(inputs, named), id(layer) in first)

        self.hooks = [
            layer.register_forward_pre_hook(count_inputs, with_kwargs=True) for layer in layers
        ]
        if trainer.strategy.root_device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.mark(trainer)

    def count(self, layer: nn.Module, states: Tensor, mask: Any, first: bool) -> None:
        """Add one pass of `states` (B, L, H), of a packing (1, T, H), through `layer`; its tokens,
        too, where it is the first of its stack."""
        rows, length, self.hidden = states.shape
        if torch.is_grad_enabled():
            lengths = real_lengths(rows, length, mask)
            tokens, squares = lengths.sum(), lengths.square().sum()  # a sequence attends to itself
            self.flop += flop(self.sizes[id(layer)], tokens, 1, self.hidden, squares / tokens)
            self.tokens += tokens * first
            self.lengths += squares * first

    def mark(self, trainer: pl.Trainer) -> None:
        self.marks.append(
            (
                _now(trainer.strategy.root_device),
                float(self.tokens),
                float(self.flop),
                float(self.lengths),
            )
        )

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *args: Any
    ) -> None:
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        if not torch.isfinite(loss).all():
            raise InputError(
                f"the loss became {float(loss)} in step {trainer.global_step}; the profile's"
                " settings do not train"
            )
        # the last of the batches that a step accumulates
        if trainer.global_step >= len(self.marks):
            self.mark(trainer)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        for hook in self.hooks:
            hook.remove()
        device = trainer.strategy.root_device
        kind = str(trainer.precision)
        dtype = torch.float16 if kind.startswith("16") else torch.float32
        dtype = torch.bfloat16 if "bf16" in kind else dtype
        peak = product_peak(device, dtype, self.side)
        begin, end = self.marks[1 if len(self.marks) > 2 else 0], self.marks[-1]
        steps = len(self.marks) - (2 if len(self.marks) > 2 else 1)
        seconds, tokens, done, lengths = ((b - a) / steps for a, b in zip(begin, end, strict=True))
        if not trainer.is_global_zero:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        world = trainer.world_size
        write_json(
            self.file,
            {
                "processes": world,
                "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
                "precision": str(dtype).removeprefix("torch."),
                "steps": len(self.marks) - 1,
                "seconds": seconds,
                "tokens": tokens * world,
                "flop": done * world,
                "peak": peak * world,
                "batch": data.batch_size,
                "examples": data.steps_per_epoch * data.batch_size,
                "parameters": sum(self.sizes.values()),
                "layers": self.layers,
                "hidden": self.hidden,
                "length": lengths / tokens,
                "gpu_memory": (
                    torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
                ),
            },
        )
