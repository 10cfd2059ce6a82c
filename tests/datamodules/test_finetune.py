"""The downstream datamodule: windows, labels, batches and predictions back in the text."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import datamodules.finetune as module
from core.files import InputError
from datamodules.finetune import FinetuneData
from datamodules.tagging import bio_decoded, bio_labels, unit_spans, units, windows
from datamodules.tasks import Pair, Relation, Tagged, save_task
from datamodules.tasks.selection import divide
from tests.fakes import bert, tasks

ABOUT = {"name": "t", "language": "en"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(bert.write(tmp_path_factory.mktemp("bert"), tasks.WORDS))


def data(task: Path, encoder: str, **settings: object) -> FinetuneData:
    made = FinetuneData(str(task), encoder, **{"max_length": 64, "batch_size": 4} | settings)  # type: ignore[arg-type]
    made.setup()
    return made


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.sampled_from("xy")), max_size=5))
def test_labels_and_spans_are_inverse(raw: list[tuple[int, int, str]]) -> None:
    spans, taken = [], set()
    for start, size, kind in raw:
        places = set(range(start, min(start + size, 12)))
        if not places & taken:
            taken |= places
            spans.append((start, max(places) + 1, kind))
    assert sorted(bio_decoded(bio_labels(spans, 12, ["x", "y"]), ["x", "y"])) == sorted(spans)


def test_an_i_that_continues_nothing_opens_a_span() -> None:
    # I-x | O | B-x I-y | I-x I-x
    assert bio_decoded([2, 0, 1, 4, 2, 2], ["x", "y"]) == [
        (0, 1, "x"),
        (2, 3, "x"),
        (3, 4, "y"),
        (4, 6, "x"),
    ]


def test_of_overlapping_entities_the_longest_is_labelled() -> None:
    assert bio_labels([(1, 2, "x"), (0, 3, "y")], 4, ["x", "y"]) == [3, 4, 4, 0]
    assert bio_labels([(0, 2, "unseen")], 2, ["x"]) == [0, 0]


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=40), st.integers(4, 12))
def test_windows_cover_every_unit_once_and_fit(units_: list[tuple[int, bool]], room: int) -> None:
    sizes, ends = [s for s, _ in units_], [e for _, e in units_]
    cuts = windows(sizes, ends, room)
    assert [i for first, last in cuts for i in range(first, last)] == list(range(len(sizes)))
    assert all(sum(sizes[first:last]) <= room and first < last for first, last in cuts)


def test_a_window_ends_with_a_sentence_if_it_can() -> None:
    ends = [False] * 10
    ends[5] = True
    assert windows([1] * 10, ends, 8) == [(0, 6), (6, 10)]
    assert windows([1] * 10, [False] * 10, 8) == [(0, 8), (8, 10)]
    # too long for any window: it is one of its own
    assert windows([20, 1], [False, False], 8) == [(0, 1), (1, 2)]


def test_units_are_words_or_characters() -> None:
    assert units(Tagged("0", "0", "甲 b\u3000丙", []), "zh") == [(0, 1), (2, 3), (4, 5)]
    assert units(Tagged("0", "0", "IL-2 is", []), "en") == [(0, 2), (2, 3), (3, 4), (5, 7)]
    given_words = [(0, 4), (5, 7)]
    assert units(Tagged("0", "0", "IL-2 is", [], given_words), "en") == given_words
    assert unit_spans([(0, 4, "x"), (0, 2, "y")], given_words) == [(0, 1, "x")]


def test_gold_labels_decode_to_the_gold_spans_across_windows(tmp_path: Path, encoder: str) -> None:
    """A text of several windows: labels of all of them are exactly the gold spans, one over a cut
    included."""
    words = ["much"] * 3 + ["severe", "acne"] + ["the"] * 7
    text = " ".join(words)
    spans = [
        (sum(len(w) + 1 for w in words[:i]), sum(len(w) + 1 for w in words[:i]) + len(words[i]))
        for i in range(len(words))
    ]
    entity = (spans[3][0], spans[4][1], "x")
    example = Tagged("0", "0", text, [entity], spans)
    save_task(
        tmp_path / "t",
        {"train": [example], "dev": [example], "test": [example]},
        kind="ner",
        metric="entity_f1",
        **ABOUT,
    )
    made = data(tmp_path / "t", encoder, max_length=6)  # four words a window: the entity is cut
    features = made.features["score"]
    assert [(f.first_unit, len(f.unit)) for f in features] == [(0, 4), (4, 4), (8, 4)]
    batch = made.batch("score", [0, 1, 2])
    assert batch.labels is not None and batch.unit_mask is not None
    outputs = {i: batch.labels[i][batch.unit_mask[i]].numpy() for i in range(3)}
    assert made.decode_outputs("score", outputs) == [[entity]]


def test_units_point_at_their_first_token(tmp_path: Path, encoder: str) -> None:
    made = data(tasks.write(tmp_path / "t", "ner"), encoder)
    batch = made.batch("train", list(range(8)))
    assert batch.unit is not None and batch.unit_mask is not None
    for row, number in enumerate(batch.feature.tolist()):
        example = made.examples["train"][made.features["train"][number].example]
        for position, (start, end) in zip(
            batch.unit[row][batch.unit_mask[row]], units(example, "en"), strict=True
        ):
            token = made.tokenizer.convert_ids_to_tokens(int(batch.input_ids[row, position]))
            assert example.text[start:end].startswith(token)


def test_a_character_that_the_tokenizer_drops_is_unknown_but_has_its_place(
    tmp_path: Path, encoder: str
) -> None:
    example = Tagged("0", "0", "a\u200bcne gout " * 5, [(0, 5, "x")], [(0, 1), (1, 2), (2, 5)])
    save_task(
        tmp_path / "t",
        {"train": [example], "dev": [example], "test": [example]},
        kind="ner",
        metric="entity_f1",
        **ABOUT,
    )
    with pytest.raises(InputError, match=r"20% of the text is \[UNK\]"):
        data(tmp_path / "t", encoder)


def test_an_encoder_that_does_not_know_the_script_is_refused(tmp_path: Path, encoder: str) -> None:
    chinese = [Pair(str(i), str(i), "发热" * 3, "咳嗽", str(i % 2)) for i in range(4)]
    save_task(
        tmp_path / "t",
        {"train": chinese, "dev": chinese, "test": chinese},
        kind="pair",
        metric="f1",
        **ABOUT | {"language": "zh"},
    )
    with pytest.raises(
        InputError, match=r"100% of the text is \[UNK\] .* Take an encoder of the text's language"
    ):
        data(tmp_path / "t", encoder)


@pytest.mark.parametrize(
    ("sizes", "scored", "selected"),
    [
        ({"train": 40, "dev": 9, "test": 9}, "test", "dev"),
        ({"train": 40, "dev": 9}, "dev", "a tenth of train"),
        ({"train": 40, "test": 9}, "test", "a tenth of train"),
    ],
)
def test_the_scored_split_is_never_the_one_to_select_on(
    tmp_path: Path, encoder: str, sizes: dict[str, int], scored: str, selected: str
) -> None:
    made = data(tasks.write(tmp_path / "t", "relation", sizes), encoder)
    assert (made.scored, made.selected_on) == (scored, selected)
    assert made.examples["score"] == made.task.splits[scored]
    documents = {k: {e.document for e in made.examples[k]} for k in ("train", "select")}
    if selected == "dev":
        assert made.examples["select"] == made.task.splits["dev"]
    else:
        assert not documents["train"] & documents["select"] and len(documents["select"]) == 2
        assert len(made.examples["train"]) + len(made.examples["select"]) == 40
        again = data(tmp_path / "t", encoder, seed=5)
        assert again.examples == made.examples  # the same for every training seed


def test_what_is_held_out_is_chosen_by_a_hash_of_the_document() -> None:
    """Files in the order of their dates or classes would lend one end of it otherwise."""
    names = [f"d{number:02d}" for number in range(20)]
    ranked = sorted(names, key=lambda name: hashlib.sha256(f"0/{name}".encode()).hexdigest())
    assert ranked[:2] != names[:2]
    kept, held = divide([Relation("0", name, "x", "a", ["a"]) for name in names], "here")
    assert {one.document for one in held} == {*ranked[:2]}
    assert [one.document for one in kept] == [name for name in names if name not in ranked[:2]]


def test_markers_are_whole_tokens_and_stay_inside_a_cut_text(tmp_path: Path, encoder: str) -> None:
    filler = "the " * 60
    rows = [
        Relation("0", "0", "@GENE$ causes @DISEASE$", "a", ["a"]),
        Relation("1", "1", f"{filler}@GENE$ much @DISEASE$ {filler}", "b", ["b"]),
        Relation("2", "2", "the @GENE$ alone", "b", ["b"]),
        Relation("3", "3", "nothing here", "a", ["a"]),
        Relation("4", "4", f"@GENE$ {filler}@DISEASE$", "a", ["a"]),
        Relation("5", "5", f"{filler}{filler}@GENE$ the @DISEASE$", "a", ["a"]),
    ]
    save_task(
        tmp_path / "t",
        {"train": rows, "dev": rows, "test": rows},
        kind="relation",
        metric="micro_f1",
        markers=tasks.MARKERS,
        **ABOUT,
    )
    made = data(tmp_path / "t", encoder, max_length=32)
    batch = made.batch("train", range(6))
    assert batch.anchor is not None and batch.input_ids.shape[1] <= 32
    tokens = [
        [made.tokenizer.convert_ids_to_tokens(int(batch.input_ids[r, p])) for p in batch.anchor[r]]
        for r in range(6)
    ]
    assert tokens == [
        ["@GENE$", "@DISEASE$"],
        ["@GENE$", "@DISEASE$"],
        ["@GENE$", "@GENE$"],
        ["[CLS]", "[CLS]"],
        ["@GENE$", "@GENE$"],
        ["@GENE$", "@DISEASE$"],
    ]


def test_closing_markers_are_no_anchors(tmp_path: Path, encoder: str) -> None:
    row = Relation("0", "0", "[S] acne [/S] the [O] gout [/O]", "a", ["a"])
    save_task(
        tmp_path / "t",
        {"train": [row], "dev": [row], "test": [row]},
        kind="relation",
        metric="micro_f1",
        markers=["[S]", "[/S]", "[O]", "[/O]"],
        **ABOUT,
    )
    batch = data(tmp_path / "t", encoder).batch("train", [0])
    assert batch.anchor is not None and batch.anchor.tolist() == [[1, 5]]


def test_the_second_text_is_distinguished(tmp_path: Path, encoder: str) -> None:
    made = data(tasks.write(tmp_path / "t", "pair"), encoder)
    batch = made.batch("train", [0, 1])
    assert batch.second is not None
    for row in range(2):
        n = int(batch.attention_mask[row].sum())
        first_end = batch.input_ids[row].tolist().index(made.tokenizer.sep_token_id)
        assert batch.second[row].tolist() == [0] * (first_end + 1) + [1] * (n - first_end - 1) + [
            0
        ] * (batch.second.shape[1] - n)


def test_of_two_long_texts_the_longer_is_cut(tmp_path: Path, encoder: str) -> None:
    rows = [
        Pair(str(i), str(i), "acne " * a, "gout " * b, "1")
        for i, (a, b) in enumerate([(40, 40), (3, 90), (90, 3), (9, 9)])
    ]
    save_task(
        tmp_path / "t",
        {"train": rows, "dev": rows, "test": rows},
        kind="pair",
        metric="f1",
        **ABOUT,
    )
    made = data(tmp_path / "t", encoder, max_length=33)
    acne, gout = made.tokenizer.convert_tokens_to_ids(["acne", "gout"])
    counted = [(f.ids.count(acne), f.ids.count(gout)) for f in made.features["train"]]
    assert counted == [(15, 15), (3, 27), (27, 3), (9, 9)]
    assert all(len(f.ids) == len(f.offsets) <= 33 for f in made.features["train"])


def test_every_example_is_in_an_epoch_once_and_epochs_differ(tmp_path: Path, encoder: str) -> None:
    made = data(tasks.write(tmp_path / "t", "ner"), encoder)
    first, again, second = made.order(0), made.order(0), made.order(1)
    assert sorted(np.concatenate(first)) == list(range(24))
    assert (
        [b.tolist() for b in first] == [b.tolist() for b in again] != [b.tolist() for b in second]
    )
    lengths = [sorted(len(made.features["train"][i].ids) for i in b) for b in first]
    padded = sum(max(group) * len(group) for group in lengths)
    assert padded < 1.2 * sum(map(sum, lengths))  # batches are of similar length


def test_duels_are_a_right_and_a_wrong_answer_to_one_question(tmp_path: Path, encoder: str) -> None:
    made = data(tasks.write(tmp_path / "t", "ranking"), encoder, negatives=1)
    examples = made.examples["train"]
    pairs = np.concatenate(made.order(0)).reshape(-1, 2)
    assert len(pairs) == sum(e.label == "1" for e in examples)
    for right, wrong in pairs:
        assert examples[right].label == "1" and examples[wrong].label == "0"
        assert examples[right].document == examples[wrong].document
    assert len(
        np.concatenate(data(tmp_path / "t", encoder, negatives=9).order(0)).reshape(-1, 2)
    ) == 2 * len(pairs)


def test_a_question_with_only_right_answers_borrows_wrong_ones(
    tmp_path: Path, encoder: str
) -> None:
    rows = [
        Pair("0", "q", "acne", "gout", "1"),
        Pair("1", "r", "mumps", "polio", "0"),
        Pair("2", "r", "mumps", "gout", "0"),
    ]
    save_task(
        tmp_path / "t",
        {"train": rows, "dev": rows, "test": rows},
        kind="ranking",
        metric="acc1",
        **ABOUT,
    )
    pairs = np.concatenate(data(tmp_path / "t", encoder).order(0)).reshape(-1, 2)
    assert sorted(pairs.tolist()) == [[0, 1], [0, 2]]


class _Linker:
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, texts: list[str], offsets: list[list[tuple[int, int]]]) -> torch.Tensor:
        """(M, 3) row, first, last + 1 of the tokens of the word "acne"."""
        found = []
        for row, (text, own) in enumerate(zip(texts, offsets, strict=True)):
            for i, (start, end) in enumerate(own):
                if text[start:end] == "acne":
                    found.append([row, i, i + 1])
        return torch.tensor(found).reshape(-1, 3)


@pytest.mark.parametrize("kind", ["ner", "pair", "relation"])
def test_mentions_are_linked_when_the_encoder_asks(
    tmp_path: Path, encoder: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # only what is defined in the room is found by name
    monkeypatch.setattr(_Linker, "__module__", module.__name__)
    monkeypatch.setattr(module, "FakeLinker", _Linker, raising=False)
    made = data(
        tasks.write(tmp_path / "t", kind, {"train": 60, "dev": 9, "test": 9}),
        encoder,
        linker="datamodules.finetune.FakeLinker",
        linker_folder="here",
    )
    assert made.linker is not None and made.linker.folder == "here"  # type: ignore[attr-defined]
    batch = made.batch("train", range(60))
    acne = made.tokenizer.convert_tokens_to_ids("acne")
    assert batch.mentions.tolist() == [
        [r, p, p + 1] for r, p in (batch.input_ids == acne).nonzero().tolist()
    ]
    if kind != "relation":
        assert len(batch.mentions) > 3
    with pytest.raises(InputError, match=r"os\.system: expected datamodules"):
        data(tmp_path / "t", encoder, linker="os.system")
    with pytest.raises(InputError, match=r"torch\.load: not defined in datamodules"):
        data(tmp_path / "t", encoder, linker="datamodules.finetune.torch.load")


def test_a_linker_accepts_its_settings(
    encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[str, dict[str, object]]] = []

    def fake(folder: str, **more: object) -> None:
        taken.append((folder, more))

    fake.__module__ = module.__name__
    monkeypatch.setattr(module, "FakeLinker", fake, raising=False)
    place = {"linker": "datamodules.finetune.FakeLinker", "linker_folder": "here"}
    task = tasks.write(tmp_path / "t", "ner")
    data(task, encoder, **place, linker_settings={"hits": 0.5, "k": 3})
    data(task, encoder, **place)
    assert taken == [("here", {"hits": 0.5, "k": 3}), ("here", {})]
