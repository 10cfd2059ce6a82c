"""Formats of documents and the files that are read: which format a file has, which files a folder
holds, and their documents, one at a time.

Every format may be compressed (.gz, .bz2, .xz). Each reader yields Documents
(:mod:`kg.documents.mentions`); a document's mentions are those in its file, empty where it has
none. What is read and not used is counted in `left_out`, a Counter {what it is: how often}. Each
writer is given records as chains and taggers make them ({id, text, mentions [{start, end, type,
entity, name, …}]}).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from core.choices import list_known
from core.files import InputError, atomic_write, is_stream
from core.outputs import MANIFEST
from core.reading import Span, check_encoding, lines, open_bytes, open_input, unpacked_name
from kg.build.rows import begins_with_array
from kg.documents.bioc import bioc_documents, biocjson_documents
from kg.documents.brat import SETTINGS_FILES, brat_documents
from kg.documents.conll import conll_documents
from kg.documents.docbin import docbin_documents
from kg.documents.jsonlines import FORMAT_OPTION, json_array_documents, json_documents
from kg.documents.mentions import BY_LINE, NO_ENTITY, Document, Layout
from kg.documents.pubannotation import pubannotation_documents
from kg.documents.pubmed import pubmed_documents
from kg.documents.pubtator import pubtator_documents
from kg.documents.tabular import table_documents
from kg.documents.text import file_documents, paragraph_documents, text_documents
from kg.documents.uima import xmi_documents
from kg.documents.xml import root_of

LOG = logging.getLogger(__name__)
REPEATED = "files given more than once"
EMPTY = "documents without text"
NO_DOCUMENT = "files without a document"
HIDDEN = "hidden files"
MANIFESTS = "manifests of outputs"
NO_FILES = "devices, FIFOs and links to nothing in folders"
LINKS = "links to folders, which are not followed"
BESIDE = "annotations beside their texts (.ann)"
OTHER_FILES = "files of a folder whose names stand for no format"


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
    with open_bytes(path) as handle:
        return handle.read(1 << 16)


def default_document(
    inputs: Sequence[str | Path], format: str | None, empty: str, encoding: str = "utf-8"
) -> Literal["file", "paragraph", "line"]:
    """What a document of plain text is where it is not said: a file of a folder, a line of a single
    file.

    Raises InputError for a single file with blank lines, which may be one document, or several.
    """
    if any(Path(path).is_dir() for path in inputs):
        return "file"
    for path in map(Path, inputs):
        if not path.is_file() or (format or _ENDINGS.get(_ending(path))) != "text":
            continue
        blank = next((number for number, line in lines(path, encoding) if not line.strip()), None)
        if blank is not None and empty != "skip":
            raise InputError(
                f"{path}:{blank}: a blank line. Say what a document is: --document file (all of"
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
        raise InputError(f"no format {format!r}; {list_known(format, FORMATS)}")
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
    all_paths: list[Path] = []
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
            all_paths += inside
        elif path.is_file():
            check_name(path)
            all_paths.append(path)
        else:
            raise InputError(f"{path}: no such file. Check the path.")
    distinct, seen = list[Path](), set[str]()
    repeated: list[Path] = []
    for file in all_paths:
        (repeated if os.path.realpath(file) in seen else distinct).append(file)
        seen.add(os.path.realpath(file))
    if repeated:
        left_out[REPEATED] += len(repeated)
        more = f" (and {len(repeated) - 1:,} others)" if len(repeated) > 1 else ""
        LOG.warning(f"{repeated[0]}{more}: given more than once; it is used once")
    return distinct


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
    paths: list[Path] = []
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
            if name in SETTINGS_FILES:
                continue
            if not file.is_file():
                left_out[NO_FILES] += 1
                continue
            if name.endswith(MANIFEST):
                left_out[MANIFESTS] += 1
                continue
            if _ending(file) not in _ENDINGS:
                left_out[f"{OTHER_FILES} ({file.suffix or 'no ending'})"] += 1
            paths.append(file)
    return sorted(paths)


@contextlib.contextmanager
def spool_inputs(inputs: Iterable[str | Path]) -> Iterator[tuple[list[Path], str]]:
    """(`inputs`, the folder of copies, "" without any): FIFOs, devices and open files (-,
    /dev/stdin) as copies, for the block.

    Such an input is gone once it is read; a copy can be hashed, and cut into parts. Errors name the
    input, not its copy.
    """
    paths = [Path("/dev/stdin" if str(name) == "-" else name) for name in inputs]
    if not any(is_consumed(path) for path in paths):
        yield paths, ""
        return
    with tempfile.TemporaryDirectory(prefix="kepl-inputs-") as folder:
        try:
            yield (
                [_copy_input(path, Path(folder)) if is_consumed(path) else path for path in paths],
                f"{folder}/",
            )
        except InputError as error:
            raise InputError(str(error).replace(f"{folder}/", "")) from error


def is_consumed(path: Path) -> bool:
    """Whether an input is gone once it is read: a FIFO, a device, standard input."""
    return is_stream(path) and not path.is_file()


def _copy_input(path: Path, folder: Path) -> Path:
    copy = folder / path.name
    with open_input(path) as source, atomic_write(copy, "wb") as target:
        shutil.copyfileobj(source, target)
    return copy


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
    text_files = [path for path in files if path.with_suffix(".ann").is_file()]
    form = format or ("brat" if any(path.suffix == ".txt" for path in text_files) else None)
    chosen = list(files)
    if form == "brat":  # a text and its annotations are one
        left_out.pop(BESIDE, None)
        chosen = list(dict.fromkeys(path.with_suffix(".txt") for path in files))
    own_layout = (layout or Layout("file"))._replace(
        roots=tuple(str(root.resolve()) for root in roots)
    )
    unused = Counter[str]()
    yield from documents(chosen, form, "skip", encoding, unused, True, own_layout)
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
    annotation_files = [path.with_suffix(".ann") for path in files if path.suffix == ".txt"]
    return list(dict.fromkeys([*files, *(path for path in annotation_files if path.is_file())]))
