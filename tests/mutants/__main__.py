"""Put each listed fault into a copy of the tree and run the tests that must notice it.

    make mutants [ONLY=WORD] [JOBS=2]        python -m tests.mutants [--only WORD] [--jobs 2]
    make mutants GENERATE=300 SEED=1 [ROOM=inference] [REPORT=faults.json]

With GENERATE, the faults are not those of the list but drawn by chance (tests/mutants/generate.py),
and the tests are those that run the changed block (tests/mutants/generated.py).

The checkout is never edited. The named tests run without a fault first and must pass. Then every
fault is reported as `killed` (a named test fails), `survived` (all pass), `stale` (it does not fit
the code any more) or `broken` (the tests could not run). Exit status: 0 when every fault is killed,
or survives with a reason in the list; 1 otherwise; 2 when nothing ran.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests import preload
from tests.mutants.faults import LIST, Fault, inserted, read, staleness

ROOT = Path(__file__).parents[2]
SECONDS = 300.0  # for the tests of one fault; longer is a failure, too: a loop that does not end
OPTIONS = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin")


class Outcome(NamedTuple):
    """What became of a fault."""

    fault: Fault
    result: str  # killed, survived, stale or broken
    detail: str
    seconds: float


class Worker:
    """A copy of the tree, and tests that run in it."""

    def __init__(self, root: Path, folder: Path, server: str) -> None:
        self.tree, self.temporary, self.server = folder / "tree", folder / "temporary", server
        copy_tree(root, self.tree)
        real = root.parent / "shared"  # data and papers that some tests compare with
        if real.is_dir():
            (folder / "shared").symlink_to(real)
        self.environment = {
            k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
        } | {
            "PYTHONPATH": str(self.tree),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "PYTHONDONTWRITEBYTECODE": "1",
            # none else is needed, and they import libraries of their own
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "KEPL_TESTS_UNSHRUNK": "1",
            "KEPL_TESTS_SERVER": f"{os.getpid()} {server}",  # for what the tests start
        }

    def run(
        self, tests: Iterable[str], seconds: float = SECONDS, options: Sequence[str] = OPTIONS
    ) -> tuple[int | None, str]:
        """(pytest's exit status, None past `seconds`; the end of its output)."""
        words = [sys.executable, "-m", "pytest", *options, f"--basetemp={self.temporary}", *tests]
        with tempfile.TemporaryFile("w+b") as output:
            process = preload.start(self.server, words, self.tree, self.environment, output, output)
            try:
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            process.end_session()
            output.seek(0)
            return code, output.read()[-4000:].decode(errors="replace")


def copy_tree(root: Path, target: Path) -> None:
    """Copy the files that git tracks or does not ignore (all files, outside of a checkout), and
    link the environment."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        shutil.copytree(root, target)
        return
    for name in filter(None, listed.stdout.split("\0")):
        if (root / name).is_file():  # a deleted file is listed until its deletion is committed
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
    if (root / ".venv").exists():
        (target / ".venv").symlink_to((root / ".venv").resolve())
    # Bytecode that is valid while the source has the same content: times and sizes are not enough
    # for files edited this fast.
    folders = [str(p) for p in target.iterdir() if p.is_dir() and not p.is_symlink()]
    command = [
        sys.executable,
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "checked-hash",
        *folders,
    ]
    subprocess.run(command, check=False, capture_output=True)


@contextmanager
def started(root: Path, jobs: int, libraries: Sequence[str]) -> Iterator[queue.Queue[Worker]]:
    """So many workers, free ones in a queue."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        server = preload.serve(libraries, f"{folder}/server")
        free: queue.Queue[Worker] = queue.Queue()
        for number in range(jobs):
            free.put(Worker(root, Path(folder) / str(number), server))
        yield free


def by_file(tests: Iterable[str]) -> list[list[str]]:
    """The distinct tests, those of a file together."""
    files: dict[str, list[str]] = {}
    for test in dict.fromkeys(tests):
        files.setdefault(test.split("::")[0], []).append(test)
    return [[file] if file in named else named for file, named in files.items()]


def clean_failure(free: queue.Queue[Worker], tests: list[str]) -> str:
    """What tests of one file print when they fail without any fault; empty when they pass."""
    worker = free.get()
    try:
        code, output = worker.run(tests, 4 * SECONDS)
    finally:
        free.put(worker)
    return "" if code == 0 else f"{' '.join(tests)}: status {code}\n{output}"


def judge(free: queue.Queue[Worker], fault: Fault) -> Outcome:
    worker, start = free.get(), time.monotonic()
    try:
        if why := staleness(fault, worker.tree):
            return Outcome(fault, "stale", why, 0.0)
        with inserted(fault, worker.tree):
            code, output = worker.run(fault.tests)
    finally:
        free.put(worker)
    seconds = time.monotonic() - start
    if code == 0:
        return Outcome(fault, "survived", f"{fault.old!r} -> {fault.new!r}", seconds)
    if code in (None, 1, 2, 4):  # failed, past the time, not importable
        return Outcome(fault, "killed", "", seconds)
    return Outcome(fault, "broken", f"pytest ended with status {code}\n{output}", seconds)


def line(outcome: Outcome) -> str:
    fault, detail = outcome.fault, outcome.detail
    if outcome.result == "survived" and fault.reason:
        detail = f"as expected: {fault.reason}"
    return f"{outcome.result:<9}{outcome.seconds:6.1f} s  {fault.name}  {fault.file}" + (
        f"\n    {detail}" if detail else ""
    )


def failed(outcome: Outcome) -> bool:
    return outcome.result in ("stale", "broken") or (
        outcome.result == "survived" and not outcome.fault.reason
    )


def summary(outcomes: list[Outcome], seconds: float, jobs: int) -> str:
    count = Counter(o.result for o in outcomes)
    expected = sum(o.result == "survived" and bool(o.fault.reason) for o in outcomes)
    parts = [
        f"{count['killed']} killed",
        f"{count['survived'] - expected} survived",
        f"{count['stale']} stale",
    ]
    parts += [f"{expected} survived with a reason"] * bool(expected) + [
        f"{count['broken']} broken"
    ] * bool(count["broken"])
    return f"{len(outcomes)} faults: {', '.join(parts)}; {seconds:.0f} s, {jobs} processes"


def run(
    faults: list[Fault],
    root: Path = ROOT,
    jobs: int = 1,
    libraries: Sequence[str] = preload.LIBRARIES,
) -> int:
    """Judge every fault and print what becomes of it; the exit status."""
    start = time.monotonic()
    fitting = [f for f in faults if not staleness(f, root)]
    with started(root, jobs, libraries) as free, ThreadPoolExecutor(jobs) as threads:
        tests = by_file(test for fault in fitting for test in fault.tests)
        failures = [f for f in threads.map(lambda named: clean_failure(free, named), tests) if f]
        if failures:
            print("\n".join(failures))
            print("error: these tests fail without any fault; fix them first", file=sys.stderr)
            return 2
        print(
            f"the named tests of {len(tests)} files pass without a fault"
            f" ({time.monotonic() - start:.0f} s)",
            flush=True,
        )
        outcomes = []
        for done in as_completed([threads.submit(judge, free, fault) for fault in faults]):
            outcomes.append(done.result())
            print(line(outcomes[-1]), flush=True)
    if bad := [o for o in outcomes if failed(o)]:
        print(
            "\nnot killed:\n" + "\n".join(line(o) for o in sorted(bad, key=lambda o: o.fault.name))
        )
    print(summary(outcomes, time.monotonic() - start, jobs))
    return 1 if bad else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument(
        "--only", default="", metavar="WORD", help="faults whose name or file contains this"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each core)"
    )
    parser.add_argument("--generate", type=int, metavar="N", help="draw N faults by chance instead")
    parser.add_argument("--seed", type=int, default=0, help="of the drawn faults")
    parser.add_argument("--room", help="draw them in this room alone")
    parser.add_argument("--report", type=Path, metavar="FILE", help="the drawn faults as JSON")
    given = parser.parse_args(argv)
    if given.generate:
        from tests.mutants import generated

        if given.room and given.room not in generated.ROOMS:
            choices = ", ".join(generated.ROOMS)
            print(f"error: no room {given.room!r}; choose from: {choices}", file=sys.stderr)
            return 2
        rooms = (given.room,) if given.room else generated.ROOMS
        return generated.run_generated(
            ROOT, given.generate, given.seed, rooms, given.jobs, report=given.report
        )
    chosen = [f for f in read(LIST) if given.only in f.name or given.only in f.file]
    if not chosen:
        print(f"error: no fault whose name or file contains {given.only!r}", file=sys.stderr)
        return 2
    return run(chosen, jobs=max(1, min(given.jobs, len(chosen))))


if __name__ == "__main__":
    sys.exit(main())
