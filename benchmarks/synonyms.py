"""Which of twenty names means the same: SMedBERT's unsupervised evaluation of encoders (Table 1,
Section 4.3, Appendix C).

    kepl synonyms [--model zh | sgns:char | sgns:word | glove:char | glove:word] [--samples FOLDER
    --linked-text FOLDER ...]

Acc@1: the gold entity's name is nearer to the query's than the 19 others; ties are split. Of an
encoder that takes knowledge in at linked mentions, Dataset-1 is split by which of query and gold
mention an entity with neighbours: both, one or neither. Encoders with the same graph are split
alike, with knowledge and without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.groups import group_results
from benchmarks.options import Retrieval
from benchmarks.paired_tests import others
from benchmarks.results import (
    Model,
    Result,
    list_stored,
    model_of,
    save_logged,
)
from core.artifact import read_manifest
from core.files import InputError
from core.json_files import digest
from core.settings import given_options
from core.tracking import runs_folder
from datamodules.links import links
from datamodules.synonyms import Sample, load_samples
from datamodules.tokenizers import load_tokenizer
from experiments.names import encoder
from inference.encoders import NAME_TOKENS, embedder
from inference.options import LinkerOptions, check_uses
from kg.linking import linked_documents
from models.metrics import score

WORDS = ("sgns", "glove")
DATASETS = ("D1", "D2", "D3")
# of query and gold
SIDES = ("D1, neighbours on both sides", "D1, neighbours on one side", "D1, neighbours on neither")
Vectors = Callable[[Sequence[str]], np.ndarray]
Linked = Callable[[Sequence[str]], np.ndarray]


def mention_counts(linked: Path) -> Counter[str]:
    """{entity id: mentions} in a folder of linked text. Raises InputError when there is none."""
    counts: Counter[str] = Counter()
    for document in linked_documents(linked):
        counts.update(mention.entity for mention in document.mentions)
    return counts


def members(
    samples: Sequence[Sample], counts: Mapping[str, int], frequent: int
) -> dict[str, np.ndarray]:
    """{dataset: which samples belong to it}."""
    rare = [
        min(counts.get(s.query, 0), counts.get(s.candidates[0], 0)) <= frequent for s in samples
    ]
    return {
        "D1": np.ones(len(samples), bool),
        "D2": np.array([s.shared for s in samples]),
        "D3": np.array(rare),
    }


def distinct_names(names_of_samples: Iterable[Sequence[str]]) -> list[str]:
    """Each name once, in their order."""
    return list(dict.fromkeys(chain.from_iterable(names_of_samples)))


def hits(samples: Sequence[Sample], vectors: Vectors) -> np.ndarray:
    """(n,) 1 where the gold name is the nearest, 1/k where it is one of k nearest, else 0.

    vectors: names to (n, d), whose products are the similarities.
    """
    names = distinct_names((s.query_name, *s.candidate_names) for s in samples)
    place = {name: i for i, name in enumerate(names)}
    rows = vectors(names)
    result = np.zeros(len(samples))
    for i, s in enumerate(samples):
        similarity = rows[[place[n] for n in s.candidate_names]] @ rows[place[s.query_name]]
        # the same vector may come out differently in the last digit
        best = similarity >= similarity.max() - 1e-7
        result[i] = best[0] / best.sum()
    return result


def sides(samples: Sequence[Sample], linked: Linked) -> dict[str, np.ndarray]:
    """{group of SIDES: which samples belong to it}. linked: (n,) which of n names mention an entity
    with neighbours."""
    names = distinct_names((s.query_name, s.candidate_names[0]) for s in samples)
    has = dict(zip(names, linked(names).tolist(), strict=True))
    count = np.array([has[s.query_name] + has[s.candidate_names[0]] for s in samples])
    return {group: count == number for group, number in zip(SIDES, (2, 1, 0), strict=True)}


def with_neighbours(folder: str | Path, max_length: int = NAME_TOKENS) -> Linked:
    """A function that tells which of n names, cut to `max_length` tokens, mention an entity with
    triples in the graph of an export.

    Raises InputError when the export lacks a file.
    """
    link, tokenizer = links(folder), load_tokenizer(str(folder))
    degree = np.load(Path(folder) / "degree.npy", allow_pickle=False)

    def link_names(names: Sequence[str]) -> np.ndarray:
        offsets = tokenizer(
            list(names), truncation=True, max_length=max_length, return_offsets_mapping=True
        )["offset_mapping"]
        mentions = link(list(names), offsets)
        return np.isin(np.arange(len(names)), mentions[degree[mentions[:, 3]] > 0, 0])

    return link_names


def vectors_of(
    model: str, ckpt: str | None, options: LinkerOptions, linked: Path, seed: int
) -> tuple[Model, dict[str, Any], dict[str, Any], Vectors, Linked | None]:
    """(model, options for the label, what decides the vectors, the vectors, which names have
    neighbours) of an encoder or of word vectors; the last is None where no mentions are linked."""
    kind, _, unit = model.partition(":")
    if kind in WORDS:
        from benchmarks.papers.smedbert.wordvectors import train_vectors

        check_uses(given_options(options), frozenset(), f"the word vectors {model}")
        identity, vectors = train_vectors(kind, unit or "char", linked, seed)
        return Model(kind, "", digest(identity)), {"unit": unit or "char"}, identity, vectors, None
    chosen, chosen_options = encoder(model, ckpt), given_options(options)
    options = replace(options, pooling=options.pooling or "text")
    encoder_used = embedder(chosen, options)
    check_uses(chosen_options, encoder_used.uses, f"the encoder {chosen.name}")
    options_shown = encoder_used.options | ({} if options.knowledge else {"knowledge": False})
    has_neighbours = (
        with_neighbours(chosen.folder, options.max_length or NAME_TOKENS) if chosen.linker else None
    )
    return (
        model_of(model, chosen),
        options_shown,
        encoder_used.settings,
        lambda names: encoder_used(names).numpy(),
        has_neighbours,
    )


def samples_checksum(samples: Path | None) -> str | None:
    """The checksum of the samples in a folder, None without one. Raises InputError where there are
    none."""
    if samples is None:
        return None
    checksum = read_manifest(samples).get("sha256")
    if not isinstance(checksum, str):  # a graph's manifest has a checksum for each of its files
        raise InputError(
            f"SAMPLES={samples}: no samples of synonyms; expected a folder of datamodules.synonyms"
            " build"
        )
    return checksum


def score_retrieval(retrieval: Retrieval) -> Result:
    """Score a model on the samples; the result is saved and logged. Raises InputError for what
    cannot be done."""
    folder = retrieval.samples or runs_folder() / "data" / "smedbert-small" / "synonyms"
    samples = load_samples(folder)
    linked = retrieval.linked_text or folder.parent / "linked"
    counts = mention_counts(linked)
    inside = members(samples, counts, retrieval.frequent)
    who, options_shown, identity, vectors, has_neighbours = vectors_of(
        retrieval.model, retrieval.ckpt, retrieval.linker, linked, retrieval.seed
    )
    hit = hits(samples, vectors)
    if has_neighbours is not None:
        inside |= sides(samples, has_neighbours)
    tallies = {
        f"{name}/acc@1": np.stack([hit[rows], np.ones(int(rows.sum()))], axis=1)
        for name, rows in inside.items()
        if rows.any()
    }
    checksum = str(samples_checksum(folder))
    result = Result(
        kind="synonyms",
        task="synonyms",
        split="all",
        metric="acc@1",
        model=who,
        options=options_shown,
        protocol={
            "samples": checksum,
            "frequent": retrieval.frequent,
            "mentions": digest(sorted(counts.items())),
        },
        scores={
            key.partition("/")[0]: {"acc@1": score(t), "examples": len(t)}
            for key, t in tallies.items()
        },
        tallies=tallies,
        data={"samples": checksum},
        details={"linker": identity},
    )
    return save_logged(result, "synonyms")


def format_retrieval(result: Result) -> str:
    """The scores as a table, and what else was scored on the same samples."""
    mine = group_results([result])[result.label]
    text = [f"{result.label}: Acc@1 among 20 names of one type"]
    width = max(map(len, result.scores))
    for name in (*DATASETS, *(group for group in SIDES if group in result.scores)):
        if name not in result.scores:
            text.append(f"{name:<{width}}        -   no sample belongs to it")
            continue
        low, high = mine.interval(f"{name}/acc@1") or (0.0, 0.0)
        score = result.scores[name]
        text.append(
            f"{name:<{width}}{100 * score['acc@1']:>9.2f}   95 % interval {100 * low:.2f} to"
            f" {100 * high:.2f}   {int(score['examples']):,} samples"
        )
    pool = list_stored("synonyms")
    keys = [key for key in result.tallies if key.partition("/")[0] in DATASETS]
    for key in keys:
        text += others(mine, pool, key)
    return "\n".join(text)
