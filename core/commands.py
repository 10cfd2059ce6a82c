"""Commands as processes of their own: on this machine, or on a node of a Ray cluster (core.executor
says which)."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from core.executor import LOST, cluster, engine_of
from core.files import InputError
from core.tracking import ROOT

#: What children of any kind inherit: they import from this checkout and its environment, and not
#: from the folder they run in.
#: Python searches that folder first otherwise, so that a `random.py` beside somebody's texts would
#: run.
SAFE_PATH = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT)}


class Running(Protocol):
    """A command that was started."""

    def wait(self) -> int:
        """Its exit status, once it has ended."""

    def terminate(self) -> None:
        """Ask it to end; nothing when it has."""


def python_command(*words: str) -> list[str]:
    """The words that start Python with `words` ("-m", a module, its arguments), without the folder
    it runs in on its path."""
    return [sys.executable, "-P", *words]


def child_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child: that of this process with SAFE_PATH and `changes`."""
    return os.environ | SAFE_PATH | dict(changes or {})


def dies_with_its_parent() -> None:
    """Ask Linux to end this process when the one that started it ends, however that came about.

    A training that outlives a killed pipeline would hold its run's lock against the same command
    given again.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def start_command(
    words: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    log: Path | None,
    *,
    engine: str | None = None,
    gpus: int | None = None,
) -> Running:
    """Start a command in the folder `cwd`, its output to the file `log`, or shown here where that
    is None.

    On a Ray cluster every machine must see `cwd` and `log` under the same paths. `gpus` are asked
    for; where None is given, one if the cluster has any. A command whose node is lost is started
    again elsewhere: it must resume from what it has done. Raises InputError when Ray is not
    installed.
    """
    if log is not None and engine_of(engine) == "ray":
        return _OnRay(list(words), str(cwd), dict(environment), str(log), gpus)
    with open(os.devnull if log is None else log, "wb") as output:
        return subprocess.Popen(
            words,
            cwd=cwd,
            env={**environment, **SAFE_PATH},
            stdout=output if log else None,
            stderr=subprocess.STDOUT if log else None,
            preexec_fn=dies_with_its_parent,
        )


class _Runner:
    """Runs one command on a node; ends with the actor that it is."""

    def run(self, words: list[str], cwd: str, environment: dict[str, str], log: str) -> int:
        # what Ray has chosen
        inherited = {
            name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ
        }
        with open(log, "ab") as output:
            return subprocess.run(
                words,
                cwd=cwd,
                env=environment | inherited,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=dies_with_its_parent,
            ).returncode


class _OnRay:
    def __init__(
        self, words: list[str], cwd: str, environment: dict[str, str], log: str, gpus: int | None
    ) -> None:
        self.ray = cluster()
        Path(log).write_bytes(b"")
        # what it starts itself stays on its node: it would wait for the processor that it has
        variables = {name: value for name, value in environment.items() if name != "RAY_ADDRESS"}
        variables |= SAFE_PATH | {"ENGINE": "processes"}
        self.start_words, self.log = (words, cwd, variables, log), log
        self.gpus = int(self.ray.cluster_resources().get("GPU", 0) > 0) if gpus is None else gpus
        self.ended = False
        self._start()

    def _start(self) -> None:
        self.actor = self.ray.remote(num_cpus=1, num_gpus=self.gpus)(_Runner).remote()
        self.code: Any = self.actor.run.remote(*self.start_words)

    def wait(self) -> int:
        for _ in range(LOST):
            try:
                code = int(self.ray.get(self.code))
                self.terminate()  # the actor, which holds a processor
                return code
            except self.ray.exceptions.RayActorError:
                if self.ended:
                    return -signal.SIGTERM
                self._start()
        raise InputError(
            f"{self.log}: the command was lost with its node {LOST} times. Run it again with fewer"
            " at once."
        )

    def terminate(self) -> None:
        self.ended = True
        self.ray.kill(self.actor)
