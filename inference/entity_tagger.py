"""Entities in texts, and the interface of what finds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from inference.results import Mentions

if TYPE_CHECKING:
    from datamodules.tasks import Tagged


class Span(NamedTuple):
    """An entity in a text: characters [start, end)."""

    start: int
    end: int
    text: str
    type: str
    score: float


class EntityTagger:
    """What finds entities in text: a model that was fine-tuned here (inference.taggers), or a
    token classifier of others (inference.classifiers).

    name, identity  of the model: the same identity for the same weights
    kind, labels    ner or nested; the types of its entities
    """

    name: str
    identity: str
    kind: str
    labels: list[str]
    device: str
    bf16: bool

    def predict(self, texts: str | Iterable[str]) -> Mentions[Span]:
        """The entities of each text, in order."""
        raise NotImplementedError

    def predict_examples(self, examples: Sequence[Tagged]) -> list[dict[str, Any]]:
        """{id, text, mentions} of each example of a task."""
        raise NotImplementedError
