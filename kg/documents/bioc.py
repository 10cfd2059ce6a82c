"""BioC (Comeau et al., Database 2013): collections of documents, passages and annotations, as XML
and as JSON.

A document's text are its passages, each at its own offset, so that offsets of the text are those of
the file: gaps are filled with a line end and blanks. A passage may have sentences instead of a text
of its own. An annotation of several places is taken from its first to its last character; its
entity is the infon `identifier`, else the first infon that is named in IDENTIFIERS; annotations
without one are left out, as PubTator's are, and counted, as relations are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from core.files import InputError
from core.json_files import json_records
from core.reading import excerpt, largest_document, whole_number
from kg.documents.mentions import (
    BY_LINE,
    DISCONTINUOUS,
    NO_ENTITY,
    NOT_FITTING,
    Document,
    Layout,
    Mention,
    attributes_of,
    checked_mention,
    counted_unless_used,
)
from kg.documents.xml import Events, read
from kg.ids import is_no_concept

IDENTIFIERS = (
    "identifier",
    "MESH",
    "mesh",
    "UMLS",
    "umls",
    "CUI",
    "cui",
    "OMIM",
    "NCBI Gene",
    "concept_id",
    "id",
)


RELATIONS = "relations"
GAP = 64  #: the share of a document's largest size that a gap between two passages may have


class Text:
    """A document's passages, put together; `left_out` counts its annotations without an entity.

    used: whether somebody uses the annotations; else those that do not fit the text are counted,
        too.
    """

    def __init__(self, where: str, name: str, left_out: Counter[str], used: bool) -> None:
        self.where, self.name, self.left_out, self.used = where, name, left_out, used
        self.text = ""
        self.mentions, self.unlinked = list[Mention](), list[Mention]()

    def add(self, where: str, offset: Any, text: str) -> None:
        """A passage or sentence at `offset`, an integer or a number in words. Raises InputError if
        it overlaps the one before."""
        at = whole_number(where, "offset", offset)
        if not isinstance(text, str):
            raise InputError(
                f"{where}: document {self.name}: expected a string as the text of a passage, got"
                f" {excerpt(text)}."
            )
        if at < len(self.text):
            raise InputError(
                f"{where}: document {self.name}: the passage at offset {at} begins before the end"
                f" of the one before ({len(self.text)}). Offsets count characters of the whole"
                " document."
            )
        gap = at - len(self.text)
        if gap > largest_document() // GAP or at + len(text) > largest_document():
            raise InputError(
                f"{where}: document {self.name}: the passage at offset {at:,} comes {gap:,}"
                " characters after the one before. Offsets count characters of the whole document;"
                " fix them, or raise the limit with --max-document (MiB)."
            )
        self.text += ("\n" + " " * (gap - 1) if gap and self.text else " " * gap) + text

    def mark(
        self, where: str, infons: dict[str, str], places: list[tuple[Any, Any]], surface: str | None
    ) -> None:
        """An annotation of (offset, length) places, left out without an entity.

        Raises InputError for one that does not fit the text, where annotations are used.
        """
        with counted_unless_used(self.left_out, self.used):
            self._mark(where, infons, places, surface)

    def _mark(
        self, where: str, infons: dict[str, str], places: list[tuple[Any, Any]], surface: str | None
    ) -> None:
        where = f"{where}: document {self.name}"
        identifiers = {key: infons[key] for key in IDENTIFIERS if infons.get(key)}
        entity = next(iter(identifiers.values()), "")
        for key, other in identifiers.items():
            if other != entity and self.used:
                self.left_out[f"further identifiers of annotations ({key})"] += 1
        if not places:
            raise InputError(f"{where}: an annotation without a location. Add one.")
        parts = sorted(
            (whole_number(where, "offset", o), whole_number(where, "length", n)) for o, n in places
        )
        start, end = parts[0][0], max(o + n for o, n in parts)
        self.left_out[DISCONTINUOUS] += len(parts) > 1 and self.used
        # the text of several places is in no one place
        only_surface = (surface or None) if len(parts) == 1 else None
        checked_mention(where, self.text, start, end, "any", only_surface)
        kind = infons.get("type", "")
        if is_no_concept(entity):
            self.left_out[NO_ENTITY] += 1
            self.unlinked.append(Mention(start, end, "", 1.0, kind, attributes_of(infons)))
        else:
            self.mentions.append(Mention(start, end, entity, 1.0, kind, attributes_of(infons)))

    def document(self) -> Document:
        return Document(
            self.name, self.text, tuple(self.mentions), self.where, tuple(self.unlinked)
        )


class _Collection(Events[Document]):
    """Documents of a BioC collection. Annotations wait for the document's end: some come before
    what they mark."""

    FIELDS = ("id", "offset", "text", "infon")

    def __init__(self, path: Path, left_out: Counter[str], used: bool) -> None:
        super().__init__(path)
        self.left_out, self.used = left_out, used
        self.open: list[str] = []
        self.field: list[str] | None = None
        self.document: Text | None = None
        self.offset: str | None = None
        self.infons: dict[str, str] = {}
        self.places: list[tuple[Any, Any]] = []
        self.surface: str | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self.open and name != "collection":
            raise InputError(
                f"{self.where}: expected a BioC collection, the file begins with <{name}>."
            )
        self.open.append(name)
        if (name == "document") != (self.document is None) and name in (
            "document",
            "passage",
            "sentence",
            "annotation",
        ):
            inside = "inside another one" if name == "document" else "outside of a document"
            raise InputError(f"{self.where}: a {name} {inside}. Fix the file's elements.")
        if name == "document":
            self.begun = self.line
            self.id = ""
            self.document = Text(f"{self.path}:{self.line}", "", self.left_out, self.used)
            self.waiting: list[tuple[str, dict[str, str], list[tuple[Any, Any]], str | None]] = []
        elif self.document is None:
            return
        elif name in ("passage", "sentence"):
            self.offset = None
        elif name == "relation":
            self.left_out[RELATIONS] += 1
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
                raise InputError(
                    f"{self.where}: document {self.document.name}: a {parent} without an offset."
                    " Add one."
                )
            self.document.add(self.where, self.offset, value)
        elif name == "text":
            raise InputError(
                f"{self.where}: document {self.document.name}: a text in a {parent}. Put it into a"
                " passage."
            )

    def finish(self) -> None:
        assert self.document is not None
        if not self.document.name:
            raise InputError(
                f"{self.document.where}: this document has no id. Fetch the file again."
            )
        for annotation in self.waiting:
            self.document.mark(*annotation)
        self.ready.append(self.document.document())
        self.document = None


def bioc_documents(
    path: Path,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """A BioC collection in XML, a document at a time. `used`: whether the annotations are.

    Raises InputError as :func:`kg.documents.xml.read` does, and for annotations that do not fit the
    text.
    """
    return read(_Collection(path, Counter() if left_out is None else left_out, used), encoding)


def biocjson_documents(
    path: Path,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """BioC in JSON, a document at a time: an object with `documents` (PubTator 3: `PubTator3`), or
    a list of documents."""
    left_out = Counter() if left_out is None else left_out
    for number, (_, document) in enumerate(
        json_records(path, encoding, ("documents", "PubTator3")), start=1
    ):
        where = f"{path}: document {number}"
        name = document.get("id")
        if (
            type(name) not in (str, int)
            or name == ""
            or not isinstance(document.get("passages"), list)
        ):
            raise InputError(f"{where}: expected an object with an id and a list under passages.")
        text = Text(where, str(name), left_out, used)
        try:
            for passage in document["passages"]:
                for part in passage.get("sentences") or [passage]:
                    if part.get("text"):
                        text.add(where, part.get("offset"), part["text"])
        except (AttributeError, TypeError) as error:
            raise _not_bioc(where, str(name), error) from error
        try:
            _mark_json(text, where, document)
        except (AttributeError, TypeError) as error:
            if used:
                raise _not_bioc(where, str(name), error) from error
            left_out[NOT_FITTING] += 1
        yield text.document()


def _not_bioc(where: str, name: str, error: Exception) -> InputError:
    return InputError(
        f"{where} ({name}): not as BioC has it ({error}). Expected passages with offset, text and"
        " annotations."
    )


def _mark_json(text: Text, where: str, annotation: dict[str, Any]) -> None:
    """The annotations of a document, and a count of its relations."""
    for passage in annotation["passages"]:
        for part in (passage, *(passage.get("sentences") or ())):
            text.left_out[RELATIONS] += len(part.get("relations") or ())
            for note in part.get("annotations") or ():
                infons = {k: str(v) for k, v in (note.get("infons") or {}).items() if v is not None}
                places = [(p.get("offset"), p.get("length")) for p in note.get("locations") or ()]
                text.mark(where, infons, places, note.get("text"))
    text.left_out[RELATIONS] += len(annotation.get("relations") or ())


# what XML 1.0 has no way to write
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _xml(text: str) -> str:
    """`text` for XML: as many characters as before, forbidden ones as blanks, a carriage return so
    that it stays."""
    return escape(_FORBIDDEN.sub(" ", text), {"\r": "&#13;"})


HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE collection SYSTEM "BioC.dtd">\n'
    "<collection><source>KEPL</source><date></date><key></key>\n"
)
TAIL = "</collection>\n"


def bioc_document(name: str, text: str, mentions: list[tuple[int, int, dict[str, str]]]) -> str:
    """A document as BioC XML: one passage, and of each mention (start, end, infons) an
    annotation."""
    # an id of blanks would be read as none
    document_name = name if _FORBIDDEN.sub(" ", name).strip() else "-"
    parts = [
        f"<document><id>{_xml(document_name)}</id><passage><offset>0</offset><text>{_xml(text)}</text>"
    ]
    for number, (start, end, infons) in enumerate(mentions, start=1):
        infon_text = "".join(
            f"<infon key={quoteattr(_xml(k))}>{_xml(v)}</infon>" for k, v in infons.items()
        )
        parts.append(
            f'\n<annotation id="{number}">{infon_text}'
            f'<location offset="{start}" length="{end - start}"/>'
            f"<text>{_xml(text[start:end])}</text></annotation>"
        )
    return "".join(parts) + "</passage></document>\n"


def biocjson_document(
    name: str, text: str, mentions: list[tuple[int, int, dict[str, str]]]
) -> dict[str, Any]:
    """A document as BioC JSON has it: one passage, and of each mention (start, end, infons) an
    annotation."""
    annotations = []
    for number, (start, end, infons) in enumerate(mentions, start=1):
        location = {"offset": start, "length": end - start}
        annotation = {"id": str(number), "infons": infons, "text": text[start:end]}
        annotations.append(annotation | {"locations": [location]})
    passage = {
        "offset": 0,
        "infons": {},
        "text": text,
        "sentences": [],
        "annotations": annotations,
        "relations": [],
    }
    return {"id": name, "infons": {}, "passages": [passage], "annotations": [], "relations": []}
