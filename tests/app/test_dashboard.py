"""The dashboard ends what it started, however it is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import signal, sys
from app import dashboard
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it, and so do their children
child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
dashboard.command = lambda port: [sys.executable, "-c", child]
sys.exit(dashboard.serve(5000))
"""  # noqa: E501


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_dashboard_leaves_no_server(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None and "127.0.0.1:5000" in program.stdout.readline()
        child = Path("/proc", program.stdout.readline().strip())
        assert child.exists()
        program.send_signal(number)
        assert program.wait(20) == 0
    assert not child.exists()
