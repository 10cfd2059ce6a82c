"""SapBERT's pairs against their definition, and batches that do not depend on how the work is
shared."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from core.files import InputError
from core.json_files import read_json
from datamodules.linking import Dictionary, Mention, save_linking
from datamodules.sapbert import SapBERTBatch, SapBERTData, alike, group_similar, length_groups
from datamodules.sapbert import name_pairs as module
from datamodules.sapbert.alike import normalise_names
from datamodules.sapbert.name_pairs import (
    PairChoice,
    Pairs,
    build_mentions,
    build_pairs,
    drawn_pairs,
)
from datamodules.sapbert.names_by_concept import PairSource
from datamodules.tokenizers import load_tokenizer
from kg.graph import KnowledgeGraph, table
from tests.fakes import bert
from tests.fakes import sapbert as fake
from tests.fakes.sapbert import Folders

pytestmark = pytest.mark.usefixtures("preloaded")

ROOT = Path(__file__).parents[2]


def make_pairs(
    fake: Folders, out: Path, graphs: list[str] | None = None, **records: PairSource | PairChoice
) -> Pairs:
    return Pairs(build_pairs(graphs or [fake.graph], fake.bert, str(out), **records))  # type: ignore[arg-type]


def spelled(pairs: Pairs, rows: np.ndarray) -> list[tuple[str, ...]]:
    """Rows of names and a concept in words."""
    names, concepts = pairs.names, pairs.concepts
    return [(*(names[i] for i in row[:-1]), concepts[row[-1]]) for row in rows.tolist()]


def every(pairs: Pairs) -> list[tuple[str, ...]]:
    return spelled(pairs, pairs[np.arange(len(pairs))])


def slow_pairs(
    graph: KnowledgeGraph, held: set[tuple[str, ...]]
) -> dict[str, set[tuple[str, ...]]]:
    """Appendix A.2 and A.3 as they read, without the limit: concept -> its pairs."""
    names: dict[str, set[str]] = {}
    for row in graph.names.to_pylist():
        name = " ".join(row["name"].lower().split())
        if row["language"] == "en" and name:
            names.setdefault(row["id"], set()).add(name)
    own = {concept: set(those) for concept, those in names.items()}
    for triple in graph.triples.to_pylist():
        ends = (triple["head"], triple["tail"])
        if triple["relation"] in ("has_tradename", "tradename_of"):
            ingredient, trade = ends if triple["relation"] == "has_tradename" else ends[::-1]
            names.setdefault(ingredient, set()).update(own.get(trade, set()))
    return {
        concept: set(
            itertools.combinations(sorted(n for n in those if (n, concept) not in held), 2)
        )
        for concept, those in names.items()
    }


def test_pairs_are_all_of_a_concept_at_most_fifty(fake_sapbert: Folders) -> None:
    pairs, graph = Pairs(fake_sapbert.pairs), KnowledgeGraph.load(fake_sapbert.graph)
    held = set(spelled(pairs, pairs.held_out))
    wanted = slow_pairs(graph, held)
    found: dict[str, list[tuple[str, ...]]] = {}
    for first, second, concept in every(pairs):
        found.setdefault(concept, []).append((first, second))
    assert set(found) == {concept for concept, those in wanted.items() if those}
    for concept, those in found.items():
        assert (
            len(set(those)) == len(those) == min(50, len(wanted[concept]))
            and set(those) <= wanted[concept]
        )
    assert len(found["EMANY"]) == 50 and ("nosaspasm", "tumor drug") in found["EDRUG"]
    assert all(first != second for first, second, _ in every(pairs))


def test_everything_left_out_is_counted(fake_sapbert: Folders) -> None:
    pairs = Pairs(fake_sapbert.pairs)
    assert pairs.manifest["counts"] == {
        "names": 181,
        "names of other languages or kinds": 1,
        "empty names": 1,
        "names that --exclude_names lists": 0,
        "names of concepts that --exclude_concepts lists": 0,
        "names repeated in their concept": 1,
        "trade names given to ingredients": 1,
        "concepts": 45,
        "concepts without a name": 1,
        "concepts with one name, which give no pair": 2,
        "distinct names": 177,
        "names shared by several concepts": 2,
        "names held out": len(pairs.held_out),
        "concepts with more pairs than --max_pairs": 1,
        "pairs left out there": 16
        if "EMANY" not in {c for _, c in spelled(pairs, pairs.held_out)}
        else 5,
        "pairs": len(pairs),
    }


def test_held_out_names_are_in_no_pair_and_leave_their_concept_pairs(fake_sapbert: Folders) -> None:
    pairs = Pairs(fake_sapbert.pairs)
    held = spelled(pairs, pairs.held_out)
    # a tenth of the 42 with three names
    assert len(held) == 4 and len({concept for _, concept in held}) == 4
    trained = {name for *both, _ in every(pairs) for name in both}
    assert not trained & {name for name, _ in held} and "odd shared name" not in {
        name for name, _ in held
    }
    assert {concept for _, concept in held} <= {concept for *_, concept in every(pairs)}
    assert not {name for name, _ in held} & {name for name, _ in spelled(pairs, pairs.members)}


def test_draws_depend_on_seed_and_concept_alone(fake_sapbert: Folders, tmp_path: Path) -> None:
    again = build_pairs([fake_sapbert.graph], fake_sapbert.bert, str(tmp_path / "a"))
    assert read_json(again / "manifest.json") == Pairs(fake_sapbert.pairs).manifest
    other = make_pairs(fake_sapbert, tmp_path / "b", choice=PairChoice(seed=1))
    many = [{r for r in every(p) if r[-1] == "EMANY"} for p in (Pairs(again), other)]
    assert len(many[0]) == len(many[1]) == 50 and many[0] != many[1]
    fake.graph("F").save(tmp_path / "more")
    both = make_pairs(fake_sapbert, tmp_path / "c", [str(tmp_path / "more"), fake_sapbert.graph])
    assert {r for r in every(both) if r[-1] == "EMANY"} == many[0]


@given(size=st.integers(2, 40), most=st.integers(1, 60), key=st.text(max_size=5))
@settings(max_examples=40, deadline=None)
def test_drawn_pairs(size: int, most: int, key: str) -> None:
    drawn = [tuple(p) for p in drawn_pairs(size, most, key).tolist()]
    assert len(set(drawn)) == len(drawn) == min(most, size * (size - 1) // 2)
    assert all(0 <= i < j < size for i, j in drawn) and drawn == sorted(drawn)
    assert np.array_equal(drawn_pairs(size, most, key), drawn_pairs(size, most, key))


def test_several_graphs_share_a_concept_by_its_id_only(
    fake_sapbert: Folders, tmp_path: Path
) -> None:
    fake.graph("F").save(tmp_path / "f")
    two = table(
        "names",
        {
            k: [v]
            for k, v in zip(
                ("id", "name", "kind", "language", "source"),
                ("E005", "heart stop", "synonym", "en", "x"),
                strict=True,
            )
        },
    )
    small = table("entities", {"id": ["E005"], "name": ["x"], "type": ["x"]})
    empty = fake.graph()
    KnowledgeGraph(small, two, empty.definitions, empty.triples.slice(0, 0), {}).save(
        tmp_path / "g"
    )
    folders = [fake_sapbert.graph, str(tmp_path / "f"), str(tmp_path / "g")]
    pairs = make_pairs(fake_sapbert, tmp_path / "p", folders)
    assert pairs.manifest["counts"]["concepts"] == 90
    belongs = spelled(pairs, np.concatenate([pairs.members, pairs.held_out]))
    assert ("heart stop", "E005") in belongs and ("heart stop", "F005") not in belongs
    assert {c for *names, c in every(pairs) if "cardiac failure" in names} == {
        "E005",
        "F005",
    }  # ids differ: two concepts
    assert pairs.manifest["counts"]["names shared by several concepts"] > 170


def test_filters_and_exclusion(fake_sapbert: Folders, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("Failure of the  RENAL region\n\nno such name\n")
    (tmp_path / "concepts.txt").write_text("E007\nEMANY\nX\n")
    folder = build_pairs(
        [fake_sapbert.graph],
        fake_sapbert.bert,
        str(tmp_path / "p"),
        source=PairSource(
            kinds=("synonym", "preferred"),
            exclude_names=str(tmp_path / "names.txt"),
            exclude_concepts=str(tmp_path / "concepts.txt"),
            trade_names=False,
        ),
    )
    pairs = Pairs(folder)
    counts = pairs.manifest["counts"]
    assert counts["names of other languages or kinds"] == 41
    assert counts["names that --exclude_names lists"] == 1
    assert counts["names of concepts that --exclude_concepts lists"] == 15
    assert "trade names given to ingredients" not in counts
    assert "failure of the renal region" not in pairs.names and "many 3" not in pairs.names
    assert not {"E007", "EMANY"} & {c for *_, c in every(pairs)}
    german = make_pairs(fake_sapbert, tmp_path / "d", source=PairSource(languages=("de", "en")))
    assert "nierenversagen" in german.names


def test_trade_names_in_either_direction(fake_sapbert: Folders, tmp_path: Path) -> None:
    graph = fake.graph()
    graph.triples = table(
        "triples", {"head": ["ETRADE"], "relation": ["tradename_of"], "tail": ["EDRUG"]}
    )
    graph.save(tmp_path / "g")
    turned = make_pairs(fake_sapbert, tmp_path / "p", [str(tmp_path / "g")])
    assert every(turned) == every(Pairs(fake_sapbert.pairs))


def test_normalised() -> None:
    assert normalise_names(pa.array([" A\tb\u00a0 C\n", "Ärztin"])).to_pylist() == [
        "a b c",
        "ärztin",
    ]


def test_tokens_are_the_tokenizers(fake_sapbert: Folders) -> None:
    pairs, tokenizer = Pairs(fake_sapbert.pairs), load_tokenizer(fake_sapbert.bert)
    for number, name in enumerate(pairs.names):
        wanted = tokenizer(name, add_special_tokens=False)["input_ids"]
        assert pairs.tokens[pairs.offsets[number] : pairs.offsets[number + 1]].tolist() == wanted


def test_shards_are_one_list(
    fake_sapbert: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARD", 37)
    parts = make_pairs(fake_sapbert, tmp_path / "p")
    assert len(parts.shards) > 3
    turned = np.arange(len(parts))[::-1]
    assert np.array_equal(parts[turned][::-1], np.concatenate(parts.shards))
    monkeypatch.undo()
    assert every(Pairs(fake_sapbert.pairs)) == spelled(parts, np.concatenate(parts.shards))


def make_data(
    fake: Folders, world: int = 1, rank: int = 0, step: int = 0, **settings: object
) -> SapBERTData:
    data = SapBERTData(fake.pairs, fake.bert, **{"batch_size": 16, **settings})  # type: ignore[arg-type]
    data.trainer = SimpleNamespace(
        global_rank=rank, world_size=world, accumulate_grad_batches=1, global_step=step
    )  # type: ignore[assignment]
    data.setup()
    return data


def names(batches: list[SapBERTBatch]) -> list[tuple[tuple[int, ...], int]]:
    """(ids without padding, concept) of every name, sorted."""
    found = []
    for b in batches:
        rows = [
            tuple(i[m.bool()].tolist())
            for ids, mask in zip(b[0], b[1], strict=True)
            for i, m in zip(ids, mask, strict=True)
        ]
        found += list(zip(rows, b.concept.tolist(), strict=True))
    return sorted(found)


def test_steps_hold_the_same_however_they_are_shared(fake_sapbert: Folders) -> None:
    alone = list(make_data(fake_sapbert).train_dataloader())
    shared = [list(make_data(fake_sapbert, 2, rank).train_dataloader()) for rank in range(2)]
    assert len(alone) > 10
    for step, whole in enumerate(alone):
        assert names([shared[0][step], shared[1][step]]) == names([whole])
        assert whole.counts.tolist() == [32] and not whole.query.any()


def test_a_later_start_returns_the_rest_and_an_epoch_every_pair_once(fake_sapbert: Folders) -> None:
    data = make_data(fake_sapbert)
    first = list(data.train_dataloader())
    second = list(make_data(fake_sapbert, step=len(first)).train_dataloader())
    resumed = list(make_data(fake_sapbert, step=2).train_dataloader())
    assert len(resumed) == len(first) == len(second) > 2
    for a, b in zip(resumed, (first + second)[2 : len(first) + 2], strict=True):
        assert names([a]) == names([b])
    order = data.order(0)
    assert len(np.unique(order)) == order.size > len(data.pairs) - 16  # type: ignore[arg-type]
    assert not np.array_equal(order, data.order(1)) and not np.array_equal(
        order, make_data(fake_sapbert, seed=1).order(0)
    )


def test_groups_change_padding_only(fake_sapbert: Folders) -> None:
    one, four = (make_data(fake_sapbert, groups=n) for n in (1, 4))
    for numbers in one.order(0)[:4]:
        a, b = one.batch(numbers, 0), four.batch(numbers, 0)
        assert names([a]) == names([b]) and len(a.input_ids) == 1 < len(b.input_ids) <= 4
        assert torch.equal(a.concept, b.concept)
        assert sum(i.numel() for i in b.input_ids) < a.input_ids[0].numel()
        assert all(int(m.sum(1).max()) == m.shape[1] for m in b.attention_mask)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=14), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_length_groups_take_the_fewest_tokens(lengths: list[int], most: int) -> None:
    """Against every way to cut the sorted list into at most `most` runs."""
    ordered = np.sort(np.array(lengths))

    def cost(cuts: tuple[int, ...]) -> int:
        edges = [0, *cuts, len(ordered)]
        return sum((b - a) * int(ordered[b - 1]) for a, b in itertools.pairwise(edges))

    slow = min(
        cost(cuts)
        for k in range(most)
        for cuts in itertools.combinations(range(1, len(ordered)), k)
    )
    groups = length_groups(ordered, most)
    assert [g.start for g in groups] == [0, *(g.stop for g in groups[:-1])] and groups[
        -1
    ].stop == len(ordered)
    assert len(groups) <= most and cost(tuple(g.stop for g in groups[:-1])) == slow


def test_long_names_are_cut(fake_sapbert: Folders) -> None:
    data = make_data(fake_sapbert, max_length=4)
    assert max(i.shape[1] for i in data.batch(data.order(0)[0], 0).input_ids) == 4
    for ids, _ in names([data.batch(data.order(0)[0], 0)]):
        assert ids[0] == 2 and ids[-1] == 3 and 3 <= len(ids) <= 4


def test_validation_searches_held_out_names_among_those_trained_on(fake_sapbert: Folders) -> None:
    data = make_data(fake_sapbert, val_names=60, eval_batch_size=16)
    batches = list(data.val_dataloader())
    concept, query = (torch.cat([getattr(b, k) for b in batches]) for k in ("concept", "query"))
    assert (
        query.sum() == 4
        and len(query) == 64
        and set(concept[query].tolist()) <= set(concept[~query].tolist())
    )
    assert names(batches) == names(
        list(make_data(fake_sapbert, 2, 1, val_names=60, eval_batch_size=9).val_dataloader())
    )


def test_what_does_not_belong_together_is_refused(fake_sapbert: Folders, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pairs here"):
        SapBERTData(str(tmp_path), fake_sapbert.bert, batch_size=16).setup()
    with pytest.raises(InputError, match="another tokenizer"):
        SapBERTData(
            fake_sapbert.pairs, str(bert.write(tmp_path / "b", ["zebra"])), batch_size=16
        ).setup()
    with pytest.raises(InputError, match="fewer than one batch of 5000"):
        make_data(fake_sapbert, batch_size=5000)
    with pytest.raises(InputError, match="batch_size 16 cannot be shared by 3 processes"):
        make_data(fake_sapbert, 3).train_dataloader()
    with pytest.raises(InputError, match="max_length 2, groups 4, together 1: expected 3, 1 and 1"):
        make_data(fake_sapbert, max_length=2)
    assert make_data(fake_sapbert, max_length=3).max_length == 3
    with pytest.raises(InputError, match="no name is left of languages xx .*languages are de, en"):
        make_pairs(fake_sapbert, tmp_path / "p", source=PairSource(languages=("xx",)))
    with pytest.raises(InputError, match="no concept has two names"):
        make_pairs(
            fake_sapbert, tmp_path / "p", source=PairSource(kinds=("preferred",), trade_names=False)
        )
    with pytest.raises(InputError, match="expected 1 or more"):
        make_pairs(fake_sapbert, tmp_path / "p", choice=PairChoice(held_out=0))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(InputError, match="no pairs; it is left alone"):
        make_pairs(fake_sapbert, tmp_path / "full")


def test_the_command(fake_sapbert: Folders, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "core.call",
        "data",
        "pairs",
        "--graph",
        fake_sapbert.graph,
        "--tokenizer",
        fake_sapbert.bert,
        "--out",
        str(tmp_path / "p"),
    ]
    first = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "concepts with one name, which give no pair" in first.stdout
    (tmp_path / "p.parts").mkdir()  # left by a run that was killed behind its last file
    again = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "kept: pairs" in again.stderr and [p.name for p in tmp_path.iterdir()] == ["p"]
    bad = subprocess.run(
        [*command, "--exclude_names", "nowhere.txt"], capture_output=True, text=True, cwd=ROOT
    )
    assert (
        bad.returncode == 2
        and bad.stderr == "error: nowhere.txt: no such file or folder. Check the path.\n"
    )


def named_graph(rows: list[tuple[str, str, str]]) -> KnowledgeGraph:
    ids, names, kinds = (list(column) for column in zip(*rows, strict=True))
    every = list(dict.fromkeys(ids))
    return KnowledgeGraph(
        table("entities", {"id": every, "name": every, "type": ["t"] * len(every)}),
        table(
            "names",
            {
                "id": ids,
                "name": names,
                "kind": kinds,
                "language": ["en"] * len(ids),
                "source": ["s"] * len(ids),
            },
        ),
        table("definitions", {"id": [], "text": []}),
        table("triples", {"head": [], "relation": [], "tail": []}),
        {"source": "fake", "version": "1", "licence": "none"},
    )


def test_concepts_of_graphs_with_the_same_name_are_united(
    fake_sapbert: Folders, tmp_path: Path
) -> None:
    first = named_graph(
        [
            ("A1", "Heart Attack", "preferred"),
            ("A1", "MI", "synonym"),
            ("A2", "Cold", "preferred"),
            ("A3", "chill", "preferred"),
            ("A3", "ague", "exact"),
            ("A4", "fit", "preferred"),
            ("A4", "shared", "synonym"),
            ("A5", "shared", "synonym"),
            ("A5", "kept", "preferred"),
            ("A6", "loose", "narrow"),
            ("A6", "tight", "preferred"),
        ]
    )
    second = named_graph(
        [
            # its synonym is A1's label
            ("B1", "myocardial infarction", "preferred"),
            ("B1", "heart  attack", "exact"),
            # A2 is taken by B2
            ("B2", "cold", "preferred"),
            ("B2b", "Common cold", "preferred"),
            ("B2b", "cold", "synonym"),
            ("B3", "AGUE", "preferred"),  # its label is A3's synonym
            ("B4", "shared", "preferred"),  # two concepts have it: neither
            ("B6", "loose", "preferred"),  # a narrow name is no other name of the same
        ]
    )
    third = named_graph(
        [("C1", "myocardial infarction", "preferred"), ("C2", "common cold", "preferred")]
    )
    graphs = [first, second, third]
    concepts = pa.array([i for g in graphs for i in g.ids.to_pylist()])
    one = alike.unite_concepts(graphs, concepts)
    joined = {concepts[i].as_py(): concepts[int(j)].as_py() for i, j in enumerate(one) if i != j}
    assert joined == {"B1": "A1", "B2": "A2", "B3": "A3", "C1": "A1", "C2": "B2b"}
    for name, graph in zip("abc", graphs, strict=True):
        graph.save(tmp_path / name)
    folders = [str(tmp_path / name) for name in "abc"]
    source, choice = PairSource(unite=True), PairChoice(held_out=1)
    pairs = make_pairs(fake_sapbert, tmp_path / "pairs", folders, source=source, choice=choice)
    assert pairs.manifest["counts"]["concepts united with one of an earlier graph"] == 5
    found = {row[-1]: set() for row in every(pairs)}
    for *names, concept in [*every(pairs), *spelled(pairs, pairs.held_out)]:
        found.setdefault(concept, set()).update(names)
    assert found["A1"] == {"heart attack", "mi", "myocardial infarction"}


def linking_task(folder: Path, train: list[tuple[list[str], list[list[str]]]]) -> Path:
    dictionary = Dictionary(
        ["C1", "C1", "C2", "C2", "C3"],
        ["Heart attack", "MI", "cold", "Common cold", "fever"],
        {"C3": ["X3"]},
    )

    def mentions(rows: list[tuple[list[str], list[list[str]]]], name: str) -> list[Mention]:
        return [
            Mention(f"{name}{i}", "d", None, None, "|".join(p), p, g)
            for i, (p, g) in enumerate(rows)
        ]

    splits = {"train": mentions(train, "t"), "dev": mentions([(["secret words"], [["C1"]])], "d")}
    save_linking(folder, dictionary, splits, {}, name="X-EL")
    return folder


def test_mention_pairs_are_train_mentions_with_every_name_of_their_concept(
    fake_sapbert: Folders, tmp_path: Path
) -> None:
    train = [
        # a name already
        (["Cardiac  arrest thing"], [["C1"]]),
        (["my heart stopped"], [["C1"]]),
        (["MI"], [["C1"]]),
        # an alternative id
        (["runny nose"], [["C2"]]),
        (["RUNNY nose"], [["C2"]]),
        (["hot"], [["X3"]]),
        (["both", "parts"], [["C1"], ["C2"]]),
        (["either"], [["C1"], ["C2"]]),
        (["gone"], [["C9"]]),
    ]
    task = linking_task(tmp_path / "task", train)
    folder = build_mentions(str(task), fake_sapbert.bert, str(tmp_path / "pairs"))
    pairs = Pairs(str(folder))
    held = spelled(pairs, np.asarray(pairs.held_out))
    wanted = {
        ("cardiac arrest thing", "C1"),
        ("my heart stopped", "C1"),
        ("runny nose", "C2"),
        ("hot", "C3"),
    }
    assert len(held) == 1 and set(held) < wanted
    names = {"C1": ["heart attack", "mi"], "C2": ["cold", "common cold"], "C3": ["fever"]}
    assert set(every(pairs)) == {(m, n, c) for m, c in wanted - set(held) for n in names[c]}
    counts = read_json(folder / "manifest.json")["counts"]
    assert (counts["composite mentions"], counts["mentions of no or several concepts"]) == (1, 2)
    before = (folder / "manifest.json").stat().st_ino
    build_mentions(str(task), fake_sapbert.bert, str(folder))
    assert (folder / "manifest.json").stat().st_ino == before
    data = SapBERTData(str(folder), fake_sapbert.bert, batch_size=2)
    data.setup()
    # the dictionary's names are searched
    assert sum(int(b.query.sum()) for b in data.val_dataloader()) == 1
    assert sum(int((~b.query).sum()) for b in data.val_dataloader()) == 5


def test_nothing_to_fine_tune_on(fake_sapbert: Folders, tmp_path: Path) -> None:
    task = linking_task(tmp_path / "task", [(["MI"], [["C1"]]), (["mi"], [["C1"]])])
    with pytest.raises(
        InputError, match="no training mention differs from the names of its concept"
    ):
        build_mentions(str(task), fake_sapbert.bert, str(tmp_path / "pairs"))
    none = linking_task(tmp_path / "none", [])
    with pytest.raises(InputError, match="no train split"):
        build_mentions(str(none), fake_sapbert.bert, str(tmp_path / "other"))


def test_names_of_the_same_words_count_once(fake_sapbert: Folders, tmp_path: Path) -> None:
    names = ["house, slaughter", "slaughter house", "slaughter houses", "abattoir", "+", "?"]
    bags = alike.same_words(names)
    # marks alone are distinguished
    assert bags[0] == bags[1] == bags[2] != bags[3] and len({*bags[3:]}) == 3
    graph = named_graph(
        [("A", n, "synonym") for n in (*names[:4], "shambles")]
        + [("B", n, "synonym") for n in names[:2]]
    )
    graph.save(tmp_path / "g")
    choice = PairChoice(held_out=1, distinct_words=True)
    found = every(make_pairs(fake_sapbert, tmp_path / "p", [str(tmp_path / "g")], choice=choice))
    assert {row[-1] for row in found} == {"A"}  # all names of B are the same words
    assert (
        all("slaughter" not in a or "slaughter" not in b for a, b, _ in found)
        and 1 <= len(found) <= 3
    )


def test_similar_concepts_are_the_nearest_by_tfidf(fake_sapbert: Folders, tmp_path: Path) -> None:
    near = make_pairs(fake_sapbert, tmp_path / "near", choice=PairChoice(neighbours=3))
    assert near.neighbours is not None and near.neighbours.shape == (len(near.concepts), 3)
    strings, concepts = near.names, near.concepts
    own: dict[int, set[str]] = {}
    for first, second, concept in near[np.arange(len(near))]:
        own.setdefault(int(concept), set()).update((strings[first], strings[second]))
    texts = {concept: " ".join(sorted(found)) for concept, found in own.items()}
    vectors = TfidfVectorizer(analyzer="char", ngram_range=(3, 3), lowercase=False).fit_transform(
        texts.values()
    )
    cosine = (vectors @ vectors.T).toarray()
    order = list(texts)
    for number, concept in enumerate(order):
        found = [order.index(other) for other in near.neighbours[concept] if other >= 0]
        assert number not in found and len(set(found)) == len(found)
        best = np.sort(np.delete(cosine[number], number))[::-1]
        np.testing.assert_allclose(cosine[number][found], best[: len(found)], atol=1e-6)
        assert len(found) == 3 or best[len(found)] == 0
    without = [i for i in range(len(concepts)) if i not in own]
    assert without and (near.neighbours[without] == -1).all()


def share_of_neighbours(data: SapBERTData) -> float:
    """How often two adjacent pairs are of a concept and one of the concepts nearest to it."""
    assert data.pairs is not None
    near = np.load(data.pairs.folder / "neighbours.npy")
    concept = data.pairs[data.order(0).ravel()][:, 2]
    return float(np.mean([b in near[a] or a in near[b] for a, b in itertools.pairwise(concept)]))


def test_a_batch_holds_pairs_of_similar_concepts_together(
    fake_sapbert: Folders, tmp_path: Path
) -> None:
    folder = build_pairs(
        [fake_sapbert.graph],
        fake_sapbert.bert,
        str(tmp_path / "near"),
        choice=PairChoice(neighbours=6),
    )
    fake = fake_sapbert._replace(pairs=str(folder))
    data = make_data(fake, together=4, batch_size=8)
    assert data.pairs is not None and data.pairs.neighbours is not None
    assert sorted(set(data.order(0).ravel())) == sorted(data.order(0).ravel())  # none twice
    assert not np.array_equal(data.order(0), data.order(1))
    plain = make_data(fake, batch_size=8)
    alone = [
        np.mean([len(set(plain.pairs[row][:, 2])) for row in d.order(0)]) for d in (plain, data)
    ]  # type: ignore[index]
    assert alone[1] > 7  # neighbours are other concepts, so a batch hardly holds one twice
    beside = [share_of_neighbours(d) for d in (plain, data)]
    assert beside[1] > 2 * beside[0]
    with pytest.raises(InputError, match="together 4 wants pairs with neighbours"):
        make_data(fake_sapbert, together=4)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 5), st.integers(0, 99))
def test_beside_similar_places_every_pair_once(
    concepts: list[int], together: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    neighbours = np.stack(
        [rng.permutation(np.append(np.delete(np.arange(6), c), -1))[:4] for c in range(6)]
    )
    concept = np.array(concepts)
    order = group_similar(np.arange(len(concept)), concept, neighbours, together)
    slow: list[int] = []
    for place in range(len(concept)):
        if place in slow:
            continue
        group = [place]
        for near in neighbours[concept[place]]:
            left = [i for i in range(len(concept)) if concept[i] == near and i not in slow + group]
            group += left[: 1 if len(group) < together else 0]
        slow += group
    assert order.tolist() == slow
