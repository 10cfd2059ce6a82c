"""What the names of a graph are in tokens: pieces of long entities, synonyms, and names to be put
in a name's place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerFast

from datamodules.tokenizers import token_spans, word_beginnings


class Name(NamedTuple):
    """A name in tokens."""

    ids: np.ndarray  # (n,) token ids
    word_start: np.ndarray  # (n,) bool


def in_tokens(
    names: Sequence[str], tokenizer: PreTrainedTokenizerFast
) -> tuple[list[Name], list[np.ndarray]]:
    """(every name in tokens, (n, 2) the characters that each of its tokens covers)."""
    pieces, covered = [], []
    for begin in range(0, len(names), 10_000):
        batch = tokenizer(
            list(names[begin : begin + 10_000]),
            add_special_tokens=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        for i, ids in enumerate(batch["input_ids"]):
            start = word_beginnings(batch.word_ids(i))
            pieces.append(Name(np.array(ids, np.int64), start))
            covered.append(np.array(batch["offset_mapping"][i], np.int64).reshape(-1, 2))
    return pieces, covered


class Pieces:
    """Where the sub-entities of long entities end, in tokens.

    segments: each long name with its pieces, which follow one another in the name. A name is left
    out where a token covers characters of two pieces (`crossed` counts them); of names that are the
    same in tokens the first one counts.
    """

    def __init__(
        self, segments: Iterable[tuple[str, Sequence[str]]], tokenizer: PreTrainedTokenizerFast
    ) -> None:
        rows = list(segments)
        names_in_tokens, covered = in_tokens([name for name, _ in rows], tokenizer)
        self.ends: dict[bytes, np.ndarray] = {}
        self.crossed = 0
        for (_, pieces), name, offsets in zip(rows, names_in_tokens, covered, strict=True):
            stop = np.cumsum([len(p) for p in pieces])
            spans = np.stack([stop - [len(p) for p in pieces], stop], axis=1)
            tokens = token_spans(offsets, spans)
            if (tokens[:, 0] >= tokens[:, 1]).any() or (tokens[1:, 0] != tokens[:-1, 1]).any():
                self.crossed += 1
                continue
            self.ends.setdefault(name.ids.tobytes(), tokens[:, 1])

    def __len__(self) -> int:
        return len(self.ends)

    def piece_ends(self, ids: np.ndarray) -> np.ndarray | None:
        """(pieces,) the token behind the last one of each piece of the name with these token ids;
        None if it is not long."""
        return self.ends.get(ids.astype(np.int64).tobytes())


def _named_in_tokens(
    named: Iterable[tuple[int, str]], tokenizer: PreTrainedTokenizerFast
) -> Iterator[tuple[int, Name]]:
    """(entity, name in tokens) of each name that has a token."""
    pairs = list(named)
    names, _ = in_tokens([name for _, name in pairs], tokenizer)
    for (entity, _), name in zip(pairs, names, strict=True):
        if len(name.ids):
            yield entity, name


class Replacements:
    """Names that may replace a mention.

    names     every entity's names, by entity index
    types     (entities,) int
    synonyms  by entity index, the names that mean the same as the entity's own, its own among them
    """

    def __init__(
        self,
        names: Iterable[tuple[int, str]],
        types: np.ndarray,
        synonyms: Mapping[int, Sequence[str]],
        tokenizer: PreTrainedTokenizerFast,
    ) -> None:
        pools: dict[tuple[int, int], dict[bytes, Name]] = defaultdict(dict)
        for entity, name in _named_in_tokens(names, tokenizer):
            pool = pools[len(name.ids), int(types[entity])]
            pool.setdefault(name.ids.tobytes(), name)
        self.types = types
        self.pools = {key: list(pool.values()) for key, pool in pools.items()}
        flat = [(entity, name) for entity, same in synonyms.items() for name in same]
        self.same: dict[int, dict[bytes, Name]] = {}
        for entity, name in _named_in_tokens(flat, tokenizer):
            self.same.setdefault(entity, {}).setdefault(name.ids.tobytes(), name)

    def synonym(
        self, entity: int, ids: np.ndarray, most: int, rng: np.random.Generator
    ) -> Name | None:
        """Another name of `entity` than the one with these token ids, of at most `most` tokens;
        None where there is none."""
        name_key = ids.astype(np.int64).tobytes()
        choice = [
            name
            for key, name in self.same.get(entity, {}).items()
            if key != name_key and len(name.ids) <= most
        ]
        return choice[rng.integers(len(choice))] if choice else None

    def another(self, entity: int, ids: np.ndarray, rng: np.random.Generator) -> Name | None:
        """A name as long, of an entity of the same type, that does not mean the same; None where
        there is none."""
        pool = self.pools.get((len(ids), int(self.types[entity])), [])
        banned = {ids.astype(np.int64).tobytes(), *self.same.get(entity, {})}
        # synonyms are few, so a draw that is none of them is found soon where there is one
        for _ in range(20):
            if not pool:
                break
            name = pool[rng.integers(len(pool))]
            if name.ids.tobytes() not in banned:
                return name
        left = (
            [name for name in pool if name.ids.tobytes() not in banned]
            if len(pool) <= len(banned) + 20
            else []
        )
        return left[rng.integers(len(left))] if left else None
