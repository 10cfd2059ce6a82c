"""The fuzzer itself: the same seed makes the same inputs, every reader is read, and a crash is
reported."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from core.files import InputError
from tests.fuzz.__main__ import mutated, outcome
from tests.fuzz.readers import READERS, Reader

ROOT = Path(__file__).parents[2]


def test_no_reader_crashes_or_loses_rows(fast_python: str) -> None:
    words = [fast_python, "-m", "tests.fuzz", "--inputs", "12", "--seed", "suite"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {
        line[:20].strip(): line[20:].split()
        for line in done.stdout.splitlines()
        if line[20:].split()[4:]
    }
    assert set(rows) == {*READERS, "reader", "all"}
    assert rows["all"][0] == f"{12 * len(READERS):,}" and rows["all"][3:] == ["0", "0"]


def test_a_seed_makes_the_same_inputs() -> None:
    given = b'{"id": 1, "text": "a"}\n'
    made = [[mutated(given, random.Random(f"{seed}:{n}")) for n in range(50)] for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2] and len(set(made[0])) > 40


@pytest.mark.parametrize("name", list(READERS))
def test_every_valid_file_is_read_without_losing_a_row(tmp_path: Path, name: str) -> None:
    reader = READERS[name]
    for file in reader.seed(tmp_path):
        assert outcome(reader, tmp_path, file, file.read_bytes()) == ("read", "", 0)


def test_crashes_refusals_and_lost_rows_are_distinguished(tmp_path: Path) -> None:
    def raises(error: Exception) -> Reader:
        def read(folder: Path) -> int:
            raise error

        return Reader(lambda folder: [], read)

    file = tmp_path / "a"
    assert outcome(raises(InputError("a:1: no")), tmp_path, file, b"x") == ("refused", "a:1: no", 0)
    kind, said, _ = outcome(raises(KeyError("b")), tmp_path, file, b"x")
    assert kind == "crash" and said.startswith("KeyError: 'b' (")
    reader = Reader(lambda folder: [], lambda folder: 2, lambda content: content.count(b"\n"))
    assert outcome(reader, tmp_path, file, b"a\nb\nc\n") == ("read", "", 1)
