"""The list of faults fits the code, and what puts them in reports what becomes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, run
from tests.mutants.faults import Fault, inserted, read, staleness

FAULTS = read()


def test_every_fault_fits_the_code() -> None:
    """Each `old` occurs once in its file, and the named tests exist: a change of the code takes its
    faults along."""
    assert len(FAULTS) >= 150
    assert [f"{fault.name}: {why}" for fault in FAULTS if (why := staleness(fault, ROOT))] == []


def test_faults_are_in_every_room() -> None:
    rooms = {fault.file.split("/")[0] for fault in FAULTS}
    assert rooms >= {
        "core",
        "kg",
        "datamodules",
        "models",
        "experiments",
        "inference",
        "benchmarks",
        "app",
    }
    assert not [fault.name for fault in FAULTS if fault.file.startswith("tests/")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A program of one room with a test that does not look at everything."""
    root = tmp_path / "tree"
    for name, text in (
        (
            "room/sums.py",
            "def total(a, b):\n    return a + b\n\n\ndef half(a):\n    return a / 2\n",
        ),
        (
            "tests/test_sums.py",
            (
                "from room.sums import half, total\n\n\ndef test_total():\n    assert total(2, 1)"
                " == 3\n\n\ndef test_half():\n    assert half(0) == 0\n"
            ),
        ),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


FILE, TOTAL, HALF = (
    "room/sums.py",
    "tests/test_sums.py::test_total",
    "tests/test_sums.py::test_half",
)


def test_what_becomes_of_a_fault_is_reported(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (tree / FILE).read_text()
    faults = [
        Fault("sign", FILE, "a + b", "a - b", (HALF, TOTAL)),
        Fault("broken", FILE, "def total", "def total(", (TOTAL,)),  # not even imported
        Fault("third", FILE, "a / 2", "a / 3", (HALF,)),
        Fault("same", FILE, "a + b", "b + a", (TOTAL,), "a sum has no order"),
        Fault("gone", FILE, "a * b", "a", (TOTAL,)),
    ]
    assert run(faults, tree, 1, ["pytest", "hypothesis"]) == 1
    output = capsys.readouterr().out
    lines = output.partition("\nnot killed:")[0].splitlines()
    found = {line.split()[3]: line.split()[0] for line in lines if line.endswith(f"  {FILE}")}
    assert found == {
        "sign": "killed",
        "broken": "killed",
        "third": "survived",
        "same": "survived",
        "gone": "stale",
    }
    assert "5 faults: 2 killed, 1 survived, 1 stale, 1 survived with a reason" in output
    assert (
        "'a / 2' -> 'a / 3'" in output
        and "as expected: a sum has no order" in output
        and "occurs 0 times" in output
    )
    assert (tree / FILE).read_text() == before
    assert run([faults[0], faults[3]], tree, 1, ["pytest", "hypothesis"]) == 0


def test_tests_that_fail_without_a_fault_are_an_error(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / FILE).write_text((tree / FILE).read_text().replace("a + b", "a * b"))
    assert (
        run(
            [Fault("third", FILE, "a / 2", "a / 3", (HALF, TOTAL))],
            tree,
            1,
            ["pytest", "hypothesis"],
        )
        == 2
    )
    assert "fail without any fault" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Fault("x", "room/none.py", "a", "b", (TOTAL,)), "no file room/none.py"),
        (Fault("x", FILE, "return", "pass", (TOTAL,)), "`old` occurs 2 times"),
        (Fault("x", FILE, "a + b", "a + b", (TOTAL,)), "`new` equals `old`"),
        (Fault("x", FILE, "a + b", "a", ()), "no tests are named"),
        (
            Fault("x", FILE, "a + b", "a", ("tests/test_none.py",)),
            "no test file tests/test_none.py",
        ),
        (
            Fault("x", FILE, "a + b", "a", ("tests/test_sums.py::test_tota",)),
            "no test test_tota in tests/test_sums.py",
        ),
    ],
)
def test_a_fault_that_does_not_fit_is_reported(tree: Path, fault: Fault, why: str) -> None:
    assert why in staleness(fault, tree)
    with pytest.raises(ValueError, match=why.split("`")[0] or "old"), inserted(fault, tree):
        pass


def test_a_fault_is_taken_out_again_whatever_happens(tree: Path) -> None:
    before = (tree / FILE).read_text()
    fault = Fault("sign", FILE, "a + b", "a - b", (TOTAL,))
    with pytest.raises(KeyboardInterrupt), inserted(fault, tree):
        assert "a - b" in (tree / FILE).read_text()
        raise KeyboardInterrupt
    assert (tree / FILE).read_text() == before


def test_an_entry_that_is_not_complete_is_an_error(tmp_path: Path) -> None:
    entry = "- {name: a, file: f, old: x, new: y, tests: [t]}\n"
    (tmp_path / "list.yaml").write_text(entry * 2)
    with pytest.raises(ValueError, match=r"list.yaml: names that occur twice: a"):
        read(tmp_path / "list.yaml")
    (tmp_path / "list.yaml").write_text("- {name: a, file: f, old: x, new: y}\n")
    with pytest.raises(ValueError, match=r"list.yaml: a: expected name, file, old, new, tests"):
        read(tmp_path / "list.yaml")
