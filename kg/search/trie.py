"""Names as token sequences in a prefix tree, held as flat arrays: built from millions of names,
memory-mapped when loaded.

Nodes are numbered level by level and, within a level, by parent and then by token. The children of
a node are therefore consecutive, and two arrays say everything:

    tokens      (nodes,)      the token that leads into a node; uint16 where the vocabulary allows
                              it, else uint32
    starts      (nodes + 1,)  uint32: the children of node i are nodes starts[i] to starts[i + 1] -
                1

A node in which a name ends is a *leaf*. It may have children ("renal" in "renal failure"). Leaves
are numbered in node order:

    leaf_nodes  (leaves,)     uint32, ascending
    concepts    (leaves,)     uint32: the concept of the leaf; of several the lowest
    others      (m, 2)        uint32: (leaf, concept) of all further ones, ascending

A trie has one root, or one for each group of names (a forest). Neither the prompt before a name nor
the token that closes it is stored. A name of six pieces that shares none with another costs 6 * (2
+ 4) + 4 + 4 = 44 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.artifact import Artifact
from core.files import InputError

FORMAT = 1
TRIE = Artifact("trie", "remove the folder and run the command again", FORMAT, verified="{}.npy")
ARRAYS = ("tokens", "starts", "leaf_nodes", "concepts", "others")
_NODES = 2**31  # a node's number fits an int32, the narrowest type that torch computes with


class Ragged(NamedTuple):
    """Token sequences end to end: sequence i is ``tokens[offsets[i] : offsets[i + 1]]``."""

    tokens: np.ndarray
    offsets: np.ndarray  # (sequences + 1,)

    @classmethod
    def from_lists(cls, sequences: Sequence[Sequence[int]]) -> Ragged:
        """From a list of lists."""
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        tokens = np.fromiter(chain.from_iterable(sequences), np.int64, int(lengths.sum()))
        return cls(tokens, np.concatenate([[0], lengths.cumsum()]))

    def rows(self) -> Iterator[np.ndarray]:
        for first, last in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            yield self.tokens[first:last]


class Tensors(NamedTuple):
    """A trie on a device, for a search. A node's token is ``tokens[node].long() & mask``, as torch
    lacks most of uint16."""

    tokens: Tensor  # (nodes,) int16 or int32
    starts: Tensor  # (nodes + 1,) int32
    leaf_nodes: Tensor  # (leaves,) int32
    heights: Tensor  # (nodes,) int16
    mask: int


def _level_order(
    names: Ragged, root: np.ndarray, roots: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(token of each node, number of its children, node in which each name ends), nodes in level
    order.

    Rows stay sorted by their node from level to level, so that only rows which share a node need
    sorting.
    """
    offsets, lengths = names.offsets[:-1], np.diff(names.offsets)
    rows = np.argsort(root, kind="stable")
    node = root[rows].astype(np.int64)  # of each row, counted within the level
    ends = np.empty(len(root), np.int64)
    tokens, counts = [np.zeros(roots, np.int64)], []
    first, size, depth = 0, roots, 0
    while len(rows):
        done = lengths[rows] == depth
        ends[rows[done]] = first + node[done]
        rows, node = rows[~done], node[~done]
        key = node << 32 | names.tokens[offsets[rows] + depth].astype(np.int64)
        as_next = node[1:] == node[:-1]
        shared = (
            np.flatnonzero(np.append(as_next, False) | np.append(False, as_next))
            if len(rows)
            else rows
        )
        order = shared[np.argsort(key[shared], kind="stable")]
        rows[shared], key[shared] = rows[order], key[order]
        new = np.append(True, key[1:] != key[:-1])[: len(key)]
        counts.append(np.bincount(key[new] >> 32, minlength=size))
        tokens.append(key[new] & 0xFFFFFFFF)
        node = np.cumsum(new) - 1
        first, size, depth = first + size, int(new.sum()), depth + 1
        if first + size >= _NODES:
            raise InputError(
                f"trie: more than {_NODES:,} nodes at level {depth}. Split the names into several"
                " tries."
            )
    return np.concatenate(tokens), np.concatenate([*counts, np.zeros(0, np.int64)]), ends


def _check_names(
    names: Ragged, vocabulary: int, skip: bool, max_length: int | None, texts: Sequence[str] | None
) -> np.ndarray:
    """The rows of `names` that a trie can hold. Raises InputError as :meth:`Trie.build` says."""
    offsets, lengths = np.asarray(names.offsets), np.diff(names.offsets)
    if (
        len(offsets) < 1
        or offsets[0] != 0
        or offsets[-1] != len(names.tokens)
        or (lengths < 0).any()
    ):
        raise InputError(
            f"trie: offsets must rise from 0 to the number of tokens, {len(names.tokens)}"
        )

    def name_row(row: int) -> str:
        return f"name {row}" + (f" ({texts[row]!r})" if texts is not None else "")

    strange = (np.asarray(names.tokens) < 0) | (np.asarray(names.tokens) >= vocabulary)
    if strange.any():
        at = int(strange.argmax())
        row = int(np.searchsorted(offsets, at, "right")) - 1
        raise InputError(
            f"trie: {name_row(row)} has token {names.tokens[at]}; expected 0 to {vocabulary - 1}"
        )
    usable = lengths > 0
    if max_length is not None:
        usable &= lengths <= max_length
    if not skip and not usable.all():
        row = int(usable.argmin())
        what = (
            f"has {lengths[row]} tokens, more than {max_length}"
            if lengths[row]
            else "tokenises to nothing"
        )
        raise InputError(
            f"trie: {name_row(row)} {what}. Leave such names out of the dictionary, or have them"
            " skipped."
        )
    return np.flatnonzero(usable)


@dataclass(eq=False)
class Trie:
    """A prefix tree of names; the fields are explained above. Made by :meth:`build`, :meth:`load`
    or :meth:`forest`.

    vocabulary  number of tokens;  identity  what tokenised the names, whatever the caller calls it
    skipped     names that were left out when it was built
    """

    tokens: np.ndarray
    starts: np.ndarray
    leaf_nodes: np.ndarray
    concepts: np.ndarray
    others: np.ndarray
    vocabulary: int
    identity: str = ""
    skipped: int = 0

    def __post_init__(self) -> None:
        self._tensors: dict[torch.device, Tensors] = {}

    @classmethod
    def build(
        cls,
        names: Ragged,
        concepts: np.ndarray | None = None,
        *,
        vocabulary: int,
        identity: str = "",
        skip: bool = False,
        max_length: int | None = None,
        texts: Sequence[str] | None = None,
    ) -> Trie:
        """The trie of `names`; ``concepts`` (names,) are their concepts' numbers, the names' own
        numbers where None.

        A name of several concepts is in `names` once for each; equal sequences share a leaf and
        their concepts.

        Raises InputError for a name without tokens or with more than `max_length` (with `skip` it
        is left out and counted in `skipped`), for a token outside 0 … vocabulary - 1, for a concept
        that is no uint32, and when no name is left. `texts` (names,) lets the message name the
        name.
        """
        count = len(names.offsets) - 1
        concepts = np.arange(count) if concepts is None else np.asarray(concepts)
        if len(concepts) != count:
            raise InputError(f"trie: {count} names but {len(concepts)} concepts; give one for each")
        if count and not 0 <= concepts.min() <= concepts.max() < 2**32:
            raise InputError(
                f"trie: concepts run from {concepts.min()} to {concepts.max()}; expected 0 to"
                " 2**32 - 1"
            )
        rows = _check_names(names, vocabulary, skip, max_length, texts)
        if not len(rows):
            raise InputError(
                f"trie: no name to build it from ({count} given, {count - len(rows)} unusable)"
            )
        if len(rows) < count:
            is_first = np.zeros(count, bool)
            is_first[rows] = True
            lengths = np.diff(names.offsets)
            tokens = np.asarray(names.tokens)[np.repeat(is_first, lengths)]
            names = Ragged(tokens, np.concatenate([[0], lengths[rows].cumsum()]))
        trie = cls._from_names(
            names, np.zeros(len(rows), np.int64), 1, concepts[rows], vocabulary, identity
        )
        trie.skipped = count - len(rows)
        return trie

    @classmethod
    def _from_names(
        cls,
        names: Ragged,
        root: np.ndarray,
        roots: int,
        concepts: np.ndarray,
        vocabulary: int,
        identity: str,
    ) -> Trie:
        tokens, counts, ends = _level_order(names, root, roots)
        starts = np.full(len(tokens) + 1, len(tokens), np.uint32)
        starts[: len(counts) + 1] = roots + np.concatenate([[0], counts.cumsum()])
        leaf_nodes = np.unique(ends)
        pairs = np.unique(np.searchsorted(leaf_nodes, ends) << 32 | concepts.astype(np.int64))
        leaf = pairs >> 32
        lowest = np.append(True, leaf[1:] != leaf[:-1])[: len(leaf)]
        others = np.stack([leaf[~lowest], pairs[~lowest] & 0xFFFFFFFF], 1)
        return cls(
            tokens.astype(np.uint16 if vocabulary <= 2**16 else np.uint32),
            starts,
            leaf_nodes.astype(np.uint32),
            (pairs[lowest] & 0xFFFFFFFF).astype(np.uint32),
            others.astype(np.uint32),
            vocabulary,
            identity,
        )

    def __len__(self) -> int:
        """Leaves: distinct names."""
        return len(self.leaf_nodes)

    @property
    def roots(self) -> int:
        return int(self.starts[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, in memory as on disk."""
        return sum(getattr(self, name).nbytes for name in ARRAYS)

    @cached_property
    def levels(self) -> np.ndarray:
        """(depth + 2,) int64: level d is nodes levels[d] to levels[d + 1] - 1; level 0 holds the
        roots."""
        bounds = [0, self.roots]
        while bounds[-1] < len(self.tokens):
            bounds.append(int(self.starts[bounds[-1]]))
        return np.array(bounds)

    @property
    def depth(self) -> int:
        """Tokens of the longest name."""
        return len(self.levels) - 2

    @cached_property
    def widths(self) -> list[int]:
        """(depth + 1,) the most children that a node of each level has."""
        bounds = zip(self.levels[:-1], self.levels[1:], strict=True)
        return [int(np.diff(self.starts[a : b + 1]).max(initial=0)) for a, b in bounds]

    @cached_property
    def heights(self) -> np.ndarray:
        """(nodes,) int16: how many tokens the longest name below a node still has."""
        heights = np.zeros(len(self.tokens), np.int16)
        for a, b in zip(self.levels[-2::-1], self.levels[:0:-1], strict=True):
            starts = self.starts[a : b + 1].astype(np.int64)
            inner = np.flatnonzero(np.diff(starts))
            if len(inner):
                below = heights[starts[0] : starts[-1]]
                heights[a + inner] = np.maximum.reduceat(below, starts[inner] - starts[0]) + 1
        return heights

    def tensors(self, device: torch.device) -> Tensors:
        """The trie on `device`; kept, so that a second search finds it there. On the CPU it shares
        the arrays' memory."""
        if device not in self._tensors:

            def to_device(array: np.ndarray) -> Tensor:
                return torch.from_numpy(np.asarray(array)).to(device)

            wide = self.tokens.dtype == np.uint32
            self._tensors[device] = Tensors(
                to_device(self.tokens.view(np.int32 if wide else np.int16)),
                to_device(self.starts.view(np.int32)),
                to_device(self.leaf_nodes.view(np.int32)),
                to_device(self.heights),
                0xFFFFFFFF if wide else 0xFFFF,
            )
        return self._tensors[device]

    def children(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """(their tokens, ascending; their nodes), of one node."""
        nodes = np.arange(self.starts[node], self.starts[node + 1])
        return np.asarray(self.tokens[nodes]), nodes

    def concepts_of(self, leaf: int) -> np.ndarray:
        """The concepts whose name the leaf is, ascending. Raises IndexError for no leaf."""
        if not 0 <= leaf < len(self):
            raise IndexError(f"leaf {leaf} of a trie with {len(self)} leaves")
        first, last = np.searchsorted(self.others[:, 0], np.array([leaf, leaf + 1], np.uint32))
        return np.append(self.concepts[leaf], self.others[first:last, 1])

    def leaves(self, names: Ragged, root: int = 0) -> np.ndarray:
        """(names,) the leaf in which each ends, counted from `root`; -1 where none does."""
        offsets, lengths = names.offsets[:-1], np.diff(names.offsets)
        node = np.full(len(lengths), root, np.int64)
        for depth in range(int(lengths.max(initial=0))):
            rows = np.flatnonzero((lengths > depth) & (node >= 0))
            wanted = names.tokens[offsets[rows] + depth]
            low, high = (self.starts[node[rows] + i].astype(np.int64) for i in (0, 1))
            last = high
            while (open_ := low < high).any():  # bisection in each row's own children
                middle = (low + high) // 2
                less = open_ & (self.tokens[np.where(open_, middle, 0)] < wanted)
                low, high = np.where(less, middle + 1, low), np.where(open_ & ~less, middle, high)
            has_token = low < last
            has_token[has_token] = self.tokens[low[has_token]] == wanted[has_token]
            node[rows] = np.where(has_token, low, -1)
        if not len(self):  # a forest of empty lists
            return np.full(len(lengths), -1)
        at = np.searchsorted(self.leaf_nodes, node.clip(0).astype(np.uint32)).clip(
            max=len(self) - 1
        )
        return np.where((node >= 0) & (self.leaf_nodes[at] == node), at, -1)

    def sequences(self, leaves: np.ndarray) -> Ragged:
        """The names that `leaves` (n,) are, as tokens."""
        node = self.leaf_nodes[leaves].astype(np.int64)
        lengths = np.searchsorted(self.levels, node, "right") - 1
        offsets = np.concatenate([[0], lengths.cumsum()])
        tokens = np.empty(offsets[-1], self.tokens.dtype)
        for back in range(1, int(lengths.max(initial=0)) + 1):
            rows = np.flatnonzero(lengths >= back)
            tokens[offsets[1:][rows] - back] = self.tokens[node[rows]]
            # The parent is the last node whose children start at or before this one; of uint32, or
            # numpy copies all starts.
            node[rows] = np.searchsorted(self.starts, node[rows].astype(np.uint32), "right") - 1
        return Ragged(tokens, offsets)

    def names(self, block: int = 65_536) -> Iterator[np.ndarray]:
        """The tokens of every name, leaf by leaf; `block` of them are taken at a time."""
        for first in range(0, len(self), block):
            leaves = np.arange(first, min(first + block, len(self)))
            yield from self.sequences(leaves).rows()

    def forest(self, candidates: Sequence[Sequence[int] | np.ndarray]) -> Trie:
        """A small trie for each of `candidates`, lists of leaves of this one: root i holds the
        names of ``candidates[i]``.

        The concepts of its leaves are the leaves of this trie. A list may be empty and may repeat a
        leaf. Raises InputError for a number that is no leaf.
        """
        lists = [np.asarray(leaves, np.int64).reshape(-1) for leaves in candidates]
        leaves = np.concatenate([np.zeros(0, np.int64), *lists])
        if len(leaves) and not 0 <= leaves.min() <= leaves.max() < len(self):
            raise InputError(
                f"candidates: leaves run from {leaves.min()} to {leaves.max()}; expected 0 to"
                f" {len(self) - 1}"
            )
        root = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
        return Trie._from_names(
            self.sequences(leaves), root, len(lists), leaves, self.vocabulary, self.identity
        )

    def save(self, folder: str | Path) -> Path:
        """Write the arrays (.npy) and a manifest to `folder`, whole or not at all. Returns the
        folder."""
        facts = {
            key: getattr(self, key)
            for key in ("vocabulary", "identity", "skipped", "roots", "depth")
        }
        facts |= {
            "format": FORMAT,
            "nodes": len(self.tokens),
            "leaves": len(self),
            "more_concepts": len(self.others),
        }
        with TRIE.create(folder, facts) as partial:
            for name in ARRAYS:
                np.save(partial / f"{name}.npy", getattr(self, name), allow_pickle=False)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path, identity: str) -> Trie:
        """The trie in `folder`, memory-mapped.

        Raises InputError when it is missing, cut or inconsistent, or was made by another tokenizer
        than `identity`.
        """
        folder = Path(folder)
        manifest = TRIE.manifest(folder)
        if manifest.get("identity") != identity:
            raise InputError(
                f"{folder}: this trie does not fit: it was made with {manifest.get('identity')!r}, "
                f"expected {identity!r}. Build it again with this tokenizer."
            )
        files = [f"{name}.npy" for name in ARRAYS]
        TRIE.check(folder, manifest, files)
        arrays = [cls._array(folder / name) for name in files]
        try:
            tokens, starts, leaf_nodes, concepts, others = arrays
            facts = manifest["vocabulary"], identity, manifest["skipped"]
            trie = cls(tokens, starts, leaf_nodes, concepts, others, *facts)
            trie._check(manifest)
        except (KeyError, IndexError, TypeError) as error:
            raise InputError(
                f"{folder}: its files do not make up a trie ({error!r}). Build it again."
            ) from error
        return trie

    @staticmethod
    def _array(file: Path) -> np.ndarray:
        try:
            # Copy on write: torch asks for writable memory, though nothing here writes to it.
            array: np.ndarray = np.load(file, mmap_mode="c", allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise InputError(
                f"{file}: no array in NumPy's format ({error}). Build the trie again."
            ) from error
        return array

    def _check(self, manifest: dict[str, Any]) -> None:
        """Raise InputError unless shapes and types are those of a trie of the size in the
        manifest."""
        nodes, leaves = manifest["nodes"], manifest["leaves"]
        token = np.dtype(np.uint16 if self.vocabulary <= 2**16 else np.uint32)
        wanted: dict[str, tuple[np.dtype, tuple[int, ...]]]
        wanted = {"tokens": (token, (nodes,)), "starts": (np.dtype(np.uint32), (nodes + 1,))}
        wanted |= {name: (np.dtype(np.uint32), (leaves,)) for name in ("leaf_nodes", "concepts")}
        wanted["others"] = np.dtype(np.uint32), (manifest["more_concepts"], 2)
        for name, (dtype, shape) in wanted.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.shape != shape:
                raise InputError(
                    f"trie: {name} is {array.dtype} {array.shape}, expected {dtype} {shape}. Build"
                    " it again."
                )
        rising = bool(
            (self.starts[1:] >= self.starts[:-1]).all()
            and (self.leaf_nodes[1:] > self.leaf_nodes[:-1]).all()
        )
        inside = (
            self.starts[-1] == nodes
            and self.starts[0] == manifest["roots"]
            and self.leaf_nodes[-1] < nodes
        )
        # children follow their parents, so levels end
        forward = bool((self.starts[:-1] > np.arange(nodes)).all())
        if not (rising and inside and forward):
            raise InputError("trie: its nodes do not form a tree. Build it again.")
