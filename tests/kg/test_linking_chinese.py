"""Chinese text has no blanks between words: exact longest matching on characters, GB18030 files,
folders of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.files import InputError
from core.json_files import read_json
from kg.build import refine
from kg.documents.formats import documents, files_in
from kg.linking.matcher import DictionaryLinker
from kg.linking.run import link_corpus, linked_documents
from tests.commands import command
from tests.fakes import documents as fakes
from tests.fakes.graphs import graph


def mentions(linker, text):
    return [(text[m.start : m.end], m.entity) for m in linker.link(text)]


def test_names_inside_longer_names():
    linker = DictionaryLinker.from_graph(
        graph(
            dict.fromkeys(
                [
                    "糖尿病",
                    "2型糖尿病",
                    "糖尿病肾病",
                    "肾病",
                    "肾",
                    "维生素B",
                    "维生素B12",
                    "B超",
                    "病",
                ],
                "",
            ),
            [],
        )
    )
    assert mentions(linker, "患者有2型糖尿病及糖尿病肾病，肾病已两年，肾亏。") == [
        ("2型糖尿病", "2型糖尿病"),
        ("糖尿病肾病", "糖尿病肾病"),
        ("肾病", "肾病"),
    ]
    assert mentions(linker, "糖尿病肾") == [
        ("糖尿病", "糖尿病")
    ]  # one character is never a mention
    assert mentions(linker, "服维生素B12，做B超") == [("维生素B12", "维生素B12"), ("B超", "B超")]
    assert mentions(linker, "肾，病，糖尿 病") == [("糖尿 病", "糖尿病")]


@given(
    st.sets(st.text("甲乙丙", min_size=1, max_size=4), min_size=1, max_size=8),
    st.text("甲乙丙丁", max_size=30),
)
def test_longest_matches_against_the_definition(names, text):
    if all(len(name) == 1 for name in names):
        names = names | {"甲乙"}
    expected, at = [], 0
    while at < len(text):
        fits = [name for name in names if len(name) > 1 and text.startswith(name, at)]
        if fits:
            expected.append((at, at + max(map(len, fits)), max(fits, key=len)))
        at += max(map(len, fits), default=1)
    found = DictionaryLinker.from_graph(graph(dict.fromkeys(sorted(names), ""), [])).link(text)
    assert [(m.start, m.end, m.entity) for m in found] == expected


def test_a_refined_graph_links_each_name_to_its_own_entity():
    """An alias that is an entity is linked to itself, whatever names its equivalent has in the
    source."""
    given_names = [
        ("癫痫", "羊癫疯", "synonym", "zh"),
        ("羊癫疯", "癫痫", "synonym", "zh"),
        ("癫痫", "痫症", "synonym", "zh"),
    ]
    source = graph(
        {"癫痫": "disease", "羊癫疯": "", "药": "drug", "药片": "drug"},
        [("药", "治", "癫痫"), ("药片", "治", "癫痫"), ("癫痫", "别称", "羊癫疯")],
        given_names,
    )
    linker = DictionaryLinker.from_graph(refine.refine_graph(source))
    assert mentions(linker, "癫痫俗称羊癫疯，古称痫症。") == [
        ("癫痫", "癫痫"),
        ("羊癫疯", "羊癫疯"),
        ("痫症", "癫痫"),
    ]


def test_encoding_and_folders(tmp_path, capsys):
    folder = tmp_path / "text"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_bytes("患者有糖尿病史\n无\n".encode("gb18030"))
    (folder / "sub" / "b.jsonl").write_bytes('{"id": "x", "text": "糖尿病"}\n'.encode("gb18030"))
    (folder / "readme.md").write_text("not read")
    assert files_in([folder]) == [folder / "a.txt", folder / "sub" / "b.jsonl"]
    fakes.graph().save(tmp_path / "graph")
    words = [
        "--graph",
        str(tmp_path / "graph"),
        "--input",
        str(folder),
        "--out",
        str(tmp_path / "out"),
        "--workers",
        "1",
    ]
    assert command("data link")(words) == 2
    assert "a.txt:1: not utf-8 text" in capsys.readouterr().err
    assert command("data link")([*words, "--encoding", "gb18030", "--fresh"]) == 0
    found = [
        (d.id, d.text, [m.entity for m in d.mentions]) for d in linked_documents(tmp_path / "out")
    ]
    assert found == [
        ("a:1", "患者有糖尿病史", ["C05"]),
        ("a:2", "无", []),
        ("x", "糖尿病", ["C05"]),
    ]
    assert read_json(tmp_path / "out" / "manifest.json")["settings"]["encoding"] == "gb18030"
    with pytest.raises(InputError, match="--encoding gb99: no such encoding"):
        link_corpus(tmp_path / "graph", [folder], tmp_path / "other", encoding="gb99")
    with pytest.raises(InputError, match="no text in this folder"):
        (tmp_path / "empty").mkdir()
        files_in([tmp_path / "empty"])


def test_xml_names_its_own_encoding(tmp_path):
    (tmp_path / "x.xml").write_text("<a/>")
    with pytest.raises(InputError, match=r"x\.xml: XML names its own encoding"):
        list(documents([tmp_path / "x.xml"], encoding="gb18030"))
