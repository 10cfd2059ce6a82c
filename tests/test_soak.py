"""How chains grow with one text: what counts as worse than linear, and that every chain runs."""

from __future__ import annotations

import pytest

from tests.soak.chains import CHAINS, Row, main, text_of, worse_than_linear


def test_worse_than_linear_is_noticed() -> None:
    rows = [Row("a", 100, 1.0, 50.0, 1), Row("a", 200, 2.4, 120.0, 2), Row("a", 400, 9.0, 400.0, 4)]
    assert worse_than_linear(rows[:2]) == []
    assert worse_than_linear(rows) == ["a: 2.40 s, then 9.00 s", "a: 120 MB, then 400 MB"]
    assert len(text_of(5000)) == 5000


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_grows_with_its_text(chain: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sizes", "60", "120", "--chains", chain]) == 0
    assert f"{chain:<12}" in capsys.readouterr().out
