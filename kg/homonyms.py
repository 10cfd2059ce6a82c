"""Names that several concepts have, and which of them a text means.

After BELHD (Garda and Leser, Bioinformatics 2024): each concept of such a name gets a string that distinguishes it from the
others. A concept is described by its type, the names of its parents, the beginning of its definition, its preferred name and
its shortest other name, of several words if it has one; the strings are the first of these in which all concepts of the name
differ. A text supports a concept by the share of its string's words that occur in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kg.graph import KnowledgeGraph
from kg.linking.tokens import words

HEAD = 12  #: words of a definition that are used


class Description(NamedTuple):
    """What is said of a concept; an empty string where the graph does not say it."""

    type: str = ""
    parents: str = ""
    definition: str = ""
    names: tuple[str, ...] = ()  # the preferred one first


Describe = Callable[[Collection[str]], Mapping[str, Description]]


def distinguishing(name: str, described: Mapping[str, Description]) -> dict[str, str]:
    """{concept: string} of the concepts that share `name`; at most one string is empty, or all where nothing differs."""
    own = _bare(name)
    rows = []
    for one in described.values():
        others = [other for other in one.names if _bare(other) != own]
        preferred = one.names[0] if one.names and others and one.names[0] == others[0] else ""
        shortest = min(others, key=lambda other: (" " not in other, len(other), other), default="")  # a short form says little
        rows.append((one.type, one.parents, " ".join(one.definition.split()[:HEAD]), preferred, shortest))
    for values in zip(*rows, strict=True):
        if len(set(map(_bare, values))) == len(values):
            return dict(zip(described, values, strict=True))
    return dict.fromkeys(described, "")


def _bare(name: str) -> str:
    """A name's words, whatever its case and punctuation."""
    return " ".join(word for word in words(name) if word.isalnum())


def support(string: str, name: str, text_words: Collection[str]) -> float:
    """The share of a string's words that are in a text, 0 to 1; words of the name itself and single characters do not count."""
    own = {word for word in words(string) if len(word) > 1} - {*words(name)}
    return len(own.intersection(text_words)) / len(own) if own else 0.0


class Homonyms:
    """Which of a name's concepts a text speaks for. `describe` is asked once for each shared name that is looked up."""

    def __init__(self, describe: Describe) -> None:
        self.describe = describe
        self._strings: dict[tuple[str, ...], dict[str, str]] = {}

    def strings(self, name: str, concepts: Sequence[str]) -> dict[str, str]:
        """{concept: distinguishing string} of the concepts that share `name`."""
        key = (name, *concepts)
        if key not in self._strings:
            described = self.describe(concepts)
            self._strings[key] = distinguishing(name, {c: described.get(c, Description()) for c in concepts})
        return self._strings[key]

    def supports(self, name: str, concepts: Sequence[str], text: str | None) -> list[float]:
        """How much of each concept's distinguishing string `text` contains; zeros without a text."""
        if not text:
            return [0.0] * len(concepts)
        strings, present = self.strings(name, concepts), frozenset(words(text))
        return [support(strings[concept], name, present) for concept in concepts]


def graph_descriptions(graph: KnowledgeGraph) -> Describe:
    """Descriptions of a graph's entities. Parents are the tails of `is_a`; each call reads the tables once."""

    def pairs(table: pa.Table, key: str, value: str, ids: pa.Array) -> Iterable[tuple[str, str]]:
        rows = table.filter(pc.is_in(table[key], value_set=ids))
        return zip(rows[key].to_pylist(), rows[value].to_pylist(), strict=True)

    def describe(concepts: Collection[str]) -> dict[str, Description]:
        ids = pa.array(concepts, pa.string())
        is_a = graph.triples.filter(pc.equal(graph.triples["relation"], "is_a"))
        above: dict[str, list[str]] = {}
        for child, parent in pairs(is_a, "head", "tail", ids):
            above.setdefault(child, []).append(parent)
        every = pa.array({*concepts, *(parent for own in above.values() for parent in own)}, pa.string())
        preferred = dict(pairs(graph.entities, "id", "name", every))
        types, definitions = dict(pairs(graph.entities, "id", "type", ids)), dict(pairs(graph.definitions, "id", "text", ids))
        names: dict[str, list[str]] = {one: [preferred[one]] for one in concepts if one in preferred}
        for one, name in pairs(graph.names, "id", "name", ids):
            names.setdefault(one, []).append(name)
        return {
            one: Description(
                types.get(one, ""), " ".join(sorted(preferred[parent] for parent in above.get(one, ()))),
                definitions.get(one, ""), tuple(dict.fromkeys(names.get(one, ()))),
            )
            for one in concepts
        }  # fmt: skip

    return describe
