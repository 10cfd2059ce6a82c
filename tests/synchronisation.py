"""Which operations of a training step would make a GPU wait for the host, seen on the CPU.

On CUDA an operation waits when the host reads a value (`.item()`), when a result's shape depends on
values (`nonzero`, a boolean index, `unique`), and when the host sends a value that it has just made
(`torch.tensor`, `new_tensor`). A dispatch mode sees the first two, in backward passes as well; a
function mode sees the third, which has no device on a CPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).parents[1]
#: operators whose result, or its shape, the host must know
READ = {
    "_local_scalar_dense",
    "nonzero",
    "nonzero_numpy",
    "argwhere",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
    "bincount",
    "equal",
    "histc",
}
INDEXED = {
    "index",
    "index_put",
    "index_put_",
    "_index_put_impl_",
    "_unsafe_index",
    "_unsafe_index_put",
}
SENT = {torch.tensor, torch.as_tensor, torch.from_numpy, torch.Tensor.new_tensor}


def waits(operator: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether an operator of ATen waits on CUDA."""
    name = operator.__name__.split(".")[0]
    if name == "repeat_interleave":
        return named.get("output_size") is None
    if name in INDEXED:
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in arguments[1])
    return name in READ


def place() -> str:
    """The innermost line of this repository that runs, `models/mlm.py:function`; "backward" where
    there is none but the test's."""
    frame = sys._getframe(1)
    while frame is not None:  # type: ignore[redundant-expr]
        file = Path(frame.f_code.co_filename)
        if (
            file.is_relative_to(ROOT)
            and not file.is_relative_to(ROOT / "tests")
            and ".venv" not in file.parts
        ):
            return f"{file.relative_to(ROOT)}:{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return "backward"


class _Operators(TorchDispatchMode):
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if waits(operator, args, kwargs or {}):
            self.found[f"{place()} {operator.__name__.split('.')[0]}"] += 1
        return operator(*args, **(kwargs or {}))


class _Calls(TorchFunctionMode):
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        new = function in SENT and not isinstance(
            args[0] if function is not torch.Tensor.new_tensor else None, torch.Tensor
        )
        if new:
            self.found[f"{place()} {function.__name__}"] += 1
        return function(*args, **(kwargs or {}))


def seen(found: Counter[str]) -> ExitStack:
    """A context in which `found` counts what would wait: "file:function operator" -> times."""
    stack = ExitStack()
    stack.enter_context(_Calls(found))
    stack.enter_context(_Operators(found))
    return stack


class Synchronisations(pl.Callback):
    """Counts what would wait between the start of a training batch and the end of its optimiser
    step.

    Of all batches but the first, in which Lightning makes its metrics and the optimiser its state.
    """

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.steps = 0

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self.open = seen(self.found if trainer.global_step else Counter())

    def on_train_batch_end(self, *_: Any) -> None:
        self.open.close()
        self.steps += 1
