"""What finds mentions in text, the first step of a chain: a graph's names, a KeBioLM's detector, a
fine-tuned tagger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple, Protocol

from core.files import InputError
from experiments.finetuned_names import is_fine_tuned
from experiments.names import architecture, encoder
from inference.options import LinkerOptions
from kg.graph import KnowledgeGraph
from kg.linking.matcher import DictionaryLinker, Found
from kg.linking.normal import BEST, Level
from kg.linking.passage import Passage

# models, and what reads them, are imported by the detectors that need them: a dictionary starts at
# once
if TYPE_CHECKING:
    from inference.entity_table import EntityReader
    from inference.entity_tagger import EntityTagger

# characters for which a dictionary looks through its names faster than it makes a tree of them
FEW = 5000
BATCH = 64  # texts that are read together, so that models see full batches
DICTIONARY = "dictionary"


class Detected(NamedTuple):
    """A mention: characters [start, end), and its type, score and entity where the detector names
    them.

    others: entities that the same name could as well mean. matched: how the text differs from the
        name (kg.linking.normal).
    """

    start: int
    end: int
    type: str | None = None
    score: float | None = None
    entity: str | None = None
    others: tuple[str, ...] = ()
    matched: str = ""


class Detector(Protocol):
    def detect(self, passages: Sequence[Passage]) -> list[list[Detected]]:
        """The mentions of each text, in order."""


class Dictionary:
    """The names of a graph, longest match (kg.linking.matcher); names the entity.

    The tree of all names is made once more than FEW characters were read: one sentence is answered
    without it.
    forms, kinds: as in kg.linking.matcher.DictionaryLinker.
    """

    def __init__(
        self, graph: KnowledgeGraph, forms: Level = BEST, kinds: Sequence[str] | None = None
    ) -> None:
        self.graph, self.forms, self.kinds, self.read = graph, forms, kinds, 0
        self._last: DictionaryLinker | None = None

    @cached_property
    def linker(self) -> DictionaryLinker:
        return DictionaryLinker.from_graph(self.graph, forms=self.forms, kinds=self.kinds)

    def detect(self, passages: Sequence[Passage]) -> list[list[Detected]]:
        self.read += sum(len(passage.source) for passage in passages)
        if self.read > FEW:
            self._last = self.linker
        else:
            texts = [passage.source for passage in passages]
            self._last = DictionaryLinker.from_graph(
                self.graph, texts=texts, forms=self.forms, kinds=self.kinds
            )
        return [list(map(_name_mention, names)) for names in self._last.find_all(passages)]

    def find_name(self, phrase: str) -> Found | None:
        """The name that a phrase of the texts detected last is as a whole."""
        return (self._last or self.linker).find_name(phrase)


def _name_mention(name: Found) -> Detected:
    return Detected(name.start, name.end, None, None, name.entity, name.others, name.matched)


class EntityDetector:
    """The spans that a KeBioLM's detector finds; names neither type nor score."""

    def __init__(self, reader: EntityReader) -> None:
        self.reader, self.identity = reader, reader.identity
        self.uses, self.settings = reader.uses - {"by"}, reader.settings

    def detect(self, passages: Sequence[Passage]) -> list[list[Detected]]:
        texts = [passage.source for passage in passages]
        return [list(starmap(Detected, spans)) for spans in detected_spans(self.reader, texts)]


class TaggerDetector:
    """The entities that a tagger finds, with their types and scores."""

    def __init__(self, tagger: EntityTagger) -> None:
        self.tagger, self.identity = tagger, tagger.identity
        self.uses = frozenset({"device", "precision"})
        self.settings = {
            "tagger": tagger.identity,
            "precision": "bf16" if tagger.bf16 else "fp32",
        }

    def detect(self, passages: Sequence[Passage]) -> list[list[Detected]]:
        detected = []
        for spans in self.tagger.predict([passage.source for passage in passages]):
            detected.append([Detected(s.start, s.end, s.type, s.score) for s in spans])
        return detected


def model_detector(name: str, options: LinkerOptions) -> EntityDetector | TaggerDetector:
    """The detector of a fine-tuned tagger, a token classifier of others or a KeBioLM. Raises
    InputError for a model that finds no mentions."""
    if is_fine_tuned(name) or architecture(encoder(name)) == "token":
        from inference.load import load_entity_tagger

        return TaggerDetector(
            load_entity_tagger(name, device=options.device, precision=options.precision)
        )
    from inference.entity_table import EntityReader
    from inference.load import linkable

    model = linkable(name, replace(options, by="entities"))
    if not isinstance(model, EntityReader):
        raise InputError(
            f"{name}: a model that finds no mentions; expected a fine-tuned tagger, a token"
            f" classifier, a KeBioLM or {DICTIONARY!r}"
        )
    return EntityDetector(model)


def unite_mentions(lists: Sequence[Sequence[Detected]]) -> list[Detected]:
    """One text's mentions by several detectors: of two that overlap the longer one, of equals that
    of the first detector.

    Mentions of one detector may overlap each other, as a nested tagger's do.
    """
    candidates = sorted(
        (m.start - m.end, number, m) for number, mentions in enumerate(lists) for m in mentions
    )
    taken: dict[int, int] = {}  # character: the detector whose mention has it
    chosen: list[Detected] = []
    for _, number, mention in candidates:
        place = range(mention.start, mention.end)
        if all(taken.get(i, number) == number for i in place):
            taken.update(dict.fromkeys(place, number))
            chosen.append(mention)
    return sorted(chosen, key=lambda m: (m.start, m.end))


def detected_spans(reader: EntityReader, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """(start, end) in characters of the mentions that a KeBioLM's detector finds in each text.

    Long texts are read in windows of its length, one after the other; whitespace at a mention's
    ends is left out.
    """
    import torch

    from datamodules.rows import frame_ids, pad_rows

    room = min(reader.max_length, reader.model.max_length) - 2
    by_text: list[list[tuple[int, int]]] = [[] for _ in texts]
    encoded = reader.tokenizer(
        list(texts), add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    windows = [
        (number, first, ids[first : first + room])
        for number, ids in enumerate(encoded["input_ids"])
        for first in range(0, len(ids), room)
    ]
    for begin in range(0, len(windows), BATCH):
        batch = windows[begin : begin + BATCH]
        rows = [frame_ids(ids, reader.tokenizer) for *_, ids in batch]
        padded, mask = pad_rows(rows, reader.tokenizer.pad_token_id)  # type: ignore[arg-type]
        padded, mask = padded.to(reader.device), mask.to(reader.device)
        with torch.inference_mode():
            states, _ = reader.model.text_states(padded, mask)
            spans = reader.model.detect_mentions(states, mask).tolist()
        for row, start, end in spans:
            number, first, _ = batch[row]
            offsets = encoded["offset_mapping"][number]
            a, b = offsets[first + start - 1][0], offsets[first + end - 2][1]
            by_text[number].append((a, b))
    return [sorted(set(spans)) for spans in by_text]
