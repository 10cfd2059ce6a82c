"""EmbeddingTable: what a graph embedding leaves behind. Tensors and ids on disk, safetensors only;
no trainer object."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors.torch import save_file
from torch import Tensor

from core.artifact import Artifact
from core.files import InputError
from core.tensors import read_tensors
from kg.entity_rows import check_entities, read_ids, write_ids

TABLE = Artifact("embedding table", "kepl graph embed --help", verified="embeddings.safetensors")


@dataclass(eq=False)
class EmbeddingTable:
    """Vectors of a graph's entities and relations.

    entity      (entities, d) float32;  entity_ids    their ids, in row order
    relation    (relations, d_r) float32 or None;  relation_ids  their labels
    projection  (relations, d, d_r) float32 or None: TransR's M_r, applied as ``e @ M_r``
    manifest    where the vectors come from: model, settings, the graph's fingerprint,
                link-prediction scores

    Raises InputError when ids and rows do not correspond or an id is repeated.
    """

    entity: Tensor
    entity_ids: list[str]
    relation: Tensor | None = None
    relation_ids: list[str] = field(default_factory=list)
    projection: Tensor | None = None
    manifest: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, tensor, ids in (
            ("entity", self.entity, self.entity_ids),
            ("relation", self.relation, self.relation_ids),
            ("projection", self.projection, self.relation_ids),
        ):
            if tensor is not None and len(tensor) != len(ids):
                raise InputError(
                    f"{name}: {len(tensor)} rows but {len(ids)} ids; they must correspond one"
                    " to one"
                )
        if len(set(self.entity_ids)) != len(self.entity_ids):
            raise InputError("entity_ids: an id occurs more than once; ids must be unique")

    def save(self, folder: str | Path) -> Path:
        """Write ``embeddings.safetensors``, ids and manifest to `folder`, whole or not at all.
        Returns the folder."""
        tensors = {"entity": self.entity, "relation": self.relation, "projection": self.projection}
        with TABLE.create(folder, self.manifest) as partial:
            save_file(
                {
                    k: v.detach().float().cpu().contiguous()
                    for k, v in tensors.items()
                    if v is not None
                },
                partial / "embeddings.safetensors",
            )
            write_ids(partial, self.entity_ids, self.relation_ids)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> EmbeddingTable:
        """The table in `folder`. Raises InputError when a file is missing or is not what the
        manifest says."""
        folder = Path(folder)
        file = folder / "embeddings.safetensors"
        manifest = TABLE.read(folder)
        tensors = read_tensors(file, "Train the table again.")
        entities, relations = read_ids(folder)
        return cls(
            tensors["entity"],
            entities,
            tensors.get("relation"),
            relations,
            tensors.get("projection"),
            manifest,
        )

    def check_graph(self, ids: pa.Array, graph: str) -> None:
        """Raise InputError unless the rows are the entities `ids` of the graph named `graph`, in
        order."""
        remedy = "Train the table on this graph: kepl graph embed --help"
        check_entities("embedding", self.entity_ids, ids, graph, remedy)
