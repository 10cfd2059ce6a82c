"""Nearest vectors by inner product: one interface over torch and faiss, and an index on disk that
is memory-mapped.

    torch    exact: a matrix product and top-k over blocks of rows, in float32 whatever the storage
    flat     exact: faiss over the same blocks (on a GPU: IndexFlatIP)
    ivf      approximate: `probes` of the vectors' k-means cells are searched; float32 vectors
    ivf-sq8  the same over 8-bit numbers: a quarter of the memory
    ivf-pq   the same over product codes, a byte for each DIMENSIONS numbers
    hnsw     approximate: a graph of neighbours over 8-bit numbers
    auto     one of them by the size of the index: see :func:`backend_for`

faiss runs on the GPU where its GPU build finds one (not for hnsw). Vectors may be stored as
float16, which halves memory. All exact backends return the same answer: best first, of equal scores
the lowest row first. (Equal to the last bit: a score that two backends sum in another order may
differ in the last digits, so rows that are nearly equal may change places.) Codes of 8 bits and
product codes only find REFINE candidates for each row that is returned: their scores are computed
from the stored vectors.

A folder holds

    vectors.npy     (n, d) float32 or float16, read by memory map: every exact backend searches it
    BACKEND.faiss   what faiss made of the vectors, for each approximate backend that was built;
                    memory-mapped where faiss can
    its manifest    what the vectors are made of, the checksums of the files, and of each
                    approximate backend its recall@20

Rows are written in blocks (:func:`write`), so building needs a block and what faiss keeps.
Approximate backends are trained on a seeded sample of the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.artifact import Artifact, write_manifest
from core.files import InputError, atomic_folder, atomic_write, explain_error, lock_file
from core.reading import sha256
from kg.search.exact import BLOCK, Found, top_rows

LOG = logging.getLogger(__name__)
EXACT = ("torch", "flat")
BACKENDS = (*EXACT, "ivf", "ivf-sq8", "ivf-pq", "hnsw")
FORMAT = 2
INDEX = Artifact(
    "index", "remove the folder and run the command again", FORMAT, ("made_of", "backends")
)
VECTORS = "vectors.npy"
#: `auto`: rows that are searched exactly; numbers of vectors whose 8-bit codes are kept
LEAST, LARGEST = 200_000, 16 << 30
REFINE = 4  #: candidates by codes for each row that is returned
DIMENSIONS = 8  #: numbers of a vector that one byte of a product code encodes
NEIGHBOURS, BUILDING, SEARCHING = 16, 80, 256  #: hnsw: M, efConstruction, and the least efSearch
RECALL, QUERIES = 20, 256  #: recall@RECALL is measured with as many queries
CELL = 40  #: rows that train a cell of ivf*, a little above the least that faiss asks for
TRAINING = 1 << 14  #: rows that train a product code: 64 for each of its 256 values
LEAST_ROWS = {"ivf-pq": 256}  #: that train a backend: one for each value of a code's byte
SEED = 0


def backend_for(rows: int, size: int) -> str:
    """What `auto` means for (rows, size) vectors: exact search (torch) up to LEAST rows.

    Above that ivf-sq8 while rows x size is at most LARGEST, as many bytes as its codes have; ivf-pq
    for more.
    """
    if rows <= LEAST:
        return "torch"
    return "ivf-sq8" if rows * size <= LARGEST else "ivf-pq"


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise InputError(
            "a search backend other than torch needs faiss, which is not installed: make setup"
            " ACCEL=cpu|gpu, or take torch"
        ) from error
    return faiss


def checked_backend(backend: str, rows: int, size: int) -> str:
    """`backend`, or what `auto` means; exact search where there are too few rows to train an
    approximate one.

    Raises InputError for one that does not exist.
    """
    if backend == "auto":
        return backend_for(rows, size)
    least = LEAST_ROWS.get(backend, 1)
    if backend in BACKENDS and backend not in EXACT and rows < least:
        LOG.info(f"{rows:,} vectors are searched exactly: {backend} needs {least:,}")
        return "torch"
    if backend not in BACKENDS:
        raise InputError(f"no search backend {backend!r}; choose from: {', '.join(BACKENDS)}, auto")
    return backend


def _describe_backend(backend: str, rows: int, size: int, cells: int | None) -> str:
    """The approximate index in the words of faiss's index_factory."""
    if backend == "hnsw":
        return f"HNSW{NEIGHBOURS},SQ8"
    cells = min(cells, rows) if cells else max(1, min(rows // CELL, round(rows**0.5)))
    bytes_ = max(m for m in range(1, max(1, size // DIMENSIONS) + 1) if size % m == 0)
    return f"IVF{cells}," + {"ivf": "Flat", "ivf-sq8": "SQ8", "ivf-pq": f"PQ{bytes_}np"}[backend]


@dataclass(eq=False)
class Index:
    """Vectors (n, d) to search, float32 or float16.

    made_of  what must be the same where the index is used again: digests of the encoder and of the
    dictionary, pooling backend  see the module; an approximate one is built from the vectors
    recall   of an approximate backend that was saved: recall@20 against exact search
    """

    vectors: Tensor
    made_of: dict[str, Any] = field(default_factory=dict)
    backend: str = "torch"
    # ivf*: sqrt(n) where None: a row is compared with all of them when it is added
    cells: int | None = None
    probes: int = 16
    device: str = "cpu"
    recall: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or self.vectors.dtype not in (torch.float32, torch.float16):
            raise InputError(
                "index: expected float32 or float16 vectors (n, d), got"
                f" {tuple(self.vectors.shape)} {self.vectors.dtype}"
            )
        self.backend = checked_backend(self.backend, *self.vectors.shape)
        self._faiss: Any = None
        self._resources: Any = None
        if self.backend not in EXACT:
            self._build()
        elif self.backend == "flat" and self._on_gpu(_faiss()):
            self._faiss = self._to_gpu(_faiss().IndexFlatIP(self.vectors.shape[1]))
            self._add()

    def _on_gpu(self, faiss: Any) -> bool:
        return (
            self.backend != "hnsw"
            and hasattr(faiss, "StandardGpuResources")
            and faiss.get_num_gpus() > 0
        )

    def _to_gpu(self, index: Any) -> Any:
        faiss = _faiss()
        if not self._on_gpu(faiss):
            return index
        self._resources = faiss.StandardGpuResources()
        return faiss.index_cpu_to_gpu(self._resources, 0, index)

    def _add(self) -> None:
        for part in self.vectors.split(BLOCK):
            self._faiss.add(part.float().numpy())

    def _build(self) -> None:
        """What faiss makes of the vectors, trained on a seeded sample of them."""
        faiss, (rows, size) = _faiss(), self.vectors.shape
        index = faiss.index_factory(
            size,
            _describe_backend(self.backend, rows, size, self.cells),
            faiss.METRIC_INNER_PRODUCT,
        )
        if self.backend == "hnsw":
            index.hnsw.efConstruction = BUILDING
        if self.backend == "ivf-pq":
            index.pq.cp.max_points_per_centroid, index.pq.cp.niter = TRAINING // 256, 10
        most = max(BLOCK, CELL * getattr(index, "nlist", 0))
        sample = np.sort(np.random.default_rng(SEED).permutation(rows)[:most])
        self._take(index)
        self._faiss.train(self.vectors[torch.from_numpy(sample)].float().numpy())
        self._add()

    def _take(self, index: Any) -> None:
        """Search with an index of faiss, on the GPU where there is one."""
        self._faiss = self._to_gpu(index)
        if self.backend != "hnsw":
            self._faiss.nprobe = self.probes

    def search(self, queries: Tensor, k: int) -> Found:
        """The k best rows for each of `queries` (q, d); k is cut to the number of vectors. -1: no
        more were found (approximate)."""
        if queries.ndim != 2 or queries.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"search: expected queries (q, {self.vectors.shape[1]}), got {tuple(queries.shape)}"
            )
        k = min(k, len(self.vectors))
        if self.backend == "torch" or not len(queries) or not k:
            return top_rows(queries.to(self.device), self.vectors, k)
        query_rows = np.ascontiguousarray(queries.float().cpu().numpy())
        if self.backend != "flat":
            scores, rows = self._approximate(query_rows, k)
            return Found(scores[:, :k], rows[:, :k].astype(np.int64))
        more = min(len(self.vectors), k + 1)
        scores, rows = self._flat(query_rows, more)
        if more > k:  # a tie at the cut: rows that faiss left out may be lower
            for line in np.flatnonzero(scores[:, k - 1] == scores[:, k]):
                again = np.sort(np.asarray(self._find_tied(query_rows[line], scores[line, k - 1])))
                above = rows[line][scores[line] > scores[line, k - 1]]
                rows[line, :k] = np.concatenate([above, again])[:k]
        return Found(scores[:, :k], rows[:, :k].astype(np.int64))

    def _flat(self, query_rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(q, k) scores and rows by faiss, best first; of rows that share the k-th score it returns
        any."""
        if self._faiss is not None:
            return _sort_scores(*self._faiss.search(query_rows, k))
        faiss = _faiss()
        best: tuple[np.ndarray, np.ndarray] | None = None
        for start in range(0, len(self.vectors), BLOCK):
            part = self.vectors[start : start + BLOCK].float().numpy()
            scores, rows = faiss.knn(
                query_rows, part, min(k, len(part)), metric=faiss.METRIC_INNER_PRODUCT
            )
            best_of_block = scores, rows + start
            if best is not None:
                best_of_block = (
                    np.hstack([best[0], best_of_block[0]]),
                    np.hstack([best[1], best_of_block[1]]),
                )
            scores, rows = _sort_scores(*best_of_block)
            best = scores[:, :k], rows[:, :k]
        assert best is not None
        return best

    def _find_tied(self, query: np.ndarray, score: np.float32) -> np.ndarray:
        """Every row that faiss scores exactly `score`."""
        k = 2
        while True:
            k = min(2 * k, len(self.vectors))
            scores, rows = self._flat(query[None], k)
            if scores[0, -1] < score or k == len(self.vectors):
                tied: np.ndarray = rows[0][scores[0] == score]
                return tied

    def _approximate(self, query_rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(q, k or more) scores and rows, best first; candidates that codes have found are scored
        by their vectors."""
        if self.backend == "ivf":
            return _sort_scores(*self._faiss.search(query_rows, k))
        wide = min(len(self.vectors), REFINE * k)
        more = (
            {"params": _faiss().SearchParametersHNSW(efSearch=max(SEARCHING, wide))}
            if self.backend == "hnsw"
            else {}
        )
        # in order: neighbours on disk are read together
        rows = np.sort(self._faiss.search(query_rows, wide, **more)[1], axis=1)
        scores = np.empty(rows.shape, np.float32)
        for line, (query, candidate_rows) in enumerate(zip(query_rows, rows, strict=True)):
            scores[line] = np.where(
                candidate_rows < 0,
                -np.inf,
                self.vectors[torch.from_numpy(candidate_rows.clip(0))].float().numpy() @ query,
            )
        return _sort_scores(scores, rows)

    def measure_recall(self, queries: Tensor | None = None) -> float:
        """Recall@20 of the backend against exact search: the share of the 20 best rows that it
        finds.

        queries (q, d): without them QUERIES seeded rows of the index, moved by half their length in
        a random direction.
        """
        if not len(self.vectors):
            return 1.0
        if queries is None:
            random = np.random.default_rng(SEED + 1)
            sample = self.vectors[
                torch.from_numpy(np.sort(random.permutation(len(self.vectors))[:QUERIES]))
            ].float()
            noise = torch.from_numpy(random.standard_normal(sample.shape, np.float32))
            queries = sample + 0.5 * sample.norm(
                dim=1, keepdim=True
            ) * torch.nn.functional.normalize(noise, dim=1)
        k = min(RECALL, len(self.vectors))
        exact, approximate = top_rows(queries, self.vectors, k).rows, self.search(queries, k).rows
        return float(
            np.mean(
                [len(np.intersect1d(a, b)) / k for a, b in zip(exact, approximate, strict=True)]
            )
        )

    # on disk

    def save(self, folder: str | Path) -> Path:
        """Write the index to `folder`, whole or not at all. Returns the folder. Raises InputError
        where `folder` holds something else."""
        INDEX.check_replaceable(folder)
        with atomic_folder(folder) as partial:
            _write_vectors(partial / VECTORS, self.vectors.split(BLOCK), self.vectors)
            self._seal(
                partial, {"format": FORMAT, "made_of": self.made_of, "sha256": {}, "backends": {}}
            )
        return Path(folder)

    def _seal(self, folder: Path, manifest: dict[str, Any]) -> None:
        """Write what faiss has made, and then the manifest with it and its recall."""
        names = [] if VECTORS in manifest["sha256"] else [VECTORS]
        parts: dict[str, Any] = {}
        if self.backend not in EXACT:
            faiss, name = _faiss(), f"{self.backend}.faiss"
            with atomic_write(folder / name, "wb") as handle:
                try:
                    faiss.write_index(
                        (
                            self._faiss
                            if self._resources is None
                            else faiss.index_gpu_to_cpu(self._faiss)
                        ),
                        handle.name,
                    )
                except RuntimeError as error:
                    raise explain_error(OSError(str(error)), folder / name) from error
            self.recall = self.measure_recall()
            rows, size = self.vectors.shape
            LOG.info(
                f"{self.backend} over {rows:,} vectors of {size}: recall@{RECALL} {self.recall:.3f}"
            )
            parts = {
                self.backend: {
                    "faiss": _describe_backend(self.backend, rows, size, self.cells),
                    "recall@20": self.recall,
                }
            }
            names.append(name)
        sums = manifest["sha256"] | {name: sha256(folder / name) for name in names}
        write_manifest(
            folder, manifest | {"sha256": sums, "backends": manifest["backends"] | parts}
        )

    @classmethod
    def load(cls, folder: str | Path, made_of: dict[str, Any], **settings: Any) -> Index:
        """The index in `folder`, memory-mapped; `settings` are the other fields (backend, …).

        Raises InputError when it is missing or broken, or lacks the backend, and, naming what
        differs, when it is not `made_of` the same.
        """
        folder = Path(folder)
        manifest = INDEX.manifest(folder)
        for key in sorted(set(made_of) | set(manifest["made_of"])):
            had, wanted = manifest["made_of"].get(key), made_of.get(key)
            if had != wanted:
                raise InputError(
                    f"{folder}: this index does not fit: its {key} is {had!r}, expected {wanted!r}."
                    " Build it again, or search with what it was built with."
                )
        INDEX.check(folder, manifest, [VECTORS])
        index = cls(
            _read_vectors(folder / VECTORS), manifest["made_of"], **settings | {"backend": "torch"}
        )
        backend = checked_backend(settings.get("backend", "torch"), *index.vectors.shape)
        if backend in EXACT:
            return replace(index, backend=backend)
        if backend not in manifest["backends"]:
            raise InputError(
                f"{folder}: this index has no {backend}; it has:"
                f" {', '.join([*EXACT, *manifest['backends']])}"
            )
        index.backend, index.recall = backend, manifest["backends"][backend].get("recall@20")
        file = folder / f"{backend}.faiss"
        INDEX.check(folder, manifest, [file.name])
        index._take(_read_faiss(file, backend, *index.vectors.shape))
        return index


def _sort_scores(scores: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both (q, n), best first, of equal scores the lowest row first."""
    order = np.lexsort((rows, -scores), axis=1)
    return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)


def _write_vectors(path: Path, blocks: Iterable[Tensor], like: Tensor) -> None:
    """Write blocks of rows as an array of the shape and the type of `like`, a block in memory at a
    time.

    Raises ValueError for blocks that are not as many rows of that width.
    """
    rows, dtype = 0, torch.empty(0, dtype=like.dtype).numpy().dtype
    with atomic_write(path, "wb") as handle:
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": tuple(like.shape),
        }
        np.lib.format.write_array_header_1_0(handle, header)
        for block in blocks:
            if block.ndim != 2 or block.shape[1] != like.shape[1]:
                raise ValueError(
                    f"expected rows of {like.shape[1]} numbers, got {tuple(block.shape)}"
                )
            handle.write(block.to("cpu", like.dtype).contiguous().numpy().data)
            rows += len(block)
        if rows != len(like):
            raise ValueError(f"expected {len(like)} rows, got {rows}")


def _read_vectors(path: Path) -> Tensor:
    """The vectors in `path`, memory-mapped."""
    try:
        # c: torch wants memory that may be written; the file is not
        mapped = np.load(path, mmap_mode="c", allow_pickle=False)
        return torch.from_numpy(mapped)
    except (ValueError, OSError, EOFError, TypeError) as error:
        raise InputError(
            f"{path}: no array of vectors ({error}). Build the index again."
        ) from error


def _read_faiss(path: Path, backend: str, rows: int, size: int) -> Any:
    """The index of faiss in `path`, memory-mapped where faiss can. Reading it runs no code."""
    faiss = _faiss()
    on_gpu = backend != "hnsw" and hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus()
    try:
        index = faiss.read_index(str(path), 0 if on_gpu else _mapping(faiss, backend))
    except (RuntimeError, MemoryError) as error:
        reason = str(error).rpartition(": ")[2][:200]
        raise InputError(
            f"{path}: not an index that faiss can read ({reason}). Build the index again."
        ) from error
    if (index.ntotal, index.d, index.metric_type) != (rows, size, faiss.METRIC_INNER_PRODUCT):
        raise InputError(
            f"{path}: an index of {index.ntotal:,} vectors of {index.d}, not of these {rows:,} of"
            f" {size}. Build it again."
        )
    return index


def _mapping(faiss: Any, backend: str) -> int:
    """How faiss reads an index without copying it: inverted lists by one memory map, a graph and
    codes by another."""
    flag: int = getattr(faiss, "IO_FLAG_MMAP_IFC", 0) if backend == "hnsw" else faiss.IO_FLAG_MMAP
    return flag


def write(
    folder: str | Path,
    blocks: Iterable[Tensor],
    shape: tuple[int, int],
    made_of: dict[str, Any],
    backend: str = "torch",
    *,
    half: bool = False,
    cells: int | None = None,
) -> Path:
    """Write an index of `shape` (n, d) from blocks of rows to `folder`, whole or not at all.
    Returns the folder.

    A block is in memory at a time, beside what faiss keeps. half: store float16. Raises InputError
    where `folder` holds something else.
    """
    INDEX.check_replaceable(folder)
    like = torch.empty(shape, dtype=torch.float16 if half else torch.float32, device="meta")
    with atomic_folder(folder) as partial:
        _write_vectors(partial / VECTORS, blocks, like)
        index = Index(_read_vectors(partial / VECTORS), made_of, backend, cells)
        index._seal(partial, {"format": FORMAT, "made_of": made_of, "sha256": {}, "backends": {}})
    return Path(folder)


def backends_in(folder: str | Path) -> tuple[str, ...]:
    """The backends that the index in `folder` can be searched with. Raises InputError as
    :meth:`Index.load`."""
    return (*EXACT, *INDEX.manifest(folder)["backends"])


def extend(
    folder: str | Path, made_of: dict[str, Any], backend: str, cells: int | None = None
) -> None:
    """Build another approximate backend from the vectors of the index in `folder`, and add it.
    Raises InputError as `load`."""
    folder = Path(folder)
    INDEX.manifest(folder)  # of an existing folder
    with lock_file(
        folder / ".lock",
        "w",
        f"{folder}: another process is writing it. Wait, and run the command again.",
    ):
        index = Index.load(folder, made_of)
        replace(index, backend=backend, cells=cells)._seal(folder, INDEX.manifest(folder))
