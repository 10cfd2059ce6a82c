"""What `pip install -e .` installs: the command `kepl` and spaCy's component.

    import kepl                             # puts the checkout first on the path
    from inference.chain import Pipeline

Another package may own a top-level folder of a room's name (pySBD installs `benchmarks`), so every
entry point comes through here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ADVICE = (
    "kepl runs from its checkout, which a plain `pip install .` leaves behind: in the checkout,"
    " type `pip install -e . -c constraints.txt`, or `make setup` and bin/kepl"
)


def find_checkout() -> None:
    """Put the checkout first on the path, for this process and those that it starts. Raises
    ImportError where this module is not in one."""
    if not (ROOT / "app" / "cli.py").is_file():
        raise ImportError(ADVICE)
    root = str(ROOT)
    sys.path[:] = [root, *(place for place in sys.path if place != root)]
    before = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p not in ("", root)]
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *before])


def main() -> int:
    """The command `kepl`."""
    try:
        find_checkout()
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # nothing of the caller's folder is imported
    os.environ.setdefault("PYSTOW_HOME", str(ROOT / ".cache" / "pystow"))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    sys.path[:] = [p for p in sys.path if p not in ("", os.path.dirname(sys.argv[0]))]
    from app.cli import main as run

    return run(sys.argv[1:])


def __getattr__(name: str) -> Any:
    """spaCy's factory, which only those who ask for it import."""
    if name == "spacy_factory":
        from inference.spacy_component import make_component

        return make_component
    raise AttributeError(name)


if (ROOT / "app" / "cli.py").is_file():
    find_checkout()
