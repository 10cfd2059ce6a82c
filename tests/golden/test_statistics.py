"""Golden values of every statistic that a table prints: four examples, three seeds, worked by
hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.finetune import spread
from benchmarks.records import Record
from benchmarks.tables import cells
from benchmarks.tables.cells import Cell, as_csv
from models.metrics import (
    acc1_tallies,
    accuracy_tallies,
    adjust_holm,
    bootstrap_interval,
    compare_systems,
    label_tallies,
    one_sample,
    score,
    span_tallies,
)


def make_tallies(right: str) -> np.ndarray:
    """ "1101": the third of four examples is wrong."""
    return accuracy_tallies(list(right), [["1"]] * len(right))


def test_scores_of_tasks() -> None:
    """Entity F1: of 3 predicted and 4 gold entities 2 agree in start, end and type, 4/7. F1 of one
    class: 1 right of 2 predicted and 2 gold, 1/2; micro F1 without "none": 2 right of 3 predicted
    and 4 gold, 4/7. Best answers: right, half of a tie, and wrong."""
    predicted = [[(0, 2, "A"), (3, 4, "B")], [(0, 1, "A")], []]
    gold = [[(0, 2, "A"), (3, 4, "A")], [(0, 1, "A")], [(5, 6, "B")]]
    assert score(span_tallies(predicted, gold)) == pytest.approx(4 / 7)
    labels, right = ["1", "1", "2", "none"], [["1"], ["2"], ["2", "3"], ["1"]]
    assert score(label_tallies(labels, right, ["1"])) == pytest.approx(1 / 2)
    assert score(label_tallies(labels, right, ["1", "2", "3"])) == pytest.approx(4 / 7)
    assert score(accuracy_tallies(labels, right)) == 1 / 2
    questions, tallies = acc1_tallies(
        [0.1, 0.2, 0.5, 0.5, 0.3, 0.9, 0.1],
        [False, True, True, False, False, False, True],
        ["a", "a", "b", "b", "b", "c", "c"],
    )
    assert (questions, tallies.tolist()) == (["a", "b", "c"], [[1, 1], [0.5, 1], [0, 1]])
    assert score(tallies) == 0.5


def test_sample_deviation() -> None:
    """1, 2 and 4: mean 7/3, squares 16/9 + 1/9 + 25/9 = 42/9, divided by 2 and not by 3."""
    deviation = (42 / 9 / 2) ** 0.5
    assert deviation == pytest.approx(1.527525, abs=1e-6)
    assert spread([1.0, 2.0, 4.0]) == pytest.approx((7 / 3, deviation))
    assert spread([3.0]) == (3.0, None)
    assert cells.spread([1.0, 2.0, 4.0], 2) == "2.33 ± 1.53 (3)"
    assert "1.52753" in as_csv([Cell("r", "c", None, (1.0, 2.0, 4.0))])


def test_interval_over_four_examples() -> None:
    """Of a sample of four, X of Binomial(4, 3/4) are right: P(X = 0) = 0.004, P(X <= 1) = 0.051.
    The 2.5 % quantile is one of four, the 97.5 % quantile all four."""
    assert score(make_tallies("1101")) == 0.75
    assert bootstrap_interval(make_tallies("1101")) == (0.25, 1.0)
    # a level of 99.5 %: 0.0025 < 0.004
    assert bootstrap_interval(make_tallies("1101"), level=0.995, samples=20_000) == (0.0, 1.0)


def test_paired_bootstrap_on_four_examples() -> None:
    """The second system is right where the first is not in two of four examples, and nowhere wrong
    alone. A sample's difference is X / 4 with X of Binomial(4, 1/2): as far from 0.5 as 0.5 are X
    = 0 and X = 4, which have 2/16."""
    found = compare_systems({0: make_tallies("1100")}, {0: make_tallies("1111")})
    assert (found.difference, found.low, found.high) == (0.5, 0.0, 1.0)
    assert found.p_bootstrap == pytest.approx(2 / 16, abs=0.012)  # of 10,000 samples
    assert found.p_seeds is None
    # three of four: only X = 0 is 0.75 away, 1/256
    found = compare_systems({0: make_tallies("1000")}, {0: make_tallies("1111")})
    assert found.p_bootstrap == pytest.approx(1 / 256, abs=0.003)


def test_limits_of_the_95_percent_interval() -> None:
    """Of three examples, X of Binomial(3, 2/3): P(X = 0) = 1/27, more than 2.5 % and less than 5
    %; of Binomial(3, 1/3) likewise P(X = 3)."""
    found = compare_systems({0: make_tallies("001")}, {0: make_tallies("111")})
    assert (found.low, found.high) == (0.0, 1.0)
    found = compare_systems({0: make_tallies("011")}, {0: make_tallies("111")})
    assert (found.low, found.high) == (0.0, 1.0)


def test_bootstrap_over_two_seeds() -> None:
    """One of two seeds is drawn: in the first the systems are equal, in the second one is all
    right and the other all wrong, whichever examples are drawn."""
    first = {0: make_tallies("0000"), 1: make_tallies("0000")}
    second = {0: make_tallies("0000"), 1: make_tallies("1111")}
    found = compare_systems(first, second)
    assert (found.difference, found.low, found.high) == (0.5, 0.0, 1.0)
    assert found.p_bootstrap == 1.0


def test_paired_t() -> None:
    """Differences 0.1, 0.2 and 0.3: mean 0.2, deviation 0.1, t = 0.2 / (0.1 / sqrt 3) = 3.4641. Of
    2 degrees of freedom, p = 1 - t / sqrt(t^2 + 2) = 0.07418."""
    first = {seed: make_tallies("1000000000") for seed in range(3)}
    second = {seed: make_tallies("1" * (seed + 2) + "0" * (8 - seed)) for seed in range(3)}
    found = compare_systems(first, second, samples=100)
    assert found.difference == pytest.approx(0.2)
    assert found.p_seeds == pytest.approx(0.07418, abs=1e-5)
    assert one_sample([1.0, 2.0, 3.0], 0.0) == pytest.approx((3.4641, 0.07418), abs=1e-4)
    assert one_sample([1.0, 2.0, 3.0], 4.0) == pytest.approx((-3.4641, 0.07418), abs=1e-4)


def test_holm() -> None:
    """0.01 * 3, then the larger of that and 0.02 * 2, then of that and 0.03."""
    assert adjust_holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00009, "< 0.0001"),
        (0.0001, "0.0001"),
        (0.00099, "0.0010"),
        (0.001, "0.001"),
        (0.099, "0.099"),
        (0.1, "0.10"),
        (1.0, "1.00"),
    ],
)
def test_p_as_text(value: float, text: str) -> None:
    record = Record(id="a", task="t", model="m", metric="f1", value=0.5, digits=2, p=value)
    assert record.part("p") == text
