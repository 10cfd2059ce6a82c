"""Numbers that the papers' tables report: each is in the paper's text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ROOT.parent / "shared" / "papers"
TABLES = sorted((ROOT / "benchmarks" / "papers").glob("*/table*.yaml"))
#: of EMBERT's Table 2, whose text has lost them; test_published_sizes.py has them, too
UNREADABLE = {1673, 16071, 46600}


def list_reported(value: Any) -> Iterator[float]:
    """The numbers in what a row reports."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from list_reported(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def is_in(text: str, number: float) -> bool:
    """Whether a text has a number, with any of the decimals and without a leading 0."""
    forms = {str(number), *(f"{number:.{decimals}f}" for decimals in (1, 2, 3))}
    forms |= {form.removeprefix("0") for form in forms if form.startswith("0.")}
    return any(re.search(rf"(?<![\d.]){re.escape(form)}(?!\d)", text) for form in forms)


def test_a_number_is_found_as_a_paper_prints_it() -> None:
    assert is_in("a 71.0 b", 71) and is_in("of .65", 0.65) and is_in("12 000", 12)
    assert not is_in("171 7.1 71.03", 71.01) and not is_in("1663", 166)


@pytest.mark.skipif(not PAPERS.is_dir(), reason=f"no papers in {PAPERS}")
@pytest.mark.parametrize("file", TABLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_reported_numbers_are_the_paper_s(file: Path) -> None:
    paper = PAPERS / f"{file.parent.name}.txt"
    text = paper.read_text("utf-8").replace(",", "")
    rows = yaml.safe_load(file.read_text("utf-8"))["rows"]
    reported = [number for row in rows for number in list_reported(row.get("reported"))]
    missing = {number for number in reported if not is_in(text, number)}
    assert missing <= (UNREADABLE if file.match("embert/table2.yaml") else set())
