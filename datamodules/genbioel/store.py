"""Rows of tokens on disk: one array end to end and where each row begins, memory-mapped when
read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from core.files import InputError, check_files, read_json

FORMAT = 1


def array(folder: Path, name: str) -> np.ndarray:
    """`folder`/`name`.npy, memory-mapped. Raises InputError when it is missing."""
    file = folder / f"{name}.npy"
    if not file.is_file():
        raise InputError(f"{file}: missing. Build the samples again.")
    found: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    return found


class Rows:
    """`<name>-tokens.npy` and `<name>-offsets.npy` of a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.tokens, self.offsets = (
            array(folder, f"{name}-tokens"),
            array(folder, f"{name}-offsets"),
        )
        self.lengths = np.diff(self.offsets)  # (rows,) tokens

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> list[int]:
        found: list[int] = self.tokens[self.offsets[row] : self.offsets[row + 1]].tolist()
        return found


def save_rows(folder: Path, name: str, rows: tuple[np.ndarray, np.ndarray]) -> None:
    for part, values in zip(("tokens", "offsets"), rows, strict=True):
        np.save(folder / f"{name}-{part}.npy", values)


def manifest_of(folder: str | Path, tokenizer: str) -> dict[str, Any]:
    """The folder's manifest. Raises InputError when there is none, it is of another format or
    tokenizer, or a file is damaged."""
    file = Path(folder) / "manifest.json"
    if not file.is_file():
        raise InputError(
            f"{folder}: no samples here (manifest.json is missing). Build them: python -m"
            " datamodules.genbioel --help"
        )
    manifest: dict[str, Any] = read_json(file)
    recipe = manifest.get("recipe", {})
    if recipe.get("format") != FORMAT or manifest.get("kind") not in ("graph", "mentions"):
        raise InputError(f"{file}: no samples of format {FORMAT}. Build them again.")
    if recipe["tokenizer"] != tokenizer:
        raise InputError(
            f"{folder}: made with another tokenizer. Build the samples with this model's:"
            " --tokenizer"
        )
    check_files(folder, manifest.get("sha256"), "Build the samples again.")
    return manifest


def has_recipe(folder: Path, recipe: dict[str, Any], fresh: bool) -> bool:
    """Whether `folder` holds what `recipe` makes. Raises InputError when it holds something else
    than samples."""
    if (folder / "manifest.json").is_file():
        return not fresh and bool(read_json(folder / "manifest.json").get("recipe") == recipe)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder}: there is something here that is none of this; it is left alone. Choose"
            " another --out."
        )
    return False
