"""`kepl dashboard`: MLflow's pages on this machine alone, opened on the experiments."""

from __future__ import annotations

import os
import subprocess
import sys

from core.tracking import tracking_uri


def serve(port: int) -> int:
    """Run MLflow until it is interrupted. Returns its exit code."""
    environment = dict(os.environ, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false", MLFLOW_DISABLE_TELEMETRY="true")
    words = [sys.executable, "-m", "mlflow", "ui", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    print(f"http://127.0.0.1:{port}/#/experiments  (Ctrl+C ends it)", flush=True)
    return subprocess.call([*words, "--backend-store-uri", tracking_uri()], env=environment)
