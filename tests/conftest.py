"""How the tests are run: with a server of processes that have the large libraries imported
(tests/preload.py)."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests import preload

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach for the network
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# in the environment: "<process id> <address>" of the server that all workers of a run share
SERVER = "KEPL_TESTS_SERVER"


def pytest_configure(config: pytest.Config) -> None:
    """Name the server of `preloaded`. A run of several workers starts it now, before them; another,
    when a test wants it."""
    if SERVER not in os.environ:
        folder = tempfile.mkdtemp(prefix="kepl-tests-")
        os.environ[SERVER] = f"{os.getpid()} {folder}/socket"
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        if getattr(config.option, "numprocesses", None):
            preload.serve(address=f"{folder}/socket")
            return  # this process runs no test
    config.pluginmanager.import_plugin("tests.fixtures")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Workers, too, need not import the large libraries; to them, and to what they start, the
    interpreter is the usual one."""
    address = os.environ[SERVER].split(" ", 1)[1]
    for spec in specs:
        spec.python = preload.executable(Path(address).parent, address, known_as=sys.executable)
