"""A model of the hub: fetched once, used offline, and each refusal with what to do."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from sentencepiece import SentencePieceTrainer
from transformers import DebertaV2Config, DebertaV2Model, XLMRobertaConfig, XLMRobertaModel

from core.files import InputError
from datamodules import pretrained
from datamodules.pretrained import hub_folder, identity
from datamodules.tokenizers import load_tokenizer
from experiments.names import encoder
from inference.encoders import embedder
from inference.options import LinkerOptions
from tests.fakes import bert
from tests.fakes.hub import TOKEN, Hub, serve_hub

WORDS = ["renal", "failure", "gout"]


def forget() -> None:
    """What a new process would not know."""
    pretrained.hub_folder.cache_clear()
    pretrained._hub_identity.cache_clear()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # as the suite sets it
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serve_hub() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.address)
        template = served.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        forget()
        yield served
        forget()


@pytest.fixture
def public(hub: Hub, tmp_path: Path) -> Hub:
    hub.folders["lab/bert"] = Path(bert.write(tmp_path / "bert", WORDS))
    return hub


def vectors(name: str) -> list[list[float]]:
    found: list[list[float]] = embedder(encoder(name), LinkerOptions())(WORDS).tolist()
    return found


def test_a_public_model_is_used_as_its_folder_is(public: Hub) -> None:
    folder = public.folders["lab/bert"]
    for left in ("pytorch_model.bin", "model.onnx"):
        (folder / left).write_bytes(b"not needed")
    assert vectors("lab/bert") == vectors(str(folder))
    fetched = {p.name for p in Path(hub_folder("lab/bert")).iterdir()}
    assert "model.safetensors" in fetched
    assert not fetched & {"pytorch_model.bin", "model.onnx"}


@pytest.mark.parametrize("how", ["offline", "dead"])
def test_what_was_fetched_once_is_used_without_a_network(
    public: Hub, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, known = vectors("lab/bert"), identity("lab/bert")
    forget()
    asked = len(public.asked)
    if how == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert vectors("lab/bert") == first and identity("lab/bert") == known
    assert len(public.asked) == asked
    assert ("lab/bert: what was fetched before is used" in caplog.text) == (how == "dead")
    with pytest.raises(InputError, match=r"no model 'lab/other'.*it was not fetched before"):
        hub_folder("lab/other")


def test_changed_weights_are_another_identity(public: Hub, tmp_path: Path) -> None:
    first, before = vectors("lab/bert"), identity("lab/bert")
    forget()
    public.folders["lab/bert"] = Path(bert.write(tmp_path / "other", WORDS, seed=5))
    assert vectors("lab/bert") != first and identity("lab/bert") != before


def test_a_private_model_needs_a_token_that_may_read_it(
    public: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    public.ways["lab/bert"] = "private"
    with pytest.raises(InputError, match=r"no model 'lab/bert'.*HF_TOKEN is not set"):
        hub_folder("lab/bert")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(InputError, match="the token in HF_TOKEN may not read it"):
        hub_folder("lab/bert")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert (Path(hub_folder("lab/bert")) / "config.json").is_file()


def test_a_gated_model_says_where_its_terms_are(
    public: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    public.ways["lab/bert"] = "gated"
    with pytest.raises(InputError, match=r"it is gated\. Accept its terms at http.*/lab/bert"):
        hub_folder("lab/bert")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert (Path(hub_folder("lab/bert")) / "config.json").is_file()


def test_a_model_that_is_not_there_and_one_without_config(public: Hub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model 'lab/nothing': neither a folder nor"):
        hub_folder("lab/nothing")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "model.safetensors").write_bytes(b"x")
    public.folders["lab/bare"] = bare
    with pytest.raises(InputError, match="without a config.json"):
        hub_folder("lab/bare")


def test_a_slow_hub_is_waited_for(public: Hub) -> None:
    public.ways["lab/bert"] = "slow"
    assert (Path(hub_folder("lab/bert")) / "model.safetensors").is_file()


def test_a_download_that_is_cut_leaves_nothing_that_looks_whole(public: Hub) -> None:
    public.ways["lab/bert"] = "cut"
    with pytest.raises(InputError, match="no model 'lab/bert'"):
        hub_folder("lab/bert")
    public.ways.clear()
    forget()
    found = Path(hub_folder("lab/bert")) / "model.safetensors"
    assert found.read_bytes() == (public.folders["lab/bert"] / "model.safetensors").read_bytes()
    shutil.rmtree(found.parent)


def test_a_plan_fetches_no_weights(public: Hub) -> None:
    from experiments.machine import Inputs
    from experiments.pretrain import pretrain

    pretrain("sapbert", inputs=Inputs(encoder="lab/bert"), plan=True)
    fetched = [path.rpartition("/")[2] for path in public.asked if "/resolve/" in path]
    assert set(fetched) == {"config.json"}
    with pytest.raises(InputError, match="neither a folder nor a model that the hub shows"):
        pretrain("sapbert", inputs=Inputs(encoder="lab/none"), plan=True)


@pytest.mark.parametrize(
    ("file", "settings", "model"),
    [
        ("sentencepiece.bpe.model", XLMRobertaConfig, XLMRobertaModel),
        ("spm.model", DebertaV2Config, DebertaV2Model),
    ],
)
def test_a_vocabulary_of_sentencepiece(
    hub: Hub, tmp_path: Path, file: str, settings: type, model: type
) -> None:
    """XLM-R and DeBERTa-v3 are on the hub without tokenizer.json."""
    folder, vocabulary = tmp_path / "model", io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["acute renal failure with gout"] * 9),
        model_writer=vocabulary,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    made = model(settings(vocab_size=50, num_hidden_layers=1, **sizes))
    made.save_pretrained(folder)
    (folder / file).write_bytes(vocabulary.getvalue())
    hub.folders["lab/model"] = folder
    tokenizer = load_tokenizer("lab/model")
    encoded = tokenizer("renal failure", return_offsets_mapping=True, add_special_tokens=False)
    places = encoded["offset_mapping"]
    assert places[-1][1] == 13 and tokenizer.unk_token_id not in encoded["input_ids"]
    assert len(vectors("lab/model")[0]) == 16
