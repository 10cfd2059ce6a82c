"""Steps of longer work as processes of their own: in turn, or some at the same time on shares of
the machine."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

from core.call import command_words
from core.commands import Running, python_command, start_command
from core.tracking import ROOT

LOG = logging.getLogger(__name__)


class Stage(NamedTuple):
    """One step."""

    title: str
    run: str  # a command, package.module:function, or a module of its own (core.call.command_words)
    options: list[str]
    result: str | None = None  # a training's name in the report, and of its log file
    together: Any = None  # stages in a row with the same value run at the same time on a CPU
    environment: dict[str, str] | None = None  # beside the process's own

    @property
    def words(self) -> list[str]:
        """What follows `python`."""
        return command_words(self.run, self.options)

    @property
    def command(self) -> str:
        """The stage as it is typed."""
        return f"python {shlex.join(self.words)}"

    @property
    def log(self) -> str:
        """Name of the file with its output, where that is not shown."""
        name = self.result or re.sub(r"[^\w.]+", "-", self.run)
        return f"{name}.log"


def run_stages(stages: list[Stage], work: Path, engine: str = "processes") -> None:
    """Run `stages` at the same time; exit if one fails. Output goes to log files, but the first
    one's of this machine is shown.

    engine: "ray" runs them on the nodes of a cluster (core.commands), each with one processor
    """
    environment = dict(os.environ)
    if len(stages) > 1 or engine == "ray":
        environment["OMP_NUM_THREADS"] = str(
            1 if engine == "ray" else max(1, (os.cpu_count() or 1) // len(stages))
        )
    logs = [None if s is stages[0] and engine != "ray" else work / s.log for s in stages]
    running: list[Running] = []
    try:
        for stage, log in zip(stages, logs, strict=True):
            words = python_command(*stage.words)
            gpus = int("CUDA_VISIBLE_DEVICES" in (stage.environment or {}))
            running.append(
                start_command(
                    words,
                    ROOT,
                    environment | (stage.environment or {}),
                    log,
                    engine=engine,
                    gpus=gpus,
                )
            )
        codes = [process.wait() for process in running]
    finally:
        for process in running:
            process.terminate()
    for stage, code, log in zip(stages, codes, logs, strict=True):
        if code:
            where = f" Its output is in {log}." if log else ""
            LOG.error(
                f"stopped at stage {stage.title!r}.{where} What is finished is kept; the same"
                f" command resumes from here. The stage was: {stage.command}"
            )
            sys.exit(code if code > 0 else 128 - code)
