"""Phrases, cut points and segmentation against their definitions, by hand and by brute force."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from kg.build.segment.cuts import (
    REVIEWED,
    count_cut_characters,
    cut_units,
    propose_cuts,
    read_cut_points,
    write_cut_points,
)
from kg.build.segment.evaluation import boundaries, read_reviewed, score
from kg.build.segment.mining import vocabulary
from kg.build.segment.ngrams import cohesion, fold_text, grams, symbols
from kg.build.segment.phrases import (
    FEATURES,
    Mining,
    PhraseModel,
    candidates,
    mine,
    precision,
    quality,
    read_phrases,
    write_phrases,
)
from kg.build.segment.segmenter import (
    Segmenter,
    format_explanation,
    is_ideograph,
    join_pieces,
    plain_jieba,
    read_dictionary,
    too_many_singles,
    units,
)
from kg.graph import KnowledgeGraph
from kg.linking.matcher import DictionaryLinker
from tests.commands import command as command_named
from tests.fakes.graphs import graph

main = command_named("graph segment")

REVIEWED_NAMES = Path(__file__).with_name("segmentation_reviewed.tsv")


# ngrams


def by_hand(texts):
    """Symbols as strings, "" for a boundary, by the definition: ideographs alone, other letters in
    runs."""
    found = [""]
    for text in texts:
        for character in fold_text(text) + "\n":
            if is_ideograph(character):
                found.append(character)
            elif not character.isalnum():
                found.append("")
            elif found[-1] and not is_ideograph(found[-1][-1]):
                found[-1] += character
            else:
                found.append(character)
    return found


def slow_grams(sequence, length):
    """n-gram -> its places."""
    places = {}
    for start in range(len(sequence) - length + 1):
        if all(sequence[start : start + length]):
            places.setdefault(tuple(sequence[start : start + length]), []).append(start)
    return places


def entropy(sequence, beside):
    """In nats; each boundary is a symbol of its own."""
    total = len(beside)
    counts = Counter(sequence[i] or f"boundary {i}" for i in beside)
    return -sum(c / total * math.log(c / total) for c in counts.values())


def test_symbols():
    found = symbols(["２型糖尿病，用 Metformin治", "B超"], 100)
    text = [found.text(i, 1) if found.codes[i] else "" for i in range(len(found.codes))]
    assert text == [
        "",
        "2",
        "型",
        "糖",
        "尿",
        "病",
        "",
        "用",
        "",
        "metformin",
        "治",
        "",
        "b",
        "超",
        "",
    ]
    assert (found.documents, found.characters, found.left_out) == (2, 20, 0)
    assert not symbols([], 10).codes.any()


def test_more_text_is_thinned_whatever_its_order():
    texts = [f"第{i}号病人" for i in range(200)]
    one, other = symbols(texts, 300), symbols(texts[::-1], 300)
    assert one.characters == other.characters <= 300 and one.left_out == other.left_out > 100
    assert sorted(one.codes.tolist()) == sorted(other.codes.tolist()) and one.documents == 200


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text("甲乙丙，a", max_size=25), max_size=4), st.integers(2, 3))
def test_counts_entropies_and_cohesion_against_the_definition(texts, least):
    given_symbols = symbols(texts, 1000)
    sequence = by_hand(texts)
    total = sum(map(bool, sequence))
    levels = grams(given_symbols.codes, 3, least)
    for length, level in enumerate(levels, 1):
        slow = {
            g: p for g, p in slow_grams(sequence, length).items() if length == 1 or len(p) >= least
        }
        rows = {
            tuple(by_hand([given_symbols.text(f, length)])[1:-1]): i
            for i, f in enumerate(level.first.tolist())
        }
        assert rows.keys() == slow.keys()
        for gram, row in rows.items():
            places = slow[gram]
            before, after = [p - 1 for p in places], [p + length for p in places]
            assert level.times[row] == len(places)
            assert level.left[row] == pytest.approx(entropy(sequence, before), abs=1e-9)
            assert level.right[row] == pytest.approx(entropy(sequence, after), abs=1e-9)
            edges = [sum(not sequence[i] for i in side) / len(places) for side in (before, after)]
            assert level.edges[row].tolist() == pytest.approx(edges)
            supers = [
                len(p)
                for g, p in slow_grams(sequence, length + 1).items()
                if len(p) >= least and gram in (g[1:], g[:-1])
            ]
            assert level.longer[row] == max(supers, default=0)
            if length > 1:
                splits = [(gram[:k], gram[k:]) for k in range(1, length)]
                sizes = [
                    [len(slow_grams(sequence, len(part))[part]) for part in split]
                    for split in splits
                ]
                wanted = min(math.log(len(places) * total / (u * v)) for u, v in sizes)
                assert cohesion(levels, length, total)[row] == pytest.approx(wanted)


def test_hand_worked_features():
    found = candidates(symbols(["糖尿病。糖尿病人。甲糖尿病"], 100), 3, 2)
    row = found.text.index("糖尿病")
    values = dict(zip(FEATURES, found.features[row].tolist(), strict=True))
    # 11 symbols, 3 times: each split is 3 * 11 / (3 * 3). Before it two boundaries and 甲, after it
    # 人 and two boundaries.
    assert found.total == 11 and found.times[row] == 3
    assert values["cohesion"] == pytest.approx(math.log(11 / 3)) and values["length"] == 3
    assert values["left entropy"] == values["right entropy"] == pytest.approx(math.log(3))
    assert values["boundary before"] == pytest.approx(2 / 3) and values["completeness"] == 1
    inner = found.features[found.text.index("糖尿")]
    assert (
        inner[FEATURES.index("completeness")] == 0 and inner[FEATURES.index("right entropy")] == 0
    )


# phrases


def corpus(seed=0, size=400):
    """Documents in which WORDS are wholes among random characters."""
    generator = np.random.default_rng(seed)
    filler = list("的一是在不了有和人这中大为上个国")
    texts = []
    for _ in range(size):
        parts = []
        for _ in range(6):
            parts += ["".join(generator.choice(filler, 3)), str(generator.choice(WORDS))]
        texts.append("".join(parts) + "。")
    return texts


WORDS = [
    "糖尿病",
    "高血压",
    "肺结核",
    "支气管炎",
    "冠状动脉",
    "骨髓穿刺",
    "视网膜",
    "腰椎间盘",
    "甲状腺",
    "胰岛素",
    "白细胞",
    "心电图",
]


def test_held_out_names_are_found():
    mined = mine(corpus(), WORDS, Mining(held_out=0.3, seed=1), sample=40)
    measured = precision(mined, best=len(mined.held_out) + 3, drawn=5)
    assert 2 <= len(mined.held_out) <= 6 and mined.held_out.isdisjoint(mined.training)
    assert mined.held_out | mined.training == set(WORDS)
    assert (
        measured.names == len(mined.held_out)
        and measured.chance < 0.5
        and len(measured.sample) == 5
    )
    assert all(0.5 <= q <= 1 for _, _, q in mined.phrases)
    texts = corpus()
    counts = {text: count for text, count, _ in mined.phrases}
    assert counts["糖尿病"] == sum(text.count("糖尿病") for text in texts)


def test_mining_is_deterministic():
    assert mine(corpus(), WORDS, Mining(seed=3)) == mine(corpus(), WORDS, Mining(seed=3))
    assert (
        mine(corpus(), WORDS, Mining(seed=3)).phrases
        != mine(corpus(), WORDS, Mining(seed=4)).phrases
    )


def test_quality_of_what_the_trees_can_part():
    features = np.concatenate([np.zeros((50, 3)), np.ones((50, 3))])
    scores = quality(features, np.arange(100) >= 60, trees=20, sample=30)
    assert (
        scores[:50].max() == 0 and scores[50:].min() > 0.7
    )  # the ten that are not trained on are like the forty that are


@pytest.mark.parametrize("texts", [["hello world again"], ["甲乙"], ["，。"]])
def test_text_without_candidates(texts):
    mined = mine(texts, ["糖尿病"])
    assert (
        mined.phrases == [] and mined.report["candidates"] == 0 and precision(mined)[:2] == (0, 0)
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"least": 1}, "least >= 2"),
        ({"longest": 1}, "longest >= 2"),
        ({"held_out": 1}, "held_out"),
        ({"most": 0}, "most"),
    ],
)
def test_mining_settings(settings, message):
    with pytest.raises(InputError, match=message):
        mine(["糖尿病"], ["糖尿病"], Mining(**settings))
    with pytest.raises(InputError, match="no text"):
        mine([], ["糖尿病"])


def test_phrases_on_disk(tmp_path):
    write_phrases(tmp_path / "p.tsv", [("糖尿病", 3, 0.75)])
    assert list(read_phrases(tmp_path / "p.tsv")) == [("糖尿病", 3, 0.75)]
    (tmp_path / "p.tsv").write_text("phrase\tcount\tquality\n糖尿病\t3\t1.5\n")
    with pytest.raises(InputError, match=r"p\.tsv:2: expected phrase, count, quality"):
        list(read_phrases(tmp_path / "p.tsv"))


def splits(text):
    """Every way to cut `text`."""
    if not text:
        yield []
    for end in range(1, len(text) + 1):
        for rest in splits(text[end:]):
            yield [text[:end], *rest]


@given(
    st.dictionaries(st.text("甲乙丙", min_size=2, max_size=4), st.floats(-9, -0.1), max_size=8),
    st.text("甲乙丙", min_size=1, max_size=7),
    st.booleans(),
)
def test_best_segmentation_against_all(weights, name, whole):
    model = PhraseModel(weights, 500)

    def weight(pieces):
        known = [model.other if len(p) == 1 else weights.get(p, -math.inf) for p in pieces]
        return -math.inf if not whole and len(pieces) == 1 < len(name) else sum(known)

    found = model.pieces(list(name), whole)
    assert "".join(found) == name and weight(found) == pytest.approx(max(map(weight, splits(name))))


def test_phrase_weights():
    model = PhraseModel.from_counts([("糖尿病", 50, 0.8), ("无", 3, 0.0)], 1000)
    assert model.weights == {
        "糖尿病": pytest.approx(math.log(0.04))
    } and model.other == pytest.approx(-math.log(1000))
    assert (
        model.pieces(["２", "型", "糖", "尿", "病"]) == ["２", "型", "糖尿病"]
        and model.pieces([]) == []
    )


# cut points


def test_counted_by_hand():
    rows = count_cut_characters(
        [["慢性", "肝炎"], ["急性", "肺炎", "肝"], ["性病"], ["2", "型"]], most=3
    )
    assert rows == [("性", 0, 2, "慢性|肝炎"), ("肝", 2, 0, "慢性|肝炎"), ("型", 1, 0, "2|型")]
    assert count_cut_characters([], 5) == []


def test_cutting():
    points = {"性": "behind", "症": "behind", "检": "before"}

    def stretches(name):
        return ["".join(stretch) for stretch in cut_units(units(name), points)]

    assert stretches("慢性肝炎") == ["慢性", "肝炎"]
    assert stretches("性激素") == ["性激素"]  # it begins the name
    assert stretches("女性性功能障碍") == ["女性", "性功能障碍"]  # doubled: an end and a beginning
    assert stretches("慢性病") == ["慢性病"] and stretches("尸检") == [
        "尸检"
    ]  # one character would be left
    assert stretches("炎症性肠病") == ["炎症性", "肠病"]  # 症 belongs to 性
    assert stretches("胃镜检查") == ["胃镜", "检查"] and stretches("镜检查") == ["镜检查"]
    assert cut_units([], points) == []


def test_the_projects_cut_points():
    points = read_cut_points(REVIEWED)
    assert (
        points["性"] == points["型"] == "behind" and points["综"] == "before" and "病" not in points
    )
    assert 10 <= len(points) <= 40
    assert (
        len([line for line in REVIEWED.read_text().splitlines() if not line.startswith("#")]) == 101
    )


def test_cut_points_on_disk(tmp_path):
    rows = propose_cuts(
        [("性", 1, 9, "慢性|肝炎"), ("综", 7, 0, "甲|综合征"), ("型", 0, 3, "2型|甲")],
        {"性": "behind", "综": "before"},
    )
    assert [(row.keep, row.side) for row in rows] == [
        (True, "behind"),
        (True, "before"),
        (False, "behind"),
    ]
    write_cut_points(tmp_path / "c.tsv", rows)
    assert read_cut_points(tmp_path / "c.tsv") == {"性": "behind", "综": "before"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"no cut points"),
        ("a\tb\n", r":1: expected the columns character, first"),
        (
            "character\tfirst\tlast\texample\tkeep\tside\n性\t0\t0\t\tmaybe\tbehind\n",
            r":2: expected one character",
        ),
        (
            "character\tfirst\tlast\texample\tkeep\tside\n性性\t0\t0\t\tyes\tbehind\n",
            r":2: expected one character",
        ),
        (
            "character\tfirst\tlast\texample\tkeep\tside\n性\t0\t0\t\tyes\tbehind\n"
            "性\t0\t0\t\tyes\tbefore\n",
            r":3: '性' is kept twice",
        ),
    ],
)
def test_broken_cut_points(tmp_path, text, message):
    (tmp_path / "c.tsv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_cut_points(tmp_path / "c.tsv")


# segmenter


@pytest.fixture(scope="module")
def segmenter():
    phrases = [("头孢克肟", 40, 0.9), ("氨酚黄那敏", 40, 0.9)]
    words = [("糖尿病", None), ("视网膜", None), ("支气管", 500)]
    return Segmenter(words, read_cut_points(REVIEWED), PhraseModel.from_counts(phrases, 10_000))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("2型糖尿病", ["2", "型", "糖", "尿", "病"]),
        ("维生素B12", ["维", "生", "素", "B12"]),
        ("胶囊（II）", ["胶", "囊", "（II）"]),
        ("（成人）片", ["（成", "人）", "片"]),
        ("Dandy Walker综合征", ["Dandy ", "Walker", "综", "合", "征"]),
        ("β-内酰胺", ["β-", "内", "酰", "胺"]),
        ("ＣＴ检查", ["ＣＴ", "检", "查"]),
        ("、甲", ["、甲"]),
        ("(", ["("]),
    ],
)
def test_units(name, wanted):
    assert units(name) == wanted


def test_letters_are_joined():
    assert join_pieces(["2", "型", "糖尿病"]) == ["2型", "糖尿病"] and join_pieces(
        ["抗", "HIV", "抗体"]
    ) == [
        "抗HIV",
        "抗体",
    ]
    assert join_pieces(["β", "受体"]) == ["β受体"] and join_pieces(["维生素", "C"]) == ["维生素C"]
    assert join_pieces(["胸部", "CT", "检查"]) == ["胸部", "CT", "检查"] and join_pieces(["X"]) == [
        "X"
    ]


def test_steps(segmenter):
    found = segmenter.explain("慢性支气管炎")
    assert (found.how, found.pieces) == ("cut points", ["慢性", "支气管炎"])
    found = segmenter.explain("糖尿病视网膜病变")
    assert (
        found.how == "jieba"
        and found.pieces[:2] == ["糖尿病", "视网膜"]
        and found.stretches == ["糖尿病视网膜病变"]
    )
    assert segmenter.explain("急性支气管扩张").how == "cut points and jieba"
    found = segmenter.explain("头孢克肟酯")  # Jieba has nothing but characters for it
    assert (
        found.how == "phrases"
        and found.pieces == ["头孢克肟", "酯"]
        and too_many_singles(found.words, 5)
    )
    assert (
        segmenter.explain("鼗鼙鼛鼜").pieces == ["鼗鼙鼛鼜"]
        and segmenter.explain("鼗鼙鼛鼜").how == "whole"
    )
    assert "too many single characters; the phrases: 头孢克肟|酯" in format_explanation(
        segmenter.explain("头孢克肟酯")
    )
    assert "cut points: 慢性|支气管炎" in format_explanation(segmenter.explain("慢性支气管炎"))


@pytest.mark.parametrize(
    "name", ["肺", "糖尿病", "aspirin tablets", "123", "Ⅱ", "ＡＢＣＤ", "糖 尿 病"]
)
def test_short_names_are_whole(segmenter, name):
    assert segmenter.pieces(name) == [name] and segmenter.explain(name).how == "short"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("２型糖尿病", ["２型", "糖尿病"]),
        ("2型 糖尿病", ["2型 ", "糖尿病"]),
        ("慢性支气管炎(急性)", ["慢性", "支气管炎", "(急性)"]),
        ("抗HIV抗体检查", ["抗HIV", "抗体", "检查"]),
    ],
)
def test_letters_blanks_and_brackets(segmenter, name, wanted):
    assert segmenter.pieces(name) == wanted


def test_a_lone_ending_is_joined(segmenter):
    assert (
        not any(piece == "性" for piece in segmenter.pieces("假膜性肠炎"))
        and segmenter.pieces("假膜性肠炎")[-1] == "肠炎"
    )


@pytest.mark.parametrize("name", ["", " ", "\t"])
def test_no_name(segmenter, name):
    with pytest.raises(InputError, match="expected a name"):
        segmenter.pieces(name)


def test_a_very_long_name_is_whole(segmenter):
    assert segmenter.explain("慢性" * 500).how == "whole"


@settings(deadline=None)
@given(st.text("慢性支气管炎糖尿病2型Bβ（）() 、-Ａ症检查综合征病", max_size=14).filter(str.strip))
def test_pieces_give_the_name(segmenter, name):
    pieces = segmenter.pieces(name)
    assert (
        "".join(pieces) == name
        and all(piece.strip() for piece in pieces)
        and pieces == segmenter.pieces(name)
    )
    assert "".join(units(name)) == name


@pytest.mark.parametrize("singles", [-0.1, 1.5])
def test_singles(singles):
    with pytest.raises(InputError, match="expected a share"):
        Segmenter([], {}, PhraseModel({}, 10), singles=singles)


def test_too_many_singles():
    assert not too_many_singles(["胃", "穿孔"], 3) and too_many_singles(["胃", "大", "穿孔"], 4)
    assert not too_many_singles(["2", "B"], 2) and too_many_singles(["（胃）", "甲"], 2)


def test_jieba_reads_and_writes_no_shared_file(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "jieba.cache").write_bytes(b"not for us")
    assert plain_jieba().lcut("糖尿病患者") and [p.name for p in tmp_path.iterdir()] == [
        "jieba.cache"
    ]
    assert (tmp_path / "jieba.cache").read_bytes() == b"not for us"


def test_a_users_words_stay_in_their_tokenizer(segmenter):
    one = Segmenter([("甲乙丙丁戊", 10_000)], {}, PhraseModel({}, 10))
    assert (
        one.pieces("甲乙丙丁戊检查") == ["甲乙丙丁戊", "检查"] != segmenter.pieces("甲乙丙丁戊检查")
    )


def test_user_dictionary(tmp_path):
    (tmp_path / "u.txt").write_text("\ufeff糖尿病\n\n高血压 30\n肺结核\t7 n\n心电图 n\n")
    assert list(read_dictionary(tmp_path / "u.txt")) == [
        ("糖尿病", None),
        ("高血压", 30),
        ("肺结核", 7),
        ("心电图", None),
    ]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("糖尿病\n高血压 a b\n".encode(), r"u\.txt:2: expected a word"),
        ("糖尿病 1 n 多\n".encode(), r"u\.txt:1: expected a word"),
        ("糖尿病 0\n".encode(), r"u\.txt:1: expected a word"),
        ("糖尿病\n".encode("gb18030"), r"u\.txt:1: not utf-8 text"),
    ],
)
def test_broken_user_dictionary(tmp_path, raw, message):
    (tmp_path / "u.txt").write_bytes(raw)
    with pytest.raises(InputError, match=message):
        list(read_dictionary(tmp_path / "u.txt"))


# build, show, score


def test_vocabulary():
    known = graph(
        {"糖尿病": "disease", "B超": "examination"},
        [("糖尿病", "检查", "B超")],
        [],
        [("糖尿病", "别称", "B超")],
    )
    whole, added = vocabulary(known, ["b超", "血糖升高", "糖尿病", "血糖升高"])
    assert added == ["血糖升高"] and whole.ids.to_pylist() == ["糖尿病", "B超", "phrase:血糖升高"]
    assert whole.entities["type"].to_pylist()[-1] == "短语" and whole.equivalences.equals(
        known.equivalences
    )
    found = DictionaryLinker.from_graph(whole).link("他血糖升高，有糖尿病")
    assert [m.entity for m in found] == ["phrase:血糖升高", "糖尿病"]
    assert vocabulary(whole, ["血糖升高"])[1] == []


@pytest.fixture
def inputs(tmp_path):
    names = {*WORDS, "慢性支气管炎", "冠状动脉造影"}
    graph(dict.fromkeys(sorted(names), "disease"), []).save(tmp_path / "graph")
    (tmp_path / "text.txt").write_bytes("\n".join(corpus()).encode("gb18030"))
    return tmp_path


def command(inputs, *more):
    return [
        "build",
        "--graph",
        str(inputs / "graph"),
        "--input",
        str(inputs / "text.txt"),
        "--out",
        str(inputs / "out"),
        *more,
    ]


def test_build_show_and_score(inputs, capsys):
    (inputs / "user.txt").write_text("造影 5000\n")
    words = command(
        inputs,
        "--encoding",
        "gb18030",
        "--dictionary",
        str(inputs / "user.txt"),
        "--quality",
        "0.8",
    )
    assert main(words) == 0
    told_words = capsys.readouterr().out
    assert "names held out" in told_words and "1 user words" in told_words
    rows = pq.read_table(inputs / "out" / "segments.parquet").to_pylist()
    assert {"name": "慢性支气管炎", "pieces": ["慢性", "支气管炎"], "how": "cut points"} in rows
    assert all("".join(row["pieces"]) == row["name"] and len(row["pieces"]) > 1 for row in rows)
    assert len(read_cut_points(inputs / "out" / "cut_points.tsv")) == len(read_cut_points(REVIEWED))
    whole = KnowledgeGraph.load(inputs / "out" / "vocabulary")
    assert set(WORDS) <= set(whole.ids.to_pylist())
    loaded = Segmenter.load(inputs / "out")
    assert {row["name"]: loaded.pieces(row["name"]) for row in rows} == {
        row["name"]: row["pieces"] for row in rows
    }

    before = (inputs / "out" / "segments.parquet").stat().st_mtime_ns
    assert main(words) == 0 and "kept: " in capsys.readouterr().err
    assert (inputs / "out" / "segments.parquet").stat().st_mtime_ns == before
    for changed in ((*words, "--fresh"), (*words, "--quality", "0.7")):
        assert main(list(changed)) == 0 and "names held out" in capsys.readouterr().out
    (inputs / "user.txt").write_text("造影 6000\n")
    assert main(words) == 0 and "names held out" in capsys.readouterr().out

    assert main(["show", "--segmenter", str(inputs / "out"), "慢性支气管炎", "肺"]) == 0
    assert "慢性支气管炎  ->  慢性|支气管炎" in capsys.readouterr().out
    (inputs / "reviewed.tsv").write_text("# by hand\n慢性|支气管炎\tdisease\n糖|尿病视网膜\n")
    assert (
        main(
            [
                "score",
                "--segmenter",
                str(inputs / "out"),
                "--reviewed",
                str(inputs / "reviewed.tsv"),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert (
        "2 names, 2 boundaries" in shown
        and "Jieba alone" in shown
        and "糖|尿病视网膜\t糖尿病|视网膜" in shown
    )


def test_build_without_phrases(inputs, capsys):
    (inputs / "text.txt").write_text("nothing but English here\n")
    assert main(command(inputs)) == 0
    assert "warning: no phrases" in capsys.readouterr().out
    assert Segmenter.load(inputs / "out").pieces("慢性支气管炎") == ["慢性", "支气管炎"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), r"text\.txt:1: not utf-8 text"),
        (("--encoding", "gb99"), "no such encoding"),
        (("--quality", "0"), "--quality 0.0: expected"),
        (("--cut-points", "none.tsv"), "none.tsv: no such file"),
        (("--dictionary", "none.txt"), "none.txt: no such file"),
        (("--encoding", "gb18030", "--singles", "2"), "singles 2.0: expected a share"),
    ],
)
def test_build_refuses(inputs, capsys, more, message):
    assert main(command(inputs, *more)) == 2
    assert message.replace("\\", "") in capsys.readouterr().err and not (inputs / "out").exists()


def test_empty_text(inputs, capsys):
    (inputs / "text.txt").write_text("\n \n")
    assert main(command(inputs)) == 2 and "no text" in capsys.readouterr().err


def test_no_segmenter(tmp_path, capsys):
    assert main(["show", "--segmenter", str(tmp_path), "肺"]) == 2
    assert "no segmenter here (manifest.json is missing). Build it" in capsys.readouterr().err


def test_score_by_hand():
    assert boundaries(["慢性", "肝炎", "病"]) == {2, 4} and boundaries(["肝"]) == set()
    wanted = [["慢性", "肝炎"], ["糖尿病", "足", "病"], ["肝"]]
    found = score(wanted, [["慢性", "肝", "炎"], ["糖尿病", "足病"], ["肝"]])
    assert found == (2 / 3, 2 / 3, pytest.approx(2 / 3), 1 / 3)
    assert score([["肝"]], [["肝"]]) == (0, 0, 0, 1) and score(wanted, wanted) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# none\n", "no names"),
        ("慢性||肝炎\n", r"r\.tsv:1: expected a name"),
        ("慢性|肝炎\n慢|性肝炎\n", r"r\.tsv:2: '慢性肝炎' is there twice"),
    ],
)
def test_broken_reviewed(tmp_path, text, message):
    (tmp_path / "r.tsv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_reviewed(tmp_path / "r.tsv")


def test_the_reviewed_names(segmenter):
    names = read_reviewed(REVIEWED_NAMES)
    assert len(names) >= 220 and all(len("".join(pieces)) > 3 for pieces in names)
    by_points = [
        ["".join(stretch) for stretch in cut_units(units("".join(pieces)), segmenter.points)]
        for pieces in names
    ]
    nothing = score(names, [["".join(pieces)] for pieces in names])
    assert score(names, by_points).precision > 0.9 and score(names, by_points).whole > nothing.whole
