"""Read the list of faults, check it against a tree, and put one fault into a tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

LIST = Path(__file__).with_name("faults.yaml")


@dataclass(frozen=True)
class Fault:
    """A change of one place: `old` -> `new` in `file`; at least one of `tests` must fail with it.

    reason: why no test can notice it (the program does the same); empty for every other fault.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    reason: str = ""


def read(path: Path = LIST) -> list[Fault]:
    """The faults in a YAML list. Raises ValueError for an entry that is not complete and for a name
    that occurs twice."""
    faults = []
    for entry in yaml.safe_load(path.read_text()):
        try:
            faults.append(Fault(**entry | {"tests": tuple(entry["tests"])}))
        except (TypeError, KeyError) as error:
            raise ValueError(
                f"{path.name}: {entry.get('name', entry)}: expected {FIELDS} ({error})"
            ) from error
    names = [fault.name for fault in faults]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path.name}: names that occur twice: {', '.join(sorted(twice))}")
    return faults


FIELDS = "name, file, old, new, tests and, for a fault that no test can notice, reason"


def staleness(fault: Fault, root: Path) -> str:
    """Why the fault does not fit the tree in `root`; empty when it does."""
    path = root / fault.file
    if not path.is_file():
        return f"no file {fault.file}"
    if (found := path.read_text().count(fault.old)) != 1:
        return f"`old` occurs {found} times in {fault.file}, expected once: {fault.old!r}"
    if fault.old == fault.new:
        return "`new` equals `old`"
    if not fault.tests:
        return "no tests are named"
    for test in fault.tests:
        place, *parts = test.split("::")
        if not (root / place).exists():
            return f"no test file {place}"
        for part in parts:
            if not re.search(
                rf"^ *(def|class) {re.escape(part.split('[')[0])}\b",
                (root / place).read_text(),
                re.M,
            ):
                return f"no test {part} in {place}"
    return ""


@contextmanager
def inserted(fault: Fault, root: Path) -> Iterator[None]:
    """While this is open, the tree in `root` has the fault. Raises ValueError when the fault does
    not fit the tree."""
    if why := staleness(fault, root):
        raise ValueError(why)
    path = root / fault.file
    content = path.read_text()
    path.write_text(content.replace(fault.old, fault.new))
    try:
        yield
    finally:
        path.write_text(content)
