"""An encoder copied to where a pipeline starts from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.files import InputError, sha256, write_json
from experiments.encoders import NotTrained, copied, encoder, main, options
from tests.fakes import bert


def test_a_folder_is_copied_once(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = bert.write(tmp_path / "bert", ["heart", "fever"], layers=1), tmp_path / "start"
    main([str(source), "--out", str(out)])
    assert capsys.readouterr().out == f"{out}: {source}\n" and sha256(out) == sha256(source)
    before = os.stat(out / "config.json").st_mtime_ns
    main([str(source), "--out", str(out)])
    assert "there already; kept" in capsys.readouterr().out and os.stat(out / "config.json").st_mtime_ns == before
    (out / "half").write_text("left over")  # another content: whole again
    assert copied(str(source), out) and sha256(out) == sha256(source)
    other = bert.write(tmp_path / "other", ["heart", "fever"], layers=1, seed=1)
    assert copied(str(other), out) and sha256(out) == sha256(other) != sha256(source)


def test_a_papers_name_is_its_newest_export(runs: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new")):
        run = runs / "zh" / "pretrain" / name / "seed0"
        write_json(run / "export" / "manifest.json", {"paper": "zh", "n": number})
        write_json(run / "export" / "config.json", {})
        write_json(run / "finished.json", {})
        os.utime(run / "finished.json", (number, number))
    assert copied("zh", tmp_path / "start") and sha256(tmp_path / "start") == sha256(encoder("zh").folder)
    assert not copied("zh", tmp_path / "start")


def test_what_cannot_be_copied(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotTrained, match="make pretrain-zh"):
        copied("zh", tmp_path / "start")
    with pytest.raises(InputError, match="some/model: a model of the hub.* ENCODER=some/model"):
        copied("some/model", tmp_path / "start")
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path / "none"), "--out", str(tmp_path / "start")])
    assert stopped.value.code == 2 and "no such folder" in capsys.readouterr().err and not (tmp_path / "start").exists()


def test_options_are_those_of_the_recipes() -> None:
    assert "smedbert" in options()["HITS"] and "smedbert" in options()["K"] and encoder("minilm").options == {}
