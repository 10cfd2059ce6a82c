"""What we export is loaded by others: the same labels, probabilities and vectors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    pipeline,
)

from core.json_files import read_json
from datamodules.tasks import Tagged, load_task
from experiments.names import Encoder
from inference.encoders import embedder
from inference.options import LinkerOptions
from inference.taggers import Tagger, load_tagger
from models.genbioel import GenBioEL
from models.sapbert import SapBERT
from models.sentence import save_sentence_files
from tests.fakes import bert
from tests.inference.conftest import Trained, trained

__all__ = ["trained"]
TEXTS = ["fever of w1 w2", "w3 renal fever", "w5"]


def test_a_tagger_is_a_token_classifier(trained: Callable[[str], Trained]) -> None:
    folder = trained("ner").folder / "export"
    own = load_tagger(folder)
    assert isinstance(own, Tagger)
    found = pipeline(
        "token-classification", str(folder), aggregation_strategy="first", device="cpu"
    )
    every = [example.text for example in load_task(trained("ner").task).splits["test"]]
    limit = own.data.max_length  # longer texts are read in windows
    texts = [text for text in every if len(own.data.tokenizer(text)["input_ids"]) <= limit]
    predicted = [own.predict_examples([Tagged("", "", text, [])])[0]["mentions"] for text in texts]
    assert sum(map(len, predicted)) > 5
    for text, spans in zip(texts, predicted, strict=True):
        others = found(text)
        assert [(s["start"], s["end"], s["type"]) for s in spans] == [
            (o["start"], o["end"], o["entity_group"]) for o in others
        ]
        assert [s["score"] for s in spans] == pytest.approx([o["score"] for o in others], abs=1e-5)


@pytest.mark.parametrize("kind", ["ner", "crf"])
def test_probabilities_of_every_label(trained: Callable[[str], Trained], kind: str) -> None:
    folder = trained(kind).folder / "export"
    own: Any = load_tagger(folder)
    labels = read_json(folder / "config.json")["id2label"]
    assert next(iter(labels.values())) == "O" and len(labels) == 2 * len(own.labels) + 1
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    tokens = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        theirs = model(**tokens).logits
        states = own.module.encoder(tokens["input_ids"], tokens["attention_mask"])
        ours = own.module.head.linear(states)
    assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("kind", ["nested", "relation", "pair", "ranking"])
def test_other_heads_are_encoders_for_others(trained: Callable[[str], Trained], kind: str) -> None:
    folder = trained(kind).folder / "export"
    assert read_json(folder / "config.json")["architectures"] == ["BertModel"]
    tokens = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    own: Any = load_tagger(folder)
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(folder).eval()(**tokens).last_hidden_state
        ours = own.module.encoder(tokens["input_ids"], tokens["attention_mask"])
    assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_name_encoder_makes_the_same_vectors(pooling: str, tmp_path: Path) -> None:
    words = ["renal", "failure", "gout", "of"]
    source = bert.write(tmp_path / "bert", words, layers=2)
    module = SapBERT(source, pooling=pooling)
    module.configure_model()
    folder = Path(shutil.copytree(source, tmp_path / "export"))
    (folder / "model.safetensors").unlink()
    module.export(folder)
    names = ["renal failure", "gout", "failure of " * 20]
    chosen = Encoder("own", str(folder), "models.sapbert.SapBERTEncoder.from_export", None, "x", {})
    ours = embedder(chosen, LinkerOptions())(names).numpy()
    theirs = SentenceTransformer(str(folder), device="cpu").encode(names)
    assert np.abs(ours - theirs).max() < 1e-5


def test_a_pooling_of_ours_alone_writes_nothing(tmp_path: Path) -> None:
    assert not save_sentence_files(tmp_path, 8, "text", 25)
    assert not list(tmp_path.iterdir())


def test_a_generator_is_a_sequence_model(tmp_path: Path) -> None:
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 40}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    made = BartForConditionalGeneration(BartConfig(**sizes, **heads)).eval()
    module = GenBioEL.__new__(GenBioEL)
    torch.nn.Module.__init__(module)
    module.bart = made
    module.export(tmp_path)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    ids = torch.tensor([[0, 5, 6, 2]])
    with torch.no_grad():
        assert torch.allclose(made(ids).logits, again(ids).logits)
