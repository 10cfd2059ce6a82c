"""Nearest vectors by inner product: one interface over torch and faiss, and an index on disk that knows what made it.

    torch   exact: a matrix product and top-k over blocks of rows, in float32 whatever the storage
    flat    exact: faiss IndexFlatIP
    ivf     approximate: faiss IndexIVFFlat, `probes` of its cells searched

faiss runs on the GPU where its GPU build finds one. Vectors may be stored as float16, which halves memory. All exact
backends give the same answer: best first, of equal scores the lowest row first. (Equal to the last bit: a score that two
backends sum in another order may differ in the last digits, so rows that are nearly equal may change places.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from core.files import InputError, read_json, sha256, write_json, written_folder

BACKENDS = ("torch", "flat", "ivf")
FORMAT = 1


class Found(NamedTuple):
    """(q, k) scores, best first, and the rows that have them."""

    scores: np.ndarray
    rows: np.ndarray


def _ordered(scores: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of each line of (q, n) scores, whose rows (q, n) ascend where scores are equal."""
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return scores.gather(1, order), rows.gather(1, order)


def _block_top(scores: Tensor, k: int, first: int) -> tuple[Tensor, Tensor]:
    """The k best columns of (q, n), of equal ones the lowest; columns count from `first`.

    torch.topk takes any of the columns that share the k-th score: lines where more share it than fit are done again.
    """
    k = min(k, scores.shape[1])
    top = scores.topk(k, dim=1)
    last = top.values[:, -1:]
    columns = top.indices.sort(dim=1).values
    values, columns = _ordered(scores.gather(1, columns), columns, k)
    cut = ((scores == last).sum(1) > (values == last).sum(1)).nonzero().flatten()
    for line in cut.tolist():
        at = (scores[line] >= last[line]).nonzero().flatten()
        values[line], columns[line] = (x[0] for x in _ordered(scores[line, at][None], at[None], k))
    return values, columns + first


def top_rows(queries: Tensor, vectors: Tensor, k: int, block: int = 65_536, lines: int = 256) -> Found:
    """The k rows of `vectors` (n, d) with the highest inner product with each of `queries` (q, d), exactly.

    `block` rows and `lines` queries are compared at a time, on the queries' device; `vectors` may lie elsewhere, in
    float16 too. Memory: block x lines scores, beside one block of vectors.
    """
    k = min(k, len(vectors))
    best: list[tuple[Tensor, Tensor]] = []
    parts = queries.float().split(lines)
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block].to(queries.device, torch.float32)
        for i, q in enumerate(parts):
            values, rows = _block_top(q @ part.T, k, start)
            if start:  # earlier blocks hold the lower rows, so a stable sort keeps ties in order
                values, rows = _ordered(torch.cat([best[i][0], values], 1), torch.cat([best[i][1], rows], 1), k)
                best[i] = values, rows
            else:
                best.append((values, rows))
    if not best:
        return Found(np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int64))
    return Found(*(torch.cat([b[i] for b in best]).cpu().numpy() for i in (0, 1)))


@dataclass(eq=False)
class Index:
    """Vectors (n, d) to search, float32 or float16.

    made_of  what must be the same where the index is used again: digests of the encoder and of the dictionary, pooling
    """

    vectors: Tensor
    made_of: dict[str, Any] = field(default_factory=dict)
    backend: str = "torch"
    cells: int | None = None  # ivf: 4 sqrt(n) where None, as faiss advises
    probes: int = 16
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InputError(f"no search backend {self.backend!r}; choose from: {', '.join(BACKENDS)}")
        if self.vectors.ndim != 2 or self.vectors.dtype not in (torch.float32, torch.float16):
            raise InputError(f"index: wanted float32 or float16 vectors (n, d), got {tuple(self.vectors.shape)} "
                             f"{self.vectors.dtype}")  # fmt: skip
        self._faiss: Any = None if self.backend == "torch" else self._built()

    def _built(self) -> Any:
        try:
            import faiss
        except ImportError as error:
            raise InputError(
                f"backend {self.backend!r} needs faiss, which is not installed: make setup ACCEL=cpu|gpu, or take torch"
            ) from error
        rows, size = self.vectors.shape
        index: Any = faiss.IndexFlatIP(size)
        if self.backend == "ivf":
            cells = self.cells or max(1, min(rows // 39 or 1, round(4 * rows**0.5)))  # 39 vectors a cell train one
            index = faiss.IndexIVFFlat(index, size, cells, faiss.METRIC_INNER_PRODUCT)
            index.nprobe = self.probes
        if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus():
            self._resources = faiss.StandardGpuResources()
            index = faiss.index_cpu_to_gpu(self._resources, 0, index)
        if self.backend == "ivf":
            index.train(self.vectors.float().numpy())
        for part in self.vectors.split(1 << 16):
            index.add(part.float().numpy())
        return index

    def search(self, queries: Tensor, k: int) -> Found:
        """The k best rows for each of `queries` (q, d); k is cut to the number of vectors. -1: ivf found no more."""
        if queries.ndim != 2 or queries.shape[1] != self.vectors.shape[1]:
            raise InputError(f"search: wanted queries (q, {self.vectors.shape[1]}), got {tuple(queries.shape)}")
        k = min(k, len(self.vectors))
        if self._faiss is None or not len(queries) or not k:
            return top_rows(queries.to(self.device), self.vectors, k)
        asked = queries.float().cpu().numpy()
        more = min(len(self.vectors), k + 1)
        scores, rows = self._faiss.search(np.ascontiguousarray(asked), more)
        order = np.lexsort((rows, -scores), axis=1)
        scores, rows = np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)
        if more > k and self.backend == "flat":  # a tie at the cut: rows that faiss left out may be lower
            for line in np.flatnonzero(scores[:, k - 1] == scores[:, k]):
                again = np.sort(np.asarray(self._tied(asked[line], scores[line, k - 1])))
                above = rows[line][scores[line] > scores[line, k - 1]]
                rows[line, :k] = np.concatenate([above, again])[:k]
        return Found(scores[:, :k], rows[:, :k].astype(np.int64))

    def _tied(self, query: np.ndarray, score: np.float32) -> np.ndarray:
        """Every row that faiss scores exactly `score`."""
        k = 2
        while True:
            k = min(2 * k, len(self.vectors))
            scores, rows = self._faiss.search(query[None], k)
            if scores[0, -1] < score or k == len(self.vectors):
                found: np.ndarray = rows[0][scores[0] == score]
                return found

    def save(self, folder: str | Path) -> Path:
        """Write vectors (safetensors) and manifest to `folder`, whole or not at all. Returns the folder."""
        with written_folder(folder) as partial:
            save_file({"vectors": self.vectors.cpu().contiguous()}, partial / "vectors.safetensors")
            write_json(
                partial / "manifest.json",
                {"format": FORMAT, "made_of": self.made_of, "sha256": sha256(partial / "vectors.safetensors")},
            )
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path, made_of: dict[str, Any], **settings: Any) -> Index:
        """The index in `folder`; `settings` are the other fields (backend, …).

        Raises InputError when it is missing or broken, and, naming what differs, when it is not `made_of` the same.
        """
        folder, file = Path(folder), Path(folder) / "vectors.safetensors"
        if not (folder / "manifest.json").is_file():
            raise InputError(f"{folder}: no index here (manifest.json is missing). Build it again.")
        manifest = read_json(folder / "manifest.json")
        if manifest.get("format") != FORMAT or not isinstance(manifest.get("made_of"), dict):
            raise InputError(f"{folder}/manifest.json: no index of format {FORMAT}. Build it again.")
        for key in sorted(set(made_of) | set(manifest["made_of"])):
            had, wanted = manifest["made_of"].get(key), made_of.get(key)
            if had != wanted:
                raise InputError(f"{folder}: this index does not fit: its {key} is {had!r}, wanted {wanted!r}. "
                                 "Build it again, or search with what it was built with.")  # fmt: skip
        if not file.is_file() or sha256(file) != manifest.get("sha256"):
            raise InputError(f"{file}: missing, or not the file its manifest describes. Build the index again.")
        try:
            vectors = load_file(file)["vectors"]
        except (SafetensorError, KeyError) as error:
            raise InputError(f"{file}: no safetensors file with vectors ({error}). Build the index again.") from error
        return cls(vectors, manifest["made_of"], **settings)
