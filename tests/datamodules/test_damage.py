"""What a training reads is verified against the checksums of its manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.files import InputError
from datamodules.genbioel.inputs import Inputs
from datamodules.genbioel.samples import GraphSamples
from datamodules.linking import load_linking
from datamodules.sapbert.name_pairs import Pairs
from datamodules.tasks import load_task
from datamodules.tokenizers import load_tokenizer
from tests.fakes import genbioel, sapbert, tasks


def opened(what: str, folder: Path, bart: str) -> Callable[[], Any]:
    """What opens `folder` as a training would."""
    if what == "samples":
        inputs = Inputs(load_tokenizer(bart), max_length=96, max_mention=24, max_name=32)
        return lambda: GraphSamples(folder, inputs)
    return {
        "pairs": lambda: Pairs(folder),
        "task": lambda: load_task(folder),
        "linking": lambda: load_linking(folder),
    }[what]


@pytest.mark.parametrize("what", ["pairs", "samples", "task", "linking"])
def test_one_bit_of_any_file_is_noticed(
    what: str, fake_sapbert: sapbert.Folders, fake_genbioel: genbioel.Folders, tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    if what in ("pairs", "samples"):
        shutil.copytree(fake_sapbert.pairs if what == "pairs" else fake_genbioel.samples, folder)
    else:
        tasks.write(folder, "ner") if what == "task" else genbioel.task(folder)
    read = opened(what, folder, fake_genbioel.tokenizer)
    read()
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "manifest.json")
    assert len(files) > 1
    for file in files:
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(
            InputError, match=rf"{file.name}: missing, or not the file its manifest describes"
        ):
            read()
        file.write_bytes(whole)
    read()
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(
        json.dumps({k: v for k, v in manifest.items() if k != "sha256"})
    )
    with pytest.raises(
        InputError,
        match=r"manifest\.json: (expected checksums|no (linking )?task|expected an object)",
    ):
        read()


@pytest.mark.parametrize(
    "sums",
    [
        {"9" * 4000: "00"},
        {"dev": {}},
        {"dev": None},
        [],
        {"../../etc/passwd": "00"},
        {"a\0b": "00"},
    ],
)
def test_odd_names_and_sums_are_one_error(sums: Any, tmp_path: Path) -> None:
    tasks.write(tmp_path / "t", "ner")
    manifest = json.loads((tmp_path / "t" / "manifest.json").read_text())
    (tmp_path / "t" / "manifest.json").write_text(json.dumps(manifest | {"sha256": sums}))
    with pytest.raises(
        InputError,
        match="missing, or not the file|expected checksums|expected an object under sha256",
    ):
        load_task(tmp_path / "t")
