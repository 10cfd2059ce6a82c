"""Reading and writing files so that a failure loses nothing and says what to do.

Everything that the project puts on disk goes through :func:`written` or :func:`written_folder`: the
content is written under a temporary name beside its place and renamed when it is whole, so an
interrupted run never leaves a half-written file under a real name.

Every reader opens, decodes and parses its file here: :func:`lines` and :func:`json_lines` for
lines, :func:`json_records` for lists of JSON objects, :func:`read_text` for a file that can only be
read whole, :func:`reading` for bytes. They limit how large one line, record or file may be
(:func:`limit_documents`), and say with an InputError what is wrong, and where.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import errno
import fcntl
import functools
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import secrets
import shutil
import socket
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

PARTIAL = ".partial"
LONGEST_NAME = 255  #: bytes of a file's name


class InputError(ValueError):
    """An input of the user cannot be used. The message names file, line or key, what was expected
    and what to do.

    A message that quotes much of the input is cut in its middle, and quotes nothing that cannot be
    printed.
    """

    def __init__(self, message: str, longest: int = 2000) -> None:
        if len(message) > longest:
            message = f"{message[: longest // 2]} … {message[-longest // 2 + 100 :]}"
        super().__init__(message.encode(errors="backslashreplace").decode())


def explained(error: OSError, path: Path) -> InputError:
    """An operating-system failure on `path` as one clear message."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InputError(
            f"{path}: the disk is full. Free some space and run the command again; what was built"
            " is intact."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return InputError(
            f"{path}: no permission to write here. Choose another folder or change its permissions."
        )
    if error.errno == errno.ENOENT:
        return InputError(f"{path}: no such file or folder. Check the path.")
    if error.errno == errno.EISDIR:
        return InputError(f"{path}: a folder; expected the name of a file. Choose another name.")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return InputError(
            f"{path}: a file is in the way of a folder of this name. Choose another name."
        )
    # a writer that says no more than that it could not continue
    if error.errno in (None, errno.EFBIG):
        reason = error.strerror or str(error)
        return InputError(
            f"{path}: not written ({reason}). Is the disk full, or a file too large? What was built"
            " is intact."
        )
    return InputError(f"{path}: {error.strerror or error}.")


# --- writing --------------------------------------------------------------------------------------


@cache
def _machine() -> str:
    """A name of this machine since it started: host names repeat where they are shared
    ("localhost")."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        started = "00000000"
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', socket.gethostname())[:24]}-{started}"


def _began(process: int) -> str:
    """When a process began, in clock ticks since the machine did; "" once it has ended, or where
    that is not known."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else fields[18]  # Z: it has ended, and its parent has not asked how


def extend_name(path: Path, ending: str) -> Path:
    """`path` with `ending` behind its name, which is cut where the whole would be too long for a
    file's name."""
    name = os.fsencode(path.name)
    room = LONGEST_NAME - len(ending.encode())
    if len(name) > room:
        checksum = hashlib.sha256(name).hexdigest()[:8]
        start = name[: room - len(checksum) - 1].decode("utf-8", "ignore")
        return path.with_name(f"{start}~{checksum}{ending}")
    return path.with_name(f"{path.name}{ending}")


def _target(path: Path, kind: str = "") -> Path:
    """A temporary name beside `path` that no other process, thread or machine uses."""
    process = f"{os.getpid()}-{_began(os.getpid())}"  # numbers of processes come again
    return extend_name(path, f".{_machine()}-{process}-{secrets.token_hex(4)}{kind}{PARTIAL}")


def remove_leftovers(folder: str | Path, pattern: str = "*") -> None:
    """Remove temporary files and folders of processes of this machine that no longer run; those of
    others are left alone.

    An older folder that such a process had taken away, and nothing has replaced, is put back.
    """
    own = re.compile(
        rf"\.{re.escape(_machine())}-(\d+)-(\d*)-[0-9a-f]{{8}}(\.old)?{re.escape(PARTIAL)}$"
    )
    for left in Path(folder).glob(f"{pattern}{PARTIAL}"):
        found = own.search(left.name)
        if not found or _began(int(found[1])) == found[2]:
            continue
        whole = left.with_name(left.name[: found.start()])
        if found[3] and not whole.exists():
            os.replace(left, whole)
        else:
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


@lru_cache(maxsize=1000)
def _tidied(folder: str) -> None:
    """Leftovers in `folder` are removed once a process, when it first writes there: listing a
    folder for each file takes long."""
    remove_leftovers(folder)


def _synced(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk: a rename alone
    survives a power cut without it."""
    for one in [*(path.rglob("*") if path.is_dir() else ()), path]:
        number = os.open(one, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def renamed(partial: Path, path: Path) -> None:
    """Put what is written in its place; both it and its name are on the disk afterwards."""
    _synced(partial)
    os.replace(partial, path)
    number = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _system_error(error: BaseException | None) -> OSError | None:
    """The failure of the operating system behind an error of a library that writes (torch,
    safetensors), if there is one."""
    while error is not None:
        if isinstance(error, InputError):
            return None
        if isinstance(error, OSError):
            number = error.errno or _number_in(error)
            return OSError(number, os.strerror(number)) if number else error
        if number := _number_in(error):
            return OSError(number, os.strerror(number))
        error = error.__cause__ or error.__context__
    return None


def _number_in(error: BaseException) -> int | None:
    found = re.search(r"(?:os error |errno )(\d+)", str(error))
    return int(found[1]) if found else None


@contextlib.contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Failures of writing `path` as InputError; others as they are."""
    try:
        yield
    except Exception as error:
        if isinstance(error, BrokenPipeError) or (found := _system_error(error)) is None:
            raise
        elsewhere = (
            error.filename
            if isinstance(error, OSError) and isinstance(error.filename, str)
            else None
        )
        raise explained(
            found, Path(elsewhere) if elsewhere and PARTIAL not in elsewhere else path
        ) from error


DESCRIPTORS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def descriptor_of(path: str | Path) -> int | None:
    """The number of the open file that `path` names (/dev/stdout, /dev/fd/63); None for other
    names."""
    name = str(path)
    if name in DESCRIPTORS:
        return DESCRIPTORS[name]
    numbered = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", name)
    return int(numbered[1]) if numbered else None


def is_stream(path: str | Path) -> bool:
    """Whether `path` is written and read in order alone: a device, a FIFO, a socket, or a file that
    is open already."""
    if descriptor_of(path) is not None:
        return True
    try:
        return not stat.S_ISREG(mode := os.stat(path).st_mode) and not stat.S_ISDIR(mode)
    except (OSError, ValueError):
        return False


def check_writable(path: str | Path) -> None:
    """Raise InputError, before any work, where the file `path` could not be written: a folder, or
    no permission for its folder."""
    path = Path(path)
    if os.path.isdir(path):
        raise explained(IsADirectoryError(errno.EISDIR, ""), path)
    if is_stream(path):
        return
    path = Path(os.path.realpath(path))
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise explained(OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)), path)
    if path.is_symlink():
        raise explained(OSError(errno.ELOOP, os.strerror(errno.ELOOP)), path)
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise explained(NotADirectoryError(errno.ENOTDIR, ""), above)
    if not os.access(above, os.W_OK | os.X_OK):
        raise explained(PermissionError(errno.EACCES, ""), path)


@contextlib.contextmanager
def written(
    path: str | Path, mode: str = "w", whole: Callable[[Path], Any] | None = None
) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; rename it to `path` when the block ends well, remove it
    when it fails.

    A name that ends in .gz, .bz2 or .xz is written compressed. Of a link its target is written. A
    device or a FIFO is written as it is (:func:`is_stream`). `whole` is given the temporary file
    once it is complete, before it is renamed. Raises InputError, before the block, for a folder of
    that name or a missing permission, and for a full disk.
    """
    path = Path(path)
    check_writable(path)
    if is_stream(path):
        with _streamed(path, mode) as handle:
            yield handle
        return
    target = Path(os.path.realpath(path))
    partial = _target(target)
    with explaining(path):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _tidied(str(target.parent.absolute()))
            with _packed(partial, path.suffix.lower(), mode) as handle:
                yield handle
            if whole:
                whole(partial)
            renamed(partial, target)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _packed(partial: Path, ending: str, mode: str) -> Iterator[IO[Any]]:
    """`partial`, opened for writing, compressed where `ending` says so; the same content makes the
    same bytes."""
    with open(partial, "wb") as file:
        packed: IO[Any] = file
        if ending == ".gz":
            packed = cast(IO[Any], gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        elif ending in PACKED:
            packed = PACKED[ending](file, "wb")
        with packed, packed if "b" in mode else io.TextIOWrapper(packed, "utf-8") as handle:
            yield handle


@contextlib.contextmanager
def _streamed(path: Path, mode: str) -> Iterator[IO[Any]]:
    """A device, a FIFO or an open file, which is written from where it is; nobody replaces it."""
    number = descriptor_of(path)
    with explaining(path):
        file = os.dup(number) if number is not None else os.open(path, os.O_WRONLY)
        with open(
            file, mode if "b" in mode else "w", encoding=None if "b" in mode else "utf-8"
        ) as handle:
            yield handle


@contextlib.contextmanager
def written_folder(path: str | Path) -> Iterator[Path]:
    """A temporary folder beside `path` that replaces it, whole, when the block ends well.

    An older folder at `path` is only removed once the new one is complete. Raises InputError as
    :func:`written` does.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise explained(NotADirectoryError(errno.ENOTDIR, ""), path)
    check_writable(path / "content")
    partial, old = _target(path), _target(path, ".old")
    with explaining(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _tidied(str(path.parent.absolute()))
            partial.mkdir()
            yield partial
            if path.exists():
                os.replace(path, old)
            try:
                renamed(partial, path)
            except OSError:
                if old.exists():
                    os.replace(old, path)
                raise
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def check_new_folder(out: str | Path, sources: Iterable[str | Path] = ()) -> None:
    """Raise InputError for a folder to write that has something in it, which would be deleted, and
    for one inside a source."""
    out = Path(out).resolve()
    for source in map(Path, sources):
        if source.is_dir() and out.is_relative_to(source.resolve()):
            raise InputError(f"{out}: inside {source}, which is read. Give another folder.")
    if out.is_dir() and any(out.iterdir()):
        raise InputError(
            f"{out}: there is something in this folder; it is left alone. Give a new one, or remove"
            " it first."
        )


def write_json(path: str | Path, value: Any) -> None:
    with written(path) as handle:
        json.dump(value, handle, indent=1, ensure_ascii=False, sort_keys=True)
        handle.write("\n")


def read_json(path: str | Path) -> Any:
    """The JSON value in `path`. Raises InputError when it is missing or broken."""
    return parse_json(read_text(path), str(path), "Delete the file and build it again.")


def read_object(path: str | Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises InputError when it is missing, broken or no object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(
            f"{path}: expected a JSON object, got {type(value).__name__}. Delete the file and build"
            " it again."
        )
    return value


@contextlib.contextmanager
def locked(path: str | Path, mode: str, message: str) -> Iterator[IO[Any]]:
    """`path`, opened in `mode` for this process alone; its folder is made. Raises InputError with
    `message` when another has it."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(path, mode)  # noqa: SIM115 - closed below; only its opening is to be explained
    except OSError as error:
        raise explained(error, path) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(message) from error
        yield handle


# readers

MEBIBYTE = 1 << 20
EXCERPT = 60  #: characters of a wrong value that a message repeats
WHOLE = 1 << 30  #: bytes, decompressed, of a file that its format only allows to be read as a whole
PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
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


UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


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


def opened(path: str | Path | Span) -> IO[bytes]:
    """`path` opened for reading bytes, decompressed when its name ends in .gz, .bz2 or .xz. Raises
    InputError when it is missing.

    What is read from it may raise what :func:`reading` explains.
    """
    path = Path(path)
    try:
        packed = PACKED.get(path.suffix.lower())
        return io.BufferedReader(packed(path), MEBIBYTE) if packed else open(path, "rb", 1 << 16)
    except OSError as error:
        raise explained(error, path) from error


@contextlib.contextmanager
def reading(path: str | Path, where: Callable[[], str] | None = None) -> Iterator[IO[bytes]]:
    """:func:`opened`, and an InputError for what fails while the file is read; `where` says at
    which place."""
    with opened(path) as handle:
        try:
            yield handle
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise explained(error, Path(path)) from error
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
    found, begin, first, place = [], 0, 1, 0
    with reading(path) as handle:
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
                found.append(Span(path, begin, place, first))
                begin, first = place, number
    return [*found, Span(path, begin, place, first)] if place > begin else found


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
    number, found = (
        0,
        _between(handle, name) if isinstance(name, Span) and part else _raw_lines(handle),
    )
    try:
        for number, raw in enumerate(found, name.line if isinstance(name, Span) else 1):
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
            f"{name}:{number}: not {encoding} text ({reason}). Convert the file to UTF-8."
        ) from error
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise explained(error, Path(name)) from error
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
    with opened(path) as handle:
        yield from lines_of(handle, path, encoding, mark)


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a whole file, decompressed. Raises InputError for a missing or broken one, and
    for more than WHOLE bytes."""
    blocks, size = [], 0
    with reading(path) as handle:
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
            f"{name}:{number}: not {encoding} text ({reason}). Convert the file to UTF-8."
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
        shown = (
            "a number of many digits" if type(value) is int and value >= 10**12 else excerpt(value)
        )
        raise InputError(
            f"{where}: expected a number under {what}, 0 or more, got {shown}. Fix the file."
        )
    return int(digits)


# JSON

_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a surrogate pair: JSON, but no text when it is alone
_BLANK = re.compile(r"[ \t\r\n]*")


def _check_text(value: Any, text: str, where: str) -> None:
    if _HALF.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{where}: half a surrogate pair in the text ({error.reason}). Remove it."
            ) from error


def _json_error(error: Exception, where: str, place: str, advice: str) -> InputError:
    """The one error for JSON that Python cannot read: of its grammar, its depth, or the digits of a
    number."""
    if isinstance(error, json.JSONDecodeError):
        why = f"{error.msg.removesuffix(' at')} at {place}"
    else:
        why = (
            "nested too deeply"
            if isinstance(error, RecursionError)
            else "a number of too many digits"
        )
    return InputError(f"{where}: not valid JSON ({why}). {advice}")


def parse_json(text: str, where: str, advice: str = "The file may be cut; fetch it again.") -> Any:
    """The JSON value of `text`; `where` and `advice` begin and end the message of an InputError."""
    try:
        value = json.loads(text)
        _check_text(value, text, where)
    except (RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        line = getattr(error, "lineno", 1)
        at = f"{where}:{line}" if line > 1 else where
        raise _json_error(error, at, f"column {getattr(error, 'colno', 1)}", advice) from error
    return value


def json_lines(
    path: str | Path | Span,
    encoding: str = "utf-8",
    advice: str = "Write one object on each line; the file may be cut.",
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, object) of JSON lines; blank ones hold none. Raises InputError for a line
    that is no object, or has no text that UTF-8 can hold."""
    for number, line in lines(path, encoding):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        record = parse_json(line, where, advice)
        if not isinstance(record, dict):
            raise InputError(
                f"{where}: expected a JSON object, got {type(record).__name__}. {advice}"
            )
        yield where, record


class _Values:
    """JSON values of a file, one after the other: as much of the text is in memory as the one that
    is read needs."""

    def __init__(self, handle: IO[bytes], path: str | Path, encoding: str) -> None:
        self.handle, self.path, self.encoding = handle, path, encoding
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.text, self.at, self.line, self.ended = "", 0, 1, False

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"

    def _more(self) -> bool:
        """Read further, twice as much as is in memory. Whether there was anything."""
        if self.ended:
            return False
        self.text, self.at = self.text[self.at :], 0
        raw = self.handle.read(max(1 << 16, len(self.text)))
        self.ended = not raw
        if b"\0" in raw or (not self.text and raw.startswith(UTF_16_MARKS)):
            raise no_text(self.where, raw)
        try:
            self.text += self.decoder.decode(raw, final=self.ended)
        except UnicodeError as error:
            line = (
                self.line + self.text.count("\n") + raw[: getattr(error, "start", 0)].count(b"\n")
            )
            reason = getattr(error, "reason", error)
            raise InputError(
                f"{self.path}:{line}: not {self.encoding} text ({reason}). Convert the file to"
                " UTF-8."
            ) from error
        return True

    def move(self, to: int) -> None:
        self.line += self.text.count("\n", self.at, to)
        self.at = to

    def next(self) -> str:
        """The next character that is not blank, "" at the end of the file."""
        while True:
            self.move(_BLANK.match(self.text, self.at).end())  # type: ignore[union-attr]
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                return ""

    def take(self, marks: str) -> str:
        """The next character, if it is one of `marks`; "" otherwise."""
        mark = self.next()
        if mark and mark in marks:
            self.at += 1
            return mark
        return ""

    def value(self) -> Any:
        """The next value. Raises InputError for broken JSON and for a value above the limit."""
        self.next()
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self.text, self.at)
                if end - self.at > _largest:
                    raise too_large(self.where, "a record")
                if end < len(self.text) or not self._more():  # a number may continue
                    _check_text(value, self.text[self.at : end], self.where)
                    self.move(end)
                    return value
            except (RecursionError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                unsure = isinstance(error, json.JSONDecodeError) and (
                    error.pos + 16 > len(self.text) or error.msg.startswith("Unterminated")
                )
                if unsure and len(self.text) - self.at > _largest:
                    raise too_large(self.where, "a record") from error
                if not unsure or not self._more():
                    line = self.line + self.text.count(
                        "\n", self.at, getattr(error, "pos", self.at)
                    )
                    place = f"column {getattr(error, 'colno', 1)}"
                    raise _json_error(
                        error, f"{self.path}:{line}", place, "The file may be cut; fetch it again."
                    ) from error
            if len(self.text) - self.at > 2 * _largest:
                raise too_large(self.where, "a record")


def json_records(
    path: str | Path, encoding: str = "utf-8", keys: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path:line it begins at, object) of a file that is a JSON list of objects or has one object
    after the other.

    keys: the file may also be an object that has the list under one of these keys; objects one
        after the other are refused.
    The file is read in the memory of its largest object. Raises InputError for anything else.
    """
    check_encoding(encoding)
    cut = "The file may be cut; fetch it again."
    with reading(path) as handle:
        given = _Values(handle, path, encoding)
        if given.next() == "\ufeff":
            given.move(given.at + 1)
        inside = bool(keys) and given.take("{") != ""
        if inside and not _list_under(given, keys):
            raise InputError(
                f"{path}: expected a list of objects, or an object with one under"
                f" {' or '.join(keys)}."
            )
        listed = given.take("[") != ""
        if keys and not listed:
            raise InputError(
                f"{path}: expected a list of objects, or an object with one under"
                f" {' or '.join(keys)}."
            )
        done = False
        while mark := given.next():
            if listed and mark == "]":
                given.take("]")
                done = True
                break
            where = given.where
            value = given.value()
            if not isinstance(value, dict):
                raise InputError(f"{where}: expected a JSON object, got {type(value).__name__}.")
            yield where, value
            if listed:
                given.next()
                if given.take("]"):
                    done = True
                    break
                if not given.take(","):
                    raise InputError(f"{given.where}: expected a comma or the list's end. {cut}")
        if listed and not done:
            raise InputError(f"{given.where}: the list does not end. {cut}")
        if inside and given.take(","):
            _list_under(given, ())
        elif inside and not given.take("}"):
            raise InputError(f"{given.where}: the object does not end. {cut}")
        if listed and given.next():
            raise InputError(f"{given.where}: text after the end of the list. {cut}")


def _list_under(given: _Values, keys: Sequence[str]) -> bool:
    """Go to the value of the first key in `keys` of an object; False when the object has ended
    without one."""
    if given.take("}"):
        return False
    while True:
        where = given.where
        key = given.value()
        if not isinstance(key, str) or not given.take(":"):
            raise InputError(
                f"{where}: expected a key and a colon, got {excerpt(key)}. The file may be cut;"
                " fetch it again."
            )
        if key in keys:
            return True
        given.value()
        mark = given.take(",}")
        if not mark:
            raise InputError(
                f"{given.where}: the object does not end. The file may be cut; fetch it again."
            )
        if mark == "}":
            return False


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


def digest(value: Any) -> str:
    """Hex digest of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()
