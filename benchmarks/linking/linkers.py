"""Linkers: strings to ranked concepts.

A linker has `link(mentions, contexts) -> [[Candidate, …], …]`, best first, at most DEPTH concepts for each mention. A
concept counts once, at its best name. Of equal scores the name that sorts first comes first, and of one name's concepts
the id that sorts first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.linking.settings import choice
from datamodules.linking import Dictionary
from kg.files import InputError, digest
from kg.names import TfIdf, normaliser
from kg.search import BACKENDS, Index
from kg.tracking import runs_folder

DEPTH = 20  #: concepts that a linker ranks; a gold concept below is as good as not found
POOLINGS = ("cls", "mean", "text")  #: the first token, all tokens, all but the special ones
MAX_LENGTH = 25  #: tokens of a name, as SapBERT cuts them


class Candidate(NamedTuple):
    """A concept, the dictionary's name that spoke for it, and that name's score."""

    concept: str
    name: str
    score: float


Ranking = list[Candidate]


class Linker(Protocol):
    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        """Ranked concepts of each mention; `contexts` are their texts (datamodules.linking.context_of) or None."""


class Names:
    """A dictionary ready to search: its normalised strings in order, and the concepts of each."""

    def __init__(self, dictionary: Dictionary, rules: str) -> None:
        self.dictionary, self.rules, self.normalised = dictionary, rules, normaliser(rules)
        owners: dict[str, set[str]] = defaultdict(set)
        for concept, name in zip(dictionary.ids, dictionary.names, strict=True):
            owners[self.normalised(name)].add(concept)
        self.strings = sorted(owners)
        self.concepts = {name: sorted(owners[name]) for name in self.strings}

    @cached_property
    def digest(self) -> str:
        """A name of the strings in their order: what a saved index's rows stand for."""
        return digest(self.strings)

    def ranking(self, found: Sequence[tuple[int, float]]) -> Ranking:
        """Concepts of (number of string, score), in that order, each once; at most DEPTH."""
        seen: set[str] = set()
        result: Ranking = []
        for number, score in found:
            name = self.strings[number]
            for concept in self.concepts[name]:
                if concept not in seen:
                    seen.add(concept)
                    result.append(Candidate(concept, name, score))
                    if len(result) == DEPTH:
                        return result
        return result

    def ranked(self, search: Callable[[list[int], int], tuple[np.ndarray, np.ndarray]], count: int) -> list[Ranking]:
        """Rankings of `count` queries; search(queries, k) gives (scores, numbers of strings), (len(queries), k).

        k grows for queries whose best k names do not hold DEPTH concepts.
        """
        result: list[Ranking] = [[] for _ in range(count)]
        waiting, k = list(range(count)), 2 * DEPTH
        while waiting:
            k = min(k, len(self.strings))
            scores, numbers = search(waiting, k)
            short = []
            for query, s, n in zip(waiting, scores, numbers, strict=True):
                result[query] = self.ranking([(int(i), float(v)) for i, v in zip(n, s, strict=True) if i >= 0])
                if len(result[query]) < DEPTH and k < len(self.strings) and not (n < 0).any():
                    short.append(query)
            waiting, k = short, 4 * k
        return result


class Exact:
    """The concepts that have the mention, normalised, as a name; none otherwise."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        result = []
        for mention in mentions:
            name = self.names.normalised(mention)
            result.append([Candidate(c, name, 1.0) for c in self.names.concepts.get(name, [])[:DEPTH]])
        return result


class NearestByTfIdf:
    """Nearest names by character 3-gram TF-IDF (kg.names.TfIdf), fitted on the dictionary's strings."""

    def __init__(self, names: Names) -> None:
        self.names, self.tfidf = names, TfIdf(names.strings)

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        strings = [self.names.normalised(m) for m in mentions]
        return self.names.ranked(lambda some, k: self.tfidf.search([strings[i] for i in some], k), len(strings))


class Embedder:
    """Vectors of names by an encoder: [CLS], the mean over all tokens or over those of the text, of unit length unless `dot`.

    Names are cut to `max_length` tokens and grouped by length, so that hardly anything is padded. Vectors that were
    asked for before are kept (a task's folds share their dictionary); `identity` names the encoder's weights, and `linker`
    makes its mentions, where it takes them (experiments/<paper>/encoder.yaml).
    """

    def __init__(
        self, encoder: Any, tokenizer: Any, identity: str, pooling: str = "cls", dot: bool = False,
        max_length: int = MAX_LENGTH, tokens: int = 4096, device: str = "cpu", bf16: bool = False,
        linker: Callable[[list[str], list[list[tuple[int, int]]]], Any] | None = None,
    ) -> None:  # fmt: skip
        if pooling not in POOLINGS:
            raise InputError(f"POOLING={pooling}: choose from: {', '.join(POOLINGS)}")
        self.linker = linker
        self.encoder, self.tokenizer, self.identity = encoder.to(device).eval(), tokenizer, identity
        self.pooling, self.dot, self.max_length, self.tokens = pooling, dot, max_length, tokens
        self.device, self.bf16 = device, bf16
        self.known: dict[str, int] = {}
        self.vectors = torch.empty(0, encoder.hidden_size)

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a vector, beside the name."""
        return {
            "encoder": self.identity, "pooling": self.pooling, "similarity": "dot" if self.dot else "cosine",
            "max_length": self.max_length, "precision": "bf16" if self.bf16 else "fp32",
            **({"mentions": "linked"} if self.linker else {}),
        }  # fmt: skip

    def __call__(self, names: Sequence[str]) -> Tensor:
        """(n, hidden) float32 on the CPU."""
        new = [name for name in dict.fromkeys(names) if name not in self.known]
        if new:
            made = self._encoded(new)
            self.known |= {name: len(self.vectors) + i for i, name in enumerate(new)}
            self.vectors = torch.cat([self.vectors, made])
        return self.vectors[[self.known[name] for name in names]]

    def on(self, names: Names, given: Mapping[str, str]) -> Encoded:
        """The nearest-name linker of a dictionary, with BACKEND= and INDEX= of `given`."""
        keep = Path(given["INDEX"]) if given.get("INDEX") else None
        return encoded(names, self, choice(given, "BACKEND", BACKENDS, "torch"), keep)

    @torch.inference_mode()
    def _encoded(self, names: list[str]) -> Tensor:
        encoded = self.tokenizer(
            names, truncation=True, max_length=self.max_length, padding=False, return_offsets_mapping=True
        )
        ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
        order = sorted(range(len(ids)), key=lambda i: (-len(ids[i]), i))
        vectors = torch.empty(len(names), self.encoder.hidden_size)
        start = 0
        with tqdm(total=len(names), desc="encoding names", unit="name", disable=None, leave=False) as bar:
            while start < len(order):
                longest = len(ids[order[start]])
                batch = order[start : start + max(1, self.tokens // longest)]
                padded = torch.full((len(batch), longest), self.tokenizer.pad_token_id)
                mask = torch.zeros(len(batch), longest, dtype=torch.long)
                for row, i in enumerate(batch):
                    padded[row, : len(ids[i])] = torch.tensor(ids[i])
                    mask[row, : len(ids[i])] = 1
                mentions = self.linker([names[i] for i in batch], [offsets[i] for i in batch]) if self.linker else None
                vectors[batch] = self._pooled(padded.to(self.device), mask.to(self.device), mentions).cpu()
                start += len(batch)
                bar.update(len(batch))
        return vectors

    def _pooled(self, ids: Tensor, mask: Tensor, mentions: Any) -> Tensor:
        given = () if mentions is None else (type(mentions)(*(part.to(self.device) for part in mentions)),)
        with torch.autocast(self.device.partition(":")[0], torch.bfloat16, enabled=self.bf16):
            states = self.encoder(ids, mask, *given).float()  # (names, tokens, hidden)
        if self.pooling == "cls":
            pooled = states[:, 0]
        else:
            if self.pooling == "text":
                ends = torch.tensor([self.tokenizer.cls_token_id, self.tokenizer.sep_token_id], device=ids.device)
                text = mask.masked_fill(torch.isin(ids, ends), 0)
                mask = torch.where(text.any(1, keepdim=True), text, mask)  # a name without a token
            pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return pooled if self.dot else torch.nn.functional.normalize(pooled, dim=1)


class Encoded:
    """Nearest names by an encoder. `index` is made from the dictionary's strings where none is given."""

    def __init__(self, names: Names, embedder: Embedder, index: Index | None = None, backend: str = "torch") -> None:
        self.names, self.embedder = names, embedder
        wanted = index_made_of(names, embedder)
        if index is not None and index.made_of != wanted:
            raise InputError(
                f"this index does not fit: it is made of {index.made_of}, wanted {wanted}. Build it again."
            )
        self.index = index or Index(embedder(names.strings), wanted, backend, device=embedder.device)

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        vectors = self.embedder([self.names.normalised(m) for m in mentions])
        return self.names.ranked(lambda some, k: tuple(self.index.search(vectors[some], k)), len(mentions))  # type: ignore[arg-type,return-value]


def index_made_of(names: Names, embedder: Embedder) -> dict[str, Any]:
    """What an index of these names by this encoder is made of: an index of anything else is refused."""
    return {"dictionary": names.digest, **embedder.settings}


def encoded(names: Names, embedder: Embedder, backend: str, folder: Path | None) -> Encoded:
    """The nearest-name linker; its index is read from `folder` where it lies there, or kept there."""
    made_of = index_made_of(names, embedder)
    folder = folder or runs_folder() / "linking" / "index" / digest(made_of)[:16]
    if (folder / "manifest.json").is_file():
        return Encoded(names, embedder, Index.load(folder, made_of, backend=backend, device=embedder.device))
    linker = Encoded(names, embedder, backend=backend)
    linker.index.save(folder)
    return linker


class BackOff:
    """Dictionary back-off: the concepts of an exact match first, then those of `linker`, each once."""

    def __init__(self, names: Names, linker: Linker) -> None:
        self.exact, self.linker = Exact(names), linker

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        result = []
        pairs = zip(self.exact.link(mentions, contexts), self.linker.link(mentions, contexts), strict=True)
        for first, then in pairs:
            seen = {c.concept for c in first}
            result.append([*first, *(c for c in then if c.concept not in seen)][:DEPTH])
        return result
