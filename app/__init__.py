"""What a user runs on new text: `bin/kepl` and, for Python,

from app import Pipeline
pipeline = Pipeline("runs/data/kebiolm-small/graph", "dictionary > sapbert")
pipeline.link(["He had arachnodactyly and a dislocated lens."])
"""

from app.pipeline import Linked, Option, Pipeline

__all__ = ["Linked", "Option", "Pipeline"]
