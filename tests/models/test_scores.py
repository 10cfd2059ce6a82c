"""Downstream scores against independent libraries, hand counts and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from seqeval.metrics import f1_score as seqeval_f1
from seqeval.scheme import IOB2
from sklearn.metrics import accuracy_score, f1_score

from models.metrics import (
    acc1_tallies,
    accuracy_tallies,
    adjust_holm,
    bootstrap_interval,
    compare_systems,
    label_tallies,
    score,
    span_tallies,
)


def bio_entities(tags: list[str]) -> set[tuple[int, int, str]]:
    """Entities of a well-formed BIO sequence, written plainly."""
    found, start = set(), None
    for i, tag in enumerate([*tags, "O"]):
        if start is not None and not tag.startswith("I-"):
            found.add((start, i, tags[start][2:]))
            start = None
        if tag.startswith("B-"):
            start = i
    return found


@st.composite
def tag_sequences(draw: st.DrawFn) -> list[str]:
    """Well-formed BIO tags of two types."""
    tags: list[str] = []
    for choice in draw(st.lists(st.integers(0, 4), max_size=12)):
        wanted = ["O", "B-x", "B-y", "I-x", "I-y"][choice]
        if wanted.startswith("I-") and not (tags and tags[-1][1:] == wanted[1:]):
            wanted = "B" + wanted[1:]
        tags.append(wanted)
    return tags


@given(st.lists(st.tuples(tag_sequences(), tag_sequences()), min_size=1, max_size=6))
def test_strict_entity_f1_is_seqevals(pairs: list[tuple[list[str], list[str]]]) -> None:
    cut = [(p[: min(len(p), len(g))], g[: min(len(p), len(g))]) for p, g in pairs]
    predicted, gold = [p for p, _ in cut], [g for _, g in cut]
    ours = score(
        span_tallies([bio_entities(p) for p in predicted], [bio_entities(g) for g in gold])
    )
    if any(t != "O" for tags in predicted + gold for t in tags):
        assert ours == pytest.approx(
            seqeval_f1(gold, predicted, mode="strict", scheme=IOB2, zero_division=0)
        )
    else:
        assert ours == 1.0  # nothing there, nothing predicted


def test_nested_spans_counted_by_hand() -> None:
    gold = [[(0, 6, "disease"), (0, 2, "body"), (3, 6, "symptom")], [(1, 2, "body")]]
    predicted = [[(0, 6, "disease"), (0, 2, "symptom"), (3, 6, "symptom"), (3, 6, "symptom")], []]
    # right: (0, 6) and (3, 6); wrong type: (0, 2); missed: (0, 2) body and (1, 2); a span predicted
    # twice counts once
    assert span_tallies(predicted, gold).tolist() == [[2, 3, 3], [0, 0, 1]]
    assert score(span_tallies(predicted, gold)) == pytest.approx(2 * 2 / (3 + 4))


@given(st.lists(st.tuples(st.sampled_from("nab"), st.sampled_from("nab")), min_size=1, max_size=30))
def test_micro_f1_without_the_negative_class_is_sklearns(pairs: list[tuple[str, str]]) -> None:
    predicted, gold = [p for p, _ in pairs], [g for _, g in pairs]
    ours = score(label_tallies(predicted, [[g] for g in gold], {"a", "b"}))
    theirs = f1_score(gold, predicted, labels=["a", "b"], average="micro", zero_division=1.0)
    assert ours == pytest.approx(theirs)
    binary = score(label_tallies(predicted, [[g] for g in gold], {"a"}))
    assert binary == pytest.approx(
        f1_score(gold, predicted, labels=["a"], average="micro", zero_division=1.0)
    )
    assert score(accuracy_tallies(predicted, [[g] for g in gold])) == pytest.approx(
        accuracy_score(gold, predicted)
    )
    assert score(label_tallies(predicted, [[g] for g in gold])) == pytest.approx(
        accuracy_score(gold, predicted)
    )


def test_any_gold_class_of_a_pair_is_right_and_the_pair_counts_once() -> None:
    assert label_tallies(
        ["b", "c", "n"], [["a", "b"], ["a", "b"], ["a"]], {"a", "b", "c"}
    ).tolist() == [
        [1, 1, 1],
        [0, 1, 1],
        [0, 0, 1],
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from("qrs"), st.integers(0, 3), st.booleans()), min_size=1, max_size=20
    )
)
def test_acc1_is_the_mean_hit_of_the_best_answers(rows: list[tuple[str, int, bool]]) -> None:
    questions, tallies = acc1_tallies(
        [s for _, s, _ in rows], [r for _, _, r in rows], [q for q, _, _ in rows]
    )
    hits = []
    for q in dict.fromkeys(q for q, _, _ in rows):
        group = [(s, r) for name, s, r in rows if name == q]
        top = [r for s, r in group if s == max(x for x, _ in group)]
        hits.append(sum(top) / len(top))
    assert questions == list(dict.fromkeys(q for q, _, _ in rows))
    assert score(tallies) == pytest.approx(np.mean(hits))


def test_equal_scores_give_no_credit_for_the_order_of_a_file() -> None:
    """A ranker that has learnt nothing must not win because files list the right answer first."""
    _, tallies = acc1_tallies([0.0] * 5, [True, False, False, False, False], ["q"] * 5)
    assert score(tallies) == pytest.approx(0.2)


def test_the_interval_of_accuracy_is_the_binomials() -> None:
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.7
    tallies = np.stack([right, np.ones(400)], axis=1)
    low, high = bootstrap_interval(tallies, samples=4000)
    p = right.mean()
    assert (low, high) == pytest.approx(
        (p - 1.96 * (p * (1 - p) / 400) ** 0.5, p + 1.96 * (p * (1 - p) / 400) ** 0.5), abs=0.006
    )


def test_comparison_sees_a_real_difference_and_no_other() -> None:
    rng = np.random.default_rng(0)

    def system(p: float) -> dict[int, np.ndarray]:
        return {s: np.stack([rng.random(500) < p, np.ones(500)], axis=1) for s in range(3)}

    weak, same, strong = system(0.6), system(0.6), system(0.8)
    difference = compare_systems(weak, strong)
    assert (
        difference.p_bootstrap < 0.01
        and difference.low > 0
        and difference.difference == pytest.approx(0.2, abs=0.05)
    )
    assert compare_systems(weak, same).p_bootstrap > 0.01  # how it is distributed: the test below
    assert compare_systems(weak, weak) == (0.0, 0.0, 0.0, 1.0, None)
    x, y = [score(weak[s]) for s in range(3)], [score(strong[s]) for s in range(3)]
    assert difference.p_seeds == pytest.approx(stats.ttest_rel(y, x).pvalue)
    assert compare_systems({0: weak[0]}, {0: strong[0], 1: strong[1]}).p_seeds is None
    with pytest.raises(ValueError, match="no common seed"):
        compare_systems({0: weak[0]}, {1: strong[1]})


def test_the_bootstraps_p_is_uniform_when_there_is_no_difference() -> None:
    rng = np.random.default_rng(1)
    ps = []
    for _ in range(200):
        a, b = (np.stack([rng.random(120) < 0.5, np.ones(120)], axis=1) for _ in range(2))
        ps.append(compare_systems({0: a}, {0: b}, samples=400).p_bootstrap)
    assert 0.01 < np.mean(np.array(ps) < 0.1) < 0.19  # 10 % expected


def test_the_bootstraps_p_is_never_zero() -> None:
    """Where every sample shows the whole difference, only the observed one is as far from it as the
    null hypothesis."""
    none, all_ = (np.stack([np.full(50, right), np.ones(50)], axis=1) for right in (0, 1))
    found = compare_systems({0: none}, {0: all_}, samples=99)
    assert (
        found.p_bootstrap == pytest.approx(1 / 100)
        and found.difference == found.low == found.high == 1
    )


def test_holm_by_hand() -> None:
    """Holm 1979: the smallest p times 4, the next times 3, …, none below one before it."""
    assert adjust_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_holm([0.9, 0.8]) == [1.0, 1.0] and adjust_holm([]) == []


def test_an_interval_over_seeds_holds_how_they_vary() -> None:
    """Five seeds whose difference varies by 0.05 around nothing: an interval over examples alone
    misses 0 in most of the trials, one over seeds too in few."""
    rng = np.random.default_rng(0)
    missed, alone = 0, 0
    for _ in range(40):
        first, second = {}, {}
        for seed in range(5):
            right = rng.random((2, 400)) < np.array([[0.6 + rng.normal(0, 0.05)], [0.6]])
            first[seed], second[seed] = (np.stack([r, np.ones(400)], 1) for r in right.astype(int))
        found = compare_systems(first, second, samples=500)
        missed += not found.low <= 0 <= found.high
        pooled = compare_systems({0: sum(first.values())}, {0: sum(second.values())}, samples=500)  # type: ignore[dict-item]
        alone += not pooled.low <= 0 <= pooled.high
    assert missed <= 8 < alone
