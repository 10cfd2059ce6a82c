"""Readers of the Chinese tasks and of the formats both suites share: every trap of the real files,
every broken line."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.files import InputError
from core.json_files import json_records
from datamodules import chineseblue, formats
from datamodules.formats import COLUMNS, NoLabels, bio, mark_spans, pairs, pubtator
from datamodules.tasks import Tagged
from kg.documents.pubtator import RELATIONS
from tests.fakes import chineseblue as fakes
from tests.fakes import documents as fake_documents

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data in {REAL}")


def surfaces(example: Tagged) -> list[tuple[str, str]]:
    return [(example.text[s:e], k) for s, e, k in example.entities]


def text_file(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


# BIO


@pytest.mark.parametrize("joint", ["_", "-"])
@pytest.mark.parametrize("sep", [" ", "\t"])
def test_bio_reads_every_kind_of_blank_and_both_joints(tmp_path, joint, sep):
    read = bio(fakes.bio(tmp_path / "train.txt", joint=joint, sep=sep), tokens=False)
    assert [e.text for e in read] == [text for text, _ in fakes.SENTENCES]
    assert "\u3000" in read[1].text and "\xa0" in read[1].text
    assert [surfaces(e) for e in read] == [entities for _, entities in fakes.SENTENCES]
    assert read[0].words is None and read[0].id == read[0].document == "train:1"
    assert read[1].id == f"train:{len(fakes.SENTENCES[0][0]) + 2}"


def test_a_blank_may_be_the_character(tmp_path):
    (read,) = bio(text_file(tmp_path / "x.txt", "a B_x\n  I_x\nb I_x\n"), tokens=False)
    assert read.text == "a b" and read.entities == [(0, 3, "x")]


def test_adjacent_entities_of_one_type_stay_two(tmp_path):
    (read,) = bio(text_file(tmp_path / "x.txt", "a B_x\nb B_x\nc I_x\n"), tokens=False)
    assert read.entities == [(0, 1, "x"), (1, 3, "x")]


def test_an_inside_tag_without_its_beginning_opens_an_entity_and_is_counted(tmp_path):
    found: Counter[str] = Counter()
    path = text_file(tmp_path / "x.txt", "a I_x\nb O\nc B_x\nd I_y\ne I_y\n\nf I_y\n")
    first, second = bio(path, tokens=False, counts=found)
    assert first.entities == [(0, 1, "x"), (2, 3, "x"), (3, 5, "y")] and second.entities == [
        (0, 1, "y")
    ]
    assert found == {formats.OPENED: 3}


def test_tokens_are_joined_by_one_blank_and_keep_their_places(tmp_path):
    path = text_file(
        tmp_path / "x.tsv",
        "-DOCSTART-\tO\n\nBar\tB-A\npox\tI-A\n.\tO\n\nx y\tB-B\n\n-DOCSTART- -X- O O\n\nz\tO\n",
    )
    first, second, third = bio(path, tokens=True, merged="Any")
    assert first == Tagged("x:3", "x:1", "Bar pox .", [(0, 7, "Any")], [(0, 3), (4, 7), (8, 9)])
    assert second.text == "x y" and second.document == "x:1" and second.words == [(0, 3)]
    assert third.document == "x:9" and third.entities == []


def test_merged_types_need_none_in_the_file(tmp_path):
    path = text_file(tmp_path / "x.tsv", "a\tB\nb\tI\nc\tB-z\n")
    assert bio(path, tokens=True, merged="E")[0].entities == [(0, 3, "E"), (4, 5, "E")]
    with pytest.raises(InputError, match=r"x\.tsv:1: expected a tag O, B-type or I-type.*got 'B'"):
        bio(path, tokens=True)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a O\nab O\n", r":2: expected one character, a blank and its tag, got 'ab O'"),
        ("a O\nb\n", r":2: expected one character"),
        ("a O\n O\n", r":2: expected one character"),
        ("a S_x\n", r":1: expected a tag O, B-type or I-type .*got 'S_x'"),
        ("a O\nb B_\n", r":2: expected a tag"),
        ("a\rb O\n", r":1: expected one character"),
        ("", r": no examples in this file"),
        ("\n\n", r": no examples in this file"),
    ],
)
def test_a_broken_bio_line_is_named(tmp_path, rows, message):
    with pytest.raises(InputError, match=r"x\.txt" + message):
        bio(text_file(tmp_path / "x.txt", rows), tokens=False)


@pytest.mark.parametrize("separator", ["\t", " "])
def test_of_more_columns_the_first_and_the_last_are_taken_and_counted(tmp_path, separator):
    rows = [
        "-DOCSTART- -X- -X- O",
        "",
        "EU NNP B-NP B-ORG",
        "rejects VBZ B-VP O",
        "",
        "call NN I-NP O",
    ]
    found = Counter()
    text = "\n".join(row.replace(" ", separator) for row in rows) + "\n"
    read = bio(text_file(tmp_path / "x.tsv", text), tokens=True, counts=found)
    assert [(e.text, e.entities) for e in read] == [("EU rejects", [(0, 2, "ORG")]), ("call", [])]
    assert found[COLUMNS] == 3


def test_the_encoding_is_what_is_asked_for(tmp_path):
    path = text_file(tmp_path / "x.txt", "病 B_x\n", "gb18030")
    assert bio(path, tokens=False, encoding="gb18030")[0].text == "病"
    with pytest.raises(InputError, match=r"x\.txt:1: not utf-8 text"):
        bio(path, tokens=False)
    latin = text_file(tmp_path / "y.tsv", "caf\xe9\tO\n", "latin-1")
    assert bio(latin, tokens=True, encoding="latin-1")[0].text == "caf\xe9"
    with pytest.raises(InputError, match=r"y\.tsv:1: not gb18030 text|y\.tsv:1: not utf-8 text"):
        bio(latin, tokens=True)
    bom = text_file(tmp_path / "z.txt", "\ufeff病 B_x\n")
    assert bio(bom, tokens=False)[0].text == "病"


# PubTator


def test_pubtator_keeps_types_and_mentions_without_an_entity(tmp_path):
    found: Counter[str] = Counter()
    read = pubtator(fake_documents.pubtator(tmp_path / "x.txt"), counts=found)
    assert [e.id for e in read] == ["101", "102", "103"] and all(e.words is None for e in read)
    assert ("Se", "Disease") in surfaces(read[0])  # has entity -1
    assert ("糖尿病", "Disease") in surfaces(read[2])
    # relation lines are counted; two titles begin with a mention
    assert found == {formats.OVERLAP: 2, RELATIONS: 3}
    assert {k for e in pubtator(tmp_path / "x.txt", merged="D") for *_, k in e.entities} == {"D"}
    path = text_file(tmp_path / "y.txt", "1|t|A cat\n1|a|B\n1\t2\t5\tdog\tX\tC\n")
    with pytest.raises(InputError, match=r"y\.txt:3: .*covers 'cat', the file says 'dog'"):
        pubtator(path)


# JSON


def test_records_of_a_list_and_of_lines_know_their_lines(tmp_path):
    values = [{"a": 1}, {"b": "糖]"}, {}]
    many = json_records(fakes.json_list(tmp_path / "x.json", values))
    assert [(w.rpartition(":")[2], v) for w, v in many] == [
        ("2", values[0]),
        ("5", values[1]),
        ("8", values[2]),
    ]
    lines = json_records(fakes.json_lines(tmp_path / "y.json", values))
    assert [(w.rpartition(":")[2], v) for w, v in lines] == list(zip("123", values, strict=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1},\n {"a": }]', r":2: not valid JSON"),
        ('[{"a": 1},\n', r":2: the list does not end"),
        ('[{"a": 1}\n {"a": 2}]', r":2: expected a comma"),
        ('[{"a": 1}]\nx', r":2: text after the end"),
        ('{"a": 1}\n{"a"', r":2: not valid JSON"),
        ('{"a": 1}\n[2]', r":2: expected a JSON object, got list"),
        ('{"a": "\\ud800"}', r":1: half a surrogate pair"),
    ],
)
def test_broken_json_is_named(tmp_path, text, message):
    with pytest.raises(InputError, match=r"x\.json" + message):
        list(json_records(text_file(tmp_path / "x.json", text)))


def test_json_in_another_encoding_says_which_was_expected(tmp_path):
    path = text_file(tmp_path / "x.json", '{"a": 1}\n{"a": "病"}\n', "gb18030")
    with pytest.raises(InputError, match=r"x\.json:2: not utf-8 text"):
        list(json_records(path))
    assert len(list(json_records(path, "gb18030"))) == 2
    whole = gzip.compress(b'{"a": 1}\n' * 1000)
    for broken in (whole[:-20], b"no gz", whole[:12] + b"\xff" * 20):
        (tmp_path / "x.json.gz").write_bytes(broken)
        with pytest.raises(InputError, match=r"x\.json\.gz: the compressed file is cut or broken"):
            list(json_records(tmp_path / "x.json.gz"))


@pytest.mark.parametrize("value", ['{"a": 1}', "[1]", '"x"', "null"])
def test_a_list_that_is_none_is_named(tmp_path, value):
    path = text_file(tmp_path / "x.json", f'{{"text": "a", "entities": {value}}}\n')
    with pytest.raises(InputError, match="expected a list of objects under 'entities', got"):
        chineseblue.read_nested(path)


def test_mentions_have_their_offsets_as_strings(tmp_path):
    read = chineseblue.mentions(fakes.mentions(tmp_path / "train.json"))
    assert [surfaces(e) for e in read] == [entities for _, entities in fakes.SENTENCES]


def mention(text: str, surface: str, offset: object) -> dict:
    return {"text": text, "mention_data": [{"mention": surface, "type": "t", "offset": offset}]}


def test_mentions_in_another_case_or_one_off_are_counted_and_others_refused(tmp_path):
    found: Counter[str] = Counter()
    values = [mention("查tct了", "TCT", "1"), mention("头痛", "头痛", "1")]
    read = chineseblue.mentions(fakes.json_lines(tmp_path / "x.json", values), counts=found)
    assert [surfaces(e) for e in read] == [[("tct", "t")], [("头痛", "t")]]
    assert found == {chineseblue.OTHER_CASE: 1, chineseblue.MOVED: 1, chineseblue.REPEATED: 0}
    for offset, message in (
        ("3", r":1: the text has '痛' at offset 3"),
        ("x", r":1: expected a number under the offset"),
    ):
        with pytest.raises(InputError, match=message):
            chineseblue.mentions(
                fakes.json_lines(tmp_path / "x.json", [mention("三天头痛", "三天", offset)])
            )


def test_nested_entities_include_their_last_character(tmp_path):
    read = chineseblue.read_nested(fakes.nested(tmp_path / "dev.json"))
    assert ("水泡", "symptom") in surfaces(read[0]) and ("水", "bod") in surfaces(read[0])
    assert read[0].id == "dev:2" and read[4].entities == []


def test_nested_offsets_must_match(tmp_path):
    value = {
        "text": "头痛了",
        "entities": [{"start_idx": 0, "end_idx": 2, "type": "s", "entity": "头痛"}],
    }
    with pytest.raises(
        InputError, match=r"x\.json:2: characters 0 to 2, both included, are '头痛了'"
    ):
        chineseblue.read_nested(fakes.json_list(tmp_path / "x.json", [value]))
    value["entities"][0]["end_idx"] = 3
    with pytest.raises(InputError, match=r"entity \(0, 3\) is outside its text of 3"):
        chineseblue.read_nested(fakes.json_list(tmp_path / "x.json", [value]))
    found: Counter[str] = Counter()
    value["entities"] = [{"start_idx": 0, "end_idx": 1, "type": "s", "entity": "头痛"}] * 2
    assert (
        len(
            chineseblue.read_nested(fakes.json_list(tmp_path / "x.json", [value]), counts=found)[
                0
            ].entities
        )
        == 1
    )
    assert found[chineseblue.REPEATED] == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda p: chineseblue.read_nested(fakes.nested(p, labels=False)),
        lambda p: chineseblue.triples(fakes.triples(p, labels=False)),
        lambda p: chineseblue.queries(
            fakes.queries(p, "query1", "query2", labels=False), "query1", "query2"
        ),
    ],
)
def test_a_split_without_labels_is_no_gold(tmp_path, read):
    with pytest.raises(NoLabels, match=r"no gold labels"):
        read(tmp_path / "test.json")


# triples


def test_pairs_are_marked_once_with_all_their_relations(tmp_path):
    found: Counter[str] = Counter()
    facts = [*fakes.FACTS, ("甲", [fakes.FACTS[0][1][0]])]
    facts[0] = (facts[0][0], facts[0][1] * 2)
    read = chineseblue.triples(fakes.triples(tmp_path / "dev.json", facts), counts=found)
    assert [e.id for e in read] == ["dev:1.1", "dev:2.1", "dev:2.2", "dev:3.1"]
    assert (
        read[0].text == "乙病@[S]乙病[/S]患者可用[O]甲药[/O]治疗。" and read[0].document == "dev:1"
    )
    assert read[1].text == "丙病@丙病又名[O]丙症[/O]，[S]丙病[/S]引起头痛。"
    assert (
        read[2].gold == ["疾病|临床表现|症状", "疾病|并发症|症状"]
        and read[2].label == read[2].gold[0]
    )
    assert read[3].text == "甲" and read[3].label == "疾病|药物治疗|药物"  # kept, without markers
    assert found[chineseblue.SEVERAL] == found[chineseblue.REPEATED] == 1
    assert found[chineseblue.NO_SUBJECT] == found[chineseblue.NO_OBJECT] == 1


@pytest.mark.parametrize(
    ("text", "subject", "object_", "expected"),
    [
        ("甲乙甲", "甲", "乙", "[S]甲[/S][O]乙[/O]甲"),
        ("甲丁丁丁乙甲", "甲", "乙", "甲丁丁丁[O]乙[/O][S]甲[/S]"),
        ("肺癌", "肺癌", "肺", "[S][O]肺[/O]癌[/S]"),
        ("肺癌", "癌", "肺癌", "[O]肺[S]癌[/S][/O]"),
        ("肺癌可为小细胞肺癌", "肺癌", "小细胞肺癌", "[S]肺癌[/S]可为[O]小细胞肺癌[/O]"),
        ("头痛", "头痛", "头痛", "[S][O]头痛[/O][/S]"),
        ("头痛和头痛", "头痛", "头痛", "[S]头痛[/S]和[O]头痛[/O]"),
        ("甲乙丙", "甲乙", "乙丙", "[S]甲[O]乙[/S]丙[/O]"),
        ("甲乙", "甲", "丁", "[S]甲[/S]乙"),
        ("甲乙", "丁", "乙", "甲[O]乙[/O]"),
    ],
)
def test_markers_surround_the_nearest_pair(tmp_path, text, subject, object_, expected):
    path = fakes.triples(tmp_path / "x.json", [(text, [(subject, "a", "r", "b", object_)])])
    assert chineseblue.triples(path)[0].text == expected


@given(
    st.text("ab", max_size=8),
    st.text("ab", min_size=1, max_size=3),
    st.text("ab", min_size=1, max_size=3),
)
def test_nearest_against_all_pairs(text, subject, object_):
    s, o = chineseblue.nearest(text, subject, object_)
    assert (s is None) == (subject not in text) and (o is None) == (object_ not in text)
    if s is None or o is None:
        return
    assert text[slice(*s)] == subject and text[slice(*o)] == object_
    every = [
        (i, j) for i in chineseblue.places(text, subject) for j in chineseblue.places(text, object_)
    ]
    gaps = [max(i - j - len(object_), j - i - len(subject)) for i, j in every]
    gap = max(s[0] - o[1], o[0] - s[1])
    assert gap == min((g for g in gaps if g >= 0), default=gap)
    text_again = mark_spans(text, [(*s, "[S]", "[/S]"), (*o, "[O]", "[/O]")])
    for mark in ("[S]", "[/S]", "[O]", "[/O]"):
        assert text_again.count(mark) == 1
        text_again = text_again.replace(mark, "")
    assert text_again == text


def test_classes_are_the_schemas(tmp_path):
    classes = chineseblue.schema(fakes.schema(tmp_path / "schema.json"))
    assert classes[0] == "疾病|药物治疗|药物"
    path = fakes.triples(tmp_path / "x.json")
    assert len(chineseblue.triples(path, classes=classes)) == 3
    with pytest.raises(
        InputError, match=r"x\.json:2: '疾病\|并发症\|症状' is no class of the schema"
    ):
        chineseblue.triples(path, classes=classes[:-1])


def test_objects_may_be_plain_strings_and_unknown_parts_are_refused(tmp_path):
    spo = {
        "subject": "甲",
        "subject_type": "a",
        "predicate": "r",
        "object": "乙",
        "object_type": "b",
    }
    path = fakes.json_lines(tmp_path / "x.json", [{"text": "甲乙", "spo_list": [spo]}])
    assert chineseblue.triples(path)[0].text == "[S]甲[/S][O]乙[/O]"
    for wrong, message in (
        (
            {"object": {"@value": "乙", "inWork": "丙"}},
            "one '@value' as the object, got also inWork",
        ),
        ({"subject": ""}, "expected a text under 'subject'"),
        ({"object": 3}, "expected a text under 'object'"),
    ):
        fakes.json_lines(path, [{"text": "甲乙", "spo_list": [spo | wrong]}])
        with pytest.raises(InputError, match=r"x\.json:1: .*" + message):
            chineseblue.triples(path)


# pairs


def test_pairs_are_read_without_quoting_and_grouped_by_question(tmp_path):
    read = pairs(fakes.pairs(tmp_path / "train.txt"))
    assert [tuple(e[2:]) for e in read] == [(a, b, label) for label, a, b in fakes.PAIRS]
    assert read[1].first == '他说"没""事"'
    assert read[2].document == read[3].document != read[0].document
    wide = [("内科", label, "7", q, a) for label, q, a in fakes.ANSWERS]
    assert [e[2:] for e in pairs(fakes.pairs(tmp_path / "w.txt", wide))] == [  # type: ignore[arg-type]
        (q, a, label) for label, q, a in fakes.ANSWERS
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1\ta\tb\n1\ta\n",
            r":2: expected label, first text, second text, separated by tabs, got 2 columns",
        ),
        ("1\ta\tb\tc\n", r":1: expected label"),
        ("2\ta\tb\n", r":1: expected a label, one of 0, 1, got '2'"),
        ("1\ta\t \n", r":1: .*got an empty text"),
        ("1\ta\rb\tc\n", r":1: .*a carriage return inside"),
        ("", r": no examples"),
    ],
)
def test_a_broken_pair_is_named(tmp_path, text, message):
    with pytest.raises(InputError, match=r"x\.txt" + message):
        pairs(text_file(tmp_path / "x.txt", text))


def test_queries(tmp_path):
    path = fakes.queries(tmp_path / "train.json", "query", "title")
    read = chineseblue.queries(path, "query", "title", labels=("0", "1"))
    assert [tuple(e[2:]) for e in read] == [(a, b, label) for label, a, b in fakes.PAIRS]
    with pytest.raises(InputError, match=r"train\.json:2: expected a label, one of 0, got '1'"):
        chineseblue.queries(path, "query", "title", labels=("0",))
    with pytest.raises(InputError, match=r"train\.json:2: expected a text under 'query1'"):
        chineseblue.queries(path, "query1", "title")


# real data


def unpacked(tmp_path: Path, name: str) -> Path:
    with tarfile.open(REAL / name) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.mark.data
@real
def test_real_cmedqaner(tmp_path):
    folder = unpacked(tmp_path, "zh_chineseblue/cMedQANER.tar.gz") / "cMedQANER"
    for split, sentences, in_bio, in_json in (
        ("train", 1673, 12490, 12625),
        ("dev", 175, 1024, 1035),
        ("test", 215, 1340, 1350),
    ):
        texts = bio(folder / f"{split}.txt", tokens=False)
        whole = chineseblue.mentions(folder / f"{split}.json")
        assert len(texts) == len(whole) == sentences and [e.text for e in texts] == [
            e.text for e in whole
        ]
        assert (
            sum(len(e.entities) for e in texts) == in_bio
            and sum(len(e.entities) for e in whole) == in_json
        )
        # the BIO file keeps one text's offsets as the JSON file has them, one too high
        moved = [
            a.id
            for a, b in zip(texts, whole, strict=True)
            if not set(a.entities) <= set(b.entities)
        ]
        assert len(moved) == (split == "train")
        assert split != "train" or len({k for e in texts for *_, k in e.entities}) == 11


@pytest.mark.data
@real
def test_real_cblue(tmp_path):
    folder = unpacked(tmp_path, "zh_cblue/CMeEE_resplit.tar.gz") / "CMeEE"
    for split, sentences, entities in (("train", 4000, 16470), ("dev", 500, 1910)):
        texts = chineseblue.read_nested(folder / f"CMeEE_resplit_{split}.json")
        assert (len(texts), sum(len(e.entities) for e in texts)) == (sentences, entities)
    folder = unpacked(tmp_path, "zh_cblue/CMeIE_resplit.tar.gz") / "CMeIE"
    classes = chineseblue.schema(folder / "53_schemas.json")
    assert len(set(classes)) == 53
    for split, sentences, triples, examples in (
        ("train", 2885, 8509, 8468),
        ("dev", 350, 1036, 1032),
    ):
        found: Counter[str] = Counter()
        read = chineseblue.triples(
            folder / f"CMeIE_resplit_{split}.json", counts=found, classes=classes
        )
        assert (len({e.document for e in read}), len(read)) == (sentences, examples)
        assert sum(len(e.gold) for e in read) + found[chineseblue.REPEATED] == triples
        assert found[chineseblue.NO_SUBJECT] == found[chineseblue.NO_OBJECT] == 0
        assert all(all(e.text.count(m) == 1 for m in chineseblue.MARKERS) for e in read)
    folder = unpacked(tmp_path, "zh_cblue/KUAKE-QQR.tar.gz")
    for split, count in (("train", 15000), ("dev", 1600)):
        path = folder / f"KUAKE-QQR/KUAKE-QQR_{split}.json"
        assert len(chineseblue.queries(path, "query1", "query2", labels=tuple("012"))) == count


@pytest.mark.data
@real
def test_real_pairs(tmp_path):
    folder = unpacked(tmp_path, "zh_chineseblue/cMedQQ_train_dev.tar.gz") / "cMedQQ"
    for split, count, positive in (("train", 16071, 8048), ("dev", 1793, 889)):
        read = pairs(folder / f"{split}.txt")
        assert (len(read), sum(e.label == "1" for e in read)) == (count, positive)
    folder = unpacked(tmp_path, "zh_chineseblue/cMedQA_clean_train_dev.tar.gz") / "cMedQA"
    for split, rows, questions in (("train", 6632, 683), ("dev", 421, 38)):
        read = pairs(folder / f"cMedQA_clean_{split}.txt")
        assert (len(read), len({e.document for e in read})) == (rows, questions)


def test_fakes_are_valid_json(tmp_path):
    assert len(json.loads(fakes.nested(tmp_path / "x.json").read_text())) == len(fakes.SENTENCES)
