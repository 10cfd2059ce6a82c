"""Folders of sentence-transformers, and models of other types than BERT: the vectors are those that
their own library makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers import models as modules
from transformers import AutoModel, ModernBertConfig, RobertaConfig, T5Config

from core.files import InputError
from datamodules.tokenizers import load_tokenizer
from experiments.finetune import write_encoder
from experiments.names import encoder
from inference.encoders import embedder
from inference.options import LinkerOptions
from inference.sentence import pool, read_sentence
from models.encoders import TextEncoder
from models.standard import transformer_prefix
from models.transformer_files import token_limit
from tests.fakes import bert
from tests.fakes.transformer import TYPES, WORDS, write_model

NAMES = ["renal failure", "gout", "failure of failure of failure", "renal gout failure gout"]


@pytest.mark.parametrize("kind", TYPES)
def test_a_model_of_any_type_gives_its_own_states(kind: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / kind, kind)
    made = embedder(encoder(str(folder)), LinkerOptions(similarity="dot"))
    found = made(NAMES)
    model = AutoModel.from_pretrained(folder).eval()
    part = model.get_encoder() if model.config.is_encoder_decoder else model
    for name, vector in zip(NAMES, found, strict=True):
        ids = torch.tensor([made.tokenizer(name)["input_ids"]])
        with torch.no_grad():
            states = part(input_ids=ids).last_hidden_state[0]
        wanted = states[-1] if kind == "qwen3" else states[0]
        assert torch.allclose(vector, wanted, atol=1e-5)
    assert made.settings["pooling"] == ("last" if kind == "qwen3" else "cls")


def test_positions_that_roberta_keeps_for_padding_are_no_tokens() -> None:
    assert token_limit(RobertaConfig(max_position_embeddings=514)) == 512
    assert token_limit(ModernBertConfig()) == 8192 and token_limit(T5Config()) == 512


def test_an_unknown_type_and_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", "roberta")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(InputError, match=r"its weights lack .*layer\.2"):
        TextEncoder(str(folder))
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "vit"}))
    with pytest.raises(InputError):
        TextEncoder(str(folder))


def library(folder: Path, base: Path, mode: str, dense: bool, unit: bool, **more: Any) -> Any:
    """A model of sentence-transformers, saved in `folder`."""
    first = modules.Transformer(str(base))
    pooling = modules.Pooling(32, pooling_mode=mode, include_prompt=more.pop("pools", True))
    steps = [first, pooling]
    if dense:
        torch.manual_seed(1)
        steps.append(modules.Dense(32, 8))
    steps += [modules.Normalize()] if unit else []
    made = SentenceTransformer(modules=steps, device="cpu", **more)
    made.save(str(folder))
    return made


@pytest.mark.parametrize(
    ("mode", "dense", "unit"),
    [
        ("cls", False, False),
        ("mean", False, True),
        ("max", False, False),
        ("lasttoken", True, False),
        ("weightedmean", False, True),
        ("mean_sqrt_len_tokens", True, True),
    ],
)
def test_vectors_are_those_of_sentence_transformers(
    mode: str, dense: bool, unit: bool, tmp_path: Path
) -> None:
    base = Path(bert.write(tmp_path / "b", WORDS))
    theirs = library(tmp_path / "s", base, mode, dense, unit)
    made = embedder(encoder(str(tmp_path / "s")), LinkerOptions(similarity="dot"))
    wanted = torch.from_numpy(theirs.encode(NAMES))
    assert torch.allclose(made(NAMES), wanted, atol=1e-5)
    cosine = embedder(encoder(str(tmp_path / "s")), LinkerOptions())
    assert torch.allclose(cosine(NAMES), torch.nn.functional.normalize(wanted), atol=1e-5)


@pytest.mark.parametrize("pools", [True, False])
def test_the_default_prompt_is_put_before_every_text(pools: bool, tmp_path: Path) -> None:
    base = Path(bert.write(tmp_path / "b", WORDS))
    more = {"prompts": {"query": "query : "}, "default_prompt_name": "query", "pools": pools}
    theirs = library(tmp_path / "s", base, "mean", False, False, **more)
    made = embedder(encoder(str(tmp_path / "s")), LinkerOptions(similarity="dot"))
    assert torch.allclose(made(NAMES), torch.from_numpy(theirs.encode(NAMES)), atol=1e-5)


def test_minilm_is_used_as_its_files_say() -> None:
    known = read_sentence("minilm")
    assert known is not None and (known.pooling, known.unit, known.max_length) == (
        "mean",
        True,
        256,
    )
    made = embedder(encoder("minilm"), LinkerOptions())
    assert made.settings["pooling"] == "mean" and made.max_length == 256


def test_a_step_or_a_pooling_that_is_not_known_is_refused(tmp_path: Path) -> None:
    base = Path(bert.write(tmp_path / "b", WORDS))
    folder = tmp_path / "s"
    library(folder, base, "mean", False, False)
    file = folder / "1_Pooling" / "config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"pooling_mode": ["cls", "mean"]}))
    with pytest.raises(InputError, match="pooling cls, mean; expected one of"):
        read_sentence(str(folder))
    file.write_text(json.dumps(settings))
    steps = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*steps, {"type": "own.Router", "path": ""}]))
    with pytest.raises(InputError, match="a step Router; expected"):
        read_sentence(str(folder))


def test_pooling_by_hand() -> None:
    states = torch.tensor([[[1.0], [3.0], [8.0], [9.0]]])
    mask = torch.tensor([[1, 1, 1, 0]])
    found = {how: float(pool(states, mask, how)) for how in ("cls", "last", "mean", "max")}
    assert found == {"cls": 1, "last": 8, "mean": 4, "max": 8}
    assert float(pool(states, mask, "weighted")) == pytest.approx((1 + 6 + 24) / 6)
    assert float(pool(states, mask, "sqrt")) == pytest.approx(12 / 3**0.5)


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "qwen3"])
def test_a_fine_tuned_encoder_of_any_type_is_read_again(kind: str, tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", kind)
    own = TextEncoder(str(source)).eval()
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(0.01)
    folder = tmp_path / "export" / "encoder"
    folder.parent.mkdir()
    write_encoder(folder, own, str(source), load_tokenizer(str(source)))
    prefix = transformer_prefix(own.bert)
    state = {f"{prefix}{k}": v.clone() for k, v in own.bert.state_dict().items()}
    save_file(state, folder.parent / "model.safetensors")
    again = TextEncoder(str(folder)).eval()
    ids, mask = torch.tensor([[1, 5, 6, 2]]), torch.ones(1, 4, dtype=torch.long)
    with torch.no_grad():
        assert torch.allclose(own(ids, mask), again(ids, mask), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("SapBERT-from-PubMedBERT-fulltext", "cls"),
        ("e5-small-v2", "mean"),
        ("BioLORD-2023", "mean"),
        ("model", "cls"),
    ],
)
def test_a_plain_model_is_pooled_as_its_family_is(
    name: str, how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_model(tmp_path / name, "bert")
    caplog.set_level("INFO")
    made = embedder(encoder(str(folder)), LinkerOptions())
    assert made.pooling == how
    assert ("give --pooling mean" in caplog.text) == (name == "model")
