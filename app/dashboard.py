"""`kepl dashboard`: MLflow's pages on this machine alone, opened on the experiments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from core.tracking import tracking_uri


def command(port: int) -> list[str]:
    """The words that start MLflow."""
    words = [sys.executable, "-m", "mlflow", "ui", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    return [*words, "--backend-store-uri", tracking_uri()]


def serve(port: int) -> int:
    """Run MLflow until it is interrupted or terminated, which ends MLflow, too. Returns its exit code, or 0 after either."""
    environment = dict(os.environ, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false", MLFLOW_DISABLE_TELEMETRY="true")
    print(f"http://127.0.0.1:{port}/#/experiments  (Ctrl+C ends it)", flush=True)
    server = subprocess.Popen(command(port), env=environment)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    try:
        return max(0, server.wait())  # below 0: the number of the signal
    except KeyboardInterrupt:
        server.terminate()
        server.wait()
        return 0
