"""Search: exact backends agree, ties by row, an index records what made it."""

from __future__ import annotations

import json
import logging
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError, lock_file
from kg.search import index as search
from kg.search.exact import top_rows
from kg.search.index import Index, backend_for, backends_in, extend, write

HAS_FAISS = True
try:
    import faiss  # noqa: F401
except ImportError:
    HAS_FAISS = False
needs_faiss = pytest.mark.skipif(not HAS_FAISS, reason="faiss is not installed")
EXACT = ["torch", pytest.param("flat", marks=needs_faiss)]
APPROXIMATE = ["ivf", "ivf-sq8", "ivf-pq", "hnsw"]
MADE_OF = {"encoder": "e1", "dictionary": "d1", "pooling": "cls"}


def grid(n, d, seed, low=-2, high=3):
    """Small whole numbers: inner products are exact, and many are equal."""
    return torch.from_numpy(
        np.random.default_rng(seed).integers(low, high, (n, d)).astype(np.float32)
    )


def brute(queries, vectors, k):
    scores = (queries @ vectors.T).numpy()
    rows = [sorted(range(scores.shape[1]), key=lambda i: (-line[i], i))[:k] for line in scores]
    return np.take_along_axis(scores, np.array(rows).reshape(len(queries), -1), 1), np.array(rows)


@given(
    st.integers(1, 40), st.integers(1, 6), st.integers(1, 45), st.integers(1, 9), st.integers(0, 99)
)
@settings(max_examples=60, deadline=None)
def test_top_rows_is_the_whole_sort(n, q, k, block, seed):
    vectors, queries = grid(n, 3, seed), grid(q, 3, seed + 1)
    found = top_rows(queries, vectors, k, block=block, lines=2)
    scores, rows = brute(queries, vectors, min(k, n))
    assert found.rows.tolist() == rows.tolist() and found.scores.tolist() == scores.tolist()


@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize("seed", range(5))
def test_exact_backends_give_the_same(backend, seed):
    vectors, queries = grid(300, 4, seed), grid(20, 4, seed + 50)
    index = Index(vectors, backend=backend)
    for k in (1, 7, 300, 1000):
        found = index.search(queries, k)
        scores, rows = brute(queries, vectors, min(k, 300))
        assert found.rows.tolist() == rows.tolist() and found.scores.tolist() == scores.tolist()


@pytest.mark.parametrize("backend", EXACT)
def test_half_precision_storage(backend):
    vectors, queries = grid(100, 4, 0), grid(5, 4, 1)  # exact in float16
    assert (
        Index(vectors.half(), backend=backend).search(queries, 9).rows.tolist()
        == brute(queries, vectors, 9)[1].tolist()
    )


@needs_faiss
def test_ivf_finds_most_and_all_with_every_probe():
    vectors = torch.nn.functional.normalize(
        torch.randn(2000, 8, generator=torch.Generator().manual_seed(0)), dim=1
    )
    wanted = top_rows(vectors[:50], vectors, 5).rows
    every = Index(vectors, backend="ivf", cells=16, probes=16).search(vectors[:50], 5)
    assert (every.rows == wanted).mean() > 0.99
    few = Index(vectors, backend="ivf", cells=16, probes=2).search(vectors[:50], 5)
    assert (few.rows[:, 0] == wanted[:, 0]).mean() > 0.9


def test_index_on_disk(tmp_path):
    made_of, vectors = MADE_OF, grid(10, 3, 0)
    Index(vectors, made_of).save(tmp_path / "i")
    again = Index.load(tmp_path / "i", made_of)
    assert torch.equal(again.vectors, vectors) and again.made_of == made_of
    for key, had in made_of.items():
        message = rf"this index does not fit: its {key} is '{had}', expected 'other'"
        with pytest.raises(InputError, match=message):
            Index.load(tmp_path / "i", made_of | {key: "other"})
    with pytest.raises(InputError, match="its similarity is None, expected 'dot'"):
        Index.load(tmp_path / "i", made_of | {"similarity": "dot"})
    (tmp_path / "i/vectors.npy").write_bytes(b"x")
    with pytest.raises(InputError, match=re.escape("not the file its manifest describes")):
        Index.load(tmp_path / "i", made_of)
    with pytest.raises(InputError, match=r"no index here \(manifest\.json is missing\)"):
        Index.load(tmp_path / "nothing", made_of)
    (tmp_path / "i/manifest.json").write_text("{}")
    with pytest.raises(InputError, match="no index of format 2"):
        Index.load(tmp_path / "i", made_of)


def test_what_search_refuses():
    with pytest.raises(
        InputError, match="no search backend 'annoy'; choose from: torch, flat, ivf, .*hnsw, auto"
    ):
        Index(grid(3, 2, 0), backend="annoy")
    with pytest.raises(
        InputError, match=r"expected float32 or float16 vectors \(n, d\), got \(3,\)"
    ):
        Index(torch.zeros(3))
    with pytest.raises(InputError, match=re.escape("expected queries (q, 2), got (1, 3)")):
        Index(grid(3, 2, 0)).search(torch.zeros(1, 3), 1)
    assert Index(grid(3, 2, 0)).search(torch.zeros(0, 2), 2).rows.shape == (0, 2)


def test_scores_descend():
    found = top_rows(torch.randn(4, 8), torch.randn(500, 8), 20, block=64)
    assert all(a >= b for line in found.scores for a, b in pairwise(line))


def clustered(n, d=16, seed=0):
    random = np.random.default_rng(seed)
    rows = random.standard_normal((20, d))[
        random.integers(20, size=n)
    ] + 0.5 * random.standard_normal((n, d))
    return torch.nn.functional.normalize(torch.from_numpy(rows.astype(np.float32)), dim=1)


@needs_faiss
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("backend", [*EXACT, *APPROXIMATE])
def test_a_loaded_index_finds_what_a_fresh_one_does(tmp_path, backend, half):
    vectors = clustered(1000).half() if half else clustered(1000)
    queries = vectors[:30].float() + 0.05
    exact = top_rows(queries, vectors, 20)
    fresh = Index(vectors, MADE_OF, backend)
    fresh.save(tmp_path / "i")
    loaded = Index.load(tmp_path / "i", MADE_OF, backend=backend)
    for one, two in zip(fresh.search(queries, 20), loaded.search(queries, 20), strict=True):
        assert one.tobytes() == two.tobytes()
    found = loaded.search(queries, 20)
    assert (
        np.mean([len(set(a) & set(b)) / 20 for a, b in zip(exact.rows, found.rows, strict=True)])
        > 0.8
    )
    if backend == "ivf":
        return
    # of the vectors, not of their codes
    own = (queries[:, None] * vectors[torch.from_numpy(found.rows)].float()).sum(2)
    assert np.allclose(found.scores, own, atol=1e-5) and (np.diff(found.scores) <= 0).all()


@needs_faiss
@pytest.mark.parametrize("backend", APPROXIMATE)
def test_the_recall_of_a_backend_is_measured_when_it_is_built(tmp_path, backend, caplog):
    vectors = clustered(1500)
    with caplog.at_level(logging.INFO, "kg"):
        Index(vectors, MADE_OF, backend, probes=2).save(tmp_path / "i")
    manifest = json.loads((tmp_path / "i/manifest.json").read_text())
    measured = manifest["backends"][backend]["recall@20"]
    loaded = Index.load(tmp_path / "i", MADE_OF, backend=backend, probes=2)
    assert (
        loaded.recall == measured == loaded.measure_recall()
        and f"recall@20 {measured:.3f}" in caplog.text
    )
    assert set(manifest["sha256"]) == {"vectors.npy", f"{backend}.faiss"}
    queries = vectors[:40] + 0.1
    exact, found = top_rows(queries, vectors, 20).rows, loaded.search(queries, 20).rows
    share = np.mean([len(set(a) & set(b)) / 20 for a, b in zip(exact, found, strict=True)])
    assert loaded.measure_recall(queries) == pytest.approx(share)


def test_recall_is_measured_with_rows_that_are_moved_by_half_their_length(monkeypatch):
    vectors = torch.eye(40) * torch.arange(1, 41)[:, None]  # far apart, of lengths 1 to 40
    index, asked = Index(vectors, MADE_OF), []
    ask = index.search
    monkeypatch.setattr(
        index, "search", lambda queries, k: asked.append(queries) or ask(queries, k)
    )
    assert index.measure_recall() == 1
    queries = asked[0]
    moved = (queries - vectors).norm(dim=1)
    assert torch.allclose(moved, vectors.norm(dim=1) / 2, rtol=1e-5)


def test_vectors_are_mapped_and_the_file_stays(tmp_path):
    Index(grid(50, 4, 0)).save(tmp_path / "i")
    before = (tmp_path / "i/vectors.npy").read_bytes()
    loaded = Index.load(tmp_path / "i", {})
    assert str(tmp_path / "i/vectors.npy") in open("/proc/self/maps").read()  # noqa: SIM115
    loaded.vectors.zero_()
    assert (tmp_path / "i/vectors.npy").read_bytes() == before
    assert np.array_equal(np.load(tmp_path / "i/vectors.npy"), grid(50, 4, 0).numpy())


@needs_faiss
@pytest.mark.parametrize("backend", ["torch", "ivf-sq8"])
def test_an_index_that_is_written_in_blocks_is_that_of_the_whole(tmp_path, backend):
    vectors = clustered(900)
    taken = []

    def blocks():
        for part in vectors.split(70):
            taken.append(len(part))
            yield part

    write(tmp_path / "a", blocks(), (900, 16), MADE_OF, backend)
    Index(vectors, MADE_OF, backend).save(tmp_path / "b")
    assert sum(taken) == 900 and len(taken) == 13
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert files == sorted(p.name for p in (tmp_path / "b").iterdir())
    assert all(
        (tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files
    )
    for shape, message in (
        ((901, 16), "expected 901 rows, got 900"),
        ((900, 8), r"expected rows of 8 numbers, got \(70, 16\)"),
    ):
        with pytest.raises(ValueError, match=message):
            write(tmp_path / "c", blocks(), shape, MADE_OF)
    assert not (tmp_path / "c").exists()


@needs_faiss
def test_backends_are_added_to_an_index(tmp_path):
    vectors = clustered(600)
    Index(vectors, MADE_OF).save(tmp_path / "i")
    with pytest.raises(InputError, match="this index has no hnsw; it has: torch, flat"):
        Index.load(tmp_path / "i", MADE_OF, backend="hnsw")
    for backend in ("hnsw", "ivf-pq"):
        extend(tmp_path / "i", MADE_OF, backend)
    assert backends_in(tmp_path / "i") == ("torch", "flat", "hnsw", "ivf-pq")
    assert Index.load(tmp_path / "i", MADE_OF, backend="hnsw").search(vectors[:3], 1).rows[
        :, 0
    ].tolist() == [0, 1, 2]
    with (
        lock_file(tmp_path / "i" / ".lock", "w", "taken"),
        pytest.raises(InputError, match="another process is writing it"),
    ):
        extend(tmp_path / "i", MADE_OF, "ivf")
    with pytest.raises(InputError, match="no index here"):
        extend(tmp_path / "nothing", MADE_OF, "ivf")
    assert not (tmp_path / "nothing").exists()


@needs_faiss
@pytest.mark.parametrize("backend", ["ivf-sq8", "hnsw"])
def test_a_damaged_faiss_file_is_one_error(tmp_path, backend):
    Index(clustered(500), MADE_OF, backend).save(tmp_path / "i")
    file, manifest = tmp_path / "i" / f"{backend}.faiss", tmp_path / "i/manifest.json"
    whole, sealed = file.read_bytes(), json.loads(manifest.read_text())
    file.write_bytes(whole[:-9] + b"x" + whole[-8:])
    with pytest.raises(
        InputError, match=rf"{backend}\.faiss: missing, or not the file its manifest describes"
    ):
        Index.load(tmp_path / "i", MADE_OF, backend=backend)
    Index.load(tmp_path / "i", MADE_OF)  # the vectors are sound
    for content in (whole[:200], b"", b"not an index" * 99):  # with a manifest that fits
        file.write_bytes(content)
        manifest.write_text(
            json.dumps(sealed | {"sha256": sealed["sha256"] | {file.name: search.sha256(file)}})
        )
        with pytest.raises(InputError, match="not an index that faiss can read"):
            Index.load(tmp_path / "i", MADE_OF, backend=backend)
    Index(clustered(400), MADE_OF, backend).save(tmp_path / "j")
    file.write_bytes((tmp_path / "j" / file.name).read_bytes())
    manifest.write_text(
        json.dumps(sealed | {"sha256": sealed["sha256"] | {file.name: search.sha256(file)}})
    )
    with pytest.raises(InputError, match="an index of 400 vectors of 16, not of these 500 of 16"):
        Index.load(tmp_path / "i", MADE_OF, backend=backend)


def test_damaged_vectors_are_one_error(tmp_path):
    Index(grid(50, 4, 0)).save(tmp_path / "i")
    file, manifest = tmp_path / "i/vectors.npy", tmp_path / "i/manifest.json"
    whole = file.read_bytes()
    for content in (whole[:150], b"", b"x" * 400, whole.replace(b"<f4", b"|O8")):
        file.write_bytes(content)
        manifest.write_text(
            json.dumps(
                json.loads(manifest.read_text()) | {"sha256": {file.name: search.sha256(file)}}
            )
        )
        with pytest.raises(InputError, match=r"vectors\.npy: no array of vectors"):
            Index.load(tmp_path / "i", {})


def test_auto_is_chosen_by_size(monkeypatch):
    assert [backend_for(n, 384) for n in (1, 200_000, 200_001, 10_000_000)] == [
        "torch",
        "torch",
        "ivf-sq8",
        "ivf-sq8",
    ]
    assert backend_for(10_000_000, 768) == "ivf-sq8" and backend_for(30_000_000, 768) == "ivf-pq"
    assert Index(grid(10, 2, 0), backend="auto").backend == "torch"
    monkeypatch.setattr(search, "LEAST", 5)
    if HAS_FAISS:
        assert Index(grid(10, 2, 0), backend="auto").backend == "ivf-sq8"


@needs_faiss
@pytest.mark.parametrize("block", [7, 64])
def test_flat_searches_in_blocks(monkeypatch, block):
    monkeypatch.setattr(search, "BLOCK", block)
    vectors, queries = grid(100, 3, 0), grid(9, 3, 1)
    for k in (1, 20, 100):
        found, (scores, rows) = (
            Index(vectors, backend="flat").search(queries, k),
            brute(queries, vectors, k),
        )
        assert found.rows.tolist() == rows.tolist() and found.scores.tolist() == scores.tolist()


@pytest.mark.parametrize("rows", [1, 2, 255, 256])
@pytest.mark.parametrize("backend", ["ivf", "ivf-sq8", "ivf-pq", "hnsw"])
def test_every_backend_has_an_answer_over_few_rows(tmp_path, rows, backend):
    vectors = torch.eye(256, 16)[:rows] + torch.linspace(0, 1, rows)[:, None]
    write(tmp_path / "index", [vectors], (rows, 16), {}, backend, cells=300)
    index = Index.load(tmp_path / "index", {}, backend=backend)
    assert index.backend == ("torch" if backend == "ivf-pq" and rows < 256 else backend)
    assert index.search(vectors[:1], 1).rows.shape == (1, 1)
