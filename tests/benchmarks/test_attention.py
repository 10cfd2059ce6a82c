"""Attention between entities and their context: sums over heads and tokens typed out as loops,
matrices made by hand, which sentences are drawn, and the command on encoders that are not
trained."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from app.cli import main
from benchmarks.papers.embert import shares
from benchmarks.papers.embert.attention_options import Sample
from benchmarks.papers.embert.likeness import likeness, weights
from benchmarks.papers.embert.maps import Text, attention_maps, join_parts
from benchmarks.papers.embert.measures import (
    cosine,
    even,
    from_context,
    layer_of,
    share,
    spearman,
    to_context,
)
from benchmarks.papers.embert.readers import difference, mean_of, near, reader
from benchmarks.papers.embert.sentences import (
    AGAIN,
    ALONE,
    LONG,
    NO_OTHER,
    SHORT,
    UNKNOWN,
    UNLIKE,
    WHOLE,
    Halves,
    Mention,
    Swap,
    around,
    halves,
    mentions,
    pools,
    swaps,
)
from benchmarks.papers.embert.shares import inner
from core.files import InputError
from core.json_files import read_json, write_json
from core.reading import sha256
from datamodules.tokenizers import load_tokenizer
from kg.build.thesaurus import FORMAT
from models.transformer_files import load_bert
from tests.fakes import bert as fake_bert
from tests.fakes import graphs
from tests.fakes import linked as fake_linked

CHARACTERS = (
    "得了甲病的人常有头痛发热要多喝水再看医生乙丙丁戊症急性慢炎肝胆胃，。是不和血糖尿酮酸中毒"
)
CONTEXT = "的人常有头痛发热要多喝水"
TYPES = {
    "甲病": "疾病",
    "丙病": "疾病",
    "戊病": "疾病",
    "肝炎": "疾病",
    "丁水": "药物",
    "急性甲病炎": "疾病",
}
SAME = {"甲病": ["甲病", "乙病", "慢性甲症"], "丙病": ["丙病", "胃血症"]}
PIECES = {"急性甲病炎": ["急性", "甲病炎"], "甲病": ["甲病"], "慢性血糖症": ["慢性", "血糖", "症"]}


# measures


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 6, 12, 24])
def test_a_layer_as_deep_as_the_papers(layers: int) -> None:
    for place in (10, 11):
        assert layer_of(place, 12, layers) == math.ceil(Fraction(place, 12) * layers)
    assert [layer_of(11, 12, n) for n in (12, 6, 4)] == [11, 6, 4] and [
        layer_of(10, 12, n) for n in (12, 6, 4)
    ] == [
        10,
        5,
        4,
    ]


def heads(size: int, seed: int, number: int = 3) -> np.ndarray:
    """(H, L, L) attention of `number` heads: rows sum to 1."""
    weights = np.random.default_rng(seed).exponential(size=(number, size, size))
    return weights / weights.sum(2, keepdims=True)


@settings(deadline=None, max_examples=30)
@given(
    before=st.integers(0, 4),
    entity=st.integers(1, 4),
    after=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_weights_are_the_sums_over_heads_and_entity_tokens(
    before: int, entity: int, after: int, seed: int
) -> None:
    """An entity at the text's edge, too; [CLS] and [SEP] are at both ends and are no context."""
    size = before + entity + after + 2
    attention = heads(size, seed)
    inside = range(before + 1, before + entity + 1)
    context = [i for i in range(1, size - 1) if i not in inside]
    out = [sum(attention[h, i, j] for h in range(3) for i in inside) for j in context]
    back = [sum(attention[h, j, i] for h in range(3) for i in inside) for j in context]
    places = np.array(inside), np.array(context, int)
    np.testing.assert_allclose(to_context(attention.sum(0), *places), out, atol=1e-12)
    np.testing.assert_allclose(from_context(attention.sum(0), *places), back, atol=1e-12)


@settings(deadline=None, max_examples=50)
@given(values=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=20))
def test_likeness(values: list[tuple[int, int]]) -> None:
    x, y = np.array(values, float).T
    if len(set(x)) > 1 and len(set(y)) > 1:
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    else:
        assert spearman(x, y) == 0
    length = math.sqrt(sum(x * x)) * math.sqrt(sum(y * y))
    assert cosine(x, y) == pytest.approx(sum(x * y) / length if length else 0)


def test_likeness_by_hand() -> None:
    assert spearman(np.array([1.0, 2, 3]), np.array([1.0, 10, 11])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    assert cosine(np.array([3.0, 4]), np.array([4.0, 3])) == pytest.approx(0.96)


@settings(deadline=None, max_examples=30)
@given(size=st.integers(4, 9), seed=st.integers(0, 99), itself=st.booleans())
def test_shares_are_the_sums(size: int, seed: int, itself: bool) -> None:
    attention = heads(size, seed).sum(0)
    rng = np.random.default_rng(seed)
    queries, keys = (
        np.sort(rng.choice(size, int(rng.integers(1, size)), replace=False)) for _ in range(2)
    )
    among = np.union1d(keys, rng.choice(size, 2))
    rows = []
    for i in queries:
        kept = sum(attention[i, j] for j in keys if itself or i != j)
        rows.append(kept / sum(attention[i, j] for j in among))
    assert share(attention, queries, keys, among, itself) == pytest.approx(np.mean(rows))
    flat = np.full((size, size), 0.3)
    assert even(queries, keys, among, itself) == pytest.approx(
        share(flat, queries, keys, among, itself)
    )


def test_shares_by_hand() -> None:
    """[CLS], two tokens of an adjective, one atomic one, a context token, [SEP]."""
    text = Text([0] * 6, [np.array([], int), np.array([1, 2]), np.array([3]), np.array([4])])
    rows = [
        [1, 0, 0, 0, 0, 0],
        [0, 0.2, 0.2, 0.4, 0.1, 0.1],
        [0.5, 0, 0, 0.5, 0, 0],
        [0, 0.5, 0, 0.5, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, 0],
    ]
    found = inner(text, np.array(rows))
    assert found["inside, of all tokens"] == pytest.approx((0.8 + 0.5 + 1) / 3)
    assert found["other tokens inside, of all tokens"] == pytest.approx((0.6 + 0.5 + 0.5) / 3)
    assert found["adjective to atomic, of all tokens"] == pytest.approx(0.45)
    assert found["adjective to atomic, of the text's tokens"] == pytest.approx((0.4 / 0.9 + 1) / 2)
    assert found["inside, of all tokens, even"] == pytest.approx(3 / 6)
    assert found["other tokens inside, of the text's tokens, even"] == pytest.approx(2 / 4)
    assert found["adjective to atomic, of all tokens, even"] == pytest.approx(1 / 6)
    alone = inner(text, np.eye(6))
    assert alone["inside, of all tokens"] == 1 and alone["other tokens inside, of all tokens"] == 0


def test_intervals_and_differences() -> None:
    rng = np.random.default_rng(0)
    first, gain = rng.normal(size=200), rng.normal(0.5, 1, size=200)
    told = difference(first, first + gain)
    assert (
        told["mean"] == pytest.approx(gain.mean())
        and told["low"] < 0.5 < told["high"]
        and told["p"] < 0.01
    )
    assert told["high"] - told["low"] == pytest.approx(
        2 * 1.96 * gain.std() / math.sqrt(200), rel=0.1
    )
    assert difference(first, first)["p"] == 1
    alone = mean_of([0.25, 0.75])
    assert alone["mean"] == 0.5 and alone["low"] >= 0.25 and alone["high"] <= 0.75


# sentences


@settings(deadline=None, max_examples=100)
@given(
    left=st.text("ab。\n", max_size=12),
    right=st.text("ab。\n", max_size=12),
    room=st.integers(0, 14),
)
def test_a_sentence_is_cut_around_its_mention(left: str, right: str, room: int) -> None:
    text = f"{left}XY{right}"
    before, after = around(text, len(left), len(left) + 2, room)
    whole = (
        left.replace("\n", "。").rpartition("。")[2],
        right.replace("\n", "。").partition("。")[0],
    )
    assert whole[0].endswith(before) and whole[1].startswith(after)
    assert len(before) + len(after) == min(room, len(whole[0]) + len(whole[1]))
    # the shorter side is whole, or both have half
    assert before == whole[0] or after == whole[1] or abs(len(before) - len(after)) <= 1


def mention(
    surface: str,
    entity: str | None = None,
    left: str = "得了",
    right: str = CONTEXT,
    document: str = "d",
) -> Mention:
    return Mention(
        document, f"{left}{surface}{right}", len(left), len(left) + len(surface), entity or surface
    )


def drawn(*found: Mention, **more: int) -> tuple[list[Swap], Counter[str]]:
    kinds, pool = pools(graphs.graph(TYPES, []))
    return swaps(found, lambda entity: SAME.get(entity, []), kinds, pool, Sample(**more))


def test_what_a_name_is_replaced_by() -> None:
    one = mention("甲病")
    [swap], left_out = drawn(one)
    assert swap[:5] == ("d", "甲病", "得了", CONTEXT, "甲病") and not left_out
    assert swap.synonym == "乙病", "as long as the name where one is"
    assert swap.random in ("丙病", "戊病", "肝炎"), "of its type and length, and no name of its own"
    assert swap.shared == 1 and drawn(one) == ([swap], left_out)
    seen = {drawn(mention("甲病", document=str(i)))[0][0].random for i in range(60)}
    assert seen == {"丙病", "戊病", "肝炎"}
    # where no synonym is as long, any of them is taken, and the window counts the longer name
    [other], _ = drawn(mention("丙病", right=CONTEXT * 3), window=20)
    assert other.synonym == "胃血症" and len(other.left + other.synonym + other.right) == 20


def test_what_is_left_out() -> None:
    cases = {
        ALONE: mention("肝炎"),
        UNKNOWN: mention("乙病", "甲"),
        NO_OTHER: mention("胃血症", "丙病"),
        SHORT: mention("甲病", left="", right="。" + CONTEXT),
        AGAIN: mention("甲病", right="是乙病" + CONTEXT),
    }
    SAME["甲"] = ["丁病"]
    try:
        for why, one in cases.items():
            found, left_out = drawn(one)
            assert not found and left_out == {why: 1}, why
    finally:
        del SAME["甲"]
    found, left_out = drawn(mention("甲病"), window=11)
    assert not found and left_out == {LONG: 1}
    assert drawn(mention("甲病"), window=12)[0][0].left == "得了"
    # at the text's edges
    assert (
        drawn(mention("甲病", left=""))[0][0].left == ""
        and drawn(mention("甲病", left=CONTEXT, right=""))[0][0].right == ""
    )


def test_of_an_entity_one_sentence_is_drawn() -> None:
    every = [mention("甲病", document=str(i)) for i in range(20)] + [
        mention("丙病", document=str(i)) for i in range(20)
    ]
    found, _ = drawn(*every)
    assert sorted(s.entity for s in found) == ["丙病", "甲病"] and drawn(*every[::-1])[0] == found
    assert drawn(*every, sentences=1)[0] == found[:1]
    assert {drawn(*every, seed=s)[0][0].document for s in range(8)} != {found[0].document}


def test_halves_of_long_entities() -> None:
    def pieces(name: str) -> list[str]:
        return PIECES.get(name, [name])

    one = mention("急性甲病炎")
    [half], left_out = halves([one, mention("甲病")], pieces, Sample())
    assert half[2:] == ("得了", CONTEXT, "急性", "甲病炎") and left_out == {WHOLE: 1}
    [three], _ = halves([mention("慢性血糖症", "x")], pieces, Sample())
    assert (three.adjective, three.atomic) == ("慢性血糖", "症")
    assert halves([one], lambda name: ["急", "甲"], Sample()) == ([], {UNLIKE: 1})
    assert halves([one], pieces, Sample(window=14)) == ([], {LONG: 1})
    assert halves([mention("急性甲病炎", right="")], pieces, Sample()) == ([], {SHORT: 1})


def linked(folder: Path, documents: dict[str, tuple[str, list[tuple[str, str]]]]) -> Path:
    """A folder of linked text: {id: (text, [(surface, entity)])}."""
    rows = []
    for name, (text, found) in documents.items():
        rows.append(
            fake_linked.document(
                name, text, *((text.index(s), text.index(s) + len(s), e) for s, e in found)
            )
        )
    return fake_linked.write(folder, rows)


def test_mentions_are_read(tmp_path: Path) -> None:
    folder = linked(tmp_path / "linked", {"1": ("得了甲病", [("甲病", "甲病")])})
    assert (
        list(mentions(folder)) == [Mention("1", "得了甲病", 2, 4, "甲病")]
        and next(mentions(folder)).surface == "甲病"
    )
    with pytest.raises(InputError, match=r"no finished linked text here"):
        list(mentions(tmp_path))


# maps


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("encoders")
    shape = {"words": [], "characters": CHARACTERS, "length": 64}
    return [str(fake_bert.write(folder / f"bert{n}", layers=n, seed=n, **shape)) for n in (3, 2)]  # type: ignore[arg-type]


def test_parts_are_made_into_tokens_for_themselves(encoders: list[str]) -> None:
    tokenizer = load_tokenizer(encoders[0])
    text = join_parts(tokenizer, ["得ab", "", "cd病"])
    tokens = tokenizer.convert_ids_to_tokens(text.ids)
    assert tokens == ["[CLS]", "得", "a", "##b", "c", "##d", "病", "[SEP]"]
    assert [p.tolist() for p in text.parts] == [[1, 2, 3], [], [4, 5, 6]]
    assert text.whole.tolist() == list(range(8)) and text.inside.tolist() == list(range(1, 7))
    other = join_parts(tokenizer, ["得ab", "病", "cd病"])
    assert [other.ids[i] for i in other.parts[2]] == [text.ids[i] for i in text.parts[2]]


def test_maps_are_sums_over_heads_without_padding(encoders: list[str]) -> None:
    bert, tokenizer = load_bert(encoders[0], attention="eager"), load_tokenizer(encoders[0])
    # more than a batch
    texts = [join_parts(tokenizer, [CHARACTERS[i : i + 3 + i % 7]]) for i in range(20)]
    for layer in (1, 3):
        for text, found in zip(texts, attention_maps(bert, texts, layer), strict=True):
            with torch.no_grad():
                single = bert(torch.tensor([text.ids]), output_attentions=True).attentions[
                    layer - 1
                ][0]
            by_hand = np.zeros((len(text.ids),) * 2)
            for head in range(4):
                by_hand += single[head].numpy()
            np.testing.assert_allclose(found, by_hand, atol=1e-5)
            np.testing.assert_allclose(found.sum(1), 4, atol=1e-5)
    for layer in (0, 4):
        with pytest.raises(InputError, match=rf"layer {layer}: the encoder has layers 1 to 3"):
            next(attention_maps(bert, texts, layer))
    with pytest.raises(
        InputError, match=r"a text of 66 tokens; the encoder holds 64\. Give a smaller WINDOW="
    ):
        next(attention_maps(bert, [join_parts(tokenizer, ["病" * 64])], 1))


def test_weights_of_replaced_entities(encoders: list[str]) -> None:
    one = reader(encoders[0], None, "cpu")
    sentence = Swap("d", "甲病", "得了", CONTEXT, "甲病", "慢性甲症", "丙病")
    [found] = weights(one, [sentence], 2)
    for name, size in (("original", 2), ("synonym", 4), ("random", 2)):
        text = join_parts(one.tokenizer, ["得了", getattr(sentence, name), CONTEXT])
        attention = next(attention_maps(one.bert, [text], 2))
        entity = range(3, 3 + size)
        context = [1, 2, *range(3 + size, 3 + size + len(CONTEXT))]
        out = [sum(attention[i, j] for i in entity) for j in context]
        back = [sum(attention[j, i] for i in entity) for j in context]
        np.testing.assert_allclose(found["entity to context"][name], out, atol=1e-5)
        np.testing.assert_allclose(found["context to entity"][name], back, atol=1e-5)
    alike = likeness([found])["context to entity"]
    two = found["context to entity"]
    assert alike["spearman"]["synonym"] == [
        pytest.approx(stats.spearmanr(two["original"], two["synonym"]).statistic)
    ]
    assert alike["cosine"]["random"] == [pytest.approx(cosine(two["original"], two["random"]))]


def test_the_nearest_tokens_are_shown() -> None:
    assert (
        near(3, 50, 20) == (3, 17) and near(50, 3, 20) == (17, 3) and near(50, 50, 20) == (10, 10)
    )
    assert near(4, 5, 20) == (4, 5) and near(9, 9, 0) == (0, 0)


# the command


class Segmenter:
    """A segmenter that has the pieces of the fake names and no others."""

    @classmethod
    def load(cls, folder: str) -> Segmenter:
        assert Path(folder).name == "segments"
        return cls()

    def pieces(self, name: str) -> list[str]:
        return list(PIECES.get(name, [name]))


@pytest.fixture
def inputs(tmp_path: Path, encoders: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """LINKED_TEXT, GRAPH, THESAURUS and SEGMENTS, and two encoders."""
    monkeypatch.setattr("benchmarks.papers.embert.attention.Segmenter", Segmenter)
    documents = {
        "1": (f"不是。得了甲病{CONTEXT}。", [("甲病", "甲病")]),
        "2": (f"丙病{CONTEXT}不", [("丙病", "丙病")]),
        "3": (f"有急性甲病炎{CONTEXT}", [("急性甲病炎", "急性甲病炎")]),
        "4": (f"{CONTEXT}是慢性血糖症", [("慢性血糖症", "慢性血糖症")]),
    }
    linked(tmp_path / "linked", documents)
    graphs.graph(TYPES | {"慢性血糖症": "疾病"}, []).save(tmp_path / "graph")
    rows = [(e, n, "alias") for e, names in SAME.items() for n in names]
    (tmp_path / "thesaurus").mkdir()
    pq.write_table(
        pa.table(
            dict(zip(("entity", "name", "kind"), map(list, zip(*rows, strict=True)), strict=True))
        ),
        tmp_path / "thesaurus" / "thesaurus.parquet",
    )
    write_json(
        tmp_path / "thesaurus" / "manifest.json",
        {"format": FORMAT, "sha256": sha256(tmp_path / "thesaurus" / "thesaurus.parquet")},
    )
    folders = {
        name: str(tmp_path / name.lower()) for name in ("GRAPH", "THESAURUS", "SEGMENTS")
    } | {"LINKED_TEXT": str(tmp_path / "linked")}
    return folders | {
        "MODEL": encoders[0],
        "BASE": encoders[1],
        "WINDOW": "30",
        "OUT": str(tmp_path / "out"),
    }


def test_figures_are_drawn(
    inputs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figures", "embert", *(f"{k}={v}" for k, v in inputs.items())]) == 0
    told = capsys.readouterr().out
    out = tmp_path / "out"
    assert all((out / f"figure{n}.png").read_bytes()[:4] == b"\x89PNG" for n in (2, 3))
    summary = read_json(out / "summary.json")
    first, second = summary["model"], summary["base"]
    two, three = summary["figure2"], summary["figure3"]
    assert {n: e["layer"] for n, e in two["encoders"].items()} == {first: 3, second: 2}
    assert {n: e["layer"] for n, e in three["encoders"].items()} == {first: 3, second: 2}
    assert two["sentences"] == two["encoders"][first]["all"]["sentences"] == 2
    assert two["encoders"][first]["synonyms as long as the name"]["sentences"] == 1
    assert two["encoders"][first]["synonyms without a character of the name"]["sentences"] == 1
    assert two["encoders"][first]["as long, and no character in common"] == {"sentences": 0}
    rows = list(csv.DictReader((out / "figure2.csv").open()))
    assert len(rows) == 2 * 2 * 2 and {r["direction"] for r in rows} == {
        "entity to context",
        "context to entity",
    }
    own = [r for r in rows if r["encoder"] == first and r["direction"] == "entity to context"]
    mean = np.mean([float(r["spearman synonym"]) for r in own])
    means = two["encoders"][first]["all"]["entity to context"]["spearman"]
    assert (
        means["synonym"]["mean"] == pytest.approx(mean, abs=1e-5) and f"synonym {mean:.3f}" in told
    )
    gain = {
        e: [
            float(r["cosine synonym"]) - float(r["cosine random"])
            for r in rows
            if r["encoder"] == e and r["direction"] == "context to entity"
        ]
        for e in (first, second)
    }
    between = two[f"synonym - random, {first} - {second}"]["context to entity"]["cosine"]
    assert between["mean"] == pytest.approx(np.mean(gain[first]) - np.mean(gain[second]), abs=1e-5)
    rows = list(csv.DictReader((out / "figure3.csv").open()))
    assert {(r["adjective"], r["atomic"]) for r in rows} == {
        ("急性", "甲病炎"),
        ("慢性血糖", "症"),
    } and len(rows) == 4
    key = "inside, of all tokens"
    values = {
        e: np.mean([float(r[key]) for r in rows if r["encoder"] == e]) for e in (first, second)
    }
    assert three["encoders"][first][key]["mean"] == pytest.approx(values[first], abs=1e-5)
    assert three[f"{first} - {second}"][key]["mean"] == pytest.approx(
        values[first] - values[second], abs=1e-5
    )
    flat = np.mean([5 / int(r["tokens"]) for r in rows])
    assert three["encoders"][second][key]["even"] == pytest.approx(flat)
    assert two["left out"] and three["left out"]
    assert (
        f"{first} - {second}, synonym - random, context to entity, cosine: {between['mean']:+.3f}"
        in told
    )


@pytest.mark.slow
def test_figures_are_the_same_every_time(inputs: dict[str, str], tmp_path: Path) -> None:
    words = [
        "figures",
        "embert",
        *(f"{k}={v}" for k, v in inputs.items()),
        "PICK2=1",
        "LAYER2=1",
        "LAYER3=2",
    ]
    assert main(words) == 0
    files = ("figure2.csv", "figure3.csv", "summary.json")
    first = [(tmp_path / "out" / name).read_bytes() for name in files]
    assert main(words) == 0 and [(tmp_path / "out" / name).read_bytes() for name in files] == first
    summary = read_json(tmp_path / "out" / "summary.json")
    assert summary["figure2"]["drawn row"] == 1 and {
        e["layer"] for e in summary["figure2"]["encoders"].values()
    } == {1}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"BASE": "MODEL"}, r"MODEL and BASE both mean .*: give another BASE="),
        ({"WINDOW": "100"}, r"WINDOW=100: the encoders hold 62 tokens"),
        ({"WINDOW": "12"}, r"no sentence with a long entity \(.*longer than the window"),
        ({"LEAST": "29"}, r"no sentence with a synonym"),
        ({"PICK2": "2"}, r"PICK2=2: expected a row from 0 to 1"),
        ({"PICK3": "7"}, r"PICK3=7: expected a row from 0 to 1"),
        ({"LAYER3": "3"}, r"layer 3: the encoder has layers 1 to 2"),
        ({"SENTENCES": "0"}, r"SENTENCES=0: expected a number of at least 1"),
        ({"LINKED_TEXT": "GRAPH"}, r"no: no finished linked text here"),
        ({"COLOUR": "red"}, r"no setting COLOUR"),
    ],
)
def test_what_cannot_be_drawn_is_reported(
    more: dict[str, str], message: str, inputs: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = inputs | {
        k: inputs.get(v, v) if k != "LINKED_TEXT" else str(Path(inputs["OUT"]) / "no")
        for k, v in more.items()
    }
    assert main(["figures", "embert", *(f"{k}={v}" for k, v in settings.items())]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_part_without_tokens_leaves_its_sentence_out(encoders: list[str], tmp_path: Path) -> None:
    readers = [reader(name, None, "cpu") for name in encoders]
    empty = Halves("d", "e", "得了", CONTEXT, "急性", "\u3000")
    with pytest.raises(
        InputError, match="no sentence whose long entity has tokens in both of its parts"
    ):
        shares.figure3(readers, [1, 1], [empty], tmp_path, None)
