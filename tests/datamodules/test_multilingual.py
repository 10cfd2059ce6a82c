"""Readers of CHIP-CDN, XL-BEL and Mantra GSC: every mention by hand."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from benchmarks.linking.scores import language_populations
from core.files import InputError
from datamodules.linking import Dictionary, Mention, diagnoses, multilingual
from datamodules.tasks import linking
from tests.fakes import linking as fake


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("头痛.头晕，左膝退变伴游离体", ["头痛", "头晕", "左膝退变", "游离体"]),
        ("1.糖尿病2、高血压", ["糖尿病", "高血压"]),
        ("肺癌（IV期）", ["肺癌（IV期"]),  # brackets around a part go, those within stay
        ("，。", ["，。"]),
        ("骨折术后", ["骨折术后"]),
    ],
)
def test_a_diagnosis_is_cut(text, parts):
    assert diagnoses.cut_diagnosis(text) == parts


def test_icd_and_diagnoses(tmp_path):
    fake.chip_cdn(tmp_path)
    found: Counter[str] = Counter()
    icd = diagnoses.read_icd(tmp_path / diagnoses.NAMES, found)
    assert icd.names == ["霍乱", "高血压", "头痛", "损伤,小腿", "骨质疏松"]
    assert icd.ids == ["A00", "I10", "R51", "S80", "M81"]
    assert icd.alternatives == {"A00": ["A00.9"]} and found[diagnoses.SHARED_NAMES] == 1
    read = diagnoses.read_diagnoses(tmp_path / diagnoses.FILES["dev"], icd)
    assert [m.gold for m in read] == [
        [["R51"], ["I10"]],
        [["M81"]],
        [["S80"]],
        [["表里没有"]],
        [["A00"], ["R51"]],
    ]
    assert [m.parts for m in read[:2]] == [["头痛", "高血压病"], ["骨松"]]
    _, splits = diagnoses.chip_cdn(tmp_path, True, Counter())
    assert {s: len(m) for s, m in splits.items()}["test"] == 5
    assert len(splits["train"]) + len(splits["dev"]) == 105
    _, cut = diagnoses.chip_cdn(tmp_path, False, Counter())
    assert sum(map(len, cut.values())) == 105 and all(cut.values())
    named = diagnoses.named_by_train(icd, splits["train"])
    assert "小腿软组织损伤" in named.names and "头痛.高血压病" not in named.names


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "expected a list of objects"),
        ("[", "expected JSON"),
        ('[{"normalized_result": "a"}]', "item 1: expected an object with a text"),
        ('[{"text": "a"}]', "item 1: expected normalized_result"),
    ],
)
def test_broken_diagnoses(tmp_path, content, message):
    fake.chip_cdn(tmp_path)
    icd = diagnoses.read_icd(tmp_path / diagnoses.NAMES)
    path = fake.text(tmp_path / "x.json", content)
    with pytest.raises(InputError, match=re.escape(message)):
        diagnoses.read_diagnoses(path, icd)
    with pytest.raises(InputError, match=re.escape("expected an Excel table")):
        diagnoses.read_icd(path)


def test_xl_bel(tmp_path):
    documents: dict[str, str] = {}
    found: Counter[str] = Counter()
    path = fake.text(tmp_path / "zh_1k.txt", fake.XL_BEL)
    read = multilingual.read_xl_bel(path, documents, found)
    assert read == [
        Mention("1", "", None, None, "心梗", ["心梗"], [["C0000001"]]),
        Mention("2", "zh_1k:2", 2, 4, "肾衰", ["肾衰"], [["C0000002"]]),
        Mention("3", "zh_1k:3", 2, 7, "fever", ["fever"], [["C0000001", "C0000003"]]),
        Mention("4", "", None, None, "cough", ["cough"], [["C0000003"]]),
    ]
    assert documents == {"zh_1k:2": "他有肾衰多年", "zh_1k:3": "a fever of old"}
    assert found[multilingual.WITHOUT_MARK] == 1
    for line in ("||a", "C0000001||", "C0000001", "no id||a"):
        with pytest.raises(InputError, match=r"zh_1k.txt:1: expected CUI\|\|mention"):
            multilingual.read_xl_bel(fake.text(path, line), {})
    with pytest.raises(InputError, match="no mentions"):
        multilingual.read_xl_bel(fake.text(path, ""), {})
    found.clear()
    other = multilingual.read_xl_bel(fake.text(path, "CL448688|C0014609||x\n90058||y\n"), {}, found)
    assert [m.gold for m in other] == [[["CL448688", "C0014609"]], [["90058"]]]
    assert found[multilingual.NO_CUI] == 2


def test_mantra(tmp_path):
    found: Counter[str] = Counter()
    path = fake.text(tmp_path / "Medline_GSC_de_man.xml", fake.MANTRA)
    read = multilingual.read_mantra(path, found)
    assert read.documents == {"d1.u1": "Niere & Fieber", "d2.u1": "nichts"}
    assert [(m.start, m.end, m.mention, m.gold, m.kind) for m in read.mentions] == [
        (0, 5, "Niere", [["C0000001"]], "ANAT"),
        (8, 14, "Fieber", [["C0000002", "C0000003"]], "DISO"),
    ]
    assert found["repeated annotations"] == 1
    found.clear()
    files = (path.name, "missing.xml")
    mentions, texts, places = multilingual.read_mantra_files(tmp_path, files, found)
    assert mentions[0].document == "Medline_GSC_de_man:d1.u1" and set(texts) == set(places)
    assert found["files that are not there: missing.xml"] == 1


def test_parts_of_a_task_without_training_data(tmp_path):
    """Mantra's annotations are places to detect, too; XL-BEL has mentions alone."""
    graph = Dictionary(["C0000001"], ["kidney"])
    tasks = {task.name: task for task in linking.TASKS}
    mantra = tasks["Mantra-EL:de"]
    for file in (*mantra.files, *mantra.optional):
        fake.text(tmp_path / file, fake.MANTRA)
    (part,) = mantra.parts(tmp_path, graph, Counter())
    assert set(part.splits) == {"test"} and part.dictionaries == {"test": graph}
    assert set(part.annotated["test"]) == set(part.documents)
    fake.write(tmp_path)
    xl_bel = tasks["XL-BEL:de"]
    assert xl_bel.parts(tmp_path / "XL-BEL", graph, Counter())[0].annotated is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('len="5"', 'len="4"', "'Niere' is not at 0 to 4"),
        ('offset="0"', 'offset="-1"', "expected an annotation with cui, offset and len"),
        ('cui="C0000001"', 'cui="D1"', "expected an annotation with cui, offset and len"),
        ('<unit id="d2.u1">', '<unit id="d1.u1">', "an id of its own"),
        ("</Corpus>", "", "no element found"),
        ("<?xml", "<!DOCTYPE a [<!ENTITY b 'c'>]><x", "expected|declares|not well-formed"),
    ],
)
def test_broken_mantra(tmp_path, old, new, message):
    path = fake.text(tmp_path / "a.xml", fake.MANTRA.replace(old, new))
    with pytest.raises(InputError, match=message):
        multilingual.read_mantra(path)


def test_groups_of_mentions_across_languages():
    texts = ["四个汉字", "五个汉字啊", "八个汉字八个汉字", "九个汉字九个汉字九"]
    mentions = [Mention(t, t, None, None, t, [t], [["C"]], "eye") for t in texts * 5]
    mentions += [Mention("x", "x", None, None, "x", ["x"], [["C"]], "ear")] * 19
    groups = language_populations(mentions)
    assert {name: int(np.sum(inside)) for name, inside in groups.items()} == {
        "1 to 4 characters": 24,
        "5 to 8 characters": 10,
        "9 characters or more": 5,
        "kind: eye": 20,
    }
