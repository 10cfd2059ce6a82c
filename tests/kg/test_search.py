"""Search: exact backends agree, ties by row, an index knows what made it."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from kg.search import Index, top_rows

HAS_FAISS = True
try:
    import faiss  # noqa: F401
except ImportError:
    HAS_FAISS = False
EXACT = ["torch", pytest.param("flat", marks=pytest.mark.skipif(not HAS_FAISS, reason="faiss is not installed"))]


def grid(n, d, seed, low=-2, high=3):
    """Small whole numbers: inner products are exact, and many are equal."""
    return torch.from_numpy(np.random.default_rng(seed).integers(low, high, (n, d)).astype(np.float32))


def brute(queries, vectors, k):
    scores = (queries @ vectors.T).numpy()
    rows = [sorted(range(scores.shape[1]), key=lambda i: (-line[i], i))[:k] for line in scores]
    return np.take_along_axis(scores, np.array(rows).reshape(len(queries), -1), 1), np.array(rows)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 45), st.integers(1, 9), st.integers(0, 99))
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


@pytest.mark.skipif(not HAS_FAISS, reason="faiss is not installed")
def test_ivf_finds_most_and_all_with_every_probe():
    vectors = torch.nn.functional.normalize(torch.randn(2000, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    wanted = top_rows(vectors[:50], vectors, 5).rows
    every = Index(vectors, backend="ivf", cells=16, probes=16).search(vectors[:50], 5)
    assert (every.rows == wanted).mean() > 0.99
    few = Index(vectors, backend="ivf", cells=16, probes=2).search(vectors[:50], 5)
    assert (few.rows[:, 0] == wanted[:, 0]).mean() > 0.9


def test_index_on_disk(tmp_path):
    made_of = {"encoder": "e1", "dictionary": "d1", "pooling": "cls"}
    vectors = grid(10, 3, 0)
    Index(vectors, made_of).save(tmp_path / "i")
    again = Index.load(tmp_path / "i", made_of)
    assert torch.equal(again.vectors, vectors) and again.made_of == made_of
    for key, had in made_of.items():
        message = rf"this index does not fit: its {key} is '{had}', wanted 'other'"
        with pytest.raises(InputError, match=message):
            Index.load(tmp_path / "i", made_of | {key: "other"})
    with pytest.raises(InputError, match="its similarity is None, wanted 'dot'"):
        Index.load(tmp_path / "i", made_of | {"similarity": "dot"})
    (tmp_path / "i/vectors.safetensors").write_bytes(b"x")
    with pytest.raises(InputError, match=re.escape("not the file its manifest describes")):
        Index.load(tmp_path / "i", made_of)
    with pytest.raises(InputError, match=r"no index here \(manifest\.json is missing\)"):
        Index.load(tmp_path / "nothing", made_of)
    (tmp_path / "i/manifest.json").write_text("{}")
    with pytest.raises(InputError, match="no index of format 1"):
        Index.load(tmp_path / "i", made_of)


def test_what_search_refuses():
    with pytest.raises(InputError, match="no search backend 'annoy'; choose from: torch, flat, ivf"):
        Index(grid(3, 2, 0), backend="annoy")
    with pytest.raises(InputError, match=r"wanted float32 or float16 vectors \(n, d\), got \(3,\)"):
        Index(torch.zeros(3))
    with pytest.raises(InputError, match=re.escape("wanted queries (q, 2), got (1, 3)")):
        Index(grid(3, 2, 0)).search(torch.zeros(1, 3), 1)
    assert Index(grid(3, 2, 0)).search(torch.zeros(0, 2), 2).rows.shape == (0, 2)


def test_scores_descend():
    found = top_rows(torch.randn(4, 8), torch.randn(500, 8), 20, block=64)
    assert all(a >= b for line in found.scores for a, b in pairwise(line))
