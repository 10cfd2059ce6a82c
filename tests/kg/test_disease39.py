from pathlib import Path

import pytest

from core.files import InputError
from kg.build.sources import disease39
from tests.commands import command
from tests.fakes import disease39 as fake

REAL = (
    Path(__file__).parents[2].parent
    / "shared"
    / "data"
    / "zh_kg"
    / "disease39_alias_gb18030.csv.gz"
)


def rows(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def test_fake(tmp_path):
    graph = disease39.read(fake.write(tmp_path))
    assert rows(graph.triples) == [
        ("阳痿", "常见发病部位", "阴茎"),
        ("阳痿", "就诊科室", "男科"),
        ("阳痿", "就诊科室", "生殖健康"),
        ("阳痿", "检查", "B超"),
        ("阳痿", "检查", "血常规"),
        ("阳痿", "常见症状", "精冷"),
        ("阳痿", "治疗", "药物治疗"),
        ("阳痿", "治疗", "心理治疗"),
        ("阳痿", "相关药物", "他达拉非片"),
        ("癫痫", "常见发病部位", "颅脑"),
        ("癫痫", "就诊科室", "神经内科"),
        ("癫痫", "检查", "脑电图"),
        ("癫痫", "常见症状", "惊厥"),
        ("癫痫", "常见症状", "昏睡"),
        ("癫痫", "并发症", "抑郁症"),
        ("癫痫", "相关药物", "普瑞巴林胶囊"),
        ("癫痫", "检查", "头颅平片"),
        ("癫痫", "相关药物", "奥卡西平片"),
        ("寿斑", "常见发病部位", "皮肤"),
        ("寿斑", "就诊科室", "皮肤科"),
    ]
    same = [
        ("阳痿", "勃起功能障碍"),
        ("阳痿", "阳萎"),
        ("癫痫", "羊癫疯"),
        ("癫痫", "羊角风"),
        ("孔闭锁", "小儿侧孔、中孔闭锁"),
        ("孔闭锁", "Dandy综合征"),
        ("寿斑", "老年斑"),
        ("寿斑", "色素斑"),
    ]
    assert rows(graph.equivalences) == [(name, "别称", alias) for name, alias in same]
    assert rows(graph.names)[-len(same) :] == [
        (name, alias, "synonym", "zh", "39.net") for name, alias in same
    ]
    types = dict(zip(graph.ids.to_pylist(), graph.entities["type"].to_pylist(), strict=True))
    assert (
        types["羊癫疯"] == types["癫痫"] == types["抑郁症"] == "disease"
        and types["阴茎"] == "body part"
    )
    assert (
        types["他达拉非片"] == "drug"
        and types["心理治疗"] == "treatment"
        and types["男科"] == "department"
    )
    assert graph.manifest["left_out"] == {
        "names that are cut (…)": 1,
        "second rows of a disease (what they say is kept)": 1,
        "words for nothing (暂无相关资料)": 1,
        "aliases that repeat the name or another alias": 2,
        "triples that stand there twice": 5,
        "rows whose disease is cut (…)": 1,
    }


def test_an_alias_that_is_listed_as_something_else_keeps_that_type(tmp_path):
    path = fake.write(tmp_path, ("甲,乙,,,,,,,乙,,,,,,,,,,,",))
    assert disease39.read(path).entities["type"].to_pylist() == ["disease", "symptom"]


@pytest.mark.parametrize(
    ("row", "header", "message"),
    [
        ("甲,乙", fake.HEADER, r"csv\.gz:2: expected 20 columns, got 2"),
        (" ,,,,,,,,,,,,,,,,,,,", fake.HEADER, r"csv\.gz:2: name is empty"),
        ('甲,"乙"丙,,,,,,,,,,,,,,,,,,', fake.HEADER, r"csv\.gz:2: not valid CSV"),
        ("甲,乙", "name,alias", r"csv\.gz:1: expected the columns .*part is missing"),
    ],
)
def test_broken(tmp_path, row, header, message):
    with pytest.raises(InputError, match=message):
        disease39.read(fake.write(tmp_path, (row,), header))


def test_encodings(tmp_path):
    path = fake.write(tmp_path, encoding="utf-8")
    assert disease39.read(path, encoding="utf-8").ids[0].as_py() == "阳痿"
    with pytest.raises(InputError, match=r"csv\.gz:\d+: not ascii text"):
        disease39.read(path, encoding="ascii")
    with pytest.raises(InputError, match="--encoding gb99: no such encoding"):
        disease39.read(path, encoding="gb99")


def test_command(tmp_path, capsys):
    assert (
        command("graph build")(
            ["disease39", str(fake.write(tmp_path)), "--out", str(tmp_path / "graph")]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert (
        "20 triples, 7 relations, 8 equivalences" in said
        and "left out: 1 rows whose disease is cut" in said
    )


@pytest.mark.data
def test_real():
    if not REAL.is_file():
        pytest.skip(f"{REAL} is not here")
    graph = disease39.read(REAL)
    left = graph.manifest["left_out"]
    assert left["rows whose disease is cut (…)"] == 827 and len(graph.relations) == 7
    # the README counts 9,081 pairs of aliases and 159,023 triples
    assert len(graph.equivalences) == 9040 and abs(len(graph.triples) - 159023) < 0.02 * 159023
    assert not [name for name in graph.entities["name"].to_pylist() if name.endswith("...")]
