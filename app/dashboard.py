"""`kepl dashboard`: MLflow's pages on this machine alone, opened on the experiments."""

from __future__ import annotations

import signal
import subprocess

from core.commands import child_environment, python_command
from core.tracking import ROOT, tracking_uri


def command(port: int) -> list[str]:
    """The words that start MLflow."""
    words = ["-m", "mlflow", "ui", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    return python_command(*words, "--backend-store-uri", tracking_uri())


def serve(port: int) -> int:
    """Run MLflow until it is interrupted or terminated, which ends MLflow, too. Returns its exit
    code, or 0 after either."""
    environment = child_environment(
        {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    )
    print(f"http://127.0.0.1:{port}/#/experiments  (Ctrl+C ends it)", flush=True)
    # in the checkout: the server behind MLflow's command searches the folder it runs in for
    # modules, whatever it is told
    server = subprocess.Popen(command(port), cwd=ROOT, env=environment, umask=0o077)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    try:
        return max(0, server.wait())  # below 0: the number of the signal
    except KeyboardInterrupt:
        server.terminate()
        server.wait()
        return 0
