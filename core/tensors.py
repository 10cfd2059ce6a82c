"""Files of tensors (safetensors) and of weights: whole, and numbers everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from core.files import InputError

if TYPE_CHECKING:
    from torch import Tensor


def read_tensors(file: str | Path, again: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name.

    again: what to do where it is damaged. Raises InputError for a file that is missing, cut or
        something else, and as :func:`check_finite`.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(file)
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error}). {again}") from error
    except SafetensorError as error:
        raise InputError(f"{file}: not a safetensors file ({error}). {again}") from error
    check_finite(str(file), tensors.items())
    return tensors


def check_finite(where: str, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Raise InputError for a weight that is no number or infinite: all that a model with one says
    may be."""
    for name, tensor in tensors:
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            count = int((~tensor.isfinite()).sum())
            raise InputError(
                f"{where}: {count:,} of {tensor.numel():,} weights of {name} are no finite numbers"
                " (nan or inf), as a training leaves them that ran away. Use an earlier checkpoint,"
                " or train again (--fresh) with a lower learning rate."
            )
