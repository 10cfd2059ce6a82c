"""Released checkpoints in the authors' layouts, made into exports that commands load by folder."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoTokenizer

from core.dotted import import_object
from core.files import InputError
from core.json_files import read_json
from datamodules.genbioel.inputs import Inputs
from experiments.names import encoder
from experiments.released import make_export, recipes
from models.genbioel import GenBioELModel
from models.kebiolm import KeBioLM, KeBioLMEncoder
from models.kebiolm import masked_lm as kebiolm_masked_lm
from models.kebiolm.released import RELEASED_HEAD
from models.sapbert import SapBERTEncoder
from tests.fakes import genbioel, kebiolm, sapbert
from tests.models.test_kebiolm import first_batch, module, released_layout


def checkpoint(
    fake: kebiolm.Folders, folder: Path, config: bool = True
) -> tuple[KeBioLM, dict[str, torch.Tensor]]:
    """KeBioLM's release: weights with a pickle, a vocabulary, entities."""
    torch.manual_seed(3)
    source = module(fake, compat="released").eval()
    assert source.encoder is not None
    nn.init.normal_(source.encoder.norm.weight)
    for p in source.head.parameters():
        nn.init.normal_(p)
    state = released_layout(source.encoder)
    head = {new: old for old, new in RELEASED_HEAD.items()}
    for name, tensor in source.head.state_dict().items():
        new = next(n for n in head if name.startswith(n))
        state[head[new] + name.removeprefix(new)] = tensor.clone()
    state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"]
    folder.mkdir()
    torch.save(state, folder / "pytorch_model.bin")
    tokenizer = AutoTokenizer.from_pretrained(fake.bert)
    words = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in words))
    names = [f"C{row:07}" for row in range(len(source.encoder.entity))]
    rows = [json.dumps({"id": i, "entity_name": name}) for i, name in enumerate(names)]
    (folder / "entity.jsonl").write_text("\n".join(reversed(rows)) + "\n")
    if config:
        own = source.encoder.bert.config
        given = {
            "num_attention_heads": own.num_attention_heads,
            "max_candidate_entities": 7,
            "max_mentions": 50,
        }
        (folder / "config.json").write_text(
            json.dumps(given | {"layer_norm_eps": own.layer_norm_eps})
        )
    return source, state


def test_kebiolms_release_is_what_it_was(fake_kebiolm: kebiolm.Folders, tmp_path: Path) -> None:
    source, _ = checkpoint(fake_kebiolm, tmp_path / "release")
    out = make_export("kebiolm", str(tmp_path / "release"), tmp_path / "export")
    found = encoder(str(out))
    assert found.paper == "kebiolm" and found.load == "models.kebiolm.KeBioLMEncoder.from_export"
    made, batch = KeBioLMEncoder.from_export(found.folder).eval(), first_batch(fake_kebiolm)
    assert source.encoder is not None
    expected = source.encoder(batch.input_ids, batch.attention_mask)
    torch.testing.assert_close(made(batch.input_ids, batch.attention_mask), expected)
    filler = kebiolm_masked_lm(out)
    words = source.encoder.bert.embeddings.word_embeddings.weight
    with torch.no_grad():
        torch.testing.assert_close(filler.logits(expected[0]), source.head(expected[0], words))
    assert (out / "entities.txt").read_text().split()[:2] == ["C0000000", "C0000001"]
    both = [AutoTokenizer.from_pretrained(folder) for folder in (out, fake_kebiolm.bert)]
    ids = [
        tokenizer("Seizure in 2 rats.", add_special_tokens=False)["input_ids"] for tokenizer in both
    ]
    # [CLS] is before it
    assert ids[0] == ids[1] and AutoTokenizer.from_pretrained(out)("a")["input_ids"][0] == 2
    manifest = read_json(out / "manifest.json")
    assert manifest["stem"] == "released" and "pytorch_model.bin" in manifest["files"]
    again = read_json(
        make_export("kebiolm", str(tmp_path / "release"), tmp_path / "again") / "manifest.json"
    )
    assert (
        manifest["identity"] == again["identity"] and "kebiolm.safetensors" in manifest["checksums"]
    )


def test_without_a_config_the_weights_say_the_sizes(
    fake_kebiolm: kebiolm.Folders, tmp_path: Path
) -> None:
    source, _ = checkpoint(fake_kebiolm, tmp_path / "release", config=False)
    made = KeBioLMEncoder.from_export(
        make_export("kebiolm", str(tmp_path / "release"), tmp_path / "export")
    )
    assert source.encoder is not None
    for name, value in source.encoder.state_dict().items():
        assert torch.equal(made.state_dict()[name], value), name
    assert (
        made.text_layers == source.encoder.text_layers
        and made.max_mentions == 15
        and made.candidates == 100
    )


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, (str(Harmful.path), "w"))

    path: Path


def test_what_is_no_release_is_refused(fake_kebiolm: kebiolm.Folders, tmp_path: Path) -> None:
    _, state = checkpoint(fake_kebiolm, tmp_path / "release")
    source, out = tmp_path / "release", tmp_path / "export"
    with pytest.raises(InputError, match=r"no setting 'pooling' of kebiolm; choose from: graph"):
        make_export("kebiolm", str(source), out, pooling="cls")
    with pytest.raises(
        InputError, match="no released checkpoint of 'embert' is known; .*hoose from: "
    ):
        make_export("embert", str(source), out)
    with pytest.raises(InputError, match="no such folder. Fetch the checkpoint first"):
        make_export("kebiolm", "someone/model", out)
    (source / "entity.jsonl").write_text(
        '{"id": 0, "entity_name": "a"}\n{"id": 0, "entity_name": "b"}\n'
    )
    with pytest.raises(InputError, match=r"entity\.jsonl:2: expected a row that no other line has"):
        make_export("kebiolm", str(source), out)
    (source / "entity.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"entity\.jsonl:1: expected"):
        make_export("kebiolm", str(source), out)
    torch.save(
        {k: v for k, v in state.items() if "mention_detector" not in k},
        source / "pytorch_model.bin",
    )
    with pytest.raises(InputError, match="missing .*detector"):
        make_export("kebiolm", str(source), out)
    torch.save({"a": torch.zeros(1)}, source / "pytorch_model.bin")
    with pytest.raises(InputError, match="not KeBioLM's released checkpoint"):
        make_export("kebiolm", str(source), out)
    Harmful.path = tmp_path / "executed"
    with open(source / "pytorch_model.bin", "wb") as handle:
        pickle.dump(Harmful(), handle)
    with pytest.raises(InputError, match="cannot be read as weights"):
        make_export("kebiolm", str(source), out)
    assert not Harmful.path.exists() and not out.exists()


def test_sapberts_and_genbioels_releases_are_plain_folders(
    fake_sapbert: sapbert.Folders, fake_genbioel: genbioel.Folders, tmp_path: Path
) -> None:
    made = make_export("sapbert", str(fake_sapbert.bert), tmp_path / "sapbert", pooling="mean")
    assert (
        encoder(str(made)).paper == "sapbert" and SapBERTEncoder.from_export(made).pooling == "mean"
    )
    with pytest.raises(InputError, match="pooling 'max': expected one of cls, mean"):
        make_export("sapbert", str(fake_sapbert.bert), tmp_path / "other", pooling="max")
    made = make_export("genbioel", str(fake_genbioel.bart), tmp_path / "genbioel", prompt="no")
    assert encoder(str(made)).paper == "genbioel" and not Inputs.from_export(made).prompted
    assert GenBioELModel.from_export(made).hidden_size > 0


def test_every_recipe_names_existing_functions() -> None:
    assert set(recipes()) == {"genbioel", "kebiolm", "sapbert"}
    for parts in recipes().values():
        for room, name in parts.items():
            assert callable(import_object(name, {"model": "models", "data": "datamodules"}[room]))
