"""Golden examples of EMBERT's, SapBERT's and GenBioEL's batches, of fine-tuning and of the
reranker: every array is written by hand, from the vocabulary of `tests/golden/small.py`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from datamodules.embert import EMBERTData
from datamodules.embert.entity_names import Pieces, Replacements
from datamodules.finetune import FinetuneData
from datamodules.genbioel import GenBioELData
from datamodules.genbioel.denoising import infill_spans, permute_sentences
from datamodules.genbioel.inputs import Inputs
from datamodules.genbioel.samples import draw_example
from datamodules.reranker import RerankerData, RerankerInputs, Sample, Sizes, save_samples
from datamodules.sapbert import SapBERTData
from datamodules.segments import ends_of_sentences
from datamodules.tasks import Pair, Relation, Tagged
from tests.golden.small import Scripted, Small, list_values, write, write_tokenizer

N = -100  # nothing to predict


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return write(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    folder = write_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return PreTrainedTokenizerFast.from_pretrained(folder)


def make_embert(small: Small, **settings: Any) -> EMBERTData:
    """ "renal failure" is of two sub-entities; "heart attack" is also called "heart ache", and
    "kidney pain" is a name of another disease of two tokens."""
    data = EMBERTData(small.corpus, small.tokenizer, small.graph, "", "", batch_size=1, **settings)
    data.tokenizer = PreTrainedTokenizerFast.from_pretrained(small.tokenizer)
    data.read_corpus()
    data.pieces = Pieces([("renal failure", ["renal ", "failure"])], data.tokenizer)
    names = [
        (0, "drug"),
        (1, "heart attack"),
        (2, "pain"),
        (3, "renal failure"),
        (3, "kidney pain"),
    ]
    same = {1: ["heart attack", "heart ache"]}
    data.names = Replacements(names, np.array([1, 0, 0, 0]), same, data.tokenizer)
    data.random_ids = np.arange(5, 22)
    data.end_ids = ends_of_sentences(data.tokenizer)
    assert data.end_ids.tolist() == [5]
    return data


def test_embert(small: Small) -> None:
    """A: "failure", the atomic part of "renal failure", is predicted from "renal"; "the" is kept,
    "drug" hidden, "treats" replaced. B: "heart attack" is replaced by its synonym, in which
    nothing is predicted."""
    data = make_embert(small, rate=0.5, parts=0.5)
    first = Scripted(
        0.5,  # the second segment is A's own
        *(0.9, 0.9, 0.9),  # no entity is replaced
        0.1,  # 5 of 10 tokens, 2.5 of them at most in parts
        [0],
        *(0.4, 0.9),  # the atomic part; 0.9 * 2 < 2.5
        [0, 3, 4, 1, 2, 5, 6, 7, 8],  # words: neither "renal" nor "failure" any more
        *(0.95, 0.79, 0.8),
        [15],
    )
    second = Scripted(
        0.5,
        *(0.1, 0, 1, 0.4, 0.9),  # "heart attack": "heart ache" or "kidney pain", the first
        0.2,  # 2 of 4 tokens
        [],
        [0, 2, 3, 1],
        *(0.85, [16], 0.5),
    )
    batch = data.collate([data.example(0, first, False), data.example(1, second, False)])
    first.finish()
    second.finish()
    assert list_values(batch) == {
        "input_ids": [
            [2, 6, 4, 15, 9, 4, 4, 5, 3, 13, 16, 17, 3],
            [2, 14, 21, 3, 16, 4, 3, 0, 0, 0, 0, 0, 0],
        ],
        "attention_mask": [[1] * 13, [1] * 7 + [0] * 6],
        "second": [[0] * 9 + [1] * 4, [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0]],
        "mlm_labels": [
            [N, 6, 7, 8, N, 10, 11, N, N, N, N, N, N],
            [N, N, N, N, 12, 13, N, N, N, N, N, N, N],
        ],
        "pair": [0, 0],
        "replaced": [[1, 0, 3]],
        "consistent": [1],
        "segment_labels": [[N, N, N, N, 1, 0, 1, N, N, N, N, N, N], [N] * 13],
        # row, first and last token of "renal", position and length of the part, atomic
        "hidden": [[0, 4, 4, 0, 2, 0], [0, 4, 4, 1, 2, 0]],
        "hidden_ids": [10, 11],
        "counts": [7, 2, 1, 3, 2, 0, 2],
    }


def test_embert_second_segments(small: Small) -> None:
    """Next-sentence prediction: B's first half and A's second. Sentence order: B's halves
    swapped."""
    text, label = make_embert(small).text(1, False, Scripted(0.4, 0))
    assert label == 1 and text.cut == 2
    assert text.ids.tolist() == [14, 15, 13, 16, 17]
    assert text.mentions.tolist() == [[0, 2, 1, 0], [2, 3, 2, 0]]
    text, label = make_embert(small, pair="sop").text(1, False, Scripted(0.4))
    assert label == 1 and text.cut == 2
    assert text.ids.tolist() == [12, 13, 14, 15]
    assert text.mentions.tolist() == [[1, 2, 2, 0], [2, 4, 1, 0]]


def test_embert_adjective_part(small: Small) -> None:
    """The other half of "renal failure": "renal" is predicted from "failure"."""
    data = make_embert(small, rate=0.2, parts=1.0)
    # 2 of 10 tokens, both may be of parts; the adjective part, 0.9 * 1 < 2; then "."
    draws = Scripted(0.5, 0.9, 0.9, 0.9, 0.0, [0], 0.5, 0.9, [5, 0, 1, 2, 3, 4, 6, 7, 8], 0.0)
    values = list_values(data.collate([data.example(0, draws, False)]))
    draws.finish()
    assert values["input_ids"] == [[2, 6, 7, 8, 4, 10, 11, 4, 3, 13, 16, 17, 3]]
    assert values["hidden"] == [[0, 5, 6, 0, 1, 1]] and values["hidden_ids"] == [9]
    assert values["counts"] == [2, 1, 0, 3, 0, 1, 1]


def make_sapbert(tokenizer: PreTrainedTokenizerFast, groups: int, max_length: int) -> SapBERTData:
    """Names pain, heart attack, renal failure and drug; pairs of the first two and the last two."""
    data = SapBERTData("", "", max_length=max_length, groups=groups, batch_size=2)
    data.tokenizer = tokenizer
    offsets = np.array([0, 1, 3, 6, 7])

    class Pairs(SimpleNamespace):
        def __getitem__(self, indices: np.ndarray) -> np.ndarray:
            return np.array([[0, 1, 5], [2, 3, 8]])[indices]

    tokens = np.array([13, 14, 15, 9, 10, 11, 7])
    data.pairs = Pairs(tokens=tokens, offsets=offsets, lengths=np.diff(offsets))  # type: ignore[assignment]
    return data


def test_sapbert(tokenizer: PreTrainedTokenizerFast) -> None:
    """Names by length, each with its concept; "renal failure" is cut to two of its tokens."""
    indices = np.array([0, 1])
    batch = make_sapbert(tokenizer, 1, 4).batch(indices, 0)
    assert [ids.tolist() for ids in batch.input_ids] == [
        [[2, 13, 3, 0], [2, 7, 3, 0], [2, 9, 10, 3], [2, 14, 15, 3]]
    ]
    assert [mask.tolist() for mask in batch.attention_mask] == [
        [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    ]
    assert batch.concept.tolist() == [5, 8, 8, 5]
    assert batch.query.tolist() == [False] * 4 and batch.counts.tolist() == [4]
    batch = make_sapbert(tokenizer, 2, 25).batch(indices, 0)
    # the same names in two groups, each as wide as its longest
    assert [ids.tolist() for ids in batch.input_ids] == [
        [[2, 13, 3], [2, 7, 3]],
        [[2, 14, 15, 3, 0], [2, 9, 10, 11, 3]],
    ]
    assert batch.concept.tolist() == [5, 8, 5, 8]
    names = make_sapbert(tokenizer, 1, 25).make_batch(
        np.array([1, 0]), np.array([5, 5]), np.array([1, 0])
    )
    assert names.query.tolist() == [False, True]


def make_finetune(
    tokenizer: PreTrainedTokenizerFast, kind: str, labels: list[str], max_length: int, *rows: Any
) -> FinetuneData:
    data = FinetuneData.__new__(FinetuneData)
    data.tokenizer, data.kind, data.labels = tokenizer, kind, labels
    data.max_length, data.language, data.linker = max_length, "en", None
    data.markers = ["kidney", "ache"]
    data.examples = {"train": list(rows)}
    data.features = {"train": data.build_features(list(rows))}
    return data


TAGGED = Tagged(
    "1", "1", "renal failure and pain", [(0, 13, "Disease"), (18, 22, "Symptom"), (1, 3, "Symptom")]
)
SHORT = Tagged("2", "2", "pain", [])


def test_tagging(tokenizer: PreTrainedTokenizerFast) -> None:
    """O 0, B and I of a disease 1 and 2, of a symptom 3 and 4; an entity inside a word has no
    label."""
    data = make_finetune(tokenizer, "ner", ["Disease", "Symptom"], 9, TAGGED, SHORT)
    assert data.features["train"][0].offsets == [
        (0, 0),
        (0, 5),
        (6, 13),
        (6, 13),
        (14, 17),
        (18, 22),
        (0, 0),
    ]
    values = list_values(data.batch("train", [0, 1]))
    assert {name: value for name, value in values.items() if value is not None} == {
        "input_ids": [[2, 9, 10, 11, 12, 13, 3], [2, 13, 3, 0, 0, 0, 0]],
        "attention_mask": [[1] * 7, [1, 1, 1, 0, 0, 0, 0]],
        "feature": [0, 1],
        "unit": [[1, 2, 4, 5], [1, 0, 0, 0]],
        "unit_mask": [[True] * 4, [True, False, False, False]],
        "labels": [[1, 2, 0, 3], [0, N, N, N]],
    }


def test_tagging_in_windows(tokenizer: PreTrainedTokenizerFast) -> None:
    """Room for three tokens: "renal failure" | "and pain"."""
    data = make_finetune(tokenizer, "ner", ["Disease", "Symptom"], 5, TAGGED)
    values = list_values(data.batch("train", [0, 1]))
    assert values["input_ids"] == [[2, 9, 10, 11, 3], [2, 12, 13, 3, 0]]
    assert values["unit"] == [[1, 2], [1, 2]] and values["labels"] == [[1, 2], [0, 3]]
    data = make_finetune(tokenizer, "nested", ["Disease", "Symptom"], 5, TAGGED)
    # row, first and last unit of its window, type
    assert list_values(data.batch("train", [0, 1]))["spans"] == [[0, 0, 1, 0], [1, 1, 1, 1]]


def test_pairs_of_texts(tokenizer: PreTrainedTokenizerFast) -> None:
    """Room for five tokens: the longer text is cut to three of its four, the shorter is not."""
    row = Pair("1", "1", "drug pain", "heart attack and pain", "yes")
    data = make_finetune(tokenizer, "pair", ["no", "yes"], 8, row, row._replace(label="?"))
    # characters of the second text are behind the first one and a blank
    assert data.features["train"][0].offsets == [
        *((0, 0), (0, 4), (5, 9), (0, 0)),
        *((10, 15), (16, 22), (23, 26), (0, 0)),
    ]
    values = list_values(data.batch("train", [0, 1]))
    assert values["input_ids"] == [[2, 7, 13, 3, 14, 15, 12, 3]] * 2
    assert values["second"] == [[0, 0, 0, 0, 1, 1, 1, 1]] * 2
    assert values["labels"] == [1, N]
    both = Pair("1", "1", "the drug treats pain", "heart attack and pain", "no")
    cut = make_finetune(tokenizer, "pair", ["no", "yes"], 8, both).batch("train", [0])
    assert list_values(cut)["input_ids"] == [[2, 6, 7, 3, 14, 15, 12, 3]]


def test_relations(tokenizer: PreTrainedTokenizerFast) -> None:
    """Markers "kidney" and "ache": positions behind [CLS], also where the text is cut."""
    rows = (
        Relation("1", "1", "kidney drug treats ache pain", "treats", ["treats"]),
        Relation("2", "2", "the drug treats kidney pain and ache pain", "none", ["none"]),
    )
    values = list_values(
        make_finetune(tokenizer, "relation", ["none", "treats"], 10, *rows).batch("train", [0, 1])
    )
    assert values["input_ids"] == [
        [2, 18, 7, 8, 21, 13, 3, 0, 0, 0],
        [2, 6, 7, 8, 18, 13, 12, 21, 13, 3],
    ]
    assert values["anchor"] == [[1, 4], [4, 7]] and values["labels"] == [1, 0]
    values = list_values(
        make_finetune(tokenizer, "relation", ["none", "treats"], 6, *rows).batch("train", [1])
    )
    assert values["input_ids"] == [[2, 18, 13, 12, 21, 3]] and values["anchor"] == [[1, 4]]


def test_reranker(tokenizer: PreTrainedTokenizerFast) -> None:
    """[CLS] mention [SEP] left mention right [SEP] candidate [SEP] ...; NIL is right where no
    candidate is."""
    inputs = RerankerInputs(tokenizer, Sizes(candidates=3, mention=2, context=2, name=1))
    context = "the heart START pain END and drug"
    names = ["pain", "heart attack", "kidney pain"]
    some = Sample("pain", context, names, [5.0, 3.0, 2.5], [1])
    none = Sample("renal failure", None, ["drug"], [7.0], [])
    batch = inputs.batch(
        [inputs.example(some, [2, 0, 1]), inputs.example(none), inputs.example(some).blank()]
    )
    around = [2, 13, 3, 14, 13, 12, 3]
    assert list_values(batch) == {
        "input_ids": [
            [*around, 18, 3, 13, 3, 14, 3],
            [2, 9, 10, 3, 9, 10, 3, 7, 3, 0, 0, 0, 0],
            [*around, 13, 3, 14, 3, 18, 3],
        ],
        "attention_mask": [[1] * 13, [1] * 9 + [0] * 4, [1] * 13],
        "second": [[0] * 7 + [1] * 6, [0] * 7 + [1, 1, 0, 0, 0, 0], [0] * 7 + [1] * 6],
        "owner": [
            [3] * 7 + [0, 0, 1, 1, 2, 2],
            [3] * 7 + [0, 0, 3, 3, 3, 3],
            [3] * 7 + [0, 0, 1, 1, 2, 2],
        ],
        "scores": [[-2.5, 0, -2], [0, 0, 0], [0, -2, -2.5]],
        "exists": [[True] * 4, [True, False, False, True], [True] * 4],
        "right": [[False, False, True, False], [False, False, False, True], [False] * 4],
        "counts": [2],
    }


def test_reranker_data(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """Samples of a folder: in training in a drawn order, for validation best first."""
    names = ["pain", "heart attack", "kidney pain", "drug"]
    some = Sample("pain", None, names, [5.0, 3.0, 2.5, 2.0], [1, 3])
    none = Sample("renal failure", "the START renal failure END", ["drug"], [7.0], [])
    save_samples(tmp_path, {"train": [some], "held_out": [none]})
    limits = {"candidates": 3, "mention": 2, "context": 2, "name": 1}
    data = RerankerData(str(tmp_path), "", batch_size=1, **limits)
    data.tokenizer = tokenizer
    data.read()
    assert (data.train_indices.tolist(), data.held_out_indices.tolist()) == ([0], [1])
    assert data.lengths.tolist() == [11, 10]
    draws = Scripted([3, 2, 0, 1])  # the fourth candidate is one too many
    batch = data.collate([data.example(0, draws, False), data.example(1, Scripted(), True)])
    draws.finish()
    assert list_values(batch) == {
        "input_ids": [
            # [CLS] pain [SEP] pain [SEP] kidney [SEP] pain [SEP] heart [SEP]
            [2, 13, 3, 13, 3, 18, 3, 13, 3, 14, 3],
            # [CLS] renal fail [SEP] the renal fail [SEP] drug [SEP]
            [2, 9, 10, 3, 6, 9, 10, 3, 7, 3, 0],
        ],
        "attention_mask": [[1] * 11, [1] * 10 + [0]],
        "second": [[0] * 5 + [1] * 6, [0] * 8 + [1, 1, 0]],
        "owner": [[3] * 5 + [0, 0, 1, 1, 2, 2], [3] * 8 + [0, 0, 3]],
        "scores": [[-2.5, 0, -2], [0, 0, 0]],
        "exists": [[True] * 4, [True, False, False, True]],
        "right": [[False, False, True, False], [False, False, False, True]],
        "counts": [2],
    }


WORDS = ["", "", "", "", "is", "START", "END", "pain", "ache", "severe", "."]


class Words:
    """A BART's special tokens, and a word a token: <s> 1, </s> 2, <pad> 0, <mask> 3."""

    bos_token_id, eos_token_id, pad_token_id, mask_token_id = 1, 2, 0, 3

    def __call__(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [[WORDS.index(w) for w in text.split()] for text in texts]}


def make_genbioel(*parts: tuple[list[int], ...], **limits: int) -> GenBioELData:
    data = GenBioELData("", "", batch_size=1)
    data.inputs = Inputs(Words(), **limits)  # type: ignore[arg-type]
    data.source = SimpleNamespace(parts=lambda sample, rng: parts[sample])  # type: ignore[assignment]
    data.stop, data.ends = [10], np.arange(11) == 10
    return data


def test_genbioel() -> None:
    """Section 2.1: <s> left START mention END right </s>, and </s> mention is name </s>, of which
    the name is predicted; is 4, START 5, END 6, pain 7, ache 8, severe 9."""
    # left, mention, right, target
    data = make_genbioel(([9], [7], [9, 9], [8, 8]), ([], [8], [], [7]))
    rng = np.random.default_rng(0)
    batch = data.collate([data.example(0, rng, False), data.example(1, rng, False)])
    assert list_values(batch) == {
        "input_ids": [[1, 9, 5, 7, 6, 9, 9, 2], [1, 5, 8, 6, 2, 0, 0, 0]],
        "attention_mask": [[1] * 8, [1] * 5 + [0] * 3],
        "decoder_input_ids": [[2, 7, 4, 8, 8], [2, 8, 4, 7, 0]],
        "labels": [[N, N, 8, 8, 2], [N, N, 7, 2, N]],
        "counts": [5],
    }
    # two tokens of context, one on each side; without prompt the decoder starts with the name
    data = make_genbioel(([9, 8], [7], [8, 9], [8]), max_length=7, max_mention=1)
    assert data.make_linking_example(0, rng) == ([1, 8, 5, 7, 6, 8, 2], [2, 7, 4, 8], [N, N, 8, 2])
    data.inputs.prompted = False
    assert data.make_linking_example(0, rng)[1:] == ([2, 8], [8, 2])


def test_genbioel_denoising() -> None:
    """Lewis et al., Section 2.2: sentences in another order, then a span of two tokens and an empty
    one as one mask each."""
    data = make_genbioel(([9], [7], [], [8]))
    assert data.text(0, np.random.default_rng(0)) == [9, 7, 10, 7, 4, 8, 10]
    ids = np.array([9, 7, 10, 7, 4, 8, 10])
    moved = permute_sentences(ids, data.ends, Scripted([1, 0]))
    assert moved.tolist() == [7, 4, 8, 10, 9, 7, 10]
    draws = Scripted(0.2, 0, 3, [1, 4])  # int(0.3 * 7 + 0.2) = 2 tokens: 0, then 3 cut to 2
    assert infill_spans(moved, draws, 3).tolist() == [7, 3, 4, 8, 10, 3, 10]
    draws.finish()


def test_genbioel_parts_of_a_concept() -> None:
    """Table 10: another name is the mention; a definition is the context where there is one, then
    other names, then the target itself."""
    names, none = np.array([3, 4, 5]), np.array([], np.int64)
    one = draw_example(names, np.array([7, 8]), 4, None, Scripted(1, 3, 0), 2)
    assert one[:2] == (5, 4) and one[3:] == (7, [])
    assert (one.template.words, one.template.mention_first) == ("describe", False)
    one = draw_example(names, none, 4, None, Scripted(0, [5], 2), 2)
    assert (*one[:2], *one[3:]) == (3, 4, None, [5])
    assert (one.template.words, one.template.mention_first) == ("has synonyms such as", True)
    one = draw_example(names[:2], none, 4, None, Scripted(0, 1), 2)
    assert (*one[:2], *one[3:]) == (3, 4, None, [4])
    assert (one.template.words, one.template.mention_first) == ("is the same as", False)


def test_exports_of_inputs(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """What a reranker's export keeps of its inputs."""
    RerankerInputs(tokenizer, Sizes(3, 2, 2, 1)).export(tmp_path)
    assert RerankerInputs.from_export(tmp_path).sizes == Sizes(3, 2, 2, 1)
    assert Sizes(3, 2, 2, 1).longest == 3 + 4 + 2 + 3 * 2
