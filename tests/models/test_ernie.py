"""ERNIE against its equations, sequence by sequence and without padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel

from core.files import InputError
from datamodules.ernie import Aligned, ERNIEBatch
from models.ernie import ERNIE, ERNIEEncoder
from models.transformer_files import load_bert
from tests.datamodules.test_ernie import data
from tests.fakes.smedbert import Folders
from tests.models.test_smedbert.test_attention import gelu, layer_norm


def module(fake: Folders, **settings: Any) -> ERNIE:
    torch.manual_seed(0)
    model = ERNIE(fake.bert, fake.entities, **{"dropout": 0.0, **settings})
    model.configure_model()
    with torch.no_grad():  # as large as after training, or no entity would be seen in a state
        for name, parameter in model.encoder.aggregators.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(10)
            elif "norm" not in name.lower():
                parameter.normal_(std=0.1)
    return model


def first_batch(fake: Folders) -> ERNIEBatch:
    made = data(fake, exchanged=0.2)
    batch: ERNIEBatch = made.batch(made.order(0)[0], 0)
    return batch


def attended(part: Any, x: Tensor) -> Tensor:
    """MH-ATT of a sequence (n, d), with its residual connection and norm."""
    own, heads = part.self, part.self.num_attention_heads
    q, k, v = (layer(x).view(len(x), heads, -1) for layer in (own.query, own.key, own.value))
    read = []
    for head in range(heads):
        weight = (q[:, head] @ k[:, head].T / q.shape[-1] ** 0.5).softmax(1)
        read.append(weight @ v[:, head])
    return layer_norm_of(part.output.LayerNorm, part.output.dense(torch.cat(read, 1)) + x)


def layer_norm_of(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    return torch.stack([layer_norm(row, norm) for row in x]) if len(x) else x


def slow_states(encoder: ERNIEEncoder, batch: ERNIEBatch, row: int) -> Tensor:
    """Eq. (1-6) of one sequence."""
    n = int(batch.attention_mask[row].sum())
    w = encoder.bert.embeddings(
        batch.input_ids[row : row + 1, :n], token_type_ids=batch.second[row : row + 1, :n]
    )
    for layer in encoder.bert.encoder.layer[: encoder.text_layers]:
        w = layer(w)
    w = w[0]
    chosen = batch.mentions.span[:, 0] == row
    first = batch.mentions.span[chosen, 1].tolist()
    e = encoder.entity[batch.mentions.entity[chosen]]
    for layer, own in zip(
        encoder.bert.encoder.layer[encoder.text_layers :], encoder.aggregators, strict=True
    ):
        token = attended(layer.attention, w)  # Eq. (3)
        known = attended(own.attention, e) if len(e) else e
        inner = []
        for j in range(n):
            h = layer.intermediate.dense(token[j])
            if j in first:
                h = h + own.to_tokens.weight @ known[first.index(j)]
            inner.append(gelu(h))  # Eq. (4) and (5)
        w = layer_norm_of(layer.output.LayerNorm, layer.output.dense(torch.stack(inner)) + token)
        if not own.last:
            e = (
                torch.stack(
                    [
                        layer_norm(own.to_entity(inner[j]) + known[i], own.norm)
                        for i, j in enumerate(first)
                    ]
                )
                if first
                else e
            )
    return w


def test_states_losses_and_gradients_equal_the_equations(fake_smedbert: Folders) -> None:
    model, batch = module(fake_smedbert, text_layers=1), first_batch(fake_smedbert)
    assert len(model.encoder.aggregators) == 2
    states, logits, _ = model.outputs(batch)
    entity = torch.zeros(())
    finals = []
    for row in range(len(batch.input_ids)):
        slow = slow_states(model.encoder, batch, row)
        torch.testing.assert_close(states[row, : len(slow)], slow, atol=2e-5, rtol=1e-4)
        finals.append(slow)
    for (row, first, _), candidates in zip(
        batch.targets.tolist(), batch.candidates.tolist(), strict=True
    ):
        wanted = model.to_entity(finals[row][first])  # type: ignore[operator]
        score = torch.stack([wanted @ model.encoder.entity[c] for c in candidates if c >= 0])
        entity = entity - score.log_softmax(0)[0]  # Eq. (7)
    sums = model.loss_sums(batch, states, logits)
    torch.testing.assert_close(sums[2], entity, atol=1e-3, rtol=1e-5)
    parameters = [
        p for n, p in model.named_parameters() if n.startswith(("encoder.aggregators", "to_entity"))
    ]
    for a, b in zip(
        torch.autograd.grad(sums[2], parameters),
        torch.autograd.grad(entity, parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=5e-4, rtol=1e-3)


def test_without_an_entity_it_is_its_bert(fake_smedbert: Folders) -> None:
    """Eq. (5): and entities change more than their tokens, which later layers read."""
    encoder, batch = module(fake_smedbert, text_layers=1).eval().encoder, first_batch(fake_smedbert)
    plain = encoder.bert(
        batch.input_ids, batch.attention_mask, token_type_ids=batch.second
    ).last_hidden_state
    none = Aligned(torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    for mentions in (None, none):
        found = encoder(batch.input_ids, batch.attention_mask, mentions, batch.second)
        torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-5)
    told = encoder(batch.input_ids, batch.attention_mask, batch.mentions, batch.second)
    row, first, _ = batch.mentions.span[0].tolist()
    assert (told - plain)[row].abs().amax(-1)[
        int(batch.attention_mask[row].sum()) - 1
    ] > 1e-4 and first > 0


def test_an_entity_that_is_exchanged_is_read_as_it_is_given(fake_smedbert: Folders) -> None:
    model, batch = module(fake_smedbert).eval(), first_batch(fake_smedbert)
    other = batch.mentions._replace(entity=(batch.mentions.entity + 1) % len(model.encoder.entity))
    assert not torch.allclose(
        model.outputs(batch)[0], model.outputs(batch._replace(mentions=other))[0], atol=1e-4
    )


def test_the_vectors_stay_and_everything_else_learns(fake_smedbert: Folders) -> None:
    model, batch = module(fake_smedbert), first_batch(fake_smedbert)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    before = model.encoder.entity.clone()
    first = None
    for _ in range(80):
        optimizer.zero_grad()
        states, logits, _ = model.outputs(batch)
        loss = model.loss_sums(batch, states, logits) / batch.counts
        first = loss.detach() if first is None else first
        loss.sum().backward()
        optimizer.step()
    assert torch.equal(model.encoder.entity, before)
    assert first is not None and (loss < 0.5 * first).all(), (first, loss)
    still = [n for n, p in model.named_parameters() if p.grad is None and "key.bias" not in n]
    assert still == []


def test_export_loads_here_and_with_plain_automodel(fake_smedbert: Folders, tmp_path: Path) -> None:
    model, batch = module(fake_smedbert, text_layers=2).eval(), first_batch(fake_smedbert)
    model.export(tmp_path)
    again = ERNIEEncoder.from_export(tmp_path).eval()
    arguments = batch.input_ids, batch.attention_mask, batch.mentions, batch.second
    assert torch.equal(again(*arguments), model.encoder(*arguments)) and again.settings == {
        "text_layers": 2,
        "heads": 4,
    }
    text = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    wanted = model.encoder(batch.input_ids, batch.attention_mask)
    torch.testing.assert_close(
        text(batch.input_ids, batch.attention_mask).last_hidden_state, wanted
    )
    (tmp_path / "ernie.json").unlink()
    with pytest.raises(InputError, match=r"ernie\.json: missing; this is no ERNIE export"):
        ERNIEEncoder.from_export(tmp_path)


def test_sizes_that_cannot_be_are_refused(fake_smedbert: Folders) -> None:
    bert = load_bert(fake_smedbert.bert)
    with pytest.raises(InputError, match="heads 5: expected a number that divides 12"):
        ERNIEEncoder(bert, torch.randn(4, 12), heads=5)
    assert ERNIEEncoder(bert, torch.randn(4, 12)).text_layers == 2  # of 3: half, as 6 of 12
