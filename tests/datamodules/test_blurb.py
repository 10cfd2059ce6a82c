"""Readers of the English tasks: pairs, replaced entities, sentence ends, splits, and every broken
line."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from core.files import InputError
from datamodules import blurb, formats
from datamodules.tasks import Relation
from tests.fakes import blurb as fakes

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data in {REAL}")


def text_file(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


# sentences and replacement


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One is. Two was.", ["One is. ", "Two was."]),
        ("See et al. Then (e.g. this) vs. that.", ["See et al. Then (e.g. this) vs. that."]),
        (
            "In E. coli it is. beta-Z binds! (It does.) 5 mg.",
            ["In E. coli it is. ", "beta-Z binds! ", "(It does.) ", "5 mg."],
        ),
        ("At 0.5 mg/ml it is", ["At 0.5 mg/ml it is"]),
        ("", [""]),
    ],
)
def test_sentences(text, sentences):
    starts = blurb.sentence_starts(text)
    assert [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)] == sentences


def test_replace():
    names = ("@A$", "@B$", "@A-B$")
    assert blurb.replace("a bc d", [(2, 4)], [(0, 1)], *names) == ("@B$ @A$ d", False)
    assert blurb.replace("abcd", [(1, 3)], [(2, 4)], *names) == ("a@A-B$", True)
    assert blurb.replace("abcd", [(0, 4)], [(1, 2)], *names) == ("@A-B$", True)
    # touching is not overlapping
    assert blurb.replace("abcd", [(0, 2)], [(2, 4)], *names) == ("@A$@B$", False)
    assert blurb.replace("ab cd ef", [(0, 2), (6, 8)], [(3, 5)], *names) == ("@A$ @B$ ", False)
    assert blurb.replace("ab cd ef", [(0, 2), (6, 8)], [(3, 5), (6, 8)], *names) == ("@A-B$", True)


# ChemProt


def chemprot(
    tmp_path: Path, found: Counter[str] | None = None, **changed: list
) -> dict[str, Relation]:
    return {
        e.id: e for e in blurb.chemprot(*fakes.chemprot(tmp_path / "c_", **changed), counts=found)
    }


def test_chemprot_pairs_of_one_sentence(tmp_path):
    found: Counter[str] = Counter()
    read = chemprot(tmp_path, found)
    assert sorted(read) == ["11.T1.T2", "11.T3.T4", "11.T6.T7"]
    assert read["11.T1.T2"] == Relation(
        "11.T1.T2", "11", "@CHEMICAL$ and @GENE$.", "false", ["false"]
    )
    assert read["11.T3.T4"].text == "@CHEMICAL$ (e.g. 5 mg) inhibits @GENE$."
    assert read["11.T3.T4"].gold == ["CPR:4", "CPR:3"] and read["11.T3.T4"].label == "CPR:4"
    assert read["11.T6.T7"].text == "@CHEM-GENE$ binds." and read["11.T6.T7"].label == "CPR:9"
    assert {k: v for k, v in found.items() if v} == {
        blurb.CROSS: 1,
        blurb.SEVERAL: 1,
        blurb.OVERLAPPING: 1,
    }


def test_a_sentence_end_inside_an_entity_is_none(tmp_path):
    found: Counter[str] = Counter()
    abstracts = [("1", "T.", "Foo binds ab. Cd here.")]
    names = [("1", "T1", "CHEMICAL", "Foo", 0), ("1", "T2", "GENE-Y", "ab. Cd", 0)]
    (read,) = chemprot(tmp_path, found, abstracts=abstracts, names=names, gold=[]).values()
    assert read.text == "@CHEMICAL$ binds @GENE$ here." and found[blurb.MERGED] == 1


@pytest.mark.parametrize(
    ("file", "row", "message"),
    [
        (
            "c_abstracts.tsv",
            "11\tx",
            r"expected id, title, abstract, separated by tabs, got 2 columns",
        ),
        ("c_abstracts.tsv", "11\tx\ty", r"expected an id that occurs once, got '11'"),
        (
            "c_entities.tsv",
            "99\tT1\tCHEMICAL\t0\t1\tF",
            r"document '99' is not in c_abstracts\.tsv",
        ),
        (
            "c_entities.tsv",
            "11\tT9\tDRUG\t0\t6\tFoozin",
            r"expected CHEMICAL, GENE-Y or GENE-N, got 'DRUG'",
        ),
        (
            "c_entities.tsv",
            "11\tT9\tCHEMICAL\t1\t7\tFoozin",
            r"\[1, 7\) of document 11 is not 'Foozin'",
        ),
        (
            "c_entities.tsv",
            "11\tT9\tCHEMICAL\tx\t7\tFoozin",
            r"expected a number under start, 0 or more, got 'x'",
        ),
        (
            "c_gold_standard.tsv",
            "11\tCPR:4\tArg1:T4\tArg2:T3",
            r"from a chemical \(Arg1\) to a gene \(Arg2\)",
        ),
        (
            "c_gold_standard.tsv",
            "11\tCPR:10\tArg1:T3\tArg2:T4",
            r"expected one of CPR:3, .*got 'CPR:10'",
        ),
        ("c_gold_standard.tsv", "11\tCPR:4\tArg1:T77\tArg2:T4", r"'Arg1:T77'"),
    ],
)
def test_a_broken_chemprot_line_is_named(tmp_path, file, row, message):
    paths = fakes.chemprot(tmp_path / "c_")
    with open(tmp_path / file, "a") as handle:
        handle.write(row + "\n")
    number = len((tmp_path / file).read_text().splitlines())
    with pytest.raises(InputError, match=rf"{file}:{number}: .*{message}"):
        blurb.chemprot(*paths)


# DDI


def test_ddi_pairs_from_the_archive_and_from_a_folder(tmp_path):
    path = fakes.ddi(tmp_path / "d.zip", train=2)
    found: Counter[str] = Counter()
    read = blurb.ddi(path, "DDICorpus/Train", counts=found)
    assert len(read) == 10 and {e.document for e in read} == {"DDI-DrugBank.d0", "DDI-DrugBank.d1"}
    assert [(e.text, e.label) for e in read[:5]] == [
        ("@DRUG$ raises @DRUG$.", "mechanism"),
        ("Take @DRUG-DRUG$ & foozin.", "false"),
        ("Take @DRUG$ or nu- & @DRUG$.", "advise"),
        ("Take mu- or @DRUG$ & @DRUG$.", "effect"),
        ("@DRUG$ @DRUG$.", "int"),
    ]
    assert found == {blurb.OVERLAPPING: 2, blurb.SPLIT: 2, blurb.MISPLACED: 0, blurb.UNTYPED: 0}
    zipfile.ZipFile(path).extractall(tmp_path / "folder")
    assert blurb.ddi(tmp_path / "folder", "DDICorpus/Train") == read
    test = blurb.ddi(path, "DDICorpus/Test/Test for DDI Extraction task")
    # not the folder for names of drugs
    assert {e.document for e in test} == {"DDI-MedLine.d0", "DDI-MedLine.d1"}


def one_document(tmp_path: Path, xml: str, found: Counter[str] | None = None) -> list[Relation]:
    (tmp_path / "T").mkdir(exist_ok=True)
    text_file(tmp_path / "T" / "a.xml", xml)
    return blurb.ddi(tmp_path, "T", counts=found)


def test_what_is_odd_in_the_ddi_corpus_is_counted(tmp_path):
    found: Counter[str] = Counter()
    sentence = ("Ab cd ef.", [("0-1", "Xy"), ("3-4", "cd")], [(0, 1, "")])
    (read,) = one_document(tmp_path, fakes.ddi_document("d", [sentence]), found)
    assert (read.text, read.label) == ("@DRUG$ @DRUG$ ef.", "int")
    assert found[blurb.MISPLACED] == found[blurb.UNTYPED] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('charOffset="0-5"', 'charOffset="0-500"'),
            r"a\.xml:4: charOffset 0-500 is outside its sentence of 20",
        ),
        (
            ('charOffset="0-5"', 'charOffset="0:5"'),
            r"a\.xml:4: expected charOffset like 23-31;40-49, got '0:5'",
        ),
        (('type="mechanism"', 'type="other"'), r"expected ddi=false, or ddi=true with a type"),
        (('ddi="true"', 'ddi="yes"'), r"ddi='yes'"),
        (
            ('e2="d.s0.e1"', 'e2="d.s0.e9"'),
            r"pair of 'd\.s0\.e9', which is no entity of its sentence",
        ),
        ((' charOffset="0-5"', ""), r"a\.xml:4: expected <entity id.*got none of charOffset"),
        (("</sentence>", "</wrong>"), r"a\.xml:10: broken XML \(mismatched tag\)"),
        (
            ("<document", '<!DOCTYPE x [<!ENTITY a "b">]><document'),
            r"a\.xml:2: the file declares the XML entity 'a'",
        ),
    ],
)
def test_broken_ddi_xml_is_named(tmp_path, change, message):
    xml = fakes.ddi_document("d", fakes.DRUGS[:1])
    assert change[0] in xml
    with pytest.raises(InputError, match=message):
        one_document(tmp_path, xml.replace(*change))


def test_broken_ddi_archives(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="not a whole zip archive"):
        blurb.ddi(text_file(tmp_path / "x.zip", "no zip"), "T")
    path = fakes.ddi(tmp_path / "d.zip")
    content = bytearray(path.read_bytes())
    for place in (found.start() for found in re.finditer(rb"PK\x01\x02", bytes(content))):
        # the packed size in its directory
        content[place + 20 : place + 24] = (3 << 30).to_bytes(4, "little")
    (tmp_path / "large.zip").write_bytes(content)
    with pytest.raises(InputError, match="a file in it is larger than the archive"):
        blurb.ddi(tmp_path / "large.zip", "DDICorpus/Train")
    with pytest.raises(InputError, match="no examples"):
        blurb.ddi(path, "DDICorpus/Nowhere")
    monkeypatch.setattr(blurb, "MOST", 100)
    with pytest.raises(InputError, match="unpacked"):
        blurb.ddi(path, "DDICorpus/Train")


def test_documents_are_split_whole_by_a_seed(tmp_path):
    read = blurb.ddi(fakes.ddi(tmp_path / "d.zip", train=20), "DDICorpus/Train")
    rest, taken = blurb.split_documents(read, 23, seed=0)
    assert len(taken) == 20 and len(rest) == 80  # five pairs a document
    assert not {e.document for e in rest} & {e.document for e in taken}
    assert (
        blurb.split_documents(read, 23, seed=0)
        == (rest, taken)
        != blurb.split_documents(read, 23, seed=1)
    )


# GAD


def test_gad_with_and_without_an_index(tmp_path):
    plain = blurb.gad(fakes.gad(tmp_path / "train.tsv"))
    indexed = blurb.gad(fakes.gad(tmp_path / "test.tsv", indexed=True))
    assert [(e.text, e.label) for e in plain] == [(e.text, e.label) for e in indexed] == fakes.GAD
    assert [e.id for e in indexed] == ["test:2", "test:3"]
    assert blurb.split_last([1, 2, 3], 1) == ([1, 2], [3])  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a @GENE$ @DISEASE$\t2\n", r":1: expected sentence, label 0 or 1"),
        (
            "a\t1\nb\t0\tc\n",
            r":2: expected sentence, label 0 or 1, separated by tabs, got 3 columns",
        ),
        ("index\tsentence\tlabel\n0\ta\n", r":2: expected index, sentence, label"),
        ("a\t1\rb\t0\nc\t0\n", r":1: .*a carriage return"),
        ("", "no examples"),
    ],
)
def test_a_broken_gad_line_is_named(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        blurb.gad(text_file(tmp_path / "x.tsv", text))


def test_gad_counts_sentences_without_a_marker(tmp_path):
    found: Counter[str] = Counter()
    blurb.gad(text_file(tmp_path / "x.tsv", "a @GENE$\t1\nb @GENE$ @DISEASE$\t0\n"), counts=found)
    assert found == {blurb.MARKER: 1}


def test_windows_line_ends_are_read(tmp_path):
    assert (
        len(
            blurb.gad(
                text_file(tmp_path / "x.tsv", "a @GENE$ @DISEASE$\t1\r\nb @GENE$ @DISEASE$\t0\r\n")
            )
        )
        == 2
    )


def test_iob(tmp_path):
    read = formats.bio(fakes.iob(tmp_path / "train.tsv"), tokens=True, merged="D")
    assert [e.text for e in read] == [
        "Foozin cures bar pox .",
        "Two qux zyxes failed",
        "Nothing here",
    ]
    assert [len(e.entities) for e in read] == [2, 2, 0]  # qux and zyxes touch and stay two


# real data


@pytest.mark.slow
@pytest.mark.data
@real
def test_real_iob(tmp_path):
    with tarfile.open(REAL / "en_ner_iob/ner_iob.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    for name, split, mentions in (
        ("BC5CDR-chem", "train", 5203),
        ("BC5CDR-chem", "devel", 5347),
        ("BC5CDR-disease", "train", 4182),
        ("BC5CDR-disease", "devel", 4246),
        ("NCBI-disease", "train", 5134),
        ("NCBI-disease", "devel", 787),
        ("NCBI-disease", "test", 960),
        ("BC2GM", "train", 15197),
        ("BC2GM", "devel", 3061),
        ("BC2GM", "test", 6325),
    ):
        found: Counter[str] = Counter()
        read = formats.bio(
            tmp_path / f"ner_iob/{name}-IOB/{split}.tsv", tokens=True, merged="E", counts=found
        )
        assert sum(len(e.entities) for e in read) == mentions, (name, split)
        assert not found[formats.OPENED]


@pytest.mark.data
@real
def test_real_chemprot(tmp_path):
    """BLURB prints 18,035, 11,268 and 15,745 pairs; this splitter finds 29, 56 and 22 more."""
    with tarfile.open(REAL / "en_re_chemprot/chemprot.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    for part, end, pairs, gold, cross in (
        ("training/chemprot_training", "", 18035 + 29, 4157, 6),
        ("development/chemprot_development", "", 11268 + 56, 2416, 0),
        ("test_gs/chemprot_test", "_gs", 15745 + 22, 3458, 3),
    ):
        stem = f"{tmp_path}/chemprot/chemprot_{part}_"
        names = (f"abstracts{end}", f"entities{end}", "gold_standard")
        found: Counter[str] = Counter()
        read = blurb.chemprot(*(Path(f"{stem}{n}.tsv") for n in names), counts=found)
        assert len(read) == pairs and found[blurb.CROSS] == cross
        assert sum(len(e.gold) for e in read if e.label != "false") == gold - cross
        assert all(any(m in e.text for m in blurb.CHEMPROT_MARKERS) for e in read)


@pytest.mark.data
@real
def test_real_ddi_and_gad(tmp_path):
    archive = REAL / "en_re_ddi/DDICorpus-2013.zip"
    train, dev = blurb.split_documents(blurb.ddi(archive, "DDICorpus/Train"), 2496)
    assert (len(train), len(dev)) == (25296, 2496)
    assert len(blurb.ddi(archive, "DDICorpus/Test/Test for DDI Extraction task")) == 5716
    with tarfile.open(REAL / "en_re_gad/gad_fold1.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    rest, last = blurb.split_last(blurb.gad(tmp_path / "gad/train.tsv"), 535)
    assert (len(rest), len(last), len(blurb.gad(tmp_path / "gad/test.tsv"))) == (4261, 535, 534)
