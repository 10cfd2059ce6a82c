"""A few lines of every vocabulary that has a preset, in the published layout, and the graph that
they mean."""

from __future__ import annotations

import json
from typing import Any


def row(*values: str, width: int = 0, mark: str = "\t", ended: bool = False) -> str:
    fields = [*values, *[""] * (width - len(values))]
    return mark.join(fields) + (mark if ended else "") + "\n"


def consist(**values: str) -> str:
    """A line of RXNCONSO."""
    columns = (
        "RXCUI LAT TS LUI STT SUI ISPREF RXAUI SAUI SCUI SDUI SAB TTY CODE STR SRL SUPPRESS CVF"
    )
    known = {"LAT": "ENG", "SAB": "RXNORM", "SUPPRESS": "N"} | values
    return row(*(known.get(name, "") for name in columns.split()), mark="|", ended=True)


def relate(**values: str) -> str:
    """A line of RXNREL."""
    columns = (
        "RXCUI1 RXAUI1 STYPE1 REL RXCUI2 RXAUI2 STYPE2 RELA RUI SRUI SAB SL DIR RG SUPPRESS CVF"
    )
    known = {"STYPE1": "CUI", "STYPE2": "CUI", "SAB": "RXNORM"} | values
    return row(*(known.get(name, "") for name in columns.split()), mark="|", ended=True)


FULL, SYNONYM, FINDING_SITE = "900000000000003001", "900000000000013009", "363698007"
DESCRIPTION = row(
    *"id effectiveTime active moduleId conceptId languageCode typeId term".split(),
    "caseSignificanceId",
)


def describe(concept: str, kind: str, term: str, active: str = "1", language: str = "en") -> str:
    return row("1", "20260101", active, "9", concept, language, kind, term, "9")


def item(name: str, kind: str = "item", **parts: Any) -> dict[str, Any]:
    """An entity of Wikidata; texts by language."""
    own: dict[str, Any] = {"type": kind, "id": name}
    for part in ("labels", "descriptions"):
        texts = parts.pop(part, {})
        own[part] = {code: {"language": code, "value": text} for code, text in texts.items()}
    return own | parts


def claim(name: str, value: Any, kind: str = "wikibase-entityid", rank: str = "normal") -> Any:
    value = {"entity-type": "item", "id": value} if kind == "wikibase-entityid" else value
    snak = {"snaktype": "value", "property": name, "datavalue": {"value": value, "type": kind}}
    return {"mainsnak": snak, "type": "statement", "id": f"Q1${name}", "rank": rank}


WIKIDATA = [
    item(
        "Q1",
        labels={"de": "Gicht", "en": "gout 😀"},
        descriptions={"en": "a disease", "de": "eine Krankheit"},
        aliases={"en": [{"language": "en", "value": "podagra"}, {"language": "en", "value": "G"}]},
        claims={
            "P31": [claim("P31", "Q2"), claim("P31", "Q3")],
            "P2176": [claim("P2176", "Q3"), claim("P2176", "Q2", rank="deprecated")],
            "P486": [claim("P486", "D1", "string")],
            "P279": [claim("P279", "Q99")],
        },
    ),
    item("Q2", labels={"mul": "disease"}),
    item("Q3", labels={"en": "goutine"}),
    item("P2176", "property", labels={"en": "drug used"}),
    item("Q4", labels={"fr": "rien"}),
]
#: {preset: (files, what is read of them or the folder, the graph)}
PRESETS: dict[str, tuple[dict[str, str], str, dict[str, Any]]] = {
    "apoc": (
        {
            "all.csv": '"_id","_labels","name","definition","_start","_end","_type","since"\n'
            '"0",":Disease:Old","Gout 😀","Of a joint.",,,,\n"1",":Drug","","",,,,\n'
            ',,,,"0","1","TREATED_BY","2026"\n'
        },
        "all.csv",
        {
            "entities": [("0", "Gout 😀", "Disease"), ("1", "1", "Drug")],
            "names": [
                ("0", "Gout 😀", "preferred", "en", "neo4j"),
                ("1", "1", "preferred", "en", "neo4j"),
            ],
            "definitions": [("0", "Of a joint.")],
            "triples": [("0", "TREATED_BY", "1")],
            "source": "CSV of Neo4j's apoc.export.csv.all (columns _id, _labels, _start, _end,"
            " _type): all.csv",
            "licence": "not stated",
            "left_out": {"columns of all.csv that the preset leaves (since)": 1},
        },
    ),
    "drugbank": (
        {
            "drugbank vocabulary.csv": "DrugBank ID,Accession Numbers,Common name,CAS,UNII,"
            "Synonyms,Standard InChI Key\nDB1,BIOD1 | DB1 | BTD1,Goutine 😀,1-1,U,"
            "Goutin | Goutine 😀 | 1|2-goutin,K\n"
        },
        "drugbank vocabulary.csv",
        {
            "entities": [("DB1", "Goutine 😀", "drug")],
            "names": [
                ("DB1", "Goutine 😀", "preferred", "en", "DRUGBANK"),
                ("DB1", "Goutin", "synonym", "en", "DRUGBANK"),
                ("DB1", "1|2-goutin", "synonym", "en", "DRUGBANK"),
            ],
            "alternatives": {"DB1": ["BIOD1", "BTD1"]},
            "source": "DrugBank's open vocabulary (drugbank vocabulary.csv): drugbank"
            " vocabulary.csv",
            "licence": "CC0 1.0",
            "left_out": {
                "columns of drugbank vocabulary.csv that the preset leaves (CAS, UNII, Standard"
                " InChI Key)": 3
            },
        },
    ),
    "hgnc": (
        {
            "hgnc_complete_set.txt": "hgnc_id\tsymbol\tname\tlocus_group\tstatus\talias_symbol\t"
            "alias_name\tprev_symbol\tprev_name\n"
            'HGNC:1\tGOT1\tgout gene 1\tprotein-coding gene\tApproved\t"G1|GT-1"\t'
            '"gout ""one"""\tG0\t"old gout|older gout"\n'
            "HGNC:2\tGOT2\tgone\twithdrawn\tEntry Withdrawn\t\t\t\t\n"
        },
        "hgnc_complete_set.txt",
        {
            "entities": [("HGNC:1", "GOT1", "protein-coding gene")],
            "names": [
                ("HGNC:1", "GOT1", "preferred", "en", "HGNC"),
                ("HGNC:1", "gout gene 1", "exact", "en", "HGNC"),
                ("HGNC:1", "G1", "symbol", "en", "HGNC"),
                ("HGNC:1", "GT-1", "symbol", "en", "HGNC"),
                ("HGNC:1", 'gout "one"', "synonym", "en", "HGNC"),
                ("HGNC:1", "G0", "obsolete", "en", "HGNC"),
                ("HGNC:1", "old gout", "obsolete", "en", "HGNC"),
                ("HGNC:1", "older gout", "obsolete", "en", "HGNC"),
            ],
            "source": "HGNC's complete set (hgnc_complete_set.txt): hgnc_complete_set.txt",
            "licence": "not stated",
            "left_out": {
                "rows of hgnc_complete_set.txt that the preset's conditions leave out": 1,
            },
        },
    ),
    "kgx": (
        {
            "nodes.tsv": "id\tcategory\tname\tdescription\tsynonym\n"
            "X:1\tbiolink:Disease|biolink:Thing\tGout 😀\tOf a joint.\tPodagra|Toe\n"
            "X:2\tDrug\t\t\t\nX:3\tbiolink:Disease\tgout\t\t\n",
            "edges.tsv": "id\tsubject\tpredicate\tobject\n1\tX:2\tbiolink:treats\tX:1\n"
            "2\tX:1\tbiolink:same_as\tX:3\n3\tX:2\ttreats\tX:9\n",
        },
        "",
        {
            "entities": [
                ("X:1", "Gout 😀", "Disease"),
                ("X:2", "X:2", "Drug"),
                ("X:3", "gout", "Disease"),
            ],
            "names": [
                ("X:1", "Gout 😀", "preferred", "en", "KGX"),
                ("X:1", "Podagra", "synonym", "en", "KGX"),
                ("X:1", "Toe", "synonym", "en", "KGX"),
                ("X:2", "X:2", "preferred", "en", "KGX"),
                ("X:3", "gout", "preferred", "en", "KGX"),
            ],
            "definitions": [("X:1", "Of a joint.")],
            "triples": [("X:2", "treats", "X:1")],
            "equivalences": [("X:1", "same_as", "X:3")],
            "source": "KGX's TSV files or JSON lines (nodes.tsv, edges.tsv): kgx",
            "licence": "not stated",
            "left_out": {
                "columns of edges.tsv that the preset leaves (id)": 1,
                "rows of triples with an id that no entity has": 1,
            },
        },
    ),
    "loinc": (
        {
            "Loinc.csv": '"LOINC_NUM","COMPONENT","CLASS","STATUS","CONSUMER_NAME","SHORTNAME",'
            '"LONG_COMMON_NAME","RELATEDNAMES2","DefinitionDescription","DisplayName"\n'
            '"1-1","Urate","CHEM","ACTIVE","Uric acid","Urate SerPl","Urate [Mass] in Serum",'
            '"UA; Serum; UA","Of gout.","Urate (S)"\n'
            '"2-2","Toe","CLIN","ACTIVE","","","","","",""\n'
            '"3-3","Old","CHEM","DEPRECATED","","","Old one","","",""\n'
        },
        "Loinc.csv",
        {
            "entities": [("1-1", "Urate [Mass] in Serum", "CHEM"), ("2-2", "Toe", "CLIN")],
            "names": [
                ("1-1", "Urate [Mass] in Serum", "preferred", "en", "LOINC"),
                ("1-1", "Urate SerPl", "abbreviation", "en", "LOINC"),
                ("1-1", "Urate (S)", "synonym", "en", "LOINC"),
                ("1-1", "Uric acid", "layperson", "en", "LOINC"),
                ("1-1", "UA", "related", "en", "LOINC"),
                ("1-1", "Serum", "related", "en", "LOINC"),
                ("2-2", "Toe", "preferred", "en", "LOINC"),
            ],
            "definitions": [("1-1", "Of gout.")],
            "source": "LOINC's table (LoincTable/Loinc.csv): Loinc.csv",
            "licence": "LOINC licence, https://loinc.org/license",
            "left_out": {
                "rows of Loinc.csv that the preset's conditions leave out": 1,
            },
        },
    ),
    "ncbigene": (
        {
            "Fake.gene_info": "#tax_id\tGeneID\tSymbol\tSynonyms\tdescription\ttype_of_gene\t"
            "Full_name_from_nomenclature_authority\tOther_designations\n"
            '9606\t10\tGOT1\tG1|GT-1\t"gout" gene 1\tprotein-coding\tgout gene one\tgout|toe 1\n'
            "9606\t11\tNEWENTRY\t-\t-\tother\t-\t-\n9606\t12\tGOT2\t-\t-\tncRNA\t-\t-\n"
        },
        "Fake.gene_info",
        {
            "entities": [("10", "GOT1", "protein-coding"), ("12", "GOT2", "ncRNA")],
            "names": [
                ("10", "GOT1", "preferred", "en", "NCBIGene"),
                ("10", '"gout" gene 1', "exact", "en", "NCBIGene"),
                ("10", "gout gene one", "exact", "en", "NCBIGene"),
                ("10", "G1", "symbol", "en", "NCBIGene"),
                ("10", "GT-1", "symbol", "en", "NCBIGene"),
                ("10", "gout", "synonym", "en", "NCBIGene"),
                ("10", "toe 1", "synonym", "en", "NCBIGene"),
                ("12", "GOT2", "preferred", "en", "NCBIGene"),
            ],
            "source": "NCBI Gene's gene_info (Homo_sapiens.gene_info.gz): Fake.gene_info",
            "licence": "public domain",
            "left_out": {"columns of Fake.gene_info that the preset leaves (tax_id)": 1},
        },
    ),
    "neo4j": (
        {
            "diseases.csv": "key:ID(Disease),name:string,synonyms:string[],definition,:LABEL\n"
            "D1,Gout 😀,Podagra;Toe,Of a joint.,Disease;Old\n",
            "drugs.csv": ":ID(Drug),name,:LABEL,dose:int\nR1,Goutine,Drug,5\n",
            "edges.csv": ":START_ID(Drug),:END_ID(Disease),:TYPE\nR1,D1,TREATS\n",
        },
        "",
        {
            "entities": [("D1", "Gout 😀", "Disease"), ("R1", "Goutine", "Drug")],
            "names": [
                ("D1", "Gout 😀", "preferred", "en", "neo4j"),
                ("D1", "Podagra", "synonym", "en", "neo4j"),
                ("D1", "Toe", "synonym", "en", "neo4j"),
                ("R1", "Goutine", "preferred", "en", "neo4j"),
            ],
            "definitions": [("D1", "Of a joint.")],
            "triples": [("R1", "TREATS", "D1")],
            "source": "CSV of neo4j-admin import (columns :ID, name, :LABEL and :START_ID,"
            " :END_ID, :TYPE): neo4j",
            "licence": "not stated",
            "left_out": {"columns of drugs.csv that the preset leaves (dose:int)": 1},
        },
    ),
    "rxnorm": (
        {
            "RXNCONSO.RRF": consist(RXCUI="100", TTY="IN", STR="goutine")
            + consist(RXCUI="100", TTY="SU", SAB="MTHSPL", STR='"A" GOUTINE')
            + consist(RXCUI="100", TTY="SY", STR="goutin")
            + consist(RXCUI="100", TTY="TMSY", STR="gtn", LAT="SPA")
            + consist(RXCUI="100", TTY="PIN", STR="goutine salt", SUPPRESS="O")
            + consist(RXCUI="200", TTY="SCD", STR="goutine 5 MG")
            + consist(RXCUI="200", TTY="PSN", STR="goutine pill")
            + consist(RXCUI="300", TTY="DP", SAB="MTHSPL", STR="other"),
            "RXNREL.RRF": relate(
                RXCUI1="100", REL="RO", RXCUI2="200", RELA="has_ingredient", SRUI='"7'
            )
            + relate(RXCUI1="200", REL="PAR", RXCUI2="100")
            + relate(RXCUI1="100", REL="RO", RXCUI2="200", RELA="x", SAB="MTHSPL")
            + relate(RXAUI1="7", REL="RO", RXAUI2="8", STYPE1="AUI", STYPE2="AUI"),
        },
        "",
        {
            "entities": [("100", "goutine", "IN"), ("200", "goutine 5 MG", "SCD")],
            "names": [
                ("100", "goutine", "preferred", "en", "RXNORM"),
                ("200", "goutine 5 MG", "preferred", "en", "RXNORM"),
                ("100", '"A" GOUTINE', "synonym", "en", "MTHSPL"),
                ("100", "goutin", "exact", "en", "RXNORM"),
                ("100", "gtn", "exact", "es", "RXNORM"),
                ("200", "goutine pill", "synonym", "en", "RXNORM"),
            ],
            "triples": [("200", "has_ingredient", "100"), ("100", "PAR", "200")],
            "source": "RxNorm's names (RXNCONSO.RRF, and RXNREL.RRF): rxnorm",
            "licence": "UMLS licence; names of SAB=RXNORM are in the public domain",
            "left_out": {
                "rows of RXNCONSO.RRF that the preset's conditions leave out": 1,
                "rows of RXNREL.RRF that the preset's conditions leave out": 2,
                "rows of names with an id that no entity has": 1,
                "columns of RXNCONSO.RRF that the preset leaves (TS, LUI, STT, SUI, ISPREF, RXAUI,"
                " SAUI, SCUI, SDUI, CODE, SRL, CVF)": 12,
                "columns of RXNREL.RRF that the preset leaves (RXAUI1, RXAUI2, RUI, SRUI, SL, DIR,"
                " RG, SUPPRESS, CVF)": 9,
            },
        },
    ),
    "snomed": (
        {
            "sct2_Concept_Snapshot_INT_20260101.txt": row(
                *"id effectiveTime active moduleId definitionStatusId".split()
            )
            + row("1", "20260101", "1", "9", "9")
            + row("4", "20260101", "0", '"9', "9"),  # RF2 quotes nothing
            "sct2_Description_Snapshot-en_INT_20260101.txt": DESCRIPTION
            + describe("1", SYNONYM, "Podagra 😀")
            + describe("1", FULL, "Gout (acute) (disorder)")
            + describe("1", SYNONYM, "Gout (acute)")
            + describe("1", SYNONYM, "Old", "0")
            + describe("2", FULL, "Joint (body structure)")
            + describe(FINDING_SITE, FULL, "Finding site (attribute)")
            + describe("3", FULL, "Root")
            + describe("4", FULL, "Gone (disorder)")
            + describe("4", SYNONYM, "Gone"),
            "sct2_TextDefinition_Snapshot-en_INT_20260101.txt": DESCRIPTION
            + describe("1", "900000000000550004", '"Joint", in short.'),
            "sct2_Relationship_Snapshot_INT_20260101.txt": row(
                *"id effectiveTime active moduleId sourceId destinationId relationshipGroup typeId"
                " characteristicTypeId modifierId".split()
            )
            + row("1", "20260101", "1", '"9', "1", "3", "0", "116680003", "9", "9")
            + row("2", "20260101", "1", "9", "1", "2", "1", FINDING_SITE, "9", "9")
            + row("3", "20260101", "0", "9", "2", "3", "0", "116680003", "9", "9")
            + row("4", "20260101", "1", "9", "2", "3", "0", "77", "9", "9"),
        },
        "",
        {
            "entities": [
                ("1", "Gout (acute)", "disorder"),
                ("2", "Joint", "body structure"),
                (FINDING_SITE, "Finding site", "attribute"),
                ("3", "Root", ""),
            ],
            "names": [
                ("1", "Gout (acute)", "preferred", "en", "SNOMEDCT"),
                ("2", "Joint", "preferred", "en", "SNOMEDCT"),
                (FINDING_SITE, "Finding site", "preferred", "en", "SNOMEDCT"),
                ("3", "Root", "preferred", "en", "SNOMEDCT"),
                ("1", "Podagra 😀", "synonym", "en", "SNOMEDCT"),
            ],
            "definitions": [("1", '"Joint", in short.')],
            "triples": [("1", "is_a", "3"), ("1", "Finding_site", "2"), ("2", "77", "3")],
            "source": "SNOMED CT in RF2 (the folder Snapshot/Terminology): snomed",
            "licence": "SNOMED CT affiliate licence",
            "left_out": {
                "rows of sct2_Description_Snapshot-en_INT_20260101.txt that the"
                " preset's conditions leave out": 1,
                "rows of sct2_Relationship_Snapshot_INT_20260101.txt that the preset's conditions"
                " leave out": 1,
                "entities that are no longer active": 1,
                "rows of names with an id that no entity has": 1,
                "columns of sct2_Concept_Snapshot_INT_20260101.txt that the preset leaves"
                " (effectiveTime, moduleId, definitionStatusId)": 3,
                "columns of sct2_Description_Snapshot-en_INT_20260101.txt that the preset leaves"
                " (id, effectiveTime, moduleId, caseSignificanceId)": 4,
                "columns of sct2_TextDefinition_Snapshot-en_INT_20260101.txt that the preset leaves"
                " (id, effectiveTime, moduleId, languageCode, typeId, caseSignificanceId)": 6,
                "columns of sct2_Relationship_Snapshot_INT_20260101.txt that the preset leaves"
                " (id, effectiveTime, moduleId, relationshipGroup, characteristicTypeId,"
                " modifierId)": 6,
            },
        },
    ),
    "sssom": (
        {
            "x.sssom.tsv": '#curie_map:\n#  X: "http://example.org/"\n'
            + row(*"subject_id subject_label predicate_id predicate_modifier object_id".split())[
                :-1
            ]
            + "\tobject_label\n"
            + row("X:1", "Gout 😀", "skos:exactMatch", "", "Y:1", "Podagra")
            + row("X:1", "gout", "skos:broadMatch", "", "Y:2", "")
            + row("X:1", "Gout 😀", "skos:exactMatch", "Not", "Y:3", "Toe")
            + row("X:2", "Joint", "owl:equivalentClass", "", "Y:1", "Podagra")
        },
        "x.sssom.tsv",
        {
            "entities": [
                ("X:1", "Gout 😀", "X"),
                ("Y:1", "Podagra", "Y"),
                ("Y:2", "Y:2", "Y"),
                ("X:2", "Joint", "X"),
            ],
            "names": [
                ("X:1", "Gout 😀", "preferred", "en", "SSSOM"),
                ("Y:1", "Podagra", "preferred", "en", "SSSOM"),
                ("X:1", "gout", "synonym", "en", "SSSOM"),
                ("Y:2", "Y:2", "preferred", "en", "SSSOM"),
                ("X:2", "Joint", "preferred", "en", "SSSOM"),
            ],
            "triples": [("X:1", "broadMatch", "Y:2")],
            "equivalences": [("X:1", "exactMatch", "Y:1"), ("X:2", "equivalentClass", "Y:1")],
            "source": "mappings in SSSOM (x.sssom.tsv): x.sssom.tsv",
            "licence": "not stated",
            "left_out": {
                "rows of x.sssom.tsv that the preset's conditions leave out": 1,
                "further rows of an entity, whose names are synonyms": 2,
            },
        },
    ),
    "wikidata": (
        {"items.json": "[\n" + ",\n".join(map(json.dumps, WIKIDATA)) + "\n]"},
        "items.json",
        {
            "entities": [("Q1", "gout 😀", "Q2"), ("Q2", "disease", ""), ("Q3", "goutine", "")],
            "names": [
                ("Q1", "gout 😀", "preferred", "en", "Wikidata"),
                ("Q2", "disease", "preferred", "en", "Wikidata"),
                ("Q3", "goutine", "preferred", "en", "Wikidata"),
                ("Q1", "Gicht", "synonym", "de", "Wikidata"),
                ("Q1", "podagra", "synonym", "en", "Wikidata"),
                ("Q1", "G", "synonym", "en", "Wikidata"),
            ],
            "definitions": [("Q1", "a disease")],
            "triples": [
                ("Q1", "instance_of", "Q2"),
                ("Q1", "instance_of", "Q3"),
                ("Q1", "P2176", "Q3"),
            ],
            "source": "Wikidata's entities in JSON, one a line or as a list (items.jsonl,"
            " all.json.gz): items.json",
            "licence": "CC0 1.0",
            "left_out": {
                # Q4 has no English label
                "rows of entities whose name is empty": 1,
                # labels of the property and of Q4
                "rows of names with an id that no entity has": 2,
                "rows of triples with an id that no entity has": 1,
            },
        },
    ),
}
