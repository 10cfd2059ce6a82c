import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.files import InputError
from core.json_files import read_json
from kg.build import merge
from kg.build.merge import NEW_IDS
from kg.graph import KnowledgeGraph, table
from tests.commands import command
from tests.fakes.graphs import graph


def rows(graph, part="triples"):
    return [tuple(row.values()) for row in getattr(graph, part).to_pylist()]


def alias(entity, *names, kind="synonym"):
    return [(entity, name, kind, "zh") for name in names]


def test_by_name():
    one = graph(
        {"癫痫": "disease", "Ⅱ型 糖尿病": "", "B超": "examination"}, [("癫痫", "检查", "B超")]
    )
    two = graph(
        {"癫痫": "symptom", "ii型糖尿病": "disease", "b 超": "examination", "头痛": "symptom"},
        [("癫痫", "检查", "b 超"), ("ii型糖尿病", "常见症状", "头痛")],
    )
    whole = merge.merge_graphs([("one", one), ("two", two)])
    assert rows(whole, "entities") == [
        ("癫痫", "癫痫", "disease"),
        ("Ⅱ型 糖尿病", "Ⅱ型 糖尿病", "disease"),
        ("B超", "B超", "examination"),
        ("头痛", "头痛", "symptom"),
    ]
    assert rows(whole) == [("癫痫", "检查", "B超"), ("Ⅱ型 糖尿病", "常见症状", "头痛")]
    assert ("Ⅱ型 糖尿病", "ii型糖尿病", "synonym", "zh", "fake") in rows(whole, "names")
    report = whole.manifest["merged"]
    assert report[0] == {"graph": "one", "given": one.counts()}
    assert report[1] | {"graph": "two"} == {
        "graph": "two",
        "given": two.counts(),
        "joined by name": 3,
        "joined by alias": 0,
        "ambiguous names, left apart": 0,
        "entities with ambiguous aliases, left apart": 0,
        "new entities": 1,
        NEW_IDS: 0,
        "types given": 1,
        "conflicts of type (the first is kept)": 1,
        "names added": 3,
        "definitions added": 0,
        "definitions that stand there already, dropped": 0,
        "triples added": 1,
        "triples that stand there already, dropped": 1,
        "equivalences added": 0,
        "equivalences that stand there already, dropped": 0,
    }


def test_by_alias():
    one = graph(
        {"癫痫": "", "感冒": ""}, [], alias("癫痫", "羊癫疯", "羊角风") + alias("感冒", "伤风")
    )
    two = graph({"羊癫疯": "", "伤风感冒": ""}, [], alias("伤风感冒", "伤风"))
    same, counts = merge.match_entities(one, two)
    assert same == {"羊癫疯": "癫痫", "伤风感冒": "感冒"} and counts["joined by alias"] == 2
    whole = merge.merge_graphs([("one", one), ("two", two)])
    assert whole.ids.to_pylist() == ["癫痫", "感冒"]
    assert ("感冒", "伤风感冒", "synonym", "zh", "fake") in rows(whole, "names")
    # the alias occurs once, although both have it
    assert [row[:2] for row in rows(whole, "names")].count(("感冒", "伤风")) == 1


@pytest.mark.parametrize("kind", ["narrow", "broad", "abbreviation", "related"])
def test_other_kinds_of_names_join_nothing(kind):
    one, two = graph({"甲": ""}, [], alias("甲", "丙", kind=kind)), graph({"丙": ""}, [])
    assert merge.match_entities(one, two)[0] == {}


def test_a_short_form_joins_nothing():
    """DM is dermatomyositis and diabetes mellitus; a longer alias, typographic or not, joins."""
    one = graph(
        {"A": "disease"},
        [],
        [("A", "DM", "synonym", "en"), ("A", "Crohn\u2019s pox", "synonym", "en")],
    )
    other = graph({"B": "disease"}, [], [("B", "DM", "exact", "en")])
    third = graph({"C": "disease"}, [], [("C", "crohn's pox", "exact", "en")])
    assert merge.match_entities(one, other)[0] == {}
    assert merge.match_entities(one, third)[0] == {"C": "A"}


def test_ambiguous_aliases_stay_apart():
    # an alias of two; two aliases that lead to two; one that two of the other have; one of an
    # entity that is joined
    one = graph(dict.fromkeys("甲乙丙", ""), [], alias("甲", "共") + alias("乙", "共"))
    assert merge.match_entities(one, graph({"共": ""}, []))[0] == {}
    assert (
        merge.match_entities(one, graph({"共": ""}, []))[1][
            "entities with ambiguous aliases, left apart"
        ]
        == 1
    )
    assert merge.match_entities(one, graph({"戊": ""}, [], alias("戊", "甲", "乙")))[0] == {}
    assert (
        merge.match_entities(
            one, graph({"戊": "", "己": ""}, [], alias("戊", "甲") + alias("己", "甲"))
        )[0]
        == {}
    )
    joined, counts = merge.match_entities(one, graph({"甲": "", "戊": ""}, [], alias("戊", "甲")))
    assert joined == {"甲": "甲"} and counts["entities with ambiguous aliases, left apart"] == 1
    both = graph({"戊": "", "己": ""}, [], alias("戊", "子") + alias("己", "丑"))
    assert (
        merge.match_entities(graph({"甲": ""}, [], alias("甲", "子", "丑")), both)[0] == {}
    )  # they are two in their own graph


def same_name(name, *ids):
    one = graph(dict.fromkeys(ids, ""), [])
    one.entities = table(
        "entities", {"id": list(ids), "name": [name] * len(ids), "type": [""] * len(ids)}
    )
    one.names = one.names.slice(0, 0)
    return one


def test_ambiguous_names_stay_apart():
    two, single = same_name("汞", "1", "2"), same_name("汞", "3")
    for first, other in ((two, single), (single, two)):
        same, counts = merge.match_entities(first, other)
        assert same == {} and counts["ambiguous names, left apart"] == 1


def test_a_taken_id_gets_a_number():
    one = graph({"1": "a", "1#2": "b"}, [("1", "r", "1#2")])
    one.entities = table("entities", {"id": ["1", "1#2"], "name": ["甲", "乙"], "type": ["a", "b"]})
    two = graph({"1": "c", "2": "d"}, [("1", "r", "2")])
    two.entities = table("entities", {"id": ["1", "2"], "name": ["丙", "甲"], "type": ["c", "d"]})
    one.names, two.names = one.names.slice(0, 0), two.names.slice(0, 0)
    whole = merge.merge_graphs([("one", one), ("two", two)])
    assert rows(whole, "entities") == [("1", "甲", "a"), ("1#2", "乙", "b"), ("1#3", "丙", "c")]
    assert rows(whole) == [("1", "r", "1#2"), ("1#3", "r", "1")]
    assert whole.manifest["merged"][1][NEW_IDS] == 1


def test_unknown_types_give_way():
    first = graph({"甲": "未知", "乙": "x", "丙": "value"}, [])
    whole = merge.merge_graphs(
        [("a", first), ("b", graph({"甲": "drug", "乙": "未知", "丙": "symptom"}, []))]
    )
    assert whole.entities["type"].to_pylist() == ["drug", "x", "symptom"]
    assert whole.manifest["merged"][1]["conflicts of type (the first is kept)"] == 0


def test_equivalences_and_definitions_are_united():
    one = graph({"甲": "", "乙": ""}, [], equivalences=[("甲", "别称", "乙")])
    two = graph(
        {"甲": "", "乙": "", "丙": ""},
        [],
        equivalences=[("乙", "又称", "甲"), ("丙", "别称", "甲")],
    )
    one.definitions = table("definitions", {"id": ["甲"], "text": ["一"]})
    two.definitions = table("definitions", {"id": ["甲", "甲"], "text": ["一", "二"]})
    whole = merge.merge_graphs([("one", one), ("two", two)])
    assert rows(whole, "equivalences") == [("甲", "别称", "乙"), ("丙", "别称", "甲")]
    assert rows(whole, "definitions") == [("甲", "一"), ("甲", "二")]


@given(st.integers(0, 2**32))
def test_no_row_is_lost(seed):
    """Every triple and name of either graph is there under the joined ids; each graph's entities
    stay distinct."""
    draw = random.Random(seed)

    def drawn():
        ids = draw.sample("甲乙丙丁戊己", draw.randint(2, 5))
        triples = [
            (draw.choice(ids), draw.choice("rs"), draw.choice(ids))
            for _ in range(draw.randint(0, 6))
        ]
        return graph(
            dict.fromkeys(ids, ""),
            list(dict.fromkeys(triples)),
            [(draw.choice(ids), draw.choice("甲乙子丑"), "synonym", "zh") for _ in range(4)],
        )

    one, two = drawn(), drawn()
    same, _ = merge.match_entities(one, two)
    assert len(set(same.values())) == len(same)
    whole, counts = merge.unite_graphs(one, two)
    assert len(whole.entities) == len(one.entities) + len(two.entities) - len(same)
    ids = {
        e: same.get(e) or (e if e not in one.ids.to_pylist() else f"{e}#2")
        for e in two.ids.to_pylist()
    }
    assert set(rows(whole)) == set(rows(one)) | {(ids[h], r, ids[t]) for h, r, t in rows(two)}
    assert {r[:2] for r in rows(whole, "names")} == {r[:2] for r in rows(one, "names")} | {
        (ids[r[0]], r[1]) for r in rows(two, "names")
    }
    assert counts["triples added"] + counts["triples that stand there already, dropped"] == len(
        two.triples
    )


def test_the_command(tmp_path, capsys):
    graph({"甲": "a"}, [("甲", "r", "甲")]).save(tmp_path / "one")
    graph({"甲": "a", "乙": "b"}, [("甲", "r", "乙")]).save(tmp_path / "two")
    graph({"乙": "c"}, []).save(tmp_path / "three")
    run_merge, words = (
        command("graph merge"),
        [
            *(str(tmp_path / name) for name in ("one", "two", "three")),
            "--out",
            str(tmp_path / "whole"),
        ],
    )
    assert run_merge(words) == 0
    said = capsys.readouterr().out
    assert "  1 joined by name" in said and "1 conflicts of type" in said
    whole = KnowledgeGraph.load(tmp_path / "whole")
    assert rows(whole) == [("甲", "r", "甲"), ("甲", "r", "乙")] and whole.entities[
        "type"
    ].to_pylist() == ["a", "b"]
    assert [
        part["graph"] for part in read_json(tmp_path / "whole" / "manifest.json")["merged"]
    ] == [
        "one",
        "two",
        "three",
    ]
    assert run_merge(words) == 0 and "kept: " in capsys.readouterr().err
    words[0], words[1] = words[1], words[0]
    assert run_merge(words) == 0 and "kept: " not in capsys.readouterr().err
    assert run_merge([str(tmp_path / "one"), "--out", str(tmp_path / "x")]) == 2
    assert "expected two or more graphs" in capsys.readouterr().err
    with pytest.raises(InputError, match="no knowledge graph here"):
        merge.merge([tmp_path / "one", tmp_path / "none"], tmp_path / "x")
