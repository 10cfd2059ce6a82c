"""An MLflow server on 127.0.0.1 that tests start, kill and start again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.preload import INTERPRETER


class Server:
    """A server before the store `uri`; runs' files and its own output, server.log, go to `folder`.

    What `with` is left with runs no more.
    """

    def __init__(self, uri: str, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        self.words = [
            INTERPRETER,
            "-m",
            "mlflow",
            "server",
            "--workers",
            "1",
            "--port",
            str(self.port),
            "--backend-store-uri",
            uri,
            "--default-artifact-root",
            str(folder / "artifacts"),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(
                self.words, env=environment, stdout=output, stderr=output, start_new_session=True
            )
        until = time.monotonic() + 120
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.1)
        raise RuntimeError(self.log.read_text())

    def kill(self) -> None:
        """kill -9 to it and its own processes, if it runs."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
