"""TransE: what it is scored on, and that it learns a graph."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
from pykeen.triples import CoreTriplesFactory

import kg.vectors.train
from core.files import InputError
from core.logs import set_up
from kg.graph import KnowledgeGraph, table
from kg.vectors.embeddings import EmbeddingTable
from kg.vectors.link_prediction import link_prediction, split
from kg.vectors.networks import TransE
from kg.vectors.train import Training, _Epochs

pytestmark = pytest.mark.usefixtures("preloaded")


def train(graph: str, out: str, **options: Any) -> EmbeddingTable:
    return Training(graph=graph, out=out, **options).run()


def ladder(folder: Path, n: int = 40) -> str:
    """A graph where entity i is `next` to i + 1 (and `before` is its inverse) and `skip` to i + 2:
    translations fit it."""
    ids = [f"e{i}" for i in range(n)]
    triples = [(ids[i], "next", ids[i + 1]) for i in range(n - 1)] + [
        (ids[i + 1], "before", ids[i]) for i in range(n - 1)
    ]
    triples += [(ids[i], "skip", ids[i + 2]) for i in range(n - 2)]
    head, relation, tail = zip(*triples, strict=True)
    KnowledgeGraph(
        table("entities", {"id": ids, "name": ids, "type": ["t"] * n}),
        table(
            "names",
            {
                "id": ids,
                "name": ids,
                "kind": ["preferred"] * n,
                "language": ["en"] * n,
                "source": ["s"] * n,
            },
        ),
        table("definitions", {"id": [], "text": []}),
        table("triples", {"head": head, "relation": relation, "tail": tail}),
        {"source": "ladder", "version": "1", "licence": "none"},
    ).save(folder)
    return str(folder)


def test_split_keeps_inverses_together_and_entities_known(tmp_path: Path) -> None:
    triples = KnowledgeGraph.load(ladder(tmp_path / "g")).triple_indices()
    training, test = split(triples, 10, seed=0)
    assert len(training) + len(test) == len(triples) and 8 <= len(test) <= 10
    pairs = {frozenset((h, t)) for h, _, t in training.tolist()}
    assert not [t for t in test.tolist() if frozenset((t[0], t[2])) in pairs]
    assert set(test[:, [0, 2]].ravel()) <= set(training[:, [0, 2]].ravel())
    assert np.array_equal(split(triples, 10, seed=0)[1], test) and not np.array_equal(
        split(triples, 10, seed=1)[1], test
    )
    assert len(split(triples, 10**9, seed=0)[1]) <= len(triples) // 10


def slow_metrics(model: TransE, test: np.ndarray, known: np.ndarray) -> dict[str, float]:
    """Filtered ranks one by one: ties count half (the realistic rank is the mean of best and
    worst)."""
    entity, relation = (
        model.entity_representations[0]().detach(),
        model.relation_representations[0]().detach(),
    )
    true = {tuple(t) for t in np.concatenate([test, known]).tolist()}
    ranks = []
    for h, r, t in test.tolist():
        for side in ("head", "tail"):

            def score(e: int, h: int = h, r: int = r, t: int = t, side: str = side) -> float:
                a, b = (e, t) if side == "head" else (h, e)
                return -float((entity[a] + relation[r] - entity[b]).norm())

            own = score(h if side == "head" else t)
            others = [
                score(e)
                for e in range(len(entity))
                if ((e, r, t) if side == "head" else (h, r, e)) not in true
            ]
            better, equal = (
                sum(o > own + 1e-6 for o in others),
                sum(abs(o - own) <= 1e-6 for o in others),
            )
            ranks.append(1 + better + equal / 2)
    array = np.array(ranks)
    return {
        "mrr": float((1 / array).mean()),
        **{f"hits_at_{k}": float((array <= k).mean()) for k in (1, 3, 10)},
    }


def test_link_prediction_equals_one_by_one(tmp_path: Path) -> None:
    graph = KnowledgeGraph.load(ladder(tmp_path / "g", 20))
    training, test = split(graph.triple_indices(), 5, 0)
    factory = CoreTriplesFactory(training, num_entities=20, num_relations=3)
    model = TransE(triples_factory=factory, embedding_dim=8, scoring_fct_norm=2, random_seed=0)
    assert link_prediction(model, test, training) == pytest.approx(
        slow_metrics(model, test, training), abs=1e-6
    )


def test_scores_from_one_product_equal_pykeens(tmp_path: Path) -> None:
    factory = CoreTriplesFactory(
        KnowledgeGraph.load(ladder(tmp_path / "g")).triple_indices(),
        num_entities=40,
        num_relations=3,
    )
    model = TransE(triples_factory=factory, embedding_dim=8, scoring_fct_norm=2, random_seed=0)
    pairs = torch.tensor([[0, 1], [5, 2], [39, 0]])
    every = torch.arange(40)
    torch.testing.assert_close(
        model.score_t(pairs), model.score_t(pairs, tails=every), atol=1e-5, rtol=1e-5
    )
    flipped = pairs.flip(1)
    torch.testing.assert_close(
        model.score_h(flipped), model.score_h(flipped, heads=every), atol=1e-5, rtol=1e-5
    )


def test_it_learns_and_is_logged_and_kept(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, out = ladder(tmp_path / "g"), str(tmp_path / "t")
    few = train(graph, str(tmp_path / "few"), dim=16, epochs=1, lr=0.05, batch_size=16, held_out=10)
    trained = train(graph, out, dim=16, epochs=60, lr=0.05, batch_size=16, held_out=10)
    assert trained.manifest["scores"]["mrr"] > 1.5 * few.manifest["scores"]["mrr"]
    assert torch.allclose(trained.entity.norm(dim=1), torch.ones(40), atol=1e-5)
    loaded = EmbeddingTable.load(out)
    loaded.check_graph(KnowledgeGraph.load(graph).ids, graph)
    logged = mlflow.get_run(loaded.manifest["mlflow_run"]).data
    assert logged.metrics["test/mrr"] == pytest.approx(loaded.manifest["scores"]["mrr"])
    assert logged.params["epochs"] == "60" and logged.tags["graph"] == loaded.manifest["graph"]
    set_up()
    train(graph, out, dim=16, epochs=60, lr=0.05, batch_size=16, held_out=10)
    assert "kept: " in capsys.readouterr().err


def test_a_sparse_step_changes_its_batch_alone() -> None:
    """Two steps against Adam in full for the rows of each batch; Bordes et al. 2013, Section 2:
    unit length after each."""
    factory = CoreTriplesFactory(np.array([[0, 0, 1]]), num_entities=6, num_relations=2)
    model = TransE(triples_factory=factory, embedding_dim=3, sparse=True, random_seed=0)
    model.reset_parameters_()
    tables = [model.entity_representations[0], model.relation_representations[0]]
    slow = [table().detach().clone() for table in tables]
    # Adam's moments
    first, second = ([torch.zeros_like(values) for values in slow] for _ in range(2))
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    for step, batch in enumerate(([[0, 0, 1], [2, 0, 0]], [[1, 1, 4], [1, 1, 1]]), 1):
        optimizer.zero_grad()
        model.score_hrt(torch.tensor(batch)).sum().backward()
        optimizer.step()
        model.post_parameter_update()
        leaves = [values.clone().requires_grad_() for values in slow]
        entity, relation = leaves
        sum(-(entity[h] + relation[r] - entity[t]).norm() for h, r, t in batch).backward()  # type: ignore[union-attr]
        rows = [sorted({e for h, _, t in batch for e in (h, t)}), sorted({r for _, r, _ in batch})]
        for part, (values, changed) in enumerate(zip(leaves, rows, strict=True)):
            for row in changed:
                gradient = values.grad[row]  # type: ignore[index]
                first[part][row] = 0.9 * first[part][row] + 0.1 * gradient
                second[part][row] = 0.999 * second[part][row] + 0.001 * gradient**2
                scaled = (second[part][row] / (1 - 0.999**step)).sqrt() + 1e-8
                slow[part][row] -= 0.1 * first[part][row] / (1 - 0.9**step) / scaled
                if part == 0:
                    slow[part][row] /= slow[part][row].norm()
        for part, values in enumerate(slow):
            torch.testing.assert_close(tables[part]().detach(), values, atol=1e-5, rtol=0)
    assert torch.equal(tables[0]()[[3, 5]].detach(), slow[0][[3, 5]])


def test_a_sparse_training_learns_and_resumes_to_the_same_vectors(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = ladder(tmp_path / "g")
    given: dict[str, Any] = {
        "dim": 16,
        "lr": 0.05,
        "batch_size": 16,
        "held_out": 10,
        "sparse": True,
    }
    few = train(graph, str(tmp_path / "few"), epochs=1, **given)
    whole = train(graph, str(tmp_path / "whole"), epochs=40, **given)
    assert (
        whole.manifest["scores"]["mrr"] > 1.5 * few.manifest["scores"]["mrr"]
        and whole.manifest["settings"]["sparse"]
    )
    after = _Epochs.post_epoch

    def stops(self: _Epochs, epoch: int, *more: Any, **named: Any) -> None:
        after(self, epoch, *more, **named)
        if epoch == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_Epochs, "post_epoch", stops)
        train(graph, str(tmp_path / "t"), epochs=40, checkpoint_seconds=0, **given)
    resumed = train(graph, str(tmp_path / "t"), epochs=40, **given)
    assert torch.equal(resumed.entity, whole.entity) and torch.equal(
        resumed.relation, whole.relation
    )
    with pytest.raises(InputError, match="sparse: of the TransE that TransR starts from"):
        train(graph, str(tmp_path / "r"), model="TransR", sparse=True)


def test_the_self_adversarial_loss_and_free_lengths(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sun et al. 2019, Eq. (5), on a batch; entities that are not held at length 1 grow to a margin
    that unit ones cannot reach."""
    graph = ladder(tmp_path / "g")
    given: dict[str, Any] = {
        "dim": 16,
        "lr": 0.05,
        "batch_size": 16,
        "held_out": 10,
        "epochs": 30,
        "negatives": 4,
    }
    lost: list[Any] = []
    made = kg.vectors.train.NSSALoss

    def keep(**named: Any) -> Any:
        lost.append(made(**named))
        return lost[-1]

    monkeypatch.setattr("kg.vectors.train.NSSALoss", keep)
    free = train(
        graph, str(tmp_path / "t"), loss="self-adversarial", unit=False, margin=6.0, **given
    )
    assert (
        free.entity.norm(dim=1).mean() > 1.5
        and free.manifest["settings"]["loss"] == "self-adversarial"
    )
    unit = train(graph, str(tmp_path / "u"), **given)
    assert (
        torch.allclose(unit.entity.norm(dim=1), torch.ones(40), atol=1e-5)
        and "loss" not in unit.manifest["settings"]
    )
    positive, negative = torch.tensor([[-3.0], [-5.0]]), torch.tensor([[-4.0, -8.0], [-7.0, -5.5]])
    sigmoid = torch.nn.functional.logsigmoid
    slow = (
        -sigmoid(6 + positive).mean()
        - ((negative.softmax(1) * sigmoid(-negative - 6)).sum(1)).mean()
    )
    own = lost[0].process_slcwa_scores(
        positive, negative, label_smoothing=None, batch_filter=None, num_entities=None
    )
    # PyKEEN computes the mean of both parts
    assert float(own) == pytest.approx(float(slow) / 2, rel=1e-5)
    with pytest.raises(
        InputError, match=r"loss: no loss 'other'; .*hoose from: margin, self-adversarial"
    ):
        train(graph, str(tmp_path / "v"), loss="other")


def test_bad_settings(tmp_path: Path, runs: Path) -> None:
    graph = ladder(tmp_path / "g")
    with pytest.raises(
        InputError, match="no graph embedding 'TransX'; .*hoose from: TransE, TransR"
    ):
        train(graph, str(tmp_path / "t"), model="TransX")
    with pytest.raises(InputError, match=r"manifest\.json"):
        train(str(tmp_path / "none"), str(tmp_path / "t"))


def test_command_line_accepts_a_config(tmp_path: Path, runs: Path) -> None:
    graph = ladder(tmp_path / "g")
    command = [
        sys.executable,
        "-m",
        "core.call",
        "graph",
        "embed",
        "experiments/kg/transe.yaml",
        "--graph",
        graph,
        "--out",
        str(tmp_path / "t"),
        "--epochs",
        "2",
        "--dim",
        "8",
        "--device",
        "cpu",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "40 entities, 3 relations" in done.stdout
    settings = EmbeddingTable.load(tmp_path / "t").manifest["settings"]
    # the file's number and the flag's
    assert settings["batch_size"] == 2048 and settings["epochs"] == 2
    failed = subprocess.run(
        [*command[:7], str(tmp_path / "none"), *command[8:]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        failed.returncode
        and "Traceback" not in failed.stderr
        and "no knowledge graph here" in failed.stderr
    )


def test_ranks_by_hand() -> None:
    """Known triples do not count, and of equal scores the rank is the mean of the best and the
    worst."""
    factory = CoreTriplesFactory(np.array([[0, 0, 2]]), num_entities=4, num_relations=1)
    model = TransE(triples_factory=factory, embedding_dim=1, scoring_fct_norm=2, random_seed=0)
    with torch.no_grad():  # 0 + relation is where 1, 2 and 3 are
        for part, values in (
            (model.entity_representations[0], [0.0, 1, 1, 1]),
            (model.relation_representations[0], [1.0]),
        ):
            (parameter,) = part.parameters()
            parameter.copy_(torch.tensor(values)[:, None])
    # the tail of (0, 0, 1): 2 is known, 3 is as good: rank 1.5; its head: nothing is as good as 0
    found = link_prediction(model, np.array([[0, 0, 1]]), np.array([[0, 0, 2]]))
    assert found == pytest.approx(
        {"mrr": (1 / 1.5 + 1) / 2, "hits_at_1": 0.5, "hits_at_3": 1, "hits_at_10": 1}
    )
    # the tail of (1, 0, 2) is as good as 1 and 3: rank 2; its head, too, as 0, which is better, is
    # known
    found = link_prediction(model, np.array([[1, 0, 2]]), np.array([[0, 0, 2]]))
    assert found == pytest.approx({"mrr": 0.5, "hits_at_1": 0, "hits_at_3": 1, "hits_at_10": 1})


def test_another_seed_starts_elsewhere(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What training begins with; nothing is trained."""
    begun: list[torch.Tensor] = []

    def stop(model: TransE, *_: object, **__: object) -> None:
        model.reset_parameters_()  # as PyKEEN's training does first
        begun.append(model.entity_representations[0]().detach().clone())
        raise StopIteration

    monkeypatch.setattr("kg.vectors.train.fit_model", stop)
    graph = ladder(tmp_path / "g")
    for seed in (0, 0, 1):
        with pytest.raises(StopIteration):
            train(graph, str(tmp_path / "t"), dim=4, held_out=0, seed=seed)
    assert torch.equal(begun[0], begun[1]) and not torch.allclose(begun[0], begun[2], atol=0.1)
