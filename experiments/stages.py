"""Steps of longer work as processes of their own: in turn, or some at the same time on shares of the machine."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from core.tracking import ROOT

LOG = logging.getLogger(__name__)


class Stage(NamedTuple):
    """One step."""

    title: str
    words: list[str]  # arguments of ``python -m``
    result: str | None = None  # a training's name in the report, and of its log file
    together: Any = None  # stages in a row with the same value run at the same time on a CPU
    environment: dict[str, str] | None = None  # beside the process's own

    @property
    def log(self) -> str:
        """Name of the file with its output, where that is not shown."""
        return f"{self.result or self.words[0]}.log"


def dies_with_its_parent() -> None:
    """Ask Linux to end this process when the one that started it ends, however that came about.

    A training that outlives a killed pipeline would hold its run's lock against the same command given again.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run_stages(stages: list[Stage], work: Path) -> None:
    """Run `stages` at the same time, the first one's output shown and the others' in log files; exit if one fails."""
    environment = dict(os.environ)
    if len(stages) > 1:
        environment["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // len(stages)))
    with contextlib.ExitStack() as stack:
        logs = [None, *(stack.enter_context(open(work / s.log, "w")) for s in stages[1:])]
        started = [
            subprocess.Popen(
                [sys.executable, "-m", *stage.words],
                cwd=ROOT,
                env=environment | (stage.environment or {}),
                stdout=log,
                stderr=subprocess.STDOUT if log else None,
                preexec_fn=dies_with_its_parent,
            )
            for stage, log in zip(stages, logs, strict=True)
        ]
        try:
            codes = [process.wait() for process in started]
        finally:
            for process in started:
                process.terminate()
    for stage, code, log in zip(stages, codes, logs, strict=True):
        if code:
            where = f" Its output is in {log.name}." if log else ""
            LOG.error(
                f"stopped at stage {stage.title!r}.{where} What is finished is kept; the same command resumes from here. "
                f"The stage was: python -m {shlex.join(stage.words)}"
            )
            sys.exit(code if code > 0 else 128 - code)
