"""Mutate every reader's valid file and read it: python -m tests.fuzz [--seconds 60] [--inputs 20]
[--seed 0] [--only NAME]

Each input is a valid file with one to three changes (bytes, lines, fields, encodings, sizes), made
from the seed, the reader's name and the input's number, so that `--only NAME --first NUMBER
--inputs 1` reads one again. It is read in a process that may take MEMORY more than it has and
SECONDS an input. A crash is anything but a result or an InputError. Prints a table by reader:
inputs, those that were refused, crashes, and rows that were neither used nor counted as left out.
Exit code 1 after a crash.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from core.files import InputError
from tests.fuzz.readers import READERS, Reader

MEMORY, SECONDS, LARGEST = 1 << 30, 20, 4 << 20  # bytes of memory, seconds and bytes of an input
NUMBERS = (
    "-1",
    "0",
    "1.0",
    "12.0",
    "0 ",
    "1e999",
    "NaN",
    "3000000000",
    "9" * 30,
    "9" * 5000,
    "\u0663",
    "0x1",
    "",
    "true",
)
TOKENS = (
    *NUMBERS,
    "null",
    "[]",
    "{}",
    "[1]",
    '{"@value": 1}',
    '"',
    "\\",
    "\\ud800",
    "\x00",
    "\ufeff",
    "\u2028",
    "\x85",
    "\r",
    "\r\n",
    "\n\n",
    "\t",
    "|",
    "||",
    ",",
    "é",
    "😀",
    "病",
    "-",
    "None",
    "../a",
    "&b;",
    "<",
    "]]>",
    "<!--",
    "#",
    "[Term]",
    "T1\t",
    "O",
    "B-x",
)
ENCODINGS = ("utf-16", "utf-8-sig", "gb18030", "latin-1", "utf-32-le", "utf-7")
LARGE = (
    "[" * 100_000,
    '{"a":' * 50_000,
    "x" * 300_000,
    "x " * 100_000,
    "\n" * 50_000,
    "\t" * 5000,
    "<a>" * 20_000,
    "(" * 5000,
)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """`content` with one to three changes. Whatever is not UTF-8 is changed as bytes."""
    for _ in range(rng.randint(1, 3)):
        try:
            text: str | None = content.decode()
        except UnicodeDecodeError:
            text = None
        kind = (
            rng.choice(("bytes", "cut", "twice", "size"))
            if text is None
            else rng.choice(
                (
                    "bytes",
                    "cut",
                    "twice",
                    "token",
                    "field",
                    "field",
                    "field",
                    "number",
                    "number",
                    "line",
                    "encoding",
                    "ends",
                    "size",
                )
            )
        )
        content = _changed(content, text or "", kind, rng)[:LARGEST]
    return content


def _changed(content: bytes, text: str, kind: str, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    if kind == "bytes":
        some = bytes(rng.randrange(256) for _ in range(rng.choice((1, 1, 2, 8))))
        return content[:place] + some + content[place + rng.choice((0, len(some))) :]
    if kind == "cut":
        return content[:place] + (
            content[place + rng.randint(1, 40) :] if rng.random() < 0.6 else b""
        )
    if kind == "twice":
        return content[:place] + content[max(0, place - rng.randint(1, 60)) :]
    at = rng.randrange(len(text) + 1)
    if kind == "size":
        large = rng.choice(LARGE)
        return (
            content[:place] + large.encode() + content[place:]
            if rng.random() < 0.5
            else content * rng.choice((2, 50))
        )
    if kind == "token":
        return (text[:at] + rng.choice(TOKENS) + text[at:]).encode()
    if kind == "encoding":
        return text.encode(rng.choice(ENCODINGS), errors="replace")
    if kind == "ends":
        return text.replace("\n", rng.choice(("\r", "\r\n", "\n\n", "\u2028", ""))).encode()
    if kind == "line":
        rows = text.splitlines(keepends=True) or [""]
        one, two = rng.randrange(len(rows)), rng.randrange(len(rows))
        match rng.randrange(3):
            case 0:
                rows[one], rows[two] = rows[two], rows[one]
            case 1:
                del rows[one]
            case 2:
                rows.insert(two, rows[one])
        return "".join(rows).encode()
    separators = "0123456789" if kind == "number" else ',\t|:;"<> \n[]{}'
    own = [i for i, c in enumerate(text) if (c in separators) == (kind == "number")]
    if not own:
        return content
    start = end = rng.choice(own)
    inside = (lambda c: c in separators) if kind == "number" else (lambda c: c not in separators)
    while start and inside(text[start - 1]):
        start -= 1
    while end < len(text) and inside(text[end]):
        end += 1
    return (
        text[:start] + rng.choice(NUMBERS if kind == "number" else TOKENS) + text[end:]
    ).encode()


class TooSlow(BaseException):
    """An input took longer than SECONDS."""


def _late(*_: object) -> None:
    raise TooSlow


def outcome(reader: Reader, folder: Path, file: Path, content: bytes) -> tuple[str, str, int]:
    """("read", "refused" or "crash", what was said, rows that are not accounted for) of `content`
    in the place of `file`."""
    file.write_bytes(content)
    if reader.fix is not None:
        reader.fix(folder)
    before = signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        accounted = reader.read(folder)
    except InputError as error:
        said = str(error)
        try:
            said.encode()
        except UnicodeEncodeError:
            return "crash", f"an error that cannot be printed: {said!a:.200}", 0
        return (
            ("refused", said, 0)
            if max(map(len, said.splitlines() or [""])) < 2000 and len(said) < 8000
            else ("crash", f"an error of {len(said)} characters: {said:.100}", 0)
        )
    except (Exception, TooSlow) as error:  # noqa: BLE001 - what a reader may not raise is what is looked for
        where = traceback.extract_tb(error.__traceback__)
        place = next(
            (
                f
                for f in reversed(where)
                if "/tests/" not in f.filename and "site-packages" not in f.filename
            ),
            where[-1],
        )
        return (
            "crash",
            f"{type(error).__name__}: {error!s:.150} ({Path(place.filename).name}:{place.lineno})",
            0,
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    lost = 0
    if accounted is not None and reader.rows is not None:
        with contextlib.suppress(
            UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError
        ):
            lost = max(0, reader.rows(content) - accounted)
    return "read", "", lost


def _work(
    name: str, seed: str, first: int, last: int | None, until: float, pipe: Connection
) -> None:
    """Read inputs `first` to `last` of a reader until a time, in this process; sends (number, kind,
    message, rows lost)."""
    size = int(re.findall(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    reader, number = READERS[name], first
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    ) as folder:
        files = reader.seed(Path(folder))
        whole = {p: p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}
        while (last is None or number < last) and time.monotonic() < until:
            rng = random.Random(f"{seed}:{name}:{number}")
            file = rng.choice(files)
            content = mutated(whole[file], rng)
            pipe.send((number, "begun", "", 0))
            kind, said, lost = outcome(reader, Path(folder), file, content)
            pipe.send((number, kind, said, lost))
            for path in [file, *(whole if reader.fix else ())]:
                path.write_bytes(whole[path])
            number += 1
    pipe.send(None)


def results(
    name: str, seed: str, first: int, last: int | None, seconds: float
) -> Iterator[tuple[int, str, str, int]]:
    """(number, kind, message, rows lost) of each input; a process that dies or hangs is a crash and
    is replaced."""
    context, until = multiprocessing.get_context("fork"), time.monotonic() + seconds
    while (last is None or first < last) and time.monotonic() < until:
        ours, theirs = context.Pipe(duplex=False)
        process: Any = context.Process(
            target=_work, args=(name, seed, first, last, until, theirs), daemon=True
        )
        process.start()
        theirs.close()
        begun = first
        try:
            while True:
                if not ours.poll(2 * SECONDS):
                    yield begun, "crash", f"no answer after {2 * SECONDS} seconds", 0
                    break
                got = ours.recv()
                if got is None:
                    return
                begun = got[0]
                if got[1] != "begun":
                    yield got
        except EOFError:
            process.join()
            yield begun, "crash", f"the process ended with {process.exitcode}", 0
        finally:
            process.kill()
            process.join()
        first = begun + 1


def run(
    names: list[str], seed: str, first: int, inputs: int | None, seconds: float
) -> tuple[dict[str, Counter[str]], list[str]]:
    """({reader: counts}, a line for each kind of crash and for each reader that lost rows)."""
    counts: dict[str, Counter[str]] = {}
    told: dict[tuple[str, str, str], str] = {}
    for name in names:
        own = counts[name] = Counter()
        last = None if inputs is None else first + inputs
        for number, kind, said, lost in results(name, seed, first, last, seconds / len(names)):
            own["inputs"] += 1
            own[kind] += 1
            own["lost"] += lost
            if kind == "crash" or lost:
                what = said if kind == "crash" else f"{lost} rows neither used nor counted"
                key = (name, kind, said.rpartition("(")[2] if kind == "crash" else "")
                told.setdefault(key, f"{name}, input {number}: {what}")
    return counts, list(told.values())


def table(counts: dict[str, Counter[str]]) -> str:
    columns = ("inputs", "read", "refused", "crash", "lost")
    every = counts | {"all": sum(counts.values(), Counter())}
    rows = [
        f"{'reader':<20}"
        + "".join(f"{c:>10}" for c in ("inputs", "read", "refused", "crashes", "uncounted"))
    ]
    return "\n".join(
        [*rows, *(f"{n:<20}" + "".join(f"{c[k]:>10,}" for k in columns) for n, c in every.items())]
    )


def main(words: list[str] | None = None) -> int:
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=form
    )
    parser.add_argument(
        "--seconds", type=float, help="of all readers together (60; without a limit with --inputs)"
    )
    parser.add_argument("--inputs", type=int, help="of each reader, at most")
    parser.add_argument("--seed", default="0", help="another seed makes other inputs (0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input (0)")
    parser.add_argument(
        "--only", action="append", choices=list(READERS), metavar="READER", help="only this reader"
    )
    given = parser.parse_args(words)
    seconds = given.seconds or (60 if given.inputs is None else math.inf)
    counts, told = run(given.only or list(READERS), given.seed, given.first, given.inputs, seconds)
    print(table(counts))
    print("\n".join(told))
    return int(any(c["crash"] or c["lost"] for c in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
