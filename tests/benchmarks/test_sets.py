"""Tasks where a mention means a set of concepts: answers, thresholds and scores, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.cli import main
from benchmarks.linking import sets
from benchmarks.linking.cases import scored_run
from benchmarks.linking.evaluate import score_linker
from benchmarks.options import Evaluation
from benchmarks.results import OVERALL
from core.files import InputError
from datamodules.options import Files
from inference.linkers import Candidate, cut_known
from tests.fakes import linking as fake


def ranked(concept: str, score: float) -> list[Candidate]:
    return [Candidate(concept, concept.lower(), score), Candidate("other", "other", score - 1)]


def test_an_answer_has_every_part_above_the_threshold_or_else_the_best_one():
    parts = [ranked("A", 0.9), ranked("B", 0.5), ranked("A", 0.6), []]
    assert sets.answer(parts, 0.5) == {"A", "B"}
    assert sets.answer(parts, 0.51) == {"A"}
    assert sets.answer(parts, 2.0) == {"A"}
    assert sets.answer([[]], 0.0) == frozenset()


def test_pairs_are_counted_once():
    said = [frozenset("AB"), frozenset("C"), frozenset()]
    gold = [frozenset("BCD"), frozenset("C"), frozenset("E")]
    counts = sets.count_pairs(said, gold)
    assert counts.tolist() == [[1, 2, 3], [1, 1, 1], [0, 0, 1]]
    # 2 right of 3 said and 5 gold: F1 = 2 * 2 / (3 + 5)
    overall = sets.group_scores(counts, gold)[OVERALL]
    assert overall["f1"] == pytest.approx(0.5)
    assert (overall["precision"], overall["recall"]) == (pytest.approx(2 / 3), pytest.approx(0.4))
    assert sets.group_scores(counts, gold)["one concept"]["f1"] == pytest.approx(2 / 3)
    assert sets.group_scores(counts, gold)["several"]["examples"] == 1


def test_the_threshold_has_the_highest_f1_and_of_equal_ones_is_the_lowest():
    found = [[ranked("A", 0.9), ranked("X", 0.4)], [ranked("B", 0.6)]]
    gold = [frozenset("A"), frozenset("B")]
    # 0.4: said A, X, B, two right; 0.6: A, B; 0.9: A and, being the best, B
    assert sets.choose_threshold(found, gold) == 0.6
    assert sets.choose_threshold([[[]]], [frozenset("A")]) == 0.0


def test_known_strings_are_cut_from_the_left_the_longest_first():
    known = {"ab", "abc", "cd", "e"}
    assert cut_known("xabcdex", known, 3) == ["x", "abc", "d", "e", "x"]
    assert cut_known("", known, 3) == [] and cut_known("ab", known, 0) == ["a", "b"]


@pytest.fixture()
def data(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    return fake.write(tmp_path / "data")


def evaluation(data: Path, task: str, model: str) -> Evaluation:
    return Evaluation(task=task, model=model, files=Files(data=data / task))


def test_scores_are_those_of_the_predictions(data, capsys):
    results = score_linker(evaluation(data, "CHIP-CDN", "tfidf"))
    assert [r.model.name for r in results] == ["dictionary", "tfidf"]
    for result in results:
        path = Path(str(result.folder)) / "predictions.jsonl"
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        right = sum(len(set(r["said"]) & set(r["gold"])) for r in rows)
        total = sum(len(set(r["said"])) + len(set(r["gold"])) for r in rows)
        assert result.value() == pytest.approx(2 * right / total)
        assert [r["mention"] for r in rows] == [one.strip('"') for one, _ in fake.DIAGNOSES]
        # 表里没有 is no name of ICD-10: gold, which the mentions of train alone know
        assert result.details["gold not in the dictionary"] == 1
        right_of_it = np.array(result.tallies["f1"])[3].tolist()[0]
        assert right_of_it == (result.model.name == "dictionary")
        # 霍乱 has two codes and is one concept, named twice in gold
        assert rows[4]["gold"] == ["头痛", "霍乱"]
    dictionary = results[0]
    rows = [json.loads(x) for x in (Path(str(dictionary.folder)) / "predictions.jsonl").open()]
    assert rows[2]["said"] == ["损伤,小腿"]  # a diagnosis of train


def test_the_official_test_part_is_answered(data):
    result = score_linker(evaluation(data, "CHIP-CDN", "tfidf"))[-1]
    names = {name.strip('"') for _, name in fake.ICD}
    written = json.loads((Path(str(result.folder)) / "CHIP-CDN_test.json").read_text("utf-8"))
    assert [item["text"] for item in written] == [one for one, _ in fake.DIAGNOSES]
    assert all(set(item["normalized_result"].split("##")) <= names for item in written)
    assert set(written[0]["normalized_result"].split("##")) == {"头痛", "高血压"}


def test_what_reads_one_concept_a_mention_is_refused(data, capsys):
    folder = str(data / "CHIP-CDN")
    assert main(["evaluate", "CHIP-CDN", "--model", "tfidf", "--data", folder]) == 0
    assert "gold concepts that the dictionary lacks: 1" in capsys.readouterr().out
    with pytest.raises(InputError, match="a set of concepts"):
        scored_run("CHIP-CDN", files=Files(data=data / "CHIP-CDN"))
    words = ["--target-precision", "0.9", "--data", folder]
    assert main(["evaluate", "CHIP-CDN", "--model", "tfidf", *words]) == 2
    assert "a set of concepts" in capsys.readouterr().err
