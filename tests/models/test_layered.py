"""The papers that run an encoder's layers one by one, started from a RoBERTa and an XLM-R."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM

from models.embert import EMBERT
from models.encoders import embed_tokens, load_mlm_head, save_masked_lm
from models.ernie import ERNIEEncoder
from models.heads import MLMHead
from models.kebiolm import KeBioLMEncoder
from models.knowbert import KnowBERTEncoder
from models.smedbert.encoder import SMedBERTEncoder
from models.transformer_files import LAYERED, load_bert
from tests.fakes import bert, embert, kebiolm, smedbert
from tests.models import test_ernie, test_kebiolm, test_knowbert
from tests.models.test_smedbert import test_module as test_smedbert

PAPERS: dict[str, tuple[Any, Any, Any]] = {
    "kebiolm": (kebiolm, test_kebiolm, KeBioLMEncoder),
    "ernie": (smedbert, test_ernie, ERNIEEncoder),
    "knowbert": (smedbert, test_knowbert, KnowBERTEncoder),
    "smedbert": (smedbert, test_smedbert, SMedBERTEncoder),
}
KINDS = ("roberta", "xlm-roberta")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(bert, "KIND", request.param)
    return request.param


@pytest.mark.parametrize("paper", PAPERS)
def test_trained_exported_and_loaded(paper: str, kind: str, tmp_path: Path) -> None:
    fakes, tests, encoder_class = PAPERS[paper]
    fake = fakes.write(tmp_path / "fake")
    model, batch = tests.module(fake), tests.first_batch(fake)
    model.log = lambda *given, **named: None  # no trainer
    encoder = model.encoder
    assert type(encoder.bert) is LAYERED[kind][0] and encoder.max_length == 128
    texts = embed_tokens(encoder.bert, batch.input_ids)
    assert torch.isfinite(texts).all() and (batch.attention_mask == 0).any()
    model.eval()
    second = torch.ones_like(batch.input_ids)  # it has no segments to tell texts apart
    assert torch.equal(
        embed_tokens(encoder.bert, batch.input_ids, second),
        embed_tokens(encoder.bert, batch.input_ids),
    )
    model.export(tmp_path / "export")
    again = encoder_class.from_export(tmp_path / "export").eval()
    given = batch.input_ids, batch.attention_mask
    assert torch.equal(again(*given), encoder(*given))
    plain = AutoModel.from_pretrained(tmp_path / "export", add_pooling_layer=False).eval()
    wanted = encoder.bert(*given).last_hidden_state
    assert torch.equal(plain(*given).last_hidden_state, wanted)
    kept = batch.attention_mask.bool()
    if paper in ("ernie", "smedbert"):  # without mentions they are their encoder
        torch.testing.assert_close(encoder(*given)[kept], wanted[kept])


def test_kebiolm_losses_are_those_of_its_equations(kind: str, tmp_path: Path) -> None:
    fake = kebiolm.write(tmp_path)
    test_kebiolm.test_losses_equal_the_equations(fake)
    test_kebiolm.test_output_is_independent_of_batch_mates(fake)


def test_embert_starts_from_them(kind: str, tmp_path: Path) -> None:
    fake = embert.write(tmp_path / "fake")
    model = EMBERT(fake.bert, dropout=0.0)
    model.configure_model()
    model.eval().export(tmp_path / "export")
    pad = model.bert.config.pad_token_id
    ids = torch.tensor([[2, 9, 4, 3, pad], [2, 8, 7, 4, 3]])
    mask = (ids != pad).long()
    plain = AutoModelForMaskedLM.from_pretrained(tmp_path / "export").eval()
    states = model.bert(ids, mask).last_hidden_state
    wanted = model.head(states, model.bert.embeddings.word_embeddings.weight)
    torch.testing.assert_close(plain(ids, mask).logits, wanted, rtol=1e-4, atol=1e-5)


def test_the_head_of_a_masked_lm_comes_and_goes(kind: str, tmp_path: Path) -> None:
    bert.write(tmp_path / "plain", ["gout"])
    encoder = load_bert(str(tmp_path / "plain"), dropout=0.0).eval()
    config = encoder.config
    head, other = (MLMHead(config.hidden_size, config.vocab_size) for _ in range(2))
    torch.nn.init.normal_(head.bias)
    assert not load_mlm_head(str(tmp_path / "plain"), other)
    save_masked_lm(encoder, head, tmp_path / "whole")
    assert load_mlm_head(str(tmp_path / "whole"), other)
    assert all(
        torch.equal(a, b) for a, b in zip(head.parameters(), other.parameters(), strict=True)
    )
    pad = config.pad_token_id
    ids = torch.tensor([[2, 9, 4, 3, pad], [2, 8, 7, 4, 3]])
    mask = (ids != pad).long()
    whole = AutoModelForMaskedLM.from_pretrained(tmp_path / "whole").eval()
    states = encoder(ids, mask).last_hidden_state
    wanted = head(states, encoder.embeddings.word_embeddings.weight)
    # the head's norm has BERT's epsilon in both
    torch.testing.assert_close(whole(ids, mask).logits, wanted, rtol=1e-4, atol=1e-5)
