"""EMBERT's heads and losses against versions typed from the paper's equations, token by token."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM

from datamodules.embert import EMBERTBatch, EMBERTData
from models.embert import EMBERT, TERMS, Consistency, PartPrediction, Segmentation
from tests.fakes.chinese import LENGTH
from tests.fakes.embert import Folders
from tests.fakes.validation import validate

H, V = 6, 11


def norm(x: Tensor, module: nn.LayerNorm) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + module.eps).sqrt() * module.weight + module.bias


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def test_consistency_is_equation_2_and_3() -> None:
    torch.manual_seed(0)
    head, states = Consistency(H), torch.randn(2, 5, H)
    around = torch.tensor([[0, 0, 3], [1, 2, 4]])
    found = head(states, around)
    for logits, (row, before, behind) in zip(found, around.tolist(), strict=True):
        h = torch.cat([states[row, before], states[row, behind]])
        wanted = head.outer.weight @ norm(gelu(head.inner.weight @ h), head.norm)
        torch.testing.assert_close(logits, wanted)
    assert head.inner.weight.shape == (H, 2 * H) and head(states, around[:0]).shape == (0, 2)


def test_segmentation_is_equation_4() -> None:
    torch.manual_seed(0)
    head, states = Segmentation(H), torch.randn(4, H)
    for logits, x in zip(head(states), states, strict=True):
        inner = norm(gelu(head.inner.weight @ x), head.norm)
        torch.testing.assert_close(
            logits, head.decide.weight @ torch.tanh(head.outer.weight @ inner + head.outer.bias)
        )


def test_part_prediction_is_equation_7() -> None:
    torch.manual_seed(0)
    head, states = PartPrediction(H, V, positions=4, size=3), torch.randn(2, 6, H)
    hidden = torch.tensor([[0, 1, 2, 0, 2, 0], [0, 1, 2, 1, 2, 0], [1, 4, 4, 3, 4, 1]])
    for y, (row, first, last, position, _, _) in zip(
        head.transform(states, hidden), hidden.tolist(), strict=True
    ):
        h = torch.cat([states[row, first], states[row, last], head.position.weight[position]])
        one = norm(gelu(head.first.weight @ h), head.first_norm)
        torch.testing.assert_close(y, norm(gelu(head.second.weight @ one), head.second_norm))
    assert head.first.weight.shape == (H, 2 * H + 3)


@pytest.fixture(scope="module")
def data(fake_embert: Folders) -> EMBERTData:
    made = EMBERTData(
        fake_embert.corpus,
        fake_embert.bert,
        fake_embert.graph,
        fake_embert.segments,
        fake_embert.thesaurus,
        batch_size=8,
        max_length=LENGTH + 1,
        replace=0.5,
        rate=0.3,
    )
    made.setup()
    return made


def model(fake: Folders, **settings: Any) -> EMBERT:
    made = EMBERT(fake.bert, dropout=0.0, **settings)
    made.configure_model()
    return made


@pytest.fixture(scope="module")
def batch(data: EMBERTData) -> EMBERTBatch:
    found: EMBERTBatch = data.batch(data.order(0)[0], 0)
    assert all(found.counts > 1)
    return found


def by_hand(made: EMBERT, batch: EMBERTBatch) -> list[float]:
    """Sums of the six terms, one token after the other: Eq. (3), (5), (8)."""
    states = made.states(batch)
    words = made.bert.embeddings.word_embeddings.weight
    total = [0.0] * 6
    for row, (labels, ends) in enumerate(
        zip(batch.mlm_labels.tolist(), batch.segment_labels.tolist(), strict=True)
    ):
        for t, (label, end) in enumerate(zip(labels, ends, strict=True)):
            if label != -100:
                logits = words @ made.head.transform(states[row, t][None])[0] + made.head.bias
                total[0] -= logits.log_softmax(0)[label].item()
            if end != -100:
                total[3] -= made.segmentation(states[row, t][None])[0].log_softmax(0)[end].item()  # type: ignore[misc]
        if batch.pair[row] != -100:
            total[1] -= made.pair(states[row, 0]).log_softmax(0)[batch.pair[row]].item()
    for around, label in zip(batch.replaced, batch.consistent.tolist(), strict=True):
        total[2] -= made.consistency(states, around[None])[0].log_softmax(0)[label].item()  # type: ignore[misc]
    for row, token in zip(batch.hidden, batch.hidden_ids.tolist(), strict=True):
        side = int(row[5])
        y = made.parts[side].transform(states, row[None])[0]  # type: ignore[operator]
        total[4 + side] -= (words @ y + made.parts[side].bias).log_softmax(0)[token].item()
    return total


def test_losses_are_the_equations(fake_embert: Folders, batch: EMBERTBatch) -> None:
    torch.manual_seed(1)
    made = model(fake_embert)
    with torch.no_grad():
        for part in made.parts:
            part.bias.normal_()  # each direction has its own (D3)
    sums = made.loss_sums(made.outputs(batch))
    torch.testing.assert_close(sums.tolist(), by_hand(made, batch), rtol=1e-4, atol=1e-4)
    untrained = sums / batch.counts[:6]
    assert all(abs(untrained[i] - math.log(2)) < 0.2 for i in (1, 2, 3))  # two classes
    sums.sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


class Steps:
    """A substitute for the trainer."""

    accumulate_grad_batches, world_size, datamodule = 1, 1, None
    strategy = SimpleNamespace(reduce=lambda x, reduce_op: x)


def total(made: EMBERT, batch: EMBERTBatch, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(EMBERT, "trainer", Steps, raising=False)
    monkeypatch.setattr(EMBERT, "log_dict", lambda *_, **__: None)
    return float(made.training_step(batch, 0))


def test_the_total_is_equation_10(
    fake_embert: Folders, batch: EMBERTBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    made = model(fake_embert)
    sums = made.loss_sums(made.outputs(batch)).tolist()
    mlm, pair, consistency, segmentation, atomic, adjective = (
        s / c for s, c in zip(sums, batch.counts.tolist()[:6], strict=True)
    )
    wanted = mlm + pair + 2 * consistency + 2 * segmentation + 0.5 * (atomic + adjective)
    assert total(made, batch, monkeypatch) == pytest.approx(wanted, rel=1e-5)
    made.reduction = "sum"  # D4: Eq. (5) and (8) over a sequence
    n = len(batch.input_ids)
    wanted = mlm + pair + 2 * consistency + 2 * sums[3] / n + 0.5 * (sums[4] + sums[5]) / n
    assert total(made, batch, monkeypatch) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("term", ["consistency", "segmentation", "masking"])
def test_a_term_of_weight_0_is_left_out(
    fake_embert: Folders, batch: EMBERTBatch, term: str
) -> None:
    made = model(fake_embert, **{f"{term}_weight": 0.0})
    found = made.outputs(batch)
    gone = {"atomic", "adjective"} if term == "masking" else {term}
    assert set(TERMS) - set(found) == gone
    sums = made.loss_sums(found)
    assert [bool(s > 0) for s in sums] == [t not in gone for t in TERMS]
    (sums * sums.new_tensor(made.weights)).sum().backward()
    assert all(p.grad is not None for p in made.parameters())


def test_a_batch_without_entities(fake_embert: Folders, data: EMBERTData) -> None:
    """Nothing replaced, nothing long: the terms are 0 and gradients finite."""
    plain = data.batch(data.order(0)[0], 0, blank=True)
    made = model(fake_embert)
    sums = made.loss_sums(made.outputs(plain))
    sums.sum().backward()
    assert sums.tolist() == [0.0] * 6 and all(
        p.grad is None or p.grad.isfinite().all() for p in made.parameters()
    )


def test_four_sequences_are_learnt_by_heart(fake_embert: Folders, data: EMBERTData) -> None:
    torch.manual_seed(0)
    made = model(fake_embert, lr=3e-3)
    batch = data.batch(data.order(0)[1][:4], 0)
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-3)
    first = made.loss_sums(made.outputs(batch)) / batch.counts[:6].clamp_min(1)
    for _ in range(60):
        optimizer.zero_grad()
        loss = (made.loss_sums(made.outputs(batch)) / batch.counts[:6].clamp_min(1)).sum()
        loss.backward()
        optimizer.step()
    last = made.loss_sums(made.outputs(batch)) / batch.counts[:6].clamp_min(1)
    assert (last < 0.3 * first + 0.05).all(), (first, last)


def test_what_is_exported_is_a_plain_masked_lm(
    fake_embert: Folders, data: EMBERTData, batch: EMBERTBatch, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    made = model(fake_embert).eval()
    made.export(tmp_path)
    data.export(tmp_path)
    again = AutoModel.from_pretrained(tmp_path).eval()
    mask = batch.attention_mask
    wanted = made.bert(batch.input_ids, mask).last_hidden_state
    torch.testing.assert_close(again(batch.input_ids, mask).last_hidden_state, wanted)
    logits = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()(batch.input_ids, mask).logits
    torch.testing.assert_close(
        logits, made.head(wanted, made.bert.embeddings.word_embeddings.weight)
    )
    carried = EMBERT(str(tmp_path))  # another pre-training starts from it, head and all
    carried.configure_model()
    assert torch.equal(carried.head.dense.weight, made.head.dense.weight)


def test_validation_by_hand(
    fake_embert: Folders, batch: EMBERTBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss with its weights, boundaries as F1 and not as recall, each side's baseline its own."""
    made = model(fake_embert)
    atomic, adjective = (batch.hidden[:, 5] == side for side in (0, 1))
    hidden = batch.hidden[torch.cat([atomic.nonzero()[:3, 0], adjective.nonzero()[:2, 0]])]
    assert hidden[:, 5].tolist() == [0, 0, 0, 1, 1]
    batch = batch._replace(
        hidden=hidden,
        hidden_ids=torch.tensor([7, 7, 7, 8, 8]),
        counts=torch.tensor([10.0, 4, 6, 8, 3, 2, 8]),
    )
    sure = torch.tensor([[5.0, -5.0], [-5.0, 5.0]])  # of class 0, of class 1
    said, there = [1, 1, 1, 0, 0, 0, 1, 0], [1, 1, 0, 1, 0, 0, 0, 0]
    outputs = {"segmentation": (sure[said], torch.tensor(there))}
    monkeypatch.setattr(made, "outputs", lambda _: outputs)
    monkeypatch.setattr(
        made, "loss_sums", lambda _: torch.tensor([10.0, 8.0, 18.0, 32.0, 15.0, 12.0])
    )
    places = {tuple(row[[5, 4, 3]].tolist()) for row in hidden}  # side, length, position
    common = {place: 7 for place in places}  # right on the atomic side only
    trainer = SimpleNamespace(datamodule=SimpleNamespace(unigrams=common))
    monkeypatch.setattr(EMBERT, "trainer", trainer, raising=False)
    logged = validate(made, [batch])
    found = {name.removeprefix("val/"): float(value) for name, value in logged.items()}
    # means 1, 2, 3, 4, 5, 6 with weights 1, 1, 2, 2, 1/2, 1/2
    assert found["loss"] == pytest.approx(1 + 2 + 6 + 8 + 2.5 + 3)
    # four boundaries are said and three are there, two of them both
    assert found["segmentation_f1"] == pytest.approx(2 * 2 / (4 + 3))
    assert found["segmentation_accuracy"] == pytest.approx(5 / 8) and found[
        "segmentation_majority"
    ] == pytest.approx(5 / 8)
    assert found["atomic_unigram"] == pytest.approx(1) and found["adjective_unigram"] == 0
