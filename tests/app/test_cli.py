"""`kepl`: verbs, exit codes, standard input, any folder."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from app.cli import main
from tests.fakes.graphs import graph
from tests.fakes.kebiolm import Folders

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    made = graph({"renal failure": "disease", "foozin": "drug"}, [("foozin", "treats", "renal failure")])
    return str(made.save(tmp_path / "graph"))


def test_a_text_is_linked(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["link", "--graph", folder, "--text", "Foozin in renal failure."]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Foozin in renal failure." and said[1].split() == ["0-6", "'Foozin'", "foozin", "foozin", "1.000"]
    assert main(["link", "--graph", folder, "--text", "foozin", "--json", "--nil", "2"]) == 0
    (mention,) = json.loads(capsys.readouterr().out)["mentions"]
    assert mention["entity"] is None and mention["candidates"][0]["entity"] == "foozin"


def test_lines_of_standard_input_are_texts(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("foozin\n\nnothing\n"))
    assert main(["link", "--graph", folder, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(x["text"], len(x["mentions"])) for x in lines] == [("foozin", 1), ("nothing", 0)]


def test_files_are_linked(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("foozin helps\nrenal failure\n")
    out = tmp_path / "deep" / "links.jsonl"
    assert main(["link", "--graph", folder, "--input", str(tmp_path / "notes.txt"), "--output", str(out)]) == 0
    assert "2 documents, 2 mentions, 2 linked" in capsys.readouterr().out
    assert len(out.read_text().splitlines()) == 2
    assert (
        main(["link", "--graph", folder, "--input", str(tmp_path / "notes.txt"), "--output", str(out), "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out) == {"output": str(out), "documents": 2, "mentions": 2, "linked": 2}


def test_what_is_in_a_graph(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "info", folder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["entities"] == 2
        and found["types"] == {"disease": 1, "drug": 1}
        and found["relations of triples"] == {"treats": 1}
    )
    assert main(["graph", "info", folder]) == 0
    assert "treats" in capsys.readouterr().out


def test_vectors_of_texts(fake_kebiolm: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "names.txt").write_text("renal failure\nlesion\n")
    words = ["embed", "--model", fake_kebiolm.bert, "--input", str(tmp_path / "names.txt")]
    assert main([*words, "--output", str(tmp_path / "v.safetensors")]) == 0
    vectors = load_file(tmp_path / "v.safetensors")["vectors"]
    assert vectors.shape == (2, 32) and "2 vectors of 32 by" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [x["text"] for x in lines] == ["renal failure", "lesion"]
    assert lines[0]["vector"] == pytest.approx(vectors[0].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    "words, code, wanted",
    [
        (["link", "--graph", "nowhere", "--text", "x"], 2, "no knowledge graph here"),
        (["link", "--graph", "GRAPH", "--text", "x", "--chain", "sapbert"], 2, "finds no mentions"),
        (["link", "--graph", "GRAPH", "--input", "x"], 2, "--input and --output go together"),
        (["link", "--graph", "GRAPH", "--text", "x", "--set", "BEAMS"], 2, "wanted NAME=VALUE"),
        (["link", "--graph", "GRAPH", "--text", "x", "--set", "BEEMS=3"], 2, "--set BEEMS: no such setting"),
        (["link", "--graph", "GRAPH", "--input", "nowhere.txt", "--output", "o.jsonl"], 2, "no such file"),
        (["link", "--graph", "GRAPH", "--text", "x", "--top", "0"], 2, "top 0"),
        (["embed", "--model", "minilm", "--text", "x"], 2, "--output FILE or --json"),
        (["graph", "info", "nowhere"], 2, "no knowledge graph here"),
        (["graph", "build", "nothing"], 2, "nothing"),
        (["evaluate", "NO-EL"], 2, "no linking task 'NO-EL'"),
        (["lonk"], 2, "invalid choice"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line_and_exit_code_2(
    words: list[str], code: int, wanted: str, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main([folder if word == "GRAPH" else word for word in words]) == code
    said = capsys.readouterr().err
    assert wanted in said and "Traceback" not in said
    assert not list(tmp_path.glob("o.jsonl*"))


@pytest.mark.parametrize("verb", [[], ["link"], ["embed"], ["graph", "info"]])
def test_help_has_examples(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb, "--help"]) == 0
    assert "kepl" in (said := capsys.readouterr().out) and "--" in said


def test_the_command_runs_from_any_folder(folder: str, tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / "bin").mkdir()
    shutil.copy(ROOT / "bin" / "kepl", root / "bin")
    (root / "app").symlink_to(ROOT / "app")
    (root / "kg").symlink_to(ROOT / "kg")
    (root / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (root / ".venv" / "bin" / "python").chmod(0o755)
    (tmp_path / "link").symlink_to(root / "bin" / "kepl")
    words = ["link", "--graph", Path(folder).name, "--text", "foozin", "--json"]
    done = subprocess.run([tmp_path / "link", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mentions"][0]["entity"] == "foozin"
    (root / ".venv" / "bin" / "python").unlink()
    done = subprocess.run([tmp_path / "link", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "run `make setup`" in done.stderr
