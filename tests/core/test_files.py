"""Sealed and locked files."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.files import InputError, locked, sealed, sha256, write_json


def test_a_sealed_file_is_the_one_its_manifest_describes(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("a")
    with pytest.raises(InputError, match=r"no samples here \(manifest.json is missing\). Make them"):
        sealed(tmp_path, "rows", "samples", "Build the samples", "Make them")
    write_json(tmp_path / "manifest.json", {"sha256": sha256(tmp_path / "rows"), "more": 1})
    assert sealed(tmp_path, "rows", "samples", "Build the samples", "Make them")["more"] == 1
    for content in ("b", None):
        (tmp_path / "rows").write_text(content) if content else (tmp_path / "rows").unlink()
        with pytest.raises(
            InputError, match="rows: missing, or not the file its manifest describes. Build the samples again"
        ):
            sealed(tmp_path, "rows", "samples", "Build the samples", "Make them")
    write_json(tmp_path / "manifest.json", [])
    with pytest.raises(InputError, match="not the file its manifest describes"):
        sealed(tmp_path, "rows", "samples", "Build the samples", "Make them")


def test_a_locked_file_is_for_one(tmp_path: Path) -> None:
    lock = tmp_path / "deep" / "lock"
    with locked(lock, "w", "taken"), pytest.raises(InputError, match="taken"), locked(lock, "w", "taken"):
        pass
    with locked(tmp_path / "deep" / "lock", "ab+", "taken") as handle:
        handle.write(b"x")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError), locked(tmp_path / "file" / "lock", "w", "taken"):
        pass
