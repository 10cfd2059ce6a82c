"""Names that several concepts have, and which of them a text means.

After BELHD (Garda and Leser, Bioinformatics 2024): each concept of such a name gets a string that
distinguishes it from the others. A concept is described by its type, the names of its parents, the
beginning of its definition, its preferred name and its shortest other name, of several words if it
has one; the strings are the first of these in which all concepts of the name differ. A text
supports a concept by the share of its string's words that occur in the text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kg.graph import KnowledgeGraph, Numbers
from kg.linking.normal import normal_text
from kg.linking.tokens import words

HEAD = 12  #: words of a definition that are used
KEPT = 20_000  #: shared names whose strings are kept


class Description(NamedTuple):
    """What is said of a concept; an empty string where the graph does not say it."""

    type: str = ""
    parents: str = ""
    definition: str = ""
    names: tuple[str, ...] = ()  # the preferred one first


Describe = Callable[[Collection[str]], Mapping[str, Description]]


def distinguish_concepts(name: str, described: Mapping[str, Description]) -> dict[str, str]:
    """{concept: string} of the concepts that share `name`; at most one string is empty, or all
    where nothing differs."""
    bare_name = _bare(name)
    rows = []
    for description in described.values():
        others = [other for other in description.names if _bare(other) != bare_name]
        preferred = (
            description.names[0]
            if description.names and others and description.names[0] == others[0]
            else ""
        )
        # a short form says little
        shortest = min(others, key=lambda other: (" " not in other, len(other), other), default="")
        rows.append(
            (
                description.type,
                description.parents,
                " ".join(description.definition.split()[:HEAD]),
                preferred,
                shortest,
            )
        )
    for values in zip(*rows, strict=True):
        if len(set(map(_bare, values))) == len(values):
            return dict(zip(described, values, strict=True))
    return dict.fromkeys(described, "")


def _bare(name: str) -> str:
    """A name's words, whatever its case and punctuation."""
    return " ".join(word for word in words(normal_text(name)) if word.isalnum())


def support(string: str, name: str, text_words: Collection[str]) -> float:
    """The share of a string's words that are in a text, 0 to 1; words of the name itself and single
    characters do not count."""
    words_of_string = {word for word in words(string) if len(word) > 1} - {*words(name)}
    return (
        len(words_of_string.intersection(text_words)) / len(words_of_string)
        if words_of_string
        else 0.0
    )


class Homonyms:
    """Which of a name's concepts a text supports. `describe` is called for a shared name that is
    not kept."""

    def __init__(self, describe: Describe) -> None:
        self.describe = describe
        # the one used last is the last
        self._strings: OrderedDict[tuple[str, ...], dict[str, str]] = OrderedDict()

    def strings(self, name: str, concepts: Sequence[str]) -> dict[str, str]:
        """{concept: distinguishing string} of the concepts that share `name`; of KEPT names they
        are computed once.

        Names that differ in case and punctuation alone are one: a text may spell a name in any
        number of ways.
        """
        key = (_bare(name), *concepts)
        if key in self._strings:
            self._strings.move_to_end(key)
            return self._strings[key]
        described = self.describe(concepts)
        texts_of_names = distinguish_concepts(
            name, {c: described.get(c, Description()) for c in concepts}
        )
        self._strings[key] = texts_of_names
        if len(self._strings) > KEPT:
            self._strings.popitem(last=False)
        return texts_of_names

    def supports(
        self, name: str, concepts: Sequence[str], text: str | Collection[str] | None
    ) -> list[float]:
        """How much of each concept's distinguishing string `text`, or its words, contains; zeros
        without a text."""
        if not text:
            return [0.0] * len(concepts)
        strings = self.strings(name, concepts)
        present = frozenset(words(text)) if isinstance(text, str) else text
        return [support(strings[concept], name, present) for concept in concepts]


def graph_descriptions(graph: KnowledgeGraph) -> Describe:
    """Descriptions of a graph's entities; parents are the tails of `is_a`. The first call sorts the
    tables by entity."""

    @cache
    def tables() -> tuple[Numbers, _ByEntity, _ByEntity, _ByEntity]:
        is_a = graph.triples.filter(pc.equal(graph.triples["relation"], "is_a"))
        rows = (
            (is_a, "head", "tail"),
            (graph.definitions, "id", "text"),
            (graph.names, "id", "name"),
        )
        return Numbers(graph.ids), *(_ByEntity(graph, *columns) for columns in rows)  # type: ignore[return-value]

    def describe(concepts: Collection[str]) -> dict[str, Description]:
        places, parents, definitions, names = tables()
        preferred, types = graph.entities["name"], graph.entities["type"]
        descriptions = dict.fromkeys(concepts, Description())
        for concept, place in zip(concepts, places.positions(list(concepts)).tolist(), strict=True):
            if place >= 0:
                above = [
                    preferred[i].as_py() for i in places.positions(parents.values(place)).tolist()
                ]
                entity_names = dict.fromkeys([preferred[place].as_py(), *names.values(place)])
                definition = next(iter(definitions.values(place)), "")
                descriptions[concept] = Description(
                    types[place].as_py(), " ".join(sorted(above)), definition, tuple(entity_names)
                )
        return descriptions

    return describe


class _ByEntity:
    """The values of a table's column, by entity."""

    def __init__(self, graph: KnowledgeGraph, table: pa.Table, key: str, value: str) -> None:
        entity = graph.index_of(table[key])
        order = np.argsort(entity, kind="stable")
        self.entity, self.value = entity[order], table[value].take(pa.array(order))

    def values(self, entity: int) -> list[str]:
        begin, end = np.searchsorted(self.entity, [entity, entity + 1])
        entity_values: list[str] = self.value.slice(begin, end - begin).to_pylist()
        return entity_values
