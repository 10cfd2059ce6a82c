from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.files import InputError
from core.json_files import read_json
from kg.build import entity_rules, refine
from kg.build.sources import cmekg
from kg.graph import KnowledgeGraph, table
from tests.commands import command
from tests.fakes import cmekg as fake
from tests.fakes import graphs

SIDE = "with a side that is no entity: "


def part_rows(graph, part="triples"):
    return [tuple(row.values()) for row in getattr(graph, part).to_pylist()]


def types(graph):
    return dict(
        zip(graph.entities["id"].to_pylist(), graph.entities["type"].to_pylist(), strict=True)
    )


@pytest.mark.parametrize(
    ("name", "kind", "head", "rule"),
    [
        ("头痛", "symptom", False, ""),
        ("肝", "body part", False, ""),
        ("口服", "value", True, "value"),
        ("hypertension", "disease", False, "script"),
        ("MRI检查", "", False, ""),
        ("腹胀，皮肤痒", "symptom", False, "list"),
        ("恶心、呕吐", "", False, "list"),
        ("辅料：蔗糖", "", False, "list"),
        ("甲、乙型肝炎联合疫苗", "drug", True, ""),
        ("有休克史者。停药", "drug", True, "list"),
        ("1,6—二磷酸果糖", "", False, ""),
        ("疼痛,伴有坏疽", "", False, "list"),
        ("尼群地平5mg", "", False, "dose"),
        ("呕吐39.64%", "", False, "dose"),
        ("维生素B12", "", False, ""),
        ("Ⅱ型糖尿病", "disease", False, ""),
        ("用于风湿骨痛", "", False, "wording"),
        ("呼吸困难等", "", False, "wording"),
        ("细菌引起的感染", "", False, "wording"),
        ("一二三四五六七八九十一二三四五", "", False, ""),
        ("一二三四五六七八九十一二三四五六", "", False, "length"),
        ("一二三四五六七八九十一二三四五六", "", True, ""),
        ("Henoch—Schonlein紫癜", "", False, ""),
    ],
)
def test_what_is_no_entity(name, kind, head, rule):
    assert entity_rules.no_entity(name, kind, head) == rule


def test_length_and_script_are_settings():
    assert entity_rules.no_entity("一二三四", "", False, longest=3) == "length"
    assert entity_rules.no_entity("MRI", "examination", False, foreign=True) == ""


def test_signatures_and_votes():
    triples = [
        ("甲", "治", "一"),
        ("乙", "治", "二"),
        ("丙", "治", "三"),
        ("丁", "治", "四"),
        ("丁", "见", "五"),
    ]
    known = dict.fromkeys("甲乙丙丁一二三四五", "") | {
        "甲": "药",
        "乙": "药",
        "丙": "药",
        "一": "病",
        "二": "病",
    }
    # three of four heads are 药; two of four tails are 病, which is not more than a half
    assert entity_rules.signatures(triples, known) == {"治": ("药", ""), "见": ("", "")}
    assert entity_rules.signatures(triples, known, share=0.4) == {
        "治": ("药", "病"),
        "见": ("", ""),
    }
    assert entity_rules.vote_types(triples, known) == {"丁": "药"}
    assert entity_rules.vote_types(triples, known, share=0.4) == {
        "丁": "药",
        "三": "病",
        "四": "病",
    }


@given(
    st.lists(
        st.tuples(
            *[st.sampled_from("甲乙丙丁戊"), st.sampled_from("rs"), st.sampled_from("甲乙丙丁戊")]
        )
    ),
    st.dictionaries(st.sampled_from("甲乙丙丁戊"), st.sampled_from("xy"), max_size=4),
)
def test_votes_against_the_definition(triples, some):
    known = dict.fromkeys("甲乙丙丁戊", "") | some

    def signature(relation, place):
        side = [row[place] for row in triples if row[1] == relation]
        return next((k for k in "xy" if sum(known[e] == k for e in side) > len(side) / 2), "")

    expected = {}
    for entity in "甲乙丙丁戊":
        said = [
            signature(row[1], place) for row in triples for place in (0, 2) if row[place] == entity
        ]
        x, y = said.count("x"), said.count("y")
        if not known[entity] and x != y:
            expected[entity] = "x" if x > y else "y"
    assert entity_rules.vote_types(triples, known) == expected


def test_loose_tails():
    triples = [
        ("甲", "r", "一"),
        ("甲", "r", "二"),
        ("乙", "r", "二"),
        ("甲", "r", "乙"),
        ("甲", "r", "三"),
    ]
    assert entity_rules.loose_tails(triples, {"三": "病"}) == {"一"}


def test_every_rule_counts_what_it_drops():
    graph = graphs.graph(
        {
            "药": "drug",
            "丸": "drug",
            "病甲": "disease",
            "病乙": "disease",
            "痛": "symptom",
            "口服": "value",
            "fever": "symptom",
            "咳、喘": "",
            "5mg糖": "",
            "呕吐等": "",
            "一二三四五六七八九十一二三四五六": "",
            "孤岛": "disease",
            "湖南": "",
            "文本一": "",
            "文本二": "",
            "单次": "",
            "稀": "symptom",
        },
        [
            ("药", "治", "病甲"),
            ("药", "治", "病甲"),
            ("药", "治", "病乙"),
            ("丸", "治", "病甲"),
            ("丸", "治", "病乙"),
            ("病甲", "并发", "病甲"),
            ("药", "服", "口服"),
            ("病甲", "有", "fever"),
            ("病甲", "有", "咳、喘"),
            ("药", "含", "5mg糖"),
            ("病甲", "有", "呕吐等"),
            ("病甲", "有", "一二三四五六七八九十一二三四五六"),
            ("药", "产地", "湖南"),
            ("病甲", "因", "文本一"),
            ("病乙", "因", "文本二"),
            ("药", "商品名", "丸"),
            ("药", "比", "丸"),
            ("病甲", "有", "痛"),
            ("病乙", "有", "痛"),
            ("药", "致", "痛"),
            ("丸", "致", "病甲"),
            ("病甲", "致", "痛"),
            ("药", "致", "单次"),
            ("病乙", "见", "稀"),
        ],
    )
    done = refine.refine_graph(graph)
    report = done.manifest["refined"]
    assert part_rows(done) == [
        ("药", "治", "病甲"),
        ("药", "治", "病乙"),
        ("丸", "治", "病甲"),
        ("丸", "治", "病乙"),
        ("病甲", "有", "痛"),
        ("病乙", "有", "痛"),
        ("药", "致", "痛"),
        ("丸", "致", "病甲"),
        ("病甲", "致", "痛"),
    ]
    assert report["triples"] == {
        "given": 24,
        "kept": 9,
        "dropped": {
            "self-loops": 1,
            "duplicates": 1,
            "of an equivalence relation": 1,
            SIDE + "value": 1,
            SIDE + "script": 1,
            SIDE + "list": 1,
            SIDE + "dose": 1,
            SIDE + "wording": 1,
            SIDE + "length": 1,
            "between the two sides of an equivalence": 1,
            "of a relation that leads to no medical entities": 1,
            "of a relation that leads to free text": 2,
            "with a tail of no type that stands there once": 1,
            "of a relation seen too rarely": 1,
        },
    }
    assert report["triples"]["given"] == report["triples"]["kept"] + sum(
        report["triples"]["dropped"].values()
    )
    assert report["relations"] == {"given": 11, "free text": ["因"], "seen too rarely": ["见"]}
    assert part_rows(done, "equivalences") == [("药", "商品名", "丸")]
    assert done.ids.to_pylist() == ["药", "丸", "病甲", "病乙", "痛"]
    assert report["entities"]["dropped"] == {
        "no entity: value": 1,
        "no entity: script": 1,
        "no entity: list": 1,
        "no entity: dose": 1,
        "no entity: wording": 1,
        "no entity: length": 1,
        "isolated in the source": 1,
        "isolated by the rules": 5,
    }
    assert report["entities"]["with a name of one character"] == 3


def test_settings_keep_what_rules_drop():
    rows = [
        ("药", "治", "病"),
        ("丸", "治", "病"),
        ("药", "产地", "湖南"),
        ("丸", "产地", "湖南"),
        ("药", "治", "fever"),
        ("病", "见", "热"),
        ("药", "因", "文本"),
    ]
    graph = graphs.graph(dict.fromkeys(["药", "丸", "病", "湖南", "fever", "热", "文本"], ""), rows)
    assert (
        part_rows(
            refine.refine_graph(
                graph, rules=refine.Refining(without=(), least=1, loose=1, foreign=True)
            )
        )
        == rows[:4]
    )  # the rest: untyped, once
    typed = graphs.graph(
        dict.fromkeys(["药", "丸", "病", "湖南", "fever", "热", "文本"], "x"), rows
    )
    assert (
        part_rows(
            refine.refine_graph(typed, rules=refine.Refining(without=(), least=1, foreign=True))
        )
        == rows
    )
    assert part_rows(
        refine.refine_graph(typed, rules=refine.Refining(without=("见", "因"), foreign=True))
    ) == [*rows[:5]]


def test_equivalences_are_undirected_and_apart():
    ids = ["病", "疾", "恙", "syndrome", "药", "症，候"]
    graph = graphs.graph(
        dict.fromkeys(ids, "x"),
        [
            ("疾", "别称", "病"),
            ("病", "又称", "疾"),
            ("病", "别称", "恙"),
            ("病", "别称", "syndrome"),
            ("病", "别称", "症，候"),
            ("药", "治", "病"),
            ("药", "治", "疾"),
            ("病", "并发", "恙"),
            ("恙", "并发", "病"),
            ("恙", "并发", "药"),
            ("药", "并发", "恙"),
        ],
    )
    graph.equivalences = table(
        "equivalences", {"head": ["恙"], "relation": ["same"], "tail": ["疾"]}
    )
    done = refine.refine_graph(graph)
    assert part_rows(done, "equivalences") == [
        ("疾", "same", "恙"),
        ("病", "别称", "疾"),
        ("病", "别称", "恙"),
    ]
    report = done.manifest["refined"]
    assert report["equivalences"] == {
        "given": 6,
        "kept": 3,
        "dropped": {
            "that stand there twice, in either direction": 1,
            SIDE + "script": 1,
            SIDE + "list": 1,
        },
    }
    assert report["triples"]["dropped"]["between the two sides of an equivalence"] == 2
    assert not {frozenset((h, t)) for h, _, t in part_rows(done)} & {
        frozenset((h, t)) for h, _, t in part_rows(done, "equivalences")
    }
    foreign = refine.refine_graph(graph, rules=refine.Refining(foreign=True))  # they stay Chinese
    assert foreign.manifest["refined"]["equivalences"] == report["equivalences"]


def test_no_name_of_an_equivalent_stays():
    """A dictionary would link 羊癫疯 to 癫痫, which is what an evaluation of the pair asks."""
    names = [
        ("癫痫", "羊癫疯", "synonym", "zh"),
        ("癫痫", "痫症", "synonym", "zh"),
        ("癫痫", "epilepsy", "synonym", "en"),
        ("羊癫疯", "癫痫", "synonym", "zh"),
        ("癫痫", "痫症", "exact", "zh"),
        ("走", "走哺", "synonym", "zh"),
    ]
    graph = graphs.graph(
        {"癫痫": "disease", "羊癫疯": "", "药": "drug", "走": "disease"},
        [
            ("药", "治", "癫痫"),
            ("药", "治", "癫痫病"),
            ("癫痫", "别称", "羊癫疯"),
            ("药", "治", "羊癫疯"),
        ],
        names,
        missing="disease",
    )
    done = refine.refine_graph(graph)
    found = {(row["id"], row["name"]) for row in done.names.to_pylist()}
    own = {(e, e) for e in ("癫痫", "羊癫疯", "药", "癫痫病")}
    assert found == own | {("癫痫", "痫症")}
    assert done.manifest["refined"]["names"]["dropped"] == {
        "of entities that are left out": 2,
        "of another script": 1,
        "that an equivalent entity has for its own": 2,
        "that stand there twice": 1,
    }


def test_names_that_differ_in_blanks_are_no_pair():
    """kg.linking finds either where the other is."""
    graph = graphs.graph(
        dict.fromkeys(["维生素 AD", "维生素ad", "鱼肝油", "药"], "drug"),
        [
            ("维生素 AD", "别称", "维生素ad"),
            ("维生素 AD", "别称", "鱼肝油"),
            ("药", "比", "维生素ad"),
            ("药", "比", "鱼肝油"),
        ],
        [("鱼肝油", "维生素 ad", "synonym", "zh")],
    )
    done = refine.refine_graph(graph)
    assert part_rows(done, "equivalences") == [("维生素 AD", "别称", "鱼肝油")]
    assert done.manifest["refined"]["equivalences"]["dropped"] == {
        "of a name with itself, as linking compares them": 1
    }
    assert done.manifest["refined"]["names"]["dropped"] == {
        "that an equivalent entity has for its own": 1
    }


def test_types_in_the_order_of_their_sources():
    rows = [
        ("药甲", "治", "病甲"),
        ("药乙", "治", "病乙"),
        ("药丙", "治", "病丙"),
        ("药甲", "涉", "痛"),
        ("药乙", "涉", "痛"),
        ("药甲", "涉", "咳"),
        ("药乙", "涉", "咳"),
        ("病甲", "别称", "病丁"),
        ("药甲", "涉", "谜"),
        ("药乙", "涉", "谜"),
    ]
    known = {
        "药甲": "drug",
        "药乙": "drug",
        "药丙": "",
        "病甲": "disease",
        "病乙": "disease",
        "病丙": "",
        "痛": "",
        "咳": "",
        "病丁": "",
        "谜": "",
    }
    other = graphs.graph({"痛": "symptom", "病丁": "disease", "谜": "value", "药甲": "herb"}, [])
    late = graphs.graph({"咳嗽": "symptom", "痛": "disease"}, [], [("咳嗽", "咳", "synonym", "zh")])
    done = refine.refine_graph(graphs.graph(known, rows), [("other", other), ("late", late)])
    assert types(done) == known | {
        "药丙": "drug",
        "病丙": "disease",
        "痛": "symptom",
        "咳": "symptom",
        "病丁": "disease",
        "谜": "未知",
    }
    assert done.manifest["refined"]["types"] == {
        "their own": 4,
        "relations": 2,
        "other": 2,
        "late": 1,
        "equivalents": 0,
        "未知": 1,
    }
    alone = refine.refine_graph(graphs.graph(known, rows))
    assert (
        alone.manifest["refined"]["types"]["equivalents"] == 1 and types(alone)["病丁"] == "disease"
    )


def test_a_name_of_two_entities_decides_no_type():
    graph = graphs.graph(
        {"甲": "a", "乙": "b"}, [], [("甲", "丙", "synonym", "zh"), ("乙", "丙", "synonym", "zh")]
    )
    assert entity_rules.types_by_name(graph) == {"甲": "a", "乙": "b"}


def test_definitions_follow_their_entities():
    graph = graphs.graph(
        {"药": "drug", "病": "disease", "岛": "disease"}, [("药", "治", "病"), ("药", "防", "病")]
    )
    graph.definitions = table("definitions", {"id": ["岛", "病"], "text": ["甲", "乙"]})
    assert part_rows(refine.refine_graph(graph, rules=refine.Refining(least=1)), "definitions") == [
        ("病", "乙")
    ]


def test_bad_settings_and_nothing_left():
    graph = graphs.graph({"a": "", "b": ""}, [("a", "r", "b"), ("b", "r", "a")])
    with pytest.raises(InputError, match=r"no triple is left of 2: .*script': 2.*--foreign"):
        refine.refine_graph(graph)
    for wrong in ({"longest": 0}, {"least": 0}, {"loose": 1.5}, {"share": -1}):
        with pytest.raises(InputError, match="expected longest and least of 1 or more"):
            refine.refine_graph(graph, rules=refine.Refining(**wrong))


def test_refining_twice_changes_nothing():
    once = refine.refine_graph(
        graphs.graph(
            {"药甲": "drug", "药乙": "drug", "病": "", "疾": ""},
            [("药甲", "治", "病"), ("药乙", "治", "病"), ("病", "别称", "疾")],
        )
    )
    twice = refine.refine_graph(once)
    for part in ("entities", "names", "triples", "equivalences"):
        assert getattr(twice, part).equals(getattr(once, part))


def test_the_command(tmp_path, capsys):
    cmekg.read(fake.write(tmp_path)).save(tmp_path / "graph")
    run_refine = command("graph refine")
    words = [str(tmp_path / "graph"), "--out", str(tmp_path / "fine")]
    assert run_refine(words) == 0
    said = capsys.readouterr().out
    graph = KnowledgeGraph.load(tmp_path / "fine")
    relations = Counter(graph.triples["relation"].to_pylist())
    assert (
        "别称" not in relations and "用法用量" not in relations and relations["不良反应"] == 40 * 5
    )
    pairs = Counter(graph.equivalences["relation"].to_pylist())
    assert pairs == {"别称": 2 * 20, "通用名": 40}
    assert "left out: 80 of an equivalence relation" in said and "%) 未知" in said
    before = (tmp_path / "fine" / "manifest.json").stat().st_ino
    assert run_refine(words) == 0 and "kept: " in capsys.readouterr().err
    assert (tmp_path / "fine" / "manifest.json").stat().st_ino == before
    assert run_refine([*words, "--types", str(tmp_path / "graph"), "--longest", "4"]) == 0
    assert "kept: " not in capsys.readouterr().err
    assert read_json(tmp_path / "fine" / "manifest.json")["options"]["longest"] == 4
    assert run_refine([str(tmp_path / "none"), "--out", str(tmp_path / "x")]) == 2
    assert "no knowledge graph here" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    assert run_refine([str(tmp_path / "graph"), "--out", str(tmp_path / "mine")]) == 2
    assert "it is left alone" in capsys.readouterr().err


@pytest.mark.slow
def test_real_cmekg():
    """What PyCMeKG 0.2.5 becomes; see docs/chinese-graph.md."""
    graph = refine.refine_graph(cmekg.read())
    report = graph.manifest["refined"]
    assert (
        report["triples"]["given"]
        == 967406
        == report["triples"]["kept"] + sum(report["triples"]["dropped"].values())
    )
    assert report["equivalences"]["given"] == 19840
    assert report["entities"]["given"] == 170214
    assert report["entities"]["given"] == report["entities"]["kept"] + sum(
        report["entities"]["dropped"].values()
    )
    assert report["types"]["未知"] < 0.05 * len(graph.entities)
    pairs = {frozenset((h, t)) for h, _, t in part_rows(graph, "equivalences")}
    assert len(pairs) == len(graph.equivalences) and not pairs & {
        frozenset((h, t)) for h, _, t in part_rows(graph)
    }
    assert frozenset(("癫痫病", "羊癫风")) in pairs
