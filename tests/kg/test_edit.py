"""Names added to a graph and taken out of it; several graphs in one link; ClaML."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from app.cli import main
from core.files import InputError
from kg.build.edit import add_names, stop_names
from kg.build.sources import claml
from kg.graph import KnowledgeGraph
from tests.fakes import graphs

NAMES = {"HP:1": ["fit", "severe pain"], "HP:2": ["gout"]}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return graphs.write(tmp_path / "graph", NAMES)


def names_of(folder: Path) -> list[tuple[str, ...]]:
    columns = KnowledgeGraph.load(folder).names.to_pydict()
    wanted = (columns[c] for c in ("id", "name", "kind", "language", "source"))
    return list(zip(*wanted, strict=True))[3:]


def test_names_are_added(graph: Path, tmp_path: Path) -> None:
    table = tmp_path / "names.csv"
    table.write_text("ID;Name;kind;language\nHP:2;podagra;exact;la\nhp:1;spell;;\nHP:2;gout;;\n")
    told = add_names(graph, table, tmp_path / "new", language="English")
    assert told.splitlines() == [
        f"{tmp_path / 'new'}: 2 names added, 5 names",
        "left out: 1 names that their entity has already",
    ]
    assert names_of(tmp_path / "new") == [
        ("HP:2", "podagra", "exact", "la", "own"),
        ("HP:1", "spell", "synonym", "en", "own"),
    ]
    assert add_names(graph, table, tmp_path / "new", language="English") == told  # kept
    assert len(KnowledgeGraph.load(graph).names) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,name\nHP:9,x\nHP:1,\n", "names.csv:2: expected an id of the graph"),
        ("id,name\nHP:9,x\nHP:1,\n", "names.csv:3: expected a name"),
        (
            "id,name,kind\nHP:1,x,nick\n",
            "names.csv:2: no kind of name 'nick'; choose from: preferred",
        ),
        ("id,name,language\nHP:1,x,?\n", "language '?'; expected a code"),
        ("id,name\nHP:1,fit\n", "no name that is new"),
    ],
)
def test_wrong_names(graph: Path, tmp_path: Path, content: str, message: str) -> None:
    table = tmp_path / "names.csv"
    table.write_text(content)
    with pytest.raises(InputError, match=re.escape(message)):
        add_names(graph, table, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_several_names_in_a_field(
    graph: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a separator a name is kept as it is, which is said."""
    table = tmp_path / "names.csv"
    table.write_text("id,name,kind\nHP:2,podagra| toe gout |n/a,Exact\n")
    told = add_names(graph, table, tmp_path / "new", separator="|")
    assert "2 names added" in told and "no name (n/a)" in told
    added = [(name, kind) for _, name, kind, *_ in names_of(tmp_path / "new")]
    assert added == [("podagra", "exact"), ("toe gout", "exact")]
    assert "have a | inside" not in caplog.text
    add_names(graph, table, tmp_path / "one")
    assert "1 names have a | inside ('podagra| toe gout |n/a')" in caplog.text


def test_names_are_stopped(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = tmp_path / "words.txt"
    words.write_text("SEVERE Pain\n\nunknown\n")
    told = stop_names(graph, words, tmp_path / "new")
    assert told.splitlines() == [
        f"{tmp_path / 'new'}: 1 names stopped, 2 names",
        "left out: 1 words that are no name of the graph",
    ]
    assert main(["link", "--graph", str(graph), "--text", "severe pain and gout", "--json"]) == 0
    assert "HP:1" in capsys.readouterr().out
    assert main(["link", "--graph", str(tmp_path / "new"), "--text", "severe pain and gout"]) == 0
    out = capsys.readouterr().out
    assert "HP:1" not in out and "HP:2" in out
    words.write_text("unknown\n")
    with pytest.raises(InputError, match="none of its 1 lines is a name"):
        stop_names(graph, words, tmp_path / "other")


def test_several_graphs_in_one_link(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPL_RUNS", str(tmp_path / "runs"))
    other = graphs.write(tmp_path / "other", {"M:1": ["gout", "podagra"], "M:2": ["rash"]})
    words = ["link", "--text", "fit, rash and podagra", "--json", "--graph", str(graph)]
    assert main([*words, str(other)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("{") and all(one in out for one in ("HP:1", "M:2", "HP:2"))
    assert main([*words, str(tmp_path / "nothing")]) == 2
    assert "no such folder" in capsys.readouterr().err


ICD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE ClaML SYSTEM "ClaML.dtd">
<ClaML version="2.0.0"><Title name="ICD-10" version="2019" date="2019-01-01">ICD</Title>
<ModifierClass modifier="S1" code=".0"><Rubric kind="preferred"><Label>open</Label></Rubric>
</ModifierClass>
<Class code="I" kind="chapter"><SubClass code="A00"/>
<Rubric kind="preferred"><Label xml:lang="en">Infectious diseases</Label></Rubric></Class>
<Class code="A00" kind="category"><SuperClass code="I"/>
<Rubric kind="preferred"><Label>Cholera <Reference>A01</Reference></Label></Rubric>
<Rubric kind="inclusion"><Label>asiatic
 cholera</Label></Rubric><Rubric kind="exclusion"><Label>typhoid</Label></Rubric>
<Rubric kind="note"><Label>a note</Label></Rubric></Class>
<Class code="A01" kind="category"><SuperClass code="I"/></Class></ClaML>
"""


def test_claml(tmp_path: Path) -> None:
    path = tmp_path / "icd.xml.gz"
    path.write_bytes(gzip.compress(ICD.encode()))
    graph = claml.read(path)
    assert graph.entities.to_pylist() == [
        {"id": "I", "name": "Infectious diseases", "type": "chapter"},
        {"id": "A00", "name": "Cholera", "type": "category"},
    ]
    assert [(n["id"], n["name"], n["kind"]) for n in graph.names.to_pylist()] == [
        ("I", "Infectious diseases", "preferred"),
        ("A00", "Cholera", "preferred"),
        ("A00", "asiatic cholera", "narrow"),
    ]
    assert graph.definitions.to_pylist() == [{"id": "A00", "text": "a note"}]
    assert graph.triples.to_pylist() == [{"head": "A00", "relation": "is_a", "tail": "I"}]
    assert graph.manifest["source"] == "ICD-10" and graph.manifest["version"] == "2019"
    assert graph.manifest["left_out"] == {
        claml.MODIFIERS: 1,
        claml.UNNAMED: 1,
        claml.OTHER: 1,
    }
    assert main(["graph", "build", "claml", str(path), "--out", str(tmp_path / "graph")]) == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('<Class code="I"', '<Class code="A00"', "A00 occurs a second time"),
        ('<SuperClass code="I"/>\n<Rubric', '<SuperClass code="X"/>\n<Rubric', "is below X"),
        ('<Class code="I" ', "<Class ", "a Class without a code"),
        ("</ClaML>", "", "no element found"),
    ],
)
def test_broken_claml(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "icd.xml"
    assert old in ICD
    path.write_text(ICD.replace(old, new))
    with pytest.raises(InputError, match=message):
        claml.read(path)
