"""sources.yaml as objects: every public data set, its files, their addresses and sums."""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import yaml

from core.files import InputError

SOURCES = Path(__file__).parent / "sources.yaml"


class File(NamedTuple):
    """A file of a data set: `path` in its folder; sha256 and bytes None where they are not
    known."""

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
                raise InputError(
                    f"{path}: {name}: {relative!r} does not stay in the data set's folder."
                )
            files.append(
                File(
                    relative,
                    file["url"],
                    file["sha256"],
                    file.get("bytes"),
                    file.get("optional", False),
                    file.get("archive"),
                )
            )
        result[name] = Source(
            name, entry["licence"], entry["citation"], entry["how"].strip(), tuple(files)
        )
    return result


def sources() -> dict[str, Source]:
    """{data set: where it comes from}, as sources.yaml says."""
    return _sources(SOURCES)
