"""Types of models by what they are used for: each works, or is refused at once and by name."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from app.cli import main
from core.files import InputError
from datamodules.tokenizers import load_tokenizer
from experiments.names import encoder
from inference.encoders import embedder
from inference.options import LinkerOptions
from inference.taggers import load_tagger
from models.encoders import TextEncoder
from models.probing import masked_lm
from models.reranker import RerankerModel
from models.sapbert import SapBERT
from tests.fakes import graphs, tasks
from tests.fakes.transformer import TYPES, WITHOUT_MASKS, write_model
from tests.inference.conftest import fine_tune

NAMES = ["renal failure", "gout", "failure of gout"]
QUICK = ("bert", "roberta", "deberta-v2", "modernbert", "t5")  #: types in every run of the tests
KINDS = [pytest.param(k, marks=() if k in QUICK else pytest.mark.slow) for k in TYPES]


@pytest.mark.parametrize("kind", KINDS)
def test_embed_and_link(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    folder = write_model(tmp_path / "model", kind)
    assert main(["embed", "--model", str(folder), "--text", NAMES[0], "--json"]) == 0
    vector = json.loads(capsys.readouterr().out)["vector"]
    expected = embedder(encoder(str(folder)), LinkerOptions())(NAMES[:1])[0]
    assert np.allclose(vector, expected, atol=1e-5) and len(vector) == 16
    graph = graphs.write(tmp_path / "graph", {f"G:{n}": [name] for n, name in enumerate(NAMES)})
    words = ["link", "--graph", str(graph), "--text", NAMES[0], "--json"]
    assert main([*words, "--chain", f"dictionary > {folder}"]) == 0
    (mention,) = json.loads(capsys.readouterr().out)["mentions"]
    assert mention["entity"] == "G:0"


@pytest.mark.parametrize("kind", KINDS)
def test_fine_tune_and_predict(kind: str, tmp_path: Path) -> None:
    source = write_model(tmp_path / "model", kind)
    task = tasks.write(tmp_path / "task", "ner", {"train": 6, "dev": 2, "test": 2}, suite="fakes")
    made = fine_tune(tmp_path, source, task, "NCBI", "--trainer.max_epochs", "1")
    found = load_tagger(made.folder / "export").predict(["renal failure of gout"])  # type: ignore[union-attr]
    assert len(found) == 1
    again = TextEncoder(encoder(str(made.folder / "export")).folder).eval()
    assert again.hidden_size == 16


@pytest.mark.parametrize("kind", KINDS)
def test_sapbert_pre_training(kind: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", kind)
    module = SapBERT(str(folder))
    module.configure_model()
    assert module.encoder is not None
    tokens = load_tokenizer(str(folder))(NAMES, padding=True, return_tensors="pt")
    module.train()
    vectors = module.encoder.vectors(tokens["input_ids"], tokens["attention_mask"])
    loss = (vectors @ vectors.T)[0, 1]
    loss.backward()
    moved = [p for p in module.encoder.parameters() if p.grad is not None and p.grad.abs().sum()]
    assert torch.isfinite(loss) and moved
    module.eval()
    module.export(tmp_path / "export")
    again = TextEncoder(str(tmp_path / "export")).eval()
    with torch.no_grad():
        own = module.encoder(tokens["input_ids"], tokens["attention_mask"])
        assert torch.allclose(again(tokens["input_ids"], tokens["attention_mask"]), own, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reranker_starts_from_it(kind: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", kind)
    made = RerankerModel(str(folder)).eval()
    tokens = load_tokenizer(str(folder))(NAMES, padding=True, return_tensors="pt")
    states = made(tokens["input_ids"], tokens["attention_mask"])
    assert made.score(states).shape == (*tokens["input_ids"].shape, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_probing(kind: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", kind, masks=kind not in WITHOUT_MASKS)
    began = time.process_time()
    try:
        found = masked_lm(str(folder))
    except InputError as error:
        assert time.process_time() - began < 2
        assert kind.replace("_", "") in str(error).lower().replace("_", "") or str(folder) in str(
            error
        )
        return
    assert found is not None and kind not in ("t5", "qwen3")
