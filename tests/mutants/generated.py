"""Judge generated faults: find the tests that run a fault's block, run them, and report by room.

Which tests run which blocks is collected once for each test file, with its tests' seconds, and is
kept in `.cache/contexts` until one of the files changes that the test file has used.
"""

from __future__ import annotations

import ast
import hashlib
import json
import queue
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests import preload
from tests.mutants.__main__ import OPTIONS, Worker, started
from tests.mutants.contexts import FOLDER, MODULE, ROOMS, list_blocks
from tests.mutants.generate import Change, draw

EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
CACHE = ".cache/contexts"
TABLE = "tests/golden/test_defaults.py"  #: reads the code of every room, which no context shows
PLUGIN = "tests.mutants.contexts"
#: every test file depends on these
SHARED = ("tests/conftest.py", "tests/fixtures.py")
#: tests that compare the text of product files with lists; no evidence that a behaviour is tested
TEXTUAL = ("tests/test_mutants.py", "tests/test_words.py", "tests/test_house.py")
BUDGET = 60.0  # seconds of tests for one fault, as they took without it
COLLECTING = 1800.0  # for one test file
RESULTS = ("noticed", "time-out", "import", "survived", "untested", "equivalent", "broken")


@dataclass
class Contexts:
    """Which tests run which blocks of which files."""

    seconds: dict[str, float] = field(default_factory=dict)
    tests: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # of `file:line`
    size: Counter[str] = field(default_factory=Counter)  # the blocks of a test
    readers: set[str] = field(default_factory=set)  # test files that read signatures

    def add(self, record: dict[str, Any]) -> None:
        """What was collected for one test file."""
        names = list(record["tests"])
        self.seconds |= record["tests"]
        for block, numbers in record["blocks"].items():
            for number in numbers:
                self.tests[block].add(names[number])
                self.size[names[number]] += 1

    def select(self, change: Change, text: str, budget: float = BUDGET) -> list[str]:
        """The tests for a change: those of its block, the nearest and most specific first, as many
        as take `budget` seconds."""
        file, line = change.file, find_block(change, text)
        inside = [b for b in self.tests if b.startswith(f"{file}:") and b != f"{file}:{MODULE}"]
        blocks = [f"{file}:{line}"]
        if line == MODULE and inside:  # of a constant: whoever uses the module
            blocks = inside
        found = {test for block in blocks for test in self.tests.get(block, ())}
        found |= {test for test in self.seconds if test.startswith(f"{TABLE}::")}
        if change.kind == "default":  # seen without a call
            importing = self.tests.get(f"{file}:{MODULE}", set())
            found |= {test for test in importing if test.split("::")[0] in self.readers}
        order = sorted(found, key=lambda t: (not is_near(t, file), self.size[t], t))
        chosen: list[str] = []
        spent = 0.0
        for test in order:
            if chosen and spent + self.seconds[test] > budget:
                continue
            chosen.append(test)
            spent += self.seconds[test]
        return chosen


def is_near(test: str, file: str) -> bool:
    """Whether a test's file mirrors the product file."""
    names = {part.removesuffix(".py").strip("_") for part in file.split("/")[1:]} - {"init"}
    place = test.split("::")[0].removeprefix("tests/").removesuffix(".py")
    words = set(place.replace("test_", "").replace("/", "_").split("_")) | {
        part.removeprefix("test_") for part in place.split("/")
    }
    return place.split("/")[0] == file.split("/")[0] and bool(names & words)


def find_block(change: Change, text: str) -> int:
    """The first line of the innermost block that has the change; of a default, of its function."""
    if not change.file.endswith(".py"):
        return MODULE
    best, size = MODULE, float("inf")
    tree = ast.parse(text)
    for statements, first in list_blocks(tree):
        begin, end = statements[first].lineno, statements[-1].end_lineno or 0
        if begin <= change.line <= end and end - begin < size:
            best, size = begin, end - begin
    if change.kind == "default":
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        for node in functions:
            body = node.body[int(ast.get_docstring(node) is not None) :]
            if node.lineno <= change.line < node.body[0].lineno and body:
                best = body[0].lineno
    return best


def list_test_files(root: Path) -> list[str]:
    names = sorted(str(p.relative_to(root)) for p in (root / "tests").rglob("test_*.py"))
    return [name for name in names if name not in TEXTUAL]


def checksum(root: Path, files: Iterable[str]) -> str:
    """Of the contents of some files; of a missing one, of its name."""
    total = hashlib.sha256()
    for name in sorted(files):
        path = root / name
        total.update(name.encode() + (path.read_bytes() if path.is_file() else b"-"))
    return total.hexdigest()


def read_record(root: Path, cache: Path, file: str) -> dict[str, Any] | None:
    """What was collected for a test file, unless a file that it has used is another now."""
    path = cache / f"{file.replace('/', '.')}.json"
    if not path.is_file():
        return None
    record: dict[str, Any] = json.loads(path.read_text())
    return record if record["key"] == checksum(root, record["files"]) else None


def collect_record(worker: Worker, file: str) -> dict[str, Any]:
    """Run a test file and note which blocks each test runs. Failed and skipped tests are left
    out."""
    options = [word for word in OPTIONS if word != "-x"]
    with tempfile.TemporaryDirectory() as folder:
        before = worker.environment
        worker.environment = before | {FOLDER: folder, "KEPL_TESTS_FIRST": PLUGIN}
        try:
            worker.run([file], COLLECTING, [*options, "-p", PLUGIN])
        finally:
            worker.environment = before
        lines = [line for p in sorted(Path(folder).iterdir()) for line in p.open()]
    seconds: dict[str, float] = {}
    blocks: dict[str, set[str]] = defaultdict(set)
    failed: set[str] = set()
    for entry in map(json.loads, lines):
        test = entry["test"]
        seconds[test] = seconds.get(test, 0.0) + entry["seconds"]
        if entry["failed"]:
            failed.add(test)
        for block in entry["blocks"]:
            blocks[block].add(test)
    kept = [test for test in seconds if test not in failed]
    number = {test: n for n, test in enumerate(kept)}
    files = {block.rpartition(":")[0] for block in blocks} | {file, *SHARED}
    return {
        "key": checksum(worker.tree, files),
        "files": sorted(files),
        "tests": {test: seconds[test] for test in kept},
        "blocks": {b: sorted(number[t] for t in ts if t in number) for b, ts in blocks.items()},
    }


def collect(free: queue.Queue[Worker], root: Path, files: Sequence[str], jobs: int) -> Contexts:
    """The contexts of every test file, from the cache where they are as they were."""
    contexts, cache = Contexts(), root / CACHE
    cache.mkdir(parents=True, exist_ok=True)

    def record_file(file: str) -> dict[str, Any]:
        if record := read_record(root, cache, file):
            return record
        worker, start = free.get(), time.monotonic()
        try:
            record = collect_record(worker, file)
        finally:
            free.put(worker)
        (cache / f"{file.replace('/', '.')}.json").write_text(json.dumps(record))
        seconds = time.monotonic() - start
        print(f"collected {len(record['tests'])} tests of {file} ({seconds:.0f} s)", flush=True)
        return record

    with ThreadPoolExecutor(jobs) as threads:
        for record in threads.map(record_file, files):
            contexts.add(record)
    contexts.readers = {file for file in files if "signature(" in (root / file).read_text()}
    return contexts


class Verdict(NamedTuple):
    """What became of a generated fault."""

    change: Change
    result: str  # of RESULTS
    tests: int
    seconds: float
    detail: str = ""


def read_equivalent(path: Path = EQUIVALENT) -> dict[tuple[str, str, str, str], str]:
    """{(file, its line, old, new): why the program does the same with the change}."""
    entries = yaml.safe_load(path.read_text()) or []
    return {(e["file"], e["code"], e["old"], e["new"]): e["reason"] for e in entries}


def identify(change: Change) -> tuple[str, str, str, str]:
    return change.file, change.code, change.old, change.new


def judge(
    free: queue.Queue[Worker], change: Change, contexts: Contexts, known: dict[Any, str]
) -> Verdict:
    """Put the change into a worker's tree, and run its tests there."""
    if reason := known.get(identify(change)):
        return Verdict(change, "equivalent", 0, 0.0, reason)
    worker, start = free.get(), time.monotonic()
    path = worker.tree / change.file
    text = path.read_text()
    try:
        tests = contexts.select(change, text)
        if not tests:
            return Verdict(change, "untested", 0, 0.0)
        path.write_text(change.apply(worker.tree))
        expected = sum(contexts.seconds[test] for test in tests)
        code, output = worker.run(tests, 60 + 5 * expected)
    finally:
        path.write_text(text)
        free.put(worker)
    seconds = time.monotonic() - start
    result = name_result(code, output)
    return Verdict(change, result, len(tests), seconds, output if result == "broken" else "")


def name_result(code: int | None, output: str) -> str:
    """What pytest's exit status and output say of a fault."""
    if code is None:
        return "time-out"
    if code == 0:
        return "survived"
    if code in (2, 4) or (code == 1 and "ERROR collecting" in output):
        return "import"
    return "noticed" if code == 1 else "broken"


def format_verdict(verdict: Verdict) -> str:
    change = verdict.change
    head = f"{verdict.result:<10}{verdict.seconds:6.1f} s {verdict.tests:4d} tests  "
    place = f"{change.kind:<10} {change.file}:{change.line}"
    if verdict.result in ("noticed", "time-out", "import"):
        return f"{head}{place}"
    said = f"\n    {change.code}\n    {change.old!r} -> {change.new!r}"
    return f"{head}{place}{said}" + (f"\n    {verdict.detail}" if verdict.detail else "")


def format_table(verdicts: Sequence[Verdict]) -> str:
    """Noticed of ended faults by room: equivalent ones are no faults, broken ones have not ended.
    Time-outs and import errors are noticed, and counted apart."""
    lines = [f"{'room':<12}{'noticed':>8}{'ended':>7}{'share':>7}  of them"]
    for room in [*ROOMS, "all"]:
        own = [v for v in verdicts if room in ("all", v.change.file.split("/")[0])]
        if not own:
            continue
        count = Counter(v.result for v in own)
        noticed = count["noticed"] + count["time-out"] + count["import"]
        ended = noticed + count["survived"] + count["untested"]
        share = f"{100 * noticed / ended:.0f} %" if ended else "-"
        parts = ", ".join(f"{count[r]} {r}" for r in RESULTS[1:] if count[r])
        lines.append(f"{room:<12}{noticed:>8}{ended:>7}{share:>7}  {parts}")
    return "\n".join(lines)


def as_json(verdicts: Sequence[Verdict], seed: int) -> dict[str, Any]:
    faults = [
        {
            "result": v.result,
            "kind": v.change.kind,
            "place": f"{v.change.file}:{v.change.line}",
            "code": v.change.code,
            "old": v.change.old,
            "new": v.change.new,
            "tests": v.tests,
            "seconds": round(v.seconds, 1),
        }
        for v in verdicts
    ]
    return {"seed": seed, "faults": faults}


def run_generated(
    root: Path,
    count: int,
    seed: int,
    rooms: tuple[str, ...] = ROOMS,
    jobs: int = 1,
    libraries: Sequence[str] = preload.LIBRARIES,
    report: Path | None = None,
    equivalent: Path = EQUIVALENT,
) -> int:
    """Draw faults, judge them, print them and the table; 1 when one survived, else 0."""
    changes = draw(root, count, seed, rooms)
    known = read_equivalent(equivalent)
    verdicts: list[Verdict] = []
    start = time.monotonic()
    with started(root, jobs, libraries) as free, ThreadPoolExecutor(jobs) as threads:
        contexts = collect(free, root, list_test_files(root), jobs)
        print(f"{len(contexts.seconds)} tests, {len(contexts.tests)} blocks", flush=True)
        for done in as_completed(
            [threads.submit(judge, free, change, contexts, known) for change in changes]
        ):
            verdicts.append(done.result())
            print(format_verdict(verdicts[-1]), flush=True)
            if report:
                report.write_text(json.dumps(as_json(verdicts, seed), indent=1))
    print(f"\n{format_table(verdicts)}")
    print(f"{count} faults, seed {seed}; {time.monotonic() - start:.0f} s, {jobs} processes")
    return int(any(v.result in ("survived", "untested", "broken") for v in verdicts))
