"""Memory of this process, read from Linux."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


def resident(key: str) -> float:
    """MB: VmRSS now, VmHWM at most since :func:`forget_peak`."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(key))
    return int(line.split()[1]) / 1e3


@contextlib.contextmanager
def sampling(sample: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call `sample` in a thread, every so many seconds, while a block runs."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(seconds):
            sample()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def forget_peak() -> None:
    """Let VmHWM begin again at what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
