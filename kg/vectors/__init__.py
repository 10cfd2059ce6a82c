"""Vectors of a graph: TransE and TransR, and tables of what they learned."""

import os

from core.tracking import ROOT

# PyKEEN otherwise makes folders in the home
os.environ.setdefault("PYSTOW_HOME", str(ROOT / ".cache" / "pystow"))
