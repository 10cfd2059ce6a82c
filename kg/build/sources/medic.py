"""MEDIC, the disease vocabulary of the Comparative Toxicogenomics Database (CTD), that merges MeSH
and OMIM -> KnowledgeGraph.

CTD_diseases.tsv, CTD_diseases.csv   CTD's download (.gz too), https://ctdbase.org/downloads:
                                     DiseaseName, DiseaseID, AltDiseaseIDs, Definition, ParentIDs,
                                     TreeNumbers, ParentTreeNumbers, Synonyms, SlimMappings; lines
                                     with # are comments, | separates values
anything else                        lines id[|alternative id]||name|synonym|synonym, as BioSyn
                                     keeps MEDIC of July 2012

entities   the id without MESH: or OMIM:, as the dictionaries of entity linking have it; type
           "disease"
names      DiseaseName as `preferred`, synonyms as `synonym`
triples    is_a for each parent in the file
manifest   `alternatives` {id: [alternative id, …]}: annotated corpora use both
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from core.files import InputError
from core.reading import excerpt, lines
from kg.graph import KnowledgeGraph
from kg.ids import bare

COLUMNS = (
    "DiseaseName",
    "DiseaseID",
    "AltDiseaseIDs",
    "Definition",
    "ParentIDs",
    "TreeNumbers",
    "ParentTreeNumbers",
    "Synonyms",
)


class Concept(NamedTuple):
    """One line: its concept, the preferred name first."""

    where: str
    id: str
    alternatives: list[str]
    names: list[str]
    definition: str = ""
    parents: tuple[str, ...] = ()


def _ids(text: str) -> list[str]:
    return [bare(part) for part in text.split("|") if part.strip()]


def _ctd(where: str, line: str) -> Concept:
    try:
        values = line.split("\t") if "\t" in line else next(csv.reader([line]), [])
    except csv.Error as error:
        raise InputError(f"{where}: not valid CSV ({error}). Fix the line.") from error
    if len(values) < len(COLUMNS):
        raise InputError(
            f"{where}: expected the columns {', '.join(COLUMNS)}, got {len(values)} in"
            f" {excerpt(line)}"
        )
    row = dict(zip(COLUMNS, values, strict=False))
    names = [row["DiseaseName"], *row["Synonyms"].split("|")]
    parents = tuple(_ids(row["ParentIDs"]))
    return Concept(
        where,
        bare(row["DiseaseID"]),
        _ids(row["AltDiseaseIDs"]),
        names,
        " ".join(row["Definition"].split()),
        parents,
    )


def _biosyn(where: str, line: str) -> Concept:
    head, _, rest = line.partition("||")
    ids = [bare(part) for part in head.split("|")]
    return Concept(where, ids[0] if all(ids) else "", ids[1:], rest.split("|"))


def concepts(path: str | Path) -> Iterator[Concept]:
    """The concept of each line. Raises InputError naming path:line for one without id or name, or
    with another layout."""
    ctd = str(path).removesuffix(".gz").endswith((".tsv", ".csv"))
    for number, line in lines(path):
        where = f"{path}:{number}"
        if not line.strip() or (ctd and line.startswith("#")):
            continue
        if not ctd and "||" not in line:
            raise InputError(
                f"{where}: expected id||name|synonym, got {excerpt(line)}; CTD's own table ends in"
                " .tsv or .csv"
            )
        concept = _ctd(where, line) if ctd else _biosyn(where, line)
        names = [name.strip() for name in concept.names if name.strip()]
        if not concept.id:
            raise InputError(
                f"{where}: a dictionary line without an id. Add the concept's id, or remove the"
                " line."
            )
        if not names:
            raise InputError(
                f"{where}: concept {concept.id!r} without a name. Add one, or remove the line."
            )
        yield concept._replace(names=names)


def files(path: str | Path) -> list[Path]:
    return [Path(path)]


@dataclass
class _Dictionary:
    """The concepts of a file, lines of one id merged; pairs are kept once, in order."""

    entities: dict[str, str] = field(default_factory=dict)
    names: dict[tuple[str, str], None] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    alternatives: dict[str, list[str]] = field(default_factory=dict)
    parents: dict[tuple[str, str], None] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, concept: Concept) -> None:
        """Add what a line says of its concept."""
        concept_id = concept.id
        self.left_out["further lines of a concept (merged)"] += concept_id in self.entities
        names = [" ".join(name.split()) for name in concept.names]
        self.entities.setdefault(concept_id, names[0])
        self.names.update(((concept_id, name), None) for name in names)
        if concept.definition:
            self.definitions.setdefault(concept_id, concept.definition)
        for other in concept.alternatives:
            alternatives = self.alternatives.setdefault(concept_id, [])
            if other not in alternatives and other != concept_id:
                alternatives.append(other)
        parents = (parent for parent in concept.parents if parent != concept_id)
        self.parents.update(((concept_id, parent), None) for parent in parents)


def read(path: str | Path) -> KnowledgeGraph:
    """MEDIC in the file `path`. Lines of one id are merged; that and parents that are not in the
    file are counted in the manifest.

    Raises InputError naming path:line for a broken line, and for a file without concepts.
    """
    dictionary = _Dictionary()
    for concept in concepts(path):
        dictionary.add(concept)
    entities, left_out = dictionary.entities, dictionary.left_out
    if not entities:
        raise InputError(f"{path}: no concepts in it. The file may be cut: fetch it again.")
    parents = [pair for pair in dictionary.parents if pair[1] in entities]
    left_out["parents that are not in the file"] = len(dictionary.parents) - len(parents)
    return KnowledgeGraph.from_rows(
        {
            "entities": [(entity, name, "disease") for entity, name in entities.items()],
            "names": [
                (
                    entity,
                    name,
                    "preferred" if name == entities[entity] else "synonym",
                    "en",
                    "MEDIC",
                )
                for entity, name in dictionary.names
            ],
            "definitions": dictionary.definitions.items(),
            "triples": [(entity, "is_a", parent) for entity, parent in parents],
        },
        manifest={
            "source": "MEDIC (Comparative Toxicogenomics Database)",
            "version": Path(path).name,
            "licence": "CTD: for research, cite ctdbase.org",
            "alternatives": dictionary.alternatives,
            "left_out": dict(left_out),
        },
    )
