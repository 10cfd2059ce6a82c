"""`kepl graph embed`: a graph embedding whose link prediction is kept as a result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.measurements import save_measurement
from benchmarks.results import OVERALL
from core.artifact import content_digest
from kg.vectors.embeddings import EmbeddingTable
from kg.vectors.train import Training

#: group of scores: those of the TransE that a TransR started from
WARM = "warm start"


@dataclass(frozen=True, kw_only=True)
class Embedding(Training):
    __doc__ = Training.__doc__

    def run(self) -> EmbeddingTable:
        """Train, score and save the embedding, or load the one that is kept; its scores are kept
        for `kepl publish`."""
        table = super().run()
        manifest = table.manifest
        if manifest["scores"] and "commit" in manifest:
            scores = {OVERALL: manifest["scores"]}
            if "warm_scores" in manifest:
                scores[WARM] = manifest["warm_scores"]
            task = f"link prediction of {Path(self.graph).name} by {self.model}"
            save_measurement(
                "embedding",
                task,
                "mrr",
                scores,
                data={"graph": manifest["graph"], "table": content_digest(self.out)},
                settings=manifest["settings"],
                commit=manifest["commit"],
            )
        return table
