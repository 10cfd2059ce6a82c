"""Named sums of validation: they add up over batches and processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torchmetrics import Metric


class Sums(Metric):
    """A sum for each of `names`, in double precision. ``compute`` returns {name: sum over all
    batches and processes}."""

    full_state_update = False

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        for name in self.names:
            self.add_state(name, torch.zeros((), dtype=torch.double), dist_reduce_fx="sum")

    def update(self, sums: Mapping[str, Tensor | int]) -> None:
        """Add a batch's sums; of a name that is left out the batch has nothing. Raises KeyError for
        an unknown name."""
        for name, value in sums.items():
            if name not in self.names:
                raise KeyError(f"no sum {name!r}; expected one of {', '.join(self.names)}")
            setattr(
                self,
                name,
                getattr(self, name)
                + torch.as_tensor(value, dtype=torch.double, device=self.device),
            )

    def compute(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.names}


def prefixed(prefix: str, terms: Iterable[str], values: Iterable[Tensor]) -> dict[str, Tensor]:
    """{prefix_term: value}, as many as there are terms."""
    return {f"{prefix}_{term}": value for term, value in zip(terms, values, strict=True)}


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, and `part` where there is nothing to divide by."""
    return part / whole.clamp_min(1)
