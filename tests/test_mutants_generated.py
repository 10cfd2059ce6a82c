"""Generated faults are valid, the same for a seed, and judged by the tests that run their block."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import yaml

from tests.mutants import generated
from tests.mutants.__main__ import ROOT, main
from tests.mutants.contexts import ROOMS
from tests.mutants.generate import Change, draw, is_valid, list_changes
from tests.mutants.generated import (
    EQUIVALENT,
    Contexts,
    Verdict,
    find_block,
    format_table,
    name_result,
    read_equivalent,
    run_generated,
)

SOURCE = '''"""A module."""

LIMIT = 3


def pick(rows, first, second=5, *, deep=False):
    """What a function does."""
    if first < second and not deep:
        rows.append(first)
        return swap(rows[1:], first, axis=1)
    total = -first + 2
    return total == LIMIT


class Café:
    size: int = 7

    def grow(self, é):
        self.size = é.sum(0)
        raise ValueError(f"{é}" + "x")
'''
#: {kind: {(what is there, what is put there)}}, by hand
EXPECTED = {
    "comparison": {("<", ">="), ("==", "!=")},
    "boundary": {("<", "<=")},
    "constant": {("3", "4"), ("2", "3"), ("1", "2")},
    "sign": {("-first", "first"), ("+", "-")},
    "arguments": {("rows[1:], first", "first, rows[1:]")},
    "statement": {
        ("rows.append(first)", "pass"),
        ("self.size = é.sum(0)", "pass"),
        ('raise ValueError(f"{é}" + "x")', "pass"),
    },
    "axis": {("1", "0"), ("0", "1")},
    "logic": {("and", "or"), ("not deep", "deep")},
    "slice": {("1", "1 + 1")},
    "default": {("5", "6"), ("False", "True"), ("7", "8")},
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "core").mkdir(parents=True)
    (root / "core" / "pick.py").write_text(SOURCE)
    (root / "core" / "run.yaml").write_text(
        "# 3\nlr: 1e-4\nrate: 0.5\nname: '3'\npaper: {lr: 7}\nlist: [1, true]\n"
    )
    return root


def test_every_kind_of_change_is_made_where_it_fits(tree: Path) -> None:
    found: dict[str, set[tuple[str, str]]] = {}
    for change in list_changes(tree, "core/pick.py"):
        found.setdefault(change.kind, set()).add((change.old, change.new))
        assert is_valid(change, tree)
        changed = change.apply(tree)
        assert len(changed) - len(SOURCE) == len(change.new) - len(change.old)
        assert SOURCE.splitlines()[change.line - 1].strip() == change.code
    assert found == EXPECTED


def test_numbers_and_flags_of_a_config_are_changed(tree: Path) -> None:
    changes = list_changes(tree, "core/run.yaml")
    # YAML 1.1 reads 1e-4 as text, as 3 in quotes; what a paper says is prose
    assert sorted((c.old, c.new) for c in changes) == [
        ("0.5", "5.0"),
        ("1", "2"),
        ("true", "false"),
    ]
    texts = [yaml.safe_load(change.apply(tree)) for change in changes]
    assert {"rate": 5.0, "list": [1, True]}.items() <= texts[-1].items() or len(texts) == 3


def test_the_same_seed_draws_the_same_faults() -> None:
    rooms = ("models", "app")
    first, again = draw(ROOT, 24, 3, rooms), draw(ROOT, 24, 3, rooms)
    assert first == again != draw(ROOT, 24, 4, rooms)
    assert [c.file.split("/")[0] for c in first] == ["models"] * 12 + ["app"] * 12
    assert len({c.kind for c in first}) >= 6
    for change in first:
        if change.file.endswith(".py"):
            ast.parse(change.apply(ROOT))


def test_a_room_without_so_many_places_is_an_error(tree: Path) -> None:
    with pytest.raises(ValueError, match=r"core: \d+ faults at most, expected 500"):
        draw(tree, 500, 0, ("core",))


def change_at(kind: str, old: str, tree: Path) -> Change:
    return next(
        c for c in list_changes(tree, "core/pick.py") if c.kind == kind and c.old.startswith(old)
    )


def test_the_block_of_a_change_is_the_innermost(tree: Path) -> None:
    lines = {
        kind: find_block(change_at(kind, old, tree), SOURCE)
        for kind, old in (
            ("constant", "3"),
            ("comparison", "<"),
            ("slice", "1"),
            ("default", "5"),
            ("axis", "0"),
        )
    }
    # of a default, the function's block after the docstring
    assert lines == {"constant": 0, "comparison": 8, "slice": 9, "default": 8, "axis": 19}


def test_the_nearest_and_most_specific_tests_are_chosen_within_the_budget(tree: Path) -> None:
    contexts = Contexts()
    tests = {"tests/app/test_a.py::x": 1.0, "tests/core/test_pick.py::y": 4.0, "tests/z.py::z": 9.0}
    contexts.add(
        {"tests": tests, "blocks": {"core/pick.py:8": [0, 1, 2], "core/b.py:1": [0, 2, 1]}}
    )
    contexts.add({"tests": {"tests/app/test_c.py::w": 2.0}, "blocks": {"core/pick.py:8": [0]}})
    comparison = change_at("comparison", "<", tree)
    select = contexts.select
    assert select(comparison, SOURCE, 7.0) == [
        "tests/core/test_pick.py::y",
        "tests/app/test_c.py::w",
        "tests/app/test_a.py::x",
    ]
    assert select(comparison, SOURCE, 0.1) == ["tests/core/test_pick.py::y"]
    # nobody runs this block; a constant is of everyone who uses the module
    assert select(change_at("axis", "0", tree), SOURCE) == []
    assert len(select(change_at("constant", "3", tree), SOURCE)) == 4


def test_time_outs_and_import_errors_are_counted_apart(tree: Path) -> None:
    assert name_result(None, "") == "time-out"
    assert name_result(0, "") == "survived"
    assert name_result(1, "1 failed") == "noticed"
    assert name_result(1, "ERROR collecting tests/x.py") == name_result(4, "") == "import"
    assert name_result(3, "") == "broken"
    change = list_changes(tree, "core/pick.py")[0]
    names = ["noticed", "time-out", "import", "survived", "equivalent", "broken"]
    table = format_table([Verdict(change, name, 1, 1.0) for name in names])
    assert table.splitlines()[1].split()[:5] == ["core", "3", "4", "75", "%"]
    assert "1 time-out, 1 import, 1 survived, 1 equivalent, 1 broken" in table


def test_equivalent_faults_fit_the_code_and_have_a_reason() -> None:
    for (file, code, old, new), reason in read_equivalent(EQUIVALENT).items():
        assert reason and old != new, (file, code)
        lines = [line.strip() for line in (ROOT / file).read_text().splitlines()]
        assert code in lines, f"{file}: no line is {code!r} any more"


def test_a_room_that_does_not_exist_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--generate", "1", "--room", "kitchen"]) == 2
    assert "no room 'kitchen'; choose from: core" in capsys.readouterr().err


def test_a_known_survivor_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree with one noticed, one surviving, one untested and one equivalent place."""
    monkeypatch.setattr(generated, "SHARED", ())
    root = tmp_path / "tree"
    texts = {
        "core/__init__.py": "",
        "core/sums.py": (
            "def total(a, b):\n    return a + b\n\n\ndef half(a):\n    return a / 2\n\n\n"
            "def nobody(a):\n    return a < 1\n"
        ),
        "tests/__init__.py": "",
        "tests/core/test_sums.py": (
            "from core.sums import half, total\n\n\ndef test_total():\n    assert total(2, 1) == 3"
            "\n\n\ndef test_half():\n    assert half(0) == 0\n"
        ),
        "equivalent.yaml": (
            "[{file: core/sums.py, code: 'return a < 1', old: '<', new: '<=', reason: of no use}]"
        ),
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    mutants = Path(generated.__file__).parent
    (root / "tests/mutants").mkdir()
    for name in ("__init__.py", "contexts.py"):
        (root / "tests/mutants" / name).write_text((mutants / name).read_text())
    report = tmp_path / "report.json"
    every = len(list_changes(root, "core/sums.py"))
    status = run_generated(
        root, every, 0, ("core",), 1, ["pytest", "hypothesis"], report, root / "equivalent.yaml"
    )
    output = capsys.readouterr().out
    faults = json.loads(report.read_text())["faults"]
    found = {(f["old"], f["new"]): f["result"] for f in faults}
    assert status == 1 and found == {
        ("+", "-"): "noticed",
        ("/", "*"): "survived",
        ("2", "3"): "survived",
        ("<", ">="): "untested",
        ("<", "<="): "equivalent",
        ("1", "2"): "untested",
    }
    assert "core/sums.py:6\n    return a / 2\n    '/' -> '*'" in output
    assert "core               1      5   20 %" in output
    # what was collected once is not collected again
    assert "collected 2 tests of tests/core/test_sums.py" in output
    run_generated(root, 1, 0, ("core",), 1, ["pytest", "hypothesis"], report, EQUIVALENT)
    assert "collected" not in capsys.readouterr().out
    assert set(ROOMS) >= {"core"}
