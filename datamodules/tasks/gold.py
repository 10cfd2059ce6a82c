"""One's own annotated texts as a linking task, whatever format they are in.

    kepl evaluate --gold notes/ --graph graph [--chain "dictionary > sapbert" | --model sapbert]
    kepl finetune --linking notes/ --graph graph --model sapbert

Gold are the mentions of the files that kg.documents.formats reads; those without an entity count as
spans. The dictionary is the graph. Everything is scored as one split, `test`. To train a linker on
them they are divided, as the files are named or by document (datamodules.tasks.own).
"""

from __future__ import annotations

import logging
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from core.artifact import has_manifest
from core.choices import nearest
from core.files import InputError
from core.json_files import digest
from core.reading import sha256
from core.tracking import runs_folder
from datamodules.linking import Linking, Mention, Spans, load_linking, save_linking
from datamodules.linking.readers import graph_dictionary
from datamodules.tasks import Tagged
from datamodules.tasks.linking import Task
from datamodules.tasks.own import divide_documents, split_files
from kg.documents.formats import annotated_documents, check_annotated, files_in, with_annotations
from kg.documents.mentions import Document
from kg.graph import KnowledgeGraph, fingerprint, split_types
from kg.ids import BareIds, Ids

LOG = logging.getLogger(__name__)
SPLIT: Literal["test"] = "test"
READERS = 2  #: raise when the same files become other mentions


@dataclass(frozen=True, kw_only=True)
class Gold:
    """One's own annotated texts, instead of a task's.

    Args:
        gold: Files or folders with annotated texts: brat, PubTator, BioC, JSON lines, DocBin,
            PubAnnotation.
        gold_format: Format of them. Default: by the files' names; texts with .ann files beside them
            are brat's.
        gold_types: Only mentions of these types are gold; what is found at a mention of another
            type does not count. Default: all.
    """

    gold: Sequence[Path] = ()
    gold_format: str | None = None
    gold_types: Sequence[str] = ()
    divided: ClassVar[bool] = False

    def made_of(self, graph: Path | None) -> dict[str, Any]:
        """Everything that decides the task. Raises InputError without a graph, and for a path that
        does not exist."""
        if graph is None:
            raise InputError(
                f"{'--linking' if self.divided else '--gold'}: expected --graph, the folder of the"
                " graph whose entities are gold"
            )
        files = files_in(self.gold, Counter())
        made_of: dict[str, Any] = {
            "readers": READERS,
            "inputs": {str(path): sha256(path) for path in with_annotations(files)},
            "read_as": self.gold_format,
            "types": sorted(self.gold_types),
            "graph": fingerprint(graph),
        }
        return made_of | ({"divided": True} if self.divided else {})

    def name(self, graph: Path | None) -> str:
        """What results call the task: the first path's name, and a digest of everything that
        decides it, so that changed annotations, types or graphs are another task."""
        path = self.gold[0].resolve()
        return f"gold-{path.name.partition('.')[0]}-{digest(self.made_of(graph))[:8]}"

    def advice(self, graph: Path | None) -> str:
        """The command that scores a chain on the texts."""
        types = [f"--gold-types {' '.join(self.gold_types)}"] if self.gold_types else []
        paths = shlex.join(map(str, self.gold))
        return " ".join([f"kepl evaluate --gold {paths} --graph {graph}", *types])


class DividedGold(Gold):
    """Annotated texts with parts to train on, to choose on and to score."""

    divided = True


@dataclass(frozen=True, kw_only=True)
class TrainingTexts:
    """One's own annotated texts to train a linker on, instead of a task's mentions.

    Args:
        linking: File or folder with annotated texts, as --gold of kepl evaluate has them. Files
            named train, dev and test are these parts; else documents are divided.
        linking_format: Format of them. Default: by the files' names.
        linking_types: Only mentions of these types. Default: all.
    """

    linking: Path | None = None
    linking_format: str | None = None
    linking_types: Sequence[str] = ()

    def as_gold(self) -> Gold:
        """The texts as what is scored; those of no path where none is given."""
        return DividedGold(
            gold=[self.linking] if self.linking else (),
            gold_format=self.linking_format,
            gold_types=self.linking_types,
        )


def definition_of(gold: Gold, graph: Path | None) -> Task:
    """The texts as a linking task without files to fetch."""
    return Task(gold.name(graph), None, (), lambda data, graph, counts: [], needs_graph="a graph")


def read_gold(gold: Gold, left_out: Counter[str]) -> list[Document]:
    """The documents with their mentions. Raises InputError for a path that does not exist, a broken
    file, and files without an annotation."""
    paths = list(gold.gold)
    files = [path.resolve() for path in files_in(paths, left_out)]
    check_annotated(files, gold.gold_format)
    roots = [path for path in paths if path.is_dir()]
    documents = list(annotated_documents(files, gold.gold_format, left_out, roots))
    check_types(gold, documents)
    if not any(document.mentions or document.unlinked for document in documents):
        raise InputError(
            f"{paths[0]}: no annotation in these files. Expected mentions with places, in brat,"
            " PubTator, BioC, JSON lines, CoNLL, DocBin or PubAnnotation (--gold-format)."
        )
    return documents


def check_types(gold: Gold, documents: Sequence[Document]) -> None:
    """Raise InputError for a type that no mention has."""
    mentions = [m for document in documents for m in (*document.mentions, *document.unlinked)]
    types = {kind.strip() for mention in mentions for kind in mention.type.split("|")}
    missing = {kind.casefold() for kind in gold.gold_types} - {kind.casefold() for kind in types}
    if missing:
        listed = sorted(types - {""})
        raise InputError(
            f"--gold-types {min(missing)}: no mention of this type;"
            f" {nearest(min(missing), listed)}the files have {', '.join(listed)}"
        )


def keep_types(document: Document, kinds: set[str]) -> tuple[Document, list[tuple[int, int]]]:
    """(a document with the mentions of some types alone, the places of the others). A chain is not
    asked for those: what it finds there is neither right nor wrong."""
    linked = tuple(m for m in document.mentions if kinds & split_types(m.type))
    others = tuple(m for m in document.unlinked if kinds & split_types(m.type))
    places = {(m.start, m.end) for m in (*document.mentions, *document.unlinked)}
    places_left = {(m.start, m.end) for m in (*linked, *others)}
    return document._replace(mentions=linked, unlinked=others), sorted(places - places_left)


def divide(gold: Gold, documents: Sequence[Document]) -> dict[str, str]:
    """{document: its part}: train, dev or test, as the files are named, else by a hash of the
    document's id. Raises InputError for fewer than three documents, and for names of files that
    leave the training or the test part out."""
    files = split_files(gold.gold[0])
    if set(files) == {"train"}:
        tagged = [Tagged(document.id, document.id, "", []) for document in documents]
        parts = divide_documents(tagged)
        return {example.document: part for part, examples in parts.items() for example in examples}
    if "test" not in files:
        raise InputError(
            f"{gold.gold[0]}: files named {' and '.join(sorted(files))}; expected test, too"
        )
    read: dict[str, str] = {}
    roots = [path for path in gold.gold if path.is_dir()]
    for part, examples in files.items():
        for document in annotated_documents(examples, gold.gold_format, Counter(), roots):
            read[document.id] = part
    return read


def gold_linking(gold: Gold, graph: Path | None) -> Linking:
    """The task on disk, below runs/data/gold; kept when the files and the graph are the same.

    Raises InputError as :func:`read_gold`, without a graph, and for two documents of one id.
    """
    made_of = gold.made_of(graph)
    assert graph is not None  # made_of refuses it
    folder = runs_folder() / "data" / "gold" / gold.name(graph)
    if not has_manifest(folder):
        build_gold(gold, graph, made_of, folder)
    loaded = load_linking(folder)
    report_notes(str(folder), tuple(loaded.manifest["notes"]))
    return loaded


@lru_cache
def report_notes(folder: str, notes: tuple[str, ...]) -> None:
    """Say what was read and left out, once a process: a comparison reads the same texts for each of
    its chains."""
    for line in notes:
        LOG.info(line)


def build_gold(gold: Gold, graph: Path, made_of: dict[str, Any], folder: Path) -> None:
    """Write the task of :func:`gold_linking`."""
    left_out, other_types = Counter[str](), dict[str, list[tuple[int, int]]]()
    documents = read_gold(gold, left_out)
    kinds = {kind.casefold() for kind in gold.gold_types}
    if kinds:
        for number, document in enumerate(documents):
            documents[number], other_types[document.id] = keep_types(document, kinds)
    dictionary = graph_dictionary(graph, language=None)
    loaded = KnowledgeGraph.load(graph)
    ids, bare_ids = Ids.from_graph(loaded), BareIds(loaded.ids.to_pylist())
    mentions, texts, without = list[Mention](), dict[str, str](), dict[str, list[tuple[int, int]]]()
    for document in documents:
        if document.id in texts:
            raise InputError(
                f"{document.where}: a second document has the id {document.id!r}. Give each one"
                " of its own."
            )
        texts[document.id] = document.text
        without[document.id] = list(dict.fromkeys((m.start, m.end) for m in document.unlinked))
        seen = set[tuple[int, int, tuple[str, ...]]]()
        for number, m in enumerate(document.mentions):
            text = document.text[m.start : m.end]
            if not text.strip():
                left_out["mentions of blanks"] += 1
                continue
            resolved = ids.resolve(m.entity)
            concepts = [*map(bare_ids.shorten, resolved.entities), *resolved.unknown]
            if (m.start, m.end, tuple(concepts)) in seen:
                left_out["repeated annotations"] += 1
                continue
            seen.add((m.start, m.end, tuple(concepts)))
            gold_concepts = [[concept] for concept in concepts]
            name = f"{document.id}/{number}"
            mentions.append(
                Mention(name, document.id, m.start, m.end, text, [text], gold_concepts, m.type)
            )
    if not mentions:
        raise InputError(
            f"{gold.gold[0]}: no mention in these files has an entity. CoNLL holds none;"
            " PubAnnotation has it as an attribute Normalization, brat as an N line. A tagger is"
            " trained and scored without entities: kepl finetune --data"
        )
    part_of = divide(gold, documents) if gold.divided else dict.fromkeys(texts, SPLIT)
    splits: dict[str, list[Mention]] = {part: [] for part in dict.fromkeys(part_of.values())}
    annotated: dict[str, Spans] = {part: {} for part in splits}
    for mention in mentions:
        splits[part_of[mention.document]].append(mention)
    for document_id, spans in without.items():
        annotated[part_of[document_id]][document_id] = spans
    others = sum(map(len, other_types.values()))
    notes = [
        f"{folder.name}: {len(texts):,} documents, {len(mentions):,} mentions with an entity,"
        f" {sum(map(len, without.values())):,} without one",
        *([f"not asked for: {others:,} mentions of other types"] if others else []),
        *(f"left out: {count:,} {what}" for what, count in (+left_out).items()),
    ]
    more = made_of | {"name": folder.name, "notes": notes, "other_types": other_types}
    save_linking(folder, dictionary, splits, texts, annotated, **more)
