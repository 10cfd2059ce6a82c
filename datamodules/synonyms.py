"""Retrieval of synonyms from a graph's equivalences, as SMedBERT evaluates encoders (Section 4.3
and Appendix C).

    kepl data synonyms build --graph GRAPH --out FOLDER
    kepl data synonyms drop --synonyms FOLDER --input TEXT ... --out FILE

Each pair of equivalent entities is asked for in both directions: one is the query, the other is to
be found among 19 entities of its type whose names look like its own (Jaro-Winkler similarity above
0.6). Dataset-1 is all samples, Dataset-2 those whose two entities share most of their neighbours;
Dataset-3 depends on a text (benchmarks.synonyms).

No negative is the query, the gold entity, an equivalent of either, or named like one of them. A
sample with too few negatives is dropped and counted. `drop` removes from a text the sentences that
name both sides of a pair: whoever trains on them sees the answer.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import ahocorasick
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rapidfuzz import process
from rapidfuzz.distance import JaroWinkler
from tqdm import tqdm

from core.arrays import read_table
from core.artifact import Artifact
from core.files import InputError, atomic_write
from core.outputs import check_no_input
from kg.documents.formats import documents
from kg.graph import KnowledgeGraph, fingerprint

FORMAT = 1
FILE = "samples.parquet"
SAMPLES = Artifact("samples", "kepl data synonyms build --help", FORMAT, ("settings",), FILE)
UNTYPED = ("", "未知")
_SENTENCE = re.compile(r"[^。！？；!?;\n]*[。！？；!?;\n]*")


class Sample(NamedTuple):
    """One question: which of `candidates` (the gold one first) means the same as `query`? Entity
    ids and their names."""

    query: str
    query_name: str
    candidates: list[str]
    candidate_names: list[str]
    shared: bool  # whether it belongs to Dataset-2


def neighbour_sets(graph: KnowledgeGraph) -> list[set[int]]:
    """The entities that share a triple with each entity, itself left out."""
    neighbours: list[set[int]] = [set() for _ in range(len(graph.entities))]
    for head, _, tail in graph.triple_indices().tolist():
        if head != tail:
            neighbours[head].add(tail)
            neighbours[tail].add(head)
    return neighbours


def share_neighbours(a: set[int], b: set[int], jaccard: float, common: int) -> bool:
    """Whether two entities belong to Dataset-2: at least `common` neighbours in common, and this
    Jaccard index."""
    both = len(a & b)
    return both >= common and both >= jaccard * len(a | b)


def equivalent_pairs(graph: KnowledgeGraph) -> list[tuple[int, int]]:
    """The graph's equivalences, undirected, each once, in order."""
    head, tail = (graph.index_of(graph.equivalences[c]).tolist() for c in ("head", "tail"))
    return list(
        dict.fromkeys((min(p), max(p)) for p in zip(head, tail, strict=True) if p[0] != p[1])
    )


def type_entities(graph: KnowledgeGraph, pairs: Sequence[tuple[int, int]]) -> list[str]:
    """Type of every entity; one without has that of its first equivalent that has one."""
    kinds: list[str] = graph.entities["type"].to_pylist()
    result = ["" if kind in UNTYPED else kind for kind in kinds]
    for a, b in pairs:
        for first, other in ((a, b), (b, a)):
            if not result[first] and kinds[other] not in UNTYPED:
                result[first] = kinds[other]
    return result


def eligible(
    names: Sequence[str], group: np.ndarray, gold: Sequence[int], similarity: float
) -> Iterator[np.ndarray]:
    """For each entity of `gold`, those of `group` with another name of a Jaro-Winkler similarity
    above `similarity`."""
    choices = [names[i] for i in group]
    for begin in range(0, len(gold), 256):
        part = [names[g] for g in gold[begin : begin + 256]]
        score = process.cdist(
            part, choices, scorer=JaroWinkler.similarity, score_cutoff=similarity, dtype=np.float32
        )
        for name, row in zip(part, score, strict=True):
            similar = group[row > similarity]
            yield similar[[names[i] != name for i in similar]]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How samples are made.

    Args:
        negatives: Entities beside the gold one.
        similarity: Jaro-Winkler similarity that their names exceed.
        jaccard: Dataset-2: least Jaccard index of the neighbours.
        common: Dataset-2: least number of neighbours in common.
        limit: Pairs at most, drawn by the seed. Default: all.
        seed: Seed of what is drawn.
    """

    negatives: int = 19
    similarity: float = 0.6
    jaccard: float = 0.75
    common: int = 3
    limit: int | None = None
    seed: int = 0


def samples(
    graph: KnowledgeGraph, rules: Sampling = Sampling()
) -> tuple[list[Sample], Counter[str]]:
    """(the samples of a graph's equivalences, what was dropped and why). Raises InputError when the
    graph has no equivalences."""
    pairs = equivalent_pairs(graph)
    if not pairs:
        raise InputError(
            "this graph has no equivalences, so there is nothing to ask for. Build one that keeps"
            " them apart: kepl graph refine --help"
        )
    rng, limit = np.random.default_rng(rules.seed), rules.limit
    equals: dict[int, set[int]] = defaultdict(set)
    for a, b in pairs:
        equals[a].add(b)
        equals[b].add(a)
    kinds = type_entities(graph, pairs)
    names = graph.entities["name"].to_pylist()
    ids = graph.ids.to_pylist()
    counts: Counter[str] = Counter()
    if limit is not None and limit < len(pairs):
        counts["pairs beyond the limit"] = len(pairs) - limit
        pairs = [pairs[i] for i in np.sort(rng.choice(len(pairs), limit, replace=False))]
    around = neighbour_sets(graph)
    questions: list[tuple[int, int]] = []
    for a, b in pairs:
        questions += [(a, b), (b, a)]
    alike = find_alike(names, kinds, [gold for _, gold in questions], rules.similarity)
    result: list[Sample] = []
    for query, gold in questions:
        if not kinds[gold]:
            counts["samples whose entities have no type"] += 1
            continue
        never = equals[query] | equals[gold] | {query, gold}
        names_left = {names[i] for i in never}
        pool = [i for i in alike[gold].tolist() if i not in never and names[i] not in names_left]
        if names[query] == names[gold]:
            counts["samples of two entities of one name"] += 1
        elif len(pool) < rules.negatives:
            counts[f"samples with fewer than {rules.negatives} negatives"] += 1
        else:
            drawn = rng.choice(len(pool), rules.negatives, replace=False)
            chosen = [gold, *(pool[i] for i in drawn)]
            result.append(
                Sample(
                    ids[query],
                    names[query],
                    [ids[i] for i in chosen],
                    [names[i] for i in chosen],
                    share_neighbours(around[query], around[gold], rules.jaccard, rules.common),
                )
            )
    return result, counts


def find_alike(
    names: Sequence[str], kinds: Sequence[str], golds: Iterable[int], similarity: float
) -> dict[int, np.ndarray]:
    """{entity of `golds` that has a type: entities of its type whose names are similar to its
    own}."""
    groups: dict[str, list[int]] = defaultdict(list)
    for entity, kind in enumerate(kinds):
        groups[kind].append(entity)
    wanted: dict[str, list[int]] = defaultdict(list)
    for gold in dict.fromkeys(golds):
        wanted[kinds[gold]].append(gold)
    wanted.pop("", None)
    alike: dict[int, np.ndarray] = {}
    total = sum(map(len, wanted.values()))
    with tqdm(total=total, desc="similar names", disable=None) as bar:
        for kind, numbers in sorted(wanted.items()):
            similar = eligible(names, np.array(groups[kind]), numbers, similarity)
            for gold, row in zip(numbers, similar, strict=True):
                alike[gold] = row
                bar.update()
    return alike


def build_samples(
    graph: str,
    out: str,
    fresh: bool = False,
    rules: Sampling = Sampling(),
) -> Path:
    """Make samples of a graph's equivalences; existing ones of the same settings are kept.

    Args:
        graph: Folder of a graph of `kepl graph refine`.
        out: Folder for the samples.
        fresh: Build again even if the same are there.

    Raises InputError as :func:`samples` does, and when no sample is left.
    """
    folder = Path(out)
    settings = {"format": FORMAT, "graph": fingerprint(graph), **asdict(rules)}
    if SAMPLES.is_kept(folder, {"settings": settings}, fresh):
        return folder
    try:
        sampled, dropped = samples(KnowledgeGraph.load(graph), rules)
    except InputError as error:
        raise InputError(f"{graph}: {error}") from error
    if not sampled:
        raise InputError(
            f"{graph}: no sample is left: {dict(dropped)}. Lower --negatives or --similarity."
        )
    counts = {"samples": len(sampled), "of shared neighbours": sum(s.shared for s in sampled)}
    manifest = {"settings": settings, "counts": counts, "left_out": dict(dropped)}
    with SAMPLES.create(folder, manifest) as partial:
        table = pa.Table.from_pylist([sample._asdict() for sample in sampled])
        pq.write_table(table, partial / FILE, compression="zstd")
    return folder


def load_samples(folder: str | Path) -> list[Sample]:
    """The samples in `folder`. Raises InputError when there are none, or the file is not what the
    manifest says."""
    SAMPLES.read(folder)
    return [Sample(**row) for row in read_table(Path(folder) / FILE, Sample._fields).to_pylist()]


def sentences(text: str) -> list[str]:
    """The sentences of `text` with their end marks; joined they are the text."""
    return [s for s in _SENTENCE.findall(text) if s]


class Pairs:
    """Finds sentences that name both sides of a pair, in places that do not overlap.

    A name inside its partner's (结核 in 肺结核) is not named by it.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.partners: dict[str, set[str]] = defaultdict(set)
        for a, b in pairs:
            if a != b:
                self.partners[a].add(b)
                self.partners[b].add(a)
        self._automaton = ahocorasick.Automaton()
        for name in self.partners:
            self._automaton.add_word(name, name)
        self._automaton.make_automaton()

    def are_named(self, sentence: str) -> bool:
        """Whether the sentence names both sides of one of the pairs."""
        if not self.partners:
            return False
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for last, name in self._automaton.iter(sentence):
            places[name].append((last + 1 - len(name), last + 1))
        for name, spans in places.items():
            for partner in self.partners[name] & places.keys():
                if any(a[1] <= b[0] or b[1] <= a[0] for a in spans for b in places[partner]):
                    return True
        return False


def drop(synonyms: str, input: list[str], out: str) -> str:
    """Write documents without the sentences that name both sides of a pair. Returns what was
    dropped, in words.

    Args:
        synonyms: Folder of the samples.
        input: Texts, in the formats of `kepl data link`.
        out: JSON Lines file to write. A document of which nothing is left is dropped.

    Raises InputError
    for broken input.
    """
    check_no_input(Path(out), [synonyms, *input])
    pairs = Pairs((s.query_name, s.candidate_names[0]) for s in load_samples(synonyms))
    counts: Counter[str] = Counter(documents=0, sentences=0)
    with atomic_write(out) as handle:
        for file in input:
            for document in documents([Path(file)], used=False):
                remaining = []
                for sentence in sentences(document.text):
                    counts["sentences"] += 1
                    if pairs.are_named(sentence):
                        counts["dropped: both sides of a pair in one sentence"] += 1
                    else:
                        remaining.append(sentence)
                counts["documents"] += 1
                text = "".join(remaining)
                if text.strip():
                    handle.write(
                        json.dumps({"id": document.id, "text": text}, ensure_ascii=False) + "\n"
                    )
                else:
                    counts["dropped: documents of which nothing is left"] += 1
    return f"{out}: " + ", ".join(f"{n:,} {what}" for what, n in counts.items())
