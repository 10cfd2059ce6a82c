import io
import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from core.files import InputError
from kg.build.sources import xywy
from tests.commands import command
from tests.fakes import xywy as fake

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "zh_kg" / "medicalkgqa_xywy.tar.gz"


def rows(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def test_fake(tmp_path):
    graph = xywy.read(fake.write(tmp_path))
    assert rows(graph.triples)[:12] == [
        ("百日咳", "并发症", "肺炎"),
        ("百日咳", "并发症", "咳嗽"),
        ("百日咳", "就诊科室", "儿科"),
        ("百日咳", "治疗", "药物治疗"),
        ("百日咳", "相关药物", "糖浆"),
        ("百日咳", "常见症状", "咳嗽"),
        ("百日咳", "常见症状", "干咳"),
        ("百日咳", "检查", "血常规"),
        ("百日咳", "推荐食谱", "白粥"),
        ("百日咳", "宜吃", "鸡蛋"),
        ("百日咳", "忌吃", "海虾"),
        ("肺炎", "并发症", "肺炎"),
    ]
    assert len(graph.triples) == 11 + 9 + 1 and rows(graph.triples)[-1] == (
        "百日咳",
        "常见症状",
        "惊厥",
    )
    assert dict(zip(graph.ids.to_pylist(), graph.entities["type"].to_pylist(), strict=True)) == {
        "百日咳": "disease",
        "肺炎": "disease",
        "咳嗽": "symptom",
        "儿科": "department",
        "药物治疗": "treatment",
        "糖浆": "drug",
        "干咳": "symptom",
        "血常规": "examination",
        "白粥": "recipe",
        "鸡蛋": "food",
        "海虾": "food",
        "发热": "symptom",
        "惊厥": "symptom",
    }
    assert graph.manifest["left_out"] == {
        "second records of a disease (their triples are kept)": 1,
        "rows whose tail is cut (…)": 1,
        "rows that stand there twice": 1 + 8,
        "rows without a tail": 1,
    }
    assert rows(graph.definitions) == [("百日咳", "百日咳是一种病。"), ("肺炎", "肺炎是一种病。")]
    assert graph.counts()["equivalences"] == 0


def test_the_archive_is_the_folder(tmp_path):
    archive = fake.write_archive(tmp_path)
    folder, packed = xywy.read(tmp_path / "medicalkgqa"), xywy.read(archive)
    for part in ("entities", "names", "definitions", "triples"):
        assert getattr(folder, part).equals(getattr(packed, part))
    assert list(xywy.texts(archive)) == list(xywy.texts(tmp_path / "medicalkgqa"))
    assert xywy.files(archive) == [archive]
    assert [f.name for f in xywy.files(tmp_path / "medicalkgqa")] == [
        "medical_0.json",
        "medical_10.json",
    ]


def test_texts(tmp_path):
    assert list(xywy.texts(fake.write(tmp_path))) == [
        ("百日咳", "desc-0", "百日咳是一种病。"),
        ("百日咳", "cause-0", "百日咳的原因一。\n百日咳的原因二。"),
        ("百日咳", "symptom-0", "百日咳时咳嗽。\n夜间重。"),
        ("百日咳", "nursing-0", "注意休息。"),
        ("百日咳", "good-diet-0", "1.宜吃清淡的食物；"),
        ("肺炎", "desc-0", "肺炎是一种病。"),
        ("肺炎", "cause-0", "肺炎的原因一。\n肺炎的原因二。"),
        ("肺炎", "symptom-0", "肺炎时咳嗽。\n夜间重。"),
        ("肺炎", "nursing-0", "注意休息。"),
        ("肺炎", "good-diet-0", "1.宜吃清淡的食物；"),
        ("百日咳", "nursing-1", "注意 休息。"),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"symptoms": "咳嗽"},
            r"key '0', symptom_data symptoms: expected a list of strings, got '咳嗽'",
        ),
        ({"inspect_info": [1]}, r"key '0', inspect_info: expected a list of strings"),
        ({"name": " "}, r"key '0', gaishu_info, name: expected a disease's name, got ' '"),
        ({"food_info": []}, r"key '0', food_info: expected an object, got"),
    ],
)
def test_broken_records(tmp_path, changes, message):
    folder = fake.write(tmp_path, [fake.record("病", **changes), fake.record("二")])
    with pytest.raises(InputError, match=rf"medical_0\.json: {message}"):
        xywy.read(folder)


def test_broken_texts(tmp_path):
    folder = fake.write(tmp_path, [fake.record("病", cause_info=3), fake.record("二")])
    with pytest.raises(InputError, match="cause_info: expected text, got 3"):
        list(xywy.texts(folder))


def test_broken_files(tmp_path):
    with pytest.raises(InputError, match=r"no medical_0\.json, medical_1\.json, … here"):
        xywy.read(tmp_path)
    folder = fake.write(tmp_path / "f")
    (folder / "medical_0.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"medical_0\.json: not valid JSON"):
        xywy.read(folder)
    (folder / "medical_0.json").write_bytes('{"百"}'.encode("gb18030"))
    with pytest.raises(InputError, match=r"medical_0\.json:1: not utf-8 text"):
        xywy.read(folder)
    (folder / "medical_0.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match=r"medical_0\.json: expected .* got list"):
        xywy.read(folder)
    (folder / "medical_0.json").write_text(json.dumps({"0": "病"}), encoding="utf-8")
    with pytest.raises(InputError, match="key '0': expected an object"):
        xywy.read(folder)


def test_broken_archives(tmp_path):
    archive = fake.write_archive(tmp_path)
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        InputError, match=r"tar\.gz: expected a folder or a \.tar\.gz; it is cut or no archive"
    ):
        xywy.read(archive)
    archive.write_bytes(b"no archive")
    with pytest.raises(InputError, match="it is cut or no archive"):
        xywy.read(archive)
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("readme.txt"), io.BytesIO())
    with pytest.raises(InputError, match=r"no medical_0\.json, medical_1\.json, … in it"):
        xywy.read(archive)
    with pytest.raises(InputError, match=r"none\.tar\.gz: no such file"):
        xywy.read(tmp_path / "none.tar.gz")


def test_command(tmp_path, capsys):
    assert (
        command("graph build")(
            ["xywy", str(fake.write_archive(tmp_path)), "--out", str(tmp_path / "graph")]
        )
        == 0
    )
    assert (
        "13 entities, 13 names, 2 definitions, 21 triples, 9 relations, 0 equivalences"
        in capsys.readouterr().out
    )


@pytest.mark.data
@pytest.mark.slow
def test_real():
    if not REAL.is_file():
        pytest.skip(f"{REAL} is not here")
    graph = xywy.read(REAL)
    cut = graph.manifest["left_out"]["rows whose tail is cut (…)"]
    assert (len(graph.triples), cut, len(graph.relations)) == (
        274720,
        1086,
        9,
    )  # the README counts 275,805 with cut ones
    types = Counter(graph.entities["type"].to_pylist())
    assert types["disease"] > 8791 and set(types) - {""} == {
        kind for _, kind in xywy.LISTS.values()
    }
