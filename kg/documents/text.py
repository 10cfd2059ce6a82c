"""Plain text: a document a line, a paragraph or a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from core.files import InputError
from core.reading import lines, read_text
from kg.documents.mentions import BY_LINE, Document, Layout, Source


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
