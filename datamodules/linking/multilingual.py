"""Linking tasks of several languages, whose dictionary is UMLS (GRAPH=).

XL-BEL      a thousand mentions a language, of Wikipedia; Liu et al. 2021 (ACL), Section 3:
            CUI||mention, or CUI||mention||a text with <tgt>the mention</tgt>
Mantra GSC  titles of MEDLINE, drug labels of the EMA and claims of patents; Kors et al. 2015
            (JAMIA 22(5)): XML, a unit of text with its annotations by offset and length
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from core.files import InputError
from core.reading import excerpt, lines
from datamodules.linking import Mention, Spans
from datamodules.linking.readers import PubTator
from kg.documents.xml import Events, read

XL_BEL_LANGUAGES = ("en", "es", "de", "fi", "ru", "tr", "ko", "zh", "ja", "th")
MANTRA_LANGUAGES = ("en", "de", "es", "fr", "nl")
#: Kinds of text of Mantra GSC; patents have English, French and German ones alone
MANTRA_KINDS = ("Medline", "EMEA", "Patent")
WITHOUT_MARK = "mentions that their text does not mark: no context"
NO_CUI = "mentions with an id that is no CUI"  # CN and CL: concepts of MedGen and of NCI's
_CUI = re.compile(r"C\d{7}")
_ID = re.compile(r"[A-Z]{0,3}\d+")
_MARKED = re.compile(r"<tgt>(.*?)</tgt>", re.S)


def read_xl_bel(
    path: Path, documents: dict[str, str], counts: Counter[str] | None = None
) -> list[Mention]:
    """The mentions of one language. A text becomes the mention's document, without its marks, and
    is added to `documents`. Several ids are joined by |, any of which is right.

    Raises InputError for a line without an id or a mention.
    """
    counts = Counter() if counts is None else counts
    mentions = []
    for number, line in lines(path):
        ids, _, rest = line.partition("||")
        mention, _, context = rest.partition("||")
        concepts, mention = ids.strip().split("|"), mention.strip()
        if not mention or not all(_ID.fullmatch(concept) for concept in concepts):
            raise InputError(
                f"{path}:{number}: expected CUI||mention, or CUI||mention||text, got"
                f" {excerpt(line)}"
            )
        counts[NO_CUI] += not all(_CUI.fullmatch(concept) for concept in concepts)
        document, start, end = "", None, None
        marked = _MARKED.search(context)
        if marked:
            document = f"{path.name.partition('.')[0]}:{number}"
            before = _without_marks(context[: marked.start()])
            start, end = len(before), len(before) + len(marked[1])
            documents[document] = before + marked[1] + _without_marks(context[marked.end() :])
        elif context:
            counts[WITHOUT_MARK] += 1
        mentions.append(Mention(str(number), document, start, end, mention, [mention], [concepts]))
    if not mentions:
        raise InputError(f"{path}: no mentions. Expected CUI||mention, a line each.")
    return mentions


def _without_marks(text: str) -> str:
    return text.replace("<tgt>", "").replace("</tgt>", "")


class Annotation(NamedTuple):
    """An annotation of a unit: its attributes, its text, and the line of the file."""

    attributes: Mapping[str, str]
    surface: str
    where: str


class Unit(NamedTuple):
    """A unit of text with its annotations, as the file has them."""

    id: str
    text: str
    annotations: list[Annotation]
    where: str


class _Units(Events[Unit]):
    """The units of a file of Mantra GSC."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.unit: str | None = None
        self.text: list[str] = []
        self.surface: list[str] | None = None  # of the annotation that is open
        self.inside_text = False
        self.attributes: Mapping[str, str] = {}
        self.annotations: list[Annotation] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "unit":
            self.unit, self.text, self.annotations = attributes.get("id", ""), [], []
        elif name == "text":
            self.inside_text = True
        elif name == "e":
            self.surface, self.attributes = [], attributes

    def end(self, name: str) -> None:
        if name == "text":
            self.inside_text = False
        elif name == "e" and self.surface is not None:
            surface = "".join(self.surface).strip()
            self.annotations.append(Annotation(self.attributes, surface, self.where))
            self.surface = None
        elif name == "unit" and self.unit is not None:
            text = "".join(self.text)
            self.ready.append(Unit(self.unit, text, self.annotations, self.where))
            self.unit = None

    def characters(self, text: str) -> None:
        if self.surface is not None:
            self.surface.append(text)
        elif self.inside_text:
            self.text.append(text)


def read_mantra(path: Path, counts: Counter[str] | None = None) -> PubTator:
    """The units of one file, each a document with its mentions. A place that several annotations
    have is one mention, any of whose concepts is right.

    Raises InputError for a file that is no such XML, for an annotation without an id, offset or
    length, and for one whose text is not at its place.
    """
    counts = Counter() if counts is None else counts
    documents: dict[str, str] = {}
    places: dict[tuple[str, int, int], tuple[list[str], str]] = {}
    for unit in read(_Units(path)):
        if not unit.id or not unit.text or unit.id in documents:
            raise InputError(f"{unit.where}: expected a unit with an id of its own and a text")
        documents[unit.id] = unit.text
        for annotation in unit.annotations:
            start, end, concept = _place_of(annotation)
            at_place = unit.text[start:end]
            if not 0 <= start < end <= len(unit.text) or annotation.surface not in ("", at_place):
                raise InputError(
                    f"{annotation.where}: {annotation.surface!r} is not at {start} to {end} of the"
                    f" text of unit {unit.id}"
                )
            kind = annotation.attributes.get("grp", "")
            ids, _ = places.setdefault((unit.id, start, end), ([], kind))
            if concept in ids:
                counts["repeated annotations"] += 1
            else:
                ids.append(concept)
    if not documents:
        raise InputError(f"{path}: no units of text. Expected a file of Mantra GSC.")
    mentions = []
    for (name, start, end), (ids, kind) in places.items():
        text = documents[name][start:end]
        place = f"{name}:{start}-{end}"
        mentions.append(Mention(place, name, start, end, text, [text], [ids], kind))
    return PubTator(mentions, documents, {})


def _place_of(annotation: Annotation) -> tuple[int, int, str]:
    """(start, end, id) of an annotation."""
    values = annotation.attributes
    concept = values.get("cui", "")
    numbers = [values.get(key, "") for key in ("offset", "len")]
    if not _CUI.fullmatch(concept) or not all(number.isdecimal() for number in numbers):
        raise InputError(
            f"{annotation.where}: expected an annotation with cui, offset and len, got"
            f" {dict(values)}"
        )
    start, length = map(int, numbers)
    return start, start + length, concept


def read_mantra_files(
    data: Path, files: tuple[str, ...], counts: Counter[str]
) -> tuple[list[Mention], dict[str, str], Spans]:
    """(mentions, texts, {document: []}) of several files; a file's name comes before the ids of its
    units."""
    mentions: list[Mention] = []
    texts: dict[str, str] = {}
    for name in files:
        if not (data / name).is_file():
            counts[f"files that are not there: {name}"] += 1
            continue
        annotations = read_mantra(data / name, counts)
        stem = Path(name).stem
        texts |= {f"{stem}:{document}": text for document, text in annotations.documents.items()}
        mentions += [
            m._replace(document=f"{stem}:{m.document}", id=f"{stem}:{m.id}")
            for m in annotations.mentions
        ]
    return mentions, texts, {document: [] for document in texts}
