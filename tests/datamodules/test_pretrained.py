"""Models by name: no code of theirs runs, and their files say what they are."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, DistilBertConfig, DistilBertModel

from core.files import InputError
from core.json_files import read_json
from core.tracking import ROOT
from datamodules import pretrained
from datamodules.tokenizers import load_tokenizer
from experiments.names import encoder
from experiments.tracking import content, model_identities
from inference.chain import Pipeline
from models.genbioel import load_bart
from models.probing import masked_lm
from models.transformer_files import load_bert, load_transformer
from tests.fakes import bert
from tests.fakes.graphs import graph

ROOMS = ("core", "kg", "datamodules", "models", "experiments", "inference", "benchmarks", "app")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(bert.write(tmp_path / "bert", ["renal", "failure", "gout"]))


def with_code(folder: Path, model_type: str | None) -> Path:
    """The model, with Python files that leave `ran` beside them and every auto_map that
    transformers reads."""
    ran = folder / "ran"
    (folder / "own.py").write_text(
        f"open({str(ran)!r}, 'w')\nfrom transformers import BertConfig as C, BertModel as M,"
        " BertTokenizer as T\n"
    )
    names = {
        "AutoConfig": "own.C",
        "AutoModel": "own.M",
        "AutoModelForMaskedLM": "own.M",
        "AutoModelForSeq2SeqLM": "own.M",
    }
    config = read_json(folder / "config.json") | {
        "auto_map": names | {"AutoTokenizer": ["own.T", "own.T"]}
    }
    if model_type:
        config["model_type"] = model_type
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {"auto_map": {"AutoTokenizer": ["own.T", "own.T"]}, "tokenizer_class": "OwnTokenizer"}
        )
    )
    return ran


@pytest.mark.parametrize("model_type", [None, "own"])
@pytest.mark.parametrize("load", [load_bert, load_bart, masked_lm, load_tokenizer])
def test_a_models_own_code_is_not_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, load: object, model_type: str | None
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # nor after a question
    ran = with_code(folder, model_type)
    try:
        load(str(folder))  # type: ignore[operator]
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert model_type is None
    assert not ran.exists()


def test_a_model_that_is_nothing_without_its_code_is_refused_in_plain_words(folder: Path) -> None:
    with_code(folder, "own")
    with pytest.raises(InputError, match="code of its own .* never run"):
        pretrained.load(AutoConfig, str(folder))


def test_attention_from_the_hub_is_refused(folder: Path) -> None:
    config = read_json(folder / "config.json") | {"_attn_implementation": "somebody/kernel"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="somebody/kernel.*never run"):
        load_bert(str(folder))


class Runs:
    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.ran), "w")


def test_a_pickle_of_weights_runs_nothing(folder: Path) -> None:
    for file in folder.glob("*.safetensors"):
        file.unlink()
    torch.save(
        {"embeddings.word_embeddings.weight": Runs(folder / "ran")}, folder / "pytorch_model.bin"
    )
    with pytest.raises(Exception):  # noqa: B017  torch's refusal has no class of its own
        load_bert(str(folder))
    unsafe = {"weights_only": False}
    with pytest.raises(Exception):  # noqa: B017
        pretrained.load(AutoModelForMaskedLM, str(folder), **unsafe)
    assert not (folder / "ran").exists()


def test_no_caller_can_ask_for_less_care(folder: Path) -> None:
    asked: dict[str, object] = {}

    class Model(torch.nn.Module):
        base_model_prefix = "bert"

        @classmethod
        def from_pretrained(cls, place: str, **options: object) -> tuple[Any, dict[str, Any]]:
            asked.update({"place": place, **options})
            return cls(), {"unexpected_keys": []}

    unsafe = {"weights_only": False}
    assert isinstance(pretrained.load(Model, str(folder), **unsafe), Model)
    assert asked == {
        "place": str(folder),
        "weights_only": True,
        "output_loading_info": True,
        "trust_remote_code": False,
        "local_files_only": True,
    }
    for name in ("trust_remote_code", "local_files_only"):
        with pytest.raises(TypeError):
            pretrained.load(Model, str(folder), **{name: True})


def test_one_function_calls_from_pretrained() -> None:
    files = [
        p
        for room in ROOMS
        for p in (ROOT / room).rglob("*.py")
        if p != ROOT / "datamodules" / "pretrained.py"
    ]
    other = (
        r"\.from_pretrained\((?!\"<this"
        r" folder>)|hf_hub_download|snapshot_download|torch\.hub|\bpipeline\(\s*[\"']"
    )
    assert [
        f"{p.relative_to(ROOT)}: {m[0]}" for p in files for m in re.finditer(other, p.read_text())
    ] == []
    assert (ROOT / "datamodules" / "pretrained.py").read_text().count(".from_pretrained(") == 1


# hub models


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of the hub, which is not reachable."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    pretrained.hub_folder.cache_clear()
    yield cache
    pretrained.hub_folder.cache_clear()


def publish(cache: Path, name: str, commit: str, source: Path) -> Path:
    """What a download of `name` leaves in the cache."""
    place = cache / f"models--{name.replace('/', '--')}"
    shutil.copytree(source, place / "snapshots" / commit, dirs_exist_ok=True)
    (place / "refs").mkdir(exist_ok=True)
    (place / "refs" / "main").write_text(commit)
    pretrained.hub_folder.cache_clear()
    pretrained._hub_identity.cache_clear()
    return place / "snapshots" / commit


def test_a_hub_models_identity_is_its_commit_and_its_files(
    hub: Path, folder: Path, tmp_path: Path
) -> None:
    first = publish(hub, "lab/bert", "a" * 40, folder)
    chosen = encoder("lab/bert")
    identities = [chosen.identity]
    assert "a" * 40 in chosen.identity and "lab" not in chosen.identity
    # the files count, whatever the commit says
    (first / "config.json").write_text((first / "config.json").read_text() + " ")
    pretrained._hub_identity.cache_clear()
    identities.append(encoder("lab/bert").identity)
    other = Path(bert.write(tmp_path / "other", ["renal", "failure", "gout", "fever"]))
    publish(hub, "lab/bert", "b" * 40, other)
    identities.append(encoder("lab/bert").identity)
    publish(hub, "lab/bert", "c" * 40, other)
    identities.append(encoder("lab/bert").identity)
    assert len(set(identities)) == 4
    publish(hub, "lab/renamed", "c" * 40, other)
    assert encoder("lab/renamed").identity == identities[-1]


def test_new_weights_on_the_hub_have_an_index_of_their_own(
    hub: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    names = [("1", "gout", "exact", "en"), ("2", "renal failure", "exact", "en")]
    known = str(
        graph({"1": "disease", "2": "disease"}, [("1", "near", "2")], names).save(
            tmp_path / "graph"
        )
    )
    found = []
    for commit, seed in (("a" * 40, 0), ("b" * 40, 1)):
        weights = bert.write(tmp_path / f"bert{seed}", ["renal", "failure", "gout"], seed=seed)
        publish(hub, "lab/bert", commit, weights)
        pipeline = Pipeline(known, "dictionary > lab/bert")
        pipeline.prepare()
        found.append(
            (
                pipeline.identities["lab/bert"],
                {p.name for p in (tmp_path / "runs" / "linking" / "index").iterdir()},
            )
        )
    assert found[0][0] != found[1][0] and found[0][1] < found[1][1]


def test_a_run_is_named_by_the_files_that_it_starts_from(hub: Path, folder: Path) -> None:
    def key(name: str) -> object:
        return content(
            {"model": {"init_args": {"encoder": name}}, "data": {"init_args": {"tokenizer": name}}}
        )

    publish(hub, "lab/bert", "a" * 40, folder)
    before = key("lab/bert"), key(str(folder))
    config = {
        "model": {"init_args": {"encoder": "lab/bert", "lr": 0.1}},
        "data": {"init_args": {"tokenizer": "minilm"}},
    }
    assert model_identities(config) == {
        "model.init_args.encoder": encoder("lab/bert").identity,
        "data.init_args.tokenizer": encoder("minilm").identity,
    }
    publish(hub, "lab/bert", "b" * 40, folder)
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert (
        key("lab/bert") != before[0]
        and key(str(folder)) != before[1]
        and key("minilm") == key("minilm")
    )


def test_a_config_with_a_value_that_transformers_refuses(tmp_path: Path) -> None:
    folder = bert.write(tmp_path / "bert", ["gout"])
    file = folder / "config.json"
    file.write_text(file.read_text().replace('"hidden_size": 32', '"hidden_size": "wide"'))
    with pytest.raises(InputError, match="has a value that transformers refuses"):
        pretrained.load(AutoConfig, str(folder))


def test_weights_that_are_no_numbers_are_refused(folder: Path) -> None:
    """A name with such a vector would be nearest to everything, or to nothing."""
    model = AutoModelForMaskedLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_input_embeddings().weight[2, 1] = float("nan")
    model.save_pretrained(folder)
    for load in (load_bert, masked_lm):
        with pytest.raises(InputError, match="1 of .* weights of .* are no finite numbers"):
            load(str(folder))


def test_what_is_wrong_with_other_transformers_is_said_as_it_is(tmp_path: Path) -> None:
    """Not that transformers makes no encoder of them."""
    config = DistilBertConfig(vocab_size=30, dim=8, n_heads=2, n_layers=2, hidden_dim=8)
    model = DistilBertModel(config)
    model.save_pretrained(tmp_path)
    fewer = read_json(tmp_path / "config.json") | {"n_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(fewer))
    with pytest.raises(InputError, match=r"^model .*tensors of layers that its config\.json does"):
        load_transformer(str(tmp_path))
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[3] = float("inf")
    model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="^model .*8 of 240 weights of .* are no finite numbers"):
        load_transformer(str(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="^model .*no weights that are read here"):
        load_transformer(str(tmp_path))


def test_a_model_without_weights_that_are_read_here(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.onnx").write_bytes(b"")
    with pytest.raises(InputError, match=r"no weights that are read here.*model\.onnx is for"):
        pretrained.load(AutoModelForMaskedLM, str(folder))


def test_layers_that_the_config_does_not_have_are_not_left_out(tmp_path: Path) -> None:
    folder = Path(bert.write(tmp_path / "bert", ["gout"], layers=2))
    config = read_json(folder / "config.json")
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    for load in (load_bert, masked_lm):
        with pytest.raises(InputError, match=r"tensors of layers that its.*encoder\.layer\.1\."):
            load(str(folder))
