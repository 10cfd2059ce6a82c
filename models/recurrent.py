"""A recurrent layer between an encoder and a head, with vectors for pairs of neighbouring tokens.

    bidirectional LSTM under a CRF        Huang, Xu and Yu, 2015, https://arxiv.org/abs/1508.01991
    characters with pairs of characters   Zhang and Yang, ACL 2018, Section 3.1 (their "bichar"
                                          baseline)

A small encoder that was trained for minutes knows little of a text's words; what it lacks, the
layer learns from the task: which two characters belong together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

#: a key that no pair of tokens has
NO_PAIR = torch.iinfo(torch.long).max
#: pairs that the training texts have less often share row 0 with those they lack
COMMON = 2
_SHIFT = 32


class RecurrentLayer(nn.Module):
    """A bidirectional LSTM over an encoder's states and the vectors of token pairs.

    hidden     the encoder's hidden size
    size       of the LSTM in each direction: states are 2 size wide
    pairs      how many pairs have a vector of their own, the most frequent of the training texts
    pair_size  of a pair's vector
    """

    keys: Tensor  # (pairs,) of the pairs that have a vector, ascending

    def __init__(
        self,
        hidden: int,
        size: int,
        pairs: int = 20_000,
        pair_size: int = 64,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.hidden_size = 2 * size
        self.register_buffer("keys", torch.full((pairs,), NO_PAIR))
        self.pair = nn.Embedding(pairs + 1, pair_size)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(hidden + 2 * pair_size, size, batch_first=True, bidirectional=True)

    def read_pairs(self, sequences: Iterable[Sequence[int]]) -> None:
        """Give the most frequent pairs of the training texts' token ids a vector each."""
        counted: Counter[int] = Counter()
        for ids in sequences:
            rows = np.asarray(ids, np.int64)
            counted.update((rows[:-1] << _SHIFT | rows[1:]).tolist())
        common = [(-count, key) for key, count in counted.items() if count >= COMMON]
        keys = sorted(key for _, key in sorted(common)[: len(self.keys)])
        self.keys.fill_(NO_PAIR)
        self.keys[: len(keys)] = torch.tensor(keys, dtype=torch.long)

    def pair_numbers(self, input_ids: Tensor) -> Tensor:
        """(B, L) ids -> (B, L - 1) row of each pair of neighbours in `pair`; 0: no known one."""
        key = input_ids[:, :-1] << _SHIFT | input_ids[:, 1:]
        place = torch.searchsorted(self.keys, key).clamp_max(len(self.keys) - 1)
        return torch.where(self.keys[place] == key, place + 1, 0)

    def forward(self, states: Tensor, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(B, L, H) states, (B, L) ids and mask, 1 on the first tokens -> (B, L, 2 size); 0 on
        padding."""
        pair = self.pair(self.pair_numbers(input_ids)).to(states.dtype)  # (B, L - 1, pair_size)
        pair = pair * attention_mask[:, 1:, None]  # a token and padding are no pair
        before = nn.functional.pad(pair, (0, 0, 1, 0))
        after = nn.functional.pad(pair, (0, 0, 0, 1))
        inputs = self.dropout(torch.cat([states, before, after], -1))
        lengths = attention_mask.sum(1).cpu()
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        read, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=states.shape[1]
        )
        return self.dropout(read)
