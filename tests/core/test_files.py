"""Sealed and locked files."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.files import InputError, locked, sealed, sha256, write_json, written, written_folder


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


def test_who_reads_a_file_while_it_is_replaced_reads_the_old_one_whole(tmp_path: Path) -> None:
    """The new content comes under another name and takes the place by renaming: no moment has half of either."""
    path = tmp_path / "rows"
    path.write_text("old")
    with open(path) as reader:
        with written(path) as handle:
            handle.write("new")
            handle.flush()
            assert path.read_text() == "old"
        assert reader.read() == "old" and path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["rows"]


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("old")
    with pytest.raises(RuntimeError), written(path) as handle:
        handle.write("half")
        raise RuntimeError
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["rows"]


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for name in ("first", "second"):
        with written_folder(path) as folder:
            (folder / name).write_text(name)
        assert [p.name for p in path.iterdir()] == [name]
    with pytest.raises(RuntimeError), written_folder(path) as folder:
        (folder / "third").write_text("half")
        raise RuntimeError
    assert [p.name for p in path.iterdir()] == ["second"] and [p.name for p in tmp_path.iterdir()] == ["folder"]
