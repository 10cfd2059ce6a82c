"""Documents to link, read one at a time: JSON lines (PubMedDS's layout too), plain text, PubTator,
PubMed XML, BioC.

Every format may be compressed (.gz, .bz2, .xz). A document's mentions are those in its file, empty
where it has none. What is read and not used is counted in `left_out`, a Counter {what it is: how
often}.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from core.executor import Part
from core.files import InputError, is_stream, written
from core.json_files import json_lines, json_records, read_json, write_json
from core.outputs import MANIFEST
from core.reading import (
    Span,
    check_encoding,
    excerpt,
    lines,
    opened,
    read_text,
    reading,
    sha256,
    spans,
    unpacked_name,
    whole_number,
)
from kg.build.rows import begins_with_array
from kg.documents.annotations import (
    brat_documents,
    conll_documents,
    docbin_documents,
    pubannotation_documents,
    table_documents,
)
from kg.documents.bioc import NO_ENTITY, bioc_documents, biocjson_documents
from kg.documents.mentions import (
    ATTRIBUTES,
    BY_LINE,
    NOT_FITTING,
    Document,
    Layout,
    Mention,
    attributes_of,
    checked_mention,
    counted_unless_used,
)
from kg.documents.uima import xmi_documents
from kg.documents.xml import Events, read, root_of
from kg.ids import is_no_concept

LABELS = "labels of the sections of abstracts"
OTHER_ABSTRACTS = "other abstracts (OtherAbstract)"
DELETED = "citations to delete (DeleteCitation)"
LOG = logging.getLogger(__name__)
REPEATED = "files given more than once"
EMPTY = "documents without text"
NO_DOCUMENT = "files without a document"
HIDDEN = "hidden files"
MANIFESTS = "manifests of outputs"
NO_FILES = "devices, FIFOs and links to nothing in folders"
LINKS = "links to folders, which are not followed"
RELATIONS = "relation lines"
INPUTS = "inputs.json"  # the name of a plan
BESIDE = "annotations beside their texts (.ann)"
OTHER_FILES = "files of a folder whose names stand for no format"


Source = Path | Span  # of documents


def _first(record: dict[str, Any], *keys: str) -> Any:
    return next((record[key] for key in keys if record.get(key) is not None), None)


def json_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """JSON lines with `id`, `_id` or `pmid`; `text`; optionally `title`, put before the text with a
    line end between.

    `mentions` is a list of objects: `start` or `start_offset`, `end` or `end_offset` (both counted
    in `text`), `entity` or `link_id`; optionally `mention` (what the text says there) and `score`.
    """
    left_out = Counter() if left_out is None else left_out
    for where, record in json_lines(path, encoding):
        yield _json_document(where, record, left_out, used, layout)


def json_array_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """A JSON array of objects as :func:`json_documents` reads them."""
    left_out = Counter() if left_out is None else left_out
    for number, (_, record) in enumerate(json_records(Path(path), encoding, ()), start=1):
        yield _json_document(f"{path}: document {number}", record, left_out, used, layout)


def _json_document(
    where: str, record: dict[str, Any], left_out: Counter[str], used: bool, layout: Layout
) -> Document:
    """A document of an object. Raises InputError where id or text are missing."""
    if "id" not in record and ("documents" in record or "PubTator3" in record):
        raise InputError(
            f"{where}: this is BioC in JSON. Give {FORMAT_OPTION} biocjson, or put bioc into"
            " the file's name."
        )
    if "denotations" in record and "mentions" not in record:
        raise InputError(
            f"{where}: this is PubAnnotation's JSON. Give {FORMAT_OPTION} pubannotation."
        )
    ids = (layout.id_field,) if layout.id_field else ("id", "_id", "pmid")
    name = _first(record, *ids)
    if type(name) not in (str, int) or name == "":
        raise InputError(
            f"{where}: expected an id under {' or '.join(ids)}, got {name!r}. Add one, or name the"
            " key with --id-field."
        )
    key = layout.text_field or "text"
    text, title = record.get(key), record.get("title") or ""
    title = "" if layout.text_field else title
    if not isinstance(text, str) or not isinstance(title, str):
        raise InputError(
            f"{where}: expected a string under {key} (and title, if any), got {excerpt(text)}. Name"
            " the key with --text-field."
        )
    found = list(_json_mentions(where, text, record.get("mentions") or [], left_out, used))
    if title:
        shift = len(title) + 1
        found = [m._replace(start=m.start + shift, end=m.end + shift) for m in found]
        text = f"{title}\n{text}" if text else title
    linked = tuple(m for m in found if m.entity)
    unlinked = tuple(m for m in found if not m.entity)
    left_out[NO_ENTITY] += len(unlinked)
    return Document(str(name), text, linked, where, unlinked)


#: the option that names a format, as commands have it
FORMAT_OPTION = "--format (of annotated texts --gold-format, --linking-format or --data-format)"
#: keys of a mention in JSON
READ_OF_MENTIONS = {
    *("start", "end", "start_offset", "end_offset", "entity", "link_id", "type", "score"),
    *("mention", "text", *ATTRIBUTES),
}


def _json_mentions(
    where: str, text: str, given: Any, left_out: Counter[str], used: bool
) -> Iterator[Mention]:
    """The mentions of a line of JSON. Raises InputError for one that does not fit the text, where
    they are used."""
    listed = given if isinstance(given, list) else [given]
    for m in listed:
        if isinstance(given, list) and isinstance(m, dict):
            with counted_unless_used(left_out, used):
                start, end = _first(m, "start", "start_offset"), _first(m, "end", "end_offset")
                entity, kind = _first(m, "entity", "link_id"), m.get("type")
                typed = entity is None and isinstance(kind, str)  # found, and linked to nothing
                score = m.get("score")
                checked = checked_mention(
                    where,
                    text,
                    start,
                    end,
                    "none" if typed else entity,
                    _first(m, "mention", "text"),
                    1.0 if score is None or typed else score,
                )
                own = "" if typed or is_no_concept(checked.entity) else checked.entity
                for key in sorted(m.keys() - READ_OF_MENTIONS):
                    if used and m[key] not in (None, "", [], False):
                        left_out[f"fields of mentions that are not read ({key})"] += 1
                yield checked._replace(
                    entity=own,
                    type=kind if isinstance(kind, str) else "",
                    attributes=attributes_of(m),
                )
        elif used:
            raise InputError(f"{where}: expected a list of objects under mentions.")
        else:
            left_out[NOT_FITTING] += 1


def text_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """Plain text, a document on each line; its id is the file's name without endings and the line
    number: `notes:7`.

    Raises InputError for a carriage return inside a line: whether it ends a document cannot be
    known.
    """
    stem = layout.name_file(Path(path))
    for number, line in lines(path, encoding):
        if "\r" in line:
            raise InputError(
                f"{path}:{number}: a carriage return inside the line. End every line alike, with LF"
                " or CRLF."
            )
        yield Document(f"{stem}:{number}", line, (), f"{path}:{number}")


def paragraph_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """Plain text, a document between blank lines, with the line ends inside it; its id has the
    number of its first line: `notes:7`."""
    stem = layout.name_file(Path(path))
    block: list[str] = []
    begun = 0
    for number, line in lines(path, encoding):
        if line.strip():
            begun = begun if block else number
            block.append(line)
        elif block:
            yield Document(f"{stem}:{begun}", "\n".join(block), (), f"{path}:{begun}")
            block = []
    if block:
        yield Document(f"{stem}:{begun}", "\n".join(block), (), f"{path}:{begun}")


def file_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """Plain text, one document: the whole file as it is, so that offsets are the file's. Its id is
    the file's path inside the folder that was given, or its name."""
    text = read_text(Path(path), encoding)
    yield Document(layout.name_file(Path(path)), text, (), f"{path}:1")


_HEAD = re.compile(r"[^|\t]*\|[ta]\|")  # of a document of PubTator


class Annotation(NamedTuple):
    """A mention as PubTator has it: `text[start:end]` is `surface`; `entity` may say that there is
    none (kg.ids)."""

    where: str
    start: int
    end: int
    surface: str
    type: str
    entity: str
    attributes: tuple[str, ...] = ()


def pubtator_annotations(
    path: Source, encoding: str = "utf-8", left_out: Counter[str] | None = None, used: bool = True
) -> Iterator[tuple[str, str, str, list[Annotation]]]:
    """(file and line, id, text, annotations) of each document of a PubTator file.

    PubTator: `id|t|title`, `id|a|abstract`, then lines id, start, end, mention, type, entity; a
    blank line. The text is title, line end, abstract, to which the offsets fit. Relation lines (id,
    a name of a relation, ids) are counted in `left_out`. Raises InputError for any other line, and
    for offsets that do not fit the text; where the annotations are not `used`, those are counted
    instead.
    """
    left_out = Counter() if left_out is None else left_out
    block: list[tuple[int, str]] = []
    for number, line in lines(path, encoding):
        if line.strip():
            block.append((number, line))
        elif block:
            yield _annotated(path, block, left_out, used)
            block = []
    if block:
        yield _annotated(path, block, left_out, used)


def _annotated(
    path: Source, block: list[tuple[int, str]], left_out: Counter[str], used: bool
) -> tuple[str, str, str, list[Annotation]]:
    where = f"{path}:{block[0][0]}"
    head = [line.split("|", 2) for _, line in block[:2]]
    if [(len(part), *part[1:2]) for part in head] != [(3, "t"), (3, "a")] or head[0][0] != head[1][
        0
    ]:
        raise InputError(
            f"{where}: expected a line 'id|t|title' and then 'id|a|abstract' of one id, got "
            f"{excerpt(block[0][1])}. Put a blank line between documents."
        )
    name, title, abstract = head[0][0], head[0][2], head[1][2]
    text, annotations = f"{title}\n{abstract}" if title or abstract else "", []
    for number, line in block[2:]:
        part = line.split("\t")
        if part[0] != name and (used or _HEAD.match(line)):
            raise InputError(
                f"{path}:{number}: expected an annotation of document {name}, got {excerpt(line)}. "
                "Put a blank line between documents."
            )
        if len(part) >= 4 and part[1][:1].isalpha():
            left_out[RELATIONS] += 1
            continue
        with counted_unless_used(left_out, used):
            annotations.append(_annotation(f"{path}:{number}", line, name, text))
    return where, name, text, annotations


def _annotation(at: str, line: str, name: str, text: str) -> Annotation:
    """An annotation of the document `name`. Raises InputError for one that does not fit its
    text."""
    part = line.split("\t")
    if len(part) < 5 or part[0] != name:
        raise InputError(
            f"{at}: expected id, start, end, mention, type, entity, got {excerpt(line)}. Put tabs"
            " between them."
        )
    start, end = whole_number(at, "start", part[1]), whole_number(at, "end", part[2])
    checked_mention(at, text, start, end, "any", part[3])
    entity = part[5].strip() if len(part) > 5 else ""
    said = dict(word.split("=", 1) for word in "".join(part[6:7]).split("; ") if "=" in word)
    return Annotation(at, start, end, part[3], part[4], entity, attributes_of(said))


def pubtator_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """PubTator, as :func:`pubtator_annotations` reads it. Mentions without an entity are counted in
    `left_out` as well."""
    left_out = Counter() if left_out is None else left_out
    for where, name, text, given in pubtator_annotations(path, encoding, left_out, used):
        named = [a for a in given if not is_no_concept(a.entity)]
        left_out[NO_ENTITY] += len(given) - len(named)
        linked = tuple(Mention(a.start, a.end, a.entity, 1.0, a.type, a.attributes) for a in named)
        others = [a for a in given if is_no_concept(a.entity)]
        unlinked = tuple(Mention(a.start, a.end, "", 1.0, a.type, a.attributes) for a in others)
        yield Document(name, text, linked, where, unlinked)


#: elements that may hold what is not used
COUNTED = frozenset(("AbstractText", "OtherAbstract", "PMID"))


class _PubMed(Events[Document]):
    """Collects PubMed articles from expat's events: the first PMID, ArticleTitle, and AbstractText
    of Abstract."""

    def __init__(self, path: Path, left_out: Counter[str]) -> None:
        super().__init__(path)
        self.left_out = left_out
        self.open: list[str] = []
        self.begun, self.inside = 0, False
        self.fields: dict[str, list[str]] = {}
        self.field: list[str] | None = None
        self.depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.open.append(name)
        if name in COUNTED:
            self.count(name, attributes)
        if name in ("PubmedArticle", "PubmedBookArticle"):
            if self.inside:
                raise InputError(
                    f"{self.where}: a {name} inside another article. The file may be cut; fetch it"
                    " again."
                )
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

    def count(self, name: str, attributes: dict[str, str]) -> None:
        """Count what is not used: labels of an abstract's sections, other abstracts, citations to
        delete."""
        parent = self.open[-2] if len(self.open) > 1 else ""
        self.left_out[LABELS] += (
            name == "AbstractText" and parent == "Abstract" and "Label" in attributes
        )
        self.left_out[OTHER_ABSTRACTS] += name == "OtherAbstract"
        self.left_out[DELETED] += name == "PMID" and parent == "DeleteCitation"

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
                " ".join("".join(self.fields.get(key, ())).split())
                for key in ("PMID", "ArticleTitle", "AbstractText")
            )
            where = f"{self.path}:{self.begun}"
            if not pmid:
                raise InputError(f"{where}: this {name} has no PMID. Fetch the file again.")
            self.ready.append(Document(pmid, "\n".join(filter(None, (title, abstract))), (), where))


def pubmed_documents(
    path: Path,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """PubMed's baseline and update files: title, line end, sections of the abstract joined; inner
    tags are flattened.

    Memory stays that of a few articles. Raises InputError as :func:`kg.documents.xml.read` does.
    """
    return read(_PubMed(path, Counter() if left_out is None else left_out), encoding)


def xml_documents(
    path: Path,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """BioC, where the outermost element is a collection; else PubMed."""
    return FORMATS["bioc" if root_of(path, encoding) == "collection" else "pubmed"](
        path, encoding, left_out, used, layout
    )


Reader = Callable[[Any, str, Counter[str] | None, bool, Layout], Iterator[Document]]
FORMATS: dict[str, Reader] = {
    "jsonl": json_documents,
    "json": json_array_documents,
    "text": text_documents,
    "paragraphs": paragraph_documents,
    "files": file_documents,
    "table": table_documents,
    "brat": brat_documents,
    "conll": conll_documents,
    "docbin": docbin_documents,
    "pubannotation": pubannotation_documents,
    "xmi": xmi_documents,
    "pubtator": pubtator_documents,
    "pubmed": pubmed_documents,
    "bioc": bioc_documents,
    "biocjson": biocjson_documents,
    "xml": xml_documents,
}
# formats that spans can be read of: whether blank lines part documents
LINES = {"jsonl": False, "text": False, "paragraphs": True, "pubtator": True}
#: what a document of plain text is -> the reader of such files
OF_TEXT = {"line": "text", "paragraph": "paragraphs", "file": "files"}
_ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
    ".text": "text",
    ".pubtator": "pubtator",
    ".xml": "xml",
    ".csv": "table",
    ".tsv": "table",
    ".parquet": "table",
    ".xlsx": "table",
    ".conll": "conll",
    ".conllu": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".bioes": "conll",
    ".bilou": "conll",
    ".spacy": "docbin",
    ".xmi": "xmi",
    ".ann": "brat",
}


def _ending(path: Path) -> str:
    return Path(unpacked_name(path).lower()).suffix


def _beginning(path: Path) -> bytes:
    """The first bytes of a file, unpacked."""
    with opened(path) as handle:
        return handle.read(1 << 16)


def default_document(
    inputs: Sequence[str | Path], format: str | None, empty: str, encoding: str = "utf-8"
) -> Literal["file", "paragraph", "line"]:
    """What a document of plain text is where it is not said: a file of a folder, a line of a single
    file.

    Raises InputError for a single file with blank lines, which may be one document, or several.
    """
    if any(Path(given).is_dir() for given in inputs):
        return "file"
    for given in map(Path, inputs):
        if not given.is_file() or (format or _ENDINGS.get(_ending(given))) != "text":
            continue
        blank = next((number for number, line in lines(given, encoding) if not line.strip()), None)
        if blank is not None and empty != "skip":
            raise InputError(
                f"{given}:{blank}: a blank line. Say what a document is: --document file (all of"
                " it), paragraph (blank lines part them) or line; lines without text are left out"
                " with --empty skip."
            )
    return "line"


def resolve_format(format: str | None, layout: Layout, path: Any) -> str:
    """The key of FORMATS for a file: as given, or by its name; of plain text what a document is."""
    kind = format or format_of(path)
    return OF_TEXT[layout.document] if kind == "text" else kind


def format_of(path: str | Path | Span) -> str:
    """The format that a file's name has. Raises InputError for a name without one."""
    path = Path(path)
    name, ending = path.name.lower(), _ending(path)
    if "bioc" in name and ending in (".xml", ".json"):
        return "bioc" if ending == ".xml" else "biocjson"
    if "pubtator" in name and ending not in (".jsonl", ".ndjson", ".json", ".xml"):
        return "pubtator"
    if ending == ".json" and path.is_file():
        head = _beginning(path)
        if b'"denotations"' in head:
            return "pubannotation"
        if b'"passages"' in head and (b'"documents"' in head or b'"PubTator3"' in head):
            return "biocjson"
        if begins_with_array(path):
            return "json"
    if ending not in _ENDINGS:
        raise InputError(
            f"{path}: cannot tell the format from this name. Give {FORMAT_OPTION}: one of"
            f" {', '.join(FORMATS)}."
        )
    return _ENDINGS[ending]


def check_options(
    format: str | None, empty: str, encoding: str = "utf-8", layout: Layout = BY_LINE
) -> None:
    """Raises InputError for an unknown format, way to treat empty texts or encoding."""
    if format is not None and format not in FORMATS:
        raise InputError(f"no format {format!r}; choose from: {', '.join(FORMATS)}")
    if empty not in ("error", "skip"):
        raise InputError(f"no way {empty!r} to treat an empty text; choose from: error, skip")
    check_encoding(encoding)


def files_in(paths: Iterable[str | Path], left_out: Counter[str] | None = None) -> list[Path]:
    """`paths`, every folder among them replaced by the files in it whose name has a format, sorted
    by path.

    A file that is given twice is used once, which is said. `left_out` counts such files, and what
    else is in folders: files of other names by their endings, hidden files and folders, links to
    folders. Raises InputError for a path that is not there, for a folder without such files, and
    for a name that is not UTF-8.
    """
    left_out = Counter() if left_out is None else left_out
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = [file for file in files_below(path, left_out) if _ending(file) in _ENDINGS]
            if not inside:
                raise InputError(
                    f"{path}: no text in this folder. Expected files that end in"
                    f" {', '.join(_ENDINGS)}."
                )
            for file in inside:
                check_name(file)
            found += inside
        elif path.is_file():
            check_name(path)
            found.append(path)
        else:
            raise InputError(f"{path}: no such file. Check the path.")
    kept, known = list[Path](), set[str]()
    repeated: list[Path] = []
    for file in found:
        (repeated if os.path.realpath(file) in known else kept).append(file)
        known.add(os.path.realpath(file))
    if repeated:
        left_out[REPEATED] += len(repeated)
        more = f" (and {len(repeated) - 1:,} others)" if len(repeated) > 1 else ""
        LOG.warning(f"{repeated[0]}{more}: given more than once; it is used once")
    return kept


def check_name(path: Path) -> None:
    """Raise InputError for a name that is not UTF-8: ids of documents, and plans of work, hold
    names of files."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{path}: the name of this file is not UTF-8. Rename the file.") from error


def files_below(folder: Path, left_out: Counter[str]) -> list[Path]:
    """The files of a folder and of the folders in it, sorted by path.

    `left_out` counts hidden files and folders, manifests of outputs and links to folders, which are
    passed over, and files whose name has no format, which are among those returned.
    """
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        hidden = [name for name in (*folders, *names) if name.startswith(".")]
        links = [
            name
            for name in folders
            if name not in hidden and os.path.islink(os.path.join(place, name))
        ]
        left_out[HIDDEN] += len(hidden)
        left_out[LINKS] += len(links)
        folders[:] = [name for name in folders if name not in hidden and name not in links]
        texts = {name.removesuffix(".txt") for name in names if name.endswith(".txt")}
        for name in names:
            file = Path(place, name)
            if name.startswith("."):
                continue
            if name.endswith(".ann") and name.removesuffix(".ann") in texts:
                left_out[BESIDE] += 1  # read with its text where the format is brat
                continue
            if not file.is_file():
                left_out[NO_FILES] += 1
                continue
            if name.endswith(MANIFEST):
                left_out[MANIFESTS] += 1
                continue
            if _ending(file) not in _ENDINGS:
                left_out[f"{OTHER_FILES} ({file.suffix or 'no ending'})"] += 1
            found.append(file)
    return sorted(found)


@contextlib.contextmanager
def spooled(inputs: Iterable[str | Path]) -> Iterator[tuple[list[Path], str]]:
    """(`inputs`, the folder of copies, "" without any): FIFOs, devices and open files (-,
    /dev/stdin) as copies, for the block.

    Such an input is gone once it is read; a copy can be hashed, and cut into parts. Errors name the
    input, not its copy.
    """
    paths = [Path("/dev/stdin" if str(given) == "-" else given) for given in inputs]
    if not any(is_consumed(path) for path in paths):
        yield paths, ""
        return
    with tempfile.TemporaryDirectory(prefix="kepl-inputs-") as folder:
        try:
            yield (
                [_copied(path, Path(folder)) if is_consumed(path) else path for path in paths],
                f"{folder}/",
            )
        except InputError as error:
            raise InputError(str(error).replace(f"{folder}/", "")) from error


def is_consumed(path: Path) -> bool:
    """Whether an input is gone once it is read: a FIFO, a device, standard input."""
    return is_stream(path) and not path.is_file()


def _copied(path: Path, folder: Path) -> Path:
    copy = folder / path.name
    with reading(path) as source, written(copy, "wb") as target:
        shutil.copyfileobj(source, target)
    return copy


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

    def check_unchanged(self) -> None:
        """Raise InputError where a file is another by now than the plan was made for: it changed
        while it was read."""
        for (name, *_), checksum in zip(self.files, self.checksums, strict=True):
            if not os.path.isfile(name) or sha256(name) != checksum:
                raise InputError(
                    f"{name}: changed while it was read. Run the command again, with --fresh, once"
                    " nothing writes it."
                )

    def save(self, folder: Path) -> list[Part]:
        """The parts, for an executor; :func:`planned` finds the plan in `folder` from now on."""
        write_json(folder / INPUTS, self._asdict())
        return self.make_parts()

    def make_parts(self) -> list[Part]:
        return [
            Part(
                part_name(number),
                [Span(Path(self.files[file][0]), *rest) for file, *rest in part],
                json.dumps([[self.checksums[file], *rest] for file, *rest in part]),
            )
            for number, part in enumerate(self.parts)
        ]


@dataclass(frozen=True, kw_only=True)
class InParts:
    """Work in parts, and who does it.

    Args:
        workers: Processes. Default: one a core.
        part_size: Bytes of input in a part, about; a compressed file or one of XML is never cut.
        engine: Where parts are made: processes, or ray.

    Raises InputError for fewer than one worker, and for parts without a byte.
    """

    workers: int | None = None
    part_size: int = 4 << 20
    engine: str | None = None

    def __post_init__(self) -> None:
        if self.processes < 1 or self.part_size < 1:
            raise InputError(
                f"expected at least one worker and one byte in a part, got {self.processes} and"
                f" {self.part_size}"
            )

    @property
    def processes(self) -> int:
        """`workers`, or one a core."""
        return len(os.sched_getaffinity(0)) if self.workers is None else self.workers


def planned(
    folder: Path,
    paths: Sequence[Path],
    format: str | None,
    size: int,
    layout: Layout = BY_LINE,
    kind_of: Callable[[Path], str] | None = None,
) -> Plan:
    """The plan for `paths` in parts of about `size` bytes; kind_of: the format of a path, where it
    is not that of :func:`resolve_format`.

    Its parts are those of the plan in `folder` where the files are still the same, by their
    checksums, and are read alike.
    """
    states = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
    checksums = [sha256(path) for path in paths]
    known = read_json(folder / INPUTS) if (folder / INPUTS).is_file() else {}
    read_as = f"{format or 'by name'}, {layout.document}"
    if [known.get(key) for key in ("files", "format", "size", "checksums")] == [
        states,
        read_as,
        size,
        checksums,
    ]:
        return Plan(**known)
    number = {path: place for place, path in enumerate(paths)}
    parts = [
        [[number[path], *rest] for path, *rest in part]
        for part in parts_of(paths, size, kind_of or partial(resolve_format, format, layout))
    ]
    return Plan(states, read_as, size, checksums, parts)


def parts_of(
    paths: Iterable[Path], size: int, kind_of: Callable[[Path], str]
) -> Iterator[list[Span]]:
    """`paths` in parts of about `size` bytes: several small files, one, or a span of a large one
    whose format, `kind_of` the path, allows it."""
    part: list[Span] = []
    room = size
    for path in paths:
        kind = kind_of(path)
        for span in spans(path, size, LINES[kind]) if kind in LINES else [Span(path)]:
            if room <= 0:
                yield part
                part, room = [], size
            part.append(span)
            room -= (path.stat().st_size if span.end is None else span.end) - span.begin
    if part:
        yield part


def documents(
    paths: Iterable[str | Path | Span],
    format: str | None = None,
    empty: str = "error",
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """Documents of all `paths` in order; `format` (a key of FORMATS) None reads it from each name.

    empty: "error" raises InputError at a document without text and at a file without a document,
    "skip" leaves them out. encoding: of all text files. left_out: counts what is read and not used.
    used: whether the mentions of the documents are used; else mentions that do not fit the text are
    counted, and left out. Raises InputError for an unknown format and for every broken line.
    """
    check_options(format, empty, encoding)
    left_out = Counter() if left_out is None else left_out
    for path in paths:
        whole = not isinstance(path, Span) or path == Span(path.path)
        source = path if isinstance(path, Span) and not whole else Path(path)
        count = 0
        read = FORMATS[resolve_format(format, layout, source)]
        for document in read(source, encoding, left_out, used, layout):
            count += 1
            if document.text.strip():
                yield document
            elif empty == "skip":
                left_out[EMPTY] += 1
            else:
                raise InputError(
                    f"{document.where}: document {document.id!r} has no text. "
                    "Remove it, or leave such documents out with --empty skip."
                )
        if whole and not count:
            if empty != "skip":
                raise InputError(
                    f"{source}: no document in this file. Check the file and its format, remove it,"
                    " or leave such files out with --empty skip."
                )
            left_out[NO_DOCUMENT] += 1


def annotated_documents(
    files: Sequence[Path],
    format: str | None,
    left_out: Counter[str],
    roots: Sequence[Path] = (),
    layout: Layout | None = None,
    encoding: str = "utf-8",
) -> Iterator[Document]:
    """The documents of `files` with their mentions, which are used. Texts with a .ann file beside
    them are brat's where no format is given; a document of other plain text is a file.

    roots: the folders that were given, in which ids are paths. left_out: annotations without an
    entity are kept, and so not in it. Raises InputError as :func:`documents`.
    """
    beside = [path for path in files if path.with_suffix(".ann").is_file()]
    form = format or ("brat" if any(path.suffix == ".txt" for path in beside) else None)
    chosen = list(files)
    if form == "brat":  # a text and its annotations are one
        left_out.pop(BESIDE, None)
        chosen = list(dict.fromkeys(path.with_suffix(".txt") for path in files))
    own = (layout or Layout("file"))._replace(roots=tuple(str(root.resolve()) for root in roots))
    unused = Counter[str]()
    yield from documents(chosen, form, "skip", encoding, unused, True, own)
    unused.pop(NO_ENTITY, None)
    left_out.update(unused)


def check_annotated(files: Sequence[Path], format: str | None) -> None:
    """Raise InputError for a table of texts, which holds no annotations."""
    for path in files:
        if (format or _ENDINGS.get(_ending(path))) == "table":
            raise InputError(
                f"{path}: a table of texts holds no annotations. Expected brat, PubTator, BioC,"
                f" JSON lines, CoNLL, DocBin or PubAnnotation; CoNLL of this name: {FORMAT_OPTION}"
                " conll"
            )


def with_annotations(files: Sequence[Path]) -> list[Path]:
    """The files, and what brat keeps beside each text: all that decides what they say."""
    beside = [path.with_suffix(".ann") for path in files if path.suffix == ".txt"]
    return list(dict.fromkeys([*files, *(path for path in beside if path.is_file())]))
