"""What validation measures: means and counts that add up over batches and processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

Number = Tensor | int
#: by name: (sum, count) of a mean, or a number that is added up
Measures = Mapping[str, Number | tuple[Number, Number]]


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, and `part` where there is nothing to divide by."""
    return part / whole.clamp_min(1)


def term_means(
    terms: Sequence[str], sums: Iterable[Tensor], counts: Iterable[Tensor]
) -> dict[str, tuple[Tensor, Tensor]]:
    """{loss_<term>: (sum, count)} of a loss's terms, as many as there are names."""
    rows = zip(terms, sums, counts, strict=True)
    return {f"loss_{term}": (part, count) for term, part, count in rows}


def total_loss(
    reported: Mapping[str, Tensor], terms: Sequence[str], weights: Sequence[float] | None = None
) -> Tensor:
    """The means of the loss's terms, each times its weight (1), added up."""
    means = torch.stack([reported[f"loss_{term}"] for term in terms])
    return (means if weights is None else means * means.new_tensor(weights)).sum()


class Totals:
    """Sums of :data:`Measures`, in double precision."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}  # (2,) of a mean, (1,) of a number

    def reset(self) -> None:
        self.sums.clear()

    def add(self, measures: Measures, device: torch.device) -> None:
        """Add a batch's measures."""
        for name, measure in measures.items():
            parts = measure if isinstance(measure, tuple) else (measure,)
            values = [torch.as_tensor(p, dtype=torch.double, device=device) for p in parts]
            added = torch.stack([value.reshape(()) for value in values])
            self.sums[name] = self.sums[name] + added if name in self.sums else added

    def means(self, united: Tensor) -> dict[str, Tensor]:
        """{name: mean or number} of `united`: :meth:`flat`, added up over the processes."""
        parts = united.split([len(part) for part in self.sums.values()])
        return {
            name: ratio(*part) if len(part) == 2 else part[0]
            for name, part in zip(self.sums, parts, strict=True)
        }

    def flat(self) -> Tensor:
        """All sums in one tensor, in the order of their names' first batch."""
        return torch.cat(list(self.sums.values()))
