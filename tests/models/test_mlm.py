"""Masked-LM pre-training against the definition of its loss, and what it writes."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from core.files import InputError
from datamodules.mlm import MLMData
from models.mlm import MLM, new_bert, sinusoids
from models.transformer_files import load_bert
from tests.fakes import bert
from tests.fakes.mlm import Folders
from tests.fakes.validation import validate

SMALL = {
    "layers": 2,
    "hidden": 32,
    "heads": 2,
    "intermediate": 64,
    "max_length": 128,
    "dropout": 0.0,
}


def module(fake: Folders, **settings: object) -> tuple[MLM, MLMData]:
    data = MLMData(fake.corpus, fake.vocabulary, batch_size=16, max_length=128)
    data.setup()
    torch.manual_seed(0)
    model = MLM(**{**SMALL, **settings})  # type: ignore[arg-type]
    model._trainer = SimpleNamespace(
        datamodule=data, strategy=SimpleNamespace(reduce=lambda t, reduce_op: t)
    )  # type: ignore[assignment]
    model.configure_model()
    return model, data


def test_d2_loss_is_the_mean_over_predicted_tokens(fake_mlm: Folders) -> None:
    """Token by token, sentence by sentence, without padding."""
    model, data = module(fake_mlm)
    batch = data.batch(data.order(0)[0], 0)
    slow = torch.zeros(())
    words = model.bert.embeddings.word_embeddings.weight  # type: ignore[union-attr]
    for ids, mask, labels in zip(batch.input_ids, batch.attention_mask, batch.labels, strict=True):
        n = int(mask.sum())
        states = model.bert(ids[None, :n]).last_hidden_state[0]  # type: ignore[misc]
        for i in range(n):
            if labels[i] >= 0:
                slow = slow - model.head(states[i][None], words)[0].log_softmax(0)[labels[i]]
    torch.testing.assert_close(model.loss_sum(batch)[0], slow, rtol=1e-4, atol=1e-2)
    assert (model.loss_sum(batch)[0] / batch.counts[0]).item() == pytest.approx(
        torch.tensor(len(words)).log().item(), rel=0.05
    )


def test_d3_position_embeddings_start_as_sinusoids(fake_mlm: Folders) -> None:
    """One number at a time; as large as random ones, and they learn."""
    model, data = module(fake_mlm, positions="sinusoidal")
    found = model.bert.embeddings.position_embeddings.weight  # type: ignore[union-attr]
    for position in (0, 1, 7, 127):
        for j in range(32):
            angle = position / 10_000 ** (j // 2 * 2 / 32)
            wanted = 0.02 * 2**0.5 * (math.cos(angle) if j % 2 else math.sin(angle))
            assert found[position, j].item() == pytest.approx(wanted, abs=1e-6)
    assert found.square().mean().sqrt().item() == pytest.approx(0.02, rel=0.01)
    model.loss_sum(data.batch(data.order(0)[0], 0)).sum().backward()
    assert found.grad is not None and found.grad.abs().sum() > 0
    assert sinusoids(3, 5).shape == (3, 5)  # an odd size ends in a sine
    other = module(fake_mlm)[0].bert.embeddings.position_embeddings.weight  # type: ignore[union-attr]
    assert not torch.allclose(other, found)  # BERT's own are random


def test_beta2_is_adamws(fake_mlm: Folders) -> None:
    for settings, wanted in (({}, 0.999), ({"beta2": 0.98}, 0.98)):
        model, _ = module(fake_mlm, **settings)
        model._trainer.estimated_stepping_batches = 10  # type: ignore[misc]
        model._trainer.scaler = None  # type: ignore[misc]
        optimizer = model.configure_optimizers()["optimizer"]
        assert {group["betas"] for group in optimizer.param_groups} == {(0.9, wanted)}


def test_a_blank_batch_counts_nothing_and_every_parameter_learns(fake_mlm: Folders) -> None:
    model, data = module(fake_mlm)
    assert model.loss_sum(data.batch(data.held_out_indices[:1], -1, blank=True))[0] == 0
    model.loss_sum(data.batch(data.order(0)[0], 0)).sum().backward()
    still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert all("key.bias" in name for name in still), still


def test_overfits_four_sentences(fake_mlm: Folders) -> None:
    model, data = module(fake_mlm)
    batch = data.batch(data.train_indices[:4], 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = model.loss_sum(batch).item()
    for _ in range(60):
        optimizer.zero_grad()
        loss = model.loss_sum(batch).sum() / batch.counts[0]
        loss.backward()
        optimizer.step()
    assert model.loss_sum(batch).item() < 0.1 * first


def test_export_loads_everywhere_with_the_same_output(fake_mlm: Folders, tmp_path: Path) -> None:
    model, data = module(fake_mlm)
    torch.nn.init.normal_(model.head.bias)
    model.eval().export(tmp_path)
    data.export(str(tmp_path))
    batch = data.batch(data.order(0)[0], 0)
    wanted = model.bert(batch.input_ids, batch.attention_mask).last_hidden_state  # type: ignore[misc]
    for loaded in (
        load_bert(str(tmp_path)),
        AutoModel.from_pretrained(tmp_path, add_pooling_layer=False),
    ):
        assert torch.equal(
            loaded.eval()(batch.input_ids, batch.attention_mask).last_hidden_state, wanted
        )
    whole = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    logits = whole(batch.input_ids, batch.attention_mask).logits[batch.labels != -100]
    torch.testing.assert_close(logits, model.logits(batch)[0], atol=1e-5, rtol=1e-5)
    assert len(AutoTokenizer.from_pretrained(tmp_path)) == len(data.tokenizer)
    again, _ = module(fake_mlm, encoder=str(tmp_path))  # the initial checkpoint
    again.eval()
    assert torch.equal(again.bert(batch.input_ids, batch.attention_mask).last_hidden_state, wanted)  # type: ignore[misc]


def test_d1_no_sentence_pair_head(fake_mlm: Folders, tmp_path: Path) -> None:
    model, _ = module(fake_mlm)
    assert model.bert.pooler is None and not [
        n for n, _ in model.named_parameters() if "seq_relationship" in n
    ]  # type: ignore[union-attr]


def test_validation_counts(fake_mlm: Folders) -> None:
    model, data = module(fake_mlm)
    batches = [data.batch(data.held_out_indices[i::2], -1) for i in range(2)]
    logged = validate(model.eval(), batches)
    with torch.no_grad():
        sums = sum(model.loss_sum(b).item() for b in batches)
    count = sum(b.counts.item() for b in batches)
    assert logged["val/tokens"] == count and logged["val/loss"].item() == pytest.approx(
        sums / count, rel=1e-5
    )
    assert logged["val/perplexity"].item() == pytest.approx(
        torch.tensor(sums / count).exp().item(), rel=1e-4
    )
    assert 0 <= logged["val/accuracy"] < 0.1


def test_bad_settings(fake_mlm: Folders, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hidden 30: expected a multiple of heads, 4"):
        new_bert(10, 1, 30, 4, 60, 16)
    with pytest.raises(InputError, match="tokens, but the data has"):
        module(fake_mlm, encoder=str(bert.write(tmp_path / "b", ["zebra"])))
    with pytest.raises(InputError, match="64 positions, but the data has 128"):
        module(fake_mlm, max_length=64)


def test_accuracy_is_the_share_of_tokens_that_are_the_likeliest(fake_mlm: Folders) -> None:
    """A head that always says the same word is right as often as that word is to be predicted."""
    model, data = module(fake_mlm)
    batch = data.batch(data.held_out_indices, -1)
    predicted = batch.labels[batch.labels != -100]
    word = int(predicted.mode().values)
    with torch.no_grad():
        model.head.bias[word] = 1e3
    logged = validate(model, [batch])
    share = (predicted == word).double().mean().item()
    assert logged["val/accuracy"].item() == pytest.approx(share) and share > 0
