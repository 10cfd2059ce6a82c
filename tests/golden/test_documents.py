"""Golden examples of every format of documents: a few lines as the format has them, and the whole
documents that they mean.

    Gout 😀 – mild          mentions: Gout [0, 4), mild [9, 13), cold [17, 21) and sore [21, 25),
    No coldsore             which touches it and ends with the text
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spacy
from spacy.tokens import DocBin

from core.files import InputError
from kg.documents.bioc import RELATIONS as BIOC_RELATIONS
from kg.documents.brat import NO_ANNOTATIONS, NOT_READ, SECOND
from kg.documents.formats import EMPTY, FORMATS, documents
from kg.documents.mentions import NO_ENTITY, NOT_FITTING, Document, Layout, Mention
from kg.documents.pubannotation import DISCONTINUOUS
from kg.documents.pubmed import DELETED, LABELS, OTHER_ABSTRACTS
from kg.documents.pubtator import RELATIONS

TEXT = "Gout 😀 – mild\nNo coldsore"
assert (len(TEXT), TEXT.index("mild"), TEXT.index("cold")) == (25, 9, 17)
GOUT, MILD = Mention(0, 4, "D:1", 1.0, "Disease"), Mention(9, 13, "", 1.0, "Grade")
COLD = Mention(17, 21, "D:2", 1.0, "Disease", ("negated",))
SORE = Mention(21, 25, "D:3", 1.0, "Disease")
LINKED, UNLINKED = (GOUT, COLD, SORE), (MILD,)


def read(
    path: Path, form: str | None = None, **layout: Any
) -> tuple[list[Document], dict[str, int]]:
    """(documents of a file, what is left out)."""
    left_out = Counter[str]()
    found = list(documents([path], form, "skip", "utf-8", left_out, True, Layout(**layout)))
    return found, dict(+left_out)


def write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


JSON = [
    {
        "id": 7,
        "title": "Gout 😀 – mild",
        "text": "No coldsore",
        # offsets count the characters of the text alone
        "mentions": [
            {"start": 3, "end": 7, "entity": "D:2", "type": "Disease", "mention": "cold"}
            | {"score": 0.25, "negated": True, "family": False},
            {"start_offset": 7, "end_offset": 11, "link_id": "D:3"},
            {"start": 0, "end": 2, "type": "Word"},
            {"start": 0, "end": 11, "entity": "-", "historical": "True"},
        ],
    },
    {"_id": "b", "text": "😀", "mentions": [{"start": 0, "end": 1, "entity": "E"}]},
    {"pmid": "9", "title": "Alone", "text": ""},
    {"id": "empty", "text": " "},
]
JSON_LINKED = (Mention(17, 21, "D:2", 0.25, "Disease", ("negated",)), Mention(21, 25, "D:3", 1.0))
JSON_UNLINKED = (Mention(14, 16, "", 1.0, "Word"), Mention(14, 25, "", 1.0, "", ("historical",)))
#: entities that are missing; the text of one blank
JSON_LEFT_OUT = {NO_ENTITY: 2, EMPTY: 1}


def test_json_lines(tmp_path: Path) -> None:
    """A title is in front of the text, with a line end between: 14 characters."""
    content = "".join(f"{json.dumps(one, ensure_ascii=False)}\r\n" for one in JSON)
    path = write(tmp_path / "x.jsonl", f"\ufeff{content}")
    expected = [
        Document("7", TEXT, JSON_LINKED, f"{path}:1", JSON_UNLINKED),
        Document("b", "😀", (Mention(0, 1, "E", 1.0),), f"{path}:2"),
        Document("9", "Alone", (), f"{path}:3"),
    ]
    assert read(path) == (expected, JSON_LEFT_OUT)


def test_json_array(tmp_path: Path) -> None:
    """Characters beyond the first plane may be written as two escapes, and are one."""
    path = write(tmp_path / "x.json", json.dumps(JSON, indent=1))
    assert "\\ud83d\\ude00" in path.read_text()
    expected = [
        Document("7", TEXT, JSON_LINKED, f"{path}: document 1", JSON_UNLINKED),
        Document("b", "😀", (Mention(0, 1, "E", 1.0),), f"{path}: document 2"),
        Document("9", "Alone", (), f"{path}: document 3"),
    ]
    assert read(path) == (expected, JSON_LEFT_OUT)
    path = write(tmp_path / "y.jsonl", '{"key": "k", "id": "no", "note": "a\\nb", "text": "no"}')
    expected = [Document("k", "a\nb", (), f"{path}:1")]
    assert read(path, id_field="key", text_field="note") == (expected, {})


@pytest.mark.parametrize(
    ("score", "start", "end", "message"),
    [
        (1, 24, 25, None),
        (1e-9, 0, 25, None),
        (1.001, 0, 1, "a score in"),
        (0, 0, 1, "a score in"),
        (1, 24, 26, r"\[24, 26\) is outside its text of 25 characters"),
        (1, 25, 25, r"\[25, 25\) is outside"),
        (1, 5, 5, r"\[5, 5\) is outside"),
        (1, -1, 4, r"\[-1, 4\) is outside"),
    ],
)
def test_limits_of_a_mention(
    score: float, start: int, end: int, message: str | None, tmp_path: Path
) -> None:
    mention = {"start": start, "end": end, "entity": "E", "score": score}
    path = write(tmp_path / "x.jsonl", json.dumps({"id": 1, "text": TEXT, "mentions": [mention]}))
    if message is None:
        assert read(path)[0][0].mentions == (Mention(start, end, "E", score),)
        return
    with pytest.raises(InputError, match=message):
        read(path)
    left_out = Counter[str]()
    (found,) = documents([path], left_out=left_out, used=False)
    assert found == Document("1", TEXT, (), f"{path}:1")
    assert +left_out == {NOT_FITTING: 1}


def test_lines_of_text(tmp_path: Path) -> None:
    path = write(tmp_path / "notes.v1.txt", "Gout 😀\r\n\r\n – mild \r\n")
    expected = [
        Document("notes.v1:1", "Gout 😀", (), f"{path}:1"),
        Document("notes.v1:3", " – mild ", (), f"{path}:3"),
    ]
    assert read(path) == (expected, {EMPTY: 1})


def test_paragraphs_of_text(tmp_path: Path) -> None:
    path = write(tmp_path / "notes.txt", "\nGout 😀\r\n– mild\n\n \t\nNo\n\ncold\nsore")
    expected = [
        Document("notes:2", "Gout 😀\n– mild", (), f"{path}:2"),
        Document("notes:6", "No", (), f"{path}:6"),
        Document("notes:8", "cold\nsore", (), f"{path}:8"),
    ]
    assert read(path, document="paragraph") == (expected, {})


def test_whole_files_of_text(tmp_path: Path) -> None:
    """Offsets are the file's: its line ends stay, a byte order mark is no character."""
    (tmp_path / "ward").mkdir()
    path = write(tmp_path / "ward" / "notes.txt", "\ufeffGout 😀\r\n\n– mild\n")
    expected = [Document("ward/notes", "Gout 😀\r\n\n– mild\n", (), f"{path}:1")]
    assert read(path, document="file", roots=(str(tmp_path),)) == (expected, {})


def test_tables_of_texts(tmp_path: Path) -> None:
    """The second row of the CSV is on its lines 2 and 3."""
    path = write(
        tmp_path / "x.csv", 'ID,author,Text\r\n7,a,"Gout, 😀\r\n""mild"""\r\n8,b,No;cold\r\n'
    )
    expected = [
        Document("7", 'Gout, 😀\n"mild"', (), f"{path}:2"),
        Document("8", "No;cold", (), f"{path}:4"),
    ]
    assert read(path) == (expected, {})
    path = write(tmp_path / "x.tsv", 'note\tnote_id\nGout – "mild", no\t7\n')
    assert read(path)[0] == [Document("7", 'Gout – "mild", no', (), f"{path}:2")]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"pmid": [7, 8], "note_text": ["Gout 😀", None]}), path)
    assert read(path) == ([Document("7", "Gout 😀", (), f"{path}: row 1")], {EMPTY: 1})
    path, book = tmp_path / "x.xlsx", openpyxl.Workbook()
    for row in (["doc", "say"], [7, "Gout 😀"], [None, None], [8, "No"]):
        book.active.append(row)
    book.save(path)
    expected = [Document("7", "Gout 😀", (), f"{path}:2"), Document("8", "No", (), f"{path}:4")]
    assert read(path, id_field="doc", text_field="say") == (expected, {})


BRAT = """\
T1\tDisease 0 4\tGout
T2\tGrade 9 13\tmild
T4\tDisease 21 25\tsore
T3\tDisease 17 21\tcold
T5\tGroup 0 4;9 13\tGout mild
T6\tLine 9 16\tmild No
N1\tReference T1 D:1\tgout
N2\tReference T3 KEPL:D2\tcold
N3\tReference T4 D:3\tsore
N4\tReference T1 D:9\tpodagra
A1\tNegated T3
A2\tConfidence T3 High
R1\tIs Arg1:T1 Arg2:T3
*\tEquiv T3 T4
E1\tGrade:T2 Of:T1
M1\tSpeculation E1
#1\tAnnotatorNotes T1\tsure
"""


def test_brat(tmp_path: Path) -> None:
    """Mentions by their places. Of two places the first begins and the last ends; a line end in a
    mention is a blank in its line. "KEPL:" is before ids of no vocabulary."""
    path = write(tmp_path / "x.txt", TEXT)
    assert read(path, "brat", document="file")[1] == {NO_ANNOTATIONS: 1}
    notes = write(tmp_path / "x.ann", BRAT.replace("\n", "\r\n"))
    linked = (GOUT, COLD._replace(entity="D2"), SORE)
    unlinked = (
        Mention(0, 13, "", 1.0, "Group"),
        MILD,
        Mention(9, 16, "", 1.0, "Line"),
    )
    left_out = {NO_ENTITY: 3, DISCONTINUOUS: 1, SECOND: 1}
    left_out |= dict.fromkeys((NOT_READ[kind] for kind in "AR*EM#"), 1)
    expected = [Document("x", TEXT, linked, f"{path}:1", unlinked)]
    assert read(path, "brat", document="file") == (expected, left_out)
    assert read(notes) == (expected, left_out)


CONLL = """\
-DOCSTART- -X- -X- O

Gout NN B-NP B-Disease
😀 SYM O O
cold NN B-NP B-Disease
sore NN I-NP B-Disease

# text = no token
No DT O O
ataxia NN O I-Sign
# id = d 2
pain\tS-Sign
renal\tB-Disease
acute\tI-Disease
failure\tE-Disease
x\tU-Code
y\tB-Code
z\tL-Code
q\tI-Sign
.\tO
"""


def test_conll(tmp_path: Path) -> None:
    """Four columns of CoNLL-2003 with BIO tags; then BIOES and BILOU. An I tag after O, or of
    another type, begins a mention; so does a B tag after a mention of its type."""
    path = write(tmp_path / "x.conll", CONLL)
    first = (
        Mention(0, 4, "", 1.0, "Disease"),
        Mention(7, 11, "", 1.0, "Disease"),
        Mention(12, 16, "", 1.0, "Disease"),
        Mention(20, 26, "", 1.0, "Sign"),
    )
    second = (
        Mention(0, 4, "", 1.0, "Sign"),
        Mention(5, 24, "", 1.0, "Disease"),
        Mention(25, 26, "", 1.0, "Code"),
        Mention(27, 30, "", 1.0, "Code"),
        Mention(31, 32, "", 1.0, "Sign"),
    )
    expected = [
        Document("x:1", "Gout 😀 cold sore\nNo ataxia", (), f"{path}:1", first),
        Document("d 2", "pain renal acute failure x y z q .", (), f"{path}:11", second),
    ]
    assert read(path) == (expected, {NO_ENTITY: 9})


def test_conll_without_documents(tmp_path: Path) -> None:
    """Each sentence is a document; types without a letter in front are those of neighbours."""
    path = write(tmp_path / "x.bio", "\na\tDrug\nb\tDrug\nc\t_\r\n\r\n\nd\tDrug\n")
    expected = [
        Document("x:1", "a b c", (), f"{path}:2", (Mention(0, 3, "", 1.0, "Drug"),)),
        Document("x:2", "d", (), f"{path}:7", (Mention(0, 1, "", 1.0, "Drug"),)),
    ]
    assert read(path) == (expected, {NO_ENTITY: 2})


def test_docbin(tmp_path: Path) -> None:
    """What spaCy itself writes: spans of tokens with a label and an id."""
    nlp, box = spacy.blank("en"), DocBin(store_user_data=True)
    doc = nlp("Gout 😀 – mild\nNo cold sore")
    doc.user_data["id"] = "7"
    doc.ents = [
        doc.char_span(0, 4, label="Disease", kb_id="D:1"),
        doc.char_span(9, 13, label="Grade"),
        doc.char_span(22, 26, label="Disease", kb_id="D:3"),
    ]
    box.add(doc)
    box.add(nlp("no entity"))
    path = tmp_path / "x.spacy"
    box.to_disk(path)
    linked = (GOUT, Mention(22, 26, "D:3", 1.0, "Disease"))
    expected = [
        Document("7", "Gout 😀 – mild\nNo cold sore", linked, f"{path}: document 1", UNLINKED),
        Document("x:2", "no entity", (), f"{path}: document 2"),
    ]
    assert read(path) == (expected, {NO_ENTITY: 1})


PUBANNOTATION: dict[str, Any] = {
    "sourcedb": "Synthetic",
    "sourceid": "7",
    "text": TEXT,
    "denotations": [
        {"id": "T1", "span": {"begin": 21, "end": 25}, "obj": "Disease"},
        {"id": "T2", "span": {"begin": 9, "end": 13}, "obj": "Grade"},
        {"id": "T3", "span": {"begin": 17, "end": 21}, "obj": "Disease"},
        {"id": "T4", "span": {"begin": 0, "end": 4}, "obj": "MESH:D1"},
    ],
    "relations": [{"id": "R1", "subj": "T1", "pred": "is", "obj": "T3"}],
    "attributes": [
        {"id": "A1", "subj": "T1", "pred": "Normalization", "obj": "D:3"},
        {"id": "A2", "subj": "T3", "pred": "Normalization", "obj": "D:2"},
        {"id": "A3", "subj": "T3", "pred": "Negated", "obj": True},
        {"id": "A4", "subj": "T2", "pred": "Family", "obj": False},
    ],
}
GOUT_MESH = Mention(0, 4, "MESH:D1", 1.0, "MESH:D1")


def test_pubannotation(tmp_path: Path) -> None:
    """An object that is an id is the entity, too. A document without an id has the file's name."""
    path = write(tmp_path / "x.json", json.dumps([PUBANNOTATION, {"text": "No"}]))
    expected = [
        Document("7", TEXT, (GOUT_MESH, COLD, SORE), f"{path}: document 1", UNLINKED),
        Document("x:2", "No", (), f"{path}: document 2"),
    ]
    left_out = {NO_ENTITY: 1, "relations of PubAnnotation": 1}
    assert read(path, "pubannotation") == (expected, left_out)
    path = write(tmp_path / "y.json", json.dumps({"text": "No", "denotations": []}))
    assert read(path, "pubannotation")[0] == [Document("y", "No", (), f"{path}: document 1")]


PUBTATOR = """\
7|t|Gout 😀 – mild
7|a|No coldsore
7\t0\t4\tGout\tDisease\tD:1
7\t9\t13\tmild\tGrade
7\t17\t21\tcold\tDisease\tD:2\tnegated=true; part=whole
7\t21\t25\tsore\tDisease\tD:3
7\tCID\tD:1\tD:2


8|t|
8|a|a|b – c
8\t1\t4\ta|b\tSign\t-
"""


def test_pubtator(tmp_path: Path) -> None:
    """A line end is between title and abstract, also where one of the two is empty; a bar in them
    is a character."""
    path = write(tmp_path / "x.pubtator", PUBTATOR.replace("\n", "\r\n"))
    bars = (Mention(1, 4, "", 1.0, "Sign"),)
    expected = [
        Document("7", TEXT, LINKED, f"{path}:1", UNLINKED),
        Document("8", "\na|b – c", (), f"{path}:10", bars),
    ]
    assert read(path) == (expected, {RELATIONS: 1, NO_ENTITY: 2})


PUBMED = """\
<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN" "p.dtd">
<PubmedArticleSet>
<PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="1">11</PMID>
<Article><Journal><Title>J</Title></Journal><ArticleTitle>Gout &#128512; <i>is</i> – mild.
</ArticleTitle><Abstract><AbstractText Label="AIM">To
 see.</AbstractText><AbstractText>H<sub>2</sub>O &lt; 5.</AbstractText>
<CopyrightInformation>Mine</CopyrightInformation></Abstract></Article>
<OtherAbstract Language="fre"><AbstractText Label="BUT">Non.</AbstractText></OtherAbstract>
<CommentsCorrectionsList><CommentsCorrections><PMID Version="1">99</PMID></CommentsCorrections>
</CommentsCorrectionsList></MedlineCitation>
<PubmedData><ArticleIdList><ArticleId IdType="pubmed">98</ArticleId></ArticleIdList></PubmedData>
</PubmedArticle>
<PubmedBookArticle><BookDocument><PMID Version="2">12</PMID><Book><BookTitle>B</BookTitle></Book>
<ArticleTitle>Chapter</ArticleTitle></BookDocument></PubmedBookArticle>
<PubmedArticle><MedlineCitation><PMID>13</PMID><Article><ArticleTitle/><Abstract>
<AbstractText>Alone</AbstractText></Abstract></Article></MedlineCitation></PubmedArticle>
<PubmedArticle><MedlineCitation><PMID>14</PMID></MedlineCitation></PubmedArticle>
<DeleteCitation><PMID>1</PMID><PMID>2</PMID></DeleteCitation>
</PubmedArticleSet>
"""


def test_pubmed(tmp_path: Path) -> None:
    """Title, line end, and the sections of the abstract with blanks between them."""
    path = write(tmp_path / "x.xml", PUBMED)
    expected = [
        Document("11", "Gout 😀 is – mild.\nTo see. H2O < 5.", (), f"{path}:4"),
        Document("12", "Chapter", (), f"{path}:14"),
        Document("13", "Alone", (), f"{path}:16"),
    ]
    left_out = {LABELS: 1, OTHER_ABSTRACTS: 1, DELETED: 2, EMPTY: 1}
    assert read(path, "pubmed") == (expected, left_out)
    assert read(path, "xml") == (expected, left_out)


BIOC = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE collection SYSTEM "BioC.dtd">
<collection><source>Synthetic</source><date>20260101</date><key>k.key</key>
<infon key="n">1</infon>
<document><id>7</id><infon key="identifier">no</infon>
<passage><infon key="type">title</infon><offset>0</offset><text>Gout 😀 – mild</text>
<annotation id="1"><infon key="identifier">D:1</infon><infon key="MESH">D9</infon>
<infon key="type">Disease</infon><location offset="0" length="4"/><text>Gout</text></annotation>
<annotation id="2"><infon key="type">Grade</infon><location offset="9" length="4"/>
<text>mild</text></annotation></passage>
<passage><offset>14</offset>
<sentence><offset>14</offset><text>No</text></sentence>
<sentence><offset>17</offset><text>coldsore</text>
<annotation id="3"><infon key="type">Disease</infon><infon key="negated">true</infon>
<infon key="MESH">D:2</infon><location offset="17" length="4"/><text>cold</text></annotation>
<annotation id="4"><infon key="type">Disease</infon><infon key="identifier">D:3</infon>
<location offset="21" length="4"/><text>sore</text></annotation>
<relation id="R1"><infon key="type">is</infon><node refid="3" role="a"/></relation></sentence>
</passage>
<annotation id="5"><infon key="type">Group</infon><infon key="identifier">D:1|D:3</infon>
<location offset="21" length="4"/><location offset="0" length="4"/><text>Gout sore</text>
</annotation></document>
<document><id>8</id><passage><offset>2</offset><text>a&amp;b</text></passage>
<passage><offset>5</offset><text></text></passage><passage><offset>5</offset><text>c</text></passage>
<passage><offset>9</offset><text>d</text></passage></document>
</collection>
"""
GROUP = Mention(0, 25, "D:1|D:3", 1.0, "Group")
#: between "No" and "coldsore" one character is missing
BIOC_TEXT = "Gout 😀 – mild\nNo\ncoldsore"


def test_bioc(tmp_path: Path) -> None:
    """Passages and sentences at their offsets: a missing character is a line end, further ones
    are blanks; at the beginning all are blanks."""
    path = write(tmp_path / "x.xml", BIOC)
    expected = [
        Document("7", BIOC_TEXT, (*LINKED, GROUP), f"{path}:5", UNLINKED),
        Document("8", "  a&bc\n  d", (), f"{path}:23"),
    ]
    left_out = {NO_ENTITY: 1, BIOC_RELATIONS: 1, DISCONTINUOUS: 1}
    left_out["further identifiers of annotations (MESH)"] = 1  # D9 of the first
    assert read(path, "bioc") == read(path) == (expected, left_out)


def note(start: int, length: int, text: str, **infons: Any) -> dict[str, Any]:
    place = [{"offset": start, "length": length}]
    return {"id": "1", "infons": infons, "text": text, "locations": place}


def test_bioc_json(tmp_path: Path) -> None:
    """PubTator 3's object, with an annotation of the whole document."""
    title = {"offset": 0, "infons": {"type": "title"}, "text": "Gout 😀 – mild", "sentences": []}
    title["annotations"] = [
        note(0, 4, "Gout", identifier="D:1", type="Disease"),
        note(9, 4, "mild", identifier=None, type="Grade"),
    ]
    cold = note(17, 4, "cold", identifier="D:2", type="Disease", negated=True)
    body = {"offset": 14, "text": "", "relations": [{"id": "R1"}], "annotations": []}
    body["sentences"] = [
        {"offset": 14, "text": "No"},
        {"offset": 17, "text": "coldsore", "relations": [], "annotations": [cold]},
    ]
    sore = note(21, 4, "sore", identifier="D:3", type="Disease")
    body["annotations"] = [sore]
    one = {"id": 7, "passages": [title, body], "annotations": [], "relations": [{"id": "R2"}]}
    two = {"id": "8", "passages": [{"offset": 1, "text": "x"}]}
    path = write(tmp_path / "x.bioc.json", json.dumps({"PubTator3": [one, two]}))
    expected = [
        Document("7", BIOC_TEXT, (GOUT, SORE, COLD), f"{path}: document 1", UNLINKED),
        Document("8", " x", (), f"{path}: document 2"),
    ]
    assert read(path) == (expected, {NO_ENTITY: 1, BIOC_RELATIONS: 2})


@pytest.mark.parametrize("form", FORMATS)
def test_all_readers_have_the_same_defaults(form: str) -> None:
    """All readers take the same settings, with the same defaults: mentions are used, text is
    UTF-8, and a line is a text."""
    _, *settings = inspect.signature(FORMATS[form]).parameters.values()
    assert [(each.name, each.default) for each in settings] == [
        ("encoding", "utf-8"),
        ("left_out", None),
        ("used", True),
        ("layout", Layout()),
    ]
