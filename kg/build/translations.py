"""Translations of an ontology's terms as names of its graph.

    kepl graph build hpo --translations hp-zh.babelon.tsv.gz --out GRAPH

Babelon is the table that OBO ontologies use for their translations,
https://monarch-initiative.github.io/babelon: a heading with `subject_id`, `predicate_id`,
`translation_language` and `translation_value` (others: `source_value`, `translation_status`).

    rdfs:label, synonyms   names of their language; the source of a name is "Babelon" and the status
    definitions            behind the definition that the graph has

The preferred name stays the ontology's own: a translated label is a name of kind "exact". Left out
and counted under `left_out` in the manifest: rows of terms that the graph lacks, of predicates that
are no name and no definition, without a translation, or whose translation repeats what is there.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from core.files import InputError
from core.reading import lines
from kg.graph import KnowledgeGraph

#: predicate -> kind of the name
NAMES = {
    "rdfs:label": "exact",
    "skos:preflabel": "exact",
    "skos:altlabel": "synonym",
    "oboinowl:hasexactsynonym": "exact",
    "oboinowl:hasnarrowsynonym": "narrow",
    "oboinowl:hasbroadsynonym": "broad",
    "oboinowl:hasrelatedsynonym": "related",
}
DEFINITIONS = ("iao:0000115", "skos:definition")
NEEDED = ("subject_id", "predicate_id", "translation_language", "translation_value")
UNKNOWN = "translations of terms that the graph lacks"
NO_NAME = "translations of a predicate that is no name and no definition"
EMPTY = "rows without a translation"
REPEATED = "translations that repeat a name or definition"
CHANGED = "translations of a label that the graph has in other words, kept"


class Translation(NamedTuple):
    """A row of a Babelon table; `predicate` in lower case, `source` what was translated, or ""."""

    term: str
    predicate: str
    language: str
    text: str
    source: str
    status: str


def read_babelon(path: str | Path) -> Iterator[Translation]:
    """The rows of a Babelon table, plain or compressed.

    Raises InputError naming path:line for a heading without the NEEDED columns, a row of another
    width, and a row without a term, predicate or language.
    """
    columns: list[str] = []
    for number, line in lines(path):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}:{number}"
        try:
            fields = next(csv.reader([line], delimiter="\t", strict=True))
        except csv.Error as error:
            raise InputError(
                f"{where}: a quote that does not end ({error}). Write a quote inside a quoted field"
                " twice."
            ) from error
        if not columns:
            columns = [field.strip().lower() for field in fields]
            missing = [column for column in NEEDED if column not in columns]
            if missing:
                raise InputError(
                    f"{where}: expected the heading of a Babelon table; {', '.join(missing)}"
                    f" missing among {', '.join(columns)}"
                )
            continue
        if len(fields) != len(columns):
            raise InputError(
                f"{where}: expected {len(columns)} fields separated by tabs, got {len(fields)}"
            )
        row = dict(zip(columns, (" ".join(field.split()) for field in fields), strict=True))
        for column in NEEDED[:3]:
            if not row[column]:
                raise InputError(f"{where}: {column} is empty; every row needs one")
        yield Translation(
            row["subject_id"],
            row["predicate_id"].lower(),
            row["translation_language"].lower(),
            row["translation_value"],
            row.get("source_value", ""),
            row.get("translation_status", "").lower(),
        )
    if not columns:
        raise InputError(f"{path}: empty; expected a Babelon table with a heading")


def add_translations(graph: KnowledgeGraph, paths: Sequence[str | Path]) -> KnowledgeGraph:
    """The graph with the names and definitions of Babelon tables.

    The manifest counts the names of each language under `translations`. Raises InputError as
    :func:`read_babelon` does, and where no row is of the graph.
    """
    entity_names = dict(graph.rows("entities", "id", "name"))
    named = set(graph.rows("names", "id", "name"))
    defined = set(graph.rows("definitions"))
    names: list[tuple[str, str, str, str, str]] = []
    definitions: list[tuple[str, str]] = []
    counts: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    for path in paths:
        rows = 0
        for row in read_babelon(path):
            rows += 1
            if row.term not in entity_names:
                counts[UNKNOWN] += 1
            elif not row.text:
                counts[EMPTY] += 1
            elif row.predicate in DEFINITIONS:
                if (row.term, row.text) in defined:
                    counts[REPEATED] += 1
                    continue
                defined.add((row.term, row.text))
                definitions.append((row.term, row.text))
            elif row.predicate not in NAMES:
                counts[NO_NAME] += 1
            elif (row.term, row.text) in named:
                counts[REPEATED] += 1
            else:
                label = row.predicate == "rdfs:label" and row.source
                counts[CHANGED] += bool(label) and row.source != entity_names[row.term]
                named.add((row.term, row.text))
                languages[row.language] += 1
                source = f"Babelon {row.status}".strip()
                names.append((row.term, row.text, NAMES[row.predicate], row.language, source))
        if rows and counts[UNKNOWN] == rows:
            raise InputError(
                f"{path}: none of its {rows:,} terms is in the graph. Give the translations of this"
                " ontology."
            )
    left_out = {**graph.manifest.get("left_out", {}), **counts}
    return graph.with_rows(
        {"names": names, "definitions": definitions},
        {"left_out": left_out, "translations": dict(languages)},
    )
