"""Classifications in ClaML, as the WHO ships ICD-10 (.xml, .gz too) -> KnowledgeGraph.

    entities    every Class by its code; its type is its kind: chapter, block, category
    names       the rubric `preferred`, and `preferredLong` and `inclusion` as further names
    definitions the rubric `definition`, or else `note`
    triples     SuperClass as is_a

A rubric's text is that of its labels, without references to other codes. Classes without a
preferred rubric, modifiers (digits that any class may get), other rubrics and further definitions
or notes of a class are counted in the manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from core.files import InputError
from kg.build.draft import parse_language
from kg.documents.xml import Events
from kg.documents.xml import read as read_events
from kg.graph import KnowledgeGraph

NAMES = {"preferred": "preferred", "preferredlong": "exact", "inclusion": "narrow"}
DEFINITIONS = ("definition", "note")
UNNAMED = "classes without a preferred rubric"
MODIFIERS = "modifiers"
OTHER = "rubrics of other kinds"
PARTS = ("Fragment", "Para", "ListItem", "Cell")  #: of a label: words of their own


class Class(NamedTuple):
    """A class of a classification: its code and kind, the codes above it, (kind, text) of its
    rubrics."""

    code: str
    kind: str
    above: list[str]
    rubrics: list[tuple[str, str]]
    where: str


class _Classes(Events[Class]):
    """The classes of a file; `title` and `modifiers` are of the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.open: Class | None = None
        self.rubric: str | None = None
        self.text: list[str] | None = None  # of the label that is open
        self.inside_reference = False
        self.title, self.version, self.modifiers = "", "", 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "Class":
            code, kind = attributes.get("code", ""), attributes.get("kind", "")
            if not code:
                raise InputError(f"{self.where}: a Class without a code")
            self.open = Class(code, kind, [], [], self.where)
        elif name == "ModifierClass":
            self.modifiers += 1
        elif name == "Title":
            self.title = attributes.get("name", "")
            self.version = attributes.get("version", "")
        elif self.open is not None and name == "SuperClass":
            self.open.above.append(attributes.get("code", ""))
        elif self.open is not None and name == "Rubric":
            self.rubric = attributes.get("kind", "").lower()
        elif self.rubric is not None and name == "Label":
            self.text = []
        elif self.text is not None and name == "Reference":
            self.inside_reference = True
        elif self.text is not None and name in PARTS:
            self.text.append(" ")

    def end(self, name: str) -> None:
        if name == "Reference":
            self.inside_reference = False
        elif name == "Label" and self.text is not None and self.open and self.rubric is not None:
            text = " ".join("".join(self.text).split())
            if text:
                self.open.rubrics.append((self.rubric, text))
            self.text = None
        elif name == "Rubric":
            self.rubric = None
        elif name == "Class" and self.open is not None:
            self.ready.append(self.open)
            self.open = None

    def characters(self, text: str) -> None:
        if self.text is not None and not self.inside_reference:
            self.text.append(text)


def files(path: str | Path) -> list[Path]:
    return [Path(path)]


@dataclass
class _Named:
    """The classes with a preferred rubric: their titles and kinds, names and definitions by
    code."""

    left_out: Counter[str]
    entities: dict[str, tuple[str, str]] = field(default_factory=dict)
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)

    def add(self, item: Class) -> None:
        """Add a class; one without a preferred rubric is counted. Raises InputError for a code that
        occurs twice."""
        title = next((text for kind, text in item.rubrics if kind == "preferred"), "")
        if not title:
            self.left_out[UNNAMED] += 1
            return
        if item.code in self.entities:
            raise InputError(f"{item.where}: the code {item.code} occurs a second time")
        self.entities[item.code] = (title, item.kind)
        for kind, text in item.rubrics:
            if kind in NAMES:
                self.names.setdefault((item.code, text), NAMES[kind])
            elif kind not in DEFINITIONS:
                self.left_out[OTHER] += 1
        texts = [text for wanted in DEFINITIONS for kind, text in item.rubrics if kind == wanted]
        if texts:
            self.definitions[item.code] = texts[0]
            self.left_out[OTHER] += len(texts) - 1


def read(path: str | Path, language: str = "en", source: str = "") -> KnowledgeGraph:
    """The classification at `path`. Raises InputError for broken XML, a code that occurs twice and
    a SuperClass that the file lacks.

    Args:
        language: Language of the names.
        source: What the names say of their origin. Default: the file's title.
    """
    events = _Classes(Path(path))
    classes = list(read_events(events))
    origin = source or events.title or "ClaML"
    spoken = parse_language(language)
    if spoken is None:
        raise InputError(f"--language {language}: expected a code of a language, such as en")
    named = _Named(Counter({MODIFIERS: events.modifiers}))
    for item in classes:
        named.add(item)
    return KnowledgeGraph.from_rows(
        {
            "entities": [(code, title, kind) for code, (title, kind) in named.entities.items()],
            "names": [
                (code, name, kind, spoken, origin) for (code, name), kind in named.names.items()
            ],
            "definitions": named.definitions.items(),
            "triples": list(_triples(classes, named.entities)),
        },
        manifest={
            "source": origin,
            "version": events.version or "not stated",
            "licence": "not stated; see the file",
            "left_out": dict(named.left_out),
        },
    )


def _triples(classes: Iterable[Class], entities: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """The triples of the classes that are entities. Raises InputError for a SuperClass that is
    none."""
    for item in classes:
        for above in item.above if item.code in entities else ():
            if above not in entities:
                raise InputError(
                    f"{item.where}: class {item.code} is below {above}, which the file lacks"
                )
            yield item.code, "is_a", above
