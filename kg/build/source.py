"""Build a graph from a source and save it.   kepl graph build SOURCE [PATH] --out FOLDER
                                             [--option value …]

A source is a file in kg/build/sources with `files(path)`, the list of files it reads, and
`read(path, …)`, the graph; the options are read's own arguments (lists with blanks or commas:
--languages ENG,SPA). Its file's existence registers it.
"""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from core.choices import list_known
from core.files import InputError
from core.outputs import check_no_input
from core.reading import limit_documents, sha256
from core.settings import NEEDED, Option, grouped_arguments, options_of, with_options
from core.values import split_commas
from kg.build.draft import NO_NAMES
from kg.build.translations import add_translations
from kg.graph import GRAPH, KnowledgeGraph

SOURCES = Path(__file__).parent / "sources"


def source_names() -> list[str]:
    return sorted(path.stem for path in SOURCES.glob("*.py") if not path.stem.startswith("_"))


def source_module(name: str) -> ModuleType:
    """The module kg.build.sources.<name>. Raises InputError that lists the sources when there is
    none of that name."""
    if name not in source_names():
        raise InputError(f"no source {name!r}; {list_known(name, source_names())}")
    return importlib.import_module(f"kg.build.sources.{name}")


def source_command(name: str) -> Callable[..., Any]:
    """Build a graph from a source and save it: SOURCE [PATH] --out FOLDER.

    The function for a source has the options path, out, fresh, max_document and those of its
    `read`. Raises InputError for an unknown source.
    """
    module = source_module(name)
    path, *own_options = options_of(module.read).values()
    needed = path.default is NEEDED
    default = "" if needed else " Default: what an installed package carries."
    options = [
        Option("path", Path if needed else Path | None, path.default, f"File or folder.{default}"),
        Option("out", Path, NEEDED, "Folder for the graph."),
        Option("fresh", bool, False, "Build again even if the same graph is there."),
        Option("max_document", int, 16, "MiB that a line or record has at most, decompressed."),
        Option(
            "translations",
            list[Path],
            (),
            "Babelon tables of translated names and definitions (kg/build/translations.py).",
        ),
        *own_options,
    ]

    def build_source(
        path: Path | None,
        out: Path,
        fresh: bool,
        max_document: int,
        translations: list[Path],
        **options: Any,
    ) -> None:
        limit_documents(max_document)
        listed = {
            key: split_commas(value)
            for key, value in options.items()
            if isinstance(value, (list, tuple))
        }
        graph = build_graph(name, path, out, fresh, translations, **options | listed)
        print(f"{out}: " + ", ".join(f"{count:,} {part}" for part, count in graph.counts().items()))
        for language, count in graph.manifest.get("translations", {}).items():
            print(f"translations: {count:,} names in {language}")
        for reason, count in graph.manifest.get("left_out", {}).items():
            if count:
                print(f"left out: {count:,} {reason}")

    about = (inspect.getdoc(module.read) or "").partition("\nArgs:\n")[0].strip()
    return with_options(
        build_source, f"{inspect.cleandoc(module.__doc__ or '')}\n\n{about}", options
    )


def inputs_of(module: ModuleType, path: Path | None) -> dict[str, dict[str, Any]]:
    """File name -> size and sha256 of every file that the source reads. Raises InputError when one
    is missing."""
    files = module.files() if path is None else module.files(path)
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: no such file. Check the path.")
    folder = path if path is not None and path.is_dir() else None
    inputs = {}
    for file in files:
        name = str(file.relative_to(folder)) if folder else file.name
        inputs[name] = {"bytes": file.stat().st_size, "sha256": sha256(file)}
    return inputs


def without_no_names(graph: KnowledgeGraph) -> KnowledgeGraph:
    """A graph without the synonyms that say that there is none (N/A, null), which are counted."""
    says_none = pc.is_in(graph.names["name"], value_set=pa.array(sorted(NO_NAMES)))
    out = pc.and_(says_none, pc.not_equal(graph.names["kind"], "preferred"))
    count = pc.sum(out).as_py() or 0
    if not count:
        return graph
    left_out = Counter(graph.manifest.get("left_out", {}))
    left_out["synonyms that say there is no name, such as N/A"] += count
    manifest = graph.manifest | {"left_out": dict(left_out)}
    return replace(graph, names=graph.names.filter(pc.invert(out)), manifest=manifest)


def build_graph(
    name: str,
    path: Path | None,
    out: Path,
    fresh: bool = False,
    translations: Sequence[Path] = (),
    **options: Any,
) -> KnowledgeGraph:
    """The graph of source `name`, with translations of its names, saved in `out`. Raises
    InputError."""
    module = source_module(name)
    check_no_input(out, [*([path] if path is not None else []), *translations])
    recipe = {"reader": name, "options": options, "inputs": inputs_of(module, path)}
    if translations:
        for file in translations:
            if not file.is_file():
                raise InputError(f"{file}: no such file. Check --translations.")
        recipe["translated"] = [sha256(file) for file in translations]
    if GRAPH.is_kept(out, recipe, fresh):
        return KnowledgeGraph.load(out)
    arguments = grouped_arguments(module.read, options, options)
    graph = module.read(**arguments) if path is None else module.read(path, **arguments)
    if not len(graph.entities):
        files = ", ".join(recipe["inputs"])
        raise InputError(
            f"{path or name}: no entity in it ({files:.200}). Check the files and the options."
        )
    graph = without_no_names(graph)
    if translations:
        graph = add_translations(graph, translations)
    graph.manifest |= recipe
    graph.save(out)
    return graph
