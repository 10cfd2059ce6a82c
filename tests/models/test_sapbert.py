"""SapBERT's miner and losses against Eq. (1) and (2) typed out, and against
pytorch-metric-learning."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel

from core.files import InputError
from core.json_files import write_json
from datamodules.sapbert import SapBERTData
from experiments.names import encoder as encoder_of
from models.layers import pool_states
from models.losses import info_nce, multi_similarity, nca
from models.sapbert import (
    SapBERT,
    SapBERTEncoder,
    gather_rows,
    hard_pairs,
    mined_multi_similarity,
    similarities,
)
from tests.fakes.sapbert import Folders
from tests.fakes.validation import validate


def distances(f: Tensor) -> Tensor:
    return similarities(f)[1]


def brute_force(
    distance: Tensor, concept: Tensor, margin: float, condition: str
) -> tuple[Tensor, Tensor, list[tuple[int, int, int]]]:
    """Every triplet, kept or not, one by one; P and N are the pairs of those kept."""
    n, d, label = len(concept), distance.tolist(), concept.tolist()
    positive, negative, kept = (
        torch.zeros(n, n, dtype=torch.bool),
        torch.zeros(n, n, dtype=torch.bool),
        [],
    )
    for a in range(n):
        for p in range(n):
            for other in range(n):
                if p == a or label[p] != label[a] or label[other] == label[a]:
                    continue
                # in float32, as the miner's
                gap = torch.tensor(d[a][other]) - torch.tensor(d[a][p])
                violated = -gap >= margin if condition == "printed" else gap <= margin
                if violated:
                    positive[a, p] = negative[a, other] = True
                    kept.append((a, p, other))
    return positive, negative, kept


@pytest.mark.parametrize("condition", ["released", "printed"])
@given(
    names=st.integers(1, 9),
    concepts=st.integers(1, 5),
    size=st.integers(1, 4),
    ties=st.booleans(),
    half=st.booleans(),
    margin=st.sampled_from([0.0, 0.2, 1.0]),
    seed=st.integers(0, 9999),
)
@settings(max_examples=60, deadline=None)
def test_miner_equals_brute_force(
    condition: str,
    names: int,
    concepts: int,
    size: int,
    ties: bool,
    half: bool,
    margin: float,
    seed: int,
) -> None:
    """With ties and duplicates, concepts of one name, one concept only, and half-precision
    vectors."""
    rng = torch.Generator().manual_seed(seed)
    f = torch.randn(names, size, generator=rng)
    if ties:
        f = f.round().clamp(-1, 1) + 0.5  # few different vectors
    f = normalize(f)
    f = f.half() if half else f
    concept = torch.randint(concepts, (names,), generator=rng)
    distance = distances(f)
    assert distance.dtype == torch.float32 and torch.equal(distance, distances(f.float()))
    ours = hard_pairs(distance, concept, margin, condition)
    slow = brute_force(distance, concept, margin, condition)
    assert torch.equal(ours[0], slow[0]) and torch.equal(ours[1], slow[1])


def test_similarities_and_their_gradient() -> None:
    f = normalize(torch.randn(40, 8, generator=torch.Generator().manual_seed(0))).requires_grad_()
    ours, plain, weight = similarities(f)[0], f @ f.T, torch.randn(40, 40)
    torch.testing.assert_close(ours, plain, atol=1e-6, rtol=0)
    got, wanted = (torch.autograd.grad((s * weight).sum(), f)[0] for s in (ours, plain))
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)


def test_no_positives_and_one_concept_give_no_pairs() -> None:
    distance = distances(normalize(torch.randn(6, 3)))
    for concept in (torch.arange(6), torch.zeros(6, dtype=torch.long)):
        for condition in ("released", "printed"):
            assert not any(mask.any() for mask in hard_pairs(distance, concept, 5.0, condition))


def test_d1_printed_keeps_very_hard_triplets_only() -> None:
    """a at distance 1 of its positive; negatives at 0.7, 0.9, 1.1 and 1.3: λ = .2 keeps one as
    printed, three as released."""
    distance = torch.tensor([[0.0, 1.0, 0.7, 0.9, 1.1, 1.3]])
    distance = torch.cat([distance, torch.full((5, 6), 9.0)])
    concept = torch.tensor([0, 0, 1, 2, 3, 4])
    printed, released = (
        hard_pairs(distance, concept, 0.2, c)[1][0].tolist() for c in ("printed", "released")
    )
    assert printed == [False, False, True, False, False, False]
    assert released == [False, False, True, True, True, False]


def test_d2_distances_are_of_unit_vectors(fake_sapbert: Folders) -> None:
    model, data = module(fake_sapbert)
    f = model(data.batch(data.order(0)[0], 0))
    torch.testing.assert_close(f.norm(dim=1), torch.ones(len(f)))
    torch.testing.assert_close(distances(f) ** 2, 2 - 2 * f @ f.T, atol=1e-5, rtol=1e-5)


def test_d3_a_pair_of_many_triplets_counts_once() -> None:
    distance = distances(normalize(torch.randn(8, 3, generator=torch.Generator().manual_seed(0))))
    concept = torch.tensor([0, 0, 0, 1, 1, 2, 3, 4])
    positive, negative, kept = brute_force(distance, concept, 1.0, "released")
    assert len(kept) > positive.sum() + negative.sum()
    similarity = 1 - distance**2 / 2
    once = multi_similarity(similarity, *hard_pairs(distance, concept, 1.0))
    torch.testing.assert_close(once, plain_loss(similarity, positive, negative))


def plain_loss(
    s: Tensor,
    positive: Tensor,
    negative: Tensor,
    alpha: float = 60,
    beta: float = 1,
    e: float = 0.5,
) -> Tensor:
    """Eq. (2), anchor by anchor, in double precision."""
    total = torch.zeros((), dtype=torch.double)
    for i, row in enumerate(s.double()):
        total = total + torch.log1p(torch.exp(alpha * (row[negative[i]] - e)).sum()) / alpha
        total = total + torch.log1p(torch.exp(-beta * (row[positive[i]] - e)).sum()) / beta
    return (total / len(s)).float()


def setting(seed: int, names: int = 24, concepts: int = 8, size: int = 6) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(names, size, generator=rng), torch.randint(concepts, (names,), generator=rng)


@given(
    seed=st.integers(0, 999),
    alpha=st.floats(1, 80),
    beta=st.floats(0.5, 80),
    epsilon=st.floats(-0.5, 1),
)
@settings(max_examples=30, deadline=None)
def test_multi_similarity_equals_eq_2(seed: int, alpha: float, beta: float, epsilon: float) -> None:
    f, concept = setting(seed)
    s = (normalize(f) @ normalize(f).T).requires_grad_()
    masks = hard_pairs(distances(normalize(f)), concept)
    ours, slow = (
        multi_similarity(s, *masks, alpha, beta, epsilon),
        plain_loss(s, *masks, alpha, beta, epsilon),
    )
    torch.testing.assert_close(ours, slow, atol=1e-5, rtol=1e-4)
    for a, b in zip(torch.autograd.grad(ours, s), torch.autograd.grad(slow, s), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("condition", ["released", "printed"])
@given(seed=st.integers(0, 999), names=st.integers(1, 40), chunk=st.integers(1, 50))
@settings(max_examples=30, deadline=None)
def test_in_one_pass_it_is_the_same(condition: str, seed: int, names: int, chunk: int) -> None:
    f, concept = setting(seed, names)
    f = normalize(f).requires_grad_()
    similarity, distance = similarities(f)
    masks = hard_pairs(distance, concept, 0.2, condition)
    plain = multi_similarity(similarity, *masks)
    with patch("models.sapbert.WHOLE", 0):
        loss, counts = mined_multi_similarity(f, concept, condition=condition, chunk=chunk)
    # products of other shapes round otherwise
    if counts.tolist() == [int(mask.sum()) for mask in masks]:
        torch.testing.assert_close(loss, plain, atol=1e-6, rtol=1e-5)
        got, wanted = (torch.autograd.grad(x, f)[0] for x in (2 * loss, 2 * plain))
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-4)
    else:
        gap = distance[:, :, None] - distance[:, None]
        assert ((gap.abs() - 0.2).abs() < 1e-6).any()


def test_hand_worked() -> None:
    """One anchor of three with a pair each way: S_in = .6, S_ip = .5: (log(1 + e^6)/60 + log
    2)/3."""
    s = torch.full((3, 3), 0.9)
    s[0, 1], s[0, 2] = 0.5, 0.6
    positive, negative = torch.zeros(3, 3, dtype=torch.bool), torch.zeros(3, 3, dtype=torch.bool)
    positive[0, 1] = negative[0, 2] = True
    assert multi_similarity(s, positive, negative).item() == pytest.approx(
        (6.0024757 / 60 + math.log(2)) / 3, abs=1e-6
    )
    # InfoNCE at temperature .1: -log e^5/(e^5 + e^6); NCA: -log e^-1/(e^-1 + e^-.8), over three
    # anchors
    assert info_nce(s, positive, negative, 0.1).item() == pytest.approx(
        math.log(1 + math.e), abs=1e-6
    )
    assert nca(s, positive, negative).item() == pytest.approx(
        math.log(1 + math.exp(0.2)) / 3, abs=1e-6
    )


@pytest.mark.parametrize("loss", [multi_similarity, info_nce, nca])
def test_without_pairs_the_loss_is_zero_with_finite_gradients(loss: object) -> None:
    s = torch.randn(5, 5, requires_grad=True)
    none = torch.zeros(5, 5, dtype=torch.bool)
    some = none.clone()
    some[0, 1] = True
    for positive, negative in ((none, none), (none, some), (some, none), (some, some.T)):
        value = loss(100 * s, positive, negative)  # type: ignore[operator]
        (gradient,) = torch.autograd.grad(value, s)
        assert value.isfinite() and gradient.isfinite().all()
        if not positive.any() and not negative.any():
            assert value == 0 and not gradient.any()


def dense(names: int, *triples: tuple[Tensor, Tensor]) -> list[Tensor]:
    masks = []
    for anchor, other in triples:
        mask = torch.zeros(names, names, dtype=torch.bool)
        mask[anchor, other] = True
        masks.append(mask)
    return masks


@pytest.mark.parametrize("seed", range(4))
def test_miner_and_loss_equal_pytorch_metric_learning(seed: int) -> None:
    pml = pytest.importorskip(
        "pytorch_metric_learning", reason="pytorch-metric-learning is not installed: make setup"
    )
    from pytorch_metric_learning.losses import MultiSimilarityLoss, NCALoss, NTXentLoss
    from pytorch_metric_learning.miners import TripletMarginMiner

    assert pml.__version__
    f, concept = setting(seed, names=60, concepts=(20, 60, 1, 4)[seed], size=16)
    f.requires_grad_()
    a, p, n = TripletMarginMiner(margin=0.2, type_of_triplets="all")(f, concept)
    unit = normalize(f)
    similarity, distance = similarities(unit)
    ours = hard_pairs(distance, concept)
    assert all(torch.equal(x, y) for x, y in zip(ours, dense(len(f), (a, p), (a, n)), strict=True))
    reference = MultiSimilarityLoss(alpha=1, beta=60, base=0.5)(f, concept, (a, p, n))
    loss = multi_similarity(similarity, *ours)
    torch.testing.assert_close(loss, reference, atol=1e-6, rtol=1e-5)
    if len(a):
        got, wanted = (torch.autograd.grad(x, f, retain_graph=True)[0] for x in (loss, reference))
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=0)
        every = concept[:, None] == concept[None]
        negative, positive = ~every, every.fill_diagonal_(False)
        for mine, theirs in (
            (
                info_nce(unit @ unit.T, positive, negative, 0.1),
                NTXentLoss(temperature=0.1)(f, concept),
            ),
            (nca(unit @ unit.T, positive, negative), NCALoss(softmax_scale=1)(f, concept)),
        ):
            # theirs leaves out anchors without positives, ours counts them as 0
            if positive.any(1).all():
                torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_d6_mined_pairs_of_infonce_and_nca_count_once(seed: int) -> None:
    """Ours, and the library's, against what the deviation says that each does."""
    pytest.importorskip(
        "pytorch_metric_learning", reason="pytorch-metric-learning is not installed: make setup"
    )
    from pytorch_metric_learning.losses import NCALoss, NTXentLoss
    from pytorch_metric_learning.miners import TripletMarginMiner

    f, concept = setting(seed, names=30, concepts=(10, 12, 4)[seed], size=16)
    triplets = TripletMarginMiner(margin=0.2, type_of_triplets="all")(f, concept)
    a, p, n = (one.tolist() for one in triplets)
    similarity = normalize(f) @ normalize(f).T
    exponents = (similarity / 0.1).exp().tolist()

    def contrast(positives: list[tuple[int, int]], negatives: list[tuple[int, int]]) -> float:
        against = {i: sum(exponents[j][k] for j, k in negatives if j == i) for i, _ in negatives}
        return -sum(
            math.log(exponents[i][j] / (exponents[i][j] + against[i])) for i, j in positives
        ) / len(positives)

    every = list(zip(a, p, strict=True)), list(zip(a, n, strict=True))
    once = sorted({*every[0]}), sorted({*every[1]})
    positive, negative = dense(len(f), (triplets[0], triplets[1]), (triplets[0], triplets[2]))
    assert float(info_nce(similarity, positive, negative, 0.1)) == pytest.approx(
        contrast(*once), rel=1e-4
    )
    assert float(NTXentLoss(temperature=0.1)(f, concept, triplets)) == pytest.approx(
        contrast(*every), rel=1e-4
    )
    assert contrast(*once) != pytest.approx(contrast(*every), rel=1e-2)
    same = (concept[:, None] == concept[None]).fill_diagonal_(False)
    closeness = (2 * (similarity - 1)).exp().fill_diagonal_(0)
    stands = torch.bincount(torch.cat(triplets), minlength=len(f)).float()
    chance = (closeness * same).sum(1) / closeness.sum(1)
    losses = (-chance.log() * stands / stands.max())[same.any(1)]
    torch.testing.assert_close(
        NCALoss(softmax_scale=1)(f, concept, triplets), losses.mean(), atol=1e-5, rtol=1e-5
    )
    kept = closeness * (positive | negative)
    ours = -((closeness * positive).sum(1) / kept.sum(1))[positive.any(1)].log().sum() / len(f)
    torch.testing.assert_close(nca(similarity, positive, negative), ours, atol=1e-6, rtol=1e-5)


def module(fake: Folders, groups: int = 4, **arguments: object) -> tuple[SapBERT, SapBERTData]:
    data = SapBERTData(fake.pairs, fake.bert, batch_size=16, groups=groups)
    data.setup()
    torch.manual_seed(0)
    model = SapBERT(fake.bert, **{"dropout": 0.0, "lr": 1e-3, **arguments})  # type: ignore[arg-type]
    model._trainer = SimpleNamespace(  # type: ignore[assignment]
        datamodule=data,
        world_size=1,
        accumulate_grad_batches=1,
        estimated_stepping_batches=50,
        scaler=None,
    )
    model.configure_model()
    return model, data


def training_loss(model: SapBERT, data: SapBERTData, step: int = 0) -> Tensor:
    batch = data.batch(data.order(0)[step], 0)
    return model.alignment(model(batch), batch.concept)[0]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_d4_grouping_changes_nothing(fake_sapbert: Folders, pooling: str) -> None:
    """Each name alone, all in one group padded to 25, and in four groups: the same vectors, loss
    and gradients."""
    results = []
    for groups in (1, 4):
        model, data = module(fake_sapbert, groups, pooling=pooling)
        batch = data.batch(data.order(0)[0], 0)
        loss = training_loss(model, data)
        loss.backward()
        results.append(
            (model(batch), loss, [p.grad for p in model.parameters() if p.grad is not None])
        )
    torch.testing.assert_close(results[0], results[1], atol=1e-6, rtol=1e-4)
    row = 0
    for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True):
        for one, length in zip(ids, mask.sum(1), strict=True):
            hidden = model.encoder.bert(one[None, :length]).last_hidden_state[0]  # type: ignore[union-attr]
            alone = hidden[0] if pooling == "cls" else hidden.mean(0)
            torch.testing.assert_close(
                normalize(alone, dim=0), results[1][0][row], atol=1e-5, rtol=1e-4
            )
            row += 1


def test_pooled() -> None:
    hidden, mask = torch.arange(12.0).view(1, 4, 3), torch.tensor([[1, 1, 0, 0]])
    assert pool_states(hidden, mask).tolist() == [[0, 1, 2]] and pool_states(
        hidden, mask, "mean"
    ).tolist() == [[1.5, 2.5, 3.5]]


def test_autocast_mines_and_sums_in_float32(fake_sapbert: Folders) -> None:
    model, data = module(fake_sapbert)
    batch = data.batch(data.order(0)[0], 0)
    with torch.autocast("cpu", torch.bfloat16):
        f = model(batch)
        inside = model.alignment(f, batch.concept)
    assert f.dtype == inside[0].dtype == torch.float32
    assert all(
        torch.equal(a, b) for a, b in zip(inside, model.alignment(f, batch.concept), strict=True)
    )


def test_every_parameter_learns_at_a_constant_rate(fake_sapbert: Folders) -> None:
    model, data = module(fake_sapbert)
    training_loss(model, data).backward()
    still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert all(
        "key.bias" in name or name == "encoder.bert.embeddings.token_type_embeddings.weight"
        for name in still
    ), still
    made = model.configure_optimizers()
    rates = []
    for _ in range(50):
        rates.append(made["optimizer"].param_groups[0]["lr"])
        made["optimizer"].step()
        made["lr_scheduler"]["scheduler"].step()
    # all decay, as in the released code
    assert set(rates) == {1e-3} and len(made["optimizer"].param_groups) == 1
    assert made["optimizer"].param_groups[0]["weight_decay"] == 0.01


@pytest.mark.parametrize("loss", ["ms", "infonce", "nca"])
def test_overfits_four_concepts(fake_sapbert: Folders, loss: str) -> None:
    model, data = module(fake_sapbert, loss=loss, mine=loss == "ms", scale=10.0)
    numbers = [i for i in range(len(data.pairs)) if 4 <= data.pairs[[i]][0, 2] < 8]  # type: ignore[arg-type,index]
    batch = data.batch(torch.tensor(numbers).numpy(), 0)
    optimizer = model.configure_optimizers()["optimizer"]
    first = model.alignment(model(batch), batch.concept)[0].item()
    for _ in range(60):
        optimizer.zero_grad()
        model.alignment(model(batch), batch.concept)[0].backward()
        optimizer.step()
    f = model(batch)
    s, same = f @ f.T, batch.concept[:, None] == batch.concept[None]
    assert model.alignment(f, batch.concept)[0].item() < 0.7 * first
    assert s[same].min() > s[~same].max()  # the concepts are apart


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_export_returns_the_same_vectors(
    fake_sapbert: Folders, tmp_path: Path, pooling: str
) -> None:
    model, data = module(fake_sapbert, pooling=pooling)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    model.eval().export(tmp_path)
    data.export(str(tmp_path))
    write_json(tmp_path / "manifest.json", {"paper": "sapbert", "checksums": {}})
    batch = data.batch(data.order(0)[0], 0)
    ids, mask = batch.input_ids[-1], batch.attention_mask[-1]
    found = encoder_of(str(tmp_path))
    assert found.load == "models.sapbert.SapBERTEncoder.from_export"
    loaded = SapBERTEncoder.from_export(found.folder).eval()
    assert loaded.pooling == pooling
    assert torch.equal(loaded.vectors(ids, mask), model.encoder.vectors(ids, mask))  # type: ignore[union-attr]
    plain = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    assert torch.equal(plain(ids, mask).last_hidden_state, loaded(ids, mask))


def test_validation_finds_the_nearest_name(fake_sapbert: Folders) -> None:
    """Against one query at a time over all names, and Eq. (2) of queries and partners."""
    model, data = module(fake_sapbert)
    batches = list(data.val_dataloader())
    logged = validate(model.eval(), batches)
    with torch.no_grad():
        f = torch.cat([model(b) for b in batches])
    concept, query = torch.cat([b.concept for b in batches]), torch.cat([b.query for b in batches])
    right = 0
    for i in query.nonzero()[:, 0].tolist():
        scores = [(float(f[i] @ f[j]), int(concept[j])) for j in range(len(f)) if not query[j]]
        best = max(scores)[0]
        right += any(s >= best - 1e-6 and c == concept[i] for s, c in scores)
    assert float(logged["val/acc1"]) == pytest.approx(right / int(query.sum()))
    assert (
        logged["val/queries"] == 4
        and logged["val/names"] == (~query).sum()
        and logged["val/loss"] > 0
    )


def test_bad_settings(fake_sapbert: Folders, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pooling 'max': expected one of cls, mean"):
        module(fake_sapbert, pooling="max")
    with pytest.raises(InputError, match="loss 'triplet': expected one of ms, infonce, nca"):
        module(fake_sapbert, loss="triplet")
    with pytest.raises(InputError, match="condition 'soft': expected one of released, printed"):
        module(fake_sapbert, condition="soft")
    with pytest.raises(InputError, match=r"sapbert\.json: missing; this is no SapBERT export"):
        SapBERTEncoder.from_export(tmp_path)
    model, _ = module(fake_sapbert)
    model._trainer.accumulate_grad_batches = 2  # type: ignore[union-attr,misc]
    with pytest.raises(InputError, match="accumulate_grad_batches 2: expected 1"):
        model.on_fit_start()


def test_rows_of_other_processes_carry_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two processes: all rows in the order of ranks, gradient of its own only, times
    the number of processes."""
    other, own = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]], requires_grad=True)

    def all_gather(parts: list[Tensor], mine: Tensor) -> None:
        assert not mine.requires_grad
        for part, value in zip(parts, (other, mine), strict=True):
            part.copy_(value)

    values = {"is_available": True, "is_initialized": True, "get_world_size": 2, "get_rank": 1}
    for name, value in values.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    monkeypatch.setattr(torch.distributed, "all_gather", all_gather)
    rows = gather_rows(own)
    assert rows.tolist() == [[1, 2], [3, 4]]
    (rows * torch.tensor([[5.0, 6.0], [7.0, 8.0]])).sum().backward()
    assert own.grad is not None and own.grad.tolist() == [[7, 8]]


def test_the_loss_is_times_the_processes(
    fake_sapbert: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDP averages the processes' gradients, of which each is a part of the whole."""
    model = SapBERT(fake_sapbert.bert)
    monkeypatch.setattr(SapBERT, "forward", lambda *_: torch.eye(4))
    monkeypatch.setattr(model, "log_dict", lambda *_, **__: None)
    batch: Any = SimpleNamespace(concept=torch.tensor([0, 0, 1, 1]))
    losses = []
    for processes in (1, 2, 3):
        model._trainer = SimpleNamespace(world_size=processes)  # type: ignore[assignment]
        losses.append(float(model.training_step(batch, 0)))
    assert losses == pytest.approx([losses[0], 2 * losses[0], 3 * losses[0]]) and losses[0] > 0
