"""Nothing in the folder that a command is typed in is imported, by the command or by a child of
it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from core.commands import child_environment, python_command, start_command
from core.tracking import ROOT

ROOMS = ("core", "kg", "datamodules", "models", "experiments", "inference", "benchmarks", "app")
SPAWN = """
import multiprocessing, sys
process = multiprocessing.get_context("spawn").Process(target=print)
process.start()
process.join()
sys.exit(process.exitcode)
"""
NAMES = ("random", "yaml", "numpy", "torch", "sitecustomize", "mlflow", "uvicorn", "json")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder whose modules leave a file `ran` when one is imported."""
    folder = tmp_path / "hostile"
    program = (
        f"import os; os.close(os.open({str(folder / 'ran')!r}, os.O_CREAT))\nraise SystemExit(77)\n"
    )
    for name in ROOMS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(program)
    for name in NAMES:
        (folder / f"{name}.py").write_text(program)
    return folder


@pytest.mark.parametrize("searched", [None, "", ".", ":", ":/nowhere"])
@pytest.mark.parametrize("linked", [False, True])
def test_kepl_imports_nothing_from_the_folder_it_is_typed_in(
    hostile: Path, tmp_path: Path, linked: bool, searched: str | None
) -> None:
    kepl = ROOT / "bin" / "kepl"
    if linked:
        (tmp_path / "kepl").symlink_to(kepl)
        kepl = tmp_path / "kepl"
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    if searched is not None:
        environment["PYTHONPATH"] = searched
    done = subprocess.run(
        [str(kepl), "tasks"], cwd=hostile, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and "cMedQANER" in done.stdout, done.stderr
    assert not (hostile / "ran").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("-c", "import random, yaml, numpy, core.files, app.cli"),
        ("-m", "app.cli", "tasks"),
        (
            "-c",
            (
                "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import"
                " random, yaml, core']))"
            ),
        ),
        ("-c", SPAWN),
    ],
)
def test_a_child_imports_nothing_from_its_folder(
    hostile: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does what the child starts itself, as Lightning and MLflow do."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # which the child would inherit
    log = hostile.parent / "log"
    assert (
        start_command(
            python_command(*words), hostile, {**os.environ, "PYTHONPATH": "."}, log
        ).wait()
        == 0
    ), log.read_text()
    done = subprocess.run(
        python_command(*words),
        cwd=hostile,
        env=child_environment({"X": "1"}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not (hostile / "ran").exists()


def test_the_hostile_folder_runs_where_python_searches_it(hostile: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    subprocess.run(
        [sys.executable, "-m", "random"], cwd=hostile, env=environment, capture_output=True
    )
    assert (hostile / "ran").exists()


def test_every_child_is_started_by_the_one_function() -> None:
    bad = re.compile(r"sys\.executable, *\"-|\[str\(python\), *\"-m\"")
    files = [
        p
        for room in ROOMS
        for p in (ROOT / room).rglob("*.py")
        if p != ROOT / "core" / "commands.py"
    ]
    assert [
        f"{p.relative_to(ROOT)}: {m[0]}" for p in files for m in bad.finditer(p.read_text())
    ] == []
    for line in (ROOT / "Makefile").read_text().splitlines():
        if match := re.search(r"PYTHON\) (-\S+)", line):
            assert match[1] in ("-P", "-c") or re.search(r"-m (venv|pip|compileall)", line), line
    assert sys.executable in python_command("-c", "")
