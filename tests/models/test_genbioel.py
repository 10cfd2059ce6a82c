"""GenBioEL's loss against its equation, what it learns from, and what an export returns."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from core.files import InputError
from core.json_files import write_json
from datamodules.genbioel import GenBioELData
from datamodules.genbioel.inputs import Inputs
from experiments.names import encoder as encoder_of
from models.genbioel import GenBioEL, GenBioELModel, load_bart, new_bart
from models.losses import smoothed_loss
from tests.fakes import bert
from tests.fakes.genbioel import Folders
from tests.fakes.validation import validate

LIMITS = {"max_length": 64, "max_mention": 16, "max_name": 32, "max_words": 32}


def module(
    fake: Folders, objective: str = "linking", prompt: bool = True, **arguments: object
) -> tuple[GenBioEL, GenBioELData]:
    data = GenBioELData(
        fake.samples, fake.tokenizer, batch_size=8, objective=objective, prompt=prompt, **LIMITS
    )  # type: ignore[arg-type]
    data.setup()
    torch.manual_seed(0)
    model = GenBioEL(
        **{"encoder": fake.bart, "dropout": 0.0, "lr": 3e-3, "warmup_steps": 0, **arguments}
    )  # type: ignore[arg-type]
    model._trainer = SimpleNamespace(  # type: ignore[assignment]
        datamodule=data,
        world_size=1,
        accumulate_grad_batches=1,
        estimated_stepping_batches=50,
        scaler=None,
        strategy=SimpleNamespace(reduce=lambda value, reduce_op: value),
    )
    model.configure_model()
    return model, data


@given(
    tokens=st.integers(1, 6),
    words=st.integers(2, 9),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_loss_equals_its_equation(tokens: int, words: int, smoothing: float, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    logits, labels = (
        5 * torch.randn(tokens, words, generator=rng),
        torch.randint(words, (tokens,), generator=rng),
    )
    total = 0.0
    for row, label in zip(logits.double().tolist(), labels.tolist(), strict=True):
        normaliser = math.log(sum(math.exp(x) for x in row))
        p = [x - normaliser for x in row]
        total -= (1 - smoothing) * p[label] + smoothing / words * sum(p)
    assert smoothed_loss(logits, labels, smoothing).item() == pytest.approx(
        total, rel=1e-4, abs=1e-5
    )
    assert smoothed_loss(logits.bfloat16(), labels, smoothing).dtype == torch.float32


def test_hand_worked() -> None:
    """Two words at odds 3:1, ε = .1: -(.95 log 3/4 + .05 log 1/4)."""
    logits = torch.tensor([[math.log(3.0), 0.0]])
    wanted = -(0.95 * math.log(0.75) + 0.05 * math.log(0.25))
    assert smoothed_loss(logits, torch.tensor([0]), 0.1).item() == pytest.approx(wanted, abs=1e-6)


def slow_loss(model: GenBioEL, data: GenBioELData, samples: list[int], smoothing: float) -> Tensor:
    """Σ over each sample's name, token by token, each from its own unpadded prefix: Section 2.1's
    product."""
    import numpy as np

    assert model.bart is not None
    total = torch.zeros(())
    for sample in samples:
        ids, decoder, labels = data.make_linking_example(
            sample, np.random.default_rng([0, 1, sample])
        )
        for place, label in enumerate(labels):
            if label == -100:
                continue
            logits = model.bart(
                torch.tensor([ids]), decoder_input_ids=torch.tensor([decoder[: place + 1]])
            ).logits[0, -1]
            p = logits.log_softmax(0)
            total = total - (1 - smoothing) * p[label] - smoothing * p.mean()
    return total


@pytest.mark.parametrize("prompt", [True, False])
def test_the_batch_is_each_sample_alone(fake_genbioel: Folders, prompt: bool) -> None:
    """D1, D2: whatever the padding, the loss is that of every name given its own prompt, context
    and mention."""
    model, data = module(fake_genbioel, prompt=prompt)
    samples = data.order(0)[0][:4]
    batch = data.batch(samples, 0)
    with torch.no_grad():
        torch.testing.assert_close(
            model.losses(batch)[0],
            slow_loss(model, data, samples.tolist(), 0.1),
            rtol=1e-4,
            atol=1e-3,
        )
    logged: dict[str, Tensor] = {}
    model.log = lambda name, value, **_: logged.update({name: value})  # type: ignore[method-assign,assignment]
    torch.testing.assert_close(
        model.training_step(batch, 0), model.losses(batch)[0] / batch.counts[0]
    )
    torch.testing.assert_close(
        logged["train/loss"], (model.losses(batch)[0] / batch.counts[0]).detach()
    )


def test_autocast_sums_in_float32(fake_genbioel: Folders) -> None:
    model, data = module(fake_genbioel)
    batch = data.batch(data.order(0)[0], 0)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.losses(batch)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, model.losses(batch), rtol=0.02, atol=0.1)


@pytest.mark.parametrize("objective", ["linking", "denoising"])
def test_every_parameter_learns(fake_genbioel: Folders, objective: str) -> None:
    model, data = module(fake_genbioel, objective)
    model.losses(data.batch(data.order(0)[0], 0)).sum().backward()
    still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # a softmax does not see what is added to every key
    assert all("k_proj.bias" in name for name in still), still


def test_d9_rate_ends_at_1e_7(fake_genbioel: Folders) -> None:
    """The polynomial schedule of power 1, typed out: up in 10 steps, down to 1e-7 in 40."""
    model, _ = module(fake_genbioel, lr=3e-7, warmup_steps=10)
    made = model.configure_optimizers()
    for step in range(51):
        wanted = 3e-7 * step / 10 if step < 10 else (3e-7 - 1e-7) * (1 - (step - 10) / 40) + 1e-7
        for group in made["optimizer"].param_groups:
            assert group["lr"] == pytest.approx(wanted, rel=1e-6, abs=1e-15)
            assert (group["betas"], group["eps"]) == ((0.9, 0.999), 1e-8)
        made["optimizer"].step()
        made["lr_scheduler"]["scheduler"].step()


#: loss of the first three steps on the fake data at lr 3e-3; change them only with a change that
#: is meant to move them
GOLDEN = {"linking": [6.0714, 5.9308, 5.9406], "denoising": [6.0649, 5.9682, 5.8956]}


@pytest.mark.parametrize("objective", ["linking", "denoising"])
def test_golden_first_losses(fake_genbioel: Folders, objective: str) -> None:
    model, data = module(fake_genbioel, objective)
    optimizer, found = model.configure_optimizers()["optimizer"], []
    for step in range(3):
        batch = data.batch(data.order(0)[step], 0)
        loss = (model.losses(batch) / batch.counts).sum()
        found.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert found == pytest.approx(GOLDEN[objective], abs=0.005)


def test_overfits_four_samples(fake_genbioel: Folders) -> None:
    model, data = module(fake_genbioel, smoothing=0.0)
    batch = data.batch(data.source.train[[0, 9, 20, 33]], 0)  # type: ignore[union-attr]
    optimizer = model.configure_optimizers()["optimizer"]
    for _ in range(120):
        optimizer.zero_grad()
        (model.losses(batch) / batch.counts).sum().backward()
        optimizer.step()
    logits, labels = model.logits(batch)
    assert (logits.argmax(-1) == labels).all() and (model.losses(batch) / batch.counts).item() < 0.1


def test_validation_by_hand(fake_genbioel: Folders) -> None:
    model, data = module(fake_genbioel)
    batches = [data.batch(data.source.train[i : i + 3], -1) for i in range(0, 9, 3)]  # type: ignore[union-attr]
    batches.append(data.batch(data.source.held_out, -1, blank=True))  # type: ignore[union-attr]
    logged = validate(model.eval(), batches)
    loss, right, tokens, whole = 0.0, 0, 0, 0
    with torch.no_grad():
        for batch in batches:
            assert model.bart is not None
            every = model.bart(
                batch.input_ids, batch.attention_mask, decoder_input_ids=batch.decoder_input_ids
            ).logits
            for row, labels in zip(every, batch.labels, strict=True):
                some = labels != -100
                hits = (row[some].argmax(-1) == labels[some]).tolist()
                right, tokens, whole = (
                    right + sum(hits),
                    tokens + len(hits),
                    whole + (bool(hits) and all(hits)),
                )
                loss -= float(row.log_softmax(-1)[some].gather(1, labels[some, None]).sum())
    assert float(logged["val/loss"]) == pytest.approx(loss / tokens, rel=1e-4)
    assert float(logged["val/token_accuracy"]) == pytest.approx(right / tokens)
    assert float(logged["val/exact"]) == whole / 9 and logged["val/samples"] == 9


def test_export_returns_the_same_logits(fake_genbioel: Folders, tmp_path: Path) -> None:
    model, data = module(fake_genbioel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    model.eval().export(tmp_path)
    data.export(str(tmp_path))
    write_json(tmp_path / "manifest.json", {"paper": "genbioel", "checksums": {}})
    batch = data.batch(data.order(0)[0], 0)
    found = encoder_of(str(tmp_path))
    assert found.load == "models.genbioel.GenBioELModel.from_export" and found.paper == "genbioel"
    loaded = GenBioELModel.from_export(found.folder)
    own, labels = model.logits(batch)
    wanted = loaded(batch.input_ids, batch.attention_mask, batch.decoder_input_ids)
    torch.testing.assert_close(own, wanted[batch.labels != -100])
    torch.testing.assert_close(
        own,
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
        .eval()(batch.input_ids, batch.attention_mask, decoder_input_ids=batch.decoder_input_ids)
        .logits[batch.labels != -100],
    )
    assert Inputs.from_export(tmp_path).settings == data.inputs.settings and len(labels)
    carried, _ = module(fake_genbioel._replace(bart=str(tmp_path)))  # fine-tuning starts from it
    assert torch.equal(carried.eval().logits(batch)[0], own)


def test_a_new_bart_has_the_sizes_asked_for(fake_genbioel: Folders) -> None:
    model, data = module(
        fake_genbioel,
        encoder=None,
        layers=1,
        hidden=16,
        heads=2,
        intermediate=24,
        positions=64,
        dropout=0.3,
    )
    config = model.bart.config  # type: ignore[union-attr]
    assert (config.d_model, config.encoder_layers, config.decoder_ffn_dim, config.vocab_size) == (
        16,
        1,
        24,
        len(data.tokenizer),
    )
    assert {config.dropout, config.attention_dropout, config.activation_dropout} == {
        0.3
    } and model.training
    assert (config.pad_token_id, config.eos_token_id, config.decoder_start_token_id) == (1, 2, 2)


def test_bad_settings(fake_genbioel: Folders, tmp_path: Path) -> None:
    for settings_, message in (
        ({"encoder": None, "hidden": 30, "heads": 4}, "hidden 30: expected a multiple of heads, 4"),
        ({"encoder": None, "positions": 32}, "32 positions, but the data has 64"),
        ({"encoder": str(tmp_path)}, "neither a folder with config.json and weights nor a model"),
        ({"encoder": str(bert.write(tmp_path / "bert", ["a"]))}, "a bert model; expected a BART"),
        ({"attention": "flash"}, "attention 'flash': expected one of sdpa, eager"),
        ({"smoothing": 1.0}, "smoothing 1.0: expected 0 or more, below 1"),
    ):
        with pytest.raises(InputError, match=message):
            module(fake_genbioel, **settings_)
    new_bart(100, 1, 16, 2, 16, 64).save_pretrained(tmp_path / "few")
    with pytest.raises(InputError, match="100 tokens, but the data has"):
        module(fake_genbioel, encoder=str(tmp_path / "few"))
    other = load_bart(fake_genbioel.bart)
    other.config.decoder_start_token_id = 0
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(InputError, match="decoder's start is another token"):
        module(fake_genbioel, encoder=str(tmp_path / "other"))
    with pytest.raises(InputError, match="this is no GenBioEL export"):
        GenBioELModel.from_export(fake_genbioel.bart)


def test_logits_are_the_whole_models(fake_genbioel: Folders) -> None:
    """With the bias that BART adds to its last logits."""
    model, data = module(fake_genbioel)
    assert model.bart is not None
    torch.nn.init.normal_(model.bart.final_logits_bias)
    batch = data.batch(data.order(0)[0][:2], 0)
    with torch.no_grad():
        whole = model.bart(
            batch.input_ids, batch.attention_mask, decoder_input_ids=batch.decoder_input_ids
        ).logits
        torch.testing.assert_close(
            model.logits(batch)[0], whole[batch.labels != -100], atol=1e-4, rtol=1e-4
        )
