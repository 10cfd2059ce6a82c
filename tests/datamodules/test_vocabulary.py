"""The Chinese character vocabulary: nothing it was made from is unknown, and AutoTokenizer loads it
whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from core.files import InputError
from core.json_files import read_json
from datamodules import vocabulary
from datamodules.tokenizers import load_tokenizer, tokenizer_fingerprint
from kg.build.sources import cmekg
from kg.graph import KnowledgeGraph
from tests.fakes.mlm import Folders


def test_autotokenizer_loads_all_of_it(fake_mlm: Folders) -> None:
    loaded = AutoTokenizer.from_pretrained(fake_mlm.vocabulary)
    manifest = read_json(Path(fake_mlm.vocabulary) / "manifest.json")
    assert loaded.is_fast and len(loaded) == manifest["tokens"] > 21_000
    assert loaded.convert_ids_to_tokens([0, 1, 2, 3, 4, 5, 104]) == [
        *vocabulary.SPECIAL,
        "[unused0]",
        "[unused99]",
    ]
    assert tokenizer_fingerprint(load_tokenizer(fake_mlm.vocabulary)) == manifest["fingerprint"]
    assert loaded.convert_ids_to_tokens(loaded("肺炎Ⅱ", "10℃").input_ids) == (
        "[CLS] 肺 炎 ⅱ [SEP] 1 ##0 ##℃ [SEP]".split()
    )
    assert loaded("肺", "炎").token_type_ids == [0, 0, 0, 1, 1]
    assert loaded.tokenize("[MASK]A，B") == ["[MASK]", "a", "，", "b"]


def test_nothing_of_graph_and_texts_is_unknown(fake_mlm: Folders) -> None:
    made = load_tokenizer(fake_mlm.vocabulary)
    names = KnowledgeGraph.load(fake_mlm.graph).names["name"].to_pylist()
    texts = [json.loads(line)["text"] for line in Path(fake_mlm.texts).read_text().splitlines()]
    assert unknown_share(made, names + texts) == 0
    assert unknown_share(made, ["한국어 肺"]) == pytest.approx(1 / 2)
    every = "".join(map(chr, range(0x4E00, 0xA000)))
    assert unknown_share(made, [every]) == 0


def unknown_share(made: PreTrainedTokenizerFast, texts: Iterable[str]) -> float:
    """The share of [UNK] among the texts' tokens."""
    tokens = unknown = 0
    for text in texts:
        ids = made(text, add_special_tokens=False, verbose=False)["input_ids"]
        tokens, unknown = tokens + len(ids), unknown + ids.count(made.unk_token_id)
    return unknown / max(1, tokens)


@pytest.mark.slow
def test_nothing_of_the_real_graph_is_unknown() -> None:
    said = list({name for _, kind, name in cmekg.texts() if kind.startswith("phrase")})
    made = vocabulary.tokenizer(vocabulary.vocabulary(said))
    assert unknown_share(made, said) == 0


def test_characters_of_texts_come_in_when_they_are_frequent() -> None:
    rare, frequent = "ㄱ" * (vocabulary.RARE - 1), "ㄴ" * vocabulary.RARE
    tokens = vocabulary.vocabulary(["肺"], [rare, frequent])
    assert "ㄱ" not in tokens and {"ㄴ", "##ㄴ"} <= set(tokens)
    assert "肺" in tokens and "##肺" not in tokens and "##，" not in tokens


def test_word_pieces_are_frequent_and_always_the_same() -> None:
    words = Counter({"tablets": 50, "capsules": 50, "injection": 30, "xq": 1})
    pieces = vocabulary.word_pieces(words, 40)
    assert (
        {"tablets", "capsules", "injection"} <= set(pieces)
        and "xq" not in pieces
        and len(pieces) <= 40
    )
    assert (
        pieces == vocabulary.word_pieces(words, 40) and vocabulary.word_pieces(Counter(), 40) == []
    )


def test_the_same_recipe_is_kept_and_other_folders_are_left_alone(
    fake_mlm: Folders, tmp_path: Path
) -> None:
    manifest = Path(fake_mlm.vocabulary) / "manifest.json"
    before = manifest.stat().st_ino
    vocabulary.build_vocabulary(fake_mlm.graph, [fake_mlm.texts], fake_mlm.vocabulary)
    assert manifest.stat().st_ino == before
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="it is left alone"):
        vocabulary.build_vocabulary(fake_mlm.graph, [], str(tmp_path))
    with pytest.raises(InputError, match=r"none\.txt: no such file"):
        vocabulary.build_vocabulary(fake_mlm.graph, ["none.txt"], str(tmp_path / "v"))
