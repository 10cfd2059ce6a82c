"""BioC (Comeau et al., Database 2013): collections of documents, passages and annotations, as XML and as JSON.

A document's text are its passages, each at its own offset, so that offsets of the text are those of the file: gaps are
filled with a line end and blanks. A passage may have sentences instead of a text of its own. An annotation of several
places is taken from its first to its last character; its entity is the infon `identifier`, else the first infon that is
named in IDENTIFIERS; annotations without one are left out, as PubTator's are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from core.files import InputError, opened
from kg.linking.mentions import Document, Mention, checked_mention
from kg.linking.xml import Events, read

IDENTIFIERS = ("identifier", "MESH", "mesh", "UMLS", "umls", "CUI", "cui", "OMIM", "NCBI Gene", "concept_id", "id")


class Text:
    """A document's passages, put together."""

    def __init__(self, where: str, name: str) -> None:
        self.where, self.name = where, name
        self.text, self.mentions = "", []  # type: str, list[Mention]

    def add(self, where: str, offset: Any, text: str) -> None:
        """A passage or sentence at `offset`, an integer or a number in words. Raises InputError if it overlaps the one before."""
        at = _number(where, "offset", offset)
        if at < len(self.text):
            raise InputError(
                f"{where}: document {self.name}: the passage at offset {at} begins before the end of the one before "
                f"({len(self.text)}). Offsets count characters of the whole document."
            )
        gap = at - len(self.text)
        self.text += ("\n" + " " * (gap - 1) if gap and self.text else " " * gap) + text

    def mark(
        self, where: str, infons: dict[str, str], places: list[tuple[Any, Any]], surface: str | None
    ) -> None:
        """An annotation of (offset, length) places, left out without an entity. Raises InputError for one beside the text."""
        entity = next((infons[key] for key in IDENTIFIERS if infons.get(key)), "")
        if not places:
            raise InputError(f"{where}: document {self.name}: an annotation without a location. Add one.")
        parts = sorted((_number(where, "offset", o), _number(where, "length", n)) for o, n in places)
        start, end = parts[0][0], max(o + n for o, n in parts)
        known = (surface or None) if len(parts) == 1 else None  # the text of several places stands in no one place
        checked_mention(where, self.text, start, end, "any", known)
        if entity not in ("", "-", "-1"):
            self.mentions.append(Mention(start, end, entity))

    def document(self) -> Document:
        return Document(self.name, self.text, tuple(self.mentions), self.where)


def _number(where: str, what: str, value: Any) -> int:
    digits = str(value).strip() if type(value) in (int, str) else ""
    if re.fullmatch(r"[0-9]{1,12}", digits) is None:
        raise InputError(f"{where}: wanted a number under {what}, 0 or more, got {value!r:.60}. Mend the file.")
    return int(digits)


class _Collection(Events[Document]):
    """Documents of a BioC collection. Annotations wait for the document's end: some stand before what they mark."""

    FIELDS = ("id", "offset", "text", "infon")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.open: list[str] = []
        self.field: list[str] | None = None
        self.document: Text | None = None
        self.offset: str | None = None
        self.infons: dict[str, str] = {}
        self.places: list[tuple[Any, Any]] = []
        self.surface: str | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self.open and name != "collection":
            raise InputError(f"{self.where}: wanted a BioC collection, the file begins with <{name}>.")
        self.open.append(name)
        if name == "document":
            self.begun, self.id, self.document = self.line, "", Text(f"{self.path}:{self.line}", "")
            self.waiting: list[tuple[str, dict[str, str], list[tuple[Any, Any]], str | None]] = []
        elif self.document is None:
            return
        elif name in ("passage", "sentence"):
            self.offset = None
        elif name == "annotation":
            self.at, self.infons, self.places, self.surface = self.where, {}, [], None
        elif name == "location":
            if self.parent == "annotation":
                self.places.append((attributes.get("offset"), attributes.get("length")))
        elif name in self.FIELDS:
            self.field, self.key = [], attributes.get("key", "")

    @property
    def parent(self) -> str:
        return self.open[-2] if len(self.open) > 1 else ""

    def characters(self, text: str) -> None:
        if self.field is not None:
            self.field.append(text)

    def end(self, name: str) -> None:
        parent, value = self.parent, "".join(self.field or ())
        if self.document is not None:
            if name == "document":
                self.finish()
            elif name == "annotation":
                self.waiting.append((self.at, self.infons, self.places, self.surface))
            elif self.field is not None and name in self.FIELDS:
                self.field = None
                self.take(name, parent, value)
        self.open.pop()

    def take(self, name: str, parent: str, value: str) -> None:
        assert self.document is not None
        if name == "id" and parent == "document":
            self.document.name = value.strip()
        elif name == "infon" and parent == "annotation":
            self.infons[self.key] = value.strip()
        elif name == "text" and parent == "annotation":
            self.surface = value
        elif name == "offset" and parent in ("passage", "sentence"):
            self.offset = value
        elif name == "text" and parent in ("passage", "sentence"):
            if self.offset is None:
                raise InputError(f"{self.where}: document {self.document.name}: a {parent} without an offset. Add one.")
            self.document.add(self.where, self.offset, value)

    def finish(self) -> None:
        assert self.document is not None
        if not self.document.name:
            raise InputError(f"{self.document.where}: this document has no id. Fetch the file again.")
        for annotation in self.waiting:
            self.document.mark(*annotation)
        self.ready.append(self.document.document())
        self.document = None


def bioc_documents(path: Path, encoding: str = "utf-8") -> Iterator[Document]:
    """A BioC collection in XML, a document at a time. Raises InputError as :func:`kg.linking.xml.read` does, and for
    annotations that do not fit the text."""
    return read(_Collection(path), encoding)


def biocjson_documents(path: Path, encoding: str = "utf-8") -> Iterator[Document]:
    """BioC in JSON: an object with `documents` (PubTator 3: `PubTator3`), or a list of documents. The file is read whole."""
    with opened(path) as handle:
        try:
            whole = json.loads(handle.read().decode(encoding))
        except (ValueError, EOFError) as error:
            raise InputError(
                f"{path}: not valid JSON ({error}). The file may be cut; fetch it again. BioC on several lines, a "
                "document on each, is no BioC collection."
            ) from error
    if isinstance(whole, dict):
        whole = whole.get("documents", whole.get("PubTator3"))
    if not isinstance(whole, list):
        raise InputError(f"{path}: wanted a BioC collection: an object with a list under documents.")
    for number, one in enumerate(whole, start=1):
        where = f"{path}: document {number}"
        name = one.get("id") if isinstance(one, dict) else None
        if type(name) not in (str, int) or name == "" or not isinstance(one.get("passages"), list):
            raise InputError(f"{where}: wanted an object with an id and a list under passages.")
        made = Text(where, str(name))
        try:
            for passage in one["passages"]:
                for part in passage.get("sentences") or [passage]:
                    if part.get("text"):
                        made.add(where, part.get("offset"), part["text"])
            for passage in one["passages"]:
                for part in (passage, *(passage.get("sentences") or ())):
                    for note in part.get("annotations") or ():
                        infons = {k: str(v) for k, v in (note.get("infons") or {}).items() if v is not None}
                        places = [(p.get("offset"), p.get("length")) for p in note.get("locations") or ()]
                        made.mark(where, infons, places, note.get("text"))
        except (AttributeError, TypeError) as error:
            raise InputError(
                f"{where} ({name}): not as BioC has it ({error}). Wanted passages with offset, text and annotations."
            ) from error
        yield made.document()


# what XML 1.0 has no way to write
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _xml(text: str) -> str:
    """`text` for XML: as many characters as before, forbidden ones as blanks, a carriage return so that it stays."""
    return escape(_FORBIDDEN.sub(" ", text), {"\r": "&#13;"})


HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE collection SYSTEM "BioC.dtd">\n'
    "<collection><source>KEPL</source><date></date><key></key>\n"
)
TAIL = "</collection>\n"


def bioc_document(name: str, text: str, mentions: list[tuple[int, int, dict[str, str]]]) -> str:
    """A document as BioC XML: one passage, and of each mention (start, end, infons) an annotation."""
    parts = [f"<document><id>{_xml(name)}</id><passage><offset>0</offset><text>{_xml(text)}</text>"]
    for number, (start, end, infons) in enumerate(mentions, start=1):
        said = "".join(f"<infon key={quoteattr(_xml(k))}>{_xml(v)}</infon>" for k, v in infons.items())
        parts.append(
            f'\n<annotation id="{number}">{said}<location offset="{start}" length="{end - start}"/>'
            f"<text>{_xml(text[start:end])}</text></annotation>"
        )
    return "".join(parts) + "</passage></document>\n"


def biocjson_document(name: str, text: str, mentions: list[tuple[int, int, dict[str, str]]]) -> dict[str, Any]:
    """A document as BioC JSON has it: one passage, and of each mention (start, end, infons) an annotation."""
    annotations = [
        {"id": str(number), "infons": infons, "text": text[s:e], "locations": [{"offset": s, "length": e - s}]}
        for number, (s, e, infons) in enumerate(mentions, start=1)
    ]
    passage = {"offset": 0, "infons": {}, "text": text, "sentences": [], "annotations": annotations, "relations": []}
    return {"id": name, "infons": {}, "passages": [passage], "annotations": [], "relations": []}
