"""Rows of tokens on disk: one array end to end and where each row begins, memory-mapped when
read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from core.artifact import Artifact
from core.files import InputError

FORMAT = 1
SAMPLES = Artifact("samples", "kepl data samples --help", FORMAT, ("recipe", "kind"))


def array(folder: Path, name: str) -> np.ndarray:
    """`folder`/`name`.npy, memory-mapped. Raises InputError when it is missing."""
    file = folder / f"{name}.npy"
    if not file.is_file():
        raise InputError(f"{file}: missing. Build the samples again.")
    values: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    return values


class Rows:
    """`<name>-tokens.npy` and `<name>-offsets.npy` of a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.tokens = array(folder, f"{name}-tokens")
        self.offsets = array(folder, f"{name}-offsets")
        self.lengths = np.diff(self.offsets)  # (rows,) tokens

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> list[int]:
        row_tokens: list[int] = self.tokens[self.offsets[row] : self.offsets[row + 1]].tolist()
        return row_tokens


def save_rows(folder: Path, name: str, rows: tuple[np.ndarray, np.ndarray]) -> None:
    for part, values in zip(("tokens", "offsets"), rows, strict=True):
        np.save(folder / f"{name}-{part}.npy", values)


def manifest_of(folder: str | Path, tokenizer: str) -> dict[str, Any]:
    """The folder's manifest. Raises InputError when there is none, it is of another format or
    tokenizer, or a file is damaged."""
    manifest = SAMPLES.manifest(folder)
    if manifest["recipe"]["tokenizer"] != tokenizer:
        raise InputError(
            f"{folder}: made with another tokenizer. Build the samples with this model's:"
            " --tokenizer"
        )
    SAMPLES.check(folder, manifest)
    return manifest
