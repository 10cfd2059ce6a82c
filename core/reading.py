"""Reading files: bytes, lines and texts, decompressed and decoded.

Every reader opens and decodes its file here: :func:`lines` for lines, :func:`read_text` for a file
that can only be read whole, :func:`open_input` for bytes. They limit how large one line, record or
file may be (:func:`limit_documents`), and say with an InputError what is wrong, and where.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import hashlib
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from core.files import PACKED, InputError, explain_error

MEBIBYTE = 1 << 20
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
EXCERPT = 60  #: characters of a wrong value that a message repeats
WHOLE = 1 << 30  #: bytes, decompressed, of a file that its format only allows to be read as a whole
_largest = 16 * MEBIBYTE
_SAMPLE = '\t\n\r 09AZaz|{}":,'


def limit_documents(mebibytes: int) -> None:
    """Set how large one line, record or document may be (16 MiB), decompressed, in this process and
    those forked from it.

    Raises InputError for a number that is not between 1 and 1024.
    """
    global _largest
    if not 1 <= mebibytes <= 1024:
        raise InputError(f"--max-document {mebibytes}: expected 1 to 1024 MiB")
    _largest = mebibytes * MEBIBYTE


def largest_document() -> int:
    """Bytes that one line, record or document may have."""
    return _largest


def too_large(where: str, what: str) -> InputError:
    """The error for a line, a record or a document above :func:`largest_document`."""
    return InputError(
        f"{where}: {what} of more than {_largest // MEBIBYTE} MiB. Split it, or raise the limit"
        " with --max-document (MiB)."
    )


def unpacked_name(path: str | Path | Span) -> str:
    """A file's name without the ending of its compression."""
    path = Path(path)
    return path.stem if path.suffix.lower() in PACKED else path.name


@functools.cache
def check_encoding(encoding: str) -> None:
    """Raise InputError for an unknown encoding, and for one in which the characters of ASCII are
    not themselves (UTF-16)."""
    try:
        plain = _SAMPLE.encode(encoding) == _SAMPLE.encode()
    except (LookupError, ValueError) as error:
        raise InputError(
            f"--encoding {encoding}: no such encoding; try utf-8, gb18030 or latin-1"
        ) from error
    if not plain:
        raise InputError(
            f"--encoding {encoding}: its line ends are not those of ASCII. Convert the file to"
            " UTF-8."
        )


def no_text(where: str, raw: bytes) -> InputError:
    """The error for bytes that begin with the mark of UTF-16, or contain NULs, as UTF-16 without a
    mark does."""
    what = (
        "UTF-16 text"
        if raw.startswith(UTF_16_MARKS)
        else "NUL characters: UTF-16 or UTF-32 without a mark, or no text"
    )
    return InputError(
        f"{where}: {what}. Convert the file to UTF-8 (iconv -f UTF-16 -t UTF-8); other encodings"
        " can be named with --encoding."
    )


def open_bytes(path: str | Path | Span) -> IO[bytes]:
    """`path` opened for reading bytes, decompressed when its name ends in .gz, .bz2 or .xz. Raises
    InputError when it is missing.

    What is read from it may raise what :func:`open_input` explains.
    """
    path = Path(path)
    try:
        packed = PACKED.get(path.suffix.lower())
        return io.BufferedReader(packed(path), MEBIBYTE) if packed else open(path, "rb", 1 << 16)
    except OSError as error:
        raise explain_error(error, path) from error


@contextlib.contextmanager
def open_input(path: str | Path, where: Callable[[], str] | None = None) -> Iterator[IO[bytes]]:
    """:func:`open_bytes`, and an InputError for what fails while the file is read; `where` says at
    which place."""
    with open_bytes(path) as handle:
        try:
            yield handle
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise explain_error(error, Path(path)) from error
            at = where() if where else str(path)
            raise InputError(
                f"{at}: the compressed file is cut or broken. Fetch it again."
            ) from error


class Span(NamedTuple):
    """The lines of a text file between two bytes, for :func:`lines` in place of a path; `line` is
    the number of the first.

    `end` None: to the end of the file. Other functions of a path see that of the whole file.
    """

    path: Path
    begin: int = 0
    end: int | None = None
    line: int = 1

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


def spans(path: Path, size: int, blank: bool = False) -> list[Span]:
    """The lines of a file in spans of at least `size` bytes, the last one excepted; `blank`: cut
    behind blank lines only.

    A compressed file, and one whose lines end in CR alone, is one span.
    """
    if path.suffix.lower() in PACKED or path.stat().st_size <= size:
        return [Span(path)]
    ranges, begin, first, place = [], 0, 1, 0
    with open_input(path) as handle:
        start = cast(io.BufferedReader, handle).peek(1 << 16)
        if b"\r" in start and b"\n" not in start:
            return [Span(path)]
        number = 1
        while raw := handle.readline(_largest + 1):
            place += len(raw)
            if not raw.endswith(b"\n"):
                continue  # of a line above the limit, which its reader reports, or of the last one
            number += 1
            if place - begin >= size and not (blank and raw.strip()):
                ranges.append(Span(path, begin, place, first))
                begin, first = place, number
    return [*ranges, Span(path, begin, place, first)] if place > begin else ranges


def _between(handle: IO[bytes], span: Span) -> Iterator[bytes]:
    """Lines of bytes of a span, each cut where it exceeds the limit."""
    handle.seek(span.begin)
    while (span.end is None or handle.tell() < span.end) and (raw := handle.readline(_largest + 1)):
        yield raw


def _raw_lines(handle: IO[bytes]) -> Iterator[bytes]:
    """Lines of bytes, each cut where it exceeds the limit; of a file whose first lines end in CR
    alone, by any line end."""
    handle = handle if hasattr(handle, "peek") else io.BufferedReader(handle)  # type: ignore[type-var]
    start = cast(io.BufferedReader, handle).peek(1 << 16)
    if b"\r" not in start or b"\n" in start:
        while raw := handle.readline(_largest + 1):
            yield raw
        return
    text = io.TextIOWrapper(cast(io.BufferedReader, handle), "latin-1", newline=None)
    try:
        while line := text.readline(_largest + 1):
            yield line.encode("latin-1")
    finally:
        if not handle.closed:  # where a reader stopped before the end, the file is closed first
            text.detach()  # else it would close the handle


def lines_of(
    handle: IO[bytes], name: str | Path | Span, encoding: str = "utf-8", mark: bool = False
) -> Iterator[tuple[int, str]]:
    """:func:`lines` of an open file, such as standard input's buffer; errors use `name`."""
    check_encoding(encoding)
    unicode = codecs.lookup(encoding).name == "utf-8"
    part = isinstance(name, Span) and name != Span(name.path)
    number, lines = (
        0,
        _between(handle, name) if isinstance(name, Span) and part else _raw_lines(handle),
    )
    try:
        for number, raw in enumerate(lines, name.line if isinstance(name, Span) else 1):
            if len(raw) > _largest:
                raise too_large(f"{name}:{number}", "a line")
            if b"\0" in raw or (number == 1 and raw.startswith(UTF_16_MARKS)):
                raise no_text(f"{name}:{number}", raw)
            line = raw.decode(encoding).rstrip("\r\n")
            if number == 1 and not mark:
                line = line.removeprefix("\ufeff")
            if not unicode and not line.isascii():
                line.encode()  # some codecs make halves of surrogate pairs
            yield number, line
    except UnicodeError as error:
        reason = getattr(error, "reason", error)
        raise InputError(
            f"{name}:{number}: not {encoding} text ({reason}). Convert the file to UTF-8,"
            " or name its encoding where the command has --encoding (cp1252 of Windows)."
        ) from error
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise explain_error(error, Path(name)) from error
        raise InputError(
            f"{name}:{number + 1}: the compressed file is cut or broken. Fetch it again."
        ) from error


def lines(
    path: str | Path | Span, encoding: str = "utf-8", *, mark: bool = False
) -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its end) of a text file, plain or compressed, or of a span
    of one.

    A line ends in LF or CRLF; in CR alone where the first lines of the file do. A byte order mark
    is left out, unless `mark`. Raises InputError for an unknown encoding, undecodable bytes, a
    broken compressed file, and a line above the limit.
    """
    with open_bytes(path) as handle:
        yield from lines_of(handle, path, encoding, mark)


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a whole file, decompressed. Raises InputError for a missing or broken one, and
    for more than WHOLE bytes."""
    blocks, size = [], 0
    with open_input(path) as handle:
        # a block at a time: read(WHOLE) would ask for as much memory at once
        while block := handle.read(MEBIBYTE):
            blocks.append(block)
            size += len(block)
            if size > WHOLE:
                raise InputError(
                    f"{path}: more than {WHOLE // MEBIBYTE} MiB, which would be read as a whole."
                    " Split the file."
                )
    return b"".join(blocks)


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """The text of a whole file, plain or compressed, without a byte order mark.

    Raises InputError as :func:`lines` does, and for more than WHOLE bytes.
    """
    check_encoding(encoding)
    return decode(read_bytes(path), str(path), encoding)


def decode(raw: bytes, name: str, encoding: str = "utf-8") -> str:
    """The text of the bytes of a whole file, without a byte order mark. Raises InputError as
    :func:`read_text` does."""
    if raw.startswith(UTF_16_MARKS) or b"\0" in raw:
        raise no_text(name, raw)
    try:
        text = raw.decode(encoding).removeprefix("\ufeff")
        text.encode()
        return text
    except UnicodeError as error:
        number = raw[: getattr(error, "start", 0)].count(b"\n") + 1
        reason = getattr(error, "reason", error)
        raise InputError(
            f"{name}:{number}: not {encoding} text ({reason}). Convert the file to UTF-8,"
            " or name its encoding where the command has --encoding (cp1252 of Windows)."
        ) from error


def excerpt(value: object) -> str:
    """A value for a message: as Python writes it, cut after EXCERPT characters."""
    written = repr(value)
    return written if len(written) <= EXCERPT else f"{written[:EXCERPT]}…"


def whole_number(where: str, what: str, value: Any) -> int:
    """`value` as a number of at least 0: an integer, or digits in a string. Raises InputError for
    anything else."""
    digits = (
        str(value).strip()
        if type(value) is str or (type(value) is int and 0 <= value < 10**12)
        else ""
    )
    if re.fullmatch("[0-9]{1,12}", digits) is None:
        described = (
            "a number of many digits" if type(value) is int and value >= 10**12 else excerpt(value)
        )
        raise InputError(
            f"{where}: expected a number under {what}, 0 or more, got {described}. Fix the file."
        )
    return int(digits)


def sha256(path: str | Path) -> str:
    """Hex digest of a file, or of a folder's files (names and contents, in name order)."""
    path = Path(path)
    total = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        if file is not path:
            total.update(str(file.relative_to(path)).encode() + b"\0")
        with open(file, "rb") as handle:
            while block := handle.read(1 << 20):
                total.update(block)
    return total.hexdigest()
