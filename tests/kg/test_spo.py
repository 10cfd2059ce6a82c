import gzip
from collections import Counter
from pathlib import Path

import pytest

from core.files import InputError
from kg.build.sources import spo

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "zh_kg" / "kbert_Medical.spo.gz"
LINES = (
    "眼睛发红\t类别\t症状\n右踝内侧\t类别\t部位\n头痛\t类别\t症状\n头痛\t类别\t疾病\n头痛\t类别\t症状\n\n"
    "甲\t类别\t药\n甲\t治\t头痛\n甲\t治\t乙\n甲\t治\t乙\n"
)


def test_types_and_triples(tmp_path):
    path = tmp_path / "Medical.spo.gz"
    path.write_bytes(gzip.compress(LINES.encode()))
    graph = spo.read(path)
    assert [tuple(row.values()) for row in graph.entities.to_pylist()] == [
        ("眼睛发红", "眼睛发红", "symptom"),
        ("右踝内侧", "右踝内侧", "body part"),
        ("头痛", "头痛", "symptom"),
        ("甲", "甲", "药"),
        ("乙", "乙", ""),
    ]
    assert [tuple(row.values()) for row in graph.triples.to_pylist()] == [
        ("甲", "治", "头痛"),
        ("甲", "治", "乙"),
    ]
    assert graph.manifest["left_out"] == {
        "further types of an entity": 1,
        "lines that stand there twice": 2,
    }


@pytest.mark.parametrize("line", ["甲\t类别", "甲 类别 症状", "甲\t\t症状", "甲\t类别\t症状\t疾病"])
def test_broken(tmp_path, line):
    (tmp_path / "x.spo").write_text(f"乙\t类别\t症状\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.spo:2: expected subject, predicate, object"):
        spo.read(tmp_path / "x.spo")


def test_encoding(tmp_path):
    (tmp_path / "x.spo").write_bytes(LINES.encode("gb18030"))
    assert len(spo.read(tmp_path / "x.spo", encoding="gb18030").entities) == 5
    with pytest.raises(InputError, match=r"x\.spo:1: not utf-8 text"):
        spo.read(tmp_path / "x.spo")


@pytest.mark.data
def test_real():
    if not REAL.is_file():
        pytest.skip(f"{REAL} is not here")
    graph = spo.read(REAL)
    types = Counter(graph.entities["type"].to_pylist())
    assert len(graph.entities) + graph.manifest["left_out"]["further types of an entity"] == 13864
    assert set(types) == set(spo.TYPES.values()) and len(graph.triples) == 0
