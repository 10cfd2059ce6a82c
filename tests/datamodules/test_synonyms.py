"""Samples of synonym retrieval: negatives, Dataset-2, what is dropped, and texts without the
answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rapidfuzz.distance import JaroWinkler

from core.files import InputError
from datamodules.synonyms import (
    Pairs,
    Sampling,
    build_samples,
    eligible,
    equivalent_pairs,
    load_samples,
    neighbour_sets,
    samples,
    sentences,
    share_neighbours,
)
from kg.graph import KnowledgeGraph, table
from tests.commands import command


def graph(
    names: list[str],
    kinds: list[str],
    equal: list[tuple[int, int]],
    facts: Sequence[tuple[int, int]] = (),
) -> KnowledgeGraph:
    ids = [f"E{i}" for i in range(len(names))]

    def rows(pairs: Sequence[tuple[int, int]], relation: str) -> dict[str, list[str]]:
        return {
            "head": [ids[a] for a, _ in pairs],
            "relation": [relation] * len(pairs),
            "tail": [ids[b] for _, b in pairs],
        }

    return KnowledgeGraph(
        table("entities", {"id": ids, "name": names, "type": kinds}),
        table(
            "names",
            {
                "id": ids,
                "name": names,
                **{c: ["x"] * len(ids) for c in ("kind", "language", "source")},
            },
        ),
        table("definitions", {"id": [], "text": []}),
        table("triples", rows(facts, "r")),
        {"source": "fake"},
        table("equivalences", rows(equal, "same")),
    )


def many(n: int = 40) -> tuple[list[str], list[str]]:
    """Names of one type that all look alike, then one that does not, then one of another type."""
    return [f"慢性肝炎{chr(0x4E00 + i)}型" for i in range(n)] + ["头痛", "慢性肝炎药"], [
        "disease"
    ] * (n + 1) + ["drug"]


def test_negatives_have_the_type_and_look_alike() -> None:
    names, kinds = many()
    made, dropped = samples(graph(names, kinds, [(0, 1), (2, 3)]))
    assert len(made) == 4 and not dropped
    assert [(s.query, s.candidates[0]) for s in made] == [
        ("E0", "E1"),
        ("E1", "E0"),
        ("E2", "E3"),
        ("E3", "E2"),
    ]
    for s in made:
        assert len(s.candidates) == len(set(s.candidates)) == 20
        for entity, name in zip(s.candidates[1:], s.candidate_names[1:], strict=True):
            assert names[int(entity[1:])] == name and kinds[int(entity[1:])] == "disease"
            assert JaroWinkler.similarity(name, s.candidate_names[0]) > 0.6 and entity != s.query
    again, _ = samples(graph(names, kinds, [(0, 1), (2, 3)]))
    assert (
        again == made
        and samples(graph(names, kinds, [(0, 1), (2, 3)]), Sampling(seed=1))[0] != made
    )


def test_equivalents_are_no_negatives() -> None:
    names, kinds = many(24)
    equal = [(0, 1), (0, 2), (1, 3)]
    for s in samples(graph(names, kinds, equal))[0]:
        forbidden = {"E0": {"E1", "E2"}, "E1": {"E0", "E3"}, "E2": {"E0"}, "E3": {"E1"}}
        assert not set(s.candidates[1:]) & (
            forbidden[s.query] | forbidden[s.candidates[0]] | {s.query}
        )


def test_too_few_negatives_are_dropped_and_counted() -> None:
    names, kinds = many(20)  # 18 others
    made, dropped = samples(graph(names, kinds, [(0, 1)]))
    assert not made and dropped == {"samples with fewer than 19 negatives": 2}
    names, kinds = many(21)
    assert len(samples(graph(names, kinds, [(0, 1)]))[0]) == 2
    made, dropped = samples(graph(names, kinds, [(0, 21)]))  # nothing looks like 头痛
    assert [s.query for s in made] == ["E21"] and dropped == {
        "samples with fewer than 19 negatives": 1
    }


def test_an_entity_without_type_has_its_equivalents() -> None:
    names, kinds = many()
    kinds[1] = "未知"
    assert len(samples(graph(names, kinds, [(0, 1)]))[0]) == 2
    kinds[0] = ""
    made, dropped = samples(graph(names, kinds, [(0, 1)]))
    assert not made and dropped == {"samples whose entities have no type": 2}


def test_equivalences_are_undirected_and_count_once() -> None:
    names, kinds = many()
    both = graph(names, kinds, [(0, 1), (1, 0), (5, 4), (0, 1)])
    assert equivalent_pairs(both) == [(0, 1), (4, 5)]
    made, dropped = samples(both, Sampling(limit=1))
    assert len(made) == 2 and dropped == {"pairs beyond the limit": 1}


def test_dataset_2_by_hand() -> None:
    """3 of 4 neighbours shared is a Jaccard index of .75; two are too few whatever the index."""
    assert share_neighbours({1, 2, 3}, {1, 2, 3, 4}, 0.75, 3)
    assert not share_neighbours({1, 2, 3}, {1, 2, 3, 4, 5}, 0.75, 3)
    assert not share_neighbours({1, 2}, {1, 2}, 0.75, 3)
    names, kinds = many()
    facts = [(0, 10), (0, 11), (12, 0), (1, 10), (11, 1), (1, 12), (1, 13), (2, 10), (3, 10)]
    made, _ = samples(graph(names, kinds, [(0, 1), (2, 3)], facts))
    assert [s.shared for s in made] == [True, True, False, False]


def test_a_graph_without_equivalences_is_refused(tmp_path: Path) -> None:
    names, kinds = many()
    graph(names, kinds, []).save(tmp_path / "g")
    with pytest.raises(InputError, match=r"no equivalences.*kepl graph refine"):
        build_samples(str(tmp_path / "g"), str(tmp_path / "s"))
    names, kinds = many(5)
    graph(names, kinds, [(0, 1)]).save(tmp_path / "g")
    with pytest.raises(InputError, match="no sample is left"):
        build_samples(str(tmp_path / "g"), str(tmp_path / "s"))
    with pytest.raises(InputError, match="no samples here"):
        load_samples(tmp_path / "s")


def test_built_samples_load_and_are_kept(tmp_path: Path, capsys: Any) -> None:
    names, kinds = many()
    g = graph(names, kinds, [(0, 1), (2, 3)])
    g.save(tmp_path / "g")
    run = command("data synonyms build")
    assert run(["--graph", str(tmp_path / "g"), "--out", str(tmp_path / "s")]) == 0
    assert "4 samples" in capsys.readouterr().out
    assert load_samples(tmp_path / "s") == samples(g)[0]
    build_samples(str(tmp_path / "g"), str(tmp_path / "s"))
    assert "kept" in capsys.readouterr().err
    (tmp_path / "s" / "samples.parquet").write_bytes(b"x")
    with pytest.raises(InputError, match="not the file its manifest describes"):
        load_samples(tmp_path / "s")


def test_sentences_are_the_text() -> None:
    text = "甲是乙。丙！？\n丁；戊"
    assert (
        sentences(text) == ["甲是乙。", "丙！？\n", "丁；", "戊"]
        and "".join(sentences(text)) == text
    )
    assert sentences("") == [] and sentences("。") == ["。"]


def test_both_sides_named() -> None:
    pairs = Pairs([("肺结核", "结核"), ("感冒", "伤风"), ("甲", "甲")])
    assert pairs.are_named("感冒又称伤风") and pairs.are_named("伤风和感冒")
    assert not pairs.are_named("感冒和咳嗽") and not pairs.are_named("")
    assert not pairs.are_named("肺结核很常见")  # 结核 only inside its partner
    assert pairs.are_named("肺结核和肠结核") and not pairs.are_named("甲甲")
    assert not Pairs([]).are_named("感冒")


def test_drop_removes_sentences_and_counts(tmp_path: Path, capsys: Any) -> None:
    names, kinds = many()
    graph(names, kinds, [(0, 1)]).save(tmp_path / "g")
    build_samples(str(tmp_path / "g"), str(tmp_path / "s"))
    a, b = names[0], names[1]
    rows = [f"{a}常见。{a}也叫{b}。{b}少见。", f"{b}就是{a}。", "别的话。"]
    with open(tmp_path / "t.jsonl", "w") as handle:
        handle.writelines(
            json.dumps({"id": str(i), "text": t}, ensure_ascii=False) + "\n"
            for i, t in enumerate(rows)
        )
    capsys.readouterr()
    files = [str(tmp_path / "t.jsonl"), str(tmp_path / "u.jsonl")]
    (tmp_path / "u.jsonl").write_text(
        json.dumps({"id": "3", "text": "又一句。"}, ensure_ascii=False) + "\n"
    )
    words = ["--synonyms", str(tmp_path / "s"), "--input", *files]
    assert command("data synonyms drop")([*words, "--out", str(tmp_path / "o.jsonl")]) == 0
    kept = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert kept == [
        {"id": "0", "text": f"{a}常见。{b}少见。"},
        {"id": "2", "text": "别的话。"},
        {"id": "3", "text": "又一句。"},
    ]
    said = capsys.readouterr().out
    assert (
        "2 dropped: both sides" in said and "1 dropped: documents" in said and "4 documents" in said
    )


def test_names_that_are_alike_but_one_are_found_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    names = [
        "".join(rng.choice(list("肝炎慢急性肺痛"), int(rng.integers(2, 6)))) for _ in range(120)
    ]
    kinds = [str(k) for k in rng.choice(["a", "b"], 120)]
    equal = [(int(i), int(j)) for i, j in rng.integers(0, 120, (30, 2)) if i != j]
    g = graph(names, kinds, equal)
    made, dropped = samples(g, Sampling(negatives=5))
    asked = 2 * len(equivalent_pairs(g))
    assert len(made) + sum(dropped.values()) == asked and made
    for s in made:
        gold = int(s.candidates[0][1:])
        for entity in s.candidates[1:]:
            i = int(entity[1:])
            assert kinds[i] == kinds[gold] and JaroWinkler.similarity(names[i], names[gold]) > 0.6
            assert names[i] not in (s.query_name, names[gold])


def test_an_entity_is_no_neighbour_of_its_own() -> None:
    found = neighbour_sets(graph(["a", "b", "c"], ["x"] * 3, [], [(0, 0), (0, 1), (2, 0)]))
    assert found == [{1, 2}, {0}, {0}]


def test_a_name_is_not_alike_to_itself() -> None:
    names = ["慢性肝炎", "慢性肝炎", "慢性肝癌", "头痛"]
    found = eligible(names, np.arange(4), [0, 3], 0.6)
    assert [row.tolist() for row in found] == [[2], []]  # 1 has the very name of 0
