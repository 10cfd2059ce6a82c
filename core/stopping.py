"""A command that is stopped: SIGTERM as an exception, as SIGINT is one, and what is said of it.

with stoppable():                       SIGTERM raises Stopped
    with keeping(lambda: "12 documents are kept in o.parts; the same command resumes"):
        …
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Stopped(KeyboardInterrupt):
    """SIGTERM; what ends well at an interrupt does so here, too."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped for SIGTERM in the block; a child of this process still ends by it at once."""
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    owner = os.getpid()

    def stop(number: int, _: Any) -> None:
        if os.getpid() == owner:
            raise Stopped
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def report_interrupt(describe: Callable[[], str]) -> Iterator[None]:
    """Say of an interrupt in the block what is kept, and how to continue; the innermost block
    counts."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not getattr(error, "__notes__", None):
            error.add_note(describe())
        raise


def format_stop(error: KeyboardInterrupt) -> tuple[str, int]:
    """(one line, exit code) of a command that was stopped."""
    word, code = ("terminated", 143) if isinstance(error, Stopped) else ("interrupted", 130)
    notes = getattr(error, "__notes__", None) or ["the same command resumes"]
    return f"{word}: {notes[0]}", code
