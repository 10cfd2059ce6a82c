"""A task on disk: written, read back, and what is refused or counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.files import InputError
from core.json_files import read_json, write_json
from core.reading import sha256
from datamodules.tasks import Pair, Relation, Tagged, count_overlapping, load_task, save_task
from tests.fakes import tasks

ABOUT = {"name": "t", "metric": "entity_f1", "language": "en"}


@pytest.mark.parametrize("kind", ["ner", "nested", "pair", "ranking", "relation"])
def test_what_is_written_is_read(tmp_path: Path, kind: str) -> None:
    task = load_task(tasks.write(tmp_path / "t", kind))
    save_task(
        tmp_path / "u",
        task.splits,
        **{k: task.manifest[k] for k in ("name", "kind", "metric", "language")},
    )
    assert load_task(tmp_path / "u").splits == task.splits
    assert {split: len(rows) for split, rows in task.splits.items()} == {
        "train": 24,
        "dev": 9,
        "test": 9,
    }


def test_labels_come_from_train_with_the_negative_class_first(tmp_path: Path) -> None:
    task = load_task(tasks.write(tmp_path / "t", "relation"))
    assert task.labels == ["none", "cause", "effect"]
    tagged = {
        "train": [Tagged("0", "0", "ab", [(0, 1, "x")])],
        "dev": [Tagged("0", "0", "ab", [(0, 1, "y"), (1, 2, "y")])],
    }
    manifest = save_task(tmp_path / "u", tagged, kind="ner", **ABOUT)
    assert manifest["labels"] == ["x"]
    assert (
        manifest["warnings"]["dev: labels that train lacks (y); no encoder can get them right"] == 2
    )


def test_what_cannot_be_found_is_counted_and_kept(tmp_path: Path) -> None:
    words = [(0, 3), (4, 7)]
    train = [
        Tagged("0", "0", "abc def", [(0, 7, "x"), (4, 7, "x")], words),
        Tagged("1", "1", "abc def", [(0, 2, "x")], words),
    ]
    dev = [Tagged("0", "0", "abc def", [])]
    manifest = save_task(tmp_path / "t", {"train": train, "dev": dev}, kind="ner", **ABOUT)
    assert manifest["warnings"] == {
        "train: texts that stand there more than once": 1,
        "train: overlapping entities, of which a tagger finds only the longest": 1,
        "train: entities that begin or end inside a word, which a tagger cannot find": 1,
        "dev: texts that stand in train too": 1,
    }
    assert load_task(tmp_path / "t").splits["train"] == train
    assert count_overlapping([(0, 5, "a"), (1, 2, "b"), (5, 6, "c"), (3, 4, "d")]) == 2


def test_pairs_that_stand_twice_are_counted_by_both_texts(tmp_path: Path) -> None:
    train = [
        Pair("0", "q", "a", "b", "1"),
        Pair("1", "q", "a", "c", "0"),
        Pair("2", "q", "e", "c", "0"),
    ]
    dev = [
        Pair("0", "q", "a", "d", "1"),
        Pair("1", "q", "a", "c", "1"),
        Pair("2", "q", "x", "b", "1"),
    ]
    manifest = save_task(tmp_path / "t", {"train": train, "dev": dev}, kind="pair", **ABOUT)
    assert manifest["warnings"] == {"dev: texts that stand in train too": 1}


@pytest.mark.parametrize(
    ("splits", "kind", "message"),
    [
        ({"train": [], "dev": []}, "ner", "no examples in its train split"),
        ({"dev": [Tagged("0", "0", "a", [])]}, "ner", "no examples in its train split"),
        ({"train": [Tagged("0", "0", "a", [])]}, "ner", "neither a dev nor a test split"),
        (
            {"train": [Tagged("0", "0", "a", [(0, 2, "x")])], "dev": [Tagged("0", "0", "a", [])]},
            "ner",
            "is not in its text",
        ),
        (
            {"train": [Tagged("0", "0", "a", [])] * 2, "dev": [Tagged("0", "0", "a", [])]},
            "ner",
            "id '0' is twice",
        ),
        (
            {"train": [Pair("0", "q", "a", "b", "yes")], "dev": [Pair("0", "q", "a", "b", "1")]},
            "ranking",
            "right (1) or wrong (0)",
        ),
        (
            {
                "train": [Relation("0", "d", "a", "x", ["y"])],
                "dev": [Relation("0", "d", "a", "y", ["y"])],
            },
            "relation",
            "not among its gold",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, splits: dict, kind: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        save_task(tmp_path / "t", splits, kind=kind, **ABOUT)
    assert message in str(error.value)
    assert not (tmp_path / "t").exists()


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    folder = tasks.write(tmp_path / "t", "ner")
    lines = (folder / "dev.jsonl").read_text().splitlines()
    lines[2] = json.dumps({"id": "2"})
    (folder / "dev.jsonl").write_text("\n".join(lines))
    manifest = read_json(folder / "manifest.json")
    write_json(
        folder / "manifest.json",
        manifest | {"sha256": manifest["sha256"] | {"dev": sha256(folder / "dev.jsonl")}},
    )
    with pytest.raises(InputError, match=r"dev\.jsonl:3: expected the fields id, document, text"):
        load_task(folder)
