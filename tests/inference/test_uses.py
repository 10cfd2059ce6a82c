"""What a model says that it uses of the options is what its maker reads."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from experiments.names import Encoder, encoder
from inference import encoders, entity_table, generator
from inference.options import LinkerOptions, UnusedOptions, check_uses
from tests.fakes.kebiolm import Folders

FIELDS = {field.name for field in fields(LinkerOptions)}


class Recorded(LinkerOptions):
    """Options that note which of them were read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        object.__setattr__(self, "read", set())

    def __getattribute__(self, name: str) -> Any:
        if name in FIELDS and "read" in object.__getattribute__(self, "__dict__"):
            object.__getattribute__(self, "read").add(name)
        return object.__getattribute__(self, name)


def test_an_encoder_of_names(fake_kebiolm: Folders) -> None:
    options = Recorded()
    made = encoders.embedder(encoder(str(fake_kebiolm.bert)), options)
    assert options.read == made.uses  # type: ignore[attr-defined]


def test_an_encoder_of_entities(
    monkeypatch: pytest.MonkeyPatch, fake_kebiolm: Folders, tmp_path: Path
) -> None:
    chosen = encoder(str(fake_kebiolm.bert))
    monkeypatch.setattr(entity_table, "table_of", lambda folder: ([], {}))
    monkeypatch.setattr(entity_table.EntityReader, "__init__", lambda self, *given: None)
    options = Recorded()
    made = entity_table.entity_linker(chosen, options)
    assert options.read == made.uses  # type: ignore[attr-defined]
    by_names = entity_table.entity_linker(chosen, LinkerOptions(by="names"))
    assert by_names.uses == encoders.USES | {"by"}


def test_a_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SimpleNamespace(bart=torch.nn.Identity())
    monkeypatch.setattr(generator, "import_object", lambda *_: lambda folder: model)
    monkeypatch.setattr(generator.Inputs, "from_export", lambda folder: None)
    options = Recorded()
    chosen = Encoder("x", "x", "models.genbioel:load", None, "w", {}, "genbioel")
    made = generator.generator(chosen, options)
    assert options.read == made.uses  # type: ignore[attr-defined]


def test_what_is_not_used_names_where_it_belongs() -> None:
    with pytest.raises(UnusedOptions, match=r"--by: a cat .* belongs to an encoder of entities"):
        check_uses(["by", "device"], frozenset({"device"}), "a cat")
    check_uses(["device"], frozenset({"device"}), "a cat")
