"""What a program says while it works: one logger a room, on standard error. Results alone go to standard output."""

from __future__ import annotations

import logging
import sys

ROOMS = ("core", "kg", "datamodules", "models", "experiments", "inference", "benchmarks", "app")


class _Lines(logging.Formatter):
    """Information as it is; a warning or an error says that it is one."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno == logging.INFO else f"{record.levelname.lower()}: {text}"


class _Standard(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what is standard error when it writes, which tests and progress bars replace."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def set_up(verbose: bool = False, quiet: bool = False) -> None:
    """Send the rooms' messages to standard error: information and above; all with `verbose`, errors alone with `quiet`."""
    handler = _Standard()
    handler.setFormatter(_Lines("%(message)s"))
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO
    for room in ROOMS:
        logger = logging.getLogger(room)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
