"""KeBioLM against its equations, and each numbered deviation."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from core.files import InputError
from datamodules.kebiolm import KeBioLMBatch, KeBioLMData
from kg.vectors.embeddings import EmbeddingTable
from models.kebiolm import KeBioLM, KeBioLMEncoder
from models.kebiolm.released import load_released
from models.layers import boundary_states
from models.transformer_files import load_bert
from tests.fakes.kebiolm import Folders
from tests.fakes.validation import validate

GOLDEN = Path(__file__).parents[1] / "golden" / "kebiolm.json"


def module(
    fake: Folders, compat: bool | Literal["released"] = False, **settings: object
) -> KeBioLM:
    torch.manual_seed(0)
    model = KeBioLM(
        fake.bert, fake.entities, **{"text_layers": 2, "candidates": 7, "dropout": 0.0, **settings}
    )  # type: ignore[arg-type]
    model.settings["compat"] = compat  # an encoder's setting that no training has
    model.configure_model()
    return model


def data(fake: Folders, **settings: object) -> KeBioLMData:
    made = KeBioLMData(fake.corpus, fake.bert, fake.entities, **{"batch_size": 16, **settings})  # type: ignore[arg-type]
    made.setup()
    return made


def first_batch(fake: Folders, **settings: object) -> KeBioLMBatch:
    made = data(fake, **settings)
    return made.batch(made.order(0)[0], 0)


def slow_losses(model: KeBioLM, batch: KeBioLMBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. (1-10) sentence by sentence and mention by mention, without padding, in the paper's
    words."""
    encoder = model.encoder
    assert encoder is not None
    language, detection, linking = torch.zeros(()), torch.zeros(()), torch.zeros(())
    embeddings = encoder.bert.embeddings.word_embeddings.weight
    for row in range(len(batch.input_ids)):
        n = int(batch.attention_mask[row].sum())
        h = encoder.bert.embeddings(input_ids=batch.input_ids[row : row + 1, :n])
        for layer in encoder.bert.encoder.layer[: encoder.text_layers]:
            h = layer(h)  # Eq. (1)
        for i in range(n):
            p = (encoder.detector.weight @ h[0, i] + encoder.detector.bias).softmax(0)  # Eq. (2)
            detection = detection - p[batch.bio_labels[row, i]].log()  # Eq. (9)
        fused = [h[0, i] for i in range(n)]
        for m, (r, start, end) in enumerate(batch.mention.tolist()):
            if r != row:
                continue
            h_m = torch.cat([h[0, start], h[0, end - 1]])
            projected = encoder.mention_projection.weight @ h_m + encoder.mention_projection.bias
            similarity = torch.stack([projected @ e for e in encoder.entity])
            linking = linking - similarity.log_softmax(0)[batch.entity[m]]  # Eq. (10)
            nearest = similarity.argsort(descending=True)[: encoder.candidates]
            a = similarity[nearest].exp() / similarity[nearest].exp().sum()  # Eq. (3)
            mixture = sum(a[j] * encoder.entity[e] for j, e in enumerate(nearest))
            for i in range(start, end):  # Eq. (4)
                fused[i] = (
                    fused[i]
                    + encoder.entity_projection.weight @ mixture
                    + encoder.entity_projection.bias
                )
        h = torch.stack(fused)[None]
        for layer in encoder.bert.encoder.layer[encoder.text_layers :]:
            h = layer(h)  # Eq. (5)
        for i in range(n):
            if batch.mlm_labels[row, i] >= 0:
                p = model.head(h[0, i][None], embeddings)[0].softmax(0)  # Eq. (7)
                language = language - p[batch.mlm_labels[row, i]].log()  # Eq. (8)
    return language, detection, linking


def test_losses_equal_the_equations(fake_kebiolm: Folders) -> None:
    model, batch = module(fake_kebiolm), first_batch(fake_kebiolm)
    assert len(batch.mention) > 10 and (batch.mlm_labels >= 0).sum() > 10
    ours = model.loss_sums(batch)
    slow = torch.stack(slow_losses(model, batch))
    torch.testing.assert_close(ours, slow, atol=1e-3, rtol=1e-5)
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    parameters = [p for p in model.parameters() if p.requires_grad]
    for name, a, b in zip(
        names,
        torch.autograd.grad(ours.sum(), parameters),
        torch.autograd.grad(slow.sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(
            a, b, atol=2e-4, rtol=1e-3, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_output_is_independent_of_batch_mates(fake_kebiolm: Folders) -> None:
    model, batch = module(fake_kebiolm).eval(), first_batch(fake_kebiolm)
    assert model.encoder is not None
    together = model.encoder(batch.input_ids, batch.attention_mask, batch.mention)
    found = model.encoder(batch.input_ids, batch.attention_mask)
    for row in range(len(batch.input_ids)):
        n = int(batch.attention_mask[row].sum())
        own = batch.mention[batch.mention[:, 0] == row].clone()
        own[:, 0] = 0
        ids, mask = batch.input_ids[row : row + 1, :n], batch.attention_mask[row : row + 1, :n]
        torch.testing.assert_close(
            together[row, :n], model.encoder(ids, mask, own)[0], atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(
            found[row, :n], model.encoder(ids, mask)[0], atol=1e-5, rtol=1e-5
        )


def test_d1_entity_only_on_its_tokens(fake_kebiolm: Folders) -> None:
    model, batch = module(fake_kebiolm).eval(), first_batch(fake_kebiolm)
    encoder = model.encoder
    assert encoder is not None
    # no fusion layers: what is written stays where it is
    encoder.text_layers = len(encoder.bert.encoder.layer)
    text, mask = encoder.text_states(batch.input_ids, batch.attention_mask)
    _, mixture, _ = encoder.link(text, batch.mention)
    changed = (encoder.fused_states(text, mask, batch.mention, mixture) != text).any(-1)
    assert torch.equal(changed, (batch.bio_labels == 1) | (batch.bio_labels == 2))


def test_d2_layer_norm_only_in_compat(fake_kebiolm: Folders) -> None:
    assert isinstance(module(fake_kebiolm).encoder.norm, nn.Identity)  # type: ignore[union-attr]
    assert isinstance(module(fake_kebiolm, compat=True).encoder.norm, nn.LayerNorm)  # type: ignore[union-attr]
    assert isinstance(module(fake_kebiolm, compat="released").encoder.norm, nn.LayerNorm)  # type: ignore[union-attr]
    with pytest.raises(InputError, match="compat 'other': expected false, true or released"):
        module(fake_kebiolm, compat="other")  # type: ignore[arg-type]


def as_released(encoder: KeBioLMEncoder, ids: Tensor, attention_mask: Tensor) -> Tensor:
    """The released code's forward pass, word by word from what it does (../shared/specs/kebiolm.md,
    sections 2 and 3)."""
    text, mask = encoder.text_states(ids, attention_mask)
    labels = encoder.detector(text).argmax(-1)
    found: list[list[tuple[int, int]]] = []
    for row, length in enumerate(attention_mask.sum(1).tolist()):
        own: list[tuple[int, int]] = []
        before = 0
        for place in range(1, length):  # [SEP] too
            label = int(labels[row, place])
            if label == 1 or (label == 2 and before == 0):
                own.append((place, place + 1))
            elif label == 2:
                own[-1] = (own[-1][0], place + 1)
            before = label
        found.append(own)
    most = min(max(map(len, found)), encoder.max_mentions)
    written = torch.zeros_like(text)
    for row, own in enumerate(found):
        for begin, end in (own + [(0, 1)] * most)[:most]:
            query = encoder.mention_projection(torch.cat([text[row, begin], text[row, end - 1]]))
            score, best = (encoder.entity @ query).topk(encoder.candidates)
            written[row, begin : end + 1] = encoder.entity_projection(
                score.softmax(0) @ encoder.entity[best]
            )
    states = encoder.norm(text + written)
    for layer in encoder.bert.encoder.layer[encoder.text_layers :]:
        states = layer(states, mask)
    return states


@pytest.mark.parametrize("most", [2, 50])
@pytest.mark.parametrize("seed", range(4))
def test_d1_compat_released_writes_as_the_released_code(
    fake_kebiolm: Folders, seed: int, most: int
) -> None:
    model = module(fake_kebiolm, compat="released", max_mentions=most).eval()
    batch, encoder = first_batch(fake_kebiolm), model.encoder
    assert encoder is not None
    torch.manual_seed(seed)
    for part in (encoder.norm.weight, encoder.detector.weight):
        nn.init.normal_(part)  # type: ignore[arg-type]
    nn.init.normal_(encoder.detector.bias)
    text, _ = encoder.text_states(batch.input_ids, batch.attention_mask)
    counts = encoder.detect_mentions(text, batch.attention_mask)[:, 0].bincount(minlength=len(text))
    assert counts.max() > (counts.min() if most == 50 else 1)  # rows that are filled up, or cut
    expected = as_released(encoder, batch.input_ids, batch.attention_mask)
    real = batch.attention_mask.bool()
    torch.testing.assert_close(
        encoder(batch.input_ids, batch.attention_mask)[real], expected[real], atol=1e-5, rtol=0
    )
    places = torch.tensor([[0, 3]]).expand(len(text), -1)
    found = encoder.at(batch.input_ids, batch.attention_mask, places)
    torch.testing.assert_close(found, expected[:, [0, 3]], atol=1e-5, rtol=0)
    encoder.compat = True  # the LayerNorm alone is not it
    assert (
        encoder(batch.input_ids, batch.attention_mask)[real] - expected[real]
    ).abs().max() > 1e-3


def test_d4_special_tokens_are_labelled_outside(fake_kebiolm: Folders) -> None:
    batch = first_batch(fake_kebiolm)
    last = batch.attention_mask.sum(1) - 1
    rows = torch.arange(len(last))
    assert (batch.bio_labels[:, 0] == 0).all() and (batch.bio_labels[rows, last] == 0).all()
    assert torch.equal(batch.bio_labels != -100, batch.attention_mask.bool())


def test_d5_no_mention_on_special_tokens_or_padding(fake_kebiolm: Folders) -> None:
    model, batch = module(fake_kebiolm), first_batch(fake_kebiolm)
    encoder = model.encoder
    assert encoder is not None
    nn.init.zeros_(encoder.detector.weight)
    encoder.detector.bias.data = torch.tensor([0.0, 0.0, 1.0])  # everything is inside
    text, _ = encoder.text_states(batch.input_ids, batch.attention_mask)
    spans = encoder.detect_mentions(text, batch.attention_mask)
    lengths = batch.attention_mask.sum(1)
    assert spans.tolist() == [[r, 1, int(n) - 1] for r, n in enumerate(lengths) if n > 2]


def test_at_most_max_mentions_are_fused(fake_kebiolm: Folders) -> None:
    few = first_batch(fake_kebiolm, max_mentions=1)
    assert few.mention[:, 0].unique(return_counts=True)[1].max() == 1
    every = first_batch(fake_kebiolm)
    assert torch.equal(few.bio_labels, every.bio_labels)  # detection still sees all of them
    assert few.counts[2] == len(few.mention) < every.counts[2]


def test_every_parameter_gets_a_gradient_even_without_mentions(fake_kebiolm: Folders) -> None:
    model, made = module(fake_kebiolm), data(fake_kebiolm)
    assert made.corpus is not None
    bare = [i for i in made.train_indices if not len(made.corpus[int(i)].mentions)][:2]
    for indices in (bare, made.train_indices[:8]):
        model.zero_grad()
        model.loss_sums(made.batch(indices, 0)).sum().backward()
        assert [
            n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()
        ] == []


def test_ablation_switches(fake_kebiolm: Folders) -> None:
    plain, random, frozen = (
        module(fake_kebiolm),
        module(fake_kebiolm, random_entities=True),
        module(fake_kebiolm, freeze_entities=True),
    )
    assert not torch.equal(plain.encoder.entity, random.encoder.entity)  # type: ignore[union-attr]
    assert random.encoder.entity.norm(dim=1).allclose(torch.ones(1))  # type: ignore[union-attr]
    assert plain.encoder.entity.requires_grad and not frozen.encoder.entity.requires_grad  # type: ignore[union-attr]


def test_dropout_is_on_in_training(fake_kebiolm: Folders) -> None:
    model, batch = module(fake_kebiolm, dropout=None), first_batch(fake_kebiolm)
    assert model.encoder is not None and all(m.training for m in model.modules())
    assert not torch.equal(model.loss_sums(batch), model.loss_sums(batch))


def test_overfits_four_sentences(fake_kebiolm: Folders) -> None:
    made, model = data(fake_kebiolm), module(fake_kebiolm)
    batch = made.batch(made.train_indices[:4], 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    first = model.loss_sums(batch) / batch.counts
    for _ in range(80):
        optimizer.zero_grad()
        loss = (model.loss_sums(batch) / batch.counts).sum()
        loss.backward()
        optimizer.step()
    last = model.loss_sums(batch) / batch.counts
    assert (last < 0.2 * first).all(), (first, last)


def test_first_losses_are_those_on_record(fake_kebiolm: Folders) -> None:
    """Drift: the same seed has the same first losses as when this was written."""
    batch = first_batch(fake_kebiolm)
    ours = (module(fake_kebiolm).loss_sums(batch) / batch.counts).tolist()
    assert ours == pytest.approx(json.loads(GOLDEN.read_text())["first_losses"], rel=1e-3)


def test_export_loads_here_and_with_plain_automodel(fake_kebiolm: Folders, tmp_path: Path) -> None:
    model, batch = module(fake_kebiolm).eval(), first_batch(fake_kebiolm)
    model.export(tmp_path)
    data(fake_kebiolm).export(tmp_path)
    assert model.encoder is not None
    again = KeBioLMEncoder.from_export(tmp_path).eval()
    assert torch.equal(
        again(batch.input_ids, batch.attention_mask),
        model.encoder(batch.input_ids, batch.attention_mask),
    )
    text = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    wanted = model.encoder.bert(batch.input_ids, batch.attention_mask).last_hidden_state
    assert torch.equal(text(batch.input_ids, batch.attention_mask).last_hidden_state, wanted)
    assert (
        AutoTokenizer.from_pretrained(tmp_path)("renal failure").input_ids
        == AutoTokenizer.from_pretrained(fake_kebiolm.bert)("renal failure").input_ids
    )
    assert not list(tmp_path.glob("*.bin")) and not list(tmp_path.glob("*.pt"))
    (tmp_path / "kebiolm.safetensors").unlink()
    with pytest.raises(InputError, match=r"kebiolm\.safetensors"):
        KeBioLMEncoder.from_export(tmp_path)


def released_layout(encoder: KeBioLMEncoder) -> dict[str, Tensor]:
    """The encoder's weights under the names of the authors' checkpoint."""
    names = {
        "entity": "entity_linker.entity_embeddings.weight",
        "norm.": "layer_norm.",
        "detector.": "mention_detector.",
        "mention_projection.": "entity_linker.mention_to_entity_projection.",
        "entity_projection.": "entity_context_projection.",
    }
    state = {
        "cls.predictions.bias": torch.zeros(3),
        "bert.embeddings.position_ids": torch.arange(5)[None],
    }
    for name, tensor in encoder.state_dict().items():
        bare = name.removeprefix("bert.")
        if bare.startswith("encoder.layer."):
            number, rest = bare.removeprefix("encoder.layer.").split(".", 1)
            own = (
                ("context", int(number))
                if int(number) < encoder.text_layers
                else ("recontext", int(number) - encoder.text_layers)
            )
            bare = f"{own[0]}_encoder.layer.{own[1]}.{rest}"
        for ours, theirs in names.items():
            bare = (
                theirs + bare.removeprefix(ours) if bare.startswith(ours) and name == bare else bare
            )
        state[f"bert.{bare}"] = tensor.clone()
    return state


def test_the_released_layout_loads_in_compat(fake_kebiolm: Folders) -> None:
    source, batch = module(fake_kebiolm, compat=True).eval(), first_batch(fake_kebiolm)
    assert source.encoder is not None
    nn.init.normal_(source.encoder.norm.weight)
    torch.manual_seed(5)
    target = KeBioLMEncoder(
        load_bert(fake_kebiolm.bert), torch.randn_like(source.encoder.entity), 2, 7, compat=True
    ).eval()
    state = released_layout(source.encoder)
    load_released(target, state)
    assert torch.equal(
        target(batch.input_ids, batch.attention_mask),
        source.encoder(batch.input_ids, batch.attention_mask),
    )
    del state["bert.layer_norm.weight"]
    with pytest.raises(InputError, match=r"norm\.weight"):
        load_released(target, state)
    with pytest.raises(InputError, match="compat"):
        load_released(module(fake_kebiolm).encoder, state)  # type: ignore[arg-type]


def test_validation_counts(fake_kebiolm: Folders) -> None:
    """A perfect model scores 1, a constant one what the counts say; unseen entities are counted
    apart."""
    model, made = module(fake_kebiolm).eval(), data(fake_kebiolm)
    logged: dict[str, Tensor] = {}
    model._trainer = SimpleNamespace(
        datamodule=made, strategy=SimpleNamespace(reduce=lambda t, reduce_op: t)
    )  # type: ignore[assignment]
    model.log_dict = lambda values, **_: logged.update(values)  # type: ignore[method-assign,assignment]
    batch = made.batch(made.held_out_indices, -1)
    batch = batch._replace(frequency=torch.arange(len(batch.entity)) % 3)

    def link(
        text: Tensor, mention: Tensor, gold: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        right = batch.entity.clone()
        right[0] += 1
        return (
            torch.zeros(len(mention)),
            torch.zeros(len(mention), model.encoder.entity.shape[1]),
            right[:, None],
        )  # type: ignore[union-attr]

    model.encoder.link = link  # type: ignore[union-attr,method-assign,assignment]
    model.encoder.detect_mentions = lambda text, mask: batch.mention[:-1]  # type: ignore[union-attr,method-assign]
    logged = validate(model, [batch])
    n, unseen = len(batch.entity), int((batch.frequency == 0).sum())
    assert logged["val/linking_acc1"].item() == pytest.approx((n - 1) / n)
    assert logged["val/linking_acc1_unseen"].item() == pytest.approx((unseen - 1) / unseen)
    assert logged["val/mentions_unseen"].item() == unseen
    assert logged["val/detection_f1"].item() == pytest.approx(2 * (n - 1) / (2 * n - 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text_layers": 4}, "text_layers 4: expected 1 to 3"),
        ({"encoder": "nowhere/at-all"}, "neither a folder"),
        ({"entities": "nowhere"}, "no embedding table here"),
    ],
)
def test_bad_settings(fake_kebiolm: Folders, settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        KeBioLM(
            **{
                "encoder": fake_kebiolm.bert,
                "entities": fake_kebiolm.entities,
                "text_layers": 2,
                **settings,
            }
        ).configure_model()  # type: ignore[arg-type]


def test_weights_that_are_not_whole_are_refused(fake_kebiolm: Folders, tmp_path: Path) -> None:
    shutil.copytree(fake_kebiolm.bert, tmp_path / "b")
    state = load_file(tmp_path / "b" / "model.safetensors")
    del state["encoder.layer.1.output.dense.weight"]
    save_file(state, tmp_path / "b" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        InputError, match=r"its weights lack .*encoder\.layer\.1\.output\.dense\.weight"
    ):
        load_bert(str(tmp_path / "b"))


def test_learning_rates(fake_kebiolm: Folders) -> None:
    """One rate as in the paper by default; the small profile's own ones where they belong."""
    same = module(fake_kebiolm, lr=1e-4)
    assert {same.rate(n) for n, _ in same.named_parameters()} == {1e-4}
    own = module(fake_kebiolm, lr=1e-4, head_lr=1e-3, entity_lr=0.1)
    rates = {n: own.rate(n) for n, _ in own.named_parameters()}
    assert (
        rates["encoder.entity"] == 0.1
        and rates["head.bias"] == rates["encoder.detector.weight"] == 1e-3
    )
    assert (
        rates["encoder.mention_projection.weight"]
        == rates["encoder.bert.embeddings.word_embeddings.weight"]
        == 1e-4
    )
    assert not own.decays("encoder.entity", own.encoder.entity)  # type: ignore[union-attr]
    assert own.decays("head.weight", torch.nn.Parameter(torch.ones(2, 2)))
    assert not own.decays("head.bias", torch.nn.Parameter(torch.ones(2)))
    frozen = module(fake_kebiolm, lr=1e-4, head_lr=1e-3, freeze_entities=True)
    assert frozen.rate("encoder.mention_projection.weight") == 1e-3


@pytest.mark.parametrize(("text_layers", "wanted"), [(8, 2), (4, 1), (12, 3), (7, 2), (2, 1)])
def test_layers_are_split_in_the_same_share(
    fake_kebiolm: Folders, text_layers: int, wanted: int
) -> None:
    made = module(fake_kebiolm, text_layers=text_layers, of_layers=12)  # of the fake's three
    assert made.encoder is not None and made.encoder.text_layers == wanted


def test_without_fusion_layers_entities_change_nothing(fake_kebiolm: Folders) -> None:
    """Table 4, (12, 0): mentions are linked, and states are the text's."""
    made, batch = module(fake_kebiolm, text_layers=3).eval(), first_batch(fake_kebiolm)
    assert made.encoder is not None
    wanted = made.encoder.bert(batch.input_ids, batch.attention_mask).last_hidden_state
    torch.testing.assert_close(
        made.encoder(batch.input_ids, batch.attention_mask, batch.mention), wanted
    )
    sums = made.loss_sums(batch)
    assert (sums > 0).all()
    sums.sum().backward()
    reached = {
        n.split(".")[1]
        for n, p in made.named_parameters()
        if p.grad is not None and n.startswith("encoder.")
    }
    assert reached == {"bert", "entity", "detector", "mention_projection"}
    # or several processes would wait
    assert not any(p.requires_grad and p.grad is None for p in made.parameters())


def test_masked_words_only(fake_kebiolm: Folders, tmp_path: Path) -> None:
    made, batch = module(fake_kebiolm, knowledge=False).eval(), first_batch(fake_kebiolm)
    assert made.encoder is not None
    states = made.encoder.bert(batch.input_ids, batch.attention_mask).last_hidden_state
    words = made.encoder.bert.embeddings.word_embeddings.weight
    wanted = sum(
        -made.head(states[row, t][None], words)[0].log_softmax(0)[batch.mlm_labels[row, t]]
        for row, t in (batch.mlm_labels != -100).nonzero().tolist()
    )
    sums = made.loss_sums(batch)
    torch.testing.assert_close(
        sums, torch.stack([wanted, wanted * 0, wanted * 0]), rtol=1e-4, atol=1e-3
    )  # type: ignore[arg-type, list-item]
    sums.sum().backward()
    assert all((p.grad is not None) == p.requires_grad for p in made.parameters())
    assert {n.split(".")[0] for n, p in made.named_parameters() if not p.requires_grad} == {
        "encoder"
    }
    made.export(tmp_path)
    again = KeBioLMEncoder.from_export(tmp_path).eval()
    torch.testing.assert_close(
        again(batch.input_ids, batch.attention_mask), states
    )  # nothing is detected, nothing fused


def test_ranks_by_hand(fake_kebiolm: Folders) -> None:
    """1 / rank of each mention's entity by dot product, over the mentions of a group; ties have the
    middle place."""
    made, model = data(fake_kebiolm), module(fake_kebiolm).eval()
    batch, encoder = made.batch(made.order(0)[0], 0), model.encoder
    assert encoder is not None
    known = np.arange(len(encoder.entity)) % 4
    made.frequency, batch = known, batch._replace(frequency=torch.from_numpy(known)[batch.entity])
    model._trainer = SimpleNamespace(datamodule=made)  # type: ignore[assignment]
    with torch.no_grad():
        encoder.entity[3] = encoder.entity[1]
        logged = validate(model, [batch])
        text, _ = encoder.text_states(batch.original_ids, batch.attention_mask)
        scores = encoder.mention_projection(boundary_states(text, batch.mention)) @ encoder.entity.T
    found: dict[str, list[float]] = {}
    for own, gold in zip(scores.tolist(), batch.entity.tolist(), strict=True):
        for name, among in (
            ("", range(len(own))),
            ("_among_unseen", [e for e in range(len(own)) if known[e] == 0]),
        ):
            higher = sum(own[e] > own[gold] + 1e-6 for e in among)
            equal = sum(abs(own[e] - own[gold]) <= 1e-6 and e != gold for e in among)
            found.setdefault(f"{name}{known[gold]}", []).append(1 / (1 + higher + equal / 2))
    means = {name: sum(values) / len(values) for name, values in found.items()}
    assert logged["val/linking_mrr_unseen"].item() == pytest.approx(means["0"], rel=1e-5)
    assert logged["val/linking_mrr_once"].item() == pytest.approx(means["1"], rel=1e-5)
    assert logged["val/linking_mrr_rare"].item() == pytest.approx(
        np.mean(found["2"] + found["3"]), rel=1e-5
    )
    assert logged["val/linking_mrr"].item() == pytest.approx(
        np.mean([v for g in "0123" for v in found[g]]), rel=1e-5
    )
    assert logged["val/linking_mrr_among_unseen"].item() == pytest.approx(
        means["_among_unseen0"], rel=1e-5
    )
    shift = torch.nn.functional.cosine_similarity(encoder.entity, model.start)
    assert shift[3] < 0.99 and logged["entities/cosine_to_start"].item() == pytest.approx(
        shift.mean().item(), rel=1e-5
    )
    assert logged["entities/cosine_to_start_unseen"].item() == pytest.approx(1)


@pytest.mark.parametrize("length", [False, True])
def test_a_step_moves_gold_rows_alone(
    fake_kebiolm: Folders, length: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were gold before, and have momentum, stay too; others are as they were, and with
    `entity_length` as long."""
    table = EmbeddingTable.load(fake_kebiolm.entities)
    lengths = torch.linspace(0.5, 2, len(table.entity))[:, None]
    monkeypatch.setattr(
        EmbeddingTable, "load", lambda _: replace(table, entity=table.entity * lengths)
    )
    model, made = (
        module(fake_kebiolm, entity_rows="gold", entity_length=length, lr=0.05, dropout=0.0),
        data(fake_kebiolm),
    )
    same = SimpleNamespace(reduce=lambda t, reduce_op: t)
    model._trainer = SimpleNamespace(  # type: ignore[assignment]
        datamodule=made,
        strategy=same,
        accumulate_grad_batches=1,
        world_size=1,
        global_step=1,
        log_every_n_steps=2,
    )
    model.log_dict = lambda values, **_: None  # type: ignore[method-assign,assignment]
    entity, optimizer = model.encoder.entity, torch.optim.AdamW(model.parameters(), lr=0.05)  # type: ignore[union-attr]
    for step in range(3):
        before, batch = entity.detach().clone(), made.batch(made.order(0)[step][:3], 0)
        optimizer.zero_grad()
        model.training_step(batch, step).backward()
        model.on_before_optimizer_step(optimizer)
        optimizer.step()
        model.on_train_batch_end()
        moved = (entity != before).any(1)
        assert (
            moved.nonzero()[:, 0].tolist() == sorted(set(batch.entity.tolist())) and not moved.all()
        )
        if length:
            torch.testing.assert_close(entity.norm(dim=1), model.start.norm(dim=1))
    with pytest.raises(InputError, match="entity_rows 'some': expected all or gold"):
        module(fake_kebiolm, entity_rows="some")


def test_validation_links_on_the_text_and_with_every_mention_masked(
    fake_kebiolm: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder that returns what it read, and a linker with a rule of its own for each way of
    reading a mention.

    On the text it links all mentions but the first; where all tokens of a mention are [MASK], every
    other one; where some are, none.
    """
    made, model = data(fake_kebiolm), module(fake_kebiolm)
    batch, encoder, mask_id = made.batch(made.order(0)[0], 0), model.encoder, made.mask_id
    assert encoder is not None
    count = len(batch.mention)
    known = torch.tensor([0, 1, 2, 0, 5, 6])[torch.arange(count) % 6]
    batch = batch._replace(frequency=known)
    assert (batch.mention[:, 2] - batch.mention[:, 1] > 1).any() and (
        batch.input_ids != batch.original_ids
    ).any()

    def link(text: Tensor, mention: Tensor) -> tuple[None, None, Tensor]:
        found = []
        for number, (row, start, end) in enumerate(mention.tolist()):
            own = text[row, start:end, 0]
            masked = own == mask_id
            as_written = torch.equal(own, batch.original_ids[row, start:end].float())
            right = number % 2 == 0 if masked.all() else as_written and number > 0
            found.append([int(batch.entity[number]) if right else -1])
        return None, None, torch.tensor(found)

    monkeypatch.setattr(model, "loss_sums", lambda _: torch.zeros(3))
    monkeypatch.setattr(
        encoder,
        "text_states",
        lambda ids, _: (ids[..., None].float().expand(-1, -1, encoder.hidden_size), None),
    )
    monkeypatch.setattr(encoder, "link", link)
    model._trainer = SimpleNamespace(datamodule=made)  # type: ignore[assignment]
    logged = validate(model, [batch])
    unseen = int((known == 0).sum())
    assert logged["val/mentions"] == count and logged["val/mentions_unseen"] == unseen
    counts = [int(logged[f"val/mentions_{group}"]) for group in ("once", "rare", "frequent")]
    assert counts == [
        int((known == 1).sum()),
        int(((known == 2) | (known == 5)).sum()),
        int((known == 6).sum()),
    ]
    assert [float(logged[f"val/linking_acc1_{g}"]) for g in ("once", "rare", "frequent")] == [
        1,
        1,
        1,
    ]
    assert logged["val/linking_acc1"].item() == pytest.approx((count - 1) / count)
    assert logged["val/linking_acc1_masked"].item() == pytest.approx(
        len(range(0, count, 2)) / count
    )
    # the first is unseen
    assert logged["val/linking_acc1_unseen"].item() == pytest.approx((unseen - 1) / unseen)
    assert logged["val/linking_acc1_unseen_masked"].item() == pytest.approx(
        len(range(0, count, 6)) / unseen
    )
