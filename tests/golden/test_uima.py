"""UIMA's XMI, read from files written by hand as INCEpTION writes them, and written."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest

from app.cli import main
from core.files import InputError
from kg.documents.formats import documents
from kg.documents.mentions import Document, Layout, Mention
from kg.documents.uima import OTHER, OTHER_VIEWS

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    '<xmi:XMI xmlns:xmi="http://www.omg.org/XMI" xmlns:cas="http:///uima/cas.ecore"'
    ' xmlns:tcas="http:///uima/tcas.ecore" xmlns:custom="http:///webanno/custom.ecore"'
    ' xmlns:type="http:///de/tudarmstadt/ukp/dkpro/core/api/metadata/type.ecore"'
    ' xmlns:type4="http:///de/tudarmstadt/ukp/dkpro/core/api/ner/type.ecore"'
    ' xmlns:seg="http:///de/tudarmstadt/ukp/dkpro/core/api/segmentation/type.ecore"'
    ' xmi:version="2.0"><cas:NULL xmi:id="0"/>'
)
#: the face is one character, and two units of UTF-16
TEXT = "😀 Gout &amp; renal&#10;failure"


def write_file(folder: Path, *elements: str, text: str = TEXT, name: str = "a.xmi") -> Path:
    """An XMI file with these elements before its view, whose id is 8."""
    path = folder / name
    sofa = f'<cas:Sofa xmi:id="8" sofaNum="1" sofaID="_InitialView" sofaString="{text}"/>'
    view = '<cas:View sofa="8" members=""/></xmi:XMI>'
    path.write_text(HEAD + "".join(elements) + sofa + view, encoding="utf-8")
    return path


def read_one(path: Path, left_out: Counter[str] | None = None, used: bool = True) -> Document:
    (document,) = documents([path], None, left_out=left_out, used=used, layout=Layout("file"))
    return document


def test_named_entities_of_the_first_view(tmp_path: Path) -> None:
    path = write_file(
        tmp_path,
        '<type:DocumentMetaData xmi:id="1" sofa="8" begin="0" end="23" documentId="notes/7"/>',
        '<seg:Token xmi:id="2" sofa="8" begin="3" end="7"/>',
        '<type4:NamedEntity xmi:id="3" sofa="8" begin="10" end="23" value="Disease"/>',
        '<type4:NamedEntity xmi:id="4" sofa="8" begin="3" end="7" value="Disease"'
        ' identifier="HP:0001997"/>',
        '<type4:NamedEntity xmi:id="5" sofa="8" begin="0" end="2" identifier="HP:1"/>',
        '<custom:Span xmi:id="6" sofa="8" begin="3" end="7" label="x"/>',
        '<type4:NamedEntity xmi:id="7" sofa="9" begin="0" end="1" value="Disease"/>',
        '<custom:Span xmi:id="10" sofa="9" begin="0" end="1"/>',
    )
    left_out = Counter[str]()
    found = read_one(path, left_out)
    assert found.id == "notes/7"
    assert found.text == "😀 Gout & renal\nfailure"
    assert found.mentions == (
        Mention(0, 1, "HP:1", 1.0, ""),
        Mention(2, 6, "HP:0001997", 1.0, "Disease"),
    )
    assert found.unlinked == (Mention(9, 22, "", 1.0, "Disease"),)
    assert found.text[9:22] == "renal\nfailure"
    assert left_out[OTHER] == 1
    assert left_out[OTHER_VIEWS] == 2


def test_a_document_without_a_name_has_that_of_its_file(tmp_path: Path) -> None:
    assert read_one(write_file(tmp_path, name="note 7.xmi")).id == "note 7"


@pytest.mark.parametrize(
    ("begin", "end"), [("1", "2"), ("3", "24"), ("7", "7"), ("7", "3"), ("-1", "2"), ("a", "2")]
)
def test_a_place_that_the_text_does_not_have(begin: str, end: str, tmp_path: Path) -> None:
    """Inside a character, beyond the end, empty, backwards, negative, no number."""
    element = f'<type4:NamedEntity xmi:id="3" sofa="8" begin="{begin}" end="{end}"/>'
    path = write_file(tmp_path, element)
    with pytest.raises(InputError, match=r"a\.xmi:1"):
        read_one(path)
    left_out = Counter[str]()
    assert read_one(path, left_out, used=False).unlinked == ()
    assert left_out.total() == 1


def test_xml_without_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.xmi"
    path.write_text(f"{HEAD}</xmi:XMI>")
    with pytest.raises(InputError, match="no text in it"):
        read_one(path)


def test_a_folder_of_xmi_with_its_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Offsets in UTF-16, line ends that an XML reader keeps, characters that XML does not have."""
    text = 'a😀"<b>\r\n\tc\x01d'
    mention = {"start": 2, "end": 6, "type": "T", "entity": "K:1", "score": 0.5}
    source = tmp_path / "a.jsonl"
    source.write_text(json.dumps({"id": "d/1", "text": text, "mentions": [mention]}) + "\n")
    assert main(["convert", str(source), str(tmp_path / "out"), "--to", "xmi"]) == 0
    assert "not held by xmi: scores" in capsys.readouterr().out
    assert sorted(p.name for p in (tmp_path / "out").rglob("*.*")) == ["1.xmi", "TypeSystem.xml"]

    tree = ET.parse(tmp_path / "out" / "d" / "1.xmi")
    (sofa,) = tree.iter("{http:///uima/cas.ecore}Sofa")
    assert sofa.get("sofaString") == 'a😀"<b>\r\n\tc d'
    package = "de/tudarmstadt/ukp/dkpro/core/api"
    (entity,) = tree.iter(f"{{http:///{package}/ner/type.ecore}}NamedEntity")
    places = {"begin": "3", "end": "7", "value": "T", "identifier": "K:1", "sofa": "1"}
    assert places.items() <= entity.attrib.items()
    (view,) = tree.iter("{http:///uima/cas.ecore}View")
    assert view.attrib == {"sofa": "1", "members": "2 3"}
    named = [e.text for e in ET.parse(tmp_path / "out" / "TypeSystem.xml").iter() if e.text]
    assert f"{package.replace('/', '.')}.ner.type.NamedEntity" in named

    found = read_one(tmp_path / "out" / "d" / "1.xmi")
    assert (found.id, found.text) == ("d/1", text.replace("\x01", " "))
    assert found.mentions == (Mention(2, 6, "K:1", 1.0, "T"),)
