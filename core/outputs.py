"""The files that a command writes for its user: what may be written over, and what is complete
already.

    output = Output(path, inputs)                         refuses an input, and a file inside a
                                                          folder of inputs
    facts = output.read_finished(settings, fresh)         of a complete output of the same settings;
                                                          None where it is to be made
    with output.atomic_write(settings, facts) as handle:  writes it, and its manifest beside it
        …

A finished output has OUTPUT.manifest.json beside it, which holds the settings it was made with
(checksums of the inputs among them), its own checksum, and the command's counts. A file without
such a manifest, or one that was changed since, is another's: only `--fresh` replaces it. Devices,
FIFOs and open files (/dev/stdout) are written in order, without a manifest.

    with claimed_files(folder, names, fresh):           for files of fixed names, such as a figure's

The folder then has outputs.json, which holds their checksums; files that it does not describe are
another's.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from core.files import InputError, atomic_write, check_writable, extend_name, is_stream
from core.json_files import read_object, write_json
from core.reading import sha256, unpacked_name

MANIFEST = ".manifest.json"
KEYS = {"settings", "facts", "sha256"}  #: of a manifest
STANDARD_OUTPUT = Path("/dev/stdout")
RECORD = "outputs.json"  #: of a folder's outputs: {name: checksum, none while it is being written}


def check_ending(path: str | Path, endings: Sequence[str], option: str = "") -> str:
    """The ending of an output's name, without that of its compression. Raises InputError for one
    that is not in `endings`.

    A stream has none. option: what says the format where the name does not, for the error.
    """
    ending = Path(unpacked_name(path).lower()).suffix
    if ending in endings or str(path) == "-" or is_stream(path):
        return ending
    advice = f"Give another name, or {option}." if option else "Give another name."
    raise InputError(
        f"{path}: no format has this ending; expected a name that ends in {', '.join(endings)}."
        f" {advice}"
    )


def check_no_input(path: Path, inputs: Sequence[str | Path]) -> None:
    """Raise InputError where an output, a file or a folder, is one of `inputs`, or inside a folder
    of them."""
    places = [Path(os.path.realpath(path)), Path(os.path.abspath(path))]
    for source in map(Path, inputs):
        if not os.path.exists(source):
            continue
        if any(_same(place, source) for place in places):
            raise InputError(f"{path}: an input of the command. Choose another output.")
        if os.path.isdir(source) and any(
            _same(above, source) for place in places for above in place.parents
        ):
            raise InputError(
                f"{path}: inside the folder {source}, which is an input of the command. Choose"
                " another output."
            )


def check_own(path: Path, what: str, is_own: Callable[[str], bool]) -> None:
    """Raise InputError for an existing file that is no earlier output of the same kind.

    what: the kind, for the message. is_own: whether a first line is that of such a file.
    """
    if not path.exists():
        return
    first = ""
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as handle:
            first = handle.readline(1 << 16)
    if path.is_dir() or (path.is_file() and first and not is_own(first)):
        raise InputError(
            f"{path}: there is something here that is no {what}; it is left alone. Choose another"
            " file."
        )


class Output:
    """A file that a command writes for its user. `file` is what is written: of a link, its
    target."""

    def __init__(self, path: str | Path, inputs: Sequence[str | Path] = ()) -> None:
        """Raises InputError for a path that cannot be written, that is one of `inputs`, or is
        inside a folder of them."""
        self.path = STANDARD_OUTPUT if str(path) == "-" else Path(path)
        check_writable(self.path)
        self.stream = is_stream(self.path)
        self.file = self.path if self.stream else Path(os.path.realpath(self.path))
        self.manifest = extend_name(self.file, MANIFEST)
        self.existed = self.file.exists()
        if not self.stream and self.manifest.exists() and read_object(self.manifest).keys() != KEYS:
            raise InputError(
                f"{self.manifest}: no manifest of an output; it is left alone. Choose another"
                " output."
            )
        self.check_inputs(inputs)

    def sibling_path(self, ending: str) -> Path:
        """A name for what is kept beside the output while it is made."""
        return extend_name(self.file, ending)

    def check_inputs(self, inputs: Sequence[str | Path]) -> None:
        """Raise InputError where the output is one of `inputs`, or inside a folder of them."""
        if not self.stream:
            check_no_input(self.path, inputs)

    def _read_manifest(self) -> dict[str, Any] | None:
        """The manifest of the output, where it is the file that the manifest describes."""
        if not self.manifest.is_file():
            return None
        manifest = read_object(self.manifest)
        return manifest if manifest.get("sha256") == sha256(self.file) else None

    def read_finished(
        self, settings: Mapping[str, Any], fresh: bool = False
    ) -> dict[str, Any] | None:
        """The facts of a complete output of the same settings; None where it is to be made.

        Raises InputError, unless `fresh`, for a file that is not such an output, and for one of
        other settings.
        """
        if self.stream or fresh or not self.existed:
            return None
        manifest = self._read_manifest()
        if manifest is None:
            raise InputError(
                f"{self.path}: exists, and is not a file that this command wrote and nobody"
                " changed. Choose another output, or replace it with --fresh."
            )
        identity = json.loads(json.dumps(settings))
        before = manifest.get("settings")
        if before != identity:
            raise InputError(
                f"{self.path}: complete, and made with other settings:"
                f" {_difference(before, identity)}. Choose another output, or make it again with"
                " --fresh."
            )
        facts = manifest.get("facts")
        return facts if isinstance(facts, dict) else {}

    @contextlib.contextmanager
    def atomic_write(
        self, settings: Mapping[str, Any], facts: Mapping[str, Any], mode: str = "w"
    ) -> Iterator[IO[Any]]:
        """Open the output for writing; its manifest is written when the block ends well. Raises
        InputError as `atomic_write` does."""

        def seal(partial: Path) -> None:
            if not self.existed and self.file.exists():
                raise InputError(
                    f"{self.path}: was made by another command meanwhile; it is left alone. Choose"
                    " another output."
                )
            record = {"settings": settings, "facts": facts, "sha256": sha256(partial)}
            write_json(self.manifest, record)

        with atomic_write(self.path, mode, seal) as handle:
            yield handle


@contextlib.contextmanager
def claimed_files(folder: Path | None, names: Sequence[str], fresh: bool = False) -> Iterator[None]:
    """Write files of `names` into `folder` in the block. None: a folder of the program's own, where
    nothing is checked.

    Raises InputError, before the block and unless `fresh`, for an existing file that such a block
    did not write, or that was changed since.
    """
    if folder is None:
        yield
        return
    record = folder / RECORD
    claims = _read_record(record)
    for name in names:
        file = folder / name
        check_writable(file)
        ours = name in claims and claims[name] in (None, sha256(file) if file.is_file() else None)
        if file.exists() and not ours and not fresh:
            raise InputError(
                f"{file}: exists, and is not a file that this command wrote and nobody changed."
                " Choose another folder, or replace it with --fresh."
            )
    write_json(record, claims | dict.fromkeys(names))
    try:
        yield
    finally:
        checksums = {name: sha256(folder / name) for name in names if (folder / name).is_file()}
        write_json(record, {n: s for n, s in claims.items() if n not in names} | checksums)


def _read_record(record: Path) -> dict[str, str | None]:
    if not record.exists():
        return {}
    claims = read_object(record)
    if not all(value is None or isinstance(value, str) for value in claims.values()):
        raise InputError(
            f"{record}: no record of outputs; it is left alone. Choose another folder."
        )
    return claims


def _same(first: Path, other: Path) -> bool:
    """Whether two paths are one file or folder, by whatever names."""
    return first == other or (os.path.exists(first) and os.path.samefile(first, other))


def _difference(before: object, now: Mapping[str, Any]) -> str:
    """What differs between the settings of two runs, in words."""
    if not isinstance(before, dict):
        return "unknown ones"
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(_describe_change(name, before.get(name), now.get(name)) for name in names)


def _describe_change(name: str, before: Any, now: Any) -> str:
    """What differs in a setting; of files with checksums the first that is new, gone or changed."""
    if name == "inputs" and _lists_files(before) and _lists_files(now):
        stored, current = dict(before), dict(now)
        for file in (*current, *stored):
            if stored.get(file) != current.get(file):
                how = "changed" if file in stored and file in current else "new"
                return f"input {file} ({how if file in current else 'no more among them'})"
    return f"{name} ({_shorten_json(before)} before, {_shorten_json(now)} now)"


def _lists_files(value: object) -> bool:
    """Whether a setting lists files with their checksums."""
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in value
    )


def _shorten_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:20]}…{text[-18:]}"
