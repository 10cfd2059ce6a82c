import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.files import InputError
from core.json_files import read_json
from core.reading import sha256
from core.settings import options_of
from kg.build import source as build
from kg.graph import KnowledgeGraph
from tests.commands import command
from tests.fakes import hpo as fake_hpo
from tests.fakes import obo as fake_obo
from tests.fakes import umls as fake_umls

run_build = command("graph build")

ROOT = Path(__file__).parents[2]


def test_every_source_has_read_and_files():
    names = build.source_names()
    assert {"hpo", "obo", "tables", "umls"} <= set(names)
    for name in names:
        module = build.source_module(name)
        assert callable(module.read) and callable(module.files) and module.__doc__
        options = options_of(build.source_command(name))
        assert {"path", "out", "fresh"} <= options.keys()
        assert all(option.help for option in options.values()), f"{name}: options without help"


def test_a_new_file_is_a_new_source(tmp_path, monkeypatch):
    (tmp_path / "mine.py").touch()
    (tmp_path / "__init__.py").touch()
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    assert build.source_names() == ["mine"]


def test_command(tmp_path):
    source, out = fake_umls.write(tmp_path / "META"), tmp_path / "graph"
    words = [
        sys.executable,
        "-m",
        "core.call",
        "graph",
        "build",
        "umls",
        str(source),
        "--out",
        str(out),
        "--languages",
        "ENG,SPA",
        "--include-rel",
    ]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "4 entities, 9 names, 3 definitions, 5 triples, 4 relations" in done.stdout
    assert "left out: 1 MRREL self loops" in done.stdout
    graph = KnowledgeGraph.load(out)
    assert graph.counts() == {
        "entities": 4,
        "names": 9,
        "definitions": 3,
        "triples": 5,
        "relations": 4,
        "equivalences": 0,
    }
    manifest = read_json(out / "manifest.json")
    assert (
        manifest["reader"] == "umls"
        and manifest["version"] == "2099AA"
        and "UMLS" in manifest["licence"]
    )
    assert (
        manifest["options"]["languages"] == ["ENG", "SPA"]
        and manifest["options"]["include_rel"] is True
    )
    conso = source / "MRCONSO.RRF"
    assert manifest["inputs"]["MRCONSO.RRF"] == {
        "bytes": conso.stat().st_size,
        "sha256": sha256(conso),
    }
    assert set(manifest["inputs"]) == {"MRCONSO.RRF", "MRSTY.RRF", "MRREL.RRF", "MRDEF.RRF"}


def test_same_inputs_are_kept(tmp_path, capsys):
    source, out = fake_hpo.write(tmp_path / "hpo"), tmp_path / "graph"
    arguments = ["hpo", str(source), "--out", str(out)]
    before = lambda: (out / "manifest.json").stat().st_ino  # noqa: E731
    assert run_build(arguments) == 0
    first = before()
    assert "kept: " not in capsys.readouterr().err
    assert run_build(arguments) == 0
    assert "kept: " in capsys.readouterr().err and before() == first
    assert run_build([*arguments, "--fresh"]) == 0
    assert "kept: " not in capsys.readouterr().err and before() != first
    fake_hpo.write(source, seed=1)  # other inputs
    assert run_build(arguments) == 0
    assert "kept: " not in capsys.readouterr().err
    (out / "names.parquet").write_bytes(b"")  # no longer whole
    assert run_build(arguments) == 0
    said = capsys.readouterr()
    assert "kept: " not in said.err and "names.parquet" in said.err
    assert len(KnowledgeGraph.load(out).names) > 0


def test_other_options_build_again(tmp_path, capsys):
    arguments = [
        "obo",
        str(fake_obo.write_text(tmp_path / "x.obo")),
        "--out",
        str(tmp_path / "graph"),
    ]
    assert run_build(arguments) == 0
    assert run_build([*arguments, "--type", "thing"]) == 0
    assert "kept: " not in capsys.readouterr().out
    assert set(KnowledgeGraph.load(tmp_path / "graph").entities["type"].to_pylist()) == {"thing"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hp0"], r"no source 'hp0'; did you mean hpo. Choose from: .*hpo, .*umls"),
        (["../build"], "no source '../build'; choose from"),
        (["obo", "none.obo", "--out", "graph"], "none.obo: no such file"),
        (["umls", "nowhere", "--out", "graph"], "nowhere/MRCONSO.RRF: missing"),
    ],
)
def test_input_errors_are_one_line_and_exit_2(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert run_build(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    with pytest.raises(InputError, match=message):
        raise InputError(said)
    assert list(tmp_path.iterdir()) == []


def test_usage(capsys):
    assert run_build([]) == 2
    assert "Choose from: " in capsys.readouterr().out
    assert run_build(["obo", "x.obo"]) == 2
    assert "OUT is missing: Folder for the graph" in capsys.readouterr().err
    assert run_build(["umls", "--help"]) == 0
    assert "--semantic-types" in capsys.readouterr().out


def test_a_folder_that_is_no_graph_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    source = fake_obo.write_text(tmp_path / "x.obo")
    for fresh in ([], ["--fresh"]):
        assert run_build(["obo", str(source), "--out", str(tmp_path / "thesis"), *fresh]) == 2
    assert "it is left alone" in capsys.readouterr().err
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "years of work"
    assert run_build(["obo", str(source), "--out", str(source)]) == 2


def test_a_broken_source_leaves_the_old_graph(tmp_path, capsys):
    source, out = fake_obo.write_text(tmp_path / "x.obo"), tmp_path / "graph"
    assert run_build(["obo", str(source), "--out", str(out)]) == 0
    fake_obo.write_text(source, fake_obo.TEXT.replace("is_a: X:0000001 ! the same again", "is_a:"))
    assert run_build(["obo", str(source), "--out", str(out)]) == 2
    assert "x.obo:28: expected `is_a: ID ! name`" in capsys.readouterr().err
    assert KnowledgeGraph.load(out).counts()["entities"] == 3
