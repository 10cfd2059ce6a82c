"""What has a golden example: the table of CONTRIBUTING.md, held against the code. A data module, a
format, a vocabulary, a task or a statistic that no row names is an error."""

from __future__ import annotations

import ast
import gc
import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest
import pytorch_lightning as pl

import datamodules
from benchmarks.records import Record
from core.files import InputError
from datamodules.tasks.linking import linking_tasks
from datamodules.tasks.prepare import all_tasks
from inference import convert
from kg.build.layouts import preset_names
from kg.build.source import source_names
from kg.documents import formats

TESTS = Path(__file__).parents[1]
ROW = re.compile(r"^\| ([a-z ]+) \| (`.+?`) \| `([\w/]+\.py)::(\w+)` \| (.+) \|$", re.M)


@cache
def rows() -> list[tuple[str, list[str], str, str]]:
    """(kind, what it is of, file, test) of each row."""
    page = (TESTS.parent / "CONTRIBUTING.md").read_text()
    section = page.partition("## Golden examples\n")[2].partition("\n## ")[0]
    found = ROW.findall(section)
    assert len(found) == section.count("\n|") - 2, "a row that is not kind, of, test, fields"
    return [(kind, re.findall("`([^`]+)`", of), file, test) for kind, of, file, test, _ in found]


def list_data_modules() -> list[str]:
    """Classes below the room that no other class of the room inherits."""
    for module in pkgutil.walk_packages(datamodules.__path__, "datamodules."):
        importlib.import_module(module.name)
    every, waiting = [], [pl.LightningDataModule]
    while waiting:
        own = [
            one
            for one in waiting.pop().__subclasses__()
            if one.__module__.startswith("datamodules.")
        ]
        every += own
        waiting += own
    bases = {base for one in every for base in one.__mro__[1:]}
    return [one.__name__ for one in every if one not in bases]


def list_statistics() -> list[str]:
    """Metrics of the tasks, and the parts of a record that are computed of its examples or
    seeds."""
    record = Record(
        id="x", value=0.5, sd=0.1, interval=(0.4, 0.6), p=0.1, p_seeds=0.1, seeds=(0, 1)
    )
    parts = []
    for name in vars(record):
        try:
            record.part(name)
        except InputError:
            continue
        parts.append(name)
    return sorted({task.metric for task in all_tasks().values()}) + [
        name for name in parts if name not in ("value", "seeds")
    ]


def list_existing() -> dict[str, list[str]]:
    """{kind of the table: what the code has of it}."""
    tasks = (name.partition(":")[0] for name in (*all_tasks(), *linking_tasks()))
    return {
        "data module": list_data_modules(),
        "format read": list(formats.FORMATS),
        "format written": list(convert.FORMATS),
        "source": source_names(),
        "preset": preset_names(),
        "task": [*dict.fromkeys(tasks), "own"],
        "statistic": [*list_statistics(), "Holm"],
        "table of names": ["translations", "thesaurus"],
    }


@pytest.mark.parametrize("kind", list_existing())
def test_everything_has_a_golden_example(kind: str) -> None:
    existing = list_existing()[kind]
    listed = [name for own, names, _, _ in rows() if own == kind for name in names]
    missing = [name for name in existing if name not in listed]
    assert not missing, (
        f"{kind} without a golden example: {', '.join(missing)}. Write one into tests/golden, each"
        " value by hand, and add its row to the table of CONTRIBUTING.md"
    )
    gone = [name for name in listed if name not in existing]
    assert not gone, f"rows of CONTRIBUTING.md whose {kind} does not exist: {', '.join(gone)}"
    assert len(listed) == len(set(listed)), f"{kind} in two rows"


def test_kinds_of_rows() -> None:
    assert {kind for kind, *_ in rows()} == set(list_existing())


def test_every_golden_test_exists_and_says_what_it_is_of() -> None:
    files = {file: (TESTS / file).read_text() for _, _, file, _ in rows()}
    functions = {
        file: {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        for file, text in files.items()
    }
    for kind, names, file, test in rows():
        assert test in functions[file], f"{file}::{test}: no such test"
        if kind == "data module":
            assert all(name in files[file] for name in names), f"{file} does not use {names}"


def test_a_data_module_without_an_example_is_found() -> None:
    base = importlib.import_module("datamodules.steps").CorpusData
    sixth = type("SixthData", (base,), {"__module__": "datamodules.sixth"})
    try:
        assert "SixthData" in list_data_modules()
        with pytest.raises(AssertionError, match="data module without a golden example: SixthData"):
            test_everything_has_a_golden_example("data module")
    finally:
        del sixth
        gc.collect()  # a class is a circle; other tests must not find it
    assert "SixthData" not in list_data_modules()
