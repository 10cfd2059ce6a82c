"""CSV that a spreadsheet opens without running anything of it."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess

import pytest

from core.spreadsheets import CsvWriter
from core.tracking import ROOT

FORMULAS = ("=1+1", "+cmd|'/C calc'!A0", "-2+3+cmd", "@SUM(A1)", "\t=1", "\r=1")
PLAIN = ("gout", "-0.5", "+3e2", "", "a=b", "-", "'x", "1-2")


def test_a_formula_becomes_text_and_all_else_stays() -> None:
    out = io.StringIO()
    writer = CsvWriter(out)
    writer.writerow(FORMULAS)
    writer.writerows([PLAIN, [-1, 0.5, None]])
    first, second, third = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert (
        first == ["'" + one.replace("\r", "\n") for one in FORMULAS]
        and second == list(PLAIN)
        and third == ["-1", "0.5", ""]
    )


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_the_pages_download_does_the_same() -> None:
    page = (ROOT / "app" / "page" / "page.js").read_text()
    cell = page[page.index("const cell =") : page.index("const kept =")]
    program = f"{cell}\nconsole.log(JSON.stringify({[*FORMULAS, 'gout', -0.5]!r}.map(cell)))"
    said = subprocess.run(
        ["node", "-e", program], capture_output=True, text=True, check=True
    ).stdout
    for one in FORMULAS:
        assert "'" + one.strip()[:3] in said or "'\\" in said
    assert '"gout","-0.5"' in said


def test_csv_is_written_by_nothing_else() -> None:
    rooms = ("core", "kg", "datamodules", "models", "experiments", "inference", "benchmarks", "app")
    files = [
        p for room in rooms for p in (ROOT / room).rglob("*.py") if p.name != "spreadsheets.py"
    ]
    assert [
        str(p) for p in files if re.search(r"csv\.(Dict)?[wW]riter\(|\.to_csv\(", p.read_text())
    ] == []
