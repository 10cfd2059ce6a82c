"""Commands by their words or by the name of their function, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app import cli
from core import call
from core.settings import options_of
from tests.fakes.graphs import graph

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", call.COMMANDS)
def test_every_command_has_help_and_types(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = call.COMMANDS[name]
    function = call.load_function(command.function)
    words = name.split()
    if command.choices:
        choices = call.load_function(command.choices)()
        assert call.main([*words, "--help"]) == 0 and choices[0] in capsys.readouterr().out
        function, words = function(choices[0]), [*words, choices[0]]
    options = options_of(function)
    assert set(command.positions) <= {*options, "config"}
    assert [option.name for option in options.values() if len(option.help) < 8] == []
    assert cli.main([*words, "--help"]) == 0
    assert f"usage: kepl {' '.join(words)}" in capsys.readouterr().out


def test_a_group_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["graph", "--help"], ["data", "--help"], ["graph", "segment", "--help"]):
        assert cli.main(words) == 0
        printed = capsys.readouterr().out
        for name in call.names_in(" ".join(words[:-1])):
            assert name in printed and call.COMMANDS[name].about in printed


def test_a_command_is_called_by_its_words_or_its_function(tmp_path: Path) -> None:
    for name in ("one", "two"):
        graph({name: "a"}, []).save(tmp_path / name)
    words = [str(tmp_path / "one"), str(tmp_path / "two"), "--out"]
    assert call.main(["graph", "merge", *words, str(tmp_path / "by-words")]) == 0
    assert call.main(["kg.build.merge:merge", *words, str(tmp_path / "by-name")]) == 0
    tables = [p.name for p in (tmp_path / "by-words").glob("*.parquet")]
    assert len(tables) > 3
    for table in tables:
        both = [(tmp_path / name / table).read_bytes() for name in ("by-words", "by-name")]
        assert both[0] == both[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["graph", "mege"], "no command 'graph mege'; did you mean graph merge?"),
        (["kg.build.nothing:merge"], "no module 'kg.build.nothing'; expected module:function"),
        (["kg.build.merge:nothing"], "no function 'nothing' in kg.build.merge"),
        (["graph", "merge", "a", "b"], "OUT is missing: Folder for the graph"),
        (["graph", "merge", "a", "b", "--out", "c", "--k", "3"], "no setting --k"),
        (["graph", "build", "hp0"], "no source 'hp0'; did you mean hpo?"),
    ],
)
def test_what_is_refused_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for main in (call.main, cli.main):
        if main is cli.main and ":" in words[0]:
            continue
        assert main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_files_of_settings_are_laid_over_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A later file wins, and what is typed wins over all."""
    (tmp_path / "a.yaml").write_text("longest: 0\nleast: 0\n")
    (tmp_path / "b.yaml").write_text("longest: 7\n")
    graph({"甲": "a"}, [("甲", "r", "甲")]).save(tmp_path / "g")
    words = ["graph", "refine", str(tmp_path / "g"), "--out", str(tmp_path / "o")]
    files = ["--config", str(tmp_path / "a.yaml"), "--config", str(tmp_path / "b.yaml")]
    assert call.main([*words, *files, "--share", "2"]) == 2
    assert "got 7, 0, 0.3 and 2.0" in capsys.readouterr().err


@pytest.mark.parametrize(("module", "name"), [("kg.build", "build"), ("kg.linking", "link")])
def test_modules_that_scripts_call_are_commands(module: str, name: str) -> None:
    words = [sys.executable, "-P", "-m", module, "--k", "3"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f" {name}" in done.stderr or "no source '--k'" in done.stderr


def test_a_stage_of_a_pipeline_is_the_command(tmp_path: Path) -> None:
    assert call.command_words("graph refine", ["g"]) == ["-m", "core.call", "graph", "refine", "g"]
    assert call.command_words("a.b:c", ["g"]) == ["-m", "core.call", "a.b:c", "g"]
    assert call.command_words("experiments.run", ["x"]) == ["-m", "experiments.run", "x"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "core.call", "graph", "inf"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stderr.startswith("error: no command 'graph inf'")
