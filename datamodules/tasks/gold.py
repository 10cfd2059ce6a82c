"""One's own annotated texts as a linking task, whatever format they are in.

    kepl evaluate --gold notes/ --graph graph [--chain "dictionary > sapbert" | --model sapbert]

Gold are the mentions of the files that kg.documents.formats reads; those without an entity count as
spans. The dictionary is the graph. Everything is scored as one split, `test`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.artifact import has_manifest
from core.files import InputError, digest, sha256
from core.tracking import runs_folder
from datamodules.linking import Linking, Mention, Spans, load_linking, save_linking
from datamodules.linking.readers import graph_dictionary
from datamodules.tasks.linking import Task
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

    @property
    def name(self) -> str:
        """What results call the task: the first path's name."""
        path = self.gold[0].resolve()
        paths = digest([str(one.resolve()) for one in self.gold])[:6]
        return f"gold-{path.name.partition('.')[0]}-{paths}"


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


def gold_linking(gold: Gold, graph: Path | None) -> Linking:
    """The task on disk, below runs/data/gold; kept when the files and the graph are the same.

    Raises InputError as :func:`read_gold`, without a graph, and for two documents of one id.
    """
    if graph is None:
        raise InputError(
            "--gold: expected --graph, the folder of the graph whose entities are gold"
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
    }
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
    annotated: dict[str, Spans] = {SPLIT: without}
    save_linking(folder, dictionary, {SPLIT: mentions}, texts, annotated, **made_of)
    LOG.info(
        f"{gold.name}: {len(texts):,} documents, {len(mentions):,} mentions with an entity,"
        f" {sum(map(len, without.values())):,} without one"
    )
    for what, count in (+left_out).items():
        LOG.info(f"left out: {count:,} {what}")
    return load_linking(folder)
