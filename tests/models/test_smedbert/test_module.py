"""SMedBERT's pre-training as a whole: its losses against the equations, its parts, its export."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel

from core.files import InputError
from datamodules.mentions import Mentions
from datamodules.smedbert import SMedBERTBatch
from kg.vectors.embeddings import EmbeddingTable
from models.encoders import knowledge_layer, through_layers
from models.smedbert import SMedBERT
from models.smedbert.attention import SpanProjection
from models.smedbert.encoder import SMedBERTEncoder
from models.transformer_files import load_bert
from tests.datamodules.test_smedbert.test_data import data
from tests.fakes.smedbert import Folders
from tests.fakes.validation import validate
from tests.models.test_smedbert.test_attention import gelu, layer_norm, slow_attention

GOLDEN = Path(__file__).parents[2] / "golden" / "smedbert.json"


def module(fake: Folders, **settings: Any) -> SMedBERT:
    torch.manual_seed(0)
    model = SMedBERT(fake.bert, fake.entities, **{"dropout": 0.0, **settings})
    model.configure_model()
    return model


def first_batch(fake: Folders, **settings: Any) -> SMedBERTBatch:
    made = data(fake, **settings)
    return made.batch(made.order(0)[0], 0)


def projected(part: SpanProjection, tokens: Tensor) -> Tensor:
    """LN(GELU(f_sp W)) of one span."""
    weight = torch.stack(
        [part.pool.score.weight[0] @ h + part.pool.score.bias[0] for h in tokens]
    ).softmax(0)
    return layer_norm(
        gelu(part.linear.weight @ sum(w * h for w, h in zip(weight, tokens, strict=True))),
        part.norm,
    )  # type: ignore[operator]


def slow_losses(model: SMedBERT, batch: SMedBERTBatch) -> Tensor:
    """MLM, SOP, Eq. (15) and Eq. (21), sentence by sentence and mention by mention, without
    padding."""
    encoder = model.encoder
    assert encoder is not None
    language, order, near, fit = (torch.zeros(()) for _ in range(4))
    words = encoder.bert.embeddings.word_embeddings.weight
    pair = 0
    finals = []
    for row in range(len(batch.input_ids)):
        n = int(batch.attention_mask[row].sum())
        h = encoder.bert.embeddings(
            batch.input_ids[row : row + 1, :n], token_type_ids=batch.second[row : row + 1, :n]
        )
        for layer in encoder.bert.encoder.layer[: encoder.knowledge_after]:
            h = layer(h)
        tokens = list(h[0])
        for m, (r, start, end) in enumerate(batch.infused.span.tolist()):
            there = batch.infused.neighbours[m] >= 0
            if r != row or not (there.any() or encoder.settings["without_neighbours"]):
                continue
            own = projected(encoder.mention, h[0, start:end])  # Eq. (2)
            vectors = encoder.entity[batch.infused.neighbours[m][there]]
            knowledge = slow_attention(
                encoder.attention, own, vectors, batch.infused.type[m][there].tolist()
            )
            part = encoder.infusion
            fused = gelu(part.fuse.weight @ torch.cat([knowledge, own]) + part.fuse.bias)
            known = layer_norm(part.back.weight @ fused + part.back.bias, part.norm)
            for i in range(start, end):
                g = torch.tanh(part.gate.weight @ torch.cat([h[0, i], known]) + part.gate.bias)
                tokens[i] = (
                    gelu(part.extend.weight @ torch.cat([h[0, i], g * known]) + part.extend.bias)
                    + h[0, i]
                )
        h = torch.stack(tokens)[None]
        for layer in encoder.bert.encoder.layer[encoder.knowledge_after :]:
            h = layer(h)
        finals.append(h[0])
        for i in range(n):
            if batch.mlm_labels[row, i] >= 0:
                language = (
                    language
                    - model.head(h[0, i][None], words)[0].log_softmax(0)[batch.mlm_labels[row, i]]
                )
        if batch.order[row] >= 0:
            order = order - model.order(h[0, 0]).log_softmax(0)[batch.order[row]]
    for m, (row, start, end) in enumerate(batch.unmasked.span.tolist()):
        own = projected(model.context, finals[row][start:end])  # Eq. (12)
        for k in range(batch.unmasked.neighbours.shape[1]):
            if batch.unmasked.neighbours[m, k] < 0:
                continue
            relation, sign = batch.unmasked.relation[m, k], batch.unmasked.direction[m, k]
            target = own @ model.projection[relation] + sign * model.relation[relation]
            logits = []
            for c, log_q in zip(
                batch.candidates[pair].tolist(), batch.log_q[pair].tolist(), strict=True
            ):
                if c >= 0:
                    e = encoder.entity[c]
                    cosine = (target @ (e @ model.projection[relation])) / (
                        target.norm() * e.norm()
                    )
                    logits.append(model.scale * cosine - log_q)
            near = near - (logits[0] - torch.stack(logits).logsumexp(0))  # Eq. (15)
            pair += 1
    assert pair == len(batch.candidates)
    for row, start, end in batch.masked.span.tolist():
        # Eq. (20)
        wanted = projected(model.context, model.words[batch.original_ids[row, start:end]]).detach()
        # Eq. (21)
        fit = fit + (projected(model.context, finals[row][start:end]) - wanted).square().sum()
    return torch.stack([language, order, near, fit])


@pytest.mark.parametrize(("infused", "every"), [(0.0, False), (0.5, False), (0.5, True)])  # D9, D10
def test_losses_and_gradients_equal_the_equations(
    fake_smedbert: Folders, infused: float, every: bool
) -> None:
    model = module(fake_smedbert, freeze_entities=False, without_neighbours=every)
    batch = first_batch(fake_smedbert, infused=infused)
    if every:
        assert len(batch.infused.span) > 4
        for part in (batch.infused.neighbours, batch.infused.type):
            part[::3] = -1
    assert len(batch.masked.span) > 3 and len(batch.candidates) > 20 and (batch.order >= 0).any()
    assert (len(batch.infused.span) > len(batch.masked.span)) == bool(infused)
    ours, slow = model.loss_sums(batch), slow_losses(model, batch)
    torch.testing.assert_close(ours, slow, atol=1e-3, rtol=1e-5)
    names, parameters = zip(*((n, p) for n, p in model.named_parameters()), strict=True)
    for name, a, b in zip(
        names,
        torch.autograd.grad(ours.sum(), parameters),
        torch.autograd.grad(slow.sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(
            a, b, atol=5e-4, rtol=1e-3, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_output_is_independent_of_batch_mates(fake_smedbert: Folders) -> None:
    model, batch = module(fake_smedbert).eval(), first_batch(fake_smedbert)
    assert model.encoder is not None
    together = model.states(batch)
    for row in range(len(batch.input_ids)):
        n = int(batch.attention_mask[row].sum())
        chosen = batch.infused.span[:, 0] == row
        own = Mentions(*(part[chosen] for part in batch.infused))
        own = own._replace(span=own.span * torch.tensor([0, 1, 1]))
        alone = model.encoder(
            batch.input_ids[row : row + 1, :n],
            batch.attention_mask[row : row + 1, :n],
            own,
            batch.second[row : row + 1, :n],
        )
        torch.testing.assert_close(together[row, :n], alone[0], atol=1e-5, rtol=1e-5)


def test_a_mention_without_neighbours_leaves_its_tokens_as_they_are(fake_smedbert: Folders) -> None:
    model, batch = module(fake_smedbert).eval(), first_batch(fake_smedbert)
    assert model.encoder is not None
    lonely = batch.masked._replace(
        neighbours=torch.full_like(batch.masked.neighbours, -1),
        type=torch.full_like(batch.masked.type, -1),
    )
    plain = model.encoder(batch.input_ids, batch.attention_mask, None, batch.second)
    assert torch.equal(
        model.encoder(batch.input_ids, batch.attention_mask, lonely, batch.second), plain
    )
    assert not torch.equal(model.states(batch), plain) and plain.isfinite().all()


def test_d10_a_mention_without_neighbours_may_be_infused(fake_smedbert: Folders) -> None:
    model, batch = module(fake_smedbert, without_neighbours=True).eval(), first_batch(fake_smedbert)
    assert model.encoder is not None
    lonely = batch.masked._replace(
        neighbours=torch.full_like(batch.masked.neighbours, -1),
        type=torch.full_like(batch.masked.type, -1),
    )
    states = torch.randn(*batch.input_ids.shape, model.encoder.hidden_size)
    changed = (model.encoder.infuse(states, lonely) != states).any(-1)
    inside = torch.zeros_like(changed)
    for row, start, end in lonely.span.tolist():
        inside[row, start:end] = True
    assert torch.equal(changed, inside) and inside.any()


def test_knowledge_comes_in_after_five_sixths_of_the_layers(fake_smedbert: Folders) -> None:
    assert [knowledge_layer(None, n) for n in (12, 24, 6, 4, 3, 1)] == [10, 20, 5, 3, 2, 1]
    assert knowledge_layer(2, 4) == 2
    with pytest.raises(InputError, match="knowledge_after 5: expected 1 to 4"):
        knowledge_layer(5, 4)
    model, batch = module(fake_smedbert).eval(), first_batch(fake_smedbert)
    encoder = model.encoder
    assert encoder is not None
    states: list[Tensor] = []
    encoder.infusion.register_forward_pre_hook(lambda _, given: states.append(given[0]))
    model.states(batch)
    h = encoder.bert.embeddings(batch.input_ids, token_type_ids=batch.second)
    mask = batch.attention_mask[:, None, None].bool()
    torch.testing.assert_close(
        states[0], through_layers(encoder.bert, h, mask, 0, 2), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("settings", "missing", "zero"),
    [
        ({}, "nothing", 0),
        ({"type_attention": False}, "encoder.attention.to_score.weight", 0),
        ({"hybrid_attention": False}, "encoder.infusion.gate.weight", 0),
        ({"knowledge_losses": False}, "nothing", 2),
    ],
)
def test_ablations(
    fake_smedbert: Folders, settings: dict[str, Any], missing: str, zero: int
) -> None:
    model, batch = module(fake_smedbert, **settings), first_batch(fake_smedbert)
    losses = model.loss_sums(batch)
    assert (losses == 0).sum() == zero
    # several processes wait for the gradient of every parameter that asks for one
    losses.sum().backward()
    assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    assert missing not in dict(model.named_parameters())
    if not settings:
        assert {"encoder.attention.to_score.weight", "encoder.infusion.gate.weight"} <= set(
            dict(model.named_parameters())
        )


def test_every_parameter_gets_a_gradient_even_without_mentions(fake_smedbert: Folders) -> None:
    model, made = module(fake_smedbert), data(fake_smedbert)
    assert made.corpus is not None
    bare = [i for i in made.train_indices if not len(made.corpus[int(i)].mentions)][:2]
    assert bare
    for indices in (bare, made.train_indices[:8]):
        model.zero_grad()
        model.loss_sums(made.batch(indices, 0)).sum().backward()
        wanting = [n for n, p in model.named_parameters() if p.requires_grad]
        assert (
            wanting
            and [
                n
                for n, p in model.named_parameters()
                if n in wanting and (p.grad is None or not p.grad.isfinite().all())
            ]
            == []
        )


def test_entities_are_frozen_by_default(fake_smedbert: Folders) -> None:
    frozen, free = module(fake_smedbert), module(fake_smedbert, freeze_entities=False)
    assert not frozen.encoder.entity.requires_grad and free.encoder.entity.requires_grad  # type: ignore[union-attr]
    assert torch.equal(frozen.encoder.entity, EmbeddingTable.load(fake_smedbert.entities).entity)  # type: ignore[union-attr]
    assert not free.decays("encoder.entity", free.encoder.entity)  # type: ignore[union-attr]


def test_d3_d2_settings_reach_the_loss(fake_smedbert: Folders) -> None:
    batch = first_batch(fake_smedbert)
    default = module(fake_smedbert).loss_sums(batch)
    for settings in ({"correction": "paper"}, {"norm": "paper"}, {"norm": "exact"}, {"scale": 1.0}):
        other = module(fake_smedbert, **settings).loss_sums(batch)
        assert not torch.isclose(default[2], other[2]) and torch.allclose(
            default[[0, 1, 3]], other[[0, 1, 3]]
        )


def test_d5_no_gradient_passes_the_target(fake_smedbert: Folders) -> None:
    model, batch = module(fake_smedbert), first_batch(fake_smedbert)
    model.zero_grad()
    model.loss_sums(batch)[3].backward()
    with torch.no_grad():
        wanted = model.context(
            nn.functional.embedding(batch.original_ids, model.words), batch.masked.span
        )
    found = model.context(model.states(batch), batch.masked.span)
    slow = torch.autograd.grad((found - wanted).square().sum(), model.context.linear.weight)[0]
    torch.testing.assert_close(model.context.linear.weight.grad, slow)
    assert "words" in dict(model.named_buffers())


def test_the_masked_lm_head_of_the_initial_checkpoint_is_used(
    fake_mlm: Any, fake_smedbert: Folders, tmp_path: Path
) -> None:
    from models.encoders import load_mlm_head
    from models.heads import MLMHead
    from models.mlm import MLM, new_bert

    start = MLM()
    start.bert = new_bert(50, 2, 8, 2, 16, 32)
    start.head = MLMHead(8, 50)
    nn.init.normal_(start.head.bias)
    start.export(tmp_path)
    head = MLMHead(8, 50)
    assert load_mlm_head(str(tmp_path), head)
    assert all(
        torch.equal(a, b)
        for a, b in zip(head.state_dict().values(), start.head.state_dict().values(), strict=True)
    )
    config = load_bert(fake_smedbert.bert).config
    other = MLMHead(config.hidden_size, config.vocab_size)
    before = other.dense.weight.clone()
    assert not load_mlm_head(fake_smedbert.bert, other) and torch.equal(before, other.dense.weight)


def test_overfits_four_sentences(fake_smedbert: Folders) -> None:
    made, model = data(fake_smedbert), module(fake_smedbert)
    rich = [i for i in made.train_indices if len(made.corpus[int(i)].mentions) > 2][:4]  # type: ignore[index]
    batch = made.batch(rich, 3)
    assert (batch.counts > 0).all()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    first = model.loss_sums(batch) / batch.counts
    for _ in range(120):
        optimizer.zero_grad()
        (model.loss_sums(batch) / batch.counts).sum().backward()
        optimizer.step()
    last = model.loss_sums(batch) / batch.counts
    assert (last[[0, 1, 3]] < 0.2 * first[[0, 1, 3]]).all() and last[2] < 0.8 * first[2], (
        first,
        last,
    )


def test_first_losses_are_those_on_record(fake_smedbert: Folders) -> None:
    """Drift: the same seed has the same first losses as when this was written."""
    batch = first_batch(fake_smedbert)
    ours = (module(fake_smedbert).loss_sums(batch) / batch.counts).tolist()
    assert ours == pytest.approx(json.loads(GOLDEN.read_text())["first_losses"], rel=1e-3)


def test_export_loads_here_and_with_plain_automodel(fake_smedbert: Folders, tmp_path: Path) -> None:
    model, batch = (
        module(fake_smedbert, type_state="mean", without_neighbours=True).eval(),
        first_batch(fake_smedbert),
    )
    model.export(tmp_path)
    data(fake_smedbert).export(tmp_path)
    assert model.encoder is not None
    again = SMedBERTEncoder.from_export(tmp_path).eval()
    arguments = batch.input_ids, batch.attention_mask, batch.masked, batch.second
    assert (
        torch.equal(again(*arguments), model.encoder(*arguments))
        and again.settings == model.encoder.settings
    )
    text = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    wanted = model.encoder(batch.input_ids, batch.attention_mask)
    torch.testing.assert_close(
        text(batch.input_ids, batch.attention_mask).last_hidden_state, wanted
    )
    assert not list(tmp_path.rglob("*.bin")) and not list(tmp_path.rglob("*.pt"))
    (tmp_path / "smedbert.safetensors").unlink()
    with pytest.raises(InputError, match=r"smedbert\.safetensors"):
        SMedBERTEncoder.from_export(tmp_path)


def test_validation_counts(fake_smedbert: Folders) -> None:
    """A model that predicts every neighbour has MRR 1; frequency has what the counts say."""
    model, made = module(fake_smedbert).eval(), data(fake_smedbert)
    model._trainer = SimpleNamespace(datamodule=made)  # type: ignore[assignment]
    batch = made.batch(made.held_out_indices, -1)
    assert batch.ranked is not None and batch.even is not None

    def perfect(states: Tensor, mentions: Mentions, candidates: Tensor) -> Tensor:
        return -torch.arange(candidates.shape[1]).expand(candidates.shape).float()

    model.neighbour_scores = perfect  # type: ignore[method-assign]
    logged = validate(model, [batch])
    with torch.no_grad():
        sums = model.loss_sums(batch)
    for name, drawn in (("", batch.ranked), ("_even", batch.even)):
        assert logged[f"val/neighbour_mrr{name}"].item() == pytest.approx(1.0)
        slow = []
        for row in drawn.tolist():
            counts = [made.frequency[e] for e in row if e >= 0]
            slow.append(
                1
                / (
                    1
                    + sum(c > counts[0] for c in counts[1:])
                    + sum(c == counts[0] for c in counts[1:]) / 2
                )
            )
        assert logged[f"val/neighbour_mrr{name}_frequency"].item() == pytest.approx(
            sum(slow) / len(slow)
        )
        assert logged[f"val/neighbour_candidates{name}"].item() == pytest.approx(
            (drawn >= 0).sum().item() / len(drawn)
        )
    assert logged["val/neighbours"] == len(slow) and logged["val/tokens"] == batch.counts[0]
    means = (sums / batch.counts).tolist()
    assert logged["val/loss_mlm"].item() == pytest.approx(means[0], rel=1e-4)
    assert logged["val/loss"].item() == pytest.approx(
        means[0] + means[1] + 2 * means[2] + 4 * means[3], rel=1e-4
    )
    plain = module(fake_smedbert, knowledge_losses=False)
    plain._trainer = model._trainer
    logged = validate(plain, [batch])
    assert (
        "val/neighbour_mrr" not in logged
        and "val/loss_mnem" not in logged
        and math.isfinite(logged["val/loss"])
    )


def test_bad_tables(fake_smedbert: Folders, tmp_path: Path) -> None:
    table = EmbeddingTable.load(fake_smedbert.entities)
    EmbeddingTable(table.entity, table.entity_ids).save(tmp_path / "transe")
    with pytest.raises(InputError, match=r"no relation vectors and projections.*make kg-"):
        module(fake_smedbert._replace(entities=str(tmp_path / "transe")))
    assert table.relation is not None and table.projection is not None
    EmbeddingTable(
        table.entity[:, :5], table.entity_ids, table.relation, table.relation_ids, table.projection
    ).save(tmp_path / "short")
    with pytest.raises(InputError, match="do not lead from entities of size 5"):
        module(fake_smedbert._replace(entities=str(tmp_path / "short")))


def test_learning_rates(fake_smedbert: Folders) -> None:
    own = module(fake_smedbert, lr=1e-4, head_lr=1e-3)
    rates = {n: own.rate(n) for n, _ in own.named_parameters()}
    assert rates["encoder.bert.embeddings.word_embeddings.weight"] == 1e-4
    assert (
        rates["encoder.attention.query.weight"]
        == rates["head.bias"]
        == rates["context.linear.weight"]
        == 1e-3
    )


def test_order_accuracy_is_the_share_of_pairs_that_are_right(fake_smedbert: Folders) -> None:
    """A head that says "in order" of every pair is right on those that are."""
    model, made = module(fake_smedbert, knowledge_losses=False).eval(), data(fake_smedbert)
    model._trainer = SimpleNamespace(datamodule=made)  # type: ignore[assignment]
    last = model.order[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0, -1.0]))
    batch = made.batch(made.train_indices[:30], 0)
    batch = batch._replace(order=torch.tensor([0, 0, 0, 1, -100] * 6))
    batch = batch._replace(counts=torch.tensor([*batch.counts[:1], 24.0, *batch.counts[2:]]))
    logged = validate(model, [batch])
    assert logged["val/order_accuracy"].item() == pytest.approx(18 / 24)
