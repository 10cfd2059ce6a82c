"""`kepl graph info`: what is in a graph, whose counts are kept as a result."""

from __future__ import annotations

import json as jsons
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measurements import save_measurement
from benchmarks.results import OVERALL
from core.artifact import content_digest
from kg.build.info import format_info, graph_info


@dataclass(frozen=True, kw_only=True)
class GraphCounts:
    """Count what is in a graph.

    Args:
        folder: Folder of the graph.
        json: Print one JSON object.

    Examples:
      kepl graph build hpo --out graph
      kepl graph build medic CTD_diseases.tsv.gz --out medic
      kepl graph info graph --json
    """

    folder: Path
    json: bool = False

    def run(self) -> dict[str, Any]:
        """Count, and keep the sizes for `kepl publish`. Raises InputError without a graph."""
        info = graph_info(self.folder)
        sizes = {key: value for key, value in info.items() if isinstance(value, int)}
        checksum = {"graph": content_digest(self.folder)}
        task = f"counts of {self.folder.resolve().name}"
        save_measurement("graph", task, "entities", {OVERALL: sizes}, data=checksum)
        return info

    def show(self, results: dict[str, Any]) -> str:
        return jsons.dumps(results, ensure_ascii=False) if self.json else format_info(results)
