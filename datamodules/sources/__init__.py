"""A data set's files, fetched and verified (`make data TASK=… MIRROR=…`).

Where they come from, and their checksums, is in sources.yaml. An existing file with the right
checksum is kept; otherwise mirrors are searched, then its address is asked. Mirrors are folders, or
archives, that are searched recursively; a file that is found there is written under its name in
sources.yaml.

    listing     sources.yaml
    mirrors     what folders and archives hold
    addresses   downloads
"""

from __future__ import annotations

import logging
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

from core.choices import list_known
from core.files import PARTIAL, InputError, put_in_place
from core.json_files import read_json, write_json
from core.reading import sha256
from core.tracking import runs_folder
from datamodules.sources.addresses import Unreachable, download
from datamodules.sources.listing import File, Source, sources
from datamodules.sources.mirrors import Hit, copy_hit, fits, hits, member_of

LOG = logging.getLogger(__name__)
_told: set[str] = set()  # what a mirror does not have is reported once


class Fetched(NamedTuple):
    """A data set's folder, and {optional file: why it is not there}."""

    folder: Path
    missing: dict[str, str]


def _mismatch(name: str, file: File, where: str, wanted: str, got: str) -> InputError:
    checksum = (
        ""
        if file.sha256
        else (
            " (That sum is this folder's own, from the first fetch: sums.json; delete its line"
            " there "
        )
    )
    return InputError(
        f"{name}: {where}: checksum mismatch for {file.path}: expected sha256 {wanted}, got {got}."
        " It is another version or damaged: remove it, or give a MIRROR that holds the right"
        f" file.{checksum and checksum + 'to take another version.)'}"
    )


def fetch(
    dataset: str, folder: str | Path, mirrors: Sequence[str | Path] = (), network: bool = True
) -> Fetched:
    """The data set's folder below `folder` with every file that can be had, each verified.

    A file without a recorded sum gets one in `sums.json` beside the data when it first comes, with
    a warning, and is checked from then on. Raises InputError, with the steps in sources.yaml, for a
    file that is needed and cannot be had; and for one whose checksum is not the recorded one.
    """
    by_name = sources()
    if dataset not in by_name:
        raise InputError(f"no data set {dataset!r}; {list_known(dataset, by_name)}")
    source, here = by_name[dataset], Path(folder) / dataset.replace(":", "-")
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
    mirror_hits, refused = hits([Path(m) for m in mirrors])
    for line in refused:
        if line not in _told:
            LOG.warning(line)
        _told.add(line)
    missing: dict[str, str] = {}
    silent: set[str] = set()  # hosts that did not answer
    for file in absent:
        needed = file.sha256 or sums.get(file.path)
        try:
            came = _copy_from_mirror(source, file, needed, mirror_hits, here)
            if came is None and network and file.url is not None:
                came = _download_file(source, file, needed, here, silent)
        except Unreachable as error:
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
            searched = (
                f"in none of {', '.join(map(str, mirrors))}" if mirrors else "no MIRROR was given"
            )
            raise InputError(
                f"{dataset}: {file.path} cannot be had ({searched}; {why}).\n{source.how}\n"
                f"Or put the file at {here / file.path} yourself, and run the command again."
            )
        missing[file.path] = why
    return Fetched(here, missing)


def _record(name: str, here: Path, path: str, got: str, sums: dict[str, str]) -> None:
    sums[path] = got
    write_json(here / "sums.json", sums)
    LOG.warning(
        f"{name}: no checksum of {path} is recorded in sources.yaml, so this file's is taken as"
        f" right from now on: {got} ({here / 'sums.json'})"
    )


def _copy_from_mirror(
    source: Source, file: File, wanted: str | None, mirror_hits: Sequence[Hit], here: Path
) -> str | None:
    same = [hit for hit in mirror_hits if hit.sha256 == wanted]
    named = [hit for hit in mirror_hits if fits(hit.paths, file.path)]
    if not same and named and wanted is not None:
        raise _mismatch(source.name, file, f"{named[0].file}", wanted, named[0].sha256)
    if len({hit.sha256 for hit in named}) > 1 and wanted is None:
        places = ", ".join(sorted({f"{hit.file} ({hit.sha256[:12]})" for hit in named}))
        raise InputError(
            f"{source.name}: {file.path} is in the mirrors in several versions: {places}. "
            "Give a MIRROR that holds one of them."
        )
    for hit in (*same, *named)[:1]:
        copy_hit(hit, here / file.path)
        return hit.sha256
    return None


def _download_file(
    source: Source, file: File, wanted: str | None, here: Path, silent: set[str]
) -> str:
    target, url = here / file.path, cast(str, file.url)
    host = urllib.parse.urlsplit(url).netloc
    if host in silent:
        raise Unreachable(f"{url}: {host} does not answer")
    try:
        for again in (True, False):
            # the file's own name is only for what is verified
            coming = target.with_name(target.name + ".new")
            resumed = coming.with_name(coming.name + PARTIAL).exists()
            download(url, coming, f"{source.name} {file.path}")
            if file.archive is not None:
                member_of(coming, url, file.archive)
            got = sha256(coming)
            if wanted is None or got == wanted:
                put_in_place(coming, target)
                return got
            coming.unlink()
            # what was resumed may have been another version's beginning
            if not (resumed and again):
                raise _mismatch(source.name, file, url, wanted, got)
    except Unreachable as error:
        if error.host:
            silent.add(host)
        raise
    raise AssertionError


def place() -> Path:
    """Where data sets are by default: data/benchmarks/raw of the runs folder."""
    return runs_folder() / "data" / "benchmarks" / "raw"


def fetch_dataset(
    dataset: str, data: str | Path, mirror: Sequence[str | Path] = (), network: bool = True
) -> Path:
    """Fetch and verify a data set's files, and report optional ones that are not available. Returns
    the data set's folder.

    Args:
        dataset: Name in datamodules/sources/sources.yaml.
        data: Folder that the data set's folder is in.
        mirror: Folders or archives that hold the files.
        network: Whether files that no mirror holds are downloaded.

    Raises InputError as :func:`fetch`.
    """
    result = fetch(dataset, data, mirror, network)
    for path, why in result.missing.items():
        LOG.warning(f"{dataset}: without {path} ({why})")
    return result.folder
