"""Which names and concepts are alike: normalised names, names of the same words, concepts of
several graphs that are one."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from kg.graph import KnowledgeGraph
from kg.search.names import TfIdf

WORD = re.compile(r"\w+")
#: kinds of names that a concept of another graph may be known by
SAME = ("preferred", "exact", "synonym")


def normalise_names(names: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Names in lower case, runs of white space as one space, none at the ends."""
    lower = pc.utf8_lower(names)
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(lower, r"[\s\p{Z}]+", " "))


def unite_concepts(loaded: list[KnowledgeGraph], concepts: pa.Array) -> np.ndarray:
    """(concepts,) for each its own number, or that of the concept of an earlier graph that it is
    one with.

    One with it is the concept of earlier graphs that alone has the same preferred name; or else
    that alone has its preferred name among its SAME names, or the other way round. No two concepts
    of one graph become one, so a chain of loose synonyms joins nothing. Names are compared
    normalised.
    """
    united = np.arange(len(concepts))
    if len(loaded) == 1:
        return united
    number = {name: i for i, name in enumerate(concepts.to_pylist())}
    labelled: dict[str, set[int]] = {}  # of the earlier graphs: preferred name -> concepts
    concepts_by_name: dict[str, set[int]] = {}  # any SAME name -> concepts
    for graph in loaded:
        table = graph.names.filter(pc.is_in(graph.names["kind"], value_set=pa.array(SAME)))
        rows = zip(
            *(c.to_pylist() for c in (table["id"], normalise_names(table["name"]), table["kind"])),
            strict=True,
        )
        label: dict[int, list[str]] = {}
        names_of: dict[int, list[str]] = {}
        for concept, name, kind in rows:
            (label if kind == "preferred" else names_of).setdefault(number[concept], []).append(
                name
            )
        taken: set[int] = set()
        for names, among in ((label, labelled), (label, concepts_by_name), (names_of, labelled)):
            for concept, each in names.items():
                if united[concept] != concept:
                    continue
                others = set().union(*(among.get(name, ()) for name in each))
                if len(others) == 1 and concept not in others and not others & taken:
                    united[concept] = next(iter(others))
                    taken |= others
        for names, among in (
            (label, labelled),
            (label, concepts_by_name),
            (names_of, concepts_by_name),
        ):
            for concept, each in names.items():
                for name in each:
                    among.setdefault(name, set()).add(int(united[concept]))
    return united


def same_words(names: list[str]) -> np.ndarray:
    """(names,) numbers that are equal where names have the same words, in whatever order and
    whether or not they end in s."""
    bags = []
    for name in names:
        words = sorted(word.rstrip("s") or word for word in WORD.findall(name))
        bags.append(" ".join(words) or name)
    return np.unique(np.array(bags, dtype=object).astype(str), return_inverse=True)[1]


def similar_concepts(pairs: np.ndarray, names: list[str], concepts: int, k: int) -> np.ndarray:
    """(concepts, k) for each concept that has pairs the k others whose paired names, together, are
    nearest by TF-IDF.

    Nearest first, by character 3-grams (kg.search.names.TfIdf); -1 where there are fewer, and all
    along where there are no pairs.
    """
    owner, name = np.concatenate([pairs[:, [2, 0]], pairs[:, [2, 1]]]).T
    rows = np.unique(owner.astype(np.int64) << 32 | name)
    numbers, begin = np.unique(rows >> 32, return_index=True)
    parts = np.split(rows & 0xFFFFFFFF, begin[1:])
    texts = [" ".join(map(names.__getitem__, part)) for part in parts]
    table = np.full((concepts, k), -1, np.int32)
    tfidf = TfIdf(texts)
    for first in tqdm(
        range(0, len(texts), 2048),
        unit_scale=2048,
        unit=" concepts",
        desc="neighbours",
        disable=None,
    ):
        scores, near = tfidf.search(texts[first : first + 2048], k + 1)
        for i, (score, row) in enumerate(zip(scores, near, strict=True), first):
            others = row[(row != i) & (score > 0)][:k]
            table[numbers[i], : len(others)] = numbers[others]
    return table
