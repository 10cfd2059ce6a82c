"""A linker that generates: a sequence-to-sequence model writes one of the dictionary's names (Yuan
et al. 2022).

The dictionary's normalised strings are the names of a token trie (kg.search.trie); models.decoding
searches it for many mentions at once, and what it finds is a leaf, not a text.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from core.dotted import import_object
from datamodules.genbioel.inputs import Inputs
from datamodules.rows import length_batches, pad_rows
from experiments.names import Encoder, encoder
from inference.encoders import Embedder, embedder
from inference.linkers import Names, NearestByTfIdf, Ranking
from inference.options import (
    LinkerOptions,
    Work,
    bfloat16,
    checked_device,
    restricted_to,
    uses_bf16,
)
from kg.search.trie import Ragged, Trie
from models.decoding import constrained_search

LOG = logging.getLogger(__name__)


class Generator:
    """The model and how it searches; :meth:`on` makes a linker of it for a dictionary."""

    uses = frozenset({"beams", "finish", "score", "candidates", "tokens", "device", "precision"})

    def __init__(
        self,
        model: Any,
        inputs: Inputs,
        identity: str,
        options: LinkerOptions,
        nearest: Embedder | None = None,
    ) -> None:
        self.device, self.bf16 = options.device, uses_bf16(options.precision, options.device)
        self.bart, self.inputs = model.bart.to(self.device).eval(), inputs
        self.identity, self.tokens = identity, options.tokens
        self.beams, self.finish = options.beams, options.finish
        self.score = options.score or ("mean" if options.finish == "fairseq" else "name")
        self.candidates, self.nearest = restricted_to(options.candidates), nearest

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a ranking, beside mention, context and dictionary."""
        restricted = None
        if self.candidates:
            restricted = {"by": self.candidates[0], "names": self.candidates[1]}
            restricted |= {"encoder": self.nearest.settings} if self.nearest else {}
        return {
            "generator": self.identity,
            "prompt": self.inputs.prompted,
            "beams": self.beams,
            "finish": self.finish,
            "score": self.score,
            "candidates": restricted,
            "precision": "bf16" if self.bf16 else "fp32",
        }

    @property
    def options(self) -> dict[str, Any]:
        """What tells it from the same model used otherwise: all that is not the default."""
        settings: dict[str, Any] = {} if self.finish == "best" else {"finish": self.finish}
        if self.score != ("mean" if self.finish == "fairseq" else "name"):
            settings["score"] = self.score
        return settings | (
            {"candidates": f"{self.candidates[0]}:{self.candidates[1]}"} if self.candidates else {}
        )

    def on(self, names: Names, work: Work | None = None) -> Generated:
        return Generated(names, self, work or Work())


class Generated:
    """Names that a generator writes, ranked. Names that it cannot write (no tokens, too many) are
    counted in `skipped`."""

    def __init__(self, names: Names, generator: Generator, work: Work) -> None:
        self.names, self.generator, self.work = names, generator, work
        inputs = generator.inputs
        ragged = Ragged.from_lists(inputs.ids(names.strings))
        self.trie = Trie.build(
            ragged,
            vocabulary=len(inputs.tokenizer),
            skip=True,
            max_length=inputs.max_name - 1,
            texts=names.strings,
        )
        self.skipped = self.trie.skipped
        if self.skipped:
            note = (
                f"{self.skipped:,} names of the dictionary cannot be written: no token, or"
                f" {inputs.max_name} or more"
            )
            LOG.info(note)
        self.leaf_of: dict[int, int] = {}  # number of a string -> its leaf
        for leaf in range(len(self.trie)):
            for string in self.trie.concepts_of(leaf):
                self.leaf_of[int(string)] = leaf

    def _find_allowed(self, mentions: Sequence[str]) -> list[list[int]] | None:
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
            index = generator.nearest.on(self.names, self.work).index
            _, nearest = index.search(
                generator.nearest(strings), min(most, len(self.names.strings))
            )
            rows = [row[row >= 0].tolist() for row in np.asarray(nearest)]
        allowed = []
        for row in rows:
            allowed.append([self.leaf_of[string] for string in row if string in self.leaf_of])
        return allowed

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        """Ranked concepts of each mention, at most `beams` names deep; in batches of similar
        length."""
        generator, inputs = self.generator, self.generator.inputs
        inputs_of = [inputs.encoder_input(m, c) for m, c in zip(mentions, contexts, strict=True)]
        prompts = [inputs.prompt(m) for m in mentions]
        allowed = self._find_allowed(mentions)
        result: list[Ranking] = [[] for _ in inputs_of]
        with tqdm(
            total=len(inputs_of), desc="generating names", unit="mention", disable=None, leave=False
        ) as bar:
            for batch in length_batches(list(map(len, inputs_of)), generator.tokens):
                ids, mask = pad_rows([inputs_of[i] for i in batch], inputs.pad)
                with bfloat16(generator.device, generator.bf16):
                    beams = constrained_search(
                        generator.bart,
                        self.trie,
                        ids.to(generator.device),
                        mask.to(generator.device),
                        [prompts[i] for i in batch],
                        beams=generator.beams,
                        finish_rule=generator.finish,
                        score=generator.score,
                        candidates=[allowed[i] for i in batch] if allowed is not None else None,
                    )
                for i, ranking in zip(batch, beams, strict=True):
                    strings = [
                        (int(s), score)
                        for leaf, score in ranking
                        for s in self.trie.concepts_of(leaf)
                    ]
                    result[i] = self.names.ranking(strings, contexts[i])
                bar.update(len(batch))
        return result


def generator(chosen: Encoder, options: LinkerOptions) -> Generator:
    """The generator of an export. Raises InputError for candidates that mean nothing."""
    checked_device(options.device)
    module = import_object(chosen.load, "models")(chosen.folder)
    inputs, nearest = Inputs.from_export(chosen.folder), load_nearest(options)
    return Generator(module, inputs, chosen.identity, options, nearest)


def load_nearest(options: LinkerOptions) -> Embedder | None:
    """The encoder whose nearest names a generator is restricted to, if it is restricted to such."""
    restricted = restricted_to(options.candidates)
    if restricted is None or restricted[0] == "tfidf":
        return None
    return embedder(encoder(restricted[0]), LinkerOptions(device=options.device))
