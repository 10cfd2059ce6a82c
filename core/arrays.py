"""Tables in Parquet files, and numbers of many examples in one: arrays by name, columns side by
side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.files import InputError, atomic_write, explain_error

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


def save_arrays(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays (n, k) by name. Their n may differ: shorter ones end in empty cells."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = max((len(a) for a in arrays.values()), default=0)
    columns = {}
    for name, array in arrays.items():
        for i, column in enumerate(array.T):
            padded = [*column.tolist(), *[None] * (rows - len(column))]
            columns[f"{name}:{i}"] = pa.array(
                padded, pa.int64() if array.dtype.kind in "iub" else pa.float64()
            )
    with atomic_write(path, "wb") as handle:
        pq.write_table(pa.table(columns), handle, compression="zstd")


def load_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays that :func:`save_arrays` wrote. Raises InputError for a missing or damaged
    file."""
    import numpy as np

    table = read_table(path, again="Make the run again.")
    columns: dict[str, list[np.ndarray]] = {}
    for name in table.column_names:
        columns.setdefault(name.rpartition(":")[0], []).append(table[name].drop_null().to_numpy())
    return {name: np.stack(parts, axis=1) for name, parts in columns.items()}


def read_table(
    path: str | Path,
    columns: Sequence[str] = (),
    schema: pa.Schema | None = None,
    again: str = "Build it again.",
) -> pa.Table:
    """The `columns` (all) of a Parquet file, as `schema` has them. Raises InputError, which ends
    with `again`, for what is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = list(columns) or (schema.names if schema is not None else None)
    try:
        file = pq.ParquetFile(path)  # pq.read_table would import pyarrow.dataset first
        stored = file.schema_arrow.names
        if wanted is not None and (missing := [name for name in wanted if name not in stored]):
            raise InputError(
                f"{path}: expected the columns {', '.join(wanted)}; {', '.join(missing)} missing."
                f" {again}"
            )
        table = file.read(wanted)
        table.validate(full=True)
        return table if schema is None else table.select(schema.names).cast(schema)
    except FileNotFoundError as error:
        raise explain_error(error, Path(path)) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise InputError(
            f"{path}: not a readable Parquet file ({' '.join(str(error).split()):.200}). {again}"
        ) from error
