"""A chain as a component of a spaCy pipeline.

    nlp = spacy.blank("en")
    nlp.add_pipe("kepl", config={"graph": "graph", "chain": "dictionary"})
    doc = nlp("Marfan syndrome without arachnodactyly")
    doc.ents[0].kb_id_, doc.ents[0]._.kb_ents, doc.ents[1]._.negated

`pip install -e .` registers the factory; without it, import this module first. Entities are the
mentions of `kepl link` with the same options, widened to whole tokens; of two that overlap the
longer one is kept, as spaCy's doc.ents allow no other. An entity's label is the mention's type, its
kb_id the best candidate ("" for NIL), and

    ent._.kb_ents       [(entity, score), …], best first, as scispaCy's linker has them
    ent._.kb_name       the entity's preferred name
    ent._.negated, family, historical, hypothetical   with config negation; None without

A saved pipeline (nlp.to_disk) holds the settings and the graph's fingerprint, no graph and no
model: they must be where they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans, minibatch

from core.files import InputError
from core.json_files import read_object, write_json
from inference.chain import Linked, Pipeline
from inference.detectors import BATCH
from kg.documents.mentions import ATTRIBUTES

UNTYPED = "ENTITY"  #: label of a mention without a type
FILE = "kepl.json"
DEFAULTS: dict[str, Any] = {
    "graph": "",
    "chain": "dictionary",
    "nil": None,
    "top": 5,
    "types": [],
    "negation": False,
    "device": "cpu",
}


def register_extensions() -> None:
    """Give spans the attributes that the component sets."""
    for name in ("kb_name", *ATTRIBUTES):
        if not Span.has_extension(name):
            Span.set_extension(name, default=None)
    if not Span.has_extension("kb_ents"):
        Span.set_extension("kb_ents", default=())


class KeplComponent:
    """Finds and links entities in documents. `settings`: the keys of DEFAULTS.

    Raises InputError as :class:`inference.chain.Pipeline`.
    """

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name, self.settings = name, settings
        register_extensions()
        self._pipeline: Pipeline | None = None
        if settings["graph"]:  # a pipeline that is read from disk has none until then
            self._pipeline = self._make()

    def _make(self) -> Pipeline:
        settings = self.settings
        options = {} if settings["device"] == "cpu" else {"device": settings["device"]}
        return Pipeline(
            Path(settings["graph"]),
            settings["chain"],
            settings["nil"],
            settings["top"],
            types=list(settings["types"]),
            negation=settings["negation"],
            **options,  # type: ignore[typeddict-item]
        )

    @property
    def pipeline(self) -> Pipeline:
        """The chain. Raises InputError without a graph."""
        if self._pipeline is None:
            raise InputError(
                'kepl: expected a graph: nlp.add_pipe("kepl", config={"graph": "<folder of one>"})'
            )
        return self._pipeline

    def __call__(self, doc: Doc) -> Doc:
        return next(iter(self.pipe([doc])))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = BATCH) -> Iterator[Doc]:
        """The documents with their entities, read in batches."""
        for docs in minibatch(stream, batch_size):
            linked = self.pipeline.link([doc.text for doc in docs])
            for doc, mentions in zip(docs, linked, strict=True):
                set_entities(doc, mentions)
                yield doc

    def to_bytes(self, **_: Any) -> bytes:
        import json

        return json.dumps(self._facts()).encode()

    def from_bytes(self, data: bytes, **_: Any) -> KeplComponent:
        import json

        return self._read(json.loads(data), "the saved pipeline")

    def to_disk(self, path: str | Path, **_: Any) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)
        write_json(Path(path) / FILE, self._facts())

    def from_disk(self, path: str | Path, **_: Any) -> KeplComponent:
        return self._read(read_object(Path(path) / FILE), str(path))

    def _facts(self) -> dict[str, Any]:
        return {"settings": self.settings, "made_of": self.pipeline.settings}

    def _read(self, facts: dict[str, Any], where: str) -> KeplComponent:
        """The component as it was saved. Raises InputError where graph or models are others now."""
        self.settings = DEFAULTS | facts["settings"]
        self._pipeline = self._make()
        if self._pipeline.settings != facts["made_of"]:
            raise InputError(
                f"{where}: saved with another graph or other models than those that"
                f" {self.settings['graph']} and {self.settings['chain']!r} mean now. Add the"
                " component anew."
            )
        return self


def set_entities(doc: Doc, mentions: Iterable[Linked]) -> None:
    """Give a document the entities of its text; entities that it has already are replaced."""
    spans = []
    for mention in mentions:
        span = doc.char_span(
            mention.start,
            mention.end,
            label=mention.type or UNTYPED,
            kb_id=mention.entity or "",
            alignment_mode="expand",
        )
        if span is None:
            continue
        span._.kb_ents = [(option.entity, option.score) for option in mention.candidates]
        span._.kb_name = mention.name
        for name in ATTRIBUTES:
            span._.set(name, getattr(mention, name))
        spans.append(span)
    doc.ents = filter_spans(spans)


@Language.factory("kepl", assigns=["doc.ents"], default_config=DEFAULTS)
def make_component(
    nlp: Language,
    name: str,
    graph: str,
    chain: str,
    nil: float | None,
    top: int,
    types: list[str],
    negation: bool,
    device: str,
) -> KeplComponent:
    """The component of spaCy's configuration."""
    settings = {
        "graph": graph,
        "chain": chain,
        "nil": nil,
        "top": top,
        "types": types,
        "negation": negation,
        "device": device,
    }
    return KeplComponent(name, settings)
