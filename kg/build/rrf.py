"""UMLS's Rich Release Format: the columns of its tables, their rows in batches, and concept ids as
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from core.files import InputError
from kg.build.delimited import batches, broken_line

COLUMNS = {
    name: tuple(columns.split())
    for name, columns in {
        "MRCONSO": (
            "CUI LAT TS LUI STT SUI ISPREF AUI SAUI SCUI SDUI SAB TTY CODE STR SRL SUPPRESS CVF"
        ),
        "MRSTY": "CUI TUI STN STY ATUI CVF",
        "MRREL": "CUI1 AUI1 STYPE1 REL CUI2 AUI2 STYPE2 RELA RUI SRUI SAB SL RG DIR SUPPRESS CVF",
        "MRDEF": "CUI AUI ATUI SATUI SAB DEF SUPPRESS CVF",
        "MRCUI": "CUI1 VER REL RELA MAPREASON CUI2 MAPIN",
    }.items()
}
USED = {
    "MRCONSO": ("CUI", "LAT", "TS", "STT", "SUI", "ISPREF", "SAB", "TTY", "STR", "SUPPRESS"),
    "MRSTY": ("CUI", "TUI", "STY"),
    "MRREL": ("CUI1", "REL", "CUI2", "RELA", "SAB", "SUPPRESS"),
    "MRDEF": ("CUI", "SAB", "DEF", "SUPPRESS"),
    "MRCUI": ("CUI1", "REL", "CUI2"),
}
PATTERNS = {
    "CUI": r"C\d{7}",
    "CUI1": r"C\d{7}",
    "CUI2": r"C\d{7}",
    "TUI": r"T\d{3}",
    "SUI": r"S\d{7,8}",
}
CONCEPTS = 10**7  # a CUI has seven digits
ROWS = 1 << 22  # rows per chunk of the final string columns, far below Arrow's 2 GiB of characters


def broken_row(path: Path, name: str, cause: str) -> InputError:
    wanted = {column: pattern for column, pattern in PATTERNS.items() if column in USED[name]}
    return broken_line(path, COLUMNS[name], "|", 0, True, wanted, cause)


def read_batches(path: Path, name: str) -> Iterator[pa.RecordBatch]:
    wanted = {column: pattern for column, pattern in PATTERNS.items() if column in USED[name]}
    if name == "MRCUI":
        del wanted["CUI2"]  # empty for an id that has gone without another
    with tqdm(desc=path.name, unit=" rows", unit_scale=True, disable=None, leave=False) as bar:
        for batch in batches(path, COLUMNS[name], USED[name], "|", ended=True, wanted=wanted):
            yield batch
            bar.update(batch.num_rows)


def parse_ids(column: pa.Array, letter: str, path: Path, name: str) -> np.ndarray:
    """(rows,) int32: the number in ids like C0000005. Raises InputError naming the first wrong
    line."""
    width = 8 if letter == "C" else 4
    lengths = pc.binary_length(column).to_numpy()
    if (lengths != width).any():
        raise broken_row(path, name, "an id of the wrong length")
    start = (
        np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)[0]
        if len(column)
        else 0
    )
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8, len(column) * width, start).reshape(
        -1, width
    )
    digits = data[:, 1:] - np.uint8(ord("0"))  # wraps round for what is no digit
    if (data[:, 0] != ord(letter)).any() or (digits > 9).any():
        raise broken_row(path, name, "an id that is none")
    return digits.astype(np.int32) @ (10 ** np.arange(width - 2, -1, -1)).astype(np.int32)


def format_cuis(numbers: np.ndarray) -> pa.StringArray:
    """CUIs from their numbers, written straight into Arrow's buffers."""
    data = np.empty((len(numbers), 8), np.uint8)
    data[:, 0] = ord("C")
    rest = numbers.astype(np.int32)
    for place in range(7, 0, -1):
        rest, digit = np.divmod(rest, 10)
        data[:, place] = digit + ord("0")
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * 8
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(data))


def build_column(values: np.ndarray, make: Any) -> pa.ChunkedArray:
    """make(values) by chunks of ROWS, so that no string chunk outgrows Arrow's offsets."""
    return pa.chunked_array(
        [make(values[i : i + ROWS]) for i in range(0, len(values), ROWS)], pa.string()
    )


def decode_labels(codes: np.ndarray, labels: Sequence[str]) -> pa.ChunkedArray:
    values = pa.array(labels, pa.string())
    return build_column(codes, lambda part: values.take(pa.array(part)))


class Codes(dict[str, int]):
    """Label -> small integer in order of appearance."""

    def encode(self, column: pa.Array) -> np.ndarray:
        encoded = pc.dictionary_encode(column)
        mapped = [self.setdefault(label, len(self)) for label in encoded.dictionary.to_pylist()]
        return np.array(mapped, np.int16)[encoded.indices.to_numpy()]


def is_among(column: pa.Array, values: Sequence[str] | None) -> np.ndarray:
    if values is None:
        return np.ones(len(column), bool)
    mask = pc.is_in(column, value_set=pa.array(values, pa.string()))
    return np.asarray(mask.to_numpy(zero_copy_only=False))
