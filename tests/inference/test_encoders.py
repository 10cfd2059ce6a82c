"""Names of a dictionary into an index: in parts, by one process or several, stopped and resumed, to
the same bytes."""

from __future__ import annotations

import copy
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load

from core.files import InputError
from core.json_files import read_json
from datamodules.linking import Dictionary
from datamodules.tokenizers import load_tokenizer
from experiments.names import encoder
from inference import encoders
from inference.commands import encode_vectors
from inference.encoders import Embedder, Encoded, index_made_of, make_nearest_linker
from inference.linkers import Names
from inference.options import LinkerOptions, Work
from models.encoders import TextEncoder
from tests.fakes import bert

WORDS = ["heart", "attack", "renal", "failure", "fever", "acute", "lesion", "tumor"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(bert.write(tmp_path_factory.mktemp("bert"), WORDS, dropout=0.0))


@pytest.fixture
def names() -> Names:
    strings = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in ("", "fever", "of the heart")]
    return Names(Dictionary([f"C{n}" for n in range(len(strings))], strings), "lower")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "PART", 50)


class Stops(Embedder):
    """Stops after so many calls."""

    after = -1

    def __call__(self, names: Sequence[str]) -> torch.Tensor:
        if self.after == 0:
            raise KeyboardInterrupt
        self.after -= 1
        return super().__call__(names)


def embedder(folder: Path, kind: type[Embedder] = Embedder, **options: Any) -> Any:
    chosen = LinkerOptions(**options)
    return kind(TextEncoder(str(folder)), load_tokenizer(str(folder)), "tiny", chosen)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_makes_the_same_index(
    tiny: Path, names: Names, tmp_path: Path, workers: int
) -> None:
    embed = embedder(tiny)
    linker = make_nearest_linker(names, embed, "torch", tmp_path / "i", Work(workers=workers))
    own = [embed(names.strings[at : at + 50]) for at in range(0, len(names.strings), 50)]
    assert len(own) == 4 and torch.equal(linker.index.vectors, torch.cat(own))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["i"]
    again = make_nearest_linker(names, embedder(tiny, Stops, index=None), "torch", tmp_path / "i")
    found = linker.link(["heart attack", "renal"], [None, None])
    assert again.link(["heart attack", "renal"], [None, None]) == found and found[0][
        0
    ].name.startswith("heart attack")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopped_run_resumes_to_the_same_bytes(
    tiny: Path, names: Names, tmp_path: Path, workers: int
) -> None:
    make_nearest_linker(names, embedder(tiny), "torch", tmp_path / "whole")
    stopped = embedder(tiny, Stops)
    stopped.after = 2
    with pytest.raises(KeyboardInterrupt):
        make_nearest_linker(names, stopped, "torch", tmp_path / "i")
    place = tmp_path / "i.parts"
    assert not (tmp_path / "i").exists() and len(list(place.glob("part-*.npy"))) == 2
    with pytest.raises(InputError, match=r"was begun with other settings \(pooling\)"):
        make_nearest_linker(names, embedder(tiny, pooling="mean"), "torch", tmp_path / "i")
    resumed = embedder(tiny, Stops)
    resumed.after = 2 if workers == 1 else -1  # what is there is not encoded again
    make_nearest_linker(names, resumed, "torch", tmp_path / "i", Work(workers=workers))
    assert files(tmp_path / "i") == files(tmp_path / "whole") and not place.exists()


def test_a_damaged_part_is_one_error(
    tiny: Path, names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        encoders,
        "write",
        lambda *given: pytest.fail("an index of damaged parts") if given[0] else None,
    )
    stopped = embedder(tiny, Stops)
    stopped.after = 3
    with pytest.raises(KeyboardInterrupt):
        make_nearest_linker(names, stopped, "torch", tmp_path / "i")
    part = tmp_path / "i.parts" / "part-00001.npy"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(
        InputError, match=r"part-00001\.npy: missing, or not the file.*rm -r .*i\.parts"
    ):
        make_nearest_linker(names, embedder(tiny), "torch", tmp_path / "i")


def test_a_small_dictionary_is_encoded_at_once(
    tiny: Path, names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoders, "PART", 500)
    linker = make_nearest_linker(names, embedder(tiny), "torch", tmp_path / "i")
    assert torch.equal(linker.index.vectors, embedder(tiny)(names.strings))
    fresh = Encoded(names, embedder(tiny))
    assert fresh.link(["renal fever"], [None]) == linker.link(["renal fever"], [None])


def test_another_backend_is_added_without_encoding_again(
    tiny: Path, names: Names, tmp_path: Path
) -> None:
    pytest.importorskip("faiss")
    make_nearest_linker(names, embedder(tiny), "auto", tmp_path / "i")
    assert read_json(tmp_path / "i/manifest.json")["backends"] == {}
    vectors = (tmp_path / "i/vectors.npy").read_bytes()
    query = embedder(tiny, Stops)
    query.after = 1
    linker = make_nearest_linker(names, query, "hnsw", tmp_path / "i")
    assert linker.index.backend == "hnsw" and (tmp_path / "i/vectors.npy").read_bytes() == vectors
    assert linker.link(["heart attack"], [None])[0][0].name.startswith("heart attack")
    assert read_json(tmp_path / "i/manifest.json")["backends"]["hnsw"]["recall@20"] > 0.5


def test_an_embedder_goes_to_other_machines_as_what_it_is_read_from(tiny: Path) -> None:
    made = encoders.embedder(encoder(str(tiny)), LinkerOptions(pooling="mean"))
    sent = pickle.dumps(made)
    assert len(sent) < 2000
    again = copy.copy(made)
    assert torch.equal(again(WORDS), made(WORDS)) and again.settings == made.settings
    assert np.allclose(made(WORDS), embedder(tiny, pooling="mean")(WORDS))


def test_what_works_is_checked(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, names: Names, tmp_path: Path
) -> None:
    monkeypatch.delenv("ENGINE", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(InputError, match="workers 0: expected at least 1"):
        Work(workers=0)
    with pytest.raises(
        InputError,
        match=(
            r"--workers 2: a GPU is used by one process\. Leave --workers out, or use --engine ray"
        ),
    ):
        Work(workers=2).settings("cuda:1")
    assert Work(workers=2, engine="ray").settings("cuda") == {
        "workers": 2,
        "engine": "ray",
        "gpus": 1,
    }
    assert (
        Work(workers=2).settings("cpu") == {"workers": 2, "engine": None, "gpus": 0}
        and Work().settings("cuda")["gpus"] == 1
    )
    asked: dict[str, Any] = {}

    def fake(self: Any, *given: Any, **more: Any) -> None:
        asked.update(more)
        raise InputError("enough")

    monkeypatch.setattr("core.executor.PartsFolder.map", fake)
    embed = embedder(tiny)
    embed.device = "cuda"
    with pytest.raises(InputError, match="enough"):
        make_nearest_linker(names, embed, "torch", tmp_path / "i", Work(workers=3, engine="ray"))
    assert (asked["workers"], asked["engine"], asked["gpus"]) == (3, "ray", 1)
    shutil.rmtree(tmp_path / "i.parts")
    assert index_made_of(names, embed)["encoder"] == "tiny"


@pytest.mark.parametrize("length", range(9))
def test_tensors_of_a_file_begin_at_a_multiple_of_eight_bytes(length: int) -> None:
    """As safetensors asks, whatever the length of the facts before them."""
    vectors = torch.arange(6.0).reshape(2, 3)
    content = encode_vectors(vectors, {"b": "x" * length, "a": "é"})
    header = int.from_bytes(content[:8], "little")
    assert header % 8 == 0 and len(content) == 8 + header + 4 * 6
    assert torch.equal(load(content)["vectors"], vectors)
