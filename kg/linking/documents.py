"""Documents to link, read one at a time: JSON lines (PubMedDS's layout too), plain text, PubTator, PubMed XML, BioC.

Every format may be compressed (.gz, .bz2, .xz). A document's mentions are those in its file, empty where it has
none. What is read and not used is counted in `left_out`, a Counter {what it is: how often}.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core.executor import Part
from core.files import (
    InputError,
    Span,
    check_encoding,
    json_lines,
    lines,
    read_json,
    sha256,
    spans,
    unpacked_name,
    whole_number,
    write_json,
    written,
)
from kg.linking.bioc import NO_ENTITY, bioc_documents, biocjson_documents
from kg.linking.mentions import Document, Mention, checked_mention
from kg.linking.xml import Events, read, root_of

EMPTY = "documents without text"
RELATIONS = "relation lines"
INPUTS = "inputs.json"  # the name of a plan
OTHER_FILES = "files of a folder whose names stand for no format"


Source = Path | Span  # of documents


def _first(record: dict[str, Any], *keys: str) -> Any:
    return next((record[key] for key in keys if record.get(key) is not None), None)


def json_documents(path: Source, encoding: str = "utf-8", left_out: Counter[str] | None = None) -> Iterator[Document]:
    """JSON lines with `id`, `_id` or `pmid`; `text`; optionally `title`, put before the text with a line end between.

    `mentions` is a list of objects: `start` or `start_offset`, `end` or `end_offset` (both counted in `text`),
    `entity` or `link_id`; optionally `mention` (what the text says there) and `score`.
    """
    for where, record in json_lines(path, encoding):
        if "id" not in record and ("documents" in record or "PubTator3" in record):
            raise InputError(f"{where}: this is BioC in JSON. Give --format biocjson, or put bioc into the file's name.")
        name = _first(record, "id", "_id", "pmid")
        if type(name) not in (str, int) or name == "":
            raise InputError(f"{where}: expected an id under id, _id or pmid, got {name!r}. Add one.")
        text, title, given = record.get("text"), record.get("title") or "", record.get("mentions") or []
        if not isinstance(text, str) or not isinstance(title, str):
            raise InputError(f"{where}: expected a string under text (and title, if any), got {text!r:.60}.")
        if not isinstance(given, list) or not all(isinstance(m, dict) for m in given):
            raise InputError(f"{where}: expected a list of objects under mentions.")
        mentions = tuple(
            checked_mention(
                where,
                text,
                _first(m, "start", "start_offset"),
                _first(m, "end", "end_offset"),
                _first(m, "entity", "link_id"),
                m.get("mention"),
                m.get("score", 1.0),
            )
            for m in given
        )
        if title:
            shift = len(title) + 1
            mentions = tuple(m._replace(start=m.start + shift, end=m.end + shift) for m in mentions)
            text = f"{title}\n{text}" if text else title
        yield Document(str(name), text, mentions, where)


def text_documents(path: Source, encoding: str = "utf-8", left_out: Counter[str] | None = None) -> Iterator[Document]:
    """Plain text, a document on each line; its id is the file's name without endings and the line number: `notes:7`.

    Raises InputError for a carriage return inside a line: whether it ends a document cannot be known.
    """
    stem = unpacked_name(path).rpartition(".")[0] or Path(path).name
    for number, line in lines(path, encoding):
        if "\r" in line:
            raise InputError(f"{path}:{number}: a carriage return inside the line. End every line alike, with LF or CRLF.")
        yield Document(f"{stem}:{number}", line, (), f"{path}:{number}")


class Annotation(NamedTuple):
    """A mention as PubTator has it: `text[start:end]` is `surface`; `entity` may be empty, "-" or "-1"."""

    where: str
    start: int
    end: int
    surface: str
    type: str
    entity: str


def pubtator_annotations(
    path: Source, encoding: str = "utf-8", left_out: Counter[str] | None = None
) -> Iterator[tuple[str, str, str, list[Annotation]]]:
    """(file and line, id, text, annotations) of each document of a PubTator file.

    PubTator: `id|t|title`, `id|a|abstract`, then lines id, start, end, mention, type, entity; a blank line. The text is
    title, line end, abstract, to which the offsets fit. Relation lines (id, a name of a relation, ids) are counted in
    `left_out`. Raises InputError for any other line, and for offsets that do not fit the text.
    """
    left_out = Counter() if left_out is None else left_out
    block: list[tuple[int, str]] = []
    for number, line in lines(path, encoding):
        if line.strip():
            block.append((number, line))
        elif block:
            yield _annotated(path, block, left_out)
            block = []
    if block:
        yield _annotated(path, block, left_out)


def _annotated(
    path: Source, block: list[tuple[int, str]], left_out: Counter[str]
) -> tuple[str, str, str, list[Annotation]]:
    where = f"{path}:{block[0][0]}"
    head = [line.split("|", 2) for _, line in block[:2]]
    if [(len(part), *part[1:2]) for part in head] != [(3, "t"), (3, "a")] or head[0][0] != head[1][0]:
        raise InputError(
            f"{where}: expected a line 'id|t|title' and then 'id|a|abstract' of one id, got "
            f"{block[0][1]!r:.60}. Put a blank line between documents."
        )
    name, title, abstract = head[0][0], head[0][2], head[1][2]
    text, annotations = f"{title}\n{abstract}" if title or abstract else "", []
    for number, line in block[2:]:
        part = line.split("\t")
        if part[0] != name:
            raise InputError(
                f"{path}:{number}: expected an annotation of document {name}, got {line!r:.60}. "
                "Put a blank line between documents."
            )
        if len(part) >= 4 and part[1][:1].isalpha():
            left_out[RELATIONS] += 1
            continue
        at = f"{path}:{number}"
        if len(part) < 5:
            raise InputError(f"{at}: expected id, start, end, mention, type, entity, got {line!r:.60}. Put tabs between them.")
        start, end = whole_number(at, "start", part[1]), whole_number(at, "end", part[2])
        checked_mention(at, text, start, end, "any", part[3])
        entity = part[5].strip() if len(part) > 5 else ""
        annotations.append(Annotation(at, start, end, part[3], part[4], entity))
    return where, name, text, annotations


def pubtator_documents(path: Source, encoding: str = "utf-8", left_out: Counter[str] | None = None) -> Iterator[Document]:
    """PubTator, as :func:`pubtator_annotations` reads it. Mentions without an entity are counted in `left_out` as well."""
    left_out = Counter() if left_out is None else left_out
    for where, name, text, given in pubtator_annotations(path, encoding, left_out):
        named = [a for a in given if a.entity not in ("", "-", "-1")]
        left_out[NO_ENTITY] += len(given) - len(named)
        yield Document(name, text, tuple(Mention(a.start, a.end, a.entity) for a in named), where)


class _PubMed(Events[Document]):
    """Collects PubMed articles from expat's events: the first PMID, ArticleTitle, and AbstractText of Abstract."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.open: list[str] = []
        self.begun, self.inside = 0, False
        self.fields: dict[str, list[str]] = {}
        self.field: list[str] | None = None
        self.depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.open.append(name)
        if name in ("PubmedArticle", "PubmedBookArticle"):
            if self.inside:
                raise InputError(f"{self.where}: a {name} inside another article. The file may be cut; fetch it again.")
            self.inside, self.fields, self.begun = True, {}, self.line
        elif self.inside and self.field is None:
            parent = self.open[-2]
            wanted = (
                (name == "PMID" and parent in ("MedlineCitation", "BookDocument"))
                or name == "ArticleTitle"
                or (name == "AbstractText" and parent == "Abstract")
            )
            if wanted:
                # Sections of an abstract are joined by a space, like the words within one.
                self.field, self.depth = self.fields.setdefault(name, []), len(self.open)
                self.field.append(" ")

    def characters(self, text: str) -> None:
        if self.field is not None:
            self.field.append(text)

    def end(self, name: str) -> None:
        if self.field is not None and len(self.open) == self.depth:
            self.field = None
        self.open.pop()
        if self.inside and name in ("PubmedArticle", "PubmedBookArticle"):
            self.inside = False
            pmid, title, abstract = (
                " ".join("".join(self.fields.get(key, ())).split()) for key in ("PMID", "ArticleTitle", "AbstractText")
            )
            where = f"{self.path}:{self.begun}"
            if not pmid:
                raise InputError(f"{where}: this {name} has no PMID. Fetch the file again.")
            self.ready.append(Document(pmid, "\n".join(filter(None, (title, abstract))), (), where))


def pubmed_documents(path: Path, encoding: str = "utf-8", left_out: Counter[str] | None = None) -> Iterator[Document]:
    """PubMed's baseline and update files: title, line end, sections of the abstract joined; inner tags are flattened.

    Memory stays that of a few articles. Raises InputError as :func:`kg.linking.xml.read` does.
    """
    return read(_PubMed(path), encoding)


def xml_documents(path: Path, encoding: str = "utf-8", left_out: Counter[str] | None = None) -> Iterator[Document]:
    """BioC, where the outermost element is a collection; else PubMed."""
    return FORMATS["bioc" if root_of(path, encoding) == "collection" else "pubmed"](path, encoding, left_out)


FORMATS: dict[str, Callable[[Any, str, Counter[str] | None], Iterator[Document]]] = {
    "jsonl": json_documents,
    "text": text_documents,
    "pubtator": pubtator_documents,
    "pubmed": pubmed_documents,
    "bioc": bioc_documents,
    "biocjson": biocjson_documents,
    "xml": xml_documents,
}
LINES = {"jsonl": False, "text": False, "pubtator": True}  # formats that spans can be read of: whether blank lines part documents
_ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
    ".text": "text",
    ".pubtator": "pubtator",
    ".xml": "xml",
}


def _ending(path: Path) -> str:
    return Path(unpacked_name(path).lower()).suffix


def format_of(path: str | Path | Span) -> str:
    """The format that a file's name has. Raises InputError for a name without one."""
    path = Path(path)
    name, ending = path.name.lower(), _ending(path)
    if "bioc" in name and ending in (".xml", ".json"):
        return "bioc" if ending == ".xml" else "biocjson"
    if "pubtator" in name and ending not in (".jsonl", ".ndjson", ".json", ".xml"):
        return "pubtator"
    if ending not in _ENDINGS:
        raise InputError(f"{path}: cannot tell the format from this name. Give --format: one of {', '.join(FORMATS)}.")
    return _ENDINGS[ending]


def check_options(format: str | None, empty: str, encoding: str = "utf-8") -> None:
    """Raises InputError for an unknown format, way to treat empty texts or encoding."""
    if format is not None and format not in FORMATS:
        raise InputError(f"no format {format!r}; choose from: {', '.join(FORMATS)}")
    if empty not in ("error", "skip"):
        raise InputError(f"no way {empty!r} to treat an empty text; choose from: error, skip")
    check_encoding(encoding)


def files_in(paths: Iterable[str | Path], left_out: Counter[str] | None = None) -> list[Path]:
    """`paths`, every folder among them replaced by the files in it whose name has a format, sorted by path.

    `left_out` counts the other files of folders, but hidden ones, by the endings of their names. Raises
    InputError for a path that is not there and for a folder without such files.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            every = [p for p in sorted(path.rglob("*")) if p.is_file()]
            inside = [p for p in every if _ending(p) in _ENDINGS]
            others = [p for p in every if _ending(p) not in _ENDINGS and not p.name.startswith(".")]
            if left_out is not None:
                left_out.update(f"{OTHER_FILES} ({p.suffix or 'no ending'})" for p in others)
            if not inside:
                raise InputError(f"{path}: no text in this folder. Expected files that end in {', '.join(_ENDINGS)}.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise InputError(f"{path}: no such file. Check the path.")
    return found


def part_name(number: int) -> str:
    return f"part-{number:05d}.jsonl"


class Plan(NamedTuple):
    """Files and their parts, each a list of (number of a file, what a Span of it holds).

    files: path, bytes and time of each, by which it is known again; checksums: SHA-256 of each
    """

    files: list[list[Any]]
    format: str | None
    size: int
    checksums: list[str]
    parts: list[list[list[Any]]]

    def save(self, folder: Path) -> list[Part]:
        """The parts, for an executor; :func:`planned` finds the plan in `folder` from now on."""
        write_json(folder / INPUTS, self._asdict())
        return [
            Part(
                part_name(number), [Span(Path(self.files[file][0]), *rest) for file, *rest in part],
                json.dumps([[self.checksums[file], *rest] for file, *rest in part]),
            )
            for number, part in enumerate(self.parts)
        ]  # fmt: skip


def planned(
    folder: Path, paths: Sequence[Path], format: str | None, size: int, kind_of: Callable[[Path], str] = format_of
) -> Plan:
    """The plan for `paths` in parts of about `size` bytes; kind_of: the format of a path without a given one.

    It is the one that `folder` has where names, sizes and times of the files are still the same: none of them is read then.
    """
    states = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
    known = read_json(folder / INPUTS) if (folder / INPUTS).is_file() else {}
    if [known.get(key) for key in ("files", "format", "size")] == [states, format, size]:
        return Plan(**known)
    number = {path: place for place, path in enumerate(paths)}
    parts = [[[number[path], *rest] for path, *rest in part] for part in parts_of(paths, format, size, kind_of)]
    return Plan(states, format, size, [sha256(path) for path in paths], parts)


def parts_of(
    paths: Iterable[Path], format: str | None, size: int, kind_of: Callable[[Path], str] = format_of
) -> Iterator[list[Span]]:
    """`paths` in parts of about `size` bytes: several small files, one, or a span of a large one whose format allows it."""
    part: list[Span] = []
    room = size
    for path in paths:
        kind = format or kind_of(path)
        for span in spans(path, size, LINES[kind]) if kind in LINES else [Span(path)]:
            if room <= 0:
                yield part
                part, room = [], size
            part.append(span)
            room -= (path.stat().st_size if span.end is None else span.end) - span.begin
    if part:
        yield part


def documents(
    paths: Iterable[str | Path | Span], format: str | None = None, empty: str = "error", encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
) -> Iterator[Document]:  # fmt: skip
    """Documents of all `paths` in order; `format` (a key of FORMATS) None reads it from each name.

    empty: "error" raises InputError at a document without text, "skip" leaves it out.  encoding: of all text files.
    left_out: counts what is read and not used.
    Raises InputError for an unknown format and for every broken line.
    """
    check_options(format, empty, encoding)
    for path in paths:
        source = path if isinstance(path, Span) and path.end is not None else Path(path)
        for document in FORMATS[format or format_of(source)](source, encoding, left_out):
            if document.text.strip():
                yield document
            elif empty == "skip":
                if left_out is not None:
                    left_out[EMPTY] += 1
            else:
                raise InputError(
                    f"{document.where}: document {document.id!r} has no text. "
                    "Remove it, or leave such documents out with --empty skip."
                )


def write_documents(path: str | Path, given: Iterable[Document | tuple[str, str]]) -> Path:
    """Documents, or pairs (id, text), as JSON lines that :func:`json_documents` reads. Returns the path."""
    with written(path) as handle:
        for document in given:
            record: dict[str, Any] = {"id": document[0], "text": document[1]}
            if isinstance(document, Document) and document.mentions:
                record["mentions"] = [m._asdict() for m in document.mentions]
            handle.write(json.dumps(record, ensure_ascii=False) + "\n")
    return Path(path)
