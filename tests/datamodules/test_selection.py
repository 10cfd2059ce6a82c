"""Which examples are trained on, selected on and scored."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from core.files import InputError
from datamodules.tasks import Tagged, Task
from datamodules.tasks.selection import keep_share, select_examples


def examples(count: int, per: int = 2) -> list[Any]:
    return [Tagged(str(i), f"d{i // per}", "x", []) for i in range(count)]


def task(**splits: list[Any]) -> Task:
    return Task(Path("t"), {}, splits)


def test_without_a_dev_split_a_tenth_of_the_documents_selects() -> None:
    found = select_examples(task(train=examples(200), test=examples(4)))
    train, select = found.examples["train"], found.examples["select"]
    assert (len(train), len(select), found.selected_on) == (180, 20, "a tenth of train")
    assert not {e.document for e in train} & {e.document for e in select}
    whole = select_examples(task(train=examples(200), dev=examples(6), test=examples(4)))
    assert (len(whole.examples["train"]), whole.selected_on, whole.scored) == (200, "dev", "test")
    assert select_examples(task(train=examples(200), dev=examples(6))).scored == "dev"


def test_a_smaller_share_is_a_part_of_a_larger_one_and_seeds_differ() -> None:
    whole = examples(200)
    parts = [keep_share(whole, share, 3) for share in (0.03, 0.1, 0.3, 1.0)]
    assert [len(p) for p in parts] == [6, 20, 60, 200]
    for small, large in itertools.pairwise(parts):
        assert set(map(id, small)) < set(map(id, large))
    assert parts[1] == [e for e in whole if e in parts[1]]  # in the file's order
    assert keep_share(whole, 0.1, 4) != parts[1]
    assert len(keep_share(whole, 1e-6, 0)) == 2  # one document at least
    for share in (0, 1.1, -0.5):
        with pytest.raises(InputError, match="share .*: expected more than 0 and at most 1"):
            keep_share(whole, share, 0)
