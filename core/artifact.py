"""A folder that a command built: its manifest, its checksums, and whether it is kept.

    PAIRS = Artifact("pairs", "kepl data pairs --help", FORMAT)

    if PAIRS.is_kept(folder, {"recipe": recipe}, fresh):   # made of the same: says so
        return folder
    with PAIRS.create(folder, manifest) as partial:       # whole or not at all
        ...
    manifest = PAIRS.read(folder)                          # its files verified

The manifest, a JSON object in the folder, says what the folder was made of, its format and counts,
and under `sha256` the checksums of its files.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.files import InputError, atomic_folder
from core.json_files import digest, read_json, read_object, write_json
from core.reading import sha256

MANIFEST = "manifest.json"
SETTINGS = ("settings", "recipe")  #: what a folder was made of, where it is under one key
#: keys of a manifest that say when, where and in which run a folder was made, not what is in it
CIRCUMSTANCES = frozenset("mlflow_run commit run_folder machine cpus seconds".split())


def manifest_path(folder: str | Path) -> Path:
    """Where the manifest of a folder is, or would be."""
    return Path(folder) / MANIFEST


def has_manifest(folder: str | Path) -> bool:
    """Whether a command built this folder, and finished."""
    return manifest_path(folder).is_file()


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a folder. Raises InputError where there is none, or a broken one."""
    return read_object(manifest_path(folder))


def content_digest(folder: str | Path) -> str:
    """A digest of what is in a folder, by its manifest.

    The same for a folder that is made again to the same bytes: what is made from it is kept then.
    A manifest.json that is no JSON object, as other programs write, counts by its bytes.
    """
    manifest = read_json(manifest_path(folder))
    if not isinstance(manifest, dict):
        return sha256(manifest_path(folder))
    left_out = set(CIRCUMSTANCES)
    if "identity" in manifest:  # of an export: stands for its checksums
        left_out.add("checksums")
    return digest({key: value for key, value in manifest.items() if key not in left_out})


def write_manifest(folder: str | Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a folder that is whole."""
    write_json(manifest_path(folder), manifest)


def format_counts(folder: str | Path) -> str:
    """What the manifest of a folder counts, a line each, and what it says was left out."""
    manifest = read_manifest(folder) if has_manifest(folder) else {}
    lines = [str(folder)]
    for what, count in manifest.get("counts", {}).items():
        lines.append(f"{count:>12,} {what.replace('_', ' ')}")
    for reason, count in sorted(manifest.get("left_out", {}).items()):
        lines.append(f"left out: {count:,} {reason}")
    return "\n".join(lines)


def files_in(folder: Path) -> list[Path]:
    """The files below a folder, but the manifest, in order."""
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path != manifest_path(folder)
    )


@dataclass(frozen=True)
class Artifact:
    """A kind of folder that a command builds.

    name      in messages: "knowledge graph"
    command   what builds it
    format    of the folder; it is in the manifest, or in the one of SETTINGS that is in `keys`
    keys      that a manifest has
    verified  the files whose checksums the manifest has: `{}` all, by name; `{}.npy` all, without
              their ending; one file's name: that file alone; empty: none
    """

    name: str
    command: str
    format: int | None = None
    keys: tuple[str, ...] = ()
    verified: str = "{}"

    def manifest(self, folder: str | Path) -> dict[str, Any]:
        """The manifest of such a folder. Raises InputError where the folder is none, or of another
        format."""
        if not has_manifest(folder):
            raise InputError(
                f"{folder}: no {self.name} here ({MANIFEST} is missing). Build it: {self.command}"
            )
        manifest = read_manifest(folder)
        if not self._describes(manifest):
            form = "" if self.format is None else f" of format {self.format}"
            raise InputError(
                f"{manifest_path(folder)}: no {self.name}{form}. Build it again: {self.command}"
            )
        if "{}" in self.verified and not isinstance(manifest.get("sha256"), dict):
            raise InputError(
                f"{manifest_path(folder)}: expected an object under sha256. Build it again:"
                f" {self.command}"
            )
        return manifest

    def _describes(self, manifest: Mapping[str, Any]) -> bool:
        inside = next((manifest.get(key) for key in SETTINGS if key in self.keys), manifest)
        stored = inside.get("format") if isinstance(inside, Mapping) else None
        return stored == self.format and manifest.keys() >= set(self.keys)

    def read(self, folder: str | Path, files: Collection[str] | None = None) -> dict[str, Any]:
        """The manifest of such a folder, whose `files` (all) are those that it describes. Raises
        InputError."""
        manifest = self.manifest(folder)
        self.check(folder, manifest, files)
        return manifest

    def check(
        self, folder: str | Path, manifest: Mapping[str, Any], files: Collection[str] | None = None
    ) -> None:
        """Raise InputError unless `files` (all) are those that the manifest describes."""
        if self.verified:
            sums = manifest.get("sha256")
            if isinstance(sums, str):
                sums = {self.verified: sums}
            elif isinstance(sums, dict):
                sums = {self.verified.format(name): checksum for name, checksum in sums.items()}
            if files is not None and isinstance(sums, dict):
                sums = {name: sums.get(name, "") for name in files}
            check_files(folder, sums, f"Build it again: {self.command}")

    def is_kept(
        self,
        folder: str | Path,
        made_of: Mapping[str, Any],
        fresh: bool = False,
        quiet: bool = False,
    ) -> bool:
        """Whether `folder` holds a whole one that was made of the same, which is said unless
        `quiet`; a damaged one is built again.

        made_of: {key of the manifest: value}. Raises InputError where the folder holds something
        else.
        """
        folder, expected = Path(folder), json.loads(json.dumps(made_of))
        if not has_manifest(folder):
            self.check_replaceable(folder)
            return False
        try:
            manifest = read_manifest(folder)
            same = all(manifest.get(key) == value for key, value in expected.items())
            if same and not fresh:
                self.check(folder, manifest)
        except InputError as error:
            print(f"{error}\n{folder}: built again", file=sys.stderr)
            return False
        described = expected.keys() <= manifest.keys() or (self.keys and self._describes(manifest))
        if not described:
            raise self._other(folder)
        if not same and not fresh:
            changed = sorted(key for key, value in expected.items() if manifest.get(key) != value)
            print(
                f"{folder}: built again, in place of a {self.name} of other {', '.join(changed)}",
                file=sys.stderr,
            )
        if fresh or not same:
            return False
        if not quiet:
            self.say_kept(folder)
        return True

    def check_replaceable(self, folder: str | Path) -> None:
        """Raise InputError where `folder` holds something that is none of this kind: it would be
        deleted."""
        folder = Path(folder)
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return
        if not has_manifest(folder):
            raise self._other(folder)
        try:
            manifest = read_manifest(folder)
        except InputError:
            return  # a damaged one is built again
        if not manifest.keys() >= set(self.keys):
            raise self._other(folder)

    def _list_foreign(self, folder: Path) -> list[Path]:
        """The files of a folder that its manifest does not have: somebody has added them."""
        if self.verified != "{}" or not has_manifest(folder):
            return []
        try:
            checksums = read_manifest(folder).get("sha256")
        except InputError:
            return []
        listed = {folder / name for name in checksums} if isinstance(checksums, dict) else set()
        return [file for file in files_in(folder) if file not in listed] if listed else []

    def say_kept(self, folder: Path) -> None:
        """Say that a folder is kept, on standard error."""
        line = f"{folder}: kept: {self.name} of the same inputs and settings"
        print(f"{line} (--fresh builds it again)", file=sys.stderr)

    def _other(self, folder: Path) -> InputError:
        return InputError(
            f"{folder}: there is something here that is no {self.name}; it is left alone. Choose"
            " another folder."
        )

    @contextlib.contextmanager
    def create(self, folder: str | Path, manifest: Mapping[str, Any]) -> Iterator[Path]:
        """A folder to fill, which becomes `folder`, with its manifest, whole or not at all. The
        block may add to `manifest`. Files that somebody has added to an older one stay. Raises
        InputError where `folder` holds something else."""
        folder = Path(folder)
        self.check_replaceable(folder)
        foreign = self._list_foreign(folder)
        with atomic_folder(folder) as partial:
            yield partial
            write_manifest(partial, {**manifest, **self._checksums(partial)})
            for file in foreign:
                place = partial / file.relative_to(folder)
                if not place.exists():
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(file, place)

    def _checksums(self, folder: Path) -> dict[str, Any]:
        if not self.verified:
            return {}
        if "{}" not in self.verified:
            return {"sha256": sha256(folder / self.verified)}
        ending = self.verified.removeprefix("{}")
        files = files_in(folder)
        names = [file.relative_to(folder).as_posix().removesuffix(ending) for file in files]
        return {"sha256": dict(zip(names, map(sha256, files), strict=True))}


def check_export(folder: str | Path) -> None:
    """Raise InputError unless the files of an export, or of its encoder/, are those whose checksums
    its manifest holds.

    A folder without a manifest of an export (a model of the hub, or of somebody else) has none to
    hold to.
    """
    folder = Path(folder)
    for place, part in ((folder, ""), (folder.parent, f"{folder.name}/")):
        if not has_manifest(place):
            continue
        manifest = read_json(manifest_path(place))
        sums = manifest.get("checksums") if isinstance(manifest, dict) else None
        is_export = not part and isinstance(manifest, dict) and "paper" in manifest
        if is_export or (
            isinstance(sums, dict) and (not part or any(name.startswith(part) for name in sums))
        ):
            check_files(place, sums, "Export the run again.")
        return


def check_files(folder: str | Path, sums: object, again: str) -> None:
    """Raise InputError unless each file of `sums`, {name in `folder`: SHA-256}, is there and has
    it; `again` says what to do then.

    A process reads a file a single time while its size and time stay.
    """
    if not isinstance(sums, dict) or not all(
        isinstance(word, str) for pair in sums.items() for word in pair
    ):
        raise InputError(
            f"{manifest_path(folder)}: expected checksums of files, found none. {again}"
        )
    files = [Path(folder) / name for name in sums]
    versions = [
        (f.stat().st_size, f.stat().st_mtime_ns) if os.path.isfile(f) else None for f in files
    ]
    _hold(str(folder), tuple(sums.items()), tuple(versions), again)


@lru_cache(32)
def _hold(
    place: str, sums: tuple[tuple[str, str], ...], versions: tuple[object, ...], again: str
) -> None:
    files = [Path(place) / name for name, _ in sums]
    with ThreadPoolExecutor(4) as threads:  # hashing leaves Python's lock
        computed = threads.map(lambda file: sha256(file) if os.path.isfile(file) else None, files)
    for file, (_, checksum), actual in zip(files, sums, computed, strict=True):
        if actual != checksum:
            raise InputError(f"{file}: missing, or not the file its manifest describes. {again}")
