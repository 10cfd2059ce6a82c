"""What a mirror holds: folders and archives, searched recursively, inside .tar, .tar.gz, .tgz, .zip
and .gz too.

Nothing is unpacked but the wanted file. What leaves its archive, is a link, grows too large or
cannot be read is refused and told.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast
from urllib.parse import urlsplit

from tqdm import tqdm

from core.files import InputError, atomic_write, explain_error, put_in_place
from core.reading import sha256
from datamodules.sources.listing import sources

LARGEST = 2 << 30  # bytes that one archive may contain
DEEPEST = 3  # archives within archives
MEMBERS = 100_000  # files in one archive
BLOCK = 1 << 20
#: what an archive raises that cannot be read
UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    RuntimeError,
    NotImplementedError,
)


class _Refused(Exception):
    """Something in a mirror that is not read; the text says what and why."""


class Entry(NamedTuple):
    """A file in a mirror. `paths` are its possible places: each archive on the way counted as a
    folder, or not."""

    paths: tuple[str, ...]
    size: int | None
    stream: IO[bytes]


class _Counted:
    """A stream that refuses to return more than what is left of `room` [bytes], which all streams
    of an archive share."""

    def __init__(self, stream: IO[bytes], room: list[int], where: str) -> None:
        self.stream, self.room, self.where = stream, room, where

    def read(self, size: int = -1) -> bytes:
        block = self.stream.read(BLOCK if size is None or size < 0 else min(size, BLOCK))
        self.room[0] -= len(block)
        if self.room[0] < 0:
            raise _Refused(f"{self.where}: more than {LARGEST:,} bytes unpacked; not read")
        return block


def _kind(name: str) -> tuple[str, str]:
    """(tar, zip, gz or nothing, the name without that ending)."""
    low = name.lower()
    for ending, kind in (
        (".tar.gz", "tar"),
        (".tgz", "tar"),
        (".tar", "tar"),
        (".zip", "zip"),
        (".gz", "gz"),
    ):
        if low.endswith(ending) and len(name) > len(ending):
            return kind, name[: -len(ending)]
    return "", name


def _safe(name: str, plain: bool, where: str, refused: list[str]) -> str | None:
    """The path of an archive's member; None, and a line in `refused`, when it leaves the archive or
    is no plain file."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    leaves = name.startswith(("/", "\\")) or ".." in parts or (parts and ":" in parts[0][1:2])
    if leaves or not plain:
        why = "leaves the archive" if plain else "is a link or a device"
        refused.append(f"{where}: member {name!r} {why}; not read")
        return None
    return "/".join(parts)


@dataclass
class _Archive:
    """An archive of a mirror.

    name: of the file. paths: its possible places. depth: archives that it is in, and itself. room:
    bytes that may still be unpacked. where: its place, for messages. refused: what was not read.
    """

    stream: IO[bytes]
    name: str
    paths: tuple[str, ...]
    depth: int
    room: list[int]
    where: str
    refused: list[str]

    def read(self) -> Iterator[Entry]:
        """The files in it, and in archives in it. A stream is read before the next is asked."""
        readers = {"gz": self._read_gz, "tar": self._read_tar, "zip": self._read_zip}
        try:
            if read := readers.get(_kind(self.name)[0]):
                yield from read()
        except _Refused as error:
            self.refused.append(str(error))
        except UNREADABLE as error:
            self.refused.append(f"{self.where}: cannot be read ({error}); not searched further")

    @property
    def _folders(self) -> tuple[str, ...]:
        return tuple(path.removesuffix(self.name) for path in self.paths)

    def _places(self, member: str) -> tuple[str, ...]:
        """Where a member may be: beside the archive, or in a folder of its name."""
        stem = _kind(self.name)[1]
        places: dict[str, None] = {}
        for folder in self._folders:
            places |= dict.fromkeys((folder + member, f"{folder}{stem}/{member}"))
        return tuple(places)

    def _count_bytes(self, raw: Any) -> IO[bytes]:
        return cast(IO[bytes], _Counted(raw, self.room, self.where))

    def _unpack(self) -> IO[bytes]:
        return self._count_bytes(gzip.GzipFile(fileobj=self.stream, mode="rb"))

    def _read_gz(self) -> Iterator[Entry]:
        stem = _kind(self.name)[1]
        places = tuple(folder + stem for folder in self._folders)
        yield from self._deeper(Entry(places, None, self._unpack()), stem)

    def _read_tar(self) -> Iterator[Entry]:
        plain = self.name.lower().endswith(".tar")
        raw = self._count_bytes(self.stream) if plain else self._unpack()
        with tarfile.open(fileobj=raw, mode="r|") as tar:
            for number, member in enumerate(tar):
                if number >= MEMBERS:
                    raise _Refused(
                        f"{self.where}: more than {MEMBERS:,} files; the rest is not read"
                    )
                if member.isdir():
                    continue
                inner = _safe(member.name, member.isreg(), self.where, self.refused)
                if inner is not None:
                    content = cast(IO[bytes], tar.extractfile(member))
                    yield from self._deeper(Entry(self._places(inner), member.size, content), inner)

    def _read_zip(self) -> Iterator[Entry]:
        with zipfile.ZipFile(self.stream) as archive:
            infos = archive.infolist()
            if len(infos) > MEMBERS:
                raise _Refused(f"{self.where}: more than {MEMBERS:,} files; not read")
            for info in infos:
                if info.is_dir():
                    continue
                # the Unix file type: unknown, or a plain file
                plain = (info.external_attr >> 28) in (0, 8)
                inner = _safe(info.filename, plain, self.where, self.refused)
                if inner is not None:
                    with archive.open(info) as content:
                        entry = Entry(
                            self._places(inner), info.file_size, self._count_bytes(content)
                        )
                        yield from self._deeper(entry, inner)

    def _deeper(self, entry: Entry, member: str) -> Iterator[Entry]:
        """A member, and the files in it if it is an archive."""
        inner = PurePosixPath(member).name
        where = f"{self.where}!{member}"
        if not _kind(inner)[0]:
            yield entry
            return
        if self.depth >= DEEPEST:
            self.refused.append(
                f"{where}: archives within archives, more than {DEEPEST} deep; not read"
            )
            yield entry
            return
        with tempfile.SpooledTemporaryFile(64 << 20) as copy:
            shutil.copyfileobj(entry.stream, copy, BLOCK)
            copy.seek(0)
            below = cast(IO[bytes], copy)
            yield entry._replace(stream=below)
            copy.seek(0)
            deeper = _Archive(
                below, inner, entry.paths, self.depth + 1, self.room, where, self.refused
            )
            yield from deeper.read()


def _files(mirror: Path) -> Iterator[Path]:
    if not mirror.exists():
        raise InputError(f"{mirror}: no such folder or archive, given as MIRROR. Check the path.")
    if mirror.is_file():
        yield mirror
        return
    seen = set()
    for folder, below, names in os.walk(mirror, followlinks=True):
        real = os.path.realpath(folder)
        below[:] = (
            sorted(b for b in below if b not in (".git", "__pycache__")) if real not in seen else []
        )
        if real not in seen:
            seen.add(real)
            yield from (Path(folder) / name for name in sorted(names))


def _entries(file: Path, mirror: Path, refused: list[str]) -> Iterator[Entry]:
    """A file of a mirror, and the files in it if it is an archive."""
    path = file.relative_to(mirror).as_posix() if file != mirror else file.name
    paths = (f"{mirror.resolve().name}/{path}",) if file != mirror else (path,)
    if not file.is_file():
        return
    try:
        with open(file, "rb") as stream:
            yield Entry(paths, file.stat().st_size, stream)
            if _kind(file.name)[0]:
                stream.seek(0)
                where = str(file)
                archive = _Archive(stream, file.name, paths, 1, [LARGEST], where, refused)
                yield from archive.read()
    except OSError as error:
        refused.append(str(explain_error(error, file)))


class Hit(NamedTuple):
    """A file of a mirror that may be the wanted one: the mirror and its file that hold it, its
    place, its checksum."""

    mirror: Path
    file: Path
    paths: tuple[str, ...]
    sha256: str


def _sum(stream: IO[bytes]) -> str:
    total = hashlib.sha256()
    while block := stream.read(BLOCK):
        total.update(block)
    return total.hexdigest()


def fits(paths: tuple[str, ...], wanted: str) -> bool:
    return any(f"/{path}".endswith(f"/{wanted}") for path in paths)


_seen: dict[tuple[Any, ...], tuple[list[Hit], list[str]]] = {}


def hits(mirrors: Sequence[Path]) -> tuple[list[Hit], list[str]]:
    """(files of the mirrors that have the size, or the path, of one in sources.yaml; what was not
    read and why).

    The contents of an unchanged file of a mirror are remembered while the process runs, so that
    many data sets cost one search.
    """
    files = [file for source in sources().values() for file in source.files]
    result, refused = [], []
    wanted = tuple(sorted((f.path, f.bytes or -1, f.sha256 is not None) for f in files))
    any_size = any(has_checksum and size < 0 for _, size, has_checksum in wanted)
    sizes = {size for _, size, _ in wanted}
    listed = [(mirror, file) for mirror in mirrors for file in _files(mirror)]
    for mirror, file in tqdm(
        listed, "searching the mirror", unit="file", disable=None, leave=False
    ):
        try:
            about = file.stat()
        except OSError as error:
            refused.append(str(explain_error(error, file)))
            continue
        key = (wanted, mirror, file, about.st_size, about.st_mtime_ns)
        if key not in _seen:
            matches: list[Hit] = []
            odd: list[str] = []
            for entry in _entries(file, mirror, odd):
                by_path = any(fits(entry.paths, path) for path, _, _ in wanted)
                if by_path or any_size or entry.size is None or entry.size in sizes:
                    try:
                        matches.append(Hit(mirror, file, entry.paths, _sum(entry.stream)))
                    except _Refused as error:
                        odd.append(str(error))
                        break
                    except (
                        zlib.error,
                        OSError,
                        EOFError,
                        tarfile.TarError,
                        zipfile.BadZipFile,
                    ) as error:
                        odd.append(f"{file}: cannot be read ({error}); not searched further")
                        break
            _seen[key] = matches, odd
        result += _seen[key][0]
        refused += _seen[key][1]
    return result, refused


def copy_hit(hit: Hit, target: Path) -> None:
    """Write the file of `hit` to `target`."""
    for entry in _entries(hit.file, hit.mirror, []):
        if entry.paths == hit.paths:
            # `atomic_write` would compress a name that ends in .gz again
            coming = target.with_name(target.name + ".new")
            with atomic_write(coming, "wb") as handle:
                shutil.copyfileobj(entry.stream, handle, BLOCK)
            if (got := sha256(coming)) == hit.sha256:
                put_in_place(coming, target)
                return
            coming.unlink()
            raise InputError(
                f"{hit.file}: changed while it was read ({hit.sha256}, then {got}). Run the command"
                " again."
            )
    raise InputError(f"{hit.file}: changed while it was read. Run the command again.")


def member_of(archive: Path, url: str, wanted: str) -> None:
    """Replace a fetched archive by its member `wanted`. Raises InputError when there is none."""
    name = urlsplit(url).path.rpartition("/")[2]
    refused: list[str] = []
    with open(archive, "rb") as stream:
        for entry in _Archive(stream, name, (name,), 1, [LARGEST], url, refused).read():
            if wanted in entry.paths:
                with atomic_write(archive, "wb") as handle:
                    shutil.copyfileobj(entry.stream, handle, BLOCK)
                return
    archive.unlink()
    raise InputError(
        f"{url}: no member {wanted!r} in this archive ({'; '.join(refused) or 'read to its end'}). "
        "Fix sources.yaml."
    )
