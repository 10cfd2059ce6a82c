"""Baselines that train nothing: each by hand, and the mark on comparisons below them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.groups import group_results
from benchmarks.paired_tests import BELOW, others, versus
from benchmarks.results import TRIVIAL, list_stored
from benchmarks.trivial import (
    CosineBins,
    TextDictionary,
    find_majorities,
    format_trivial,
    save_trivial,
    score_trivial,
)
from datamodules.tasks import Pair, Relation, Tagged, load_task
from tests.fakes import results as fake


def tagged(text: str, *entities: tuple[int, int, str], number: int = 0) -> Tagged:
    return Tagged(str(number), str(number), text, list(entities))


TRAIN = [
    tagged("肺炎和肺", (0, 2, "病"), (3, 4, "部位"), number=0),
    tagged("肺炎。肺。肺", (0, 2, "病"), number=1),
    tagged("炎肺炎", (1, 3, "部位"), number=2),
]


def test_a_dictionary_finds_the_longest_names_that_are_annotated_often_enough() -> None:
    names = TextDictionary(TRAIN, "zh")
    assert names.kind == {"肺炎": "病", "肺": "部位"}
    # 肺 is annotated once, and occurs in each of 3 肺炎 and alone 3 times
    assert names.share == {"肺炎": 1.0, "肺": pytest.approx(1 / 6)}
    text = tagged("肺肺炎肺")
    assert names.find(text, 0) == [(0, 1, "部位"), (1, 3, "病"), (3, 4, "部位")]
    assert names.find(text, 0.17) == [(1, 3, "病")]
    assert names.find(text, 1.0) == [(1, 3, "病")]  # as often as it occurs


def test_a_dictionary_of_english_finds_whole_words() -> None:
    names = TextDictionary([tagged("a cold, cold sore", (8, 17, "D"))], "en")
    assert names.find(tagged("cold sores and a cold sore"), 0) == [(17, 26, "D")]


def test_the_share_is_chosen_on_dev_and_scored_on_test_alone() -> None:
    class Fake:
        folder = Path("t")
        kind, labels = "ner", ["病", "部位"]
        manifest = {"metric": "entity_f1", "language": "zh", "name": "t"}  # noqa: RUF012
        splits = {  # noqa: RUF012
            "train": TRAIN,
            "dev": [tagged("肺，肺炎", (2, 4, "病"), number=3)],
            "test": [tagged("肺", (0, 1, "部位"), number=4)],
        }

    found = score_trivial(Fake())  # type: ignore[arg-type]
    # on dev, 肺 is wrong, so the first share that leaves it out is taken, which misses test's
    assert found.name.endswith("share 0.2") and found.select["entity_f1"] == 1
    assert found.score["entity_f1"] == 0 and found.choices[next(iter(found.choices))] == 1


def test_thresholds_of_two_classes_are_the_best_on_train() -> None:
    cosines = np.array([0.1, 0.2, 0.3, 0.6, 0.9])
    bins = CosineBins(cosines, ["0", "0", "1", "0", "1"])
    assert bins.predict(cosines) == ["0", "0", "1", "1", "1"]
    turned = CosineBins(cosines, ["1", "1", "0", "0", "0"])
    assert turned.predict(np.array([0.0, 0.25, 0.3, 1.0])) == ["1", "1", "0", "0"]
    same = CosineBins(cosines, ["1", "1", "1", "1", "1"])
    assert same.predict(np.array([0.0, 1.0])) == ["1", "1"]


def test_three_classes_are_the_majority_of_their_bin() -> None:
    cosines = np.linspace(0, 1, 300)
    labels = ["a"] * 100 + ["b"] * 100 + ["c"] * 100
    bins = CosineBins(cosines, labels)
    assert bins.predict(np.array([0.05, 0.5, 0.95])) == ["a", "b", "c"]


def test_majorities_of_relations() -> None:
    def relation(text: str, label: str) -> Relation:
        return Relation("", "", text, label, [label])

    train = [relation("@A@ x @B@", "false")] * 5 + [relation("@B@ x @A@", "up")] * 2
    train += [relation("@B@ y @A@", "down")]
    ways = find_majorities(train, ["@A@", "@B@"], "false")
    new = relation("@B@ z @A@", "?")
    assert [label(new) for label in ways.values()] == ["false", "up", "up"]


def test_a_comparison_below_the_baseline_is_marked_and_one_above_it_is_not(
    tmp_path: Path, runs: Path
) -> None:
    fake.fine_tuned("zh", 0.30, 0.31)
    fake.fine_tuned("smedbert", 0.40, 0.42)
    fake.fine_tuned(TRIVIAL, 0.60)
    text = versus("t", list(group_results(list_stored("finetune")).values()), "entity_f1")
    assert text.count(BELOW) == 1  # smedbert against zh, not against the baseline
    mine = group_results(list_stored("finetune"))["smedbert"]
    lines = others(mine, list_stored("finetune"), "entity_f1")
    assert [BELOW in line for line in lines if "against zh" in line] == [True]
    assert all("paired bootstrap over seeds" in line for line in lines)  # the baseline's one, too
    fake.fine_tuned("bilstm", 0.70, 0.72)
    text = versus("t", list(group_results(list_stored("finetune")).values()), "entity_f1")
    assert BELOW not in text


def test_a_saved_baseline_is_found_beside_fine_tuned_systems(tmp_path: Path, runs: Path) -> None:
    from tests.fakes import tasks

    read = load_task(tasks.write(tmp_path / "t", "ner"))
    result = save_trivial("NCBI", read, "abc", "small")
    assert [r.folder for r in list_stored("finetune", "NCBI")] == [result.folder]
    assert "without training (dictionary of training mentions, share" in format_trivial(result)
    part = save_trivial("NCBI", read, "abc", "small", share=0.5, seed=1)
    assert part.protocol["share"] == 0.5 and part.seed == 1


def test_pairs_and_answers_are_scored_by_their_cosine(tmp_path: Path) -> None:
    class Fake:
        folder = Path("t")
        kind, labels = "ranking", ["0", "1"]
        manifest = {"metric": "acc1", "language": "zh", "name": "t"}  # noqa: RUF012
        splits = {  # noqa: RUF012
            split: [
                Pair("1", f"{split}q", "头痛怎么办", "头痛要休息", "1"),
                Pair("2", f"{split}q", "头痛怎么办", "多喝水", "0"),
            ]
            for split in ("train", "dev", "test")
        }

    assert score_trivial(Fake()).score["acc1"] == 1  # type: ignore[arg-type]
