"""Normalisation and character 3-gram TF-IDF."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from core.files import InputError
from kg.search.names import BIOSYN, TfIdf, normaliser, top_k


def test_normalisation_rules():
    assert (
        normaliser(BIOSYN)("Tooth Agenesis, Selective,  6 (STHAG6)")
        == "tooth agenesis selective 6 sthag6"
    )
    assert normaliser("lower")("Type-2  Diabetes") == "type-2  diabetes"
    assert normaliser("whitespace")(" Type-2 \t Diabetes ") == "Type-2 Diabetes"
    # the order of RULES, not of what is given
    assert normaliser("whitespace+lower")(" A  B") == "a b"
    assert (
        normaliser("symbols")("5'-A, (B) #1:2/3") == "5 A B #1:2 3"
        and normaliser("symbols")("+-") == "+-"
    )
    assert normaliser("none")(" A, B ") == " A, B "
    assert normaliser(BIOSYN)("+/-") == "+/-"  # nothing would be left of it
    with pytest.raises(
        InputError,
        match=(
            "no normalisation 'upper'; choose from: none, or lower, punctuation, symbols,"
            " whitespace"
        ),
    ):
        normaliser("lower+upper")


@given(st.text())
def test_normalising_twice_changes_nothing(name):
    once = normaliser("lower+punctuation+whitespace")(name)
    assert normaliser("lower+punctuation+whitespace")(once) in (once, once.lower())


@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 14), st.integers(0, 99))
def test_top_k_is_the_whole_sort(rows, columns, k, seed):
    # many ties
    scores = np.random.default_rng(seed).integers(0, 4, (rows, columns)).astype(np.float32)
    values, at = top_k(csr_matrix(scores), k)
    for line, v, a in zip(scores, values, at, strict=True):
        wanted = sorted(range(columns), key=lambda i: (-line[i], i))[:k]
        assert a.tolist() == wanted and v.tolist() == [line[i] for i in wanted]


def by_hand(names, query):
    """Cosines typed from the definition: raw counts, idf = ln((1 + n) / (1 + df)) + 1."""

    def grams(name):
        padded = name.ljust(3)
        return [padded[i : i + 3] for i in range(len(padded) - 2)]

    known = sorted({g for n in names for g in grams(n)})
    idf = {g: np.log((1 + len(names)) / (1 + sum(g in grams(n) for n in names))) + 1 for g in known}

    def vector(name):
        v = np.array([grams(name).count(g) * idf[g] for g in known])
        return v / max(np.linalg.norm(v), 1e-12)

    return np.array([vector(n) @ vector(query) for n in names])


def test_tfidf_is_its_definition():
    names = ["renal failure", "renal failure acute", "flu", "ab", "heart attack"]
    search = TfIdf(names, block=2)
    queries = ["acute renal failure", "ab", "influenza", "xyz"]
    scores, at = search.search(queries, 5)
    for query, s, a in zip(queries, scores, at, strict=True):
        wanted = by_hand(names, query)
        assert np.allclose(s, wanted[a], atol=1e-6)
        assert np.allclose(s, np.sort(wanted)[::-1], atol=1e-6)
    assert at[1, 0] == 3 and at[3].tolist() == [0, 1, 2, 3, 4]  # nothing in common: in order
    assert search.search([], 2)[0].shape == (0, 2)
    with pytest.raises(InputError, match=re.escape("TF-IDF: no name to search")):
        TfIdf([])


def test_cosines_are_the_searchs() -> None:
    tfidf = TfIdf(["renal failure", "kidney failure", "cold", "a"])
    scores, numbers = tfidf.search(["renal failures", "colds", "a"], 4)
    for row, query in enumerate(["renal failures", "colds", "a"]):
        found = tfidf.cosines([query] * 4, numbers[row])
        assert np.allclose(found, scores[row], atol=1e-6)
