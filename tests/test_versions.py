"""The requirements resolve on each supported Python: with scispaCy below 3.13, without it there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from core.tracking import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "pins", "extras"),
    [
        ("3.11.5", "constraints.txt", "scispacy"),
        ("3.12", "constraints.txt", "scispacy"),
        ("3.11.5", "constraints-numpy2.txt", ""),
        ("3.12", "constraints-numpy2.txt", ""),
        ("3.13", "constraints-numpy2.txt", ""),
    ],
)
def test_the_requirements_resolve(version: str, pins: str, extras: str, tmp_path: Path) -> None:
    uv = find_uv_bin()
    words = ["cpu", *extras.split(), "onnx", "dev"]
    listed = subprocess.run(
        [sys.executable, "bin/requirements.py", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (tmp_path / "requirements.txt").write_text(listed)
    command = [uv, "pip", "compile", "--quiet", "--python-version", version, "-c", str(ROOT / pins)]
    found = subprocess.run(
        [*command, str(tmp_path / "requirements.txt"), "-o", str(tmp_path / "out.txt")],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    made = (tmp_path / "out.txt").read_text()
    assert ("scispacy==" in made) == bool(extras)
    assert ("\nnumpy==1." in made) == bool(extras)


def test_the_two_files_of_pins_differ_in_scispacy_and_numpy_alone() -> None:
    first, second = (
        {line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")}
        for name in ("constraints.txt", "constraints-numpy2.txt")
    )
    differing = {line.partition("==")[0] for line in first ^ second}
    assert differing == {"scispacy", "nmslib-metabrainz", "numpy"}
