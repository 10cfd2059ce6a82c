"""Link a corpus in parts (core.executor), so that an interrupted run resumes.

The folder holds part-00000.jsonl ... with a line {"id", "text", "mentions": [{"start", "end",
"entity", "score"}]} for each document, and, once all parts are there, its manifest. A part is some
of the input files, or a span of a large one; inputs.json says which, and with which size and time
of each file, so that a resumed run need not read them again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from core.artifact import Artifact, check_files
from core.choices import list_known
from core.executor import PartsFolder, parts_folder
from core.files import InputError, atomic_write
from core.json_files import json_lines
from core.outputs import check_no_input
from core.reading import Span, limit_documents
from kg.documents.formats import check_options, documents, files_in, format_of
from kg.documents.mentions import Document, Mention
from kg.documents.parts import InParts, Plan, make_plan
from kg.graph import KnowledgeGraph, fingerprint
from kg.ids import Ids
from kg.linking.given import GivenLinker
from kg.linking.matcher import DictionaryLinker

FORMAT = 2  # of the folder; 2: parts by bytes, with checksums
LINKED = Artifact("finished linked text", "kepl data link --help", FORMAT)
# of the linkers: raise it when they link differently, so that no run mixes old parts with new ones
RULES = 2
LINKERS = ("dictionary", "scispacy", "given")
AT_ONCE = 256  # documents that are linked together


@dataclass(frozen=True, kw_only=True)
class ChosenLinker:
    """The linker of a corpus.

    Args:
        linker: dictionary, scispacy, or given (mentions that come with the documents).
        unknown: Given mentions whose entity the graph lacks: error, drop.
        pipeline: Name or folder of a spaCy pipeline with entities (scispacy).
        threshold: Least similarity of a name (scispacy).
        k: Nearest names to look at (scispacy).

    Raises InputError for an unknown linker, and an option that is missing or wrong.
    """

    linker: str = "dictionary"
    unknown: str = "error"
    pipeline: str | None = None
    threshold: float = 0.85
    k: int = 30

    def __post_init__(self) -> None:
        if self.linker not in LINKERS:
            raise InputError(f"no linker {self.linker!r}; {list_known(self.linker, LINKERS)}")
        if self.linker == "given":
            GivenLinker(Ids(()), unknown=self.unknown)  # says at once when there is no such way
        if self.linker == "scispacy" and self.pipeline is None:
            raise InputError(
                "pipeline: the scispaCy linker wants a spaCy pipeline. Give --pipeline NAME or"
                " FOLDER."
            )

    @property
    def options(self) -> dict[str, Any]:
        """The options that the linker uses."""
        if self.linker == "given":
            return {"unknown": self.unknown}
        if self.linker == "scispacy":
            return {"pipeline": str(self.pipeline), "threshold": self.threshold, "k": self.k}
        return {}

    def load(self, graph_folder: Path) -> Any:
        """The linker for a graph."""
        graph = KnowledgeGraph.load(graph_folder)
        if self.linker == "dictionary":
            return DictionaryLinker.from_graph(graph)
        if self.linker == "given":
            return GivenLinker(Ids.from_graph(graph), **self.options)
        from kg.linking.scispacy import ScispacyLinker  # an extra

        return ScispacyLinker.from_graph(graph, **self.options)


def record_of(document: Document, mentions: Sequence[Mention]) -> dict[str, Any]:
    """A line of linked text."""
    rows = [
        {"start": m.start, "end": m.end, "entity": m.entity, "score": m.score} for m in mentions
    ]
    return {"id": document.id, "text": document.text, "mentions": rows}


def _batches(coming: Iterator[Document]) -> Iterator[list[Document]]:
    """Documents AT_ONCE at a time, or fewer of long ones."""
    batch, characters = [], 0
    for document in coming:
        batch.append(document)
        characters += len(document.text)
        if len(batch) == AT_ONCE or characters > 2_500 * AT_ONCE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _mentions(linker: Any, batch: list[Document]) -> list[list[Mention]]:
    if isinstance(linker, DictionaryLinker):
        return linker.link_all([document.text for document in batch])
    if isinstance(linker, GivenLinker):
        return [linker.link_document(document) for document in batch]
    return [linker.link(document.text) for document in batch]


def write_part(
    linker: Any,
    source: Sequence[Span],
    path: Path,
    *,
    format: str | None,
    empty: str,
    encoding: str,
) -> dict[str, Any]:
    """Link the documents of `source` into the file `path`. Returns the counts of both and what was
    left out."""
    count = mentioned = 0
    before = Counter(getattr(linker, "left_out", {}))
    entities: set[str] = set()
    unread: Counter[str] = Counter()
    with atomic_write(path) as handle:
        used = isinstance(linker, GivenLinker)
        for batch in _batches(documents(source, format, empty, encoding, unread, used)):
            for document, mentions in zip(batch, _mentions(linker, batch), strict=True):
                handle.write(json.dumps(record_of(document, mentions), ensure_ascii=False) + "\n")
                count, mentioned = count + 1, mentioned + len(mentions)
                entities.update(m.entity for m in mentions)
    left_out = dict(Counter(getattr(linker, "left_out", {})) - before)
    return {
        "documents": count,
        "mentions": mentioned,
        "left_out": left_out,
        "entities": sorted(entities),
        "unread": dict(+unread),
    }


def link_corpus(
    graph: Path,
    input: Sequence[Path],
    out: Path,
    format: str | None = None,
    fresh: bool = False,
    empty: str = "error",
    encoding: str = "utf-8",
    max_document: int = 16,
    chosen: ChosenLinker = ChosenLinker(),
    work: InParts = InParts(),
) -> dict[str, Any]:
    """Link a corpus with a graph, in parts.

    Args:
        graph: Folder of a knowledge graph.
        input: Files, plain or .gz, or folders of them.
        out: Folder for the linked parts; the same command resumes in it.
        format: Format of the files (kg.documents.formats). Default: by their names.
        fresh: Link again, whatever is in the folder.
        empty: Documents without text: error, skip.
        encoding: Encoding of the text files, such as gb18030.
        max_document: MiB that a document or line has at most.

    Returns the manifest. Raises InputError for bad input, finished parts intact.
    """
    limit_documents(max_document)
    reading: dict[str, Any] = {"empty": empty, "encoding": encoding}
    check_options(format, empty, encoding)
    unread: Counter[str] = Counter()
    paths = files_in(input, unread)
    check_no_input(out, input)
    plan = make_plan(out, paths, format, work.part_size)
    settings: dict[str, Any] = {"graph": fingerprint(graph)}
    settings["linker"] = {"name": chosen.linker, "rules": RULES, **chosen.options}
    settings["inputs"] = _describe_inputs(paths, format, plan.checksums)
    settings |= reading | {"part_size": work.part_size}
    make = partial(write_part, format=format, **reading)
    with parts_folder(out, settings, what="linked corpus", pattern="part-*", fresh=fresh) as folder:
        manifest = _link_parts(folder, plan, make, partial(chosen.load, graph), work, unread)
    _print_counts(out, manifest)
    return manifest


def _describe_inputs(
    paths: Sequence[Path], format: str | None, checksums: Sequence[str]
) -> list[dict[str, str]]:
    """Name, format and checksum of each file, for the settings."""
    return [
        {"name": path.name, "format": format or format_of(path), "sha256": checksum}
        for path, checksum in zip(paths, checksums, strict=True)
    ]


def _link_parts(
    folder: PartsFolder,
    plan: Plan,
    make: Callable[..., dict[str, Any]],
    load_linker: Callable[[], Any],
    work: InParts,
    unread: Counter[str],
) -> dict[str, Any]:
    """Link the parts of a plan that are missing. Returns the manifest, that of a finished folder
    as it is. Raises InputError for an input that has changed, or has no document."""
    if folder.manifest:
        LINKED.say_kept(folder.out)
        return folder.manifest
    todo, entities = plan.save(folder.out), set[str]()
    with tqdm(unit=" documents", desc="linking", disable=None) as bar:
        counts = folder.map(
            make,
            todo,
            load_linker,
            workers=work.processes,
            engine=work.engine,
            finished=lambda done_part: bar.update(done_part["documents"]),
            each=lambda done_part: entities.update(done_part.pop("entities")),
        )
    plan.check_unchanged()
    documents = sum(part["documents"] for part in counts)
    mentions = sum(part["mentions"] for part in counts)
    if not documents:
        raise InputError(
            f"{plan.files[0][0]}: no document in the input. Check the file and its format."
        )
    facts = {
        "format": FORMAT,
        "parts": [done_part["documents"] for done_part in counts],
        "documents": documents,
        "mentions": mentions,
        "entities": len(entities),
    }
    left_out: Counter[str] = Counter()
    for done_part in counts:
        unread.update(done_part["unread"])
        left_out.update(done_part["left_out"])
    if folder.settings["linker"]["name"] == "given":
        facts |= {"left_out": left_out.total(), "left_out_mentions": dict(left_out)}
    if +unread:
        # what the files hold and is no document or mention of one
        facts["unread"] = dict(+unread)
    return folder.finish(todo, facts)


def _print_counts(out: Path, manifest: dict[str, Any]) -> None:
    print(
        f"{out}: {manifest['documents']} documents, {manifest['mentions']} mentions of"
        f" {manifest['entities']} entities"
    )
    for reason, count in manifest.get("left_out_mentions", {}).items():
        print(f"left out: {count:,} mentions {reason}")
    for reason, count in manifest.get("unread", {}).items():
        print(f"left out: {count:,} {reason}")


def parts(folder: str | Path) -> list[tuple[Path, str]]:
    """(path, checksum) of each part of a linked corpus. Raises InputError when it is not finished,
    or of another format."""
    folder = Path(folder)
    manifest = LINKED.manifest(folder)
    return [(folder / name, checksum) for name, checksum in sorted(manifest["sha256"].items())]


def linked_documents(folder: str | Path) -> Iterator[Document]:
    """Documents of a linked corpus with their mentions, in order.

    Raises InputError when the corpus is not finished, or a part is missing or not as it was
    written.
    """
    for path, checksum in parts(folder):
        check_files(
            path.parent, {path.name: checksum}, "Delete this part and run the linking again."
        )
        for where, record in json_lines(path):
            mentions = tuple(
                Mention(m["start"], m["end"], m["entity"], m["score"]) for m in record["mentions"]
            )
            yield Document(record["id"], record["text"], mentions, where)
