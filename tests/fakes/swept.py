"""python -m tests.fakes.swept [NAME=VALUE ...]: an MLflow run as the commands of a sweep make
theirs.

WAIT= a file to make, and then to wait until killed; FAIL=yes exits with 3 after the run is made,
FAIL=input with 2.
"""

import json
import os
import sys
import time
from pathlib import Path

from core.journal import Journal
from core.json_files import digest
from core.tracking import runs_folder, tracking_uri

given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
journal = Journal(
    runs_folder() / "swept" / digest([*sys.argv, os.getpid()])[:12], "swept", " ".join(sys.argv[1:])
)
journal.metrics({"dev/f1": float(given.get("A", "0")), "train/loss": 1.0})
threads = os.environ.get("OMP_NUM_THREADS")
line = json.dumps(
    {"given": given, "tracking": tracking_uri(), "threads": threads, "pid": os.getpid()}
)
with open(runs_folder() / "swept.jsonl", "a") as handle:
    handle.write(line + "\n")
journal.end()
journal.close()
if "WAIT" in given and not Path(given["WAIT"]).exists():
    Path(given["WAIT"]).write_text(str(os.getpid()))
    time.sleep(600)
if given.get("FAIL") == "yes" and not (runs_folder() / "mended").exists():
    sys.exit(3)
if given.get("FAIL") == "input":
    sys.exit(2)
