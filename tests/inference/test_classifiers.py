"""Classifiers of others: mentions and scores are those of transformers' own pipeline, pairs those
of sentence-transformers; what a model is made for decides where it may be used."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    pipeline,
)

from app.cli import main
from core.files import InputError
from experiments.names import architecture, encoder
from inference.chain import Pipeline
from inference.classifiers import PairScorer, _trim, load_token_classifier, read_label
from inference.encoders import embedder
from inference.load import load_entity_tagger
from inference.options import LinkerOptions
from tests.fakes import bert, graphs

WORDS = ["renal", "failure", "gout", "of", "aspirin", "."]
TEXT = "renal failure of gout . aspirin"


def write_classifier(folder: Path, kind: type, labels: list[str], length: int = 64) -> Path:
    """A random classifier with these labels over the fake BERT's vocabulary."""
    bert.write(folder, WORDS, layers=2, length=length)
    torch.manual_seed(3)
    config = BertConfig.from_pretrained(
        folder, id2label=dict(enumerate(labels)), label2id={t: n for n, t in enumerate(labels)}
    )
    model = kind(config)
    model.classifier.weight.data.normal_(0, 3)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def tagger(tmp_path: Path) -> Path:
    labels = ["O", "B-Disease", "I-Disease", "B-Drug", "I-Drug"]
    return write_classifier(tmp_path / "tagger", BertForTokenClassification, labels)


@pytest.fixture
def crossed(tmp_path: Path) -> Path:
    return write_classifier(tmp_path / "crossed", BertForSequenceClassification, ["LABEL_0"])


def test_a_token_classifier_finds_what_its_pipeline_finds(tagger: Path) -> None:
    texts = [TEXT, "gout", "", TEXT * 12]  # the last is longer than the model reads
    own = load_token_classifier(str(tagger)).predict(texts)
    made = pipeline(
        "token-classification", str(tagger), aggregation_strategy="first", stride=16, device="cpu"
    )
    made.tokenizer.model_max_length = 64
    for text, spans in zip(texts, own, strict=True):
        expected = made(text) if text else []
        assert [(s.start, s.end, s.type) for s in spans] == [
            (e["start"], e["end"], e["entity_group"]) for e in expected
        ]
        assert [s.score for s in spans] == pytest.approx(
            [float(e["score"]) for e in expected], abs=1e-5
        )
    assert own[0] and own[2] == []


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("U-Drug", "B-Drug"),
        ("L-Drug", "I-Drug"),
        ("S-X", "B-X"),
        ("E-X", "I-X"),
        ("O", "O"),
        ("B_Gene", "B-Gene"),
        ("Disease", "Disease"),
        ("Sign-X", "Sign-X"),
    ],
)
def test_labels_of_other_schemes(label: str, expected: str) -> None:
    assert read_label(label) == expected


def test_labels_without_names_are_refused(tmp_path: Path) -> None:
    folder = write_classifier(tmp_path / "m", BertForTokenClassification, ["LABEL_0", "LABEL_1"])
    with pytest.raises(InputError, match="does not name its labels"):
        load_token_classifier(str(folder))


def test_a_pair_is_scored_as_sentence_transformers_does(crossed: Path) -> None:
    pairs = [("renal failure", "failure of gout"), ("gout", "gout"), ("aspirin", "renal")]
    own = PairScorer(encoder(str(crossed)), batch=2).scores(pairs)
    assert own == pytest.approx(CrossEncoder(str(crossed)).predict(pairs).tolist(), abs=1e-5)


def test_a_chain_of_a_token_classifier_and_a_cross_encoder(
    tagger: Path, crossed: Path, tmp_path: Path
) -> None:
    graph = graphs.write(tmp_path / "graph", {"G:1": ["gout"], "G:2": ["renal failure"]})
    chain = Pipeline(graph, f"{tagger} > {bert.write(tmp_path / 'b', WORDS)} > {crossed}")
    found = chain.link([TEXT])[0]
    assert [(m.start, m.end) for m in found] == [
        (s.start, s.end) for s in load_entity_tagger(str(tagger)).predict(TEXT)[0]
    ]
    scorer = PairScorer(encoder(str(crossed)))
    for mention in found:
        scores = [c.score for c in mention.candidates]
        assert scores == sorted(scores, reverse=True)
        names = [(mention.text, c.name) for c in mention.candidates]
        assert scores == pytest.approx(scorer.scores(names), abs=1e-5)


def test_each_model_is_used_where_it_was_made_for(
    tagger: Path, crossed: Path, tmp_path: Path
) -> None:
    plain = bert.write(tmp_path / "plain", WORDS)
    graph = graphs.write(tmp_path / "graph", {"G:1": ["gout"]})
    assert [architecture(encoder(str(f))) for f in (tagger, crossed, plain)] == [
        "token",
        "pair",
        "",
    ]
    with pytest.raises(InputError, match="a cross-encoder, which compares two texts"):
        embedder(encoder(str(crossed)), LinkerOptions())
    with pytest.raises(InputError, match="a cross-encoder, which compares two texts"):
        Pipeline(graph, f"dictionary > {crossed}")
    with pytest.raises(InputError, match="expected a fine-tuned model"):
        load_token_classifier(str(plain))
    with pytest.raises(InputError, match="a model that finds no mentions"):
        Pipeline(graph, f"{plain} > names")


def test_predict_with_a_folder(
    tagger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "--model", str(tagger), "--text", TEXT, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["mentions"]
    (tmp_path / "in.txt").write_text(TEXT + "\n")
    output = tmp_path / "out.jsonl"
    words = ["predict", "--model", str(tagger), "--input", str(tmp_path / "in.txt")]
    assert main([*words, "--output", str(output)]) == 0
    assert json.loads(output.read_text())["mentions"] == printed
    assert printed


@pytest.mark.parametrize(
    ("text", "place", "trimmed"),
    [
        ("a gout ", (1, 7), (2, 6)),
        ("a  ", (1, 3), (3, 3)),
        ("  ", (0, 2), (2, 2)),
        ("a", (0, 1), (0, 1)),
    ],
)
def test_whitespace_is_no_part_of_a_mention(
    text: str, place: tuple[int, int], trimmed: tuple[int, int]
) -> None:
    assert _trim(text, *place) == trimmed


def test_a_pair_that_is_too_long_is_cut(crossed: Path) -> None:
    scorer = PairScorer(encoder(str(crossed)))
    (cut,) = scorer.scores([("gout " * 2000, "renal failure " * 2000)])
    assert 0 < cut < 1


def test_a_classifier_goes_to_other_machines_as_what_it_is_read_from(tagger: Path) -> None:
    made = load_token_classifier(str(tagger), "cpu", "fp32", 3)
    assert len(pickle.dumps(made)) < 2000
    again = copy.copy(made)
    assert (again.identity, again.device, again.bf16) == (made.identity, made.device, made.bf16)
    assert again.batch_size == 3
    config = tagger / "config.json"
    config.write_text(config.read_text().replace("{", '{"more": 1,', 1))
    with pytest.raises(InputError, match="not the model that the run began with"):
        copy.copy(made)
