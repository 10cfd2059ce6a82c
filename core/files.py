"""Writing files so that a failure loses nothing and says what to do.

Everything that the project puts on disk goes through :func:`atomic_write` or
:func:`atomic_folder`: the content is written under a temporary name beside its place and renamed
when it is whole, so an interrupted run never leaves a half-written file under a real name. What is
read comes through :mod:`core.reading` and :mod:`core.json_files`.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import fcntl
import gzip
import hashlib
import io
import lzma
import os
import re
import secrets
import shutil
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import IO, Any, cast

PARTIAL = ".partial"
LONGEST_NAME = 255  #: bytes of a file's name
PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


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


def explain_error(error: OSError, path: Path) -> InputError:
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
    temporary = re.compile(
        rf"\.{re.escape(_machine())}-(\d+)-(\d*)-[0-9a-f]{{8}}(\.old)?{re.escape(PARTIAL)}$"
    )
    for left in Path(folder).glob(f"{pattern}{PARTIAL}"):
        match = temporary.search(left.name)
        if not match or _began(int(match[1])) == match[2]:
            continue
        whole = left.with_name(left.name[: match.start()])
        if match[3] and not whole.exists():
            os.replace(left, whole)
        else:
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


@lru_cache(maxsize=1000)
def _tidy_folder(folder: str) -> None:
    """Leftovers in `folder` are removed once a process, when it first writes there: listing a
    folder for each file takes long."""
    remove_leftovers(folder)


def _sync(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk: a rename alone
    survives a power cut without it."""
    for entry in [*(path.rglob("*") if path.is_dir() else ()), path]:
        number = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def put_in_place(partial: Path, path: Path) -> None:
    """Put what is written in its place; both it and its name are on the disk afterwards."""
    _sync(partial)
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
    match = re.search(r"(?:os error |errno )(\d+)", str(error))
    return int(match[1]) if match else None


@contextlib.contextmanager
def explain_failures(path: Path) -> Iterator[None]:
    """Failures of writing `path` as InputError; others as they are."""
    try:
        yield
    except Exception as error:
        if isinstance(error, BrokenPipeError) or (cause := _system_error(error)) is None:
            raise
        elsewhere = (
            error.filename
            if isinstance(error, OSError) and isinstance(error.filename, str)
            else None
        )
        raise explain_error(
            cause, Path(elsewhere) if elsewhere and PARTIAL not in elsewhere else path
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
        raise explain_error(IsADirectoryError(errno.EISDIR, ""), path)
    if is_stream(path):
        return
    path = Path(os.path.realpath(path))
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise explain_error(OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)), path)
    if path.is_symlink():
        raise explain_error(OSError(errno.ELOOP, os.strerror(errno.ELOOP)), path)
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise explain_error(NotADirectoryError(errno.ENOTDIR, ""), above)
    if not os.access(above, os.W_OK | os.X_OK):
        raise explain_error(PermissionError(errno.EACCES, ""), path)


@contextlib.contextmanager
def atomic_write(
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
        with _open_stream(path, mode) as handle:
            yield handle
        return
    target = Path(os.path.realpath(path))
    partial = _target(target)
    with explain_failures(path):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _tidy_folder(str(target.parent.absolute()))
            with _open_packed(partial, path.suffix.lower(), mode) as handle:
                yield handle
            if whole:
                whole(partial)
            put_in_place(partial, target)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _open_packed(partial: Path, ending: str, mode: str) -> Iterator[IO[Any]]:
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
def _open_stream(path: Path, mode: str) -> Iterator[IO[Any]]:
    """A device, a FIFO or an open file, which is written from where it is; nobody replaces it."""
    number = descriptor_of(path)
    with explain_failures(path):
        file = os.dup(number) if number is not None else os.open(path, os.O_WRONLY)
        with open(
            file, mode if "b" in mode else "w", encoding=None if "b" in mode else "utf-8"
        ) as handle:
            yield handle


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """A temporary folder beside `path` that replaces it, whole, when the block ends well.

    An older folder at `path` is only removed once the new one is complete. Raises InputError as
    :func:`atomic_write` does.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise explain_error(NotADirectoryError(errno.ENOTDIR, ""), path)
    check_writable(path / "content")
    partial, old = _target(path), _target(path, ".old")
    with explain_failures(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _tidy_folder(str(path.parent.absolute()))
            partial.mkdir()
            yield partial
            if path.exists():
                os.replace(path, old)
            try:
                put_in_place(partial, path)
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


@contextlib.contextmanager
def lock_file(path: str | Path, mode: str, message: str) -> Iterator[IO[Any]]:
    """`path`, opened in `mode` for this process alone; its folder is made. Raises InputError with
    `message` when another has it."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(path, mode)  # noqa: SIM115 - closed below; only its opening is to be explained
    except OSError as error:
        raise explain_error(error, path) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(message) from error
        yield handle
