"""Tensors from files: whole, and numbers everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from core.files import InputError
from core.tensors import check_finite, read_tensors


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_refused(tmp_path: Path, wrong: float) -> None:
    weights = {"word": torch.ones(3, 2), "count": torch.ones(2, dtype=torch.int64)}
    save_file(weights, tmp_path / "w.safetensors")
    assert read_tensors(tmp_path / "w.safetensors", "Again.")["word"].shape == (3, 2)
    weights["word"][1, 0] = wrong
    save_file(weights, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"w\.safetensors: 1 of 6 weights of word are no finite"):
        read_tensors(tmp_path / "w.safetensors", "Again.")
    with pytest.raises(InputError, match="here: 1 of 6 weights of word"):
        check_finite("here", weights.items())


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"12345678{}")
    for name, why in (("w", "not a safetensors file"), ("none", "cannot be read")):
        with pytest.raises(InputError, match=rf"{name}\.safetensors: {why}.* Again\."):
            read_tensors(tmp_path / f"{name}.safetensors", "Again.")
