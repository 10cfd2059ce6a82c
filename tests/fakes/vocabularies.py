"""Small synthetic vocabularies in the layouts that their publishers ship."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path


def _write(path: Path, rows: Sequence[Sequence[str]], delimiter: str, end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(delimiter.join(row) + end for row in rows).encode())
    return path


def write_hgnc(folder: Path) -> Path:
    rows = [
        [
            *"hgnc_id symbol name locus_group status".split(),
            *"alias_symbol alias_name prev_symbol prev_name".split(),
        ],
        ["HGNC:1", "ABC1", "abc one", "coding gene", "Approved", '"X1|X2"', "", "OLD1", ""],
        ["HGNC:2", "ABC2", "abc two", "pseudogene", "Approved", "", "2's alias", "", "past name"],
        ["HGNC:3", "GONE", "gone", "other", "Entry Withdrawn", "", "", "", ""],
    ]
    return _write(folder / "hgnc_complete_set.txt", rows, "\t")


def write_drugbank(folder: Path) -> Path:
    rows = [
        "DrugBank ID,Accession Numbers,Common name,CAS,UNII,Synonyms,Standard InChI Key".split(","),
        [
            "DB1",
            "BIOD1 | BTD1",
            "Fakirudin",
            "1-2-3",
            "Y43",
            '"Fakirudin | fakir, made"',
            "",
        ],
        ["DB2", "", '"Two ""quoted"" acid"', "", "", "", ""],
    ]
    return _write(folder / "drugbank vocabulary.csv", rows, ",", "\r\n")


def write_loinc(folder: Path) -> Path:
    heading = (
        "LOINC_NUM COMPONENT CLASS STATUS DefinitionDescription CONSUMER_NAME SHORTNAME"
        " RELATEDNAMES2 LONG_COMMON_NAME DisplayName"
    )
    rows = [
        [f'"{name}"' for name in heading.split()],
        [
            *('"1-8"', '"Fake acid"', '"CHEM"', '"ACTIVE"', '"An acid, fake."', '"Acid, blood"'),
            *('"FakAc SerPl"', '"Level; SerPl; Chemistry"', '"Fake acid [Mass] in Serum"', '""'),
        ],
        ['"2-6"', '"Old"', '"CHEM"', '"DEPRECATED"', *['""'] * 4, '"Old acid"', '""'],
    ]
    return _write(folder / "LoincTable" / "Loinc.csv", rows, ",", "\r\n").parent.parent


def write_rxnorm(folder: Path) -> Path:
    def atom(cui: str, sab: str, tty: str, name: str, suppress: str = "N") -> list[str]:
        fixed = ["ENG", "", "", "", "", "", f"A{cui}", "", cui, "", sab, tty, cui, name]
        return [cui, *fixed, "", suppress, "4096", ""]

    names = [
        atom("11", "RXNORM", "IN", "fakol"),
        atom("11", "MTHSPL", "SU", "FAKOL"),
        atom("11", "RXNORM", "SY", "fakolum"),
        atom("12", "RXNORM", "SCD", "fakol 5 MG Oral Tablet"),
        atom("13", "RXNORM", "BN", "Oldbrand", "O"),
        atom("14", "GS", "BN", "not RxNorm's"),
    ]

    def relation(one: str, other: str, rela: str) -> list[str]:
        fixed = ["", "CUI", "RO", other, "", "CUI", rela, "", "", "RXNORM", "", "", "", "", ""]
        return [one, *fixed, ""]

    relations = [
        relation("11", "12", "has_ingredient"),
        relation("13", "12", "tradename_of"),
    ]
    _write(folder / "RXNCONSO.RRF", names, "|")
    return _write(folder / "RXNREL.RRF", relations, "|").parent


FSN, SYNONYM, IS_A, SITE = "900000000000003001", "900000000000013009", "116680003", "363698007"


def write_snomed(folder: Path) -> Path:
    """Five concepts, one of them inactive; is-a has a cycle."""
    place, end = folder / "Snapshot" / "Terminology", "\r\n"
    common = ["20990101", "1", "900000000000207008"]
    concepts = [
        "id effectiveTime active moduleId definitionStatusId".split(),
        *([one, *common, "0"] for one in ("101", "102", "103", IS_A, SITE)),
        ["104", "20990101", "0", "900000000000207008", "0"],
    ]
    described = "id effectiveTime active moduleId conceptId languageCode typeId term"

    def description(concept: str, kind: str, term: str, active: str = "1") -> list[str]:
        return [f"{concept}9", "20990101", active, "9", concept, "en", kind, term]

    descriptions = [
        described.split(),
        description("101", FSN, "Fake disease (disorder)"),
        description("101", SYNONYM, "Fake disease"),
        description("101", SYNONYM, 'Disease of "Fake'),
        description("101", SYNONYM, "dropped", "0"),
        description("102", FSN, "Disease (of fakes) (disorder)"),
        description("103", FSN, "Fake part (body structure)"),
        description("104", FSN, "Inactive (disorder)"),
        description(IS_A, FSN, "Is a (attribute)"),
        description(SITE, FSN, "Finding site (attribute)"),
    ]
    related = (
        "id effectiveTime active moduleId sourceId destinationId relationshipGroup typeId"
        " characteristicTypeId modifierId"
    )

    def relation(head: str, kind: str, tail: str, active: str = "1") -> list[str]:
        return ["1", "20990101", active, "9", head, tail, "0", kind, "9", "9"]

    relations = [
        related.split(),
        relation("101", IS_A, "102"),
        relation("102", IS_A, "101"),
        relation("101", SITE, "103"),
        relation("101", SITE, "102", "0"),
        relation("104", IS_A, "102"),
    ]
    _write(place / "sct2_Concept_Snapshot_INT_20990101.txt", concepts, "\t", end)
    _write(place / "sct2_Description_Snapshot-en_INT_20990101.txt", descriptions, "\t", end)
    _write(place / "sct2_Relationship_Snapshot_INT_20990101.txt", relations, "\t", end)
    (place / "sct2_sRefset_OWLExpressionSnapshot_INT_20990101.txt").write_text("id\n1\n")
    return place


def write_ncbigene(folder: Path) -> Path:
    heading = (
        "#tax_id GeneID Symbol LocusTag Synonyms dbXrefs chromosome map_location description"
        " type_of_gene Symbol_from_nomenclature_authority Full_name_from_nomenclature_authority"
        " Nomenclature_status Other_designations Modification_date Feature_type"
    )
    rows = [
        heading.split(),
        "9606 1 FAK1 - FK|Na HGNC:1 19 19q fake-1 coding FAK1 fake_one O d1|d2 2099 -".split(),
        "9606 2 FAK2 - - - 1 - - ncRNA - - - - 2099 -".split(),
    ]
    return _write(folder / "Homo_sapiens.gene_info", rows, "\t")


def write_kgx(folder: Path) -> Path:
    nodes = [
        "id category name description synonym xref".split(),
        ["A:1", "biolink:Disease|biolink:NamedThing", "one", "the first", "uno|eins", ""],
        ["A:2", "biolink:Gene", "two", "", "", ""],
        ["B:1", "", "", "", "", ""],
    ]
    edges = [
        "id subject predicate object relation".split(),
        ["e1", "A:2", "biolink:causes", "A:1", "RO:1"],
        ["e2", "A:1", "biolink:same_as", "B:1", ""],
        ["e3", "A:1", "biolink:subclass_of", "C:9", ""],
    ]
    _write(folder / "x_nodes.tsv", nodes, "\t")
    return _write(folder / "x_edges.tsv", edges, "\t").parent


def write_neo4j(folder: Path) -> Path:
    nodes = [
        ["diseaseId:ID(Disease)", "name:string", "synonyms:string[]", ":LABEL"],
        ["D1", '"gout, acute"', "podagra;gouty arthritis", "Disease;Thing"],
        ["D2", "pain", "", "Disease"],
    ]
    edges = [[":START_ID", ":END_ID", ":TYPE", "weight:float"], ["D1", "D2", "CAUSES", "0.5"]]
    _write(folder / "disease.csv", nodes, ",")
    return _write(folder / "causes.csv", edges, ",").parent


def write_apoc(folder: Path) -> Path:
    rows = [
        ["_id", "_labels", "name", "year", "_start", "_end", "_type", "weight"],
        ["0", ":Disease:Thing", "gout", "", "", "", "", ""],
        ["1", ":Sign", "pain", "", "", "", "", ""],
        ["", "", "", "", "0", "1", "CAUSES", "0.5"],
    ]
    quoted = [rows[0], *([f'"{cell}"' if cell else "" for cell in row] for row in rows[1:])]
    return _write(folder / "all.csv", quoted, ",")


def _texts(**texts: str) -> dict[str, dict[str, str]]:
    return {key: {"language": key, "value": value} for key, value in texts.items()}


def write_wikidata(folder: Path) -> Path:
    def claim(prop: str, target: object, kind: str, rank: str = "normal") -> dict[str, object]:
        value = {"value": {"id": target} if kind == "wikibase-entityid" else target, "type": kind}
        return {"id": "Q1$9", "rank": rank, "mainsnak": {"property": prop, "datavalue": value}}

    claims = {
        "P31": [claim("P31", "Q2", "wikibase-entityid")],
        "P780": [claim("P780", "Q3", "wikibase-entityid")],
        "P279": [claim("P279", "Q2", "wikibase-entityid", "deprecated")],
        "P486": [claim("P486", "D01", "string")],
    }
    aliases = {"en": [{"language": "en", "value": "podagra"}, {"language": "en", "value": "N/A"}]}
    first = {"type": "item", "id": "Q1", "labels": _texts(en="gout", de="Gicht"), "claims": claims}
    first |= {"descriptions": _texts(en="a disease"), "aliases": aliases}
    others = [
        {"type": "item", "id": "Q2", "labels": _texts(en="disease")},
        {"type": "item", "id": "Q3", "labels": _texts(fr="douleur")},
        {"type": "property", "id": "P780", "labels": _texts(en="symptoms")},
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "items.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in (first, *others)))
    return path


def write_sssom(folder: Path) -> Path:
    rows = [
        "subject_id subject_label predicate_id object_id object_label justification".split(),
        ["A:1", "gout", "skos:exactMatch", "B:1", "Gout", "semapv:Lexical"],
        ["A:1", "gout", "skos:broadMatch", "B:2", "arthritis", "semapv:Lexical"],
        ["A:2", "pain", "skos:exactMatch", "B:3", "", "semapv:Lexical"],
    ]
    path = _write(folder / "x.sssom.tsv", rows, "\t")
    path.write_text("#curie_map:\n#  A: https://example.org/a\n" + path.read_text())
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "apoc": write_apoc,
    "drugbank": write_drugbank,
    "hgnc": write_hgnc,
    "kgx": write_kgx,
    "loinc": write_loinc,
    "ncbigene": write_ncbigene,
    "neo4j": write_neo4j,
    "rxnorm": write_rxnorm,
    "snomed": write_snomed,
    "sssom": write_sssom,
    "wikidata": write_wikidata,
}
