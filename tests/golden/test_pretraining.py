"""Golden examples of the data modules of pre-training: every array is written by hand.

The draws of an example are written, too (`Scripted`), so that a case of every kind is in it:
hidden, replaced and kept tokens, swapped segments, a mention of several tokens, padding, an entity
that is exchanged, a negative that is a neighbour after all.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datamodules.ernie import ERNIEData
from datamodules.kebiolm import KeBioLMData
from datamodules.knowbert import KnowBERTData
from datamodules.mlm import MLMData
from datamodules.sapbert.name_pairs import _pairs
from datamodules.smedbert import SMedBERTData
from datamodules.smedbert.negatives import Sampler, once, without_neighbours
from tests.golden.small import Scripted, Small, list_values, make_data, write

N = -100  # nothing to predict


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return write(tmp_path_factory.mktemp("small"))


def test_kebiolm(small: Small) -> None:
    """A: "drug" is hidden, "renal failure" replaced at its draw of exactly 0.12, "is" kept. B:
    nothing is drawn above 0.15."""
    data = make_data(KeBioLMData, small, entities=small.entities, graph=small.graph)
    # the, drug, treats, renal failure, ., pain, is, severe
    first = Scripted([0.9, 0.05, 0.9, 0.12, 0.9, 0.9, 0.14, 0.9], [14, 15, 12])
    # heart attack, and, pain
    second = Scripted([0.9, 0.151, 0.9], [])
    batch = data.collate([data.example(0, first, False), data.example(1, second, False)])
    first.finish()
    second.finish()
    assert list_values(batch) == {
        "input_ids": [
            [2, 6, 4, 8, 14, 15, 12, 5, 13, 16, 17, 3],
            [2, 14, 15, 12, 13, 3, 0, 0, 0, 0, 0, 0],
        ],
        "original_ids": [
            [2, 6, 7, 8, 9, 10, 11, 5, 13, 16, 17, 3],
            [2, 14, 15, 12, 13, 3, 0, 0, 0, 0, 0, 0],
        ],
        "attention_mask": [[1] * 12, [1] * 6 + [0] * 6],
        "mlm_labels": [[N, N, 7, N, 9, 10, 11, N, N, 16, N, N], [N] * 12],
        "bio_labels": [[0, 0, 1, 0, 1, 2, 2, 0, 1, 0, 0, 0], [0, 1, 2, 0, 1, 0] + [N] * 6],
        "mention": [[0, 2, 3], [0, 4, 7], [0, 8, 9], [1, 1, 3], [1, 4, 5]],
        "entity": [0, 3, 2, 1, 2],
        "frequency": [1, 1, 2, 1, 2],
        "counts": [5, 18, 5],
    }
    blank = list_values(data.collate([data.example(1, Scripted([0.0] * 3, []), False).blank()]))
    assert blank["counts"] == [0, 0, 0] and blank["mention"] == []
    assert blank["input_ids"] == [[2, 4, 4, 4, 4, 3]]
    assert blank["mlm_labels"] == blank["bio_labels"] == [[N] * 6]


def test_kebiolm_without_whole_entities_and_with_few_mentions(small: Small) -> None:
    """The ablation draws words: "renal" is hidden without "failure", whose two tokens are one
    word. Labels are of every mention, rows of the first alone."""
    data = make_data(
        KeBioLMData, small, entities=small.entities, whole_entity_masking=False, max_mentions=1
    )
    draws = Scripted([0.9, 0.9, 0.9, 0.0, 0.13, 0.9, 0.9, 0.9, 0.9], [16, 17])
    batch = list_values(data.collate([data.example(0, draws, False)]))
    assert batch["input_ids"] == [[2, 6, 7, 8, 4, 16, 17, 5, 13, 16, 17, 3]]
    assert batch["mlm_labels"] == [[N, N, N, N, 9, 10, 11, N, N, N, N, N]]
    assert batch["bio_labels"] == [[0, 0, 1, 0, 1, 2, 2, 0, 1, 0, 0, 0]]
    assert batch["mention"] == [[0, 2, 3]] and batch["counts"] == [3, 12, 1]


def test_masked_language_model(small: Small) -> None:
    """Words are drawn whole, mentions are not."""
    data = make_data(MLMData, small)
    draws = Scripted([0.9, 0.9, 0.9, 0.11, 0.125, 0.9, 0.9, 0.149, 0.151], [7, 8])
    batch = data.collate(
        [data.example(0, draws, False), data.example(1, Scripted([0.9] * 4, []), 0)]
    )
    assert list_values(batch) == {
        "input_ids": [
            [2, 6, 7, 8, 4, 7, 8, 5, 13, 16, 17, 3],
            [2, 14, 15, 12, 13, 3, 0, 0, 0, 0, 0, 0],
        ],
        "attention_mask": [[1] * 12, [1] * 6 + [0] * 6],
        "labels": [[N, N, N, N, 9, 10, 11, N, N, 16, N, N], [N] * 12],
        "counts": [4],
    }
    data = make_data(MLMData, small, whole_words=False)
    draws = Scripted([0.9] * 4 + [0.0] + [0.9] * 5, [])  # "fail" without "##ure"
    batch = list_values(data.collate([data.example(0, draws, False)]))
    assert batch["input_ids"] == [[2, 6, 7, 8, 9, 4, 11, 5, 13, 16, 17, 3]]


#: A in its order, cut behind the full stop: "drug" is hidden, "pain" kept to be predicted
IN_ORDER = (0.5, [0.9, 0.05, 0.9, 0.9, 0.9, 0.14, 0.9, 0.9], [])
#: B swapped, cut between its mentions: "pain" is hidden
SWAPPED = (0.49, [0.9, 0.9, 0.0], [])
#: what SMedBERT, ERNIE and KnowBERT read of the two
TEXTS = {
    # [CLS] the [MASK] treats renal fail ##ure . [SEP] pain is severe [SEP]
    # [CLS] and [MASK] [SEP] heart attack [SEP]
    "input_ids": [
        [2, 6, 4, 8, 9, 10, 11, 5, 3, 13, 16, 17, 3],
        [2, 12, 4, 3, 14, 15, 3, 0, 0, 0, 0, 0, 0],
    ],
    "original_ids": [
        [2, 6, 7, 8, 9, 10, 11, 5, 3, 13, 16, 17, 3],
        [2, 12, 13, 3, 14, 15, 3, 0, 0, 0, 0, 0, 0],
    ],
    "attention_mask": [[1] * 13, [1] * 7 + [0] * 6],
    "second": [[0] * 9 + [1] * 4, [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0]],
    "mlm_labels": [
        [N, N, 7, N, N, N, N, N, N, 13, N, N, N],
        [N, N, 13, N, N, N, N, N, N, N, N, N, N],
    ],
    "order": [0, 1],
}
SETTINGS = ("graph", "entities")


def make_ordered(kind: type, small: Small, **settings: object) -> object:
    folders = {name: getattr(small, name) for name in SETTINGS}
    data = make_data(kind, small, **folders, **settings)
    assert data.frequency.tolist() == [1, 1, 2, 1]
    return data


def test_smedbert(small: Small) -> None:
    """Of A "renal failure" is asked for its neighbours, of B "heart attack". Among the diseases
    (H, P and R, mentioned 1, 2 and 1 times) Q is 2/7, 3/7 and 2/7; D is the only drug."""
    data = make_ordered(SMedBERTData, small, neighbours=small.neighbours, k=2, n_negatives=2)
    none = np.zeros((0, 2))  # no mention takes half of its neighbours in
    # negatives of D: D and D, neighbours both; of H: P and R
    first = Scripted(*IN_ORDER, none, [[0.1, 0.9], [0.5, 0.8]])
    # of R: H, and R itself
    second = Scripted(*SWAPPED, none, [[0.1, 0.9]])
    batch = data.collate([data.example(0, first, False), data.example(1, second, False)])
    first.finish()
    second.finish()
    values = list_values(batch)
    log_q = values.pop("log_q")
    # drug, pain of A, pain of B: hidden
    hidden = {
        "span": [[0, 2, 3], [0, 9, 10], [1, 2, 3]],
        "entity": [0, 2, 2],
        "neighbours": [[3, 2], [0, -1], [0, -1]],
        "relation": [[1, 1], [1, 0], [1, 0]],
        "direction": [[1, 1], [-1, 0], [-1, 0]],
        "type": [[0, 0], [1, -1], [1, -1]],
    }
    assert values == TEXTS | {
        "masked": hidden,
        "unmasked": {
            "span": [[0, 4, 7], [1, 4, 6]],
            "entity": [3, 1],
            "neighbours": [[0, 1], [3, -1]],
            "relation": [[1, 0], [0, 0]],
            "direction": [[-1, 1], [-1, 0]],
            "type": [[1, 0], [0, -1]],
        },
        "infused": hidden,
        "candidates": [[0, -1, -1], [1, 2, 3], [3, 1, -1]],
        "counts": [3, 2, 3, 3],
        "ranked": None,
        "even": None,
    }
    two, three = math.log(2 / 7), math.log(3 / 7)
    expected = [[0, 0, 0], [two, three, two], [two, two, two]]
    assert np.allclose(log_q, expected, atol=1e-6)


def test_smedbert_infusing_unmasked_mentions(small: Small) -> None:
    """ "renal failure" takes the neighbour of the least noise in, H, and is asked for D."""
    data = make_ordered(
        SMedBERTData, small, neighbours=small.neighbours, k=2, n_negatives=1, infused=0.5
    )
    draws = Scripted(*IN_ORDER, [0.4, 0.4, 0.4], [[0.7, 0.2]], [[0.5]])
    values = list_values(data.collate([data.example(0, draws, False)]))
    draws.finish()
    assert values["masked"]["span"] == [[0, 2, 3], [0, 9, 10]]
    assert values["infused"]["span"] == [[0, 2, 3], [0, 9, 10], [0, 4, 7]]
    assert values["infused"]["neighbours"] == [[3, 2], [0, -1], [-1, 1]]
    assert values["infused"]["relation"] == [[1, 1], [1, 0], [0, 0]]
    assert values["infused"]["direction"] == [[1, 1], [-1, 0], [0, 1]]
    assert values["unmasked"]["neighbours"] == [[0, -1]]
    assert values["candidates"] == [[0, -1]] and values["counts"] == [2, 1, 1, 2]


def test_smedbert_ranking_of_validation(small: Small) -> None:
    """C is too short to be cut outside of its mention twice: cut nearest to the middle. "pain" is
    asked for D, the only drug, so that no other is ranked."""
    data = make_ordered(SMedBERTData, small, neighbours=small.neighbours, k=2, n_negatives=1)
    # negatives; those ranked by Q; those ranked evenly, of one entity
    draws = Scripted(0.9, [0.9] * 4, [], np.zeros((0, 2)), [[0.5]], [[0.5] * 99], [0])
    values = list_values(data.collate([data.example(2, draws, True)]))
    draws.finish()
    assert values["original_ids"] == [[2, 6, 13, 3, 16, 17, 3]]
    assert values["ranked"] == values["even"] == [[0] + [-1] * 99]


def test_ernie(small: Small) -> None:
    """Of A "drug" is given R for D (0.04 < 5 %), "renal failure" none (0.19 < 20 %), "pain" its
    own. Draws of entities 0 to 4 are D, H, P, P, R, as often as the texts mention them."""
    data = make_ordered(ERNIEData, small, n_negatives=2)
    first = Scripted(*IN_ORDER, [0.04, 0.19, 0.2], [4, 0, 0], [1, 3])
    second = Scripted(*SWAPPED, [0.9, 0.05], [0, 0], [2, 2])
    batch = data.collate([data.example(0, first, False), data.example(1, second, False)])
    first.finish()
    second.finish()
    assert list_values(batch) == TEXTS | {
        "mentions": {"span": [[0, 2, 3], [0, 9, 10], [1, 4, 6]], "entity": [3, 2, 1]},
        "targets": [[0, 2, 3], [0, 4, 7], [0, 9, 10], [1, 4, 6], [1, 2, 3]],
        # its own, then D, H, P and R of A without it; H and P of B
        "candidates": [
            [0, -1, 1, 2, 3],
            [3, 0, 1, 2, -1],
            [2, 0, 1, -1, 3],
            [1, -1, 2, -1, -1],
            [2, 1, -1, -1, -1],
        ],
        "counts": [3, 2, 5],
    }


def test_knowbert(small: Small) -> None:
    """ "pain" is inside "kidney pain", a name of R: its candidates are R (mentioned once) and P
    (twice), of priors (1 + 1) / 5 and (2 + 1) / 5. Masked mentions have no candidates."""
    data = make_ordered(KnowBERTData, small, n_candidates=3)
    assert data.table.tolist() == [[0, -1, -1], [1, -1, -1], [2, -1, -1], [3, 2, -1]]
    first, second = Scripted(*IN_ORDER), Scripted(*SWAPPED)
    batch = data.collate([data.example(0, first, False), data.example(1, second, False)])
    values = list_values(batch)
    prior = values["mentions"].pop("prior")
    assert values == TEXTS | {
        "mentions": {"span": [[0, 4, 7], [1, 4, 6]], "entity": [[3, 2, -1], [1, -1, -1]]},
        "counts": [3, 2, 1],
    }
    assert np.allclose(prior, [[0.4, 0.6, 0], [1, 0, 0]])


def test_order_and_padding_of_an_export(small: Small, tmp_path: Path) -> None:
    """What a KnowBERT's linker reads from its export: candidates and counts by hand."""
    make_ordered(KnowBERTData, small, n_candidates=2).export(tmp_path)
    assert np.load(tmp_path / "candidates.npy").tolist() == [[0, -1], [1, -1], [2, -1], [3, 2]]
    assert np.load(tmp_path / "frequency.npy").tolist() == [1, 1, 2, 1]
    # D has two triples, H and P one, R two
    assert np.load(tmp_path / "degree.npy").tolist() == [2, 1, 1, 2]


def test_halves_of_unequal_length_are_swapped(small: Small) -> None:
    """A's second segment, of three tokens, comes first; spans and labels move with the tokens."""
    data = make_ordered(KnowBERTData, small)
    draws = Scripted(0.49, [0.9, 0.05, 0.9, 0.9, 0.9, 0.9, 0.14, 0.9], [])
    values = list_values(data.collate([data.example(0, draws, False)]))
    assert values["input_ids"] == [[2, 13, 16, 17, 3, 6, 4, 8, 9, 10, 11, 5, 3]]
    assert values["second"] == [[0] * 5 + [1] * 8] and values["order"] == [1]
    assert values["mlm_labels"] == [[N, N, 16, N, N, N, 7, N, N, N, N, N, N]]
    assert values["mentions"]["span"] == [[0, 8, 11], [0, 1, 2]]


def test_smedberts_negatives() -> None:
    """Types 1, 0, 0, 0 and counts 1, 1, 2, 1: intervals 2/7, 3/7 and 2/7 of type 0 for entities 1,
    2 and 3. Evenly drawn ones are never the neighbour itself, and -1 where there are no more."""
    sampler = Sampler(np.array([1, 0, 0, 0]), np.array([1, 1, 2, 1]))
    draws = Scripted([[0.0, 0.28, 0.29, 0.71, 0.72, 0.99]])
    assert sampler.draw(np.array([3]), 6, draws).tolist() == [[1, 1, 2, 2, 3, 3]]
    drawn = sampler.others(np.array([2, 0]), 2, Scripted([1, 2, 0], [0]))
    assert drawn.tolist() == [[3, 1], [-1, -1]]
    assert once(np.array([[3, 1, 3, 1], [2, 2, 2, 0]])).tolist() == [[3, 1, -1, -1], [2, -1, -1, 0]]
    near = np.array([[1, -1], [0, 2]])
    assert without_neighbours(np.array([[3, 1], [2, 1]]), near).tolist() == [[3, -1], [-1, 1]]


def test_sapberts_names_of_the_same_words() -> None:
    """Concept 0 has two names of the same words, of which the first counts; concept 1 has a name of
    these words, too, and one of others: one pair."""
    member = np.array([[0, 0], [0, 1], [1, 2], [1, 3]])
    concepts = pa.array(["a", "b"])
    bags = np.array([0, 0, 0, 1])
    pairs, capped, lost = _pairs(member, concepts, 50, 0, bags)
    assert sorted(pairs[0, :2].tolist()) == [2, 3]
    assert pairs[:, 2].tolist() == [1] and (capped, lost) == (0, 0)
    pairs, *_ = _pairs(member, concepts, 50, 0)
    assert sorted(map(sorted, pairs[:, :2].tolist())) == [[0, 1], [2, 3]]
