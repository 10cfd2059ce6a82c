"""First and last lines, lengths at their limits, and defaults that protect a user's files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.files import InputError
from core.outputs import _shorten_json, claimed_files
from core.reading import decode


@pytest.mark.parametrize(
    ("raw", "line"), [(b"\xff", 1), (b"a\xff\n", 1), (b"a\n\xff", 2), (b"a\n\n\xff\n", 3)]
)
def test_the_line_of_bytes_that_are_no_text(raw: bytes, line: int) -> None:
    """Counted up to the first wrong byte, also where that begins its line."""
    with pytest.raises(InputError, match=re.escape(f"file:{line}: not utf-8 text")):
        decode(raw, "file")


def test_a_value_is_shortened_to_its_two_ends() -> None:
    text = "abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    assert _shorten_json(text[:38]) == f'"{text[:38]}"'  # 40 characters with its quotes
    assert _shorten_json(text) == '"abcdefghijklmnopqrs…xyz0123456789ABCD"'


def test_a_foreign_file_is_replaced_with_fresh_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a user's")
    with (
        pytest.raises(InputError, match="not a file that this command wrote"),
        claimed_files(tmp_path, ["a.txt"]),
    ):
        raise AssertionError("the block is not entered")
    with claimed_files(tmp_path, ["a.txt"], fresh=True):
        (tmp_path / "a.txt").write_text("the command's")
    with claimed_files(tmp_path, ["a.txt"]):  # its own file, unchanged
        pass
