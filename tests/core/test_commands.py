"""Commands that are started: their output, their end, and what becomes of them when something is
killed."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from core.commands import started
from core.files import InputError
from tests.core.test_executor import ray_here  # noqa: F401  a fixture

ENGINES = [
    "processes",
    pytest.param(
        "ray",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
        ],
    ),
]


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


@pytest.mark.parametrize("engine", ENGINES)
def test_output_status_and_environment(tmp_path: Path, ray_here: None, engine: str) -> None:  # noqa: F811
    log = tmp_path / "log"
    program = (
        "import os, sys; print(os.getcwd(), os.environ['GIVEN'], os.environ.get('ENGINE'));"
        "print('error', file=sys.stderr); sys.exit(3)"
    )
    given = dict(os.environ) | {"GIVEN": "yes", "ENGINE": engine, "RAY_ADDRESS": ""}
    log.write_text("of an earlier run")
    running = started(python(program), tmp_path, given, log, engine=engine)
    assert running.wait() == 3
    assert sorted(log.read_text().split()) == sorted([str(tmp_path), "yes", "processes", "error"])


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_terminated_ends_with_all_it_started(
    tmp_path: Path,
    ray_here: None,  # noqa: F811
    engine: str,
) -> None:
    here = tmp_path / "here"
    program = (
        f"import os, pathlib, time; pathlib.Path({str(here)!r}).write_text(str(os.getpid()));"
        " time.sleep(600)"
    )
    running = started(python(program), tmp_path, dict(os.environ), tmp_path / "log", engine=engine)
    while not here.exists() or not here.read_text():
        time.sleep(0.05)
    running.terminate()
    assert running.wait() < 0
    for _ in range(200):
        if not Path(f"/proc/{here.read_text()}").exists():
            break
        time.sleep(0.05)
    else:
        pytest.fail("it continues")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed")
def test_a_command_whose_actor_is_killed_is_started_again(tmp_path: Path, ray_here: None) -> None:  # noqa: F811
    mark = tmp_path / "mark"
    program = (
        f"import os, pathlib, time; mark = pathlib.Path({str(mark)!r})\nif not mark.exists():\n   "
        " mark.touch(); os.kill(os.getppid(), 9); time.sleep(600)\nprint('twice')"
    )
    running = started(python(program), tmp_path, dict(os.environ), tmp_path / "log", engine="ray")
    assert running.wait() == 0 and (tmp_path / "log").read_text() == "twice\n"


def test_without_ray_there_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        InputError, match="asks for Ray, which is not installed. Run: make setup EXTRAS=ray"
    ):
        started(python(""), tmp_path, {}, tmp_path / "log", engine="ray")
