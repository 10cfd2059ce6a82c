"""Build a graph from a source and save it.   kepl graph build SOURCE [PATH] --out FOLDER
                                             [--option value …]

A source is a file in kg/build/sources with `files(path)`, the list of files it reads, and
`read(path, …)`, the graph; the options are read's own arguments (lists with blanks or commas:
--languages ENG,SPA). Its file's existence registers it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from core.files import InputError, limit_documents, sha256
from core.outputs import check_no_input
from core.settings import nearest, split_commas
from kg.graph import GRAPH, KnowledgeGraph

SOURCES = Path(__file__).parent / "sources"


def source_names() -> list[str]:
    return sorted(path.stem for path in SOURCES.glob("*.py") if not path.stem.startswith("_"))


def source_module(name: str) -> ModuleType:
    """The module kg.build.sources.<name>. Raises InputError that lists the sources when there is
    none of that name."""
    if name not in source_names():
        raise InputError(
            f"no source {name!r}; {nearest(name, source_names())}Choose from:"
            f" {', '.join(source_names())}"
        )
    return importlib.import_module(f"kg.build.sources.{name}")


def source_command(name: str) -> Callable[..., Any]:
    """Build a graph from a source and save it: SOURCE [PATH] --out FOLDER.

    The function for a source has the options path, out, fresh, max_document and those of its
    `read`. Raises InputError for an unknown source.
    """
    module = source_module(name)
    path, *own = inspect.signature(module.read).parameters.values()
    hints = get_type_hints(module.read)
    needed = path.default is inspect.Parameter.empty
    keyword = inspect.Parameter.KEYWORD_ONLY
    optional = [p.replace(kind=keyword, annotation=hints[p.name]) for p in own]
    parameters = [
        inspect.Parameter(
            "path", keyword, annotation=Path if needed else Path | None, default=path.default
        ),
        inspect.Parameter("out", keyword, annotation=Path),
        inspect.Parameter("fresh", keyword, annotation=bool, default=False),
        inspect.Parameter("max_document", keyword, annotation=int, default=16),
        *optional,
    ]

    def build_source(
        path: Path | None, out: Path, fresh: bool, max_document: int, **options: Any
    ) -> None:
        limit_documents(max_document)
        listed = {
            key: split_commas(value)
            for key, value in options.items()
            if isinstance(value, (list, tuple))
        }
        graph = build_graph(name, path, out, fresh, **options | listed)
        print(f"{out}: " + ", ".join(f"{count:,} {part}" for part, count in graph.counts().items()))
        for reason, count in graph.manifest.get("left_out", {}).items():
            if count:
                print(f"left out: {count:,} {reason}")

    build_source.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    build_source.__annotations__ = {p.name: p.annotation for p in parameters}
    about, _, told = inspect.getdoc(module.read).partition("\nArgs:\n")  # type: ignore[union-attr]
    build_source.__doc__ = (
        f"{inspect.cleandoc(module.__doc__ or '')}\n\n{about.strip()}\n\nArgs:\n    path: File or"
        f" folder to read.{'' if needed else ' Default: what an installed package carries.'}\n   "
        " out: Folder for the graph.\n    fresh: Build again even if the same graph is there.\n   "
        " max_document: MiB that one line or record has at most,"
        f" decompressed.\n{told.partition(chr(10) + 'Raises:')[0]}"
    )
    return build_source


def inputs_of(module: ModuleType, path: Path | None) -> dict[str, dict[str, Any]]:
    """File name -> size and sha256 of every file that the source reads. Raises InputError when one
    is missing."""
    files = module.files() if path is None else module.files(path)
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: no such file. Check the path.")
    folder = path if path is not None and path.is_dir() else None
    return {
        str(file.relative_to(folder)) if folder else file.name: {
            "bytes": file.stat().st_size,
            "sha256": sha256(file),
        }
        for file in files
    }


def build_graph(
    name: str, path: Path | None, out: Path, fresh: bool = False, **options: Any
) -> KnowledgeGraph:
    """The graph of source `name`, saved in `out`. Raises InputError."""
    module = source_module(name)
    check_no_input(out, [path] if path is not None else [])
    recipe = {"reader": name, "options": options, "inputs": inputs_of(module, path)}
    if GRAPH.is_kept(out, recipe, fresh):
        return KnowledgeGraph.load(out)
    graph = module.read(**options) if path is None else module.read(path, **options)
    if not len(graph.entities):
        files = ", ".join(recipe["inputs"])
        raise InputError(
            f"{path or name}: no entity in it ({files:.200}). Check the files and the options."
        )
    graph.manifest |= recipe
    graph.save(out)
    return graph
