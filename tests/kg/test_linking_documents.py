"""Readers of documents: the same articles from every format, and a clear line for each kind of
broken file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from core.files import InputError
from core.reading import limit_documents
from kg.documents import pubmed
from kg.documents.formats import documents, files_in, format_of
from kg.documents.mentions import Document, Mention
from tests.fakes import documents as fakes
from tests.fakes.documents import write_documents

WRITERS = {
    "a.jsonl": fakes.jsonl,
    "b.json": fakes.pubmedds,
    "c.txt": fakes.plain,
    "d.PubTator.txt": fakes.pubtator,
    "e.xml": fakes.pubmed_xml,
    "f.xml": fakes.bioc_xml,
    "b.bioc.json": fakes.bioc_json,
}


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("name", WRITERS)
def test_every_format_has_the_same_articles(tmp_path, name, ending):
    path = WRITERS[name](tmp_path / (name + ending))
    read = list(documents([path]))
    texts = [f"{title}\n{abstract}" for _, title, abstract, _ in fakes.ARTICLES]
    if name == "c.txt":
        texts = [text.replace("\n", " ") for text in texts]
        assert [d.id for d in read] == ["c:1", "c:2", "c:3"]
    else:
        assert [d.id for d in read] == ["101", "102", "103"]
    assert [d.text for d in read] == texts
    given = [[(d.text[m.start : m.end], m.entity) for m in d.mentions] for d in read]
    expected = [mentions for *_, mentions in fakes.ARTICLES] if name[0] in "abdf" else [[], [], []]
    assert given == expected
    assert read[0].where.startswith(f"{path}:")


def test_title_shifts_mentions_and_ids_may_be_numbers(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(
        json.dumps(
            {
                "pmid": 7,
                "title": "On a",
                "text": "cat",
                "mentions": [{"start": 0, "end": 3, "entity": "C", "mention": "cat"}],
            }
        )
    )
    (read,) = documents([path])
    assert read == Document("7", "On a\ncat", (Mention(5, 8, "C", 1.0),), f"{path}:1")


def test_written_documents_are_read_again(tmp_path):
    given = [Document("a", "x\n糖", (Mention(0, 1, "C", 0.5),)), ("b", "y")]
    read = list(documents([write_documents(tmp_path / "x.jsonl", given)]))
    assert [d[:3] for d in read] == [given[0][:3], ("b", "y", ())]


def test_format_by_name_or_option(tmp_path):
    assert [
        format_of(n) for n in ("a.jsonl.gz", "a.TXT", "a.pubtator", "x.PubTator.txt.gz", "p.xml.gz")
    ] == [
        "jsonl",
        "text",
        "pubtator",
        "pubtator",
        "xml",
    ]
    assert [format_of(n) for n in ("a.BioC.xml.gz", "bioc.json", "bioc.txt")] == [
        "bioc",
        "biocjson",
        "text",
    ]
    with pytest.raises(InputError, match=r"a\.dat: cannot tell the format.*--format"):
        format_of("a.dat")
    with pytest.raises(
        InputError, match="no format 'docx'; .*hoose from: jsonl, json, text, paragraphs"
    ):
        next(documents([tmp_path / "a.txt"], "docx"))


def line(**record) -> str:
    return json.dumps(record) + "\n"


def bioc(passages: str) -> str:
    return f"<collection><document><id>7</id>{passages}</document></collection>"


def passage(text: str, offset: int | str = 0, mention: tuple[int, int, str] | None = None) -> str:
    note = ""
    if mention:
        start, length, surface = mention
        note = (
            f'<annotation id="1"><infon key="MESH">D1</infon><location offset="{start}"'
            f' length="{length}"/>'
        )
        note += (f"<text>{surface}</text>" if surface else "") + "</annotation>"
    return f"<passage><offset>{offset}</offset><text>{text}</text>{note}</passage>"


GOOD = line(id="1", text="a cat")
BAD = {
    "cut": ("x.jsonl", GOOD + GOOD[:9], r"x\.jsonl:2: not valid JSON"),
    "array": ("x.jsonl", "[]\n", r"x\.jsonl:1: expected a JSON object"),
    "no id": (
        "x.jsonl",
        GOOD + line(text="a"),
        r"x\.jsonl:2: expected an id under id or _id or pmid",
    ),
    "no text": ("x.jsonl", line(id="1"), r"x\.jsonl:1: expected a string under text"),
    "surrogate": ("x.jsonl", line(id="1", text="\ud800"), r"x\.jsonl:1: half a surrogate pair"),
    "mentions": (
        "x.jsonl",
        line(id="1", text="a", mentions=["b"]),
        r"x\.jsonl:1: expected a list of objects",
    ),
    "outside": (
        "x.jsonl",
        line(id="1", text="a cat", mentions=[{"start": 2, "end": 6, "entity": "C"}]),
        r"x\.jsonl:1: mention \[2, 6\) is outside its text of 5",
    ),
    "surface": (
        "x.jsonl",
        line(
            id="1", text="cat", mentions=[{"start": 0, "end": 3, "entity": "C", "mention": "dog"}]
        ),
        r"x\.jsonl:1: mention \[0, 3\) covers 'cat', the file says 'dog'",
    ),
    "no entity": (
        "x.jsonl",
        line(id="1", text="a cat", mentions=[{"start": 2, "end": 5}]),
        r"expected an entity id",
    ),
    "score": (
        "x.jsonl",
        line(id="1", text="a cat", mentions=[{"start": 2, "end": 5, "entity": "C", "score": 7}]),
        r"expected a score",
    ),
    "empty": (
        "x.jsonl",
        line(id="1", text=" "),
        r"x\.jsonl:1: document '1' has no text\. .*--empty skip",
    ),
    "blank line": ("x.txt", "a\n\nb\n", r"x\.txt:2: document 'x:2' has no text"),
    "not utf-8": ("x.txt", b"ok\n\xff\n", r"x\.txt:2: not utf-8"),
    "no abstract": ("x.pubtator", "1|t|a\n\n2|t|b\n", r"x\.pubtator:1: expected a line"),
    "no blank line": (
        "x.pubtator",
        "1|t|a\n1|a|b\n2|t|c\n2|a|d\n",
        r"x\.pubtator:3: expected an annotation of",
    ),
    "no bioc": ("x.bioc.xml", "<PubmedArticleSet/>", r"x\.bioc\.xml:1: expected a BioC collection"),
    "bioc cut": (
        "x.xml",
        bioc("<passage><offset>0</offset><text>a")[:-30],
        r"x\.xml:1: broken XML",
    ),
    "bioc entity": (
        "x.xml",
        "<!DOCTYPE c [<!ENTITY a 'b'>]>" + bioc(""),
        r"declares the XML entity 'a'",
    ),
    "bioc no id": (
        "x.xml",
        "<collection>\n<document></document></collection>",
        r"x\.xml:2: this document has no id",
    ),
    "bioc no offset": (
        "x.xml",
        bioc("<passage><text>a</text></passage>"),
        r"document 7: a passage without an offset",
    ),
    "bioc offset": (
        "x.xml",
        bioc(passage("a", "-1")),
        r"expected a number under offset, 0 or more, got '-1'",
    ),
    "bioc overlap": (
        "x.xml",
        bioc(passage("abc") + passage("d", 2)),
        r"offset 2 begins before the end .* \(3\)",
    ),
    "bioc outside": (
        "x.xml",
        bioc(passage("abc", 0, (1, 9, ""))),
        r"x\.xml:1: document 7: mention \[1, 10\) is outside",
    ),
    "bioc surface": (
        "x.xml",
        bioc(passage("abc", 0, (1, 2, "no"))),
        r"covers 'bc', the file says 'no'",
    ),
    "bioc json": (
        "x.bioc.json",
        '{"documents": [{"id": "1"}]}',
        r"x\.bioc\.json: document 1: expected an object with an id",
    ),
    "bioc json list": (
        "x.bioc.json",
        '{"a": 1}',
        r"expected a list of objects, or an object with one under documents",
    ),
    "bioc json passage": (
        "x.bioc.json",
        '[{"id": 1, "passages": ["a"]}]',
        r"document 1 \(1\): not as BioC has it",
    ),
    "bioc json cut": ("x.bioc.json", '{"documents": [', r"x\.bioc\.json:1: the list does not end"),
    "bioc as lines": (
        "x.json",
        '{"documents": []}',
        r"x\.json:1: this is BioC in JSON\. Give --format .* biocjson",
    ),
    "few columns": (
        "x.pubtator",
        "1|t|a\n1|a|b\n1\t0\t1\n",
        r"x\.pubtator:3: expected id, start, end",
    ),
    "pubtator surface": (
        "x.pubtator",
        "1|t|cat\n1|a|b\n1\t0\t3\tdog\tT\tC\n",
        r"x\.pubtator:3: mention \[0, 3\)",
    ),
    "cut xml": ("x.xml", "<PubmedArticleSet>\n<PubmedArticle>", r"x\.xml:2: broken XML"),
    "bomb": (
        "x.xml",
        '<!DOCTYPE a [\n<!ENTITY b "cc"><!ENTITY d "&b;&b;">]>\n<a>&d;</a>',
        r"x\.xml:2: the file declares the XML entity 'b'",
    ),
    "external": (
        "x.xml",
        '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]>\n<a>&b;</a>',
        r"x\.xml:1: the file declares the XML entity 'b'",
    ),
    "undefined": (
        "x.xml",
        '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd">\n<a>&b;</a>',
        r"x\.xml:2: .* entity &b;",
    ),
    "no pmid": (
        "x.xml",
        "<PubmedArticle>\n<ArticleTitle>t</ArticleTitle></PubmedArticle>",
        r"x\.xml:1: .* no PMID",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_file_and_line(tmp_path, case):
    name, content, message = BAD[case]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        list(documents([path]))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "e.xml.gz"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_broken_gz(tmp_path, name, damage):
    path = WRITERS[name[:-3]](tmp_path / name)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-12:]
    else:
        data[20:40] = bytes(20)
    path.write_bytes(data)
    with pytest.raises(
        InputError, match=rf"{name}:\d+: (the compressed file is cut or broken|not|broken|wanted)"
    ):
        list(documents([path]))


def test_missing_file_and_skipped_empty_texts(tmp_path):
    with pytest.raises(InputError, match=r"no\.txt: no such file"):
        list(documents([tmp_path / "no.txt"]))
    path = tmp_path / "x.txt"
    path.write_bytes(b"a\n\nb\n")
    assert [d.id for d in documents([path], empty="skip")] == ["x:1", "x:3"]
    with pytest.raises(InputError, match="choose from: error, skip"):
        list(documents([path], empty="maybe"))


def test_xml_is_read_in_bounded_memory(tmp_path):
    import tracemalloc

    def peak(count: int) -> int:
        articles = [(str(i), "t" * 500, "word " * 300, []) for i in range(count)]
        path = fakes.pubmed_xml(tmp_path / "x.xml", articles)
        tracemalloc.start()
        assert sum(1 for _ in documents([path])) == count
        _, high = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return high

    assert peak(3000) < peak(300) + 100_000  # 6 MB of text more


def test_bioc_keeps_the_files_offsets(tmp_path):
    two = (
        '<annotation id="2"><infon key="identifier">D2</infon><location offset="9"'
        ' length="1"/><location offset="6" length="1"/>'
    )
    text = passage("ab", 3) + passage("cdefg", 6, (7, 2, "de")) + passage("h", 11)
    (tmp_path / "x.xml").write_text(
        bioc(text.replace("</passage>", two + "<text>c f</text></annotation></passage>", 1))
    )
    (read,) = documents([tmp_path / "x.xml"])
    # offsets are kept: a gap is blank, and what touches stays together
    assert read.text == "   ab\ncdefgh"
    # of two places: from first to last
    assert sorted(read.mentions) == [Mention(6, 10, "D2"), Mention(7, 9, "D1")]


TEXT = "1|t|cat\n1|a|b\n"
MORE = {
    "negative start": (
        "x.pubtator",
        TEXT + "1\t-1\t3\tcat\tT\tC\n",
        r"x\.pubtator:3: expected a number under start",
    ),
    "decimal start": (
        "x.pubtator",
        TEXT + "1\t12.0\t3\tcat\tT\tC\n",
        r"x\.pubtator:3: expected a number under start",
    ),
    "long start": (
        "x.pubtator",
        TEXT + f"1\t{'9' * 5000}\t3\tcat\tT\tC\n",
        r"x\.pubtator:3: expected a number under start",
    ),
    "no start": (
        "x.pubtator",
        TEXT + "1\t\t3\tcat\tT\tC\n",
        r"x\.pubtator:3: expected a number under start",
    ),
    "cut abstract": ("x.pubtator", "1|t|cat\n1|a", r"x\.pubtator:1: expected a line"),
    "number as mention": (
        "x.jsonl",
        line(id="1", text="a cat", mentions=[{"start": 2, "end": 5, "entity": "C", "mention": 7}]),
        r"x\.jsonl:1: mention \[2, 5\): expected its text, a string, got 7",
    ),
    "xml encoding": (
        "x.xml",
        "<?xml version='1.0' encoding='foo-9'?><collection/>",
        r"x\.xml:1: the XML's encoding",
    ),
    "no element": ("x.xml", "", r"x\.xml:1: broken XML"),
    "carriage return": ("x.txt", "a\nb\rc\n", r"x\.txt:2: a carriage return inside the line"),
    "far offset": (
        "x.xml",
        bioc(passage("a", 3_000_000_000)),
        r"document 7: the passage at offset 3,000,000,000 comes .*--max-document",
    ),
    "far json offset": (
        "x.bioc.json",
        '[{"id": 1, "passages": [{"offset": 3000000000, "text": "a"}]}]',
        r"the passage at offset 3,000,000,000",
    ),
    "article inside": (
        "x.xml",
        "<a><PubmedArticle><PubmedArticle/></PubmedArticle></a>",
        r"x\.xml:1: a PubmedArticle inside",
    ),
    "passage outside": (
        "x.xml",
        f"<collection>{passage('a')}</collection>",
        r"x\.xml:1: a passage outside of a document",
    ),
    "document inside": (
        "x.xml",
        bioc("<document></document>"),
        r"x\.xml:1: a document inside another one",
    ),
    "text outside": (
        "x.xml",
        bioc("<text>a</text>"),
        r"x\.xml:1: document 7: a text in a document",
    ),
    "passage of no text": (
        "x.bioc.json",
        '[{"id": 1, "passages": [{"offset": 0, "text": ["a"]}]}]',
        r"expected a string as the text",
    ),
}


@pytest.mark.parametrize("case", MORE)
def test_what_was_read_in_silence_or_not_caught_names_file_and_line(tmp_path, case):
    name, content, message = MORE[case]
    (tmp_path / name).write_text(content, newline="")
    with pytest.raises(InputError, match=message):
        list(documents([tmp_path / name]))


def test_a_start_with_a_blank_is_a_mention(tmp_path):
    (tmp_path / "x.pubtator").write_text(TEXT + "1\t0 \t3\tcat\tT\tC\n")
    assert next(documents([tmp_path / "x.pubtator"])).mentions == (Mention(0, 3, "C", 1.0, "T"),)


def test_what_is_left_out_is_counted(tmp_path):
    for name in ("d.PubTator.txt", "f.xml", "b.bioc.json"):
        WRITERS[name](tmp_path / name)
    (tmp_path / "empty.text").write_text("a\n\nb\n")
    for name in ("read.md", "a.pdf", "b.pdf", "no_ending"):
        (tmp_path / name).write_text("x")
    left_out: Counter[str] = Counter()
    found = list(documents(files_in([tmp_path], left_out), empty="skip", left_out=left_out))
    assert len(found) == 11
    assert +left_out == {
        "relation lines": 3,
        "relations": 3,
        "annotations without an entity": 6,
        "documents without text": 1,
        "files of a folder whose names stand for no format (.md)": 1,
        "files of a folder whose names stand for no format (.pdf)": 2,
        "files of a folder whose names stand for no format (no ending)": 1,
    }


def test_a_byte_order_mark_and_line_ends_of_old_macs_do_not_shift_offsets(tmp_path):
    (tmp_path / "x.txt").write_bytes("\ufeffone\rtwo\rthree".encode())
    assert [d.text for d in documents([tmp_path / "x.txt"])] == ["one", "two", "three"]
    text = json.dumps(
        {"id": "1", "text": "a cat", "mentions": [{"start": 2, "end": 5, "entity": "C"}]}
    )
    (tmp_path / "x.jsonl").write_bytes(f"\ufeff{text}".encode())
    assert next(documents([tmp_path / "x.jsonl"])).text == "a cat"


def test_the_last_ending_decides_about_pubtator():
    assert [
        format_of(n) for n in ("a.pubtator.jsonl", "pubtator.xml.gz", "a.pubtator.text.bz2")
    ] == ["jsonl", "xml", "pubtator"]


def test_a_document_of_xml_above_the_limit_is_refused(tmp_path):
    limit_documents(1)
    try:
        (tmp_path / "x.xml").write_text(bioc(passage("word " * 500_000)))
        with pytest.raises(InputError, match=r"x\.xml:1: a document of more than 1 MiB"):
            list(documents([tmp_path / "x.xml"]))
    finally:
        limit_documents(16)


def test_what_pubmed_holds_beside_title_and_abstract_is_counted(tmp_path):
    (tmp_path / "x.xml").write_text(
        "<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>1</PMID><Article><ArticleTitle>A</ArticleTitle><Abstract>"
        "<AbstractText Label='METHODS'>one</AbstractText><AbstractText"
        " Label='RESULTS'>two</AbstractText></Abstract></Article>"
        "<OtherAbstract"
        " Type='plain'><AbstractText>simple</AbstractText></OtherAbstract></MedlineCitation></PubmedArticle>"  # noqa: E501
        "<DeleteCitation><PMID>7</PMID><PMID>8</PMID></DeleteCitation></PubmedArticleSet>"
    )
    left_out = Counter()
    (read,) = documents([tmp_path / "x.xml"], left_out=left_out)
    assert read.text == "A\none two"
    assert +left_out == Counter({pubmed.LABELS: 2, pubmed.OTHER_ABSTRACTS: 1, pubmed.DELETED: 2})


@pytest.mark.parametrize("counted", [0, 1])
def test_a_byte_order_mark_counts_in_brat_or_does_not(tmp_path: Path, counted: int) -> None:
    """brat counts it as a character, other writers do not: the first annotation says which."""
    (tmp_path / "x.txt").write_text("\ufeffgout and hot fever")
    places = [(0, 4, "gout"), (9, 18, "hot fever")]
    rows = [
        f"T{n}\tDisease {first + counted} {last + counted}\t{text}\n"
        for n, (first, last, text) in enumerate(places, 1)
    ]
    (tmp_path / "x.ann").write_text("".join(rows))
    (document,) = documents([tmp_path / "x.ann"])
    assert document.text == "gout and hot fever"
    assert [(m.start, m.end) for m in document.unlinked] == [(0, 4), (9, 18)]
    (tmp_path / "x.ann").write_text(rows[0] + "T9\tDisease 5 9\tfeve\n")
    with pytest.raises(InputError, match=r"x\.ann:2: \[5 9\] covers"):
        list(documents([tmp_path / "x.ann"]))
