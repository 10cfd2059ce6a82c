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
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

PARTIAL = ".partial"


class InputError(ValueError):
    """Something the user gave cannot be used. The message names file, line or key, what was wanted and what to do."""


def explained(error: OSError, path: Path) -> InputError:
    """An operating-system failure on `path` as one clear message."""
    if error.errno == errno.ENOSPC:
        return InputError(
            f"{path}: the disk is full. Free some space and run the command again; what was built is intact."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return InputError(f"{path}: no permission to write here. Choose another folder or change its permissions.")
    if error.errno == errno.ENOENT:
        return InputError(f"{path}: no such file or folder. Check the path.")
    return InputError(f"{path}: {error.strerror or error}.")


def _target(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")


@contextlib.contextmanager
def written(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; rename it to `path` when the block ends well, remove it when it fails.

    A name that ends in .gz is written compressed. Raises InputError for a full disk or a missing permission.
    """
    path = Path(path)
    partial = _target(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = None if "b" in mode else "utf-8"
        if path.suffix == ".gz":
            handle = cast(IO[Any], gzip.open(partial, mode if "b" in mode else mode + "t", encoding=text))  # noqa: SIM115
        else:
            handle = open(partial, mode, encoding=text)  # noqa: SIM115  closed by the block below
        with handle:
            yield handle
        os.replace(partial, path)
    except OSError as error:
        raise explained(error, path) from error
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def written_folder(path: str | Path) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its place, whole, when the block ends well.

    An older folder at `path` is only removed once the new one is complete. Raises InputError as :func:`written` does.
    """
    path = Path(path)
    partial = _target(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        if path.exists():
            old = path.with_name(f"{path.name}.{os.getpid()}.old{PARTIAL}")
            os.replace(path, old)
            os.replace(partial, path)
            shutil.rmtree(old)
        else:
            os.replace(partial, path)
    except OSError as error:
        raise explained(error, path) from error
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
