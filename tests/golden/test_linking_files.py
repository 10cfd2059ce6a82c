"""Golden examples of the files of linking tasks: a few lines as each data set has them, and the
whole mentions and dictionaries that they mean."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import openpyxl

from datamodules.linking import SPLITS, Dictionary, Mention, diagnoses, layperson, multilingual
from datamodules.linking import readers as read
from kg.graph import KnowledgeGraph


def write(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode(encoding))
    return path


def list_fields(dictionary: Dictionary) -> dict[str, Any]:
    """Ids with their names, and every other field that is not empty."""
    rows = list(zip(dictionary.ids, dictionary.names, strict=True))
    others = {k: v for k, v in vars(dictionary).items() if k not in ("ids", "names") and v}
    return {"rows": rows} | others


BIOSYN = {
    "test_dictionary.txt": "D1||gout 😀\nD1||podagra\nD2|600001||heart attack\nD1||podagra\n"
    "D3+D4||toe\n",
    "processed_test/7.concept": "7||0|4||Disease||gout||D1\r\n7||8|20||CompositeMention||"
    "toe|finger gout||D1|D3\n7||21|23||Disease||no||-1\n",
    "processed_test/7.txt": "ignored",
    "processed_test/10.concept": "10||5|9||Disease||gout+toe||OMIM:600001+D2\n",
    "processed_dev/7.concept": "7||0|4||Disease||gout||D9\n",
}


def test_biosyn(tmp_path: Path) -> None:
    """NCBI-EL, BC5CDR-disease-EL. Files in the order of their names, 10 before 7; several ids of a
    name are a concept of their own, whose parts are right too. Places only where the text is
    known."""
    place = tmp_path / "x.tar.gz"
    with tarfile.open(place, "w:gz") as archive:
        for name, content in BIOSYN.items():
            info = tarfile.TarInfo(f"./ncbi/{name}")
            info.size = len(content.encode())
            archive.addfile(info, io.BytesIO(content.encode()))
    found = Counter[str]()
    assert list_fields(read.biosyn_dictionary(place, "test_dictionary.txt", found)) == {
        "rows": [
            ("D1", "gout 😀"),
            ("D1", "podagra"),
            ("D2|600001", "heart attack"),
            ("D3+D4", "toe"),
        ],
        "alternatives": {"D2|600001": ["D2", "600001"], "D3+D4": ["D3", "D4"]},
    }
    texts = {"7": "Gout or toes of gout"}  # 20 characters
    assert read.biosyn_mentions(place, "processed_test", texts, found) == [
        Mention(
            "10:1", "10", None, None, "gout+toe", ["gout", "toe"], [["600001"], ["D2"]], "Disease"
        ),
        Mention("7:1", "7", 0, 4, "gout", ["gout"], [["D1"]], "Disease"),
        Mention(
            "7:2",
            "7",
            8,
            20,
            "toe|finger gout",
            ["toe", "finger gout"],
            [["D1"], ["D3"]],
            "CompositeMention",
        ),
    ]
    assert found == {read.DUPLICATE_ROWS: 1, read.NO_ID: 1}


PUBTATOR = """\
7|t|Gout 😀
7|a|toe or no pain
7\t0\t4\tGout\tSpecificDisease\tD1
7\t7\t10\ttoe\tPart\tD2
7\t14\t16\tno\tSpecificDisease\t-1
7\t17\t21\tpain\tModifier\tOMIM:5|MESH:D3,D3

8|t|None
8|a|

7|t|Gout 😀
7|a|toe or no pain
7\t0\t4\tGout\tSpecificDisease\t+
"""


def test_pubtator(tmp_path: Path) -> None:
    """BC5CDR-EL, NCBI-EL:medic, MedMentions-EL: every concept of a mention, ids bare; a document
    that occurs twice counts again."""
    path, found = write(tmp_path / "x.txt", PUBTATOR), Counter[str]()
    gout = Mention("7:3", "7", 0, 4, "Gout", ["Gout"], [["D1"]], "SpecificDisease")
    toe = Mention("7:4", "7", 7, 10, "toe", ["toe"], [["D2"]], "Part")
    pain = Mention("7:6", "7", 17, 21, "pain", ["pain"], [["5"], ["D3"]], "Modifier")
    assert read.pubtator_mentions(path, (), found) == read.PubTator(
        [gout, toe, pain],
        {"7": "Gout 😀\ntoe or no pain", "8": "None\n"},
        {"7": [(14, 16), (0, 4)]},
    )
    assert +found == {read.NO_ID: 2, read.TWICE: 1}
    found.clear()
    assert read.pubtator_mentions(path, ("Part", "Modifier"), found).mentions == [toe, pain]
    assert +found == {read.OTHER_TYPE: 3, read.TWICE: 1}


def test_cometa(tmp_path: Path) -> None:
    """Quotation marks are characters; a term that its example lacks has no place."""
    head = "ID\tTerm\tGeneral SNOMED Label\tGeneral SNOMED ID\tSpecific SNOMED Label\t"
    head += "Specific SNOMED ID\tExample\tSubreddit\n"
    rows = '5\t sad "toe"\tToe pain\t11\tPain of toe\t12\tmy 😀 sad "toe" and sad "toe"\tr/x\r\n'
    rows += "6\tgout\tGout\t13\tGout\t13\tno word\tr/y\n"
    path, texts = write(tmp_path / "train.csv", head + rows), dict[str, str]()
    found = Counter[str]()
    one = Mention("2", "train:5", 5, 14, 'sad "toe"', ['sad "toe"'], [["11"]], "r/x")
    two = Mention("3", "train:6", None, None, "gout", ["gout"], [["13"]], "r/y")
    expected = [read.CometaRow(one, "Toe pain"), read.CometaRow(two, "Gout")]
    assert read.cometa(path, texts, found) == expected
    assert texts == {"train:5": 'my 😀 sad "toe" and sad "toe"'}
    assert found == {"terms that their example sentence lacks: no context": 1}
    labels = [(row.mention.gold[0][0], row.label) for row in expected]
    assert list_fields(read.terms_dictionary([*labels, labels[0]], "x")) == {
        "rows": [("11", "Toe pain"), ("13", "Gout")]
    }


def test_phrases(tmp_path: Path) -> None:
    """AAP-EL and TwADR-L-EL: latin-1."""
    path = write(
        tmp_path / "x.txt", "11\tToe pain\tmy toé\r\n\n13 \tGout\t gout attack\n", "latin-1"
    )
    assert read.phrases(path) == [
        read.Phrase(Mention("1", "1", None, None, "my toé", ["my toé"], [["11"]], ""), "Toe pain"),
        read.Phrase(
            Mention("3", "3", None, None, "gout attack", ["gout attack"], [["13"]], ""), "Gout"
        ),
    ]


def test_dictionaries(tmp_path: Path) -> None:
    """MEDIC of 2012, MeSH's table, and a graph."""
    path, found = (
        write(tmp_path / "medic.txt", "MESH:D1|OMIM:5||Gout 😀|Podagra|Podagra\n"),
        Counter(),
    )
    assert list_fields(read.medic(path, found)) == {
        "rows": [("D1", "Gout 😀"), ("D1", "Podagra")],
        "alternatives": {"D1": ["5"]},
    }
    assert found == {read.DUPLICATE_ROWS: 1}
    path = write(tmp_path / "mesh.tsv", "MESH:D1\tGout\tPodagra|toe 😀\nD2\tToe\t\n")
    assert list_fields(read.mesh(path)) == {
        "rows": [("D1", "Gout"), ("D1", "Podagra"), ("D1", "toe 😀"), ("D2", "Toe")]
    }
    graph = KnowledgeGraph.from_rows(
        {
            "entities": [("MESH:D1", "Gout", "disease"), ("D2", "Joint disease", "")],
            "names": [
                ("MESH:D1", "podagra", "synonym", "en", "x"),
                ("MESH:D1", "Gout", "preferred", "en", "x"),
                ("D2", "Joint disease", "preferred", "en", "x"),
                ("D2", "关节病", "synonym", "zh", "x"),
            ],
            "definitions": [("MESH:D1", "First."), ("MESH:D1", "Second.")],
            "triples": [("MESH:D1", "is_a", "D2"), ("D2", "near", "MESH:D1")],
        },
        {"alternatives": {"MESH:D1": ["OMIM:5"]}},
    )
    graph.save(tmp_path / "graph")
    expected = {
        "rows": [("D1", "Gout"), ("D1", "podagra"), ("D2", "Joint disease")],
        "alternatives": {"D1": ["5"]},
        "broader": {"D1": ["D2"]},
        "types": {"D1": "disease"},
        "definitions": {"D1": "First."},
    }
    assert list_fields(read.graph_dictionary(tmp_path / "graph")) == expected
    expected["rows"] = [*expected["rows"], ("D2", "关节病")]
    assert list_fields(read.graph_dictionary(tmp_path / "graph", None)) == expected


def test_chip_cdn(tmp_path: Path) -> None:
    """A name of two codes is the first's. A name that ICD-10 lacks is its own id; a name that is
    given twice counts once."""
    book = openpyxl.Workbook()
    rows = [("A01", "痛风"), ("A02 ", '"足痛"'), ("A03", "痛风"), ("A04", "头痛😀")]
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "icd.xlsx")
    found = Counter[str]()
    icd = diagnoses.read_icd(tmp_path / "icd.xlsx", found)
    assert list_fields(icd) == {
        "rows": [("A01", "痛风"), ("A02", "足痛"), ("A04", "头痛😀")],
        "alternatives": {"A01": ["A03"]},
    }
    items = [
        {"text": "左足痛，痛风伴头痛", "normalized_result": '足痛##"痛风"##足痛##无此病'},
        {"text": "?", "normalized_result": ""},
        {"text": ' "痛风😀" ', "normalized_result": "头痛😀"},
    ]
    path = write(tmp_path / "CHIP-CDN_train.json", json.dumps(items))
    parts = ["左足痛", "痛风", "头痛"]
    gold = [["A02"], ["A01"], ["无此病"]]
    assert diagnoses.read_diagnoses(path, icd, found) == [
        Mention("CHIP-CDN_train:0", "", None, None, "左足痛，痛风伴头痛", parts, gold, ""),
        Mention("CHIP-CDN_train:2", "", None, None, "痛风😀", ["痛风😀"], [["A04"]], ""),
    ]
    assert found == {diagnoses.SHARED_NAMES: 1, diagnoses.WITHOUT_TEXT: 1}


def test_xl_bel(tmp_path: Path) -> None:
    """The first mark is the mention's; others are no characters of the text."""
    path = write(
        tmp_path / "xlbel_zh.txt",
        "C0000001||痛风\r\nC0000002|CN12||Toe 😀||a <tgt>Toe 😀</tgt> is a <tgt>Toe</tgt>\n"
        "C0000003||x||no mark\n",
    )
    texts, found = dict[str, str](), Counter[str]()
    concepts = ["C0000002", "CN12"]
    assert multilingual.read_xl_bel(path, texts, found) == [
        Mention("1", "", None, None, "痛风", ["痛风"], [["C0000001"]], ""),
        Mention("2", "xlbel_zh:2", 2, 7, "Toe 😀", ["Toe 😀"], [concepts], ""),
        Mention("3", "", None, None, "x", ["x"], [["C0000003"]], ""),
    ]
    assert texts == {"xlbel_zh:2": "a Toe 😀 is a Toe"}
    assert +found == {multilingual.NO_CUI: 1, multilingual.WITHOUT_MARK: 1}


MANTRA = """<?xml version="1.0" encoding="UTF-8"?>
<Corpus docType="Medline" lang="en"><document id="d1"><unit id="d1.u1">
<text>Gout 😀 &amp; mild</text>
<e id="1" src="x" cui="C0000001" type="T047" grp="DISO" offset="0" len="4">Gout</e>
<e id="2" src="x" cui="C0000003" type="T080" grp="CONC" offset="9" len="4">mild</e>
<e id="3" src="x" cui="C0000002" type="T047" grp="LIVB" offset="0" len="4">Gout</e>
<e id="4" src="x" cui="C0000001" type="T047" grp="DISO" offset="0" len="4">Gout</e>
</unit><unit id="d1.u2"><text>None</text></unit></document></Corpus>
"""


def test_mantra(tmp_path: Path) -> None:
    """A place of two concepts is one mention, either of which is right; its kind is the first's."""
    path, found = write(tmp_path / "Medline_en.xml", MANTRA), Counter[str]()
    gout = Mention("d1.u1:0-4", "d1.u1", 0, 4, "Gout", ["Gout"], [["C0000001", "C0000002"]], "DISO")
    mild = Mention("d1.u1:9-13", "d1.u1", 9, 13, "mild", ["mild"], [["C0000003"]], "CONC")
    texts = {"d1.u1": "Gout 😀 & mild", "d1.u2": "None"}
    assert multilingual.read_mantra(path, found) == read.PubTator([gout, mild], texts, {})
    assert found == {"repeated annotations": 1}
    found.clear()
    files = ("Medline_en.xml", "EMEA_en.xml")
    mentions, texts, places = multilingual.read_mantra_files(tmp_path, files, found)
    assert mentions == [
        gout._replace(id="Medline_en:d1.u1:0-4", document="Medline_en:d1.u1"),
        mild._replace(id="Medline_en:d1.u1:9-13", document="Medline_en:d1.u1"),
    ]
    assert texts == {"Medline_en:d1.u1": "Gout 😀 & mild", "Medline_en:d1.u2": "None"}
    assert places == {"Medline_en:d1.u1": [], "Medline_en:d1.u2": []}
    assert found == {"repeated annotations": 1, "files that are not there: EMEA_en.xml": 1}


OBO = """format-version: 1.2

[Term]
id: HP:0000001
name: All

[Term]
id: HP:0000118
name: Phenotypic abnormality
is_a: HP:0000001 ! All

[Term]
id: HP:0000002
name: Gout
def: "Of a joint." []
synonym: "Swollen toe" EXACT layperson []
synonym: "Toe, swollen!" EXACT layperson []
synonym: "GOUT" EXACT layperson []
synonym: "Podagra" EXACT []
is_a: HP:0000118 ! Phenotypic abnormality

[Term]
id: HP:0000003
name: Toe disease
synonym: "swollen, toe" EXACT layperson []
is_a: HP:0000002 ! Gout
"""
NAMES = [
    ("HP:0000001", "All"),
    ("HP:0000118", "Phenotypic abnormality"),
    ("HP:0000002", "Gout"),
    ("HP:0000002", "Podagra"),
    ("HP:0000003", "Toe disease"),
]


def hpo_folder(folder: Path) -> Path:
    write(folder / "hp.obo", OBO)
    for name in ("phenotype.hpoa", "genes_to_phenotype.txt"):
        write(folder / name, "")
    return folder


def test_hpo_layperson(tmp_path: Path) -> None:
    """HPO-EL. "GOUT" is another name of the dictionary in lower case; "swollen toe" is of two
    terms, and in the split of the first."""
    found = Counter[str]()
    dictionary, splits = layperson.hpo_layperson(hpo_folder(tmp_path), found)
    assert list_fields(dictionary) == {
        "rows": NAMES,
        "broader": {
            "HP:0000118": ["HP:0000001"],
            "HP:0000002": ["HP:0000118"],
            "HP:0000003": ["HP:0000002"],
        },
        "definitions": {"HP:0000002": "Of a joint."},
    }
    mentions = sorted(m for split in SPLITS for m in splits[split])
    one, both = "HP:0000002", ["HP:0000002", "HP:0000003"]
    assert mentions == [
        Mention(
            f"{one}:swollen toe",
            one,
            None,
            None,
            "Swollen toe",
            ["Swollen toe"],
            [both],
            "layperson",
        ),
        Mention(
            f"{one}:toe swollen",
            one,
            None,
            None,
            "Toe, swollen!",
            ["Toe, swollen!"],
            [[one]],
            "layperson",
        ),
    ]
    assert len({split for split in SPLITS if splits[split]}) == 1
    assert found == {layperson.TRIVIAL: 1, layperson.SHARED: 1}


BABELON = """\
subject_id\tpredicate_id\ttranslation_language\ttranslation_value\tsource_value
HP:0000002\trdfs:label\tzh\t痛风😀 A\tGout
HP:0000003\trdfs:label\tzh\t痛风😀 a\tToe disease
HP:0000001\trdfs:label\tzh\t全部\tAll
HP:0000118\trdfs:label\tzh\tABC\tPhenotypic abnormality
HP:0000002\tIAO:0000115\tzh\t一种病。\tOf a joint.
HP:0000009\trdfs:label\tzh\t无\tNothing
"""


def test_hpo_translated(tmp_path: Path) -> None:
    """HPO-zh-EL: labels in lower case; kinds are the children of Phenotypic abnormality."""
    table = tmp_path / "hp-zh.babelon.tsv.gz"
    table.write_bytes(gzip.compress(BABELON.encode()))
    found = Counter[str]()
    dictionary, splits = layperson.hpo_translated(table, hpo_folder(tmp_path), False, found)
    rows = [*NAMES[:3], ("HP:0000002", "Swollen toe"), ("HP:0000002", "Toe, swollen!")]
    rows += [("HP:0000002", "GOUT"), *NAMES[3:], ("HP:0000003", "swollen, toe")]
    assert list_fields(dictionary) == {"rows": rows}
    label, both = "痛风😀 a", ["HP:0000002", "HP:0000003"]
    every = "全部"
    root = "HP:0000001"
    assert sorted(m for split in SPLITS for m in splits[split]) == [
        Mention(f"{root}:{every}", root, None, None, every, [every], [[root]], "no abnormality"),
        Mention(f"HP:0000002:{label}", "HP:0000002", None, None, label, [label], [both], "Gout"),
    ]
    assert +found == {
        layperson.SHARED_LABELS: 1,
        layperson.UNTRANSLATED: 1,
        layperson.UNUSED: 2,
    }
    with_others, _ = layperson.hpo_translated(table, hpo_folder(tmp_path), True, None)
    train = [(one, m.mention) for m in splits["train"] for one in m.gold[0]]
    assert list_fields(with_others) == {"rows": [*rows, *train]}
