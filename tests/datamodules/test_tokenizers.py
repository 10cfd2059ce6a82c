from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from datamodules import tokenizers
from datamodules.tokenizers import (
    load_tokenizer,
    token_rows,
    token_rows_in_parts,
    token_spans,
    tokenizer_fingerprint,
)
from tests.fakes import bert


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=12), st.data()
)
def test_token_spans_equal_brute_force(pieces: list[tuple[int, int]], draw: st.DataObject) -> None:
    offsets, at = [], 0
    for gap, size in pieces:
        offsets.append((at + gap, at + gap + size))
        at += gap + size
    start = draw.draw(st.integers(0, at - 1))
    end = draw.draw(st.integers(start + 1, at))
    inside = [
        i for i, (a, b) in enumerate(offsets) if a < end and b > start
    ]  # tokens that share a character with the span
    got = token_spans(np.array(offsets), np.array([[start, end]]))[0]
    assert got[1] - got[0] == len(inside)
    if inside:
        assert got.tolist() == [inside[0], inside[-1] + 1]


def test_mentions_fall_on_their_word_pieces(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(bert.write(tmp_path / "b", ["renal", "failure", "mild"])))
    text = "Mild renal failure, zebra"
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    spans = np.array([(text.index(w), text.index(w) + len(w)) for w in ("renal failure", "zebra")])
    tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    got = [tokens[a:b] for a, b in token_spans(np.array(encoded["offset_mapping"]), spans)]
    assert got == [["renal", "failure"], ["z", "##e", "##b", "##r", "##a"]]


def test_fingerprint_sees_vocabulary_not_padding(tmp_path: Path) -> None:
    one = load_tokenizer(str(bert.write(tmp_path / "a", ["renal"])))
    before = tokenizer_fingerprint(one)
    one(["renal", "renal renal"], padding=True, truncation=True, max_length=3)
    assert tokenizer_fingerprint(one) == before
    assert (
        tokenizer_fingerprint(load_tokenizer(str(bert.write(tmp_path / "b", ["renal", "mild"]))))
        != before
    )


def test_a_tokenizer_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'nowhere/model': neither a folder nor a model"):
        load_tokenizer("nowhere/model")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="folder without a tokenizer"):
        load_tokenizer(str(tmp_path / "empty"))


def flip(file: Path) -> None:
    """Damage one byte; the size stays."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("workers", [1, 3])
def test_tokens_in_parts_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Also of a run that was stopped: existing parts are not made again."""
    tokenizer = load_tokenizer("minilm")
    texts = pa.array(
        [f"renal failure {i} of {'kidneys ' * (i % 5)}" if i % 7 else "" for i in range(103)]
    )
    wanted = token_rows(texts, tokenizer, "not ")
    write = tokenizers._write_part
    made: list[str] = []

    def stops(begun: Any, task: Any, path: Path, **more: Any) -> dict[str, int]:
        made.append(path.name)
        if len(made) == 3:
            raise KeyboardInterrupt
        return write(begun, task, path, **more)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(tokenizers, "_write_part", stops)
        token_rows_in_parts(texts, tokenizer, tmp_path / "parts", {"of": 1}, "not ", part=20)
    found = token_rows_in_parts(
        texts, tokenizer, tmp_path / "parts", {"of": 1}, "not ", part=20, workers=workers
    )
    assert all(
        np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(found, wanted, strict=True)
    )
    (tmp_path / "parts" / "texts.parquet").unlink()  # read where parts are made
    again = token_rows_in_parts(texts, tokenizer, tmp_path / "parts", {"of": 1}, "not ", part=20)
    assert np.array_equal(again[0], wanted[0])
    with pytest.raises(InputError, match=r"begun with other settings \(of\). Add --fresh"):
        token_rows_in_parts(texts, tokenizer, tmp_path / "parts", {"of": 2}, "not ", part=20)
    flip(tmp_path / "parts" / "part-00001.npy")
    with pytest.raises(InputError, match=r"part-00001\.npy.*Remove"):
        token_rows_in_parts(texts, tokenizer, tmp_path / "parts", {"of": 1}, "not ", part=20)
    none = token_rows_in_parts(texts[:0], tokenizer, tmp_path / "none", {})
    assert [len(array) for array in none] == [0, 1]


@pytest.mark.parametrize(("words", "cased"), [(["Gout", "ache", "Renal"], True), (["gout"], False)])
def test_a_cased_vocabulary_without_settings_is_warned_of(
    words: list[str], cased: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*bert.SPECIAL, *words]))
    (folder / "config.json").write_text('{"model_type": "bert"}')
    assert load_tokenizer(str(folder)).tokenize("gout")
    assert ("have capital letters, but texts are lowercased" in caplog.text) == cased
    load_tokenizer(str(folder))
    assert caplog.text.count("capital letters") == cased
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load_tokenizer(str(folder)).tokenize("Gout") == (["Gout"] if cased else ["[UNK]"])
