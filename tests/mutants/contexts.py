"""Record which blocks of the product code each test runs: a pytest plugin and an import hook.

Every block of statements of a product module is compiled with a call before its first statement
that adds `file:line` to a set; the source, its line numbers and its docstrings stay what they are.
At the end of each test the set is appended to a file of `KEPL_TESTS_CONTEXTS`, and processes that a
test starts append theirs when they end. A YAML or JSON file of the tree counts as run by whoever
opens it, and a module as run by whoever has imported it.

coverage.py's tracer would be a dependency more, and does not follow forks of tests/preload.py by
itself.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import hashlib
import json
import marshal
import os
import sys
import time
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from multiprocessing import util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "kg", "datamodules", "models", "experiments", "inference", "benchmarks", "app")
COMPILED = ".cache/compiled"  # below the tree whose tests run
FOLDER, TEST = "KEPL_TESTS_CONTEXTS", "KEPL_TESTS_CONTEXT"  # in the environment
MODULE = 0  #: the block of a module: whoever imports it runs it
BODIES = ("body", "orelse", "finalbody")

seen: set[str] = set()
failures: set[str] = set()  #: of this process: tests that failed or were skipped


def list_blocks(tree: ast.Module) -> Iterator[tuple[list[ast.stmt], int]]:
    """(the statements, the index of the first that is no docstring) of every block in a function
    or below a condition or loop; blocks of modules and classes are run by every import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            continue
        for name in BODIES:
            statements = getattr(node, name, None)
            if not isinstance(statements, list) or not statements:
                continue
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            skipped = int(function and ast.get_docstring(node) is not None)  # type: ignore[arg-type]
            if skipped < len(statements):
                yield statements, skipped


class Loader(SourceFileLoader):
    """Compiles a product module with its calls, once for each content: the processes that tests
    start would spend seconds on it."""

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        kept = ROOT / COMPILED / hashlib.sha256(source + path.encode()).hexdigest()
        if kept.is_file():
            loaded: types.CodeType = marshal.loads(kept.read_bytes())  # noqa: S302  written below
            return loaded
        code = self._compile(source, path)
        kept.parent.mkdir(parents=True, exist_ok=True)
        coming = kept.with_name(f"{kept.name}.{os.getpid()}")  # other processes do the same
        coming.write_bytes(marshal.dumps(code))
        coming.replace(kept)
        return code

    @staticmethod
    def _compile(source: bytes, path: str) -> types.CodeType:
        tree = ast.parse(source, path)
        file = Path(path).relative_to(ROOT)
        for statements, first in list(list_blocks(tree)):
            line = statements[first].lineno
            call = ast.parse(f"__seen__({f'{file}:{line}'!r})").body[0]
            for node in ast.walk(call):
                ast.copy_location(node, statements[first])
            statements.insert(first, call)
        code: types.CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code


class Finder:
    """Finds the product's modules as the path does, with the other loader."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name.split(".")[0] not in ROOMS:
            return None
        spec: ModuleSpec | None = PathFinder.find_spec(name, path)
        loader = spec.loader if spec else None
        if spec and type(loader) is SourceFileLoader and Path(loader.path).is_relative_to(ROOT):
            spec.loader = Loader(loader.name, loader.path)
        return spec


def note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    """Count a data file of the tree as run."""
    if event != "open" or not isinstance(arguments[0], str | Path):
        return
    name = str(arguments[0])
    if name.endswith((".yaml", ".json")):
        path = os.path.abspath(name)
        if path.startswith(f"{ROOT}/"):
            seen.add(f"{path[len(str(ROOT)) + 1 :]}:{MODULE}")


def imported() -> set[str]:
    """The files of the tree that this process has imported."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    inside = [file for file in [*files, main] if file and file.startswith(f"{ROOT}/")]
    return {f"{file[len(str(ROOT)) + 1 :]}:{MODULE}" for file in inside if "/.venv/" not in file}


def save(test: str, seconds: float, failed: bool = False) -> None:
    """Append what was run since the last call."""
    record = {
        "test": test,
        "seconds": round(seconds, 3),
        "failed": failed,
        "blocks": sorted(seen | imported()),
    }
    seen.clear()
    with open(f"{os.environ[FOLDER]}/{os.getpid()}.jsonl", "a") as file:
        file.write(f"{json.dumps(record)}\n")


def save_process() -> None:
    """What a process that a test has started appends at its end."""
    if test := os.environ.get(TEST):
        save(test, 0.0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    os.environ[TEST] = item.nodeid
    start = time.monotonic()
    try:
        return (yield)
    finally:
        save(item.nodeid, time.monotonic() - start, item.nodeid in failures)
        del os.environ[TEST]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        failures.add(report.nodeid)


def install() -> None:
    builtins.__seen__ = seen.add  # type: ignore[attr-defined]
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    sys.addaudithook(note_opened)
    atexit.register(save_process)
    # processes of multiprocessing end without what atexit runs
    util.register_after_fork(
        seen, lambda _: (seen.clear(), util.Finalize(None, save_process, exitpriority=1))
    )


if FOLDER in os.environ:
    install()
