"""The recurrent layer: pairs with a vector, and an LSTM that no padding reaches."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from models.recurrent import RecurrentLayer


def layer(pairs: int = 4) -> RecurrentLayer:
    torch.manual_seed(0)
    return RecurrentLayer(6, 5, pairs, 3, dropout=0.3).eval()


def test_pairs_that_occur_twice_have_a_vector_and_all_others_share_one() -> None:
    own = layer()
    own.read_pairs([[7, 8, 9], [7, 8, 9, 7], [5, 7, 8]])  # 7 8 thrice, 8 9 twice, 9 7 and 5 7 once
    numbers = own.pair_numbers(torch.tensor([[7, 8, 9, 7, 8], [8, 7, 5, 7, 9]])).tolist()
    assert numbers == [[1, 2, 0, 1], [0, 0, 0, 0]]


def test_of_too_many_pairs_the_most_frequent_are_kept() -> None:
    own = layer(pairs=1)
    own.read_pairs([[3, 4], [3, 4], [1, 2], [1, 2], [1, 2]])
    assert own.pair_numbers(torch.tensor([[1, 2, 3, 4]])).tolist() == [[1, 0, 0]]
    own.read_pairs([[3, 4], [3, 4]])  # what was known before is forgotten
    assert own.pair_numbers(torch.tensor([[1, 2, 3, 4]])).tolist() == [[0, 0, 1]]


def by_hand(own: RecurrentLayer, states: Tensor, ids: list[int]) -> Tensor:
    """(n, 2 size): one sequence without padding, pairs looked up one by one."""
    known = own.keys.tolist()
    rows = [
        known.index(a << 32 | b) + 1 if (a << 32 | b) in known else 0
        for a, b in itertools.pairwise(ids)
    ]
    none = torch.zeros(own.pair.embedding_dim)
    inputs = []
    for place in range(len(ids)):
        before = own.pair.weight[rows[place - 1]] if place else none
        after = own.pair.weight[rows[place]] if place < len(rows) else none
        inputs.append(torch.cat([states[place], before, after]))
    return own.lstm(torch.stack(inputs)[None])[0][0]


def test_states_are_those_of_each_sequence_alone() -> None:
    own = layer()
    sequences = [[7, 8, 9, 7], [7, 8]]
    own.read_pairs(sequences)
    ids, mask = torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 4, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)], mask[row, : len(sequence)] = torch.tensor(sequence), 1
    states = torch.randn(2, 4, 6)
    found = own(states, ids, mask)
    assert found.shape == (2, 4, own.hidden_size) and not found[1, 2:].any()
    for row, sequence in enumerate(sequences):
        wanted = by_hand(own, states[row], sequence)
        assert torch.allclose(found[row, : len(sequence)], wanted, atol=1e-6)
