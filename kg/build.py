"""Build a graph from a source and save it.   python -m kg.build SOURCE [PATH] --out FOLDER [--option value …]

A source is a file in kg/sources with `files(path)`, the list of files it reads, and `read(path, …)`, the graph; the
options are read's own arguments (lists with commas: --languages ENG,SPA). Its file's existence registers it.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from core.files import InputError, read_json, sha256
from kg.graph import KnowledgeGraph

SOURCES = Path(__file__).parent / "sources"


def source_names() -> list[str]:
    return sorted(path.stem for path in SOURCES.glob("*.py") if not path.stem.startswith("_"))


def source_module(name: str) -> ModuleType:
    """The module kg.sources.<name>. Raises InputError that lists the sources when there is none of that name."""
    if name not in source_names():
        raise InputError(f"no source {name!r}; choose from: {', '.join(source_names())}")
    return importlib.import_module(f"kg.sources.{name}")


def options_of(module: ModuleType) -> dict[str, inspect.Parameter]:
    """The arguments of the module's read that come after the path."""
    parameters = dict(list(inspect.signature(module.read).parameters.items())[1:])
    hints = get_type_hints(module.read)
    return {name: parameter.replace(annotation=hints[name]) for name, parameter in parameters.items()}


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parser_of(name: str, module: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m kg.build {name}", description=f"{module.__doc__}\n\n{module.read.__doc__}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    path = next(iter(inspect.signature(module.read).parameters.values()))
    optional = path.default is not inspect.Parameter.empty
    parser.add_argument("path", type=Path, nargs="?" if optional else None, help="what to read", metavar="PATH")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the graph goes")
    parser.add_argument("--fresh", action="store_true", help="build again even if the same graph is there")
    for option, parameter in options_of(module).items():
        flag, kind, default = "--" + option.replace("_", "-"), parameter.annotation, parameter.default
        shown = ",".join(default) if isinstance(default, tuple) else default
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default)
        elif "tuple" in str(kind):
            parser.add_argument(flag, type=_listed, default=default, metavar="A,B", help=f"default: {shown}")
        else:
            number = kind if kind in (int, float) else str
            parser.add_argument(flag, type=number, default=default, help=f"default: {shown}")
    return parser


def inputs_of(module: ModuleType, path: Path | None) -> dict[str, dict[str, Any]]:
    """File name -> size and sha256 of every file that the source reads. Raises InputError when one is missing."""
    files = module.files() if path is None else module.files(path)
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: no such file. Check the path.")
    folder = path if path is not None and path.is_dir() else None
    return {
        str(file.relative_to(folder)) if folder else file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)}
        for file in files
    }


def kept_graph(folder: Path, recipe: dict[str, Any]) -> KnowledgeGraph | None:
    """The graph in `folder` if it is whole and was built by this recipe.

    Raises InputError when the folder holds something else than a graph, which building would replace.
    """
    if not folder.exists():
        return None
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / "manifest.json").is_file()):
        raise InputError(f"{folder}: there is something here that is no graph; it is left alone. Choose another --out.")
    if not (folder / "manifest.json").is_file():
        return None
    try:
        manifest = read_json(folder / "manifest.json")
        if any(manifest.get(key) != value for key, value in recipe.items()):
            return None
        return KnowledgeGraph.load(folder)
    except InputError as error:
        print(f"{error} Building it again.", file=sys.stderr)
        return None


def build(name: str, path: Path | None, out: Path, fresh: bool = False, **options: Any) -> tuple[KnowledgeGraph, bool]:
    """(the graph of source `name` saved in `out`, whether it was there already). Raises InputError."""
    module = source_module(name)
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    recipe = {"reader": name, "options": given, "inputs": inputs_of(module, path)}
    kept = kept_graph(out, recipe)
    if kept is not None and not fresh:
        return kept, True
    graph = module.read(**options) if path is None else module.read(path, **options)
    graph.manifest |= recipe
    graph.save(out)
    return graph, False


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(f"{__doc__}\nSources: {', '.join(source_names())}. Options of one: python -m kg.build SOURCE --help")
        return 0 if words else 2
    try:
        module = source_module(words[0])
        parsed = vars(parser_of(words[0], module).parse_args(words[1:]))
        started = time.monotonic()
        graph, was_there = build(words[0], parsed.pop("path"), out := parsed.pop("out"), **parsed)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if was_there:
        print(f"{out}: this graph is there already, from the same files and options; kept (--fresh builds it again)")
    else:
        print(f"{out}: built in {time.monotonic() - started:.1f} s")
    print(", ".join(f"{count:,} {part}" for part, count in graph.counts().items()))
    for reason, count in graph.manifest.get("left_out", {}).items():
        if count:
            print(f"left out: {count:,} {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
