"""The threshold at which a precision is reached, and that its confidence holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from benchmarks.commands import Evaluate
from benchmarks.linking import precision as p
from benchmarks.linking.precision import Answer, Counted
from core.files import InputError

DOCUMENTS = 400  #: of a simulation


def answers_of(rights: list[bool], scores: list[float] | None = None) -> list[Answer]:
    """A document for each answer; scores fall from 1 on."""
    scores = scores or [1 - place / len(rights) for place in range(len(rights))]
    rows = enumerate(zip(scores, rights, strict=True))
    return [Answer(str(place), score, right) for place, (score, right) in rows]


def test_bounds_by_hand() -> None:
    # all of n right: the lower bound is a ** (1 / n)
    assert Counted(100, 100, 1.0).bounds(0.005)[0] == pytest.approx(0.005 ** (1 / 100))
    low, high = Counted(90, 81, 1.0).bounds(0.025, 0.025)  # 90 %: 0.8186 to 0.9532 in the tables
    assert (round(low, 4), round(high, 4)) == (0.8186, 0.9532)
    assert Counted(0, 0, 1.0).bounds(0.05, 0.05) == (0.0, 1.0)
    assert Counted(200, 180, 2.0).bounds(0.05) == Counted(100, 90, 1.0).bounds(0.05)


def test_the_design_effect_by_hand() -> None:
    # Two documents of two answers each, all right and all wrong: precision 1/2, residuals 1 and -1,
    # variance 2 * (1 + 1) / 16 = 1/4; a binomial's is 1/16.
    both = [Answer("a", 1, True)] * 2 + [Answer("b", 1, False)] * 2
    assert p.design_effect(both) == pytest.approx(4)
    assert p.design_effect([Answer("a", 1, True), Answer("a", 1, False)]) == 1  # one document
    assert p.design_effect(answers_of([True, False] * 20)) == pytest.approx(40 / 39)


def test_the_lowest_threshold_that_reaches_it_is_taken() -> None:
    # The 600 best are right, the next 400 half the time: of the best 60 % the bound is 0.005 **
    # (1/600) = 0.991; of the best 70 % precision is 650/700 = 0.929.
    rights = [True] * 600 + [True, False] * 200
    answers = answers_of(rights)
    choice = p.choose_threshold(answers, 0.98)
    assert choice is not None and choice.dev.answered == 600
    assert choice.threshold == pytest.approx(answers[599].score)
    lower = p.choose_threshold(answers, 0.85)
    assert lower is not None and lower.dev.answered == 700  # 700 of 800: bound 0.84
    shown = p.format_precision(0.98, answers, answers)
    assert "98 %, with 95 % confidence over 10 thresholds" in shown
    assert "left out: right, wrong" in shown and "200, 200" in shown and "60.0 %" in shown


def test_no_threshold_is_said() -> None:
    answers = answers_of([True, False] * 50)
    assert p.choose_threshold(answers, 0.9) is None
    assert "no threshold reaches it on the dev part" in p.format_precision(0.9, answers, answers)
    assert "no answer on dev" in p.format_precision(0.9, [], answers)


def test_thresholds_are_chosen_by_scores_alone_and_ties_are_kept_together() -> None:
    assert p.thresholds_of([0.5] * 30) == [0.5]
    assert p.thresholds_of([]) == []
    assert p.thresholds_of([n / 20 for n in range(1, 21)])[0] == pytest.approx(19 / 20)
    tied = answers_of([True] * 4, [1.0, 1.0, 1.0, 0.5])
    assert p.count_answers(tied, 1.0).answered == 3


@pytest.mark.parametrize(
    "shared",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["independent", "by document"],
)
def test_the_promised_confidence_holds(shared: bool) -> None:
    """True precision rises with the score; how often the chosen threshold's is below the target."""
    random = np.random.default_rng(0)
    target, failures, chosen, runs = 0.9, 0, 0, 150
    for _ in range(runs):
        scores = random.random((DOCUMENTS, 5))  # (documents, answers)
        chance = 0.6 + 0.4 * scores
        draws = random.random((DOCUMENTS, 1)) if shared else random.random((DOCUMENTS, 5))
        rights = draws < chance  # shared: the answers of a document fail together
        answers = [
            Answer(str(row), float(scores[row, column]), bool(rights[row, column]))
            for row in range(DOCUMENTS)
            for column in range(5)
        ]
        choice = p.choose_threshold(answers, target)
        if choice is not None:
            chosen += 1
            truth = 0.6 + 0.4 * (1 + choice.threshold) / 2  # mean chance of the scores above it
            failures += truth < target
    assert chosen > runs / 10  # else nothing is tested
    assert failures / runs <= 0.05


def test_halves_are_whole_documents() -> None:
    answers = [Answer(str(n // 3), 1.0, True) for n in range(300)]
    dev, test = p.halves(answers)
    assert len(dev) + len(test) == 300 and 60 < len(dev) < 240
    assert not {a.document for a in dev} & {a.document for a in test}
    assert p.halves(answers) == (dev, test)


def test_answers_are_read_from_predictions_of_both_kinds(tmp_path: Path) -> None:
    found = [[0, 1, "a", "E1", "n", 0.5], [2, 3, "b", None, None, None], [4, 5, "c", "E", "n", 0.1]]
    lines: list[dict[str, Any]] = [
        {"id": "d1", "gold": [], "found": found, "right": [True, False, False]},
        {"document": "d2", "score": [0.7, 0.4], "reason": "right"},
        {"document": "d2", "score": [0.7, None], "reason": "missed"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "predictions.jsonl").write_text(text)
    result = cast(Any, SimpleNamespace(folder=tmp_path))
    assert p.read_answers(result) == [("d1", 0.5, True), ("d1", 0.1, False), ("d2", 0.4, True)]
    found[0][5] = None
    (tmp_path / "predictions.jsonl").write_text(json.dumps(lines[0]) + "\n")
    with pytest.raises(InputError, match="no score"):
        p.read_answers(result)


def test_what_it_does_not_go_with_is_refused() -> None:
    asked = Evaluate(task="NCBI-EL", target_precision=0.9)
    assert p.check_precision(asked) == 0.9
    for changed, message in (
        ({"target_precision": 95}, "between 0 and 1"),
        ({"threshold": 0.5}, "Leave --threshold out"),
        ({"part": replace(asked.part, split="dev")}, "Leave --split out"),
    ):
        with pytest.raises(InputError, match=message):
            p.check_precision(replace(asked, **cast(Any, changed)))
