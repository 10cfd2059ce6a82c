"""A model that ranks the candidates of another linker again: the cross-encoder (models.reranker),
or any other linker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from core.files import InputError
from core.json_files import digest
from datamodules.reranker import RerankerInputs, Sample
from experiments.names import Encoder, architecture, encoder
from inference.linkers import Linker, Names, Ranking, text_of
from inference.load import Linkable, linkable_of
from inference.options import LinkerOptions, Work, bfloat16, checked_device, uses_bf16
from models.reranker import RerankerModel

FILE = "reranker.safetensors"  #: what the export of a cross-encoder holds


class Reranking(Protocol):
    """What orders candidates anew; `identity`, `settings`, `uses` and `on` as of a Linkable."""

    identity: str
    uses: frozenset[str]

    @property
    def settings(self) -> dict[str, Any]: ...

    def on(self, names: Names, work: Work = ...) -> Ranker: ...


class Ranker(Protocol):
    def rank(
        self, mentions: Sequence[str], contexts: Sequence[str | None], rankings: Sequence[Ranking]
    ) -> list[Ranking]:
        """The candidates found of each mention, best first, with scores of this model."""


class CrossEncoder:
    """A reranker's export. A candidate's score is its probability; those below the most that it
    reads come after, with 0."""

    uses = frozenset({"device", "precision"})

    def __init__(
        self,
        model: RerankerModel,
        inputs: RerankerInputs,
        identity: str,
        device: str = "cpu",
        bf16: bool = False,
        batch: int = 64,
    ) -> None:
        self.model, self.inputs, self.identity = model.to(device).eval(), inputs, identity
        self.device, self.bf16, self.batch = device, bf16, batch

    @property
    def settings(self) -> dict[str, Any]:
        return {"reranker": self.identity, "precision": "bf16" if self.bf16 else "fp32"}

    def on(self, names: Names, work: Work | None = None) -> CrossEncoded:
        return CrossEncoded(self, names)

    @torch.inference_mode()
    def probabilities(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Of each sample's best candidates; they and NIL's add up to 1."""
        examples = [self.inputs.example(sample) for sample in samples]
        order = sorted(range(len(examples)), key=lambda i: (-len(examples[i].ids), i))
        result: list[list[float]] = [[] for _ in samples]
        for start in range(0, len(order), self.batch):
            chosen = order[start : start + self.batch]
            batch = self.inputs.batch([examples[i] for i in chosen])
            moved = batch._replace(
                **{k: v.to(self.device) for k, v in batch._asdict().items() if v is not None}
            )
            with bfloat16(self.device, self.bf16):
                rows = self.model.log_probabilities(moved).exp().cpu().tolist()
            for i, row in zip(chosen, rows, strict=True):
                result[i] = row[: min(len(samples[i].candidates), self.inputs.sizes.candidates)]
        return result


class CrossEncoded:
    """A cross-encoder for the candidates of a dictionary."""

    def __init__(self, encoder: CrossEncoder, names: Names) -> None:
        self.encoder, self.names = encoder, names

    def rank(
        self, mentions: Sequence[str], contexts: Sequence[str | None], rankings: Sequence[Ranking]
    ) -> list[Ranking]:
        numbers = [n for n, ranking in enumerate(rankings) if ranking]
        samples = [sample_of(mentions[n], contexts[n], rankings[n], self.names) for n in numbers]
        result: list[Ranking] = [[] for _ in rankings]
        for n, shares in zip(numbers, self.encoder.probabilities(samples), strict=True):
            read = [c._replace(score=p) for c, p in zip(rankings[n], shares, strict=False)]
            rest = [c._replace(score=0.0) for c in rankings[n][len(read) :]]
            result[n] = [*sorted(read, key=lambda c: -c.score), *rest]
        return result


def sample_of(
    mention: str,
    context: str | None,
    ranking: Ranking,
    names: Names,
    right: frozenset[str] = frozenset(),
) -> Sample:
    """What a cross-encoder reads of a mention and its candidates, and which of them are `right`."""
    candidates = [text_of(c, names) for c in ranking]
    return Sample(
        mention,
        context,
        candidates,
        [c.score for c in ranking],
        [n for n, c in enumerate(ranking) if c.concept in right],
    )


class ByLinker:
    """A linker as a reranker: its own order of the same concepts."""

    def __init__(self, linkable: Linkable) -> None:
        self.linkable, self.identity, self.uses = linkable, linkable.identity, linkable.uses

    @property
    def settings(self) -> dict[str, Any]:
        return self.linkable.settings

    def on(self, names: Names, work: Work | None = None) -> Ordered:
        return Ordered(self.linkable.on(names, work or Work()))


class Ordered:
    """Candidates in the order, and with the scores, of a linker; those that it does not rank come
    last."""

    def __init__(self, linker: Linker) -> None:
        self.linker = linker

    def rank(
        self, mentions: Sequence[str], contexts: Sequence[str | None], rankings: Sequence[Ranking]
    ) -> list[Ranking]:
        result = []
        for candidates, order in zip(rankings, self.linker.link(mentions, contexts), strict=True):
            allowed, ranked = {c.concept for c in candidates}, {c.concept for c in order}
            first = [c for c in order if c.concept in allowed]
            result.append([*first, *(c for c in candidates if c.concept not in ranked)])
        return result


def make_reranking(name: str, options: LinkerOptions) -> tuple[Reranking, str]:
    """What ranks again with the model that `name` means, and its short name. Raises InputError as
    :func:`experiments.names.encoder`, and for an address of a server without a model."""
    if name.startswith(("http://", "https://")):
        from inference.closed_set import served_ranker

        return served_ranker(name), name
    chosen = encoder(name)
    return reranking_of(chosen, options), chosen.name


def reranking_of(chosen: Encoder, options: LinkerOptions) -> Reranking:
    """The same with an encoder. Raises InputError for a GPU that is not available."""
    if not (Path(chosen.folder) / FILE).is_file():
        device = checked_device(options.device)
        bf16 = uses_bf16(options.precision, device)
        head = architecture(chosen)
        if head == "pair":
            from inference.classifiers import PairScorer

            return PairScorer(chosen, device, bf16)
        if head == "causal":
            from inference.closed_set import local_ranker

            return local_ranker(chosen, device, bf16)
        return ByLinker(linkable_of(chosen, options))
    return CrossEncoder(
        RerankerModel.from_export(chosen.folder),
        RerankerInputs.from_export(chosen.folder),
        chosen.identity,
        checked_device(options.device),
        uses_bf16(options.precision, options.device),
    )


def finds_nothing(chosen: Encoder, options: LinkerOptions) -> Linkable:
    """Raises InputError: a cross-encoder needs another linker's candidates."""
    raise InputError(
        f"{chosen.name}: a reranker finds no candidates. Make it a chain's third step "
        f"('dictionary > sapbert > {chosen.name}'), or evaluate with MODEL=sapbert RERANK=reranker"
    )


class Reranked:
    """A model that links, and another that ranks what it finds again; a Linkable."""

    def __init__(self, first: Linkable, then: Reranking, label: str) -> None:
        self.first, self.then, self.label = first, then, label
        self.uses = first.uses | then.uses
        self.identity = digest([first.identity, then.identity])

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.first.settings, "rerank": self.then.settings}

    @property
    def options(self) -> dict[str, Any]:
        return {**self.first.options, "rerank": self.label}

    def on(self, names: Names, work: Work | None = None) -> Linker:
        return RerankedLinker(
            self.first.on(names, work or Work()), self.then.on(names, work or Work())
        )


class RerankedLinker:
    """A linker whose candidates are ranked again."""

    def __init__(self, first: Linker, then: Ranker) -> None:
        self.first, self.then = first, then

    def link(self, mentions: Sequence[str], contexts: Sequence[str | None]) -> list[Ranking]:
        return self.then.rank(mentions, contexts, self.first.link(mentions, contexts))
