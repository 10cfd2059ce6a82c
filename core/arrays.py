"""Numbers of many examples in one Parquet file: arrays by name, columns side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from core.files import InputError, explained, written

if TYPE_CHECKING:
    import numpy as np


def save_arrays(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays (n, k) by name. Their n may differ: shorter ones end in empty cells."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = max((len(a) for a in arrays.values()), default=0)
    columns = {}
    for name, array in arrays.items():
        for i, column in enumerate(array.T):
            padded = [*column.tolist(), *[None] * (rows - len(column))]
            columns[f"{name}:{i}"] = pa.array(padded, pa.int64() if array.dtype.kind in "iub" else pa.float64())
    with written(path, "wb") as handle:
        pq.write_table(pa.table(columns), handle, compression="zstd")


def load_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays that :func:`save_arrays` wrote. Raises InputError for a missing or damaged file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise explained(error, Path(path)) from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({error}). Make the run again.") from error
    columns: dict[str, list[np.ndarray]] = {}
    for name in table.column_names:
        columns.setdefault(name.rpartition(":")[0], []).append(table[name].drop_null().to_numpy())
    return {name: np.stack(parts, axis=1) for name, parts in columns.items()}
