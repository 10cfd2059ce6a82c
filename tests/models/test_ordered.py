"""Masked-LM losses that no entity of a hidden mention lowers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from datamodules.masking import IGNORE
from models.heads import MLMHead
from models.ordered import drop_masked, label_outside, measure_without_answers
from tests.datamodules.test_ernie import data
from tests.fakes.smedbert import Folders
from tests.models.test_ernie import first_batch, module
from tests.models.test_smedbert.test_module import module as smedbert_module


def test_labels_inside_mentions_are_left_out() -> None:
    labels = torch.tensor([[IGNORE, 5, 6, IGNORE, 7], [8, IGNORE, 9, 3, IGNORE]])
    span = torch.tensor([[0, 1, 3], [1, 3, 5]])  # row, first token, last + 1
    wanted = [[IGNORE, IGNORE, IGNORE, IGNORE, 7], [8, IGNORE, 9, IGNORE, IGNORE]]
    assert label_outside(labels, span).tolist() == wanted
    assert label_outside(labels, span[:0]).tolist() == labels.tolist()


def test_the_losses_by_hand() -> None:
    torch.manual_seed(0)
    head, words = MLMHead(4, 10), torch.randn(10, 4)
    labels = torch.tensor([[IGNORE, 5, 6, IGNORE, 7]])
    linked, unlinked = torch.randn(1, 5, 4), torch.randn(1, 5, 4)
    batch: Any = SimpleNamespace(mlm_labels=labels)
    span = torch.tensor([[0, 1, 2]])
    found = measure_without_answers(batch, span, linked, unlinked, head, words)

    def loss(states: torch.Tensor, places: list[int]) -> float:
        rows = [-head(states[0, [p]], words).log_softmax(1)[0, labels[0, p]] for p in places]
        return float(sum(rows))

    for name, states, places in (
        ("loss_mlm_outside", linked, [2, 4]),
        ("loss_mlm_unlinked", unlinked, [1, 2, 4]),
    ):
        total, count = found[name]  # type: ignore[misc]
        assert float(total) == pytest.approx(loss(states, places), rel=1e-5)
        assert int(count) == len(places)


def test_what_a_hidden_mention_is_given_does_not_change_the_loss_without_it(
    fake_smedbert: Folders,
) -> None:
    model, batch = module(fake_smedbert).eval(), first_batch(fake_smedbert)
    kept = drop_masked(batch.mentions, batch.mlm_labels)
    hidden = batch.mlm_labels[batch.mentions.span[:, 0], batch.mentions.span[:, 1]] != IGNORE
    assert 0 < len(kept.span) == int((~hidden).sum()) < len(hidden)
    other = batch.mentions.entity.clone()
    other[hidden] = (other[hidden] + 1) % len(model.encoder.entity)
    changed = batch._replace(mentions=batch.mentions._replace(entity=other))
    model._trainer = SimpleNamespace(datamodule=data(fake_smedbert))  # type: ignore[assignment]
    before, after = (model.measures(b) for b in (batch, changed))
    key = "loss_mlm_unlinked"
    assert torch.equal(before[key][0], after[key][0])  # type: ignore[index]
    assert not torch.equal(before["loss_mlm"][0], after["loss_mlm"][0])  # type: ignore[index]


@pytest.mark.parametrize("make", [module, smedbert_module], ids=["ERNIE", "SMedBERT"])
def test_training_starts_from_the_encoder_s_own_head(
    make: Any, fake_smedbert: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load(source: str, head: MLMHead) -> bool:
        asked.append(source)
        torch.nn.init.constant_(head.bias, 7.0)
        return True

    for place in ("models.ordered", "models.smedbert"):
        monkeypatch.setattr(f"{place}.load_mlm_head", load)
    assert (make(fake_smedbert).head.bias == 7).all() and asked == [fake_smedbert.bert]
