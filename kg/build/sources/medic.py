"""MEDIC, the disease vocabulary of the Comparative Toxicogenomics Database (CTD), that merges MeSH
and OMIM -> KnowledgeGraph.

CTD_diseases.tsv, CTD_diseases.csv   CTD's download (.gz too), https://ctdbase.org/downloads:
                                     DiseaseName, DiseaseID, AltDiseaseIDs,
                                     Definition, ParentIDs, TreeNumbers, ParentTreeNumbers,
                                     Synonyms, SlimMappings; lines with # are comments, | separates
                                     values
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
from pathlib import Path
from typing import NamedTuple

from core.files import InputError, lines
from kg.graph import KnowledgeGraph, table
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
            f"{where}: expected the columns {', '.join(COLUMNS)}, got {len(values)} in {line!r:.60}"
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
                f"{where}: expected id||name|synonym, got {line!r:.60}; CTD's own table ends in"
                " .tsv or .csv"
            )
        found = _ctd(where, line) if ctd else _biosyn(where, line)
        names = [name.strip() for name in found.names if name.strip()]
        if not found.id:
            raise InputError(
                f"{where}: a dictionary line without an id. Add the concept's id, or remove the"
                " line."
            )
        if not names:
            raise InputError(
                f"{where}: concept {found.id!r} without a name. Add one, or remove the line."
            )
        yield found._replace(names=names)


def files(path: str | Path) -> list[Path]:
    return [Path(path)]


def read(path: str | Path) -> KnowledgeGraph:
    """MEDIC in the file `path`. Lines of one id are merged; that and parents that are not in the
    file are counted in the manifest.

    Raises InputError naming path:line for a broken line, and for a file without concepts.
    """
    entities: dict[str, str] = {}
    names: dict[tuple[str, str], None] = {}  # as an ordered set
    definitions: dict[str, str] = {}
    alternatives: dict[str, list[str]] = {}
    parents: dict[tuple[str, str], None] = {}
    left_out: Counter[str] = Counter()
    for concept in concepts(path):
        left_out["further lines of a concept (merged)"] += concept.id in entities
        own_names = [" ".join(name.split()) for name in concept.names]
        entities.setdefault(concept.id, own_names[0])
        names.update(((concept.id, name), None) for name in own_names)
        if concept.definition:
            definitions.setdefault(concept.id, concept.definition)
        for other in concept.alternatives:
            own = alternatives.setdefault(concept.id, [])
            if other not in own and other != concept.id:
                own.append(other)
        parents.update(
            ((concept.id, parent), None) for parent in concept.parents if parent != concept.id
        )
    if not entities:
        raise InputError(f"{path}: no concepts in it. The file may be cut: fetch it again.")
    known = [pair for pair in parents if pair[1] in entities]
    left_out["parents that are not in the file"] = len(parents) - len(known)
    ids, found = list(entities), list(names)
    kinds = ["preferred" if name == entities[one] else "synonym" for one, name in found]
    return KnowledgeGraph(
        table(
            "entities", {"id": ids, "name": list(entities.values()), "type": ["disease"] * len(ids)}
        ),
        table(
            "names",
            {
                "id": [one for one, _ in found],
                "name": [name for _, name in found],
                "kind": kinds,
                "language": ["en"] * len(found),
                "source": ["MEDIC"] * len(found),
            },
        ),
        table("definitions", {"id": list(definitions), "text": list(definitions.values())}),
        table(
            "triples",
            {
                "head": [c for c, _ in known],
                "relation": ["is_a"] * len(known),
                "tail": [p for _, p in known],
            },
        ),
        {
            "source": "MEDIC (Comparative Toxicogenomics Database)",
            "version": Path(path).name,
            "licence": "CTD: for research, cite ctdbase.org",
            "alternatives": alternatives,
            "left_out": dict(left_out),
        },
    )
