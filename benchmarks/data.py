"""python -m benchmarks.data TASK [--mirror FOLDER ...]: fetch and verify a task's files (`make data TASK=… MIRROR=…`).

Where they come from, and their sums, stands in sources.yaml. A file that is there and right is kept; otherwise mirrors
are searched, then its address is asked. Mirrors are folders, or archives, that are searched recursively, inside
.tar, .tar.gz, .tgz, .zip and .gz too; nothing is unpacked but the wanted file, under the name that sources.yaml gives.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import http.client
import os
import shutil
import socket
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

import yaml
from tqdm import tqdm

from benchmarks.linking.tasks import task as linking_task
from benchmarks.linking.tasks import tasks as linking_tasks
from benchmarks.tasks import task
from kg.files import PARTIAL, InputError, explained, read_json, sha256, write_json, written
from kg.tracking import runs_folder

SOURCES = Path(__file__).with_name("sources.yaml")
LARGEST = 2 << 30  # bytes that one archive of a mirror, or one address, may give
DEEPEST = 3  # archives within archives
MEMBERS = 100_000  # files in one archive
TIMEOUT, TRIES, PAUSE = 30.0, 3, 2.0  # seconds for an answer, attempts, seconds between them
BLOCK = 1 << 20


class File(NamedTuple):
    """A file of a data set: `path` in its folder; sha256 and bytes None where they are not known."""

    path: str
    url: str | None
    sha256: str | None
    bytes: int | None
    optional: bool
    archive: str | None


class Source(NamedTuple):
    name: str
    licence: str
    citation: str
    how: str
    files: tuple[File, ...]


class Fetched(NamedTuple):
    """A data set's folder, and {optional file: why it is not there}."""

    folder: Path
    missing: dict[str, str]


class _Refused(Exception):
    """Something in a mirror that is not read; the text says what and why."""


@cache
def _sources(path: Path) -> dict[str, Source]:
    with open(path, encoding="utf-8") as handle:
        listed = yaml.safe_load(handle)
    result = {}
    for name, entry in listed.items():
        files = []
        for relative, file in entry["files"].items():
            parts = PurePosixPath(relative).parts
            if not parts or ".." in parts or relative.startswith("/"):
                raise InputError(f"{path}: {name}: {relative!r} does not stay in the data set's folder.")
            files.append(File(relative, file["url"], file["sha256"], file.get("bytes"), file.get("optional", False),
                              file.get("archive")))  # fmt: skip
        result[name] = Source(name, entry["licence"], entry["citation"], entry["how"].strip(), tuple(files))
    return result


def sources() -> dict[str, Source]:
    """{data set: where it comes from}, as sources.yaml says."""
    return _sources(SOURCES)


# what a mirror holds


class Entry(NamedTuple):
    """A file in a mirror. `paths` are its possible places: each archive on the way counted as a folder, or not."""

    paths: tuple[str, ...]
    size: int | None
    stream: IO[bytes]


class _Counted:
    """A stream that refuses to give more than what is left of `room` [bytes], which all streams of an archive share."""

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
    for ending, kind in ((".tar.gz", "tar"), (".tgz", "tar"), (".tar", "tar"), (".zip", "zip"), (".gz", "gz")):
        if low.endswith(ending) and len(name) > len(ending):
            return kind, name[: -len(ending)]
    return "", name


def _safe(name: str, where: str) -> str:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if name.startswith(("/", "\\")) or ".." in parts or (parts and ":" in parts[0][1:2]):
        raise _Refused(f"{where}: member {name!r} leaves the archive; not read")
    return "/".join(parts)


def _inside(
    stream: IO[bytes], name: str, paths: tuple[str, ...], depth: int, room: list[int], where: str, refused: list[str]
) -> Iterator[Entry]:
    """The files in an archive that `stream` gives, and in archives in it. A stream is read before the next is asked."""
    kind, stem = _kind(name)
    folders = tuple(p.removesuffix(name) for p in paths)  # beside the archive; or in a folder of its name

    def within(member: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(place + m for place in folders for m in (member, f"{stem}/{member}")))

    def deeper(entry: Entry, member: str) -> Iterator[Entry]:
        inner = PurePosixPath(member).name
        if not _kind(inner)[0]:
            yield entry
            return
        if depth >= DEEPEST:
            refused.append(f"{where}!{member}: archives within archives, more than {DEEPEST} deep; not read")
            yield entry
            return
        with tempfile.SpooledTemporaryFile(64 << 20) as copy:
            shutil.copyfileobj(entry.stream, copy, BLOCK)
            copy.seek(0)
            yield entry._replace(stream=cast(IO[bytes], copy))
            copy.seek(0)
            below = cast(IO[bytes], copy)
            yield from _inside(below, inner, entry.paths, depth + 1, room, f"{where}!{member}", refused)

    def counted(raw: Any) -> IO[bytes]:
        return cast(IO[bytes], _Counted(raw, room, where))

    try:
        if kind == "gz":
            yield from deeper(
                Entry(tuple(f + stem for f in folders), None, counted(gzip.GzipFile(fileobj=stream, mode="rb"))), stem
            )
        elif kind == "tar":
            raw = (
                counted(gzip.GzipFile(fileobj=stream, mode="rb"))
                if not name.lower().endswith(".tar")
                else counted(stream)
            )
            with tarfile.open(fileobj=raw, mode="r|") as tar:
                for number, member in enumerate(tar):
                    if number >= MEMBERS:
                        raise _Refused(f"{where}: more than {MEMBERS:,} files; the rest is not read")
                    if member.isdir():
                        continue
                    if not member.isreg():
                        refused.append(f"{where}: member {member.name!r} is a link or a device; not read")
                        continue
                    try:
                        inner = _safe(member.name, where)
                    except _Refused as error:
                        refused.append(str(error))
                        continue
                    content = cast(IO[bytes], tar.extractfile(member))
                    yield from deeper(Entry(within(inner), member.size, content), inner)
        elif kind == "zip":
            with zipfile.ZipFile(stream) as archive:
                infos = archive.infolist()
                if len(infos) > MEMBERS:
                    raise _Refused(f"{where}: more than {MEMBERS:,} files; not read")
                for info in infos:
                    if info.is_dir():
                        continue
                    if (info.external_attr >> 28) not in (0, 8):  # the Unix file type: unknown, or a plain file
                        refused.append(f"{where}: member {info.filename!r} is a link or a device; not read")
                        continue
                    try:
                        inner = _safe(info.filename, where)
                    except _Refused as error:
                        refused.append(str(error))
                        continue
                    with archive.open(info) as content:
                        yield from deeper(Entry(within(inner), info.file_size, counted(content)), inner)
    except _Refused as error:
        refused.append(str(error))
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        OSError,
        EOFError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        refused.append(f"{where}: cannot be read ({error}); not searched further")


def _files(mirror: Path) -> Iterator[Path]:
    if not mirror.exists():
        raise InputError(f"{mirror}: no such folder or archive, given as MIRROR. Check the path.")
    if mirror.is_file():
        yield mirror
        return
    seen = set()
    for folder, below, names in os.walk(mirror, followlinks=True):
        real = os.path.realpath(folder)
        below[:] = sorted(b for b in below if b not in (".git", "__pycache__")) if real not in seen else []
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
                yield from _inside(stream, file.name, paths, 1, [LARGEST], str(file), refused)
    except OSError as error:
        refused.append(str(explained(error, file)))


class Hit(NamedTuple):
    """A file of a mirror that may be the wanted one: the mirror and its file that hold it, its place, its sum."""

    mirror: Path
    file: Path
    paths: tuple[str, ...]
    sha256: str


def _sum(stream: IO[bytes]) -> str:
    total = hashlib.sha256()
    while block := stream.read(BLOCK):
        total.update(block)
    return total.hexdigest()


def _fits(paths: tuple[str, ...], wanted: str) -> bool:
    return any(f"/{path}".endswith(f"/{wanted}") for path in paths)


_told: set[str] = set()  # what a mirror does not give is told once
_seen: dict[tuple[Any, ...], tuple[list[Hit], list[str]]] = {}


def hits(mirrors: Sequence[Path]) -> tuple[list[Hit], list[str]]:
    """(files of the mirrors that have the size, or the path, of one in sources.yaml; what was not read and why).

    What an unchanged file of a mirror gave is remembered while the process runs, so that many data sets cost one search.
    """
    files = [file for source in sources().values() for file in source.files]
    result, refused = [], []
    wanted = tuple(sorted((f.path, f.bytes or -1, f.sha256 is not None) for f in files))
    any_size = any(known and size < 0 for _, size, known in wanted)
    sizes = {size for _, size, _ in wanted}
    listed = [(mirror, file) for mirror in mirrors for file in _files(mirror)]
    for mirror, file in tqdm(listed, "searching the mirror", unit="file", disable=None, leave=False):
        try:
            about = file.stat()
        except OSError as error:
            refused.append(str(explained(error, file)))
            continue
        key = (wanted, mirror, file, about.st_size, about.st_mtime_ns)
        if key not in _seen:
            found: list[Hit] = []
            odd: list[str] = []
            for entry in _entries(file, mirror, odd):
                by_path = any(_fits(entry.paths, path) for path, _, _ in wanted)
                if by_path or any_size or entry.size is None or entry.size in sizes:
                    try:
                        found.append(Hit(mirror, file, entry.paths, _sum(entry.stream)))
                    except _Refused as error:
                        odd.append(str(error))
                        break
                    except (zlib.error, OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
                        odd.append(f"{file}: cannot be read ({error}); not searched further")
                        break
            _seen[key] = found, odd
        result += _seen[key][0]
        refused += _seen[key][1]
    return result, refused


def _copy(hit: Hit, target: Path) -> None:
    """Write what `hit` stands for to `target`."""
    for entry in _entries(hit.file, hit.mirror, []):
        if entry.paths == hit.paths:
            coming = target.with_name(target.name + ".new")  # `written` would compress a name that ends in .gz again
            with written(coming, "wb") as handle:
                shutil.copyfileobj(entry.stream, handle, BLOCK)
            if (got := sha256(coming)) == hit.sha256:
                os.replace(coming, target)
                return
            coming.unlink()
            raise InputError(
                f"{hit.file}: changed while it was read ({hit.sha256}, then {got}). Run the command again."
            )
    raise InputError(f"{hit.file}: changed while it was read. Run the command again.")


# addresses


class _Unreachable(Exception):
    """An address that gives nothing now; the text says why. `host` is True where the whole host does not answer."""

    def __init__(self, why: str, host: bool = False) -> None:
        super().__init__(why)
        self.host = host


def download(url: str, target: Path, label: str) -> None:
    """Fetch `url` to `target`, from where an earlier attempt was cut (`target`.partial). Raises _Unreachable."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"{url}: wanted an http or https address. Mend sources.yaml.")
    partial = target.with_name(target.name + PARTIAL)
    why: _Unreachable | None = None
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE)
        try:
            _attempt(url, partial, label)
            os.replace(partial, target)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # what is there is longer than the file: begin again
                partial.unlink(missing_ok=True)
            why = _Unreachable(f"{url}: the server answers {error.code} {error.reason}")
            if error.code not in (408, 416, 429) and error.code < 500:
                break
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            why = _Unreachable(f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}",
                               isinstance(error, urllib.error.URLError))  # fmt: skip
            if isinstance(getattr(error, "reason", None), (socket.gaierror, TimeoutError)):
                break  # no network, no such host, or one that lets us wait: asking again at once does not help
        except OSError as error:
            raise explained(error, partial) from error
    assert why is not None
    raise why


def _attempt(url: str, partial: Path, label: str) -> None:
    partial.parent.mkdir(parents=True, exist_ok=True)
    there = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(
        url, headers={"User-Agent": "kepl"} | ({"Range": f"bytes={there}-"} if there else {})
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        begins = (answer.headers.get("Content-Range") or "").partition(" ")[2].partition("-")[0]
        if answer.status != 206 or begins != str(there):
            there = 0
            if answer.status == 206:
                partial.unlink(missing_ok=True)
                raise http.client.HTTPException(
                    f"answered with another part ({begins or 'unnamed'}) than was asked for"
                )
        length = answer.headers.get("Content-Length")
        total = there + int(length) if length else None
        with (
            open(partial, "ab" if there else "wb") as handle,
            tqdm(total=total, initial=there, unit="B", unit_scale=True, desc=label, disable=None) as bar,
        ):
            while block := answer.read(1 << 16):
                there += len(block)
                if there > LARGEST:
                    raise InputError(f"{url}: gives more than {LARGEST:,} bytes. Check the address in sources.yaml.")
                handle.write(block)
                bar.update(len(block))
    if total is not None and there < total:
        raise http.client.HTTPException(f"the connection was cut after {there:,} of {total:,} bytes")


# a data set


def _mismatch(name: str, file: File, where: str, wanted: str, got: str) -> InputError:
    own = (
        ""
        if file.sha256
        else " (That sum is this folder's own, from the first fetch: sums.json; delete its line there "
    )
    return InputError(
        f"{name}: {where}: checksum mismatch for {file.path}: wanted sha256 {wanted}, got {got}. It is another version or "
        f"damaged: remove it, or give a MIRROR that holds the right file.{own and own + 'to take another version.)'}"
    )


def fetch(dataset: str, folder: str | Path, mirrors: Sequence[str | Path] = (), network: bool = True) -> Fetched:
    """The data set's folder below `folder` with every file that can be had, each verified.

    A file without a recorded sum gets one in `sums.json` beside the data when it first comes, with a warning, and is
    checked from then on. Raises InputError, with the steps that sources.yaml gives, for a file that is needed and cannot
    be had; and for one whose sum is not the recorded one.
    """
    known = sources()
    if dataset not in known:
        raise InputError(f"no data set {dataset!r}; choose from: {', '.join(known)}")
    source, here = known[dataset], Path(folder) / dataset.replace(":", "-")
    sums: dict[str, str] = read_json(here / "sums.json") if (here / "sums.json").exists() else {}
    wrong: dict[str, str] = {}
    absent = []
    for file in source.files:
        target, wanted = here / file.path, file.sha256 or sums.get(file.path)
        if not target.is_file():
            absent.append(file)
        elif wanted is None:
            _record(source.name, here, file.path, sha256(target), sums)
        elif (got := sha256(target)) != wanted:
            wrong[file.path] = got
            absent.append(file)
    if not absent:
        return Fetched(here, {})
    found, refused = hits([Path(m) for m in mirrors])
    for line in refused:
        if line not in _told:
            print(f"warning: {line}", file=sys.stderr)
        _told.add(line)
    missing: dict[str, str] = {}
    silent: set[str] = set()  # hosts that did not answer
    for file in absent:
        needed = file.sha256 or sums.get(file.path)
        try:
            came = _mirrored(source, file, needed, found, here)
            if came is None and network and file.url is not None:
                came = _downloaded(source, file, needed, here, silent)
        except _Unreachable as error:
            why = str(error)
        else:
            if came is not None:
                if needed is None:
                    _record(source.name, here, file.path, came, sums)
                continue
            why = "no public address" if file.url is None else "not asked for at its address"
        if file.path in wrong:
            raise _mismatch(dataset, file, str(here / file.path), needed or "", wrong[file.path])
        if not file.optional:
            searched = f"in none of {', '.join(map(str, mirrors))}" if mirrors else "no MIRROR was given"
            raise InputError(
                f"{dataset}: {file.path} cannot be had ({searched}; {why}).\n{source.how}\n"
                f"Or put the file at {here / file.path} yourself, and run the command again."
            )
        missing[file.path] = why
    return Fetched(here, missing)


def _record(name: str, here: Path, path: str, got: str, sums: dict[str, str]) -> None:
    sums[path] = got
    write_json(here / "sums.json", sums)
    print(f"warning: {name}: no sum of {path} is recorded in sources.yaml, so this file's is taken as right from now on: "
          f"{got} ({here / 'sums.json'})", file=sys.stderr)  # fmt: skip


def _mirrored(source: Source, file: File, wanted: str | None, found: Sequence[Hit], here: Path) -> str | None:
    same = [hit for hit in found if hit.sha256 == wanted]
    named = [hit for hit in found if _fits(hit.paths, file.path)]
    if not same and named and wanted is not None:
        raise _mismatch(source.name, file, f"{named[0].file}", wanted, named[0].sha256)
    if len({hit.sha256 for hit in named}) > 1 and wanted is None:
        places = ", ".join(sorted({f"{hit.file} ({hit.sha256[:12]})" for hit in named}))
        raise InputError(f"{source.name}: {file.path} stands in the mirrors in several versions: {places}. "
                         "Give a MIRROR that holds one of them.")  # fmt: skip
    for hit in (*same, *named)[:1]:
        _copy(hit, here / file.path)
        return hit.sha256
    return None


def _downloaded(source: Source, file: File, wanted: str | None, here: Path, silent: set[str]) -> str:
    target, url = here / file.path, cast(str, file.url)
    host = urllib.parse.urlsplit(url).netloc
    if host in silent:
        raise _Unreachable(f"{url}: {host} does not answer")
    try:
        for again in (True, False):
            coming = target.with_name(target.name + ".new")  # the file's own name is only for what is verified
            resumed = coming.with_name(coming.name + PARTIAL).exists()
            download(url, coming, f"{source.name} {file.path}")
            if file.archive is not None:
                _member(coming, url, file.archive)
            got = sha256(coming)
            if wanted is None or got == wanted:
                os.replace(coming, target)
                return got
            coming.unlink()
            if not (resumed and again):  # what was resumed may have been another version's beginning
                raise _mismatch(source.name, file, url, wanted, got)
    except _Unreachable as error:
        if error.host:
            silent.add(host)
        raise
    raise AssertionError


def _member(archive: Path, url: str, wanted: str) -> None:
    """Replace a fetched archive by its member `wanted`."""
    name = urllib.parse.urlsplit(url).path.rpartition("/")[2]
    refused: list[str] = []
    with open(archive, "rb") as stream:
        for entry in _inside(stream, name, (name,), 1, [LARGEST], url, refused):
            if wanted in entry.paths:
                with written(archive, "wb") as handle:
                    shutil.copyfileobj(entry.stream, handle, BLOCK)
                return
    archive.unlink()
    raise InputError(f"{url}: no member {wanted!r} in this archive ({'; '.join(refused) or 'read to its end'}). "
                     "Mend sources.yaml.")  # fmt: skip


def place() -> Path:
    """Where data sets lie unless told otherwise: data/benchmarks/raw of the runs folder."""
    return runs_folder() / "data" / "benchmarks" / "raw"


def fetched(dataset: str, folder: str | Path, mirrors: Sequence[str | Path] = (), network: bool = True) -> Path:
    """:func:`fetch`, telling about optional files that are not there. Returns the data set's folder."""
    result = fetch(dataset, folder, mirrors, network)
    for path, why in result.missing.items():
        print(f"{dataset}: without {path} ({why})", file=sys.stderr)
    return result.folder


def dataset_of(name: str) -> str | None:
    """The data set of a task, or the data set of that name; None for a task that needs none. Raises InputError."""
    if name in linking_tasks():
        return linking_task(name).dataset
    return name if name in sources() else task(name).dataset


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.data", description=cast(str, __doc__).splitlines()[0])
    parser.add_argument("task", help="a task's name, such as cMedQANER or NCBI-EL, or a data set's")
    parser.add_argument(
        "--mirror", nargs="*", action="extend", default=[], help="folders or archives that hold the files"
    )
    parser.add_argument("--data", default=str(place()), help=f"where data sets lie (default: {place()})")
    given = parser.parse_args(argv)
    try:
        dataset = dataset_of(given.task)
        if dataset is None:
            print(f"{given.task}: nothing to fetch; its data come with the installed packages")
            return 0
        source = sources()[dataset]
        folder = fetched(dataset, given.data, given.mirror)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    there = [file.path for file in source.files if (folder / file.path).is_file()]
    print(f"{folder}: {len(there)} of {len(source.files)} files of {dataset}, verified")
    print(f"licence: {source.licence}\ncite: {source.citation}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
