"""`pip install -e .` gives the command, the rooms and spaCy's component, from any folder; a plain
`pip install .` says what to do instead."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from core.tracking import ROOT


def make_environment(folder: Path) -> Path:
    """An environment with the packages of this one, and none of its own."""
    venv.create(folder, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shared = folder / "lib" / version / "site-packages" / "shared.pth"
    shared.write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin"


def run(words: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """A command from `folder`, which has a package of a room's name, without this process's
    paths."""
    (folder / "benchmarks").mkdir(exist_ok=True)
    (folder / "benchmarks" / "__init__.py").write_text("raise RuntimeError('not this one')\n")
    return subprocess.run(
        words, cwd=folder, env={"HOME": str(folder)}, capture_output=True, text=True
    )


def copy_source(folder: Path) -> Path:
    """What pip reads of the checkout."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "bin/kepl.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def install(python: Path, *words: str | Path, folder: Path) -> None:
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    found = run([python, "-m", "pip", "install", *options, *words], folder)
    assert found.returncode == 0, found.stderr


@pytest.mark.slow
def test_an_editable_install_from_another_folder(tmp_path: Path) -> None:
    own, place = make_environment(tmp_path / "v"), tmp_path / "elsewhere"
    place.mkdir()
    install(own / "python", "-e", ROOT, folder=place)
    shown = run([own / "kepl", "tasks"], place)
    assert shown.returncode == 0 and "cMedQANER" in shown.stdout
    code = (
        "import spacy\n"
        "print(type(spacy.blank('en').add_pipe('kepl')).__module__)\n"
        "import benchmarks.results, inference.chain\n"
        "print(benchmarks.results.__file__)\n"
    )
    found = run([own / "python", "-P", "-c", code], place)
    assert found.stdout.split() == [
        "inference.spacy_component",
        str(ROOT / "benchmarks" / "results.py"),
    ], found.stderr
    found = run([own / "python", "-P", "-c", "import kepl, inference.chain, kg.graph"], place)
    assert found.returncode == 0, found.stderr


@pytest.mark.slow
def test_a_plain_install_says_what_to_do(tmp_path: Path) -> None:
    own, place = make_environment(tmp_path / "v"), tmp_path / "elsewhere"
    place.mkdir()
    install(own / "python", copy_source(tmp_path / "source"), folder=place)
    found = run([own / "kepl", "tasks"], place)
    assert found.returncode == 2 and "pip install -e ." in found.stderr
    assert "Traceback" not in found.stderr


def test_the_command_is_that_of_the_checkout() -> None:
    code = "import sys, kepl; sys.argv = ['kepl', '--version']; sys.exit(kepl.main())"
    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(ROOT / "bin")},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0 and found.stdout.startswith("kepl ")
