"""Golden examples of UMLS, MeSH, MEDIC and HPO: a few lines in the publisher's layout, and every
row of the graph that they mean."""

from __future__ import annotations

from pathlib import Path

from kg.build.sources import hpo, medic, mesh, umls
from tests.golden.graphs import list_parts

RRF = {
    # CUI LAT TS LUI STT SUI ISPREF AUI SAUI SCUI SDUI SAB TTY CODE STR SRL SUPPRESS CVF
    "MRCONSO": """\
C0000002|ENG|S|L0000003|PF|S0000003|Y|A3||||MSH|ET|D1|coronary|0|N||
C0000002|ENG|P|L0000001|PF|S0000001|Y|A1||||MSH|MH|D1|Heart attack|0|N||
C0000002|ENG|S|L0000004|VO|S0000004|Y|A4||||NCI|AB|C1|MI|0|N||
C0000002|SPA|P|L0000005|PF|S0000005|Y|A5||||MSHSPA|MH|D1|Infarto|3|N||
C0000002|ENG|P|L0000001|PF|S0000001|N|A6||||SNOMEDCT_US|PT|1|Heart attack|9|N||
C0000002|FRE|P|L0000006|PF|S0000006|Y|A7||||MSHFRE|MH|D1|Infarctus|3|N||
C0000001|ENG|P|L0000007|PF|S0000007|Y|A8||||MSH|MH|D2|Gout 😀 – mild|0|N||
C0000001|ENG|S|L0000008|PF|S0000008|Y|A9||||SNOMEDCT_US|OAP|2|Old gout|9|O||
C0000003|ENG|P|L0000009|PF|S0000009|Y|A0||||MSH|MH|D3|Hidden|0|Y||
C0000004|ENG|S|L0000011|VO|S0000011|Y|B1||||MSH|ET|D4|toe, ISPREF alone|0|N||
C0000004|ENG|S|L0000011|PF|S0000012|N|B2||||MSH|ET|D4|toe, STT alone|0|N||
C0000004|ENG|S|L0000011|PF|S0000013|Y|B3||||MSH|ET|D4|toe, STT and ISPREF|0|N||
C0000004|ENG|P|L0000012|VO|S0000014|N|B4||||MSH|ET|D4|toe, TS alone|0|N||
""",
    # CUI TUI STN STY ATUI CVF
    "MRSTY": """\
C0000002|T047|B2.2.1.2.1|Disease or Syndrome|AT1||
C0000002|T033|A2.2|Finding|AT2||
C0000003|T047|B2.2.1.2.1|Disease or Syndrome|AT3||
""",
    # CUI1 AUI1 STYPE1 REL CUI2 AUI2 STYPE2 RELA RUI SRUI SAB SL RG DIR SUPPRESS CVF
    "MRREL": """\
C0000001|A8|AUI|RO|C0000002|A1|AUI|causes|R1||MSH|MSH|||N||
C0000001|A8|AUI|RO|C0000002|A1|AUI|causes|R2||NCI|NCI|||N||
C0000002|A1|AUI|RO|C0000001|A8|AUI|caused_by|R3||MSH|MSH|||N||
C0000001|A8|AUI|PAR|C0000002|A1|AUI||R4||MSH|MSH|||N||
C0000001|A8|AUI|RO|C0000001|A8|AUI|same_as|R5||MSH|MSH|||N||
C0000001|A8|AUI|RO|C0000003|A0|AUI|causes|R6||MSH|MSH|||N||
C0000001|A8|AUI|RO|C0000002|A1|AUI|treats|R7||MSH|MSH|||E||
""",
    # CUI AUI ATUI SATUI SAB DEF SUPPRESS CVF
    "MRDEF": """\
C0000002|A1|AT4||MSH|A heart, attacked.|N||
C0000002|A1|AT5||NCI|A heart, attacked.|N||
C0000002|A1|AT6||NCI|Suppressed.|O||
C0000002|A7|AT7||MSHFRE|Un coeur.|N||
C0000003|A0|AT8||MSH|Hidden.|N||
""",
    # CUI1 VER REL RELA MAPREASON CUI2 MAPIN
    "MRCUI": """\
C0000009|2000AA|SY|||C0000008|Y|
C0000008|2001AA|SY|||C0000002|Y|
C0000007|1999AA|RB|||C0000002|Y|
C0000006|1998AA|DEL|||||
""",
}


def test_umls(tmp_path: Path) -> None:
    """Names by concept, in the order of language, TS, STT and ISPREF. In MRREL the second concept
    has the relation to the first."""
    for name, content in RRF.items():
        (tmp_path / f"{name}.RRF").write_text(content)
    (tmp_path / "release.dat").write_text("umls.release.name=2026AA\n")
    graph = umls.read(tmp_path, languages=("ENG", "SPA"), suppress=("N", "O"))
    assert list_parts(graph) == {
        "entities": [
            ("C0000001", "Gout 😀 – mild", ""),
            ("C0000002", "Heart attack", "Finding|Disease or Syndrome"),
            ("C0000004", "toe, TS alone", ""),
        ],
        "names": [
            ("C0000001", "Gout 😀 – mild", "preferred", "en", "MSH"),
            ("C0000001", "Old gout", "obsolete", "en", "SNOMEDCT_US"),
            ("C0000002", "Heart attack", "preferred", "en", "MSH"),
            ("C0000002", "coronary", "synonym", "en", "MSH"),
            ("C0000002", "MI", "abbreviation", "en", "NCI"),
            ("C0000002", "Infarto", "synonym", "es", "MSHSPA"),
            ("C0000004", "toe, TS alone", "preferred", "en", "MSH"),
            ("C0000004", "toe, STT and ISPREF", "synonym", "en", "MSH"),
            ("C0000004", "toe, STT alone", "synonym", "en", "MSH"),
            ("C0000004", "toe, ISPREF alone", "synonym", "en", "MSH"),
        ],
        "definitions": [("C0000002", "A heart, attacked."), ("C0000002", "Suppressed.")],
        "triples": [("C0000001", "caused_by", "C0000002"), ("C0000002", "causes", "C0000001")],
        "source": "UMLS Metathesaurus",
        "version": "2026AA",
        "licence": "UMLS Metathesaurus License: not to be passed on",
        "alternatives": {"C0000002": ["C0000008", "C0000009"]},
        "left_out": {
            # the string of another source, the French one and the one of SUPPRESS=Y
            "MRCONSO rows by filter or repeated": 3,
            "MRREL rows by source or suppression": 1,
            "MRREL rows without RELA or by relation": 1,
            "MRREL rows of concepts left out": 1,
            "MRREL self loops": 1,
            "MRREL repeated": 1,
            "ids of MRCUI that mean no kept concept": 2,
        },
    }


def concept(unique: str, preferred: str, terms: str, more: str = "") -> str:
    names = "".join(f"<Term><String>{term}</String></Term>" for term in terms.split("|"))
    return (
        f'<Concept PreferredConceptYN="{preferred}"><ConceptUI>{unique}</ConceptUI>{more}'
        f"<TermList>{names}</TermList></Concept>"
    )


def relate(name: str, one: str, two: str) -> str:
    return (
        f'<ConceptRelation RelationName="{name}"><Concept1UI>{one}</Concept1UI>'
        f"<Concept2UI>{two}</Concept2UI></ConceptRelation>"
    )


RELATIONS = relate("NRW", "M1", "M2") + relate("BRD", "M1", "M3") + relate("REL", "M1", "M4")
DESCRIPTORS = f"""<?xml version="1.0"?><DescriptorRecordSet LanguageCode="eng">
<DescriptorRecord><DescriptorUI>D1</DescriptorUI>
<DescriptorName><String>Gout 😀 –
 mild</String></DescriptorName>
<TreeNumberList><TreeNumber>C05</TreeNumber></TreeNumberList><ConceptList>
{
    concept(
        "M1",
        "Y",
        "Gout 😀 – mild|Podagra",
        f'''<ScopeNote>  Of a
 joint. </ScopeNote><ConceptRelationList>{RELATIONS}</ConceptRelationList>''',
    )
}
{concept("M2", "N", "Toe Gout")}{concept("M3", "N", "Arthritis|Podagra")}
{concept("M4", "N", "Tophus")}{concept("M5", "N", "Alone")}</ConceptList></DescriptorRecord>
<DescriptorRecord><DescriptorUI>D2</DescriptorUI>
<DescriptorName><String>Gout of toes</String></DescriptorName>
<TreeNumberList><TreeNumber>C05.1</TreeNumber><TreeNumber>C23.1.2</TreeNumber></TreeNumberList>
</DescriptorRecord></DescriptorRecordSet>
"""
SUPPLEMENT = """<SupplementalRecordSet><SupplementalRecord>
<SupplementalRecordUI>C1</SupplementalRecordUI>
<SupplementalRecordName><String>rare gout</String></SupplementalRecordName><HeadingMappedToList>
<HeadingMappedTo><DescriptorReferredTo><DescriptorUI>*D2</DescriptorUI></DescriptorReferredTo>
</HeadingMappedTo><HeadingMappedTo><DescriptorReferredTo><DescriptorUI>D9</DescriptorUI>
</DescriptorReferredTo></HeadingMappedTo></HeadingMappedToList></SupplementalRecord>
</SupplementalRecordSet>
"""


def test_mesh(tmp_path: Path) -> None:
    """Terms of other concepts by their relation to the preferred one, without one `related`. A
    descriptor is below that of the tree number without its last part."""
    folder = tmp_path / "mesh2026"
    folder.mkdir()
    (folder / "supp2026.xml").write_text(SUPPLEMENT)
    (folder / "desc2026.xml").write_text(DESCRIPTORS)
    assert list_parts(mesh.read(folder)) == {
        "entities": [
            ("D1", "Gout 😀 – mild", "descriptor"),
            ("D2", "Gout of toes", "descriptor"),
            ("C1", "rare gout", "supplementary"),
        ],
        "names": [
            ("D1", "Gout 😀 – mild", "preferred", "en", "MeSH"),
            ("D1", "Podagra", "exact", "en", "MeSH"),
            ("D1", "Toe Gout", "narrow", "en", "MeSH"),
            ("D1", "Arthritis", "broad", "en", "MeSH"),
            ("D1", "Podagra", "broad", "en", "MeSH"),
            ("D1", "Tophus", "related", "en", "MeSH"),
            ("D1", "Alone", "related", "en", "MeSH"),
            ("D2", "Gout of toes", "preferred", "en", "MeSH"),
            ("C1", "rare gout", "preferred", "en", "MeSH"),
        ],
        "definitions": [("D1", "Of a joint.")],
        "triples": [("D2", "is_a", "D1"), ("C1", "mapped_to", "D2")],
        "source": "MeSH",
        "version": "mesh2026",
        "licence": "US National Library of Medicine, public domain",
        "left_out": {"headings mapped to that are not in the files": 1},
    }


def test_mesh_table(tmp_path: Path) -> None:
    """id, label, synonyms: the label among its synonyms is not repeated."""
    path = tmp_path / "mesh.tsv"
    path.write_bytes(
        "D1\tGout 😀 – mild\tPodagra| toe  gout |Gout 😀 – mild\r\n\nC1\trare\t\n".encode()
    )
    graph = list_parts(mesh.read(path))
    assert graph["entities"] == [
        ("D1", "Gout 😀 – mild", "descriptor"),
        ("C1", "rare", "supplementary"),
    ]
    assert graph["names"] == [
        ("D1", "Gout 😀 – mild", "preferred", "en", "MeSH"),
        ("D1", "Podagra", "synonym", "en", "MeSH"),
        ("D1", "toe gout", "synonym", "en", "MeSH"),
        ("C1", "rare", "preferred", "en", "MeSH"),
    ]
    assert graph["version"] == "mesh.tsv" and "triples" not in graph


CTD = """\
# DiseaseName\tDiseaseID\tAltDiseaseIDs\tDefinition\tParentIDs\tTreeNumbers\tParentTreeNumbers\tSynonyms\tSlimMappings
Gout 😀 – mild\tMESH:D1\tDO:DOID:1|OMIM:138900\tOf a  joint.\tMESH:D2|MESH:D9\tC05.1\tC05\tPodagra|Gout\tMetabolic
Joint Diseases\tMESH:D2\t\t\t\tC05\t\t\tMetabolic
Gout, again\tMESH:D1\tOMIM:1\tOther.\tMESH:D1\t\t\tPodagra\t
"""  # noqa: E501


def test_medic(tmp_path: Path) -> None:
    """CTD's table; ids of MeSH and OMIM are bare. Lines of one id are one concept."""
    path = tmp_path / "CTD_diseases.tsv"
    path.write_bytes(CTD.replace("\n", "\r\n").encode())
    graph = {
        "entities": [("D1", "Gout 😀 – mild", "disease"), ("D2", "Joint Diseases", "disease")],
        "names": [
            ("D1", "Gout 😀 – mild", "preferred", "en", "MEDIC"),
            ("D1", "Podagra", "synonym", "en", "MEDIC"),
            ("D1", "Gout", "synonym", "en", "MEDIC"),
            ("D2", "Joint Diseases", "preferred", "en", "MEDIC"),
            ("D1", "Gout, again", "synonym", "en", "MEDIC"),
        ],
        "definitions": [("D1", "Of a joint.")],
        "triples": [("D1", "is_a", "D2")],
        "source": "MEDIC (Comparative Toxicogenomics Database)",
        "version": "CTD_diseases.tsv",
        "licence": "CTD: for research, cite ctdbase.org",
        "alternatives": {"D1": ["DO:DOID:1", "138900", "1"]},
        "left_out": {
            "further lines of a concept (merged)": 1,
            "parents that are not in the file": 1,
        },
    }
    assert list_parts(medic.read(path)) == graph
    path = tmp_path / "medic.txt"  # as BioSyn has it
    path.write_text("D1|DO:DOID:1|OMIM:138900|OMIM:1||Gout 😀 – mild|Podagra|Gout\nD2||Joint\n")
    assert list_parts(medic.read(path)) == {
        "entities": [("D1", "Gout 😀 – mild", "disease"), ("D2", "Joint", "disease")],
        "names": [*graph["names"][:3], ("D2", "Joint", "preferred", "en", "MEDIC")],
        "source": graph["source"],
        "version": "medic.txt",
        "licence": graph["licence"],
        "alternatives": graph["alternatives"],
    }


HPO = {
    "hp.obo": """format-version: 1.2
data-version: hp/2026-01-01

[Term]
id: HP:0000001
name: All

[Term]
id: HP:0000118
name: Phenotypic abnormality
is_a: HP:0000001 ! All

[Term]
id: HP:0000005
name: Mode of Inheritance
is_a: HP:0000001 ! All

[Term]
id: HP:0000002
name: Gout 😀
def: "Of a joint." []
synonym: "Podagra" EXACT layperson []
is_a: HP:0000118 ! Phenotypic abnormality
is_a: HP:0000005 ! Mode of Inheritance

[Term]
id: HP:0000003
name: Old
is_obsolete: true
""",
    "phenotype.hpoa": """#description: "annotations"
#version: 2026-01-01
database_id\tdisease_name\tqualifier\thpo_id\treference\tevidence\tonset\tfrequency\tsex\tmodifier\taspect\tbiocuration
OMIM:1\tSwollen  joint\t\tHP:0000002\tPMID:1\tPCS\t\t1/2\t\t\tP\tme
OMIM:1\tSwollen joint, other\t\tHP:0000005\tPMID:1\tPCS\t\t\t\t\tI\tme
OMIM:1\tSwollen joint\tNOT\tHP:0000118\tPMID:1\tPCS\t\t\t\t\tP\tme
OMIM:1\tSwollen joint\t\tHP:0000003\tPMID:1\tPCS\t\t\t\t\tP\tme
OMIM:1\tSwollen joint\t\tHP:0000002\tPMID:2\tIEA\t\t\t\t\tP\tme
""",
    "genes_to_phenotype.txt": """\
ncbi_gene_id\tgene_symbol\thpo_id\thpo_name\tfrequency\tdisease_id
10\tGOT1\tHP:0000002\tGout 😀\t-\tOMIM:1
11\t-\tHP:0000002\tGout 😀\t-\tORPHA:2
""",
}


def test_hpo(tmp_path: Path) -> None:
    """A term below two branches is a phenotype. A disease that only genes have is named by its
    id, as is a gene without a symbol."""
    for name, content in HPO.items():
        (tmp_path / name).write_text(content)
    assert list_parts(hpo.read(tmp_path)) == {
        "entities": [
            ("HP:0000001", "All", "all"),
            ("HP:0000118", "Phenotypic abnormality", "phenotype"),
            ("HP:0000005", "Mode of Inheritance", "mode of inheritance"),
            ("HP:0000002", "Gout 😀", "phenotype"),
            ("OMIM:1", "Swollen joint", "disease"),
            ("ORPHA:2", "ORPHA:2", "disease"),
            ("NCBIGene:10", "GOT1", "gene"),
            ("NCBIGene:11", "NCBIGene:11", "gene"),
        ],
        "names": [
            ("HP:0000001", "All", "preferred", "en", "HP"),
            ("HP:0000118", "Phenotypic abnormality", "preferred", "en", "HP"),
            ("HP:0000005", "Mode of Inheritance", "preferred", "en", "HP"),
            ("HP:0000002", "Gout 😀", "preferred", "en", "HP"),
            ("HP:0000002", "Podagra", "layperson", "en", "HP"),
            ("OMIM:1", "Swollen joint", "preferred", "en", "OMIM"),
            ("NCBIGene:10", "GOT1", "symbol", "en", "NCBIGene"),
        ],
        "definitions": [("HP:0000002", "Of a joint.")],
        "triples": [
            ("HP:0000118", "is_a", "HP:0000001"),
            ("HP:0000005", "is_a", "HP:0000001"),
            ("HP:0000002", "is_a", "HP:0000118"),
            ("HP:0000002", "is_a", "HP:0000005"),
            ("OMIM:1", "has_phenotype", "HP:0000002"),
            ("OMIM:1", "has_inheritance", "HP:0000005"),
            ("NCBIGene:10", "gene_associated_with_phenotype", "HP:0000002"),
            ("NCBIGene:11", "gene_associated_with_phenotype", "HP:0000002"),
            ("NCBIGene:10", "gene_associated_with_disease", "OMIM:1"),
            ("NCBIGene:11", "gene_associated_with_disease", "ORPHA:2"),
        ],
        "source": "Human Phenotype Ontology",
        "version": "hp/2026-01-01",
        "licence": "not stated in the file",
        "left_out": {
            "obsolete terms": 1,
            "annotations qualified NOT": 1,
            "annotations of unknown terms": 1,
            "symbols `-` of genes that have none": 1,
        },
    }
    assert list(hpo.texts(tmp_path)) == [("HP:0000002", "definition", "Of a joint.")]
