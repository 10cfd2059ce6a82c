"""Commands that are started: their output, their end, and what becomes of them when something is
killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.commands import start_command
from core.executor import LOST
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
    running = start_command(python(program), tmp_path, given, log, engine=engine)
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
    running = start_command(
        python(program), tmp_path, dict(os.environ), tmp_path / "log", engine=engine
    )
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
    running = start_command(
        python(program), tmp_path, dict(os.environ), tmp_path / "log", engine="ray"
    )
    assert running.wait() == 0 and (tmp_path / "log").read_text() == "twice\n"


def test_without_ray_there_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        InputError, match="asks for Ray, which is not installed. Run: make setup EXTRAS=ray"
    ):
        start_command(python(""), tmp_path, {}, tmp_path / "log", engine="ray")


class FakeRay:
    """As much of Ray as a command uses: actors that run where they are started, and nodes that are
    lost."""

    class exceptions:
        class RayActorError(Exception):
            pass

    def __init__(self, gpus: float = 0, losses: int = 0) -> None:
        self.gpus, self.losses = gpus, losses
        self.asked: list[dict[str, int]] = []
        self.killed: list[object] = []

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4.0} | ({"GPU": self.gpus} if self.gpus else {})

    def remote(self, **resources: int) -> Any:
        self.asked.append(resources)
        return lambda actor: SimpleNamespace(remote=lambda: self._actor(actor()))

    @staticmethod
    def _actor(made: Any) -> SimpleNamespace:
        return SimpleNamespace(
            run=SimpleNamespace(remote=lambda *given: lambda: made.run(*given)),
        )

    def get(self, code: Any) -> int:
        if self.losses:
            self.losses -= 1
            raise self.exceptions.RayActorError
        return int(code())

    def kill(self, actor: object) -> None:
        self.killed.append(actor)


def start_on(ray: FakeRay, folder: Path, monkeypatch: Any, gpus: int | None = None) -> Any:
    monkeypatch.setattr("core.commands.cluster", lambda: ray)
    program = (
        "import os; print([os.environ.get(n) for n in ('ENGINE', 'RAY_ADDRESS', 'PYTHONSAFEPATH')])"
    )
    (folder / "log").write_text("of an earlier run")
    given = {"RAY_ADDRESS": "auto", "ENGINE": "ray"}
    return start_command(python(program), folder, given, folder / "log", engine="ray", gpus=gpus)


def test_a_command_on_ray_writes_its_own_log_and_holds_no_processor_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = FakeRay()
    running = start_on(ray, tmp_path, monkeypatch)
    assert running.wait() == 0
    assert (tmp_path / "log").read_text() == "['processes', None, '1']\n"
    assert ray.asked == [{"num_cpus": 1, "num_gpus": 0}] and ray.killed == [running.actor]


@pytest.mark.parametrize(
    ("of_cluster", "wanted", "asked"), [(0, None, 0), (1, None, 1), (8, None, 1), (8, 4, 4)]
)
def test_a_command_on_ray_asks_for_a_gpu_where_the_cluster_has_any(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_cluster: int,
    wanted: int | None,
    asked: int,
) -> None:
    ray = FakeRay(of_cluster)
    start_on(ray, tmp_path, monkeypatch, wanted)
    assert ray.asked == [{"num_cpus": 1, "num_gpus": asked}]


def test_a_command_on_ray_whose_node_is_lost_is_started_again_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = FakeRay(losses=LOST - 1)
    assert start_on(ray, tmp_path, monkeypatch).wait() == 0 and len(ray.asked) == LOST
    lost = start_on(FakeRay(losses=LOST), tmp_path, monkeypatch)
    with pytest.raises(InputError, match=f"log: the command was lost with its node {LOST} times"):
        lost.wait()


def test_a_terminated_command_on_ray_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = FakeRay(losses=1)
    running = start_on(ray, tmp_path, monkeypatch)
    running.terminate()
    assert running.wait() == -signal.SIGTERM and len(ray.asked) == 1
