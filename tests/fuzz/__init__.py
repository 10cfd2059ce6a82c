"""Broken files for every reader: `python -m tests.fuzz` (make fuzz)."""

import os

os.environ["ARROW_DEFAULT_MEMORY_POOL"] = (
    "system"  # Arrow's own reserves a GiB at once, which a limit of memory refuses
)
