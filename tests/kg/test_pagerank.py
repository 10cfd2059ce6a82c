"""PEPR: by the definition, by elimination, and the table that is made of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from kg.graph import KnowledgeGraph, table
from kg.pagerank import (
    NeighbourTable,
    best_relations,
    frequencies,
    iterate,
    pagerank,
    pepr,
    personal,
    personal_steps,
    ppr,
    rank,
    start,
    top,
    weights,
)
from tests.commands import command

main = command("graph neighbours")


def drawn(seed: int, entities: int, triples: int, tilt: float = 0.8) -> np.ndarray:
    """(triples, 3) with few entities in many and many in few; duplicates, self-loops and lone
    entities among them."""
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, entities + 1) ** tilt
    return np.stack(
        [
            rng.choice(entities, triples, p=chance / chance.sum()),
            rng.integers(0, 3, triples),
            rng.integers(0, entities, triples),
        ],
        axis=1,
    )


def saved(folder: Path, entities: list[str], triples: list[tuple[str, str, str]]) -> str:
    n = len(entities)
    KnowledgeGraph(
        table("entities", {"id": entities, "name": entities, "type": ["t"] * n}),
        table(
            "names",
            {
                "id": entities,
                "name": entities,
                "kind": ["preferred"] * n,
                "language": ["en"] * n,
                "source": ["s"] * n,
            },
        ),
        table("definitions", {"id": [], "text": []}),
        table(
            "triples",
            {c: [t[i] for t in triples] for i, c in enumerate(("head", "relation", "tail"))},
        ),
        {"source": "fake", "version": "1", "licence": "none"},
    ).save(folder)
    return str(folder)


def by_hand(
    triples: np.ndarray, z: int, jump: np.ndarray, v: np.ndarray, alpha: float, steps: int
) -> np.ndarray:
    """V_i = (1 - alpha) A V_{i-1} + alpha P with dense loops."""
    w = np.zeros((z, z))
    for h, _, t in {tuple(t) for t in triples.tolist()}:
        if h != t:
            w[h, t] += 1
            w[t, h] += 1
    a = np.full((z, z), 1 / z)
    for column in range(z):
        if w[:, column].sum():
            a[:, column] = w[:, column] / w[:, column].sum()
    for _ in range(steps):
        v = (1 - alpha) * a @ v + alpha * jump
    return v


def test_a_hand_worked_star() -> None:
    """0 - 1 twice over, 0 - 2, 3 alone; alpha .5. PPR(0): x0 = .5 + .5 (x1 + x2), x1 = .5 * 2/3 x0,
    x2 = .5 * 1/3 x0."""
    triples = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 2], [0, 0, 2], [3, 0, 3]])
    w = weights(triples, 4)
    assert w.toarray().tolist() == [[0, 2, 1, 0], [2, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    found = iterate(w, np.array([1.0, 0, 0, 0]), alpha=0.5)
    assert found == pytest.approx([2 / 3, 2 / 9, 1 / 9, 0])
    row, score = np.repeat(range(4), np.diff(w.indptr)), personal(w, alpha=0.5).score
    assert dict(
        zip(zip(row.tolist(), w.indices.tolist(), strict=True), score, strict=True)
    ) == pytest.approx({(0, 1): 2 / 9, (0, 2): 1 / 9, (1, 0): 1 / 3, (2, 0): 1 / 3})


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(2, 12),
    st.integers(0, 30),
    st.floats(0.05, 0.95),
    st.integers(1, 6),
)
def test_the_iteration_is_eq_1(seed: int, z: int, count: int, alpha: float, steps: int) -> None:
    triples = drawn(seed, z, count)
    frequency = np.random.default_rng(seed).integers(0, 3, z).astype(float)
    jump = np.full(z, 1 / z)
    jump[0] = 1
    first = np.array([f / max(frequency.sum(), 1) if f else 1 / z for f in frequency])
    wanted = by_hand(triples, z, jump, first / first.sum(), alpha, steps)
    assert pepr(weights(triples, z), 0, alpha, steps, frequency) == pytest.approx(wanted, abs=1e-12)


def test_converged_scores_do_not_depend_on_the_start() -> None:
    w = weights(drawn(0, 30, 60), 30)
    frequency = np.arange(30.0)
    assert pepr(w, 3) == pytest.approx(pepr(w, 3, frequency=frequency), abs=1e-11)
    assert np.abs(pepr(w, 3, n_iter=2) - pepr(w, 3, n_iter=2, frequency=frequency)).max() > 1e-3
    assert pepr(w, 3, n_iter=400) == pytest.approx(pepr(w, 3), abs=1e-12)


def test_start() -> None:
    assert start(4) == pytest.approx([0.25] * 4)
    assert start(2, np.array([0.0, 0.0])) == pytest.approx([0.5, 0.5])
    assert start(3, np.array([3.0, 1.0, 0.0])) == pytest.approx(
        np.array([3 / 4, 1 / 4, 1 / 3]) * 3 / 4
    )
    with pytest.raises(InputError, match="expected 3 numbers"):
        start(3, np.array([1.0, 2.0]))
    with pytest.raises(InputError, match="at least 0"):
        start(2, np.array([1.0, -2.0]))


def test_scores_are_a_personal_part_and_a_common_one() -> None:
    """V = (1 - 1/Z) PPR(entity) + PR, lone entities among them."""
    w = weights(drawn(1, 40, 50), 40)
    assert (np.diff(w.indptr) == 0).any()
    for entity in range(0, 40, 7):
        alone = np.zeros(40)
        alone[entity] = 1
        parts = (1 - 1 / 40) * iterate(w, alone) + pagerank(w)
        assert pepr(w, entity) == pytest.approx(parts, abs=1e-11)
    assert pagerank(w).sum() == pytest.approx(1)


def exact(w, alpha: float) -> np.ndarray:
    """PPR(m)[k] of the entries (m, k) of the weights, from a dense inverse."""
    full = w.toarray()
    degree = np.maximum(full.sum(axis=0), 1)
    inverse = alpha * np.linalg.inv(np.eye(len(full)) - (1 - alpha) * full / degree)
    return inverse[w.indices, np.repeat(np.arange(len(full)), np.diff(w.indptr))]


@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_elimination_is_exact(monkeypatch: pytest.MonkeyPatch, seed: int, share: float) -> None:
    """Whether little or everything is eliminated, and whatever the size of a block of pairs."""
    monkeypatch.setattr(ppr, "DENSE_SHARE", share)
    monkeypatch.setattr(ppr, "PAIRS", 50)
    w = weights(drawn(seed, 300, 600), 300)
    for alpha in (0.15, 0.6):
        found = personal(w, alpha)
        assert found.score == pytest.approx(exact(w, alpha), abs=1e-12) and not found.missing.any()


@pytest.mark.parametrize("most", [1, 5, 40])
@pytest.mark.parametrize("seed", range(4))
def test_what_a_small_dense_matrix_misses_is_bounded(
    monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    monkeypatch.setattr(ppr, "DENSE_SHARE", 0.03)
    monkeypatch.setattr(ppr, "BLOCK", 16)
    w = weights(drawn(seed, 300, 700), 300)
    found = personal(w, 0.15, dense=most)
    error = exact(w, 0.15) - found.score
    assert error.max() > 1e-4 and error.min() > -1e-12
    assert (error <= found.missing + 1e-12).all() and (
        found.score + found.missing <= 1 + 1e-12
    ).all()


@pytest.mark.parametrize("steps", [1, 2, 5, 300])
def test_a_cut_iteration(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    monkeypatch.setattr(ppr, "BLOCK", 7)
    w = weights(drawn(5, 60, 120), 60)
    row = np.repeat(np.arange(60), np.diff(w.indptr))
    total = np.maximum(np.asarray(w.sum(axis=1)).ravel(), 1)
    wanted = []
    for m, k in zip(row, w.indices, strict=True):
        v, jump = np.zeros(60), np.zeros(60)
        jump[m] = 1
        for _ in range(steps):
            v = 0.85 * w @ (v / total) + 0.15 * jump
        wanted.append(v[k])
    assert personal_steps(w, 0.15, steps).score == pytest.approx(wanted, abs=1e-12)


def test_no_triples_and_loops_only() -> None:
    for triples in (np.zeros((0, 3), np.int64), np.array([[1, 0, 1]])):
        w = weights(triples, 3)
        assert w.nnz == 0 and len(personal(w).score) == 0
        assert pagerank(w) == pytest.approx([1 / 3] * 3)
        assert top(best_relations(triples, 3), np.zeros(0), 3, 2).tolist() == [[[-1, 0, 0]] * 2] * 3


def test_best_relations() -> None:
    """Outgoing before incoming, then the first relation; each neighbour once; no self."""
    triples = np.array([[0, 2, 1], [0, 1, 1], [1, 0, 0], [2, 0, 0], [2, 0, 0], [1, 1, 1]])
    assert best_relations(triples, 3).tolist() == [
        [0, 1, 1, 1],
        [0, 2, 0, -1],
        [1, 0, 0, 1],
        [2, 0, 0, 1],
    ]


def test_top_breaks_ties_by_position_and_keeps_k() -> None:
    pairs = np.array([[0, 1, 0, 1], [0, 2, 0, 1], [0, 3, 0, -1], [2, 0, 5, -1]])
    found = top(pairs, np.array([0.1, 0.1 + 1e-15, 0.2, 0.3]), 4, 2)
    assert found.dtype == np.int32
    assert found.tolist() == [
        [[3, 0, -1], [1, 0, 1]],
        [[-1, 0, 0], [-1, 0, 0]],
        [[0, 5, -1], [-1, 0, 0]],
        [[-1, 0, 0], [-1, 0, 0]],
    ]


def random_graph(
    folder: Path, seed: int = 0, entities: int = 50, count: int = 120
) -> tuple[str, np.ndarray]:
    ids = [f"e{i}" for i in range(entities)]
    triples = np.unique(drawn(seed, entities, count), axis=0)
    triples = np.concatenate([triples, triples[:3]])  # three of them twice
    rows = [(ids[h], f"r{r}", ids[t]) for h, r, t in triples.tolist()]
    return saved(folder, ids, rows), triples


def test_the_table_holds_the_best_by_the_definition(tmp_path: Path) -> None:
    graph, triples = random_graph(tmp_path / "g")
    made = rank(graph, str(tmp_path / "t"), k=4)
    w = weights(triples, 50)
    known = {tuple(t) for t in triples.tolist()}
    for entity in range(50):
        score = np.round(pepr(w, entity), 12)
        near = sorted(w[entity].indices.tolist(), key=lambda k: (-score[k], k))[:4]
        row = made[np.array([entity])][0].tolist()
        assert [k for k, _, _ in row] == near + [-1] * (4 - len(near)), entity
        for k, relation, direction in row[: len(near)]:
            assert ((entity, relation, k) if direction == 1 else (k, relation, entity)) in known
            out = [r for h, r, t in known if (h, t) == (entity, k)]
            assert (relation, direction) == (
                (min(out), 1) if out else (min(r for h, r, t in known if (h, t) == (k, entity)), -1)
            )
    assert made.manifest["left_out"]["triples that stand there twice"] >= 3 - sum(
        triples[:3, 0] == triples[:3, 2]
    )
    assert made.manifest["score_missing_at_most"] == 0


def test_the_table_with_a_cut_iteration_and_counts(tmp_path: Path) -> None:
    graph, triples = random_graph(tmp_path / "g", 1)
    (tmp_path / "counts.tsv").write_text("e1\t100\ne7\t30\n")
    made = rank(graph, str(tmp_path / "t"), k=60, n_iter=2, counts=str(tmp_path / "counts.tsv"))
    frequency = np.zeros(50)
    frequency[[1, 7]] = 100, 30
    w = weights(triples, 50)
    for entity in range(50):
        score = np.round(pepr(w, entity, n_iter=2, frequency=frequency), 12)
        near = sorted(w[entity].indices.tolist(), key=lambda k: (-score[k], k))
        assert (
            made.rows[entity, : len(near), 0].tolist() == near
            and (made.rows[entity, len(near) :, 0] == -1).all()
        )


def test_lookup(tmp_path: Path) -> None:
    made = NeighbourTable(np.arange(24, dtype=np.int32).reshape(4, 2, 3), list("abcd"), ["r"])
    made.save(tmp_path / "t")
    loaded = NeighbourTable.load(tmp_path / "t")
    assert isinstance(loaded.rows, np.memmap) and loaded.k == 2 and loaded.relation_ids == ["r"]
    assert loaded[np.array([3, 0, 3])].tolist() == made.rows[[3, 0, 3]].tolist()
    assert loaded[np.array([-1, 1])].tolist() == [[[-1, 0, 0]] * 2, made.rows[1].tolist()]
    assert loaded[np.zeros(0, np.int64)].shape == (0, 2, 3)
    found = loaded[np.array([1])]
    found[:] = 0  # a copy
    assert loaded.rows[1].any()


def test_a_table_of_another_graph_or_a_changed_file_is_refused(tmp_path: Path) -> None:
    made = NeighbourTable(np.zeros((2, 1, 3), np.int32), ["a", "b"], [])
    made.check_graph(pa.array(["a", "b"]), "G")
    with pytest.raises(InputError, match="does not match the graph G .*entity 'c' has no row"):
        made.check_graph(pa.array(["a", "c"]), "G")
    with pytest.raises(InputError, match="order or number"):
        made.check_graph(pa.array(["b", "a"]), "G")
    with pytest.raises(InputError, match="2 rows but 1 ids"):
        NeighbourTable(np.zeros((2, 1, 3), np.int32), ["a"], [])
    with pytest.raises(InputError, match="int32"):
        NeighbourTable(np.zeros((2, 1, 3)), ["a", "b"], [])
    made.save(tmp_path / "t")
    file = tmp_path / "t" / "neighbours.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(InputError, match=r"neighbours\.npy: missing, or not the file"):
        NeighbourTable.load(tmp_path / "t")
    with pytest.raises(InputError, match="no neighbour table here"):
        NeighbourTable.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("e1 3\n", ":1: expected 'id<TAB>count'"),
        ("e1\t3\ne2\t-1\n", ":2: expected 'id<TAB>count', a whole number"),
        ("x\t3\n", ":1: unknown entity id 'x'"),
        ("e1\t3\ne1\t0\n", ":2: id 'e1' occurs twice"),
    ],
)
def test_broken_counts(tmp_path: Path, text: str, message: str) -> None:
    graph, _ = random_graph(tmp_path / "g")
    (tmp_path / "c.tsv").write_text(text)
    with pytest.raises(InputError, match=message):
        frequencies(tmp_path / "c.tsv", KnowledgeGraph.load(graph))


def test_the_command_keeps_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, _ = random_graph(tmp_path / "g")
    words = ["--graph", graph, "--out", str(tmp_path / "t"), "--k", "3"]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert "50 entities" in first and "with more than 3" in first and "stand there twice" in first
    changed = (tmp_path / "t" / "neighbours.npy").stat().st_mtime_ns
    assert main(words) == 0 and "kept: " in capsys.readouterr().err
    assert (tmp_path / "t" / "neighbours.npy").stat().st_mtime_ns == changed
    assert main([*words, "--fresh"]) == 0
    assert (tmp_path / "t" / "neighbours.npy").stat().st_mtime_ns != changed
    assert main([*words[:-1], "5"]) == 0 and NeighbourTable.load(tmp_path / "t").k == 5


def test_the_least_settings(tmp_path: Path) -> None:
    graph, triples = random_graph(tmp_path / "g", 1)
    made = rank(graph, str(tmp_path / "t"), k=1, n_iter=1, dense=1)
    w = weights(triples, 50)
    for entity in range(50):
        score = np.round(pepr(w, entity, n_iter=1), 12)
        near = sorted(w[entity].indices.tolist(), key=lambda k: (-score[k], k))
        assert made.rows[entity, :, 0].tolist() == (near[:1] or [-1])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--k", "0"], "at least 1"),
        (["--alpha", "1"], "alpha between 0 and 1"),
        (["--alpha", "0"], "alpha between 0 and 1"),
        (["--dense", "0"], "at least 1"),
        (["--n_iter", "0"], "at least 1"),
        (["--counts", "c.tsv"], "acts only with n_iter"),
        (["--n_iter", "2", "--counts", "nowhere.tsv"], "nowhere.tsv: no such file"),
    ],
)
def test_bad_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    graph, _ = random_graph(tmp_path / "g")
    assert main(["--graph", graph, "--out", str(tmp_path / "t"), *more]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "t").exists()
    shutil.rmtree(tmp_path / "g")
    assert main(["--graph", graph, "--out", str(tmp_path / "t")]) == 2
    assert "no knowledge graph here" in capsys.readouterr().err
