"""Reading and writing files so that a failure loses nothing and says what to do.

Everything that the project puts on disk goes through :func:`written` or :func:`written_folder`: the content is written
under a temporary name beside its place and renamed when it is whole, so an interrupted run never leaves a half-written
file under a real name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import socket
import zlib
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import IO, Any, cast

PARTIAL = ".partial"


class InputError(ValueError):
    """Something the user gave cannot be used. The message names file, line or key, what was wanted and what to do."""


def explained(error: OSError, path: Path) -> InputError:
    """An operating-system failure on `path` as one clear message."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InputError(
            f"{path}: the disk is full. Free some space and run the command again; what was built is intact."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return InputError(f"{path}: no permission to write here. Choose another folder or change its permissions.")
    if error.errno == errno.ENOENT:
        return InputError(f"{path}: no such file or folder. Check the path.")
    if error.errno == errno.EISDIR:
        return InputError(f"{path}: a folder; expected the name of a file. Choose another name.")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return InputError(f"{path}: a file is in the way of a folder of this name. Choose another name.")
    if error.errno in (None, errno.EFBIG):  # a writer that says no more than that it could not go on
        reason = error.strerror or str(error)
        return InputError(f"{path}: not written ({reason}). Is the disk full, or a file too large? What was built is intact.")
    return InputError(f"{path}: {error.strerror or error}.")


# --- writing ----------------------------------------------------------------------------------------------------------


@cache
def _machine() -> str:
    """A name of this machine since it started: host names repeat where they are shared ("localhost")."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        started = "00000000"
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', socket.gethostname())[:24]}-{started}"


def _target(path: Path, kind: str = "") -> Path:
    """A temporary name beside `path` that no other process, thread or machine takes."""
    return path.with_name(f"{path.name}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{kind}{PARTIAL}")


def remove_leftovers(folder: str | Path, pattern: str = "*") -> None:
    """Remove temporary files and folders of processes of this machine that no longer run; those of others are left alone."""
    own = re.compile(rf"\.{re.escape(_machine())}-(\d+)-[0-9a-f]{{8}}(\.old)?{re.escape(PARTIAL)}$")
    for left in Path(folder).glob(f"{pattern}{PARTIAL}"):
        found = own.search(left.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _synced(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk: a rename alone survives a power cut without it."""
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
    """The failure of the operating system behind an error of a library that writes (torch, safetensors), if there is one."""
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
def _explaining(path: Path) -> Iterator[None]:
    """Failures of writing `path` as InputError; others as they are."""
    try:
        yield
    except Exception as error:
        if (found := _system_error(error)) is None:
            raise
        elsewhere = error.filename if isinstance(error, OSError) and isinstance(error.filename, str) else None
        raise explained(found, Path(elsewhere) if elsewhere and PARTIAL not in elsewhere else path) from error


def check_writable(path: str | Path) -> None:
    """Raise InputError, before any work, where the file `path` could not be written: a folder, or no permission for its folder."""
    path = Path(path)
    if path.is_dir():
        raise explained(IsADirectoryError(errno.EISDIR, ""), path)
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise explained(NotADirectoryError(errno.ENOTDIR, ""), above)
    if not os.access(above, os.W_OK | os.X_OK):
        raise explained(PermissionError(errno.EACCES, ""), path)


@contextlib.contextmanager
def written(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; rename it to `path` when the block ends well, remove it when it fails.

    A name that ends in .gz is written compressed. Raises InputError, before the block, for a folder of that name or a missing
    permission, and for a full disk.
    """
    path = Path(path)
    check_writable(path)
    partial = _target(path)
    with _explaining(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = None if "b" in mode else "utf-8"
            if path.suffix == ".gz":
                handle = cast(IO[Any], gzip.open(partial, mode if "b" in mode else mode + "t", encoding=text))  # noqa: SIM115
            else:
                handle = open(partial, mode, encoding=text)  # noqa: SIM115  closed by the block below
            with handle:
                yield handle
            renamed(partial, path)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def written_folder(path: str | Path) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its place, whole, when the block ends well.

    An older folder at `path` is only removed once the new one is complete. Raises InputError as :func:`written` does.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise explained(NotADirectoryError(errno.ENOTDIR, ""), path)
    check_writable(path / "content")
    partial, old = _target(path), _target(path, ".old")
    with _explaining(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
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


def write_json(path: str | Path, value: Any) -> None:
    with written(path) as handle:
        json.dump(value, handle, indent=1, ensure_ascii=False, sort_keys=True)
        handle.write("\n")


def read_json(path: str | Path) -> Any:
    """The JSON value in `path`. Raises InputError when it is missing or broken."""
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise explained(error, path) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid JSON ({error}). Delete the file and build it again.") from error


def sealed(folder: str | Path, name: str, what: str, again: str, make: str) -> dict[str, Any]:
    """The manifest of `folder`, when its file `name` is the one that it describes by `sha256`.

    what: what should lie there, "samples"; again: "Build the samples"; make: what a folder without manifest asks for, "Run: …".
    Raises InputError where there is no manifest, or the file is missing or another one.
    """
    folder = Path(folder)
    if not (folder / "manifest.json").is_file():
        raise InputError(f"{folder}: no {what} here (manifest.json is missing). {make}")
    manifest = read_json(folder / "manifest.json")
    file = folder / name
    if not isinstance(manifest, dict) or not file.is_file() or sha256(file) != manifest.get("sha256"):
        raise InputError(f"{file}: missing, or not the file its manifest describes. {again} again.")
    return manifest


def verified(folder: str | Path) -> None:
    """Raise InputError unless the files of an export, or of its encoder/, are those whose checksums its manifest.json holds.

    A folder without a manifest of an export (a model of the hub, or of somebody else) has none to hold to.
    """
    folder = Path(folder)
    for place, part in ((folder, ""), (folder.parent, f"{folder.name}/")):
        if not (place / "manifest.json").is_file():
            continue
        manifest = read_json(place / "manifest.json")
        sums = manifest.get("checksums") if isinstance(manifest, dict) else None
        if not part and isinstance(manifest, dict) and "paper" in manifest and not isinstance(sums, dict):
            raise InputError(
                f"{folder}/manifest.json: an export without checksums, from before. If it is sound, seal it: kepl seal {folder}"
            )
        if isinstance(sums, dict) and (not part or any(name.startswith(part) for name in sums)):
            files = {name: place / name for name in sums}
            stamps = [(f.stat().st_size, f.stat().st_mtime_ns) if f.is_file() else None for f in files.values()]
            _hold(str(place), tuple(sums.items()), tuple(stamps))
        return


@lru_cache(32)
def _hold(place: str, sums: tuple[tuple[str, str], ...], stamps: tuple[object, ...]) -> None:
    """Raise InputError unless each file in `place` has its checksum. stamps: sizes and times; read once while they stay."""
    for name, checksum in sums:
        file = Path(place) / name
        if not file.is_file() or sha256(file) != checksum:
            raise InputError(f"{file}: missing, or not the file that manifest.json describes. Export the run again.")


@contextlib.contextmanager
def locked(path: str | Path, mode: str, message: str) -> Iterator[IO[Any]]:
    """`path`, opened in `mode` for this process alone; its folder is made. Raises InputError with `message` when another has it."""
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


def opened(path: str | Path) -> IO[bytes]:
    """`path` opened for reading bytes, decompressed when its name ends in .gz. Raises InputError when it is missing."""
    path = Path(path)
    try:
        if path.suffix == ".gz":
            return io.BufferedReader(gzip.open(path, "rb"), 1 << 20)  # type: ignore[arg-type]
        return open(path, "rb")
    except OSError as error:
        raise explained(error, path) from error


def lines(path: str | Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its end) of a text file, plain or .gz. Raises InputError on undecodable bytes."""
    with opened(path) as handle:
        number = 0
        try:
            for number, raw in enumerate(handle, 1):
                yield number, raw.decode(encoding).rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}:{number}: not {encoding} text ({error.reason}). Convert the file to UTF-8."
            ) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{path}:{number + 1}: the compressed file is cut or broken. Fetch it again.") from error


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
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
