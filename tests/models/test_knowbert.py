"""KnowBERT against its equations, sequence by sequence and mention by mention."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModel

from core.files import InputError
from datamodules.knowbert import KnowBERTBatch
from models.knowbert import KnowBERT, KnowBERTEncoder
from models.transformer_files import load_bert
from tests.datamodules.test_knowbert import data
from tests.fakes.smedbert import Folders
from tests.models.test_ernie import attended, layer_norm_of
from tests.models.test_smedbert.test_attention import gelu, slow_pooling


def module(fake: Folders, **settings: Any) -> KnowBERT:
    torch.manual_seed(0)
    model = KnowBERT(fake.bert, fake.entities, **{"dropout": 0.0, **settings})
    model.configure_model()
    with torch.no_grad():
        for name, parameter in model.encoder.knowledge.named_parameters():
            if name.startswith(("score", "spans", "pool", "read.")):
                parameter.add_(torch.randn_like(parameter) / 3)
    return model


def first_batch(fake: Folders) -> KnowBERTBatch:
    made = data(fake)
    number = np.arange(len(made.table))  # the fake names are in no other
    made.table[:, 1], made.table[::2, 2] = (
        (number + 1) % len(number),
        (number[::2] + 5) % len(number),
    )
    batch: KnowBERTBatch = made.batch(made.order(0)[0], 0)
    return batch


def slow_read(model: KnowBERT, batch: KnowBERTBatch, row: int) -> tuple[Tensor, list[Tensor]]:
    """(H' of one sequence behind the layers, psi of its mentions), Section 3.3."""
    encoder, own = model.encoder, model.encoder.knowledge
    n = int(batch.attention_mask[row].sum())
    h = encoder.bert.embeddings(
        batch.input_ids[row : row + 1, :n], token_type_ids=batch.second[row : row + 1, :n]
    )
    for layer in encoder.bert.encoder.layer[: encoder.knowledge_after]:
        h = layer(h)
    h, psis = h[0], []
    mentions = [m for m, (r, *_) in enumerate(batch.mentions.span.tolist()) if r == row]
    if mentions:
        projected = own.project(h)
        pooled = [
            slow_pooling(own.pool, projected[slice(*batch.mentions.span[m, 1:].tolist())])
            for m in mentions
        ]
        s = layer_norm_of(own.span_norm, torch.stack(pooled))
        token = attended(own.spans.attention, s)
        s = layer_norm_of(
            own.spans.output.LayerNorm,
            own.spans.output.dense(gelu(own.spans.intermediate.dense(token))) + token,
        )
        enhanced = []
        for place, m in enumerate(mentions):
            known = [e for e in batch.mentions.entity[m].tolist() if e >= 0]
            vectors = layer_norm_of(own.entity_norm, encoder.entity[known])
            psi = torch.stack(
                [
                    own.score[2](
                        torch.relu(
                            own.score[0](torch.stack([s[place] @ v / math.sqrt(len(v)), prior]))
                        )
                    )[0]
                    for v, prior in zip(vectors, batch.mentions.prior[m, : len(known)], strict=True)
                ]
            )
            psis.append(psi)
            enhanced.append(s[place] + (psi.softmax(0)[:, None] * vectors).sum(0))
        keys = layer_norm_of(own.enhanced_norm, torch.stack(enhanced))
        w_q, w_k, w_v = own.read.in_proj_weight.chunk(3)
        b_q, b_k, b_v = own.read.in_proj_bias.chunk(3)
        heads = own.read.num_heads
        q, k, v = (
            (x @ w.T + b).view(len(x), heads, -1)
            for x, w, b in ((projected, w_q, b_q), (keys, w_k, b_k), (keys, w_v, b_v))
        )
        read = torch.cat(
            [
                (q[:, i] @ k[:, i].T / math.sqrt(q.shape[-1])).softmax(1) @ v[:, i]
                for i in range(heads)
            ],
            1,
        )
        told = layer_norm_of(own.read_norm, projected + own.read.out_proj(read))
        told = layer_norm_of(
            own.outer.LayerNorm, own.outer.dense(gelu(own.inner.dense(told))) + told
        )
        h = layer_norm_of(own.norm, h + own.back(told))
    h = h[None]
    for layer in encoder.bert.encoder.layer[encoder.knowledge_after :]:
        h = layer(h)
    return h[0], psis


def test_states_losses_and_gradients_equal_the_equations(fake_smedbert: Folders) -> None:
    model, batch = module(fake_smedbert, knowledge_after=2), first_batch(fake_smedbert)
    states, logits, _ = model.outputs(batch)
    linking, mention = torch.zeros(()), 0
    for row in range(len(batch.input_ids)):
        slow, psis = slow_read(model, batch, row)
        torch.testing.assert_close(states[row, : len(slow)], slow, atol=5e-5, rtol=1e-4)
        for psi in psis:
            torch.testing.assert_close(logits[mention, : len(psi)], psi, atol=2e-5, rtol=1e-4)
            assert (logits[mention, len(psi) :] == -torch.inf).all()
            linking, mention = linking - psi.log_softmax(0)[0], mention + 1
    assert mention == len(logits) > 20
    sums = model.loss_sums(batch, states, logits)
    torch.testing.assert_close(sums[2], linking, atol=1e-3, rtol=1e-5)
    chosen = ("score", "spans", "pool", "project", "entity_norm")
    parameters = [p for n, p in model.encoder.knowledge.named_parameters() if n.startswith(chosen)]
    for a, b in zip(
        torch.autograd.grad(sums[2], parameters),
        torch.autograd.grad(linking, parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=5e-4, rtol=1e-3)


def test_the_projection_back_starts_as_the_pseudo_inverse(fake_smedbert: Folders) -> None:
    """D5: what is projected and projected back is what of it is in the entities' space."""
    own = KnowBERTEncoder(load_bert(fake_smedbert.bert), torch.randn(5, 12)).knowledge
    w = own.project.weight
    torch.testing.assert_close(w @ own.back.weight, torch.eye(len(w)), atol=1e-4, rtol=1e-4)


def test_norms_have_the_epsilon_of_the_initial_checkpoint(fake_smedbert: Folders) -> None:
    """D9."""
    bert = load_bert(fake_smedbert.bert)
    bert.config.layer_norm_eps = 3e-7
    own = KnowBERTEncoder(bert, torch.randn(5, 12)).knowledge
    norms = [module for module in own.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {3e-7}
    assert len(norms) >= 5


def test_a_sequence_without_a_mention_is_its_bert(fake_smedbert: Folders) -> None:
    """D6."""
    model, batch = module(fake_smedbert).eval(), first_batch(fake_smedbert)
    kept = batch.mentions.span[:, 0] == 0
    one = type(batch.mentions)(*(part[kept] for part in batch.mentions))
    plain = model.encoder.bert(
        batch.input_ids, batch.attention_mask, token_type_ids=batch.second
    ).last_hidden_state
    told = model.encoder(batch.input_ids, batch.attention_mask, one, batch.second)
    torch.testing.assert_close(told[1:], plain[1:], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(told[0], plain[0], atol=1e-2)


def test_it_learns_and_the_vectors_stay(fake_smedbert: Folders) -> None:
    model, batch = module(fake_smedbert), first_batch(fake_smedbert)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    before, first = model.encoder.entity.clone(), None
    for _ in range(60):
        optimizer.zero_grad()
        states, logits, _ = model.outputs(batch)
        loss = model.loss_sums(batch, states, logits) / batch.counts
        first = loss.detach() if first is None else first
        loss.sum().backward()
        optimizer.step()
    assert torch.equal(model.encoder.entity, before)
    assert first is not None and (loss < 0.6 * first).all(), (first, loss)
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


def test_export_loads_here_and_with_plain_automodel(fake_smedbert: Folders, tmp_path: Path) -> None:
    model, batch = module(fake_smedbert).eval(), first_batch(fake_smedbert)
    model.export(tmp_path)
    again = KnowBERTEncoder.from_export(tmp_path).eval()
    arguments = batch.input_ids, batch.attention_mask, batch.mentions, batch.second
    assert (
        torch.equal(again(*arguments), model.encoder(*arguments))
        and again.settings == model.encoder.settings
    )
    text = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    wanted = model.encoder(batch.input_ids, batch.attention_mask)
    torch.testing.assert_close(
        text(batch.input_ids, batch.attention_mask).last_hidden_state, wanted
    )
    with pytest.raises(InputError, match="heads 5: expected a number that divides 12"):
        KnowBERTEncoder(load_bert(fake_smedbert.bert), torch.randn(4, 12), heads=5)
