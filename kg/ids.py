"""Ids as files write them, and the entities of a graph that they mean. Everything that reads ids
reads them here.

    D003924, MESH:D003924, mesh:D003924     an id, with the name of its vocabulary before it or
                                            without
    HP_0001250, hp:0001250, http://…/HP_0001250     other spellings of HP:0001250
    KEPL:C001                               C001, as brat's files have it
    D001943|D010051, D001943;D010051, a, b, a+b     several ids: each names an entity of its own
    -, -1, NIL, None, null, CUI-less, Concept-less  no concept
    D001943                                 an alternative id: `alternatives` {id: [alternative id,
                                            …]} in the graph's manifest

A mention of several ids is a mention of each of the entities, at one place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from core.files import InputError
from kg.graph import KnowledgeGraph

#: Vocabularies whose name before an id may be left out: their ids do not look alike.
BARE = ("MESH", "MSH", "OMIM", "MIM", "UMLS")
NO_CONCEPT = frozenset(
    {
        "",
        "-",
        "--",
        "-1",
        "nil",
        "none",
        "null",
        "cui-less",
        "cuiless",
        "cui_less",
        "concept-less",
        "conceptless",
        "concept_less",
    }
)
SEPARATORS = re.compile(r"[|;,+]")
OWN_IDS = "KEPL:"  #: before ids without a vocabulary's name, as brat's files have them
CURIE = re.compile(r"(?:https?://\S*/)?([A-Za-z][A-Za-z0-9]*)[:_]\s*(\S+)")


def bare(identifier: str) -> str:
    """An id without the name of MeSH, OMIM or UMLS before it: 215600 of OMIM:215600, as BioSyn's
    files write it."""
    head, colon, rest = identifier.strip().partition(":")
    return rest.strip() if colon and head.strip().upper() in BARE else identifier.strip()


class BareIds:
    """The ids of a graph without the name of MeSH, OMIM or UMLS before them, but where two would
    then be one: OMIM:100 and MESH:100 stay as they are."""

    def __init__(self, ids: Iterable[str]) -> None:
        counts = Counter(map(bare, ids))
        self._shared = {identifier for identifier, count in counts.items() if count > 1}

    def shorten(self, identifier: str) -> str:
        """What an id is called."""
        short = bare(identifier)
        return identifier if short in self._shared else short


def is_no_concept(identifier: str) -> bool:
    """Whether a source says by this that a mention has no concept."""
    return identifier.strip().casefold() in NO_CONCEPT


def split_ids(identifiers: str) -> list[str]:
    """The ids in a field, each once, in order; without those that say that there is no concept."""
    parts = (part.strip() for part in SEPARATORS.split(identifiers))
    return [identifier for identifier in dict.fromkeys(parts) if not is_no_concept(identifier)]


class Resolved(NamedTuple):
    """The entities that a field of ids means, each once, in order, and the ids that mean none; both
    empty: no concept."""

    entities: list[str]
    unknown: list[str]


class Ids:
    """The entities of a graph by any id of theirs.

    alternatives: {entity: its other ids}. An id of an entity means that entity, whatever it is an
    alternative of; an alternative of several entities means the first of them in the graph's order.
    """

    def __init__(
        self, ids: Iterable[str], alternatives: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.ids = dict.fromkeys(ids)
        self.alternatives = alternatives or {}

    @classmethod
    def from_graph(cls, graph: KnowledgeGraph) -> Ids:
        return cls(graph.ids.to_pylist(), alternatives_of(graph))

    @cached_property
    def _others(self) -> dict[str, str]:
        """{alternative id: entity}."""
        others: dict[str, str] = {}
        for entity in self.ids if self.alternatives else ():
            for other in self.alternatives.get(entity, ()):
                others.setdefault(other, entity)
        return others

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """{id as :func:`fold_id` makes it: entity}, ids before alternatives; made when an id is
        not found as it is written."""
        spellings: dict[str, str] = {}
        for entity in self.ids:
            spellings.setdefault(fold_id(entity), entity)
        for other, entity in self._others.items():
            spellings.setdefault(fold_id(other), entity)
        return spellings

    def entity(self, identifier: str) -> str | None:
        """The entity that one id means, or None."""
        identifier = identifier.strip()
        if identifier not in self.ids:
            identifier = identifier.removeprefix(OWN_IDS)
        if identifier in self.ids:
            return identifier
        return self._others.get(identifier) or self._spellings.get(fold_id(identifier))

    def resolve(self, identifiers: str) -> Resolved:
        """The entities that a field of ids means."""
        if (whole := self.entity(identifiers)) is not None:  # an id may have a separator in it
            return Resolved([whole], [])
        entities, unknown = dict[str, None](), list[str]()
        for part in split_ids(identifiers):
            if (entity := self.entity(part)) is None:
                unknown.append(part)
            else:
                entities[entity] = None
        return Resolved(list(entities), unknown)


def fold_id(identifier: str) -> str:
    """An id in one spelling: without a vocabulary that may be left out, else VOCABULARY:number; in
    one case."""
    match = CURIE.fullmatch(identifier.strip())
    if match and match[1].upper() in BARE:
        return match[2].upper()
    return f"{match[1]}:{match[2]}".upper() if match else identifier.strip().upper()


def alternatives_of(graph: KnowledgeGraph) -> dict[str, list[str]]:
    """{entity: its other ids} of a graph. Raises InputError for a manifest whose `alternatives` are
    something else."""
    stored = graph.manifest.get("alternatives", {})
    if not isinstance(stored, dict) or not all(isinstance(ids, list) for ids in stored.values()):
        raise InputError(
            "expected {entity: [its other ids]} under alternatives of the graph's manifest. Build"
            " the graph again."
        )
    return stored
