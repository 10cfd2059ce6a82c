"""Synthetic inputs: what the project's own readers find in them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import BertForMaskedLM

from benchmarks.perf import synthetic
from core.json_files import read_json, write_json
from datamodules.corpus import is_held_out
from datamodules.genbioel.inputs import Inputs
from datamodules.synonyms import samples
from datamodules.tokenizers import load_tokenizer
from kg.build.refine import refine_graph
from kg.build.sources import umls
from kg.documents.jsonlines import json_documents
from kg.graph import KnowledgeGraph
from models.genbioel import load_bart
from models.transformer_files import load_bert
from tests.commands import command

UMLS = {"concepts": 40_000, "names": 160_000, "relations": 400_000, "definitions": 3000}
SMALL = {"layers": 2, "hidden": 16, "heads": 2, "intermediate": 32}


def test_names_and_words_are_distinct() -> None:
    assert len({synthetic.word(n) for n in range(50_000)}) == 50_000
    assert len({synthetic.english_name(c, 0) for c in range(50_000)}) == 50_000
    assert len({synthetic.english_name(7, form) for form in range(30)}) == 30
    assert len({synthetic.chinese_name(e) for e in range(50_000)}) == 50_000


def test_a_umls_release_of_a_share_of_its_size(tmp_path: Path) -> None:
    said = synthetic.umls(tmp_path, 0.01, **UMLS)
    assert said == "400 concepts, 1,600 names, 4,000 relations, 50 definitions"
    graph = umls.read(tmp_path)
    counts = graph.counts()
    assert (
        counts["entities"] == 400
        and counts["definitions"] == 50
        and 2000 < counts["triples"] < 4000
    )
    assert graph.manifest["version"] == "synthetic" and {
        "isa",
        "inverse_isa",
        "has_tradename",
    } <= set(graph.relations)
    assert 0.5 < len(graph.names) / 1600 < 0.8  # the others are Spanish, suppressed or obsolete
    assert len(umls.read(tmp_path, suppress=("N", "E", "O", "Y")).names) > len(graph.names)
    assert graph.entities["name"][0].as_py() == synthetic.english_name(0, 0).capitalize()
    rows = {tuple(row.values()) for row in graph.triples.to_pylist()}
    turned = {(t, {"isa": "inverse_isa"}.get(r, r), h) for h, r, t in rows if r == "isa"}
    assert turned and turned <= rows  # UMLS lists a relation and its inverse


def test_documents_mention_the_releases_concepts(tmp_path: Path) -> None:
    sizes = {"documents": 6000, "words": 100, "concepts": UMLS["concepts"], "held_out": 0.01}
    assert (
        synthetic.pubmedds(tmp_path / "corpus.jsonl", 0.01, **sizes)
        == "60 documents of some 100 words"
    )
    found = list(json_documents(tmp_path / "corpus.jsonl"))
    assert len(found) == 60 and 80 < np.mean([len(d.text.split()) for d in found]) < 130
    for document in found:
        assert len(document.mentions) == 12
        for m in document.mentions:
            concept = int(m.entity[1:]) - 1
            assert document.text[m.start : m.end] in {
                synthetic.english_name(concept, form) for form in (0, 1)
            }
            assert concept < 400
    # however few documents: validation has some
    assert all(is_held_out(d.text, 0.01) for d in found[:4])


def test_a_chinese_graph_stays_whole_when_it_is_refined(tmp_path: Path) -> None:
    """Its names are names by the rules of kg.build.refine, it has equivalences, and look-alikes to
    distinguish them from."""
    assert synthetic.chinese_graph(
        tmp_path / "g", 0.01, entities=60_000, triples=600_000
    ).startswith("600 entities, ")
    graph = KnowledgeGraph.load(tmp_path / "g")
    made = refine_graph(graph)
    assert len(made.entities) > 580 and len(made.equivalences) == 30
    assert set(made.entities["type"].to_pylist()) == set(synthetic.ENDINGS)
    asked, dropped = samples(made)
    assert len(asked) > 50, dropped


def test_chinese_text_names_the_entities(tmp_path: Path) -> None:
    sizes = {"characters": 5_000_000, "entities": 60_000, "document": 500, "held_out": 0.01}
    assert (
        synthetic.chinese_text(tmp_path / "t.jsonl", 0.01, **sizes)
        == "100 documents of some 500 characters"
    )
    texts = [json.loads(line)["text"] for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert len(texts) == 100 and 400 < np.mean([len(t) for t in texts]) < 600
    names = [synthetic.chinese_name(e) for e in range(600)]
    assert all(sum(name in text for name in names) >= 5 for text in texts)
    assert all(is_held_out(t, 0.01) for t in texts[:4])


@pytest.mark.parametrize(
    ("language", "size", "text"), [("en", 3000, synthetic.word(5)), ("zh", 21_128, "慢性综合征")]
)
def test_a_bert_of_a_vocabulary_of_the_given_size(
    language: str, size: int, text: str, tmp_path: Path
) -> None:
    said = synthetic.bert(tmp_path, 0.001, vocabulary_size=size, language=language, **SMALL)  # type: ignore[arg-type]
    assert said == f"a BERT of 2 layers x 16, {size:,} tokens, random weights"
    tokenizer = load_tokenizer(str(tmp_path))
    assert len(tokenizer) == size and tokenizer.model_max_length == 512
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.unk_token_id not in ids and len(ids) == (1 if language == "en" else 5)
    rare = tokenizer(synthetic.word(55_000), add_special_tokens=False)["input_ids"]
    assert len(rare) > 1 and tokenizer.unk_token_id not in rare
    assert load_bert(str(tmp_path)).config.vocab_size == size
    assert BertForMaskedLM.from_pretrained(tmp_path).config.num_hidden_layers == 2


def test_a_bart_whose_tokenizer_names_can_hang_from(tmp_path: Path) -> None:
    synthetic.bart(tmp_path, 0.001, vocabulary_size=3000, **SMALL)
    tokenizer = load_tokenizer(str(tmp_path))
    inputs = Inputs(tokenizer)  # raises unless " is" is one token
    config = load_bart(str(tmp_path)).config
    assert len(tokenizer) <= config.vocab_size == 3000
    assert (config.pad_token_id, config.eos_token_id, config.decoder_start_token_id) == (
        inputs.pad,
        inputs.eos,
        inputs.eos,
    )


def test_the_command_writes_what_a_file_asks_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = {
        "write": "chinese_graph",
        "to": "g",
        "entities": 500,
        "triples": 3000,
    }
    write_json(
        tmp_path / "a.json", {"inputs": {"GRAPH": recipe}, "folder": str(tmp_path), "scale": 1.0}
    )
    write = command("benchmarks.perf.synthetic:write_inputs")
    assert write(["--file", str(tmp_path / "a.json")]) == 0
    assert read_json(tmp_path / "a.json")["said"]["GRAPH"].startswith("500 entities")
    assert len(KnowledgeGraph.load(tmp_path / "g").entities) == 500
    recipe["write"] = "nothing"
    write_json(
        tmp_path / "a.json", {"inputs": {"GRAPH": recipe}, "folder": str(tmp_path), "scale": 1.0}
    )
    assert write(["--file", str(tmp_path / "a.json")]) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("error: benchmarks.perf.synthetic.nothing: ")
    )
