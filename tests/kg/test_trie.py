"""Token trie: equals a dictionary trie, costs few bytes, comes back from disk, refuses what is
broken."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.files import InputError
from kg.search.trie import ARRAYS, Ragged, Trie

NAMES = [[5, 6], [5], [7, 6, 6], [5, 6], [7]]  # "5 6" twice
CONCEPTS = np.array([30, 10, 20, 2, 20])
sequences = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=40)


def small(**settings):
    return Trie.build(Ragged.from_lists(NAMES), CONCEPTS, vocabulary=10, **settings)


def walk(trie, node, path=()):
    """{name: leaf} below a node, by the children alone."""
    found = {}
    at = np.flatnonzero(trie.leaf_nodes == node)
    if len(at):
        found[path] = int(at[0])
    tokens, nodes = trie.children(node)
    assert list(tokens) == sorted(set(tokens.tolist()))
    for token, child in zip(tokens.tolist(), nodes.tolist(), strict=True):
        assert trie.tokens[child] == token
        found |= walk(trie, child, (*path, token))
    return found


def test_by_hand():
    """Nodes in level order: 0 root; 1 "5", 2 "7"; 3 "5 6", 4 "7 6"; 5 "7 6 6". Leaves 1, 2, 3,
    5."""
    trie = small()
    assert trie.tokens.tolist() == [0, 5, 7, 6, 6, 6] and trie.starts.tolist() == [
        1,
        3,
        4,
        5,
        5,
        6,
        6,
    ]
    assert trie.leaf_nodes.tolist() == [1, 2, 3, 5] and trie.levels.tolist() == [0, 1, 3, 5, 6]
    assert (len(trie), trie.roots, trie.depth, trie.widths) == (4, 1, 3, [2, 1, 1, 0])
    assert trie.heights.tolist() == [3, 1, 2, 0, 1, 0]
    assert [trie.concepts_of(leaf).tolist() for leaf in range(4)] == [[10], [20], [2, 30], [20]]
    assert [x.tolist() for x in trie.children(0)] == [[5, 7], [1, 2]]
    assert [x.tolist() for x in trie.children(5)] == [[], []]
    assert trie.leaves(Ragged.from_lists([[7], [7, 6], [5, 6], [9], [5, 6, 6], []])).tolist() == [
        1,
        -1,
        2,
        -1,
        -1,
        -1,
    ]
    assert [name.tolist() for name in trie.names()] == [[5], [7], [5, 6], [7, 6, 6]]
    for leaf in (-1, 4):
        with pytest.raises(IndexError, match=f"leaf {leaf} of a trie with 4 leaves"):
            trie.concepts_of(leaf)


@given(sequences, st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_equals_a_dictionary(names, seed):
    random = np.random.default_rng(seed)
    concepts = random.integers(0, 4, len(names))
    trie = Trie.build(Ragged.from_lists(names), concepts, vocabulary=6)
    wanted: dict = {}
    for name, concept in zip(names, concepts.tolist(), strict=True):
        wanted.setdefault(tuple(name), set()).add(concept)
    found = walk(trie, 0)
    assert set(found) == set(wanted) and sorted(found.values()) == list(range(len(trie)))
    for name, leaf in found.items():
        assert trie.concepts_of(leaf).tolist() == sorted(wanted[name])
    assert [tuple(name.tolist()) for name in trie.names(block=7)] == sorted(
        found, key=lambda n: found[n]
    )
    others = [random.integers(0, 6, random.integers(0, 7)).tolist() for _ in range(30)] + names
    assert trie.leaves(Ragged.from_lists(others)).tolist() == [
        found.get(tuple(name), -1) for name in others
    ]
    longest = {node: 0 for node in range(len(trie.tokens))}
    for node in reversed(range(len(trie.tokens))):
        longest[node] = max((longest[int(c)] + 1 for c in trie.children(node)[1]), default=0)
    assert trie.heights.tolist() == list(longest.values())
    assert trie.depth == max(map(len, names))
    degrees = [len(trie.children(node)[0]) for node in range(len(trie.tokens))]
    assert trie.widths == [
        max(degrees[a:b]) for a, b in zip(trie.levels, trie.levels[1:], strict=False)
    ]


@given(sequences, st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_forest(names, seed):
    """Each root holds its own names; a forest's concepts are the leaves of the trie it came
    from."""
    random, trie = np.random.default_rng(seed), Trie.build(Ragged.from_lists(names), vocabulary=6)
    every = [name.tolist() for name in trie.names()]
    lists = [random.integers(0, len(trie), size).tolist() for size in (3, 0, 1, 10)]
    forest = trie.forest(lists)
    assert forest.roots == 4 and not len(forest.others)
    for root, leaves in enumerate(lists):
        found = {name: int(forest.concepts[leaf]) for name, leaf in walk(forest, root).items()}
        assert found == {tuple(every[leaf]): leaf for leaf in leaves}
        own = forest.leaves(Ragged.from_lists(every), root)
        assert [int(forest.concepts[x]) for x in own if x >= 0] == sorted(set(leaves))
    empty = trie.forest([[], []])
    assert (len(empty), empty.roots, empty.depth, empty.widths) == (0, 2, 0, [0])
    assert empty.leaves(Ragged.from_lists(every)).tolist() == [-1] * len(every)


def test_forest_refuses_what_is_no_leaf():
    for lists in ([[0], [4]], [[-1], [3]]):
        with pytest.raises(InputError, match="candidates: leaves run from .* expected 0 to 3"):
            small().forest(lists)


def test_bytes_of_a_name():
    """At most 45 for names of six pieces, few of which share a beginning; vocabulary of BART's
    size."""
    random, count = np.random.default_rng(0), 30_000
    tokens = random.integers(0, 50_265, (count, 6)).astype(np.uint16)
    trie = Trie.build(Ragged(tokens.ravel(), np.arange(0, 6 * count + 1, 6)), vocabulary=50_265)
    assert len(trie) == count and trie.nbytes / count <= 45
    assert (trie.tokens.dtype, trie.starts.dtype, trie.concepts.dtype) == (
        np.uint16,
        np.uint32,
        np.uint32,
    )
    assert trie.leaves(Ragged(tokens.ravel(), np.arange(0, 6 * count + 1, 6))).min() == 0


def test_order_of_the_names_does_not_matter():
    random = np.random.default_rng(0)
    order = random.permutation(len(NAMES))
    again = Trie.build(Ragged.from_lists([NAMES[i] for i in order]), CONCEPTS[order], vocabulary=10)
    assert all(np.array_equal(getattr(small(), name), getattr(again, name)) for name in ARRAYS)


@pytest.mark.parametrize(("vocabulary", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_wide_vocabularies(vocabulary, dtype):
    names = [[vocabulary - 1, 3], [0, vocabulary - 1], [40_000]]
    trie = Trie.build(Ragged.from_lists(names), vocabulary=vocabulary)
    assert trie.tokens.dtype == dtype and [n.tolist() for n in trie.names()] == [
        names[2],
        names[1],
        names[0],
    ]
    tensors = trie.tensors(torch.device("cpu"))
    assert (tensors.tokens.long() & tensors.mask).tolist() == trie.tokens.tolist()
    assert (
        tensors.starts.tolist() == trie.starts.tolist()
        and trie.tensors(torch.device("cpu")) is tensors
    )


def test_what_build_refuses():
    def refused(message, names=NAMES, concepts=CONCEPTS, **settings):
        with pytest.raises(InputError, match=re.escape(message)):
            Trie.build(Ragged.from_lists(names), concepts, **{"vocabulary": 10} | settings)

    texts = ["fever", "cold", "?", "ague", "cough"]
    holed = [*NAMES[:2], [], *NAMES[3:]]
    refused("name 2 ('?') tokenises to nothing", holed, texts=texts)
    refused("name 2 tokenises to nothing", holed)
    refused("name 2 ('?') has 3 tokens, more than 2", texts=texts, max_length=2)
    refused("name 2 ('?') has token 7; expected 0 to 6", texts=texts, vocabulary=7)
    refused("5 names but 4 concepts; give one for each", concepts=CONCEPTS[:4])
    refused("concepts run from -1 to 3; expected 0 to 2**32 - 1", concepts=np.arange(-1, 4))
    refused("no name to build it from (0 given, 0 unusable)", [], np.zeros(0))
    refused("no name to build it from (2 given, 2 unusable)", [[], []], np.arange(2), skip=True)
    with pytest.raises(InputError, match="offsets must rise from 0 to the number of tokens, 3"):
        Trie.build(Ragged(np.arange(3), np.array([0, 2])), vocabulary=10)

    trie = Trie.build(Ragged.from_lists(holed), CONCEPTS, vocabulary=10, skip=True)
    assert trie.skipped == 1 and [n.tolist() for n in trie.names()] == [[5], [7], [5, 6]]
    assert small(skip=True, max_length=2).skipped == 1 and small().skipped == 0


def test_on_disk(tmp_path):
    trie = small(identity="bart:1234")
    folder = trie.save(tmp_path / "trie")
    again = Trie.load(folder, "bart:1234")
    for name in ARRAYS:
        array = getattr(again, name)
        assert isinstance(array, np.memmap) and np.array_equal(array, getattr(trie, name))
        assert array.dtype == getattr(trie, name).dtype
    assert (again.vocabulary, again.identity, again.skipped, len(again)) == (10, "bart:1234", 0, 4)
    assert again.concepts_of(2).tolist() == [2, 30] and [n.tolist() for n in again.names()][3] == [
        7,
        6,
        6,
    ]
    assert again.forest([[2]]).concepts.tolist() == [2]
    # an empty array of further concepts
    plain = Trie.build(Ragged.from_lists([[1]]), vocabulary=10)
    assert len(Trie.load(plain.save(tmp_path / "plain"), "").others) == 0
    with pytest.raises(InputError, match="made with 'bart:1234', expected 'bart:9'"):
        Trie.load(folder, "bart:9")
    with pytest.raises(InputError, match=r"no trie here \(manifest\.json is missing\)"):
        Trie.load(tmp_path / "nothing", "")


@pytest.mark.parametrize("name", ARRAYS)
def test_a_broken_file_is_refused(tmp_path, name):
    folder = small().save(tmp_path / "trie")
    file = folder / f"{name}.npy"
    whole = file.read_bytes()
    for content in (whole[:-1], whole[:20], b"", whole[:-1] + b"\x7f"):
        file.write_bytes(content)
        with pytest.raises(
            InputError, match=f"{name}.npy: missing, or not the file its manifest describes"
        ):
            Trie.load(folder, "")
    file.unlink()
    with pytest.raises(InputError, match=f"{name}.npy: missing"):
        Trie.load(folder, "")


def test_an_inconsistent_folder_is_refused(tmp_path):
    """Whole files that do not belong together: checksums of a manifest that somebody has put
    together."""
    from core.reading import sha256

    folder = small().save(tmp_path / "trie")
    good = json.loads((folder / "manifest.json").read_text())

    def refused(message, changes, **arrays):
        bad = tmp_path / "bad"
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(folder, bad)
        for name, array in arrays.items():
            np.save(bad / f"{name}.npy", array)
        sums = {name: sha256(bad / f"{name}.npy") for name in ARRAYS}
        (bad / "manifest.json").write_text(json.dumps(good | {"sha256": sums} | changes))
        with pytest.raises(InputError, match=re.escape(message)):
            Trie.load(bad, "")

    trie = small()
    refused("no trie of format 1", {"format": 2})
    refused("tokens is uint16 (6,), expected uint16 (7,)", {"nodes": 7})
    refused("tokens is uint32 (6,), expected uint16 (6,)", {}, tokens=trie.tokens.astype(np.uint32))
    refused("concepts is uint32 (3,), expected uint32 (4,)", {}, concepts=trie.concepts[:3])
    refused("do not form a tree", {}, starts=trie.starts[::-1].copy())
    refused("do not form a tree", {}, starts=np.array([1, 1, 1, 1, 1, 1, 6], np.uint32))
    refused("do not form a tree", {}, leaf_nodes=trie.leaf_nodes + np.uint32(1))
    refused("do not form a tree", {"roots": 2})
    refused("its files do not make up a trie", {"vocabulary": None})
    with pytest.raises(InputError, match="expected an object under sha256"):
        (folder / "manifest.json").write_text(json.dumps(good | {"sha256": None}))
        Trie.load(folder, "")
    (folder / "manifest.json").write_text("[]")
    with pytest.raises(InputError, match="expected a JSON object"):
        Trie.load(folder, "")
    (folder / "tokens.npy").write_bytes(b"no array")
    (folder / "manifest.json").write_text(
        json.dumps(good | {"sha256": good["sha256"] | {"tokens": sha256(folder / "tokens.npy")}})
    )
    with pytest.raises(InputError, match="no array in NumPy's format"):
        Trie.load(folder, "")
