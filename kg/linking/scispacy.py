"""Linking with scispaCy: spans from any spaCy pipeline, candidates from scispaCy's
CandidateGenerator over our names.

Neumann, King, Beltagy and Ammar, ScispaCy: Fast and Robust Models for Biomedical Natural Language
Processing, BioNLP 2019. https://arxiv.org/abs/1902.07669

scispaCy's own builder of the index stops on Python 3.11, and its saved indices hold a pickled
vectorizer. Here both are built from the names, and nothing is unpickled.
"""

from __future__ import annotations

from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from core.files import InputError
from core.reading import excerpt
from kg.documents.mentions import Mention
from kg.graph import KINDS, KnowledgeGraph

EXTRA = ("spacy", "scispacy", "nmslib")


class NearestNames:
    """The entity of the nearest name of a graph, by scispaCy's candidates: cosine of TF-IDF vectors
    over character 3-grams.

    names: table of the graph's names.  degree: entity id -> number of its triples.
    threshold: least similarity of a link. 0.85 is the project's choice; scispaCy's own linker uses
        0.7.
    k: nearest names to look at (scispaCy: 30).
    threads: for building the index; with more than one, neighbours may differ a little from run to
        run.

    Of several entities the most similar one is taken; then the one with the better kind of name
    (kg.graph.KINDS), the one with most triples, the smallest id. Raises InputError when the extra
    is missing, or no name is given.
    """

    def __init__(
        self,
        names: pa.Table,
        degree: dict[str, int] | None = None,
        *,
        threshold: float = 0.85,
        k: int = 30,
        threads: int = 1,
    ) -> None:
        check_extra()
        if not 0 < threshold <= 1 or k < 1:
            raise InputError(
                f"threshold: expected a number in (0, 1], got {threshold}; k: expected at least 1,"
                f" got {k}"
            )
        self.threshold, self.k = threshold, k
        self._degree = degree or {}
        self._kind: dict[tuple[str, str], int] = {}
        rank = {kind: i for i, kind in enumerate(KINDS)}
        for entity, name, kind in zip(
            *(names[c].to_pylist() for c in ("id", "name", "kind")), strict=True
        ):
            if name.strip():
                place = rank.get(kind, len(KINDS))
                self._kind[name, entity] = min(place, self._kind.get((name, entity), place))
        self._candidates = _candidate_generator(list(self._kind), threads)

    @classmethod
    def from_graph(cls, graph: KnowledgeGraph, **options: Any) -> NearestNames:
        """All names of `graph`; options as in the class."""
        degrees = dict(zip(graph.ids.to_pylist(), graph.degree().tolist(), strict=True))
        return cls(graph.names, degrees, **options)

    def best(self, strings: list[str]) -> list[tuple[str, float] | None]:
        """(entity, similarity) of each string; None where no name is near enough."""
        nearest: list[tuple[str, float] | None] = []
        for candidates in self._candidates(strings, self.k) if strings else []:
            ranked = []
            for candidate in candidates:
                similarity = min(max(candidate.similarities), 1.0)
                score = round(float(similarity), 4)  # equal names differ in the last bits
                near = [
                    a
                    for a, s in zip(candidate.aliases, candidate.similarities, strict=True)
                    if s >= score - 1e-4
                ]
                kind = min(self._kind[alias, candidate.concept_id] for alias in near)
                entity = candidate.concept_id
                ranked.append((-score, kind, -self._degree.get(entity, 0), entity))
            near_enough = ranked and -min(ranked)[0] >= self.threshold
            nearest.append((min(ranked)[3], -min(ranked)[0]) if near_enough else None)
        return nearest


class ScispacyLinker:
    """NER spans linked to the entity of the nearest name (:class:`NearestNames`).

    pipeline: a spaCy pipeline with a component that sets `doc.ents`; :meth:`from_graph` loads it
    from a folder, or by the name of an installed one, and raises InputError when the extra or the
    pipeline is missing, or no name is given.
    """

    def __init__(self, pipeline: Any, names: NearestNames) -> None:
        self._pipeline, self.names = pipeline, names

    @classmethod
    def from_graph(
        cls, graph: KnowledgeGraph, pipeline: str | Path, **options: Any
    ) -> ScispacyLinker:
        """The linker over all names of `graph`; options as in :class:`NearestNames`."""
        check_extra()
        return cls(_pipeline(pipeline), NearestNames.from_graph(graph, **options))

    def link(self, text: str) -> list[Mention]:
        """Mentions in `text` in order, with character offsets (end exclusive); score is the
        similarity.

        Raises InputError for a text that is longer than the pipeline reads.
        """
        most = getattr(self._pipeline, "max_length", len(text))
        if len(text) > most:
            raise InputError(
                f"a text of {len(text):,} characters that begins with {excerpt(text)}: spaCy reads"
                f" at most {most:,}. Split it."
            )
        spans = [span for span in self._pipeline(text).ents if span.text.strip()]
        linked = zip(spans, self.names.best([s.text for s in spans]), strict=True)
        return [
            Mention(span.start_char, span.end_char, *name)
            for span, name in linked
            if name is not None
        ]


def check_extra() -> None:
    """Raise InputError where spaCy, scispaCy or nmslib is not installed."""
    if missing := [module for module in EXTRA if find_spec(module) is None]:
        raise InputError(
            f"the scispaCy linker wants {', '.join(missing)}, not installed here. "
            "It comes with `make setup` on Python below 3.13, unless SCISPACY=0 is given"
        )


def _pipeline(pipeline: str | Path) -> Any:
    import spacy

    if Path(pipeline).exists() and not (Path(pipeline) / "config.cfg").is_file():
        raise InputError(
            f"{pipeline}: not a spaCy pipeline (config.cfg is missing). Give the folder that"
            " holds it."
        )
    try:
        loaded = spacy.load(pipeline)
    except OSError as error:
        raise InputError(
            f"no spaCy pipeline {str(pipeline)!r}: it is neither an installed package nor a folder."
            " Give the folder of one (en_core_sci_sm and others come from scispaCy's releases)."
        ) from error
    if not loaded.pipe_names:
        raise InputError(
            f"{pipeline}: this spaCy pipeline has no component, so it finds nothing. Give one with"
            " NER."
        )
    return loaded


def _candidate_generator(pairs: list[tuple[str, str]], threads: int) -> Any:
    """scispaCy's CandidateGenerator over (name, entity id) pairs."""
    import nmslib
    from scispacy.candidate_generation import CandidateGenerator
    from scispacy.linking_utils import Entity, KnowledgeBase
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not pairs:
        raise InputError("names: the graph has none; give it names")
    aliases: dict[str, list[str]] = defaultdict(list)
    for name, entity in pairs:
        aliases[entity].append(name)
    base = KnowledgeBase([Entity(entity, its[0], its) for entity, its in aliases.items()])
    names = sorted(base.alias_to_cuis)
    # scispaCy drops 3-grams in fewer than 10 names to save memory; a small graph would lose most of
    # its 3-grams.
    vectorizer = TfidfVectorizer(
        analyzer="char_wb",
        ngram_range=(3, 3),
        min_df=10 if len(names) > 100_000 else 1,
        dtype=np.float32,
    )
    vectors = vectorizer.fit_transform(names)
    some = np.flatnonzero(np.diff(vectors.indptr))  # nmslib stops at an empty vector
    index = nmslib.init(
        method="hnsw", space="cosinesimil_sparse", data_type=nmslib.DataType.SPARSE_VECTOR
    )
    index.addDataPointBatch(vectors[some])
    # scispaCy uses M=100, efConstruction=2000; efSearch is its own.
    index.createIndex(
        {"M": 32, "efConstruction": 400, "post": 0, "indexThreadQty": threads}, print_progress=False
    )
    index.setQueryTimeParams({"efSearch": 200})
    return CandidateGenerator(index, vectorizer, [names[i] for i in some], base)
