"""A chain in a spaCy pipeline: the mentions of `kepl link`, also saved and read again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import spacy

import inference.spacy_component as spacy_component
from app.cli import main
from core.files import InputError
from tests.fakes import graphs

TEXTS = [
    "He has renal failure, but no gout.",
    "Gout and renal failures of his mother; gout-like pain.",
    "",
]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    names = {"G:1": ["gout"], "G:2": ["renal failure", "kidney failure"]}
    return graphs.write(tmp_path / "graph", names)


def pipeline(graph: Path, **settings: object) -> spacy.language.Language:
    assert spacy_component.FILE
    nlp = spacy.blank("en")
    nlp.add_pipe("kepl", config={"graph": str(graph), **settings})
    return nlp


def entities(docs: list[spacy.tokens.Doc]) -> list[list[tuple[object, ...]]]:
    return [
        [(e.start_char, e.end_char, e.text, e.kb_id_, e.label_, e._.negated) for e in doc.ents]
        for doc in docs
    ]


def test_the_mentions_of_link(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs = list(pipeline(graph, negation=True).pipe(TEXTS))
    expected = []
    for text in TEXTS[:2]:
        words = ["link", "--graph", str(graph), "--text", text, "--json", "--negation"]
        assert main(words) == 0
        own = json.loads(capsys.readouterr().out)["mentions"]
        keys = ("start", "end", "text", "entity", "type", "negated")
        expected.append([tuple(mention[key] for key in keys) for mention in own])
    assert entities(docs) == [*expected, []]
    assert [e._.negated for e in docs[0].ents] == [False, True]
    first = docs[0].ents[0]
    assert first._.kb_ents == [("G:2", 1.0)] and first._.kb_name == "renal failure"


def test_one_document_and_many_are_alike(graph: Path) -> None:
    nlp = pipeline(graph)
    assert entities([nlp(text) for text in TEXTS]) == entities(list(nlp.pipe(TEXTS, batch_size=2)))
    assert nlp("gout").ents[0]._.negated is None


def test_a_saved_pipeline_is_read_again(graph: Path, tmp_path: Path) -> None:
    nlp = pipeline(graph, negation=True, top=1)
    nlp.to_disk(tmp_path / "saved")
    again = spacy.load(tmp_path / "saved")
    assert entities(list(again.pipe(TEXTS))) == entities(list(nlp.pipe(TEXTS)))
    other = spacy.blank("en")
    other.add_pipe("kepl", config={"graph": str(graph)})
    other.from_bytes(nlp.to_bytes())
    assert entities(list(other.pipe(TEXTS))) == entities(list(nlp.pipe(TEXTS)))


def test_another_graph_in_its_place_is_refused(graph: Path, tmp_path: Path) -> None:
    pipeline(graph).to_disk(tmp_path / "saved")
    for file in sorted(graph.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    graphs.write(graph, {"G:1": ["ataxia"]})
    with pytest.raises(InputError, match="saved with another graph"):
        spacy.load(tmp_path / "saved")


def test_without_a_graph() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("kepl")
    with pytest.raises(InputError, match="expected a graph"):
        nlp("gout")


@pytest.mark.slow
def test_the_texts_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    texts = re.findall(r'kepl link .*--text "([^"]+)"', readme)
    graph = tmp_path / "graph"
    assert texts and main(["graph", "build", "hpo", "--out", str(graph)]) == 0
    nlp = pipeline(graph)
    nlp.to_disk(tmp_path / "saved")
    docs = list(spacy.load(tmp_path / "saved").pipe(texts))
    for text, doc in zip(texts, docs, strict=True):
        capsys.readouterr()
        assert main(["link", "--graph", str(graph), "--text", text, "--json"]) == 0
        mentions = json.loads(capsys.readouterr().out)["mentions"]
        wanted = [(m["start"], m["end"], m["entity"]) for m in mentions]
        assert [(e.start_char, e.end_char, e.kb_id_) for e in doc.ents] == wanted != []
