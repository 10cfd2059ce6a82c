"""A graph while its files are read: rows of its parts, what is left out and what is wrong."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.choices import list_known
from core.reading import excerpt
from kg.build.rows import Problems
from kg.build.sources.umls import LANGUAGES as ISO_LANGUAGES
from kg.graph import KINDS, KnowledgeGraph
from kg.ids import fold_id

LOG = logging.getLogger(__name__)

#: codes of languages by their other codes and words
LANGUAGES = ISO_LANGUAGES | {
    "ENGLISH": "en",
    "ZHO": "zh",
    "CHINESE": "zh",
    "FRA": "fr",
    "DEU": "de",
    "FRENCH": "fr",
    "GERMAN": "de",
    "SPANISH": "es",
    "ITALIAN": "it",
    "PORTUGUESE": "pt",
    "DUTCH": "nl",
    "JAPANESE": "ja",
    "KOREAN": "ko",
    "RUSSIAN": "ru",
    "中文": "zh",
    "英文": "en",
}
#: what a field says that has no name; `Na` is sodium
NO_NAMES = frozenset("N/A n/a #N/A NA null NULL Null none NONE None nan NaN - -- ? .".split())
SAME = "equivalent"  #: the relation of an equivalence that names none


def split_names(field: str, separator: str) -> list[str]:
    """The names in a field, each once, without blanks at their ends."""
    parts = field.split(separator) if separator else [field]
    names = (" ".join(name.split()) for name in parts)
    return list(dict.fromkeys(name for name in names if name))


def parse_kind(value: str) -> str | None:
    """A name's kind in lower case, "synonym" where there is none; None for one that no graph
    has."""
    kind = "_".join(value.lower().split()) or "synonym"
    return kind if kind in KINDS else None


def parse_language(value: str) -> str | None:
    """A language's code in lower case, without its region or script: en for en, EN, eng, English
    and en-US; None for what is no code."""
    if not value:
        return ""
    if value.upper() not in LANGUAGES:
        tag = re.fullmatch(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]{1,8})*", value)
        if tag is None:
            return None
        value = tag[1]
    return LANGUAGES.get(value.upper(), value.lower())


def warn_of_similar_ids(entities: Iterable[str]) -> None:
    """Warn of ids that are one but for case, blanks or the mark after their vocabulary: everything
    that looks up such an id finds the first of them."""
    first: dict[str, str] = {}
    similar = []
    for entity in entities:
        other = first.setdefault(fold_id(entity), entity)
        if other != entity:
            similar.append(f"{other!r} and {entity!r}")
    if similar:
        LOG.warning(
            f"{len(similar):,} entities have the id of another but for case, blanks or marks"
            f" ({similar[0]:.200}). Give one entity one id."
        )


def warn_of_bars(names: Iterable[str]) -> None:
    """Warn of names that look like several with a bar between them."""
    barred = [name for name in names if "|" in name.strip("|")]
    if barred:
        LOG.warning(
            f"{len(barred):,} names have a | inside ({barred[0]!r:.80}). Where it parts names, no"
            " text has such a name: give the column to --synonyms, or a row to each name."
        )


@dataclass
class Draft:
    """Rows of a graph.

    language, source: of names that say none.
    missing: what an id is that no entity has: an error, counted (drop), or a new entity (add).
    repeated: what a second row of an entity is: an error, or further names of it (synonym).
    advice: what to do about such an error.
    """

    language: str = "en"
    source: str = "tables"
    missing: str = "error"
    repeated: str = "error"
    advice: str = "Take one of them out."
    problems: Problems = field(default_factory=Problems)
    left_out: Counter[str] = field(default_factory=Counter)
    entities: dict[str, tuple[str, str]] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    nameless: set[str] = field(default_factory=set)
    alternatives: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    rows: dict[str, dict[tuple[str, ...], None]] = field(default_factory=lambda: defaultdict(dict))

    def add_entity(self, where: str, entity: str, name: str, kind: str) -> bool:
        """Add an entity and its preferred name. Returns whether the rest of its row is its own."""
        if entity in self.retired:
            self.left_out["entities that are no longer active"] += 1
            return False
        if name in NO_NAMES:
            self.left_out[f"entities whose name says that there is none ({name})"] += 1
            self.nameless.add(entity)
            return False
        if entity in self.entities:
            if self.repeated == "error" and self.entities[entity] == (name, kind):
                self.left_out["rows that are repeated"] += 1
                return True
            if self.repeated == "error":
                self.problems.add(f"{where}: entity id {entity!r} occurs twice. {self.advice}")
                return False
            self.left_out["further rows of an entity, whose names are synonyms"] += 1
            if name != self.entities[entity][0]:
                self.add_name(where, entity, name, "synonym", "", self.source, "name")
            return True
        self.entities[entity] = name, kind
        self.rows["names"][entity, name, "preferred", self.language, self.source] = None
        return True

    def add_name(
        self, where: str, entity: str, name: str, kind: str, language: str, source: str, column: str
    ) -> None:
        """Add a name; the entity's preferred one is not added again. column: where it is from, for
        the count of what says that there is no name."""
        if name in NO_NAMES:
            self.left_out[f"fields of {column} that say there is no name ({name})"] += 1
            return
        known_kind, code = parse_kind(kind), parse_language(language)
        if known_kind is None:
            self.problems.add(f"{where}: no kind of name {kind!r}; {list_known(kind, KINDS)}")
            return
        if code is None:
            self.problems.add(
                f"{where}: expected the code of a language, such as en or zh, got"
                f" {excerpt(language)}. Fix the line."
            )
            return
        if self.is_entity(where, entity, "names"):
            self._add("names", entity, name, known_kind, code or self.language, source)

    def add_definition(self, where: str, entity: str, text: str) -> None:
        if self.is_entity(where, entity, "definitions"):
            self._add("definitions", entity, text)

    def add_pair(self, where: str, part: str, head: str, relation: str, tail: str) -> None:
        """Add a triple or an equivalence."""
        if self.is_entity(where, head, part) and self.is_entity(where, tail, part):
            self._add(part, head, relation, tail)

    def add_alternative(self, entity: str, other: str) -> None:
        if entity in self.entities and other != entity:
            self.alternatives[entity][other] = None

    def is_entity(self, where: str, entity: str, part: str) -> bool:
        """Whether an id is an entity's, of a new one where `missing` is add."""
        if entity in self.entities:
            return True
        if self.missing == "add":
            self.entities[entity] = entity, ""
            self.rows["names"][entity, entity, "preferred", self.language, self.source] = None
            return True
        if self.missing == "drop" or entity in self.nameless:
            self.left_out[f"rows of {part} with an id that no entity has"] += 1
        else:
            self.problems.add(
                f"{where}: unknown entity id {entity!r}. Add it to the entities, or use --missing"
                " add."
            )
        return False

    def _add(self, part: str, *row: str) -> None:
        self.left_out[f"rows of {part} that stand there twice"] += row in self.rows[part]
        self.rows[part][row] = None

    def name_relations(self, names: Mapping[str, str]) -> None:
        """Name the relations of triples by `names`, or by the entity that a relation is."""
        renamed: dict[tuple[str, ...], None] = {}
        for head, relation, tail in self.rows["triples"]:
            entity = self.entities.get(relation)
            name = names.get(relation) or ("_".join(entity[0].split()) if entity else relation)
            renamed[head, name, tail] = None
        self.rows["triples"] = renamed

    def graph(self, manifest: dict[str, Any]) -> KnowledgeGraph:
        """The graph of the rows; what looks like a slip is said. Raises InputError where something
        was wrong."""
        self.problems.check()
        warn_of_similar_ids(self.entities)
        warn_of_bars(name for _, name, *_ in self.rows["names"])
        entities = [(entity, *rest) for entity, rest in self.entities.items()]
        others = {entity: list(ids) for entity, ids in self.alternatives.items()}
        alternatives = {"alternatives": others} if others else {}
        left_out = {"left_out": dict(+self.left_out)}
        return KnowledgeGraph.from_rows(
            self.rows | {"entities": entities}, manifest | alternatives | left_out
        )
