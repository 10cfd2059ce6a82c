"""A source's running text as JSONL: a share of it, and nothing said of some relations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kg.build.cmekg_pickle import parse_pickle
from kg.build.sources import cmekg
from kg.build.texts import is_chosen
from tests.commands import command
from tests.fakes import cmekg as fake


def written(out: Path, *words: str) -> dict[str, str]:
    """{id: text} that the command writes."""
    assert command("graph texts")([*words, "--out", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["text"] for row in rows}


def test_a_share_is_chosen_by_id_alone(tmp_path: Path) -> None:
    file = str(fake.write(tmp_path, drugs=160))
    every = written(tmp_path / "all.jsonl", "cmekg", file)
    half = written(tmp_path / "half.jsonl", "cmekg", file, "--share", "0.5")
    fifth = written(tmp_path / "fifth.jsonl", "cmekg", file, "--share", "0.2")
    assert every == {f"{e}/{k}": t for e, k, t in cmekg.texts(file)}
    assert fifth.items() < half.items() < every.items()  # more text holds less text, word for word
    assert len(half) / len(every) == pytest.approx(0.5, abs=0.1)
    assert set(half) == {name for name in every if is_chosen(name, 0.5)}
    assert sum(is_chosen(str(i), 0.2) for i in range(5000)) / 5000 == pytest.approx(0.2, abs=0.02)
    assert is_chosen("any", 1.0)


def test_nothing_is_said_of_a_relation_left_out(tmp_path: Path) -> None:
    file = str(fake.write(tmp_path))
    every = "".join(written(tmp_path / "a.jsonl", "cmekg", file).values())
    less = "".join(
        written(tmp_path / "b.jsonl", "cmekg", file, "--without", "别称,英文名,没有").values()
    )
    aliases = {t for h in parse_pickle(Path(file)).values() for t in h.get("别称", [])}
    assert len(aliases) > 10 and any(alias in every for alias in aliases)
    assert not any(alias in less for alias in aliases) and "常见症状" not in "别称,英文名"
    symptoms = {t for h in parse_pickle(Path(file)).values() for t in h.get("常见症状", [])}
    assert all(s in less for s in symptoms)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cmekg", "--share", "0"], "--share 0.0: expected a share above 0 and at most 1"),
        (["cmekg", "--share", "1.5"], "--share 1.5: expected a share"),
        (["hpo", "--without", "is_a"], "--without: the texts of 'hpo' are not made from relations"),
        (["disease39"], "source 'disease39' has no running text of its own"),
    ],
)
def test_what_is_refused(
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command("graph texts")([*words, "--out", str(tmp_path / "t.jsonl")]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "t.jsonl").exists()
