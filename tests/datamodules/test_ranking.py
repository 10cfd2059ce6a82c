"""Answer ranking made of questions and answers: what is right, what is drawn, what never goes
apart, every broken table."""

from __future__ import annotations

import tarfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from datamodules.formats import group
from datamodules.ranking import FURTHER, REPEATED, alike, make_rankings, questions
from datamodules.tasks import Pair
from datamodules.tasks.definition import derivation_settings
from tests.fakes import chineseblue as fakes

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data in {REAL}")

ROWS = [
    ("甲科", "乙病怎么治", "得了乙病\n三天了", "吃甲药，多休息"),
    ("甲科", "头痛要紧吗", '他说"没事"', "不要紧"),
    ("丙科", "乙病怎么治", "得了乙病  三天了", "多喝水"),
    ("甲科", "乙病怎么治", "得了乙病 三天了", "吃甲药，多休息"),
]


def right(*pairs: tuple[str, str]) -> list[Pair]:
    return [
        Pair(f"x:{n}", group(question), question, answer, "1")
        for n, (question, answer) in enumerate(pairs, 2)
    ]


def test_rows_of_one_question_are_taken_together(tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    read = questions(fakes.write_dialogues(tmp_path / "neike.csv", ROWS), counts=found)
    # the first row goes over lines 2 and 3
    assert [(p.id, p.first, p.second, p.label) for p in read] == [
        ("neike:2", "乙病怎么治 得了乙病 三天了", "吃甲药，多休息", "1"),
        ("neike:5", "乙病怎么治 得了乙病 三天了", "多喝水", "1"),
        ("neike:4", '头痛要紧吗 他说"没事"', "不要紧", "1"),
    ]
    assert read[0].document == read[1].document == group(read[0].first) != read[2].document
    assert found == {REPEATED: 1, FURTHER: 1}


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (
            [("a", "b", "c")],
            "department,title,answer",
            r":1: expected the columns department, title, ask, answer; ask is",
        ),
        ([], "", r":1: expected the columns"),
        (
            [("a", "b", "c", "d"), ("a", "b", "c", " ")],
            "department,title,ask,answer",
            r":3: answer is empty\. Fill it in",
        ),
        ([("a", "", "c", "d")], "department,title,ask,answer", r":2: title is empty"),
        (
            [("a", "b", "\n", "d"), ("a", "b", "", "d")],
            "department,title,ask,answer",
            r":2: ask is empty",
        ),
        (
            [("a", "b", "c", "d"), ("a", "b", "c")],
            "department,title,ask,answer",
            r":3: expected 4 columns, got 3",
        ),
        ([], "department,title,ask,answer", r": no examples in this file"),
    ],
)
def test_a_broken_table_is_named(rows: list, header: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.csv" + message):
        questions(fakes.write_dialogues(tmp_path / "x.csv", rows, header))


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    """GB18030 reads UTF-8 as other characters, without an error."""
    path = fakes.write_dialogues(tmp_path / "x.csv", ROWS)
    text = path.read_bytes().decode("gb18030")
    path.write_bytes(text.encode())
    with pytest.raises(InputError, match=r"x\.csv: UTF-8 text, expected gb18030"):
        questions(path)
    assert len(questions(path, encoding="utf-8")) == 3
    path.write_bytes(text.encode("gb18030") + b"a,b,c,\xff\n")
    with pytest.raises(InputError, match=r"x\.csv:7: not gb18030 text"):
        questions(path)
    path.write_bytes(text.encode("gb18030") + b'a,b,c,"d\n')
    with pytest.raises(InputError, match=r"x\.csv:7: not valid CSV"):
        questions(path)
    with pytest.raises(InputError, match=r"nowhere\.csv"):
        questions(tmp_path / "nowhere.csv")


def test_questions_that_share_an_answer_are_found() -> None:
    chain = right(("a", "1"), ("b", "2"), ("c", "2"), ("c", "1"), ("d", "3"))
    assert sorted(map(sorted, alike(chain))) == [["a", "b", "c"], ["d"]]


answers = st.lists(
    st.tuples(st.integers(0, 25), st.integers(0, 60)), min_size=30, max_size=60, unique=True
)


@settings(deadline=None, max_examples=40)
@given(pairs=answers, seed=st.integers(0, 5))
def test_what_is_drawn(pairs: list[tuple[int, int]], seed: int) -> None:
    """From the definition: sizes, right answers whole, wrong ones of the split's other questions,
    no answer in two splits."""
    given = right(*((f"q{q}", f"a{a}") for q, a in pairs))
    own: dict[str, set[str]] = defaultdict(set)
    for pair in given:
        own[pair.first].add(pair.second)
    sizes = {"train": 2, "dev": 1, "test": 1}
    try:
        made = make_rankings(given, sizes, 1, seed)
    except InputError as error:
        assert "too few" in str(error) or "answers to other questions" in str(error)
        return
    seen: set[str] = set()
    for split, examples in made.items():
        asked = {e.first for e in examples}
        here = set().union(*(own[q] for q in asked))
        assert len(asked) == sizes[split] and len({e.id for e in examples}) == len(examples)
        for question in asked:
            mine = [e for e in examples if e.first == question]
            assert {e.second for e in mine if e.label == "1"} == own[question]
            wrong = [e.second for e in mine if e.label == "0"]
            assert len(wrong) == 1 and set(wrong) <= here - own[question]
        assert not here & seen
        seen |= here


def test_the_draw_is_the_same_every_time_and_another_by_another_seed() -> None:
    given = right(*((f"q{i}", f"a{i}") for i in range(60)))
    sizes = {"train": 20, "dev": 10, "test": 10}
    first = make_rankings(given, sizes, 5, 0)
    assert first == make_rankings(given, sizes, 5, 0) != make_rankings(given, sizes, 5, 1)
    # growing train leaves test and dev as they are
    more = make_rankings(given, sizes | {"train": 30}, 5, 0)
    assert more["test"] == first["test"] and more["dev"] == first["dev"]
    assert {e.first for e in more["train"]} > {e.first for e in first["train"]}
    # every wrong answer is equally likely: none of the 9 others is drawn every time
    drawn = Counter(e.second for e in first["test"] if e.label == "0")
    assert sum(drawn.values()) == 50 and len(drawn) == 10 and max(drawn.values()) < 10


def test_too_few() -> None:
    given = right(*((f"q{i}", f"a{i}") for i in range(10)))
    with pytest.raises(
        InputError, match=r"10 questions are too few for 9 of train, 2 of test: train has 8"
    ):
        make_rankings(given, {"train": 9, "test": 2}, 1, 0)
    with pytest.raises(
        InputError, match=r"test: 1 answers to other questions, expected 2 wrong ones a question"
    ):
        make_rankings(given, {"train": 5, "test": 2}, 2, 0)
    # a pair of questions with one answer does not fit into a split of one
    two = right(("a", "1"), ("b", "1"), ("c", "2"), ("d", "3"))
    assert {e.first for e in make_rankings(two, {"train": 2, "test": 2}, 0, 0)["train"]} in (
        {"a", "b"},
        {"c", "d"},
    )


@pytest.mark.data
@real
def test_real_questions(tmp_path: Path) -> None:
    with tarfile.open(REAL / "zh_text" / "toyhom_neike_sample.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    found: Counter[str] = Counter()
    read = questions(next(tmp_path.rglob("*.csv")), counts=found)
    assert len(read) == len({p.document for p in read}) == 7266 and (
        found[REPEATED],
        found[FURTHER],
    ) == (378, 0)
    splits = make_rankings(read, **derivation_settings("NeikeQA"))
    assert {s: len(e) for s, e in splits.items()} == {"train": 13200, "dev": 3300, "test": 5500}
    answered = {s: {e.second for e in examples} for s, examples in splits.items()}
    assert not answered["train"] & answered["test"] and not answered["train"] & answered["dev"]
    right_answer = {p.first: p.second for p in read}
    assert all(
        (right_answer[e.first] == e.second) == (e.label == "1")
        for examples in splits.values()
        for e in examples
    )
