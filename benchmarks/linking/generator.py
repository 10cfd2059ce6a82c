"""A linker that generates: a sequence-to-sequence model writes one of the dictionary's names (Yuan et al. 2022).

The dictionary's normalised strings are the names of a token trie (kg.trie); models.decoding searches it for many mentions
at once, and what it finds is a leaf, not a text. Settings of `make evaluate` and `make finetune` beside the protocol:

    BEAMS        names that a search ranks (5, as in the paper)
    FINISH       best, fairseq (the released code's rule);  SCORE  name, mean, sum (default: name; with fairseq mean)
    CANDIDATES   all, or K names of each mention that the search is restricted to: tfidf:K, or an encoder as MODEL= names
                 it (sapbert:K, minilm:K)
    TOKENS       padded tokens of context in a batch (8192)
    PRECISION    fp32, bf16;  DEVICE  cpu, cuda
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.linking.linkers import Embedder, Names, NearestByTfIdf, Ranking
from benchmarks.linking.settings import choice, device_of, number
from datamodules.genbioel.inputs import Inputs
from experiments.encoders import Encoder as EncoderName
from experiments.encoders import encoder
from kg.dotted import imported
from kg.files import InputError
from kg.trie import Ragged, Trie
from models.decoding import RULES, SCORES, constrained_search

SETTINGS = ("BEAMS", "FINISH", "SCORE", "CANDIDATES", "TOKENS")


class Generator:
    """The model and how it searches; :meth:`on` makes a linker of it for a dictionary."""

    def __init__(
        self, model: Any, inputs: Inputs, identity: str, beams: int = 5, finish: str = "best", score: str | None = None,
        candidates: tuple[str, int] | None = None, nearest: Embedder | None = None, tokens: int = 8192,
        device: str = "cpu", bf16: bool = False,
    ) -> None:  # fmt: skip
        self.bart, self.inputs, self.identity = model.bart.to(device).eval(), inputs, identity
        self.beams, self.finish, self.score = beams, finish, score or ("mean" if finish == "fairseq" else "name")
        self.candidates, self.nearest = candidates, nearest
        self.tokens, self.device, self.bf16 = tokens, device, bf16

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a ranking, beside mention, context and dictionary."""
        restricted = None
        if self.candidates:
            restricted = {"by": self.candidates[0], "names": self.candidates[1]}
            restricted |= {"encoder": self.nearest.settings} if self.nearest else {}
        return {
            "generator": self.identity, "prompt": self.inputs.prompted, "beams": self.beams, "finish": self.finish,
            "score": self.score, "candidates": restricted, "precision": "bf16" if self.bf16 else "fp32",
        }  # fmt: skip

    def on(self, names: Names, given: Mapping[str, str]) -> Generated:
        return Generated(names, self)


class Generated:
    """Names that a generator writes, ranked. Names that it cannot write (no tokens, too many) are counted in `skipped`."""

    def __init__(self, names: Names, generator: Generator) -> None:
        self.names, self.generator = names, generator
        inputs = generator.inputs
        ragged = Ragged.of(inputs.ids(names.strings))
        self.trie = Trie.build(
            ragged, vocabulary=len(inputs.tokenizer), skip=True, max_length=inputs.max_name - 1, texts=names.strings
        )
        self.skipped = self.trie.skipped
        if self.skipped:
            told = f"{self.skipped:,} names of the dictionary cannot be written: no token, or {inputs.max_name} or more"
            print(told, file=sys.stderr)  # standard output may be JSON
        self.leaf_of: dict[int, int] = {}  # number of a string -> its leaf
        for leaf in range(len(self.trie)):
            for string in self.trie.concepts_of(leaf):
                self.leaf_of[int(string)] = leaf

    def _allowed(self, mentions: Sequence[str]) -> list[list[int]] | None:
        """The leaves that each mention is restricted to; None without restriction."""
        generator = self.generator
        if not generator.candidates:
            return None
        most = generator.candidates[1]
        strings = [self.names.normalised(m) for m in mentions]
        if generator.nearest is None:
            scores, numbers = NearestByTfIdf(self.names).tfidf.search(strings, most)
            rows = [row[score > 0].tolist() for row, score in zip(numbers, scores, strict=True)]
        else:
            index = generator.nearest.on(self.names, {}).index
            _, found = index.search(generator.nearest(strings), min(most, len(self.names.strings)))
            rows = [[int(n) for n in row if n >= 0] for row in np.asarray(found)]
        return [[self.leaf_of[n] for n in row if n in self.leaf_of] for row in rows]

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        """Ranked concepts of each mention, at most `beams` names deep; in batches of similar length."""
        generator, inputs = self.generator, self.generator.inputs
        asked = [inputs.encoder_input(m, c) for m, c in zip(mentions, contexts, strict=True)]
        prompts = [inputs.prompt(m) for m in mentions]
        allowed = self._allowed(mentions)
        order = sorted(range(len(asked)), key=lambda i: (-len(asked[i]), i))
        result: list[Ranking] = [[] for _ in asked]
        start = 0
        with tqdm(total=len(asked), desc="generating names", unit="mention", disable=None, leave=False) as bar:
            while start < len(order):
                longest = len(asked[order[start]])
                batch = order[start : start + max(1, generator.tokens // longest)]
                ids = torch.full((len(batch), longest), inputs.pad)
                mask = torch.zeros(len(batch), longest, dtype=torch.long)
                for row, i in enumerate(batch):
                    ids[row, : len(asked[i])] = torch.tensor(asked[i])
                    mask[row, : len(asked[i])] = 1
                with torch.autocast(generator.device.partition(":")[0], torch.bfloat16, enabled=generator.bf16):
                    found = constrained_search(
                        generator.bart, self.trie, ids.to(generator.device), mask.to(generator.device),
                        [prompts[i] for i in batch], beams=generator.beams, finish_rule=generator.finish,
                        score=generator.score, candidates=[allowed[i] for i in batch] if allowed is not None else None,
                    )  # fmt: skip
                for i, ranking in zip(batch, found, strict=True):
                    strings = [(int(s), score) for leaf, score in ranking for s in self.trie.concepts_of(leaf)]
                    result[i] = self.names.ranking(strings)
                start += len(batch)
                bar.update(len(batch))
        return result


def generator_of(given: Mapping[str, str], name: str, chosen: EncoderName | None = None) -> tuple[str, Generator]:
    """(label, the generator that MODEL= names, or the one `chosen`). Raises InputError."""
    chosen = chosen or encoder(name, given.get("CKPT"))
    module, inputs = imported(chosen.load, "models")(chosen.folder), Inputs.from_export(chosen.folder)
    finish = choice(given, "FINISH", RULES, "best")
    score = choice(given, "SCORE", SCORES, "mean" if finish == "fairseq" else "name")
    candidates, nearest = restriction(given)
    device, bf16 = device_of(given), choice(given, "PRECISION", ("fp32", "bf16"), "fp32") == "bf16"
    generator = Generator(
        module, inputs, chosen.identity, number(given, "BEAMS", 5), finish, score, candidates, nearest,
        number(given, "TOKENS", 8192), device, bf16,
    )  # fmt: skip
    label = chosen.name.partition("@")[0].replace("/", "-")
    if finish != "best":
        label += f", {finish}"
    if score != ("mean" if finish == "fairseq" else "name"):
        label += f", {score}"
    if candidates:
        label += f", {candidates[0]} {candidates[1]}"
    return label, generator


def restriction(given: Mapping[str, str]) -> tuple[tuple[str, int] | None, Embedder | None]:
    """((by, how many), the embedder where it is one) of CANDIDATES=."""
    value = given.get("CANDIDATES") or "all"
    if value == "all":
        return None, None
    by, _, most = value.rpartition(":")
    if not by or not most.isdigit() or not int(most):
        raise InputError(f"CANDIDATES={value}: wanted all, tfidf:50, or an encoder and how many names, as sapbert:50")
    if by == "tfidf":
        return (by, int(most)), None
    from benchmarks.linking.evaluate import embedder_of

    return (by, int(most)), embedder_of({k: v for k, v in given.items() if k == "DEVICE"}, by)[1]
