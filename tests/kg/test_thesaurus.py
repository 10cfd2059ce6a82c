"""Names that mean the same, by entity, against hand-worked graphs and a slow version of the
definition."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.files import InputError
from kg.build.merge import comparison_key
from kg.build.thesaurus import Thesaurus, build_thesaurus, read_pairs, rows
from tests.commands import command
from tests.fakes.graphs import graph

main = command("graph thesaurus")

REAL = (
    Path(__file__).parents[2].parent
    / "shared"
    / "data"
    / "zh_cblue"
    / "CHIP-CDN_train_icd10.tar.gz"
)
TYPES = {
    "癫痫": "disease",
    "羊癫疯": "disease",
    "立普妥": "drug",
    "阿乐": "drug",
    "阿托伐他汀": "drug",
    "肝": "body part",
    "肺炎": "disease",
}
SAME = [
    ("癫痫", "别称", "羊癫疯"),
    ("立普妥", "通用名", "阿托伐他汀"),
    ("阿托伐他汀", "商品名", "阿乐"),
]
NAMES = [
    ("癫痫", "痫症", "synonym", "zh"),
    ("癫痫", "ＥＰ 病", "synonym", "zh"),
    ("癫痫", "ep病", "synonym", "zh"),
    ("肝", "木", "synonym", "zh"),
    ("肺炎", "痫症", "synonym", "zh"),
]


def test_hand_worked():
    found, left_out = rows(graph(TYPES, [], NAMES, SAME))
    assert found == [
        ("癫痫", "癫痫", "own"),
        ("癫痫", "ＥＰ 病", "alias"),
        ("癫痫", "羊癫疯", "equivalence"),
        ("羊癫疯", "羊癫疯", "own"),
        ("羊癫疯", "癫痫", "equivalence"),
        ("立普妥", "立普妥", "own"),
        ("立普妥", "阿托伐他汀", "generic"),
        ("阿乐", "阿乐", "own"),
        ("阿乐", "阿托伐他汀", "generic"),
        ("阿托伐他汀", "阿托伐他汀", "own"),
        ("阿托伐他汀", "立普妥", "brand"),
        ("阿托伐他汀", "阿乐", "brand"),
    ]
    # 痫症 names 癫痫 and 肺炎, which nothing joins; 肝 and 木 have one character. 立普妥 and 阿乐 are two steps  # noqa: E501
    # apart.
    assert left_out == {"ambiguous names": 2, "names of one character": 2}


def test_pairs():
    found, left_out = rows(
        graph(TYPES, [], [], []),
        [
            ("羊角风", ["癫痫"]),
            ("癫痫", ["癫痫发作"]),
            ("两个", ["癫痫", "肺炎"]),
            ("无名", ["无此病"]),
            ("肺 炎", ["肺炎"]),
            ("没有", []),
            ("癫痫", ["羊癫疯"]),
            ("都是", ["肺炎"]),
            ("都是", ["羊癫疯"]),
        ],
    )
    assert found == [
        ("癫痫", "癫痫", "own"),
        ("癫痫", "羊角风", "pair"),
        ("癫痫", "癫痫发作", "pair"),
        ("癫痫", "羊癫疯", "pair"),
        ("羊癫疯", "羊癫疯", "own"),
        ("羊癫疯", "癫痫", "pair"),
    ]
    assert left_out == {
        "rows with several standard terms or none": 2,
        "pairs that no name of the graph is in": 1,
        "pairs of equal names": 1,
        "ambiguous names": 2,
        "names of one character": 1,
    }


IDS = ["甲子", "乙丑", "丙寅", "丁卯"]
ALIASES = ["甲子", "乙 丑", "一", "ＡＢ", "ab", "午未"]


@given(
    st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(ALIASES)), max_size=6),
    st.lists(
        st.tuples(st.sampled_from(IDS), st.sampled_from(["别称", "商品名"]), st.sampled_from(IDS)),
        max_size=4,
    ),
)
def test_against_the_definition(aliases, same):
    given_graph = graph(
        dict.fromkeys(IDS, ""), [], [(e, n, "synonym", "zh") for e, n in aliases], same
    )
    found, _ = rows(given_graph)
    got = {entity: {comparison_key(name) for e, name, _ in found if e == entity} for entity in IDS}
    joined = {e: {b for a, _, b in same if a == e} | {a for a, _, b in same if b == e} for e in IDS}
    own = {e: {comparison_key(e)} | {comparison_key(n) for a, n in aliases if a == e} for e in IDS}
    every = {e: own[e] | {comparison_key(other) for other in joined[e]} for e in IDS}
    for entity in IDS:
        kept = set()
        for name in every[entity]:
            bearers = {e for e in IDS if name in every[e]}
            centres = {e for e in IDS if name in own[e]}
            if len(name) > 1 and (
                len(bearers) == 1 or any(bearers <= joined[c] | {c} for c in centres)
            ):
                kept.add(name)
        assert got[entity] == (kept if len(kept) > 1 else set())


def test_written_and_loaded(tmp_path, capsys):
    graph(TYPES, [], NAMES, SAME).save(tmp_path / "graph")
    (tmp_path / "pairs.tsv").write_text("羊角风\t癫痫\n\n两个\t癫痫##肺炎\n")
    (tmp_path / "cdn.json").write_text(
        json.dumps(
            [
                {"text": "肺部炎症", "normalized_result": "肺炎"},
                {"text": "杂", "normalized_result": "肺炎##癫痫"},
            ]
        )
    )
    words = [
        "--graph",
        f"{tmp_path / 'graph'}",
        "--pairs",
        f"{tmp_path / 'pairs.tsv'}",
        f"{tmp_path / 'cdn.json'}",
        "--out",
        f"{tmp_path / 'out'}",
    ]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "6 entities with 15 names" in told and "by kind:" in told and "3 disease, 3 drug" in told
    loaded = Thesaurus.load(tmp_path / "out")
    assert len(loaded) == 6
    assert (
        loaded.names("癫痫") == ["癫痫", "ＥＰ 病", "羊癫疯", "羊角风"]
        and loaded.names("肝") == loaded.names("?") == []
    )
    assert loaded.kinds("肺炎") == {"肺炎": "own", "肺部炎症": "pair"} and loaded.kinds("?") == {}


def test_empty(tmp_path, capsys):
    graph({"肺炎": "disease"}, []).save(tmp_path / "graph")
    assert main(["--graph", f"{tmp_path / 'graph'}", "--out", f"{tmp_path / 'out'}"]) == 0
    assert "warning: the thesaurus is empty" in capsys.readouterr().out
    assert len(Thesaurus.load(tmp_path / "out")) == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.tsv", "甲\t乙\n甲乙\n", r"x\.tsv:2: expected a mention and its standard term"),
        ("x.tsv", "甲\t\n", r"x\.tsv:1: expected a mention"),
        ("x.json", "[{", r"x\.json: not valid JSON"),
        ("x.json", "{}", r"x\.json: expected a list of objects"),
        (
            "x.json",
            '[{"text": "甲", "normalized_result": "乙"}, {"text": "甲"}]',
            r"x\.json: object 2: expected strings",
        ),
        ("x.json", "[3]", r"x\.json: object 1: expected strings"),
    ],
)
def test_broken_pairs(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_pairs(tmp_path / name))


def test_missing_and_damaged(tmp_path, capsys):
    with pytest.raises(InputError, match="no thesaurus here"):
        Thesaurus.load(tmp_path)
    assert main(["--graph", f"{tmp_path / 'none'}", "--out", f"{tmp_path / 'out'}"]) == 2
    assert "no knowledge graph here" in capsys.readouterr().err and not (tmp_path / "out").exists()
    graph(TYPES, [], [], SAME).save(tmp_path / "graph")
    build_thesaurus(tmp_path / "graph", tmp_path / "out")
    (tmp_path / "out" / "thesaurus.parquet").write_bytes(b"cut")
    with pytest.raises(InputError, match="not the file its manifest describes"):
        Thesaurus.load(tmp_path / "out")


@pytest.mark.data
@pytest.mark.skipif(not REAL.is_file(), reason=f"{REAL} is not here")
def test_chip_cdn(tmp_path):
    with tarfile.open(REAL) as archive:
        raw = archive.extractfile("CHIP-CDN/CHIP-CDN_train.json")
        assert raw is not None
        (tmp_path / "train.json").write_bytes(raw.read())
    found = list(read_pairs(tmp_path / "train.json"))
    assert len(found) == 6000 and sum(len(terms) == 1 for _, terms in found) == 2736
