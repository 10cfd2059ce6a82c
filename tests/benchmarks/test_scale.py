"""python -m benchmarks.scale: what it measures, at small sizes."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from benchmarks.scale import engines


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed")
def test_two_nodes_write_the_same_bytes_whatever_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert engines.main(["--documents", "1500", "--files", "24", "--names", "2000"]) == 0
    printed = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]  # Ray tells of the lost node there, too
    rows = [row for row in printed if len(row) == 5 and row[0] != "way"]
    assert len(rows) == 5 and all(row[1] in ("24", "25") and row[4] == "True" for row in rows)
