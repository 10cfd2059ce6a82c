"""TransR: the stock model's scores and gradients, its start from TransE, what is exported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
from pykeen.losses import MarginRankingLoss
from pykeen.models import TransR as PyKEENTransR
from pykeen.triples import CoreTriplesFactory
from pykeen.utils import clamp_norm

from core.files import InputError
from core.logs import set_up
from kg.graph import KnowledgeGraph
from kg.vectors.checkpoint import Checkpoint
from kg.vectors.embeddings import EmbeddingTable
from kg.vectors.link_prediction import link_prediction, split
from kg.vectors.networks import GroupedProduct, TransE, TransR, shorten_rows, started_from
from tests.kg.test_pagerank import saved
from tests.kg.test_train import ladder, train

ENTITIES, RELATIONS = 40, 5


def factory(seed: int = 0, count: int = 200) -> CoreTriplesFactory:
    rng = np.random.default_rng(seed)
    high = (ENTITIES, RELATIONS - 1, ENTITIES)  # the last relation has no triple
    triples = np.stack([rng.integers(0, n, count) for n in high], axis=1)
    return CoreTriplesFactory(triples, num_entities=ENTITIES, num_relations=RELATIONS)


def both(
    norm: int = 2, d: int = 6, d_r: int = 4, scale: float = 1.0
) -> tuple[TransR, PyKEENTransR]:
    """Ours and the stock model with the same parameters; a large `scale` makes the clamp of the
    projections act."""
    models = [
        cls(
            triples_factory=factory(),
            embedding_dim=d,
            relation_dim=d_r,
            scoring_fct_norm=norm,
            loss=MarginRankingLoss(margin=1.0),
            random_seed=0,
        )
        for cls in (TransR, PyKEENTransR)
    ]
    rng = torch.Generator().manual_seed(1)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        values = torch.randn(a.shape, generator=rng) * scale
        a.data.copy_(values)
        b.data.copy_(values)
    for model in models:
        model.post_parameter_update()
    return models[0], models[1]  # type: ignore[return-value]


def by_hand(model: TransR, h: int, r: int, t: int, norm: int) -> float:
    """-||c(h M_r) + r - c(t M_r)||."""
    entity, relation = model.entity_representations[0](), model.relation_representations[0]()
    matrix = model.relation_representations[1]()[r]
    ends = []
    for e in (h, t):
        y = sum(entity[e, i] * matrix[i] for i in range(len(matrix)))
        size = (y.abs() ** norm).sum() ** (1 / norm)
        ends.append(y / size if size >= 1 else y)
    return -float(((ends[0] + relation[r] - ends[1]).abs() ** norm).sum() ** (1 / norm))


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_scores_and_gradients_are_the_stock_models(norm: int, scale: float, seed: int) -> None:
    ours, stock = both(norm, scale=scale)
    rng = np.random.default_rng(seed)
    batch = torch.from_numpy(
        np.stack([rng.integers(0, n, 33) for n in (ENTITIES, RELATIONS, ENTITIES)], axis=1)
    )
    batch[0, 2] = batch[0, 0]
    found, wanted = ours.score_hrt(batch), stock.score_hrt(batch)
    assert found.shape == (33, 1)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    for row in range(5):
        assert found[row].item() == pytest.approx(
            by_hand(ours, *batch[row].tolist(), norm), abs=1e-5
        )
    weight = torch.randn(33, 1, generator=torch.Generator().manual_seed(seed))
    (found * weight).sum().backward()
    (wanted * weight).sum().backward()
    for a, b in zip(ours.parameters(), stock.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-5)
    assert any(p.grad.abs().sum() > 0 for p in ours.parameters())


@pytest.mark.parametrize("norm", [1, 2])
def test_scores_of_all_tails_and_heads(norm: int) -> None:
    ours, stock = both(norm)
    pairs = torch.tensor([[0, 1], [5, 2], [39, 0], [7, 1]])
    torch.testing.assert_close(ours.score_t(pairs), stock.score_t(pairs), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        ours.score_h(pairs.flip(1)), stock.score_h(pairs.flip(1)), atol=1e-5, rtol=1e-5
    )
    some = torch.tensor([3, 9])
    torch.testing.assert_close(
        ours.score_t(pairs, tails=some), ours.score_t(pairs)[:, some], atol=1e-5, rtol=1e-5
    )
    rest = pairs.flip(1)
    torch.testing.assert_close(
        ours.score_h(rest, heads=some), ours.score_h(rest)[:, some], atol=1e-5, rtol=1e-5
    )


def test_grouped_product() -> None:
    """Relations without a row, with one and with several; gradients against finite differences."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.float64, generator=rng, requires_grad=True)
    matrices = torch.randn(4, 3, 2, dtype=torch.float64, generator=rng, requires_grad=True)
    out = GroupedProduct.apply(x, matrices, [1, 0, 3, 0])
    assert torch.equal(out[0], x[0] @ matrices[0]) and torch.allclose(out[1:], x[1:] @ matrices[2])
    assert torch.autograd.gradcheck(
        lambda a, b: GroupedProduct.apply(a, b, [1, 0, 3, 0]), (x, matrices)
    )
    none = GroupedProduct.apply(x[:0], matrices, [0, 0, 0, 0])
    assert none.shape == (0, 2)


@pytest.mark.parametrize("p", [1, 2])
def test_shortened_is_pykeens_clamp(p: int) -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    x[0] = 0
    torch.testing.assert_close(shorten_rows(x.clone(), 1.0, p, -1), clamp_norm(x, 1.0, p, -1))
    short = 0.01 * x
    assert torch.equal(shorten_rows(short.clone(), 1.0, p, -1), short)


def test_from_identity_it_scores_as_the_transe() -> None:
    first = TransE(triples_factory=factory(), embedding_dim=6, random_seed=0)
    with torch.no_grad():
        # TransR shortens what is longer than 1
        first.relation_representations[0]._embeddings.weight.mul_(0.1)
    start = started_from(first.entity_representations[0](), first.relation_representations[0]())
    model = TransR(triples_factory=factory(), embedding_dim=6, relation_dim=6, **start)
    batch = factory(3).mapped_triples[:50]
    torch.testing.assert_close(model.score_hrt(batch), first.score_hrt(batch), atol=1e-5, rtol=1e-5)
    assert torch.equal(model.relation_representations[1]()[2], torch.eye(6))
    model.reset_parameters_()  # as every training of PyKEEN begins
    torch.testing.assert_close(model.score_hrt(batch), first.score_hrt(batch), atol=1e-5, rtol=1e-5)


def settings(epochs: int = 20) -> dict[str, object]:
    return {
        "model": "TransR",
        "dim": 16,
        "epochs": epochs,
        "warm_epochs": 40,
        "lr": 0.005,
        "warm_lr": 0.05,
        "batch_size": 16,
        "held_out": 10,
    }


def test_it_learns_from_a_warm_start_and_is_exported(tmp_path: Path, runs: Path, capsys) -> None:
    graph, out = ladder(tmp_path / "g"), str(tmp_path / "t")
    cold = train(graph, str(tmp_path / "cold"), **{**settings(1), "warm_epochs": 0})
    made = train(graph, out, **settings())
    losses = mlflow.MlflowClient().get_metric_history(made.manifest["mlflow_run"], "train/loss")
    first = (
        mlflow.MlflowClient().get_metric_history(cold.manifest["mlflow_run"], "train/loss")[0].value
    )
    assert [m.step for m in losses] == list(range(1, 61))
    assert losses[40].value < 0.6 * first and losses[-1].value < 0.8 * losses[40].value
    loaded = EmbeddingTable.load(out)
    assert loaded.projection is not None and loaded.relation is not None
    assert loaded.projection.shape == (3, 16, 16) and (loaded.entity.norm(dim=1) <= 1 + 1e-5).all()
    assert not torch.allclose(loaded.projection[0], torch.eye(16), atol=1e-3)  # M_r has moved
    # What is exported scores as the model: e @ M_r, shortened to 1.
    triples = KnowledgeGraph.load(graph).triple_indices()
    training, test = split(triples, 10, 0)
    model = TransR(
        triples_factory=CoreTriplesFactory(training, num_entities=40, num_relations=3),
        embedding_dim=16,
        relation_dim=16,
        **started_from(loaded.entity, loaded.relation),
    )
    with torch.no_grad():
        next(model.relation_representations[1].parameters()).copy_(loaded.projection.reshape(3, -1))
    assert link_prediction(model, test, training) == pytest.approx(
        made.manifest["scores"], abs=1e-4
    )
    logged = mlflow.get_run(made.manifest["mlflow_run"]).data
    assert logged.metrics["test/warm_mrr"] == pytest.approx(made.manifest["warm_scores"]["mrr"])
    set_up()
    train(graph, out, **settings())
    assert "kept: " in capsys.readouterr().err


class Killed(BaseException):
    """As kill -9: nothing that comes after is done."""


def test_a_killed_training_resumes_to_the_same_vectors(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the TransE that it starts from, at its end, and in the TransR itself."""
    graph = ladder(tmp_path / "g")
    whole = train(graph, str(tmp_path / "whole"), **settings())
    real = Checkpoint.save

    def history(made: EmbeddingTable) -> list[tuple[int, float]]:
        points = mlflow.MlflowClient().get_metric_history(made.manifest["mlflow_run"], "train/loss")
        return [(m.step, m.value) for m in points]

    for after in (1, 40, 59):  # epochs
        out, saved = str(tmp_path / f"t{after}"), 0

        def save(self: Checkpoint, *args: Any, after: int = after) -> None:
            nonlocal saved
            real(self, *args)
            saved += 1
            if saved == after:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "save", save)
            with pytest.raises(Killed):
                train(graph, out, **settings(), checkpoint_seconds=0)
        assert not Path(out).exists()
        set_up()
        capsys.readouterr()
        resumed = train(graph, out, **settings(), checkpoint_seconds=0)
        assert (
            f"resuming after epoch {after if after <= 40 else after - 40}"
            in capsys.readouterr().err
        )
        assert torch.equal(resumed.entity, whole.entity) and torch.equal(
            resumed.relation, whole.relation
        )
        assert torch.equal(resumed.projection, whole.projection)
        for scores in ("scores", "warm_scores"):
            assert resumed.manifest[scores] == whole.manifest[scores]
        assert history(resumed) == history(whole) and len(history(whole)) == 60
        assert not Path(f"{out}.training").exists()


def test_a_state_that_is_damaged_or_of_other_settings_is_not_gone_on_from(
    tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, out = ladder(tmp_path / "g"), tmp_path / "t"

    def killed(self: Checkpoint, *args: Any) -> None:
        raise Killed

    for change in ("damage", "settings"):
        own = {**settings(3), "model": "TransE", "warm_epochs": 0, "warm_lr": None}
        with monkeypatch.context() as patch:
            real = Checkpoint.save
            patch.setattr(
                Checkpoint, "save", lambda self, *a, real=real: (real(self, *a), killed(self))
            )
            with pytest.raises(Killed):
                train(graph, str(out), **own, checkpoint_seconds=0)
        set_up()
        state = tmp_path / "t.training" / "state.safetensors"
        if change == "damage":
            state.write_bytes(state.read_bytes()[:-64] + bytes(64))
        else:
            own["seed"] = 1
        made = train(graph, str(out), **own)
        said = capsys.readouterr().err
        assert ("state.safetensors: damaged" in said) == (
            change == "damage"
        ) and "resuming" not in said
        expected = train(graph, str(tmp_path / change), **own)
        assert torch.equal(made.entity, expected.entity)
        shutil.rmtree(out)


def test_a_file_in_the_way_of_the_table_is_reported_before_training(
    tmp_path: Path, runs: Path
) -> None:
    (tmp_path / "t").write_text("mine")
    with pytest.raises(InputError, match="no embedding table; it is left alone"):
        train(ladder(tmp_path / "g"), str(tmp_path / "t"), **settings())


def test_link_prediction_does_not_depend_on_the_order() -> None:
    ours, _ = both()
    test = factory(7).mapped_triples[:30].numpy()
    known = factory(8).mapped_triples.numpy()
    found = link_prediction(ours, test, known)
    assert link_prediction(ours, test[::-1].copy(), known, batch_size=7) == pytest.approx(
        found, abs=1e-6
    )


def test_a_given_table_is_the_start(tmp_path: Path, runs: Path) -> None:
    graph = ladder(tmp_path / "g")
    first = train(
        graph, str(tmp_path / "e"), dim=16, epochs=60, lr=0.05, batch_size=16, held_out=10
    )
    made = train(
        graph, str(tmp_path / "r"), **{**settings(1), "lr": 1e-9}, warm=str(tmp_path / "e")
    )
    assert (
        made.manifest["settings"]["warm"] == EmbeddingTable.load(tmp_path / "e").manifest["sha256"]
    )
    assert (
        torch.allclose(made.entity, first.entity, atol=1e-5)
        and made.manifest["settings"]["warm_epochs"] == 0
    )
    wrong = [
        ({"dim": 8}, "vectors of 16, expected dim 8"),
        ({"seed": 1}, "has seen triples that TransR is scored on"),
        ({"warm": str(tmp_path / "r")}, "expected a TransE table"),
        ({"warm": str(tmp_path / "none")}, "no embedding table here"),
        ({"relation_dim": 8}, "relation_dim 8: a TransE has relations of dim, 16"),
    ]
    for change, message in wrong:
        with pytest.raises(InputError, match=message):
            train(
                graph, str(tmp_path / "x"), **{**settings(1), "warm": str(tmp_path / "e"), **change}
            )
    other = ladder(tmp_path / "other", 30)
    with pytest.raises(InputError, match="does not match the graph"):
        train(other, str(tmp_path / "x"), **{**settings(1), "warm": str(tmp_path / "e")})


def test_transe_accepts_no_settings_of_transr(tmp_path: Path, runs: Path) -> None:
    graph = ladder(tmp_path / "g")
    for wrong in ({"warm_epochs": 2}, {"warm": "x"}, {"relation_dim": 3}):
        with pytest.raises(InputError, match="are TransR's; drop them"):
            train(graph, str(tmp_path / "t"), **wrong)


def test_relation_dim_of_its_own(tmp_path: Path, runs: Path) -> None:
    made = train(
        ladder(tmp_path / "g"),
        str(tmp_path / "t"),
        **{**settings(2), "warm_epochs": 0, "relation_dim": 5},
    )
    assert made.projection is not None and made.projection.shape == (3, 16, 5)
    assert made.relation is not None and made.relation.shape == (3, 5)


def test_loops_duplicates_lone_entities_and_a_relation_seen_once(
    tmp_path: Path, runs: Path
) -> None:
    ids = [f"e{i}" for i in range(12)]
    triples = [(ids[i], "next", ids[i + 1]) for i in range(9)] * 2 + [
        ("e3", "next", "e3"),
        ("e0", "once", "e5"),
    ]
    graph = saved(tmp_path / "g", ids, triples)  # e11 is in none
    made = train(graph, str(tmp_path / "t"), **{**settings(2), "warm_epochs": 1, "held_out": 2})
    assert made.entity.shape == (12, 16) and made.relation_ids == ["next", "once"]
    assert all(torch.isfinite(part).all() for part in (made.entity, made.relation, made.projection))
