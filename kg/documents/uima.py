"""UIMA's XMI, as INCEpTION and DKPro export and import it ("UIMA CAS XMI (XML 1.0)").

    read      one document a file: the text of its first view, and its named entities
              (de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity): `value` is the type,
              `identifier` the entity
    written   a folder with NAME.xmi for each document, and the types in TypeSystem.xml

UIMA counts offsets in UTF-16, where a character beyond the first 65,536 is two. dkpro-cassis does
the same, but holds more-itertools, lxml and others at versions of its own.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from core.files import InputError
from core.reading import Span, whole_number
from kg.documents.brat import name_places
from kg.documents.mentions import (
    BY_LINE,
    Document,
    Layout,
    Mention,
    checked_mention,
    counted_unless_used,
    make_document,
)
from kg.documents.xml import Events, read

OTHER = "annotations of UIMA other than named entities"
OTHER_VIEWS = "annotations of further views (UIMA)"
#: types of annotations that say what the text and its tokens are, and nothing of entities
STRUCTURE = ("DocumentMetaData", "DocumentAnnotation", "Sentence", "Token", "Paragraph", "Heading")
NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<xmi:XMI xmlns:xmi="http://www.omg.org/XMI" xmlns:cas="http:///uima/cas.ecore"
 xmlns:metadata="http:///de/tudarmstadt/ukp/dkpro/core/api/metadata/type.ecore"
 xmlns:ner="http:///de/tudarmstadt/ukp/dkpro/core/api/ner/type.ecore" xmi:version="2.0">
<cas:NULL xmi:id="0"/>
"""
TYPES = "TypeSystem.xml"
_PACKAGE = "de.tudarmstadt.ukp.dkpro.core.api"
#: {type: (its parent, its features, all of them strings)}
_FEATURES = {
    f"{_PACKAGE}.metadata.type.DocumentMetaData": (
        "uima.tcas.DocumentAnnotation",
        ("documentTitle", "documentId"),
    ),
    f"{_PACKAGE}.ner.type.NamedEntity": ("uima.tcas.Annotation", ("value", "identifier")),
}


class _View(Events[None]):
    """The parts of one file that are used; elements come in any order."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.views: list[tuple[str, str]] = []  # id, text
        self.entities: list[tuple[str, dict[str, str]]] = []  # where, attributes
        self.others: list[str] = []  # the views of other annotations
        self.name = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "Sofa":
            self.views.append((attributes.get("id", ""), attributes.get("sofaString", "")))
        elif name == "DocumentMetaData":
            self.name = attributes.get("documentId") or attributes.get("documentTitle") or ""
        elif name == "NamedEntity":
            self.entities.append((self.where, attributes))
        elif "begin" in attributes and "end" in attributes and name not in STRUCTURE:
            self.others.append(attributes.get("sofa", ""))

    def end(self, name: str) -> None:
        pass

    def characters(self, text: str) -> None:
        pass


def xmi_documents(
    path: Path | Span,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """The document of an XMI file.

    Raises InputError for XML without a view, and for a named entity outside of the text, or that
    cuts a character in two.
    """
    left_out = Counter() if left_out is None else left_out
    view = _View(Path(path))
    for _ in read(view, encoding):
        pass
    if not view.views:
        raise InputError(f"{path}: no text in it (no cas:Sofa); expected UIMA's XMI")
    view_annotations, text = view.views[0]
    places = _character_places(text)
    mentions = []
    for where, attributes in view.entities:
        if attributes.get("sofa", view_annotations) != view_annotations:
            left_out[OTHER_VIEWS] += 1
            continue
        with counted_unless_used(left_out, used):
            mentions.append(_mention(where, attributes, text, places))
    left_out[OTHER] += sum(sofa == view_annotations for sofa in view.others)
    left_out[OTHER_VIEWS] += sum(sofa != view_annotations for sofa in view.others)
    name = view.name or layout.name_file(Path(path))
    yield make_document(name, text, mentions, str(path), left_out)


def _character_places(text: str) -> dict[int, int]:
    """{an offset in UTF-16: that in characters}, of every character and the text's end."""
    units = itertools.accumulate((1 + (char > "\uffff") for char in text), initial=0)
    return {unit: number for number, unit in enumerate(units)}


def _mention(where: str, attributes: dict[str, str], text: str, places: dict[int, int]) -> Mention:
    """The mention of a named entity. Raises InputError for a place that the text does not have."""
    ends = [whole_number(where, key, attributes.get(key, "")) for key in ("begin", "end")]
    if not all(end in places for end in ends):
        raise InputError(
            f"{where}: named entity [{ends[0]}, {ends[1]}) is not in its text of"
            f" {max(places)} UTF-16 units, or cuts a character in two."
        )
    start, end = (places[end] for end in ends)
    checked = checked_mention(where, text, start, end, "any")
    attribute = attributes.get
    return checked._replace(entity=attribute("identifier", ""), type=attribute("value", ""))


def write_xmi(records: Iterable[dict[str, Any]], folder: Path, lost: Counter[str]) -> int:
    """Write NAME.xmi of each record into `folder`, names as ids, and the types; returns how many.
    `lost` counts ids that become others. Raises InputError for two ids with one name of a file."""
    (folder / TYPES).write_text(_type_system(), encoding="utf-8")
    count = 0
    for place, record in name_places(records, folder, lost):
        content = "".join(_elements(record))
        place.with_name(f"{place.name}.xmi").write_text(content, encoding="utf-8", newline="")
        count += 1
    return count


def _element(name: str, number: int, **attributes: Any) -> str:
    attributes_text = " ".join(
        f"{k}={_quote(str(v))}" for k, v in attributes.items() if v is not None
    )
    return f'<{name} xmi:id="{number}" {attributes_text}/>\n'


def _quote(text: str) -> str:
    """An attribute's value; line ends and tabs as numbers, or a reader would make them blanks."""
    escapes = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
    return quoteattr(NOT_XML.sub(" ", text), escapes)


def _elements(record: dict[str, Any]) -> Iterator[str]:
    """The lines of a record's XMI; 1 is its view, 2 its name, 3 and more its mentions."""
    text = record["text"]
    units = [0, *itertools.accumulate(1 + (char > "\uffff") for char in text)]
    whole = {"sofa": 1, "begin": 0, "end": units[-1]}
    named = str(record["id"])
    yield HEAD
    yield _element("metadata:DocumentMetaData", 2, **whole, documentTitle=named, documentId=named)
    members = [2]
    for number, m in enumerate(record["mentions"], start=3):
        yield _element(
            "ner:NamedEntity",
            number,
            sofa=1,
            begin=units[m["start"]],
            end=units[m["end"]],
            value=m.get("type") or None,
            identifier=m.get("entity") or None,
        )
        members.append(number)
    view = {"sofaNum": 1, "sofaID": "_InitialView", "mimeType": "text", "sofaString": text}
    yield _element("cas:Sofa", 1, **view)
    yield f'<cas:View sofa="1" members="{" ".join(map(str, members))}"/>\n</xmi:XMI>\n'


def _type_system() -> str:
    """TypeSystem.xml: the two types that are written."""
    types = []
    for name, (parent, features) in _FEATURES.items():
        described = "".join(
            f"<featureDescription><name>{feature}</name><description/>"
            "<rangeTypeName>uima.cas.String</rangeTypeName></featureDescription>"
            for feature in features
        )
        types.append(
            f"<typeDescription><name>{name}</name><description/>"
            f"<supertypeName>{parent}</supertypeName><features>{described}</features>"
            "</typeDescription>\n"
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<typeSystemDescription xmlns="http://uima.apache.org/resourceSpecifier">\n'
        f"<types>\n{''.join(types)}</types>\n</typeSystemDescription>\n"
    )
