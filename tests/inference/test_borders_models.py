"""Models of other people, as their folders come: damaged, incomplete, of parts that do not fit."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForTokenClassification,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
)

from app.cli import main
from core.artifact import write_manifest
from core.files import InputError
from datamodules.pretrained import files_identity
from experiments.names import encoder
from inference.classifiers import load_token_classifier
from inference.encoders import Embedder, embedder
from inference.options import LinkerOptions
from tests.fakes import bert

WORDS = ["renal", "failure", "gout"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bert.write(tmp_path / "bert", WORDS, layers=1, length=32)


def embed(folder: Path, **options: int) -> Embedder:
    return embedder(encoder(str(folder)), LinkerOptions(**options))  # type: ignore[arg-type]


def edit_config(folder: Path, **settings: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:200])


def pickle_an_object(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Path("x")))


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (cut, "its weights cannot be read"),
        (pickle_an_object, "its weights cannot be read"),
        (lambda folder: edit_config(folder, hidden_size=64), "of other shapes than its config"),
        (lambda folder: (folder / "config.json").write_text("[]"), "expected an object"),
        (lambda folder: edit_config(folder, vocab_size=3), "of other shapes than its config"),
    ],
)
def test_a_damaged_model_is_named(
    folder: Path, break_it: Callable[[Path], object], said: str
) -> None:
    break_it(folder)
    with pytest.raises(InputError, match=said):
        embed(folder)


def test_a_tokenizer_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    larger = bert.write(tmp_path / "larger", [*WORDS, "heart", "attack"], layers=1, length=32)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        if (larger / name).is_file():
            shutil.copyfile(larger / name, folder / name)
    with pytest.raises(
        InputError, match=r"its tokenizer has ids up to \d+, its weights \d+ vector"
    ):
        embed(folder)


def test_a_length_above_the_positions_is_refused_or_capped(folder: Path) -> None:
    with pytest.raises(InputError, match="--max-length 200: the model has positions for 32 tokens"):
        embed(folder, max_length=200)
    (folder / "modules.json").write_text('[{"type": "Transformer", "path": ""}]')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 500}')
    assert embed(folder).max_length == 32
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": "abc"}')
    with pytest.raises(InputError, match="max_seq_length 'abc': expected a number"):
        embed(folder)


@pytest.mark.parametrize("steps", ["{}", '[{"idx": 0}]', "[1]"])
def test_damaged_steps_of_sentence_transformers_are_named(folder: Path, steps: str) -> None:
    (folder / "modules.json").write_text(steps)
    with pytest.raises(InputError, match=r"modules\.json: expected a list of steps with type"):
        embed(folder)


def test_texts_are_read_in_lower_case_where_the_files_say_so(folder: Path) -> None:
    (folder / "modules.json").write_text('[{"type": "Transformer", "path": ""}]')
    tokenizer = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(
        tokenizer.replace('"lowercase": true', '"lowercase": false')
    )
    assert not torch.equal(*embed(folder)(["gout", "GOUT"]))
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    lower, upper = embed(folder)(["gout", "GOUT"])
    assert torch.equal(lower, upper)


def test_a_model_trained_again_to_the_same_bytes_is_the_same_model(folder: Path) -> None:
    identities = []
    for run, labels in (("a", ["X"]), ("b", ["X"]), ("b", ["Y"])):
        write_manifest(folder, {"labels": labels, "mlflow_run": run, "commit": run})
        identities.append(files_identity(folder))
    assert identities[0] == identities[1] != identities[2]


def test_layers_after_the_encoder_and_sentencepiece_are_part_of_a_model(folder: Path) -> None:
    steps = [{"type": "x.Transformer", "path": ""}, {"type": "x.Dense", "path": "2_Dense"}]
    (folder / "modules.json").write_text(json.dumps(steps))
    dense = folder / "2_Dense"
    dense.mkdir()
    config = {"in_features": 32, "out_features": 4}
    (dense / "config.json").write_text(json.dumps(config))
    seen = {files_identity(folder)}
    for value in (0.0, 1.0):
        weights = {"linear.weight": torch.full((4, 32), value), "linear.bias": torch.zeros(4)}
        save_file(weights, dense / "model.safetensors")
        seen.add(files_identity(folder))
    (folder / "spiece.model").write_bytes(b"a")
    seen.add(files_identity(folder))
    (folder / "spiece.model").write_bytes(b"b")
    assert len(seen | {files_identity(folder)}) == 5
    (dense / "config.json").write_text("{}")
    with pytest.raises(InputError, match="expected in_features and out_features"):
        embed(folder)
    (dense / "config.json").write_text(json.dumps(config | {"out_features": 5}))
    with pytest.raises(InputError, match="2_Dense: its weights are of other shapes"):
        embed(folder)


def test_a_token_classifier_without_its_head_is_refused(folder: Path) -> None:
    config = AutoConfig.from_pretrained(folder, id2label={0: "O", 1: "B-X"}, label2id=None)
    AutoModelForTokenClassification.from_config(config).save_pretrained(folder)
    assert load_token_classifier(str(folder)).labels == ["X"]
    weights = load_file(folder / "model.safetensors")
    for change in (
        lambda name: None if name.startswith("classifier") else name,
        lambda name: f"module.{name}",
    ):
        changed = {new: value for name, value in weights.items() if (new := change(name))}
        save_file(changed, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(InputError, match="its weights lack .* would be random"):
            load_token_classifier(str(folder))


def test_a_copy_of_a_model_deletes_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    assert main(["import", "model", str(folder), "--out", str(mine)]) == 2
    assert "it is left alone" in capsys.readouterr().err
    assert (mine / "notes.txt").read_text() == "mine"
    assert main(["import", "model", str(folder), "--out", str(folder / "sub")]) == 2
    assert not (folder / "sub").exists()
    assert main(["import", "model", str(folder), "--out", str(tmp_path / "copy")]) == 0
    assert main(["import", "model", str(folder), "--out", str(tmp_path / "copy")]) == 0
    assert "kept" in capsys.readouterr().out


def test_embed_takes_a_text_or_a_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["embed", "--model", str(folder), "--json", "--text", "gout", "--input"]
    assert main([*words, str(tmp_path / "none.txt")]) == 2
    assert "--text or --input FILE: expected one of the two" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("adapter_config.json", "an adapter of PEFT: merge it"),
        ("0_Transformer/config.json", "an older layout of sentence-transformers"),
        ("last.ckpt", "a checkpoint of Lightning"),
        ("notes.txt", "without config.json; expected an export"),
    ],
)
def test_a_folder_that_is_no_model_is_named_by_what_it_is(
    tmp_path: Path, file: str, said: str
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("{}")
    with pytest.raises(InputError, match=said):
        encoder(str(tmp_path))


def test_a_missing_folder_of_runs_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sync", str(tmp_path / "none")]) == 2
    assert "none: no such folder" in capsys.readouterr().err


def test_a_model_of_relative_positions_takes_any_length(tmp_path: Path) -> None:
    names = {"renal": 2, "failure": 3, "[PAD]": 0, "[UNK]": 1}
    backend = Tokenizer(models.WordLevel(names, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(tmp_path)
    config = T5Config(vocab_size=4, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    T5EncoderModel(config).save_pretrained(tmp_path)
    assert embed(tmp_path, max_length=900).max_length == 900
