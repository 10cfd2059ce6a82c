"""One's own annotated texts as a linking task, whatever format they are in.

    kepl evaluate --gold notes/ --graph graph [--chain "dictionary > sapbert" | --model sapbert]
    kepl finetune --linking notes/ --graph graph --model sapbert

Gold are the mentions of the files that kg.documents.formats reads; those without an entity count as
spans. The dictionary is the graph. Everything is scored as one split, `test`. To train a linker on
them they are divided, as the files are named or by document (datamodules.tasks.own).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from core.artifact import has_manifest
from core.files import InputError, digest, sha256
from core.tracking import runs_folder
from datamodules.linking import Linking, Mention, Spans, load_linking, save_linking
from datamodules.linking.readers import graph_dictionary
from datamodules.tasks import Tagged
from datamodules.tasks.linking import Task
from datamodules.tasks.own import divide_documents, split_files
from kg.documents.formats import annotated_documents, files_in, with_annotations
from kg.documents.mentions import Document
from kg.graph import fingerprint
from kg.ids import bare, split_ids

LOG = logging.getLogger(__name__)
SPLIT: Literal["test"] = "test"
READERS = 1  #: raise when the same files become other mentions


@dataclass(frozen=True, kw_only=True)
class Gold:
    """One's own annotated texts, instead of a task's.

    Args:
        gold: Files or folders with annotated texts: brat, PubTator, BioC, JSON lines, DocBin,
            PubAnnotation.
        gold_format: Format of them. Default: by the files' names; texts with .ann files beside them
            are brat's.
        gold_types: Only mentions of these types are gold. Default: all.
    """

    gold: Sequence[Path] = ()
    gold_format: str | None = None
    gold_types: Sequence[str] = ()
    divided: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What results call the task: the first path's name."""
        path = self.gold[0].resolve()
        paths = digest([str(one.resolve()) for one in self.gold])[:6]
        return f"gold-{path.name.partition('.')[0]}-{paths}"


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


def definition_of(gold: Gold) -> Task:
    """The texts as a linking task without files to fetch."""
    return Task(gold.name, None, (), lambda data, graph, counts: [], needs_graph="a graph")


def read_gold(gold: Gold, left_out: Counter[str]) -> list[Document]:
    """The documents with their mentions. Raises InputError for a path that does not exist, a broken
    file, and files without an annotation."""
    paths = list(gold.gold)
    files = [path.resolve() for path in files_in(paths, left_out)]
    roots = [path for path in paths if path.is_dir()]
    found = list(annotated_documents(files, gold.gold_format, left_out, roots))
    kinds = {kind.casefold() for kind in gold.gold_types}
    if kinds:
        found = [_keep_types(document, kinds) for document in found]
    if not any(document.mentions or document.unlinked for document in found):
        raise InputError(
            f"{paths[0]}: no annotation in these files. Expected mentions with places, in brat,"
            " PubTator, BioC, JSON lines, CoNLL, DocBin or PubAnnotation (--gold-format)."
        )
    return found


def _keep_types(document: Document, kinds: set[str]) -> Document:
    """A document with the mentions of some types alone."""
    linked, others = (
        tuple(m for m in own if m.type.casefold() in kinds)
        for own in (document.mentions, document.unlinked)
    )
    return document._replace(mentions=linked, unlinked=others)


def divide(gold: Gold, documents: Sequence[Document]) -> dict[str, str]:
    """{document: its part}: train, dev or test, as the files are named, else by a hash of the
    document's id. Raises InputError for fewer than three documents, and for names of files that
    leave the training or the test part out."""
    files = split_files(gold.gold[0])
    if set(files) == {"train"}:
        tagged = [Tagged(document.id, document.id, "", []) for document in documents]
        parts = divide_documents(tagged)
        return {example.document: part for part, own in parts.items() for example in own}
    if "test" not in files:
        raise InputError(
            f"{gold.gold[0]}: files named {' and '.join(sorted(files))}; expected test, too"
        )
    read: dict[str, str] = {}
    roots = [path for path in gold.gold if path.is_dir()]
    for part, own in files.items():
        for document in annotated_documents(own, gold.gold_format, Counter(), roots):
            read[document.id] = part
    unnamed = [document.id for document in documents if document.id not in read]
    if unnamed:
        raise InputError(
            f"{gold.gold[0]}: document {unnamed[0]!r} is in a file whose name begins with none of"
            " train, dev, test. Rename the file, or take it away."
        )
    return read


def gold_linking(gold: Gold, graph: Path | None) -> Linking:
    """The task on disk, below runs/data/gold; kept when the files and the graph are the same.

    Raises InputError as :func:`read_gold`, without a graph, and for two documents of one id.
    """
    if graph is None:
        raise InputError(
            f"{'--linking' if gold.divided else '--gold'}: expected --graph, the folder of the"
            " graph whose entities are gold"
        )
    left_out = Counter[str]()
    files = files_in(gold.gold, Counter())
    made_of: dict[str, Any] = {
        "name": gold.name,
        "readers": READERS,
        "inputs": {str(path): sha256(path) for path in with_annotations(files)},
        "read_as": gold.gold_format,
        "types": sorted(gold.gold_types),
        "graph": fingerprint(graph),
    } | ({"divided": True} if gold.divided else {})
    folder = runs_folder() / "data" / "gold" / f"{gold.name}-{digest(made_of)[:12]}"
    if has_manifest(folder):
        return load_linking(folder)
    found = read_gold(gold, left_out)
    dictionary = graph_dictionary(graph, language=None)
    mentions, texts, without = list[Mention](), dict[str, str](), dict[str, list[tuple[int, int]]]()
    for document in found:
        if document.id in texts:
            raise InputError(
                f"{document.where}: a second document has the id {document.id!r}. Give each one"
                " of its own."
            )
        texts[document.id] = document.text
        without[document.id] = [(m.start, m.end) for m in document.unlinked]
        for number, m in enumerate(document.mentions):
            ids = split_ids(m.entity)
            text = document.text[m.start : m.end]
            if not text.strip():
                left_out["mentions of blanks"] += 1
                continue
            own = [list(dict.fromkeys([one, bare(one)])) for one in ids]
            name = f"{document.id}/{number}"
            mentions.append(Mention(name, document.id, m.start, m.end, text, [text], own, m.type))
    part_of = divide(gold, found) if gold.divided else dict.fromkeys(texts, SPLIT)
    splits: dict[str, list[Mention]] = {one: [] for one in dict.fromkeys(part_of.values())}
    annotated: dict[str, Spans] = {one: {} for one in splits}
    for mention in mentions:
        splits[part_of[mention.document]].append(mention)
    for document_id, spans in without.items():
        annotated[part_of[document_id]][document_id] = spans
    save_linking(folder, dictionary, splits, texts, annotated, **made_of)
    LOG.info(
        f"{gold.name}: {len(texts):,} documents, {len(mentions):,} mentions with an entity,"
        f" {sum(map(len, without.values())):,} without one"
    )
    for what, count in (+left_out).items():
        LOG.info(f"left out: {count:,} {what}")
    return load_linking(folder)
