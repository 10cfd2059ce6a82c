"""Sphinx settings of these pages: `make docs`."""

import ast
import inspect
import sys
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

project = "KEPL"
author = "The KEPL authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "KEPL"
exclude_patterns = ["_build", "results/tables"]  # templates, which `make results` fills in
myst_heading_anchors = 3
highlight_language = "none"
autodoc_typehints = "none"  # the signature has them as they are written
autodoc_preserve_defaults = True


class Docstring(Directive):
    """The docstring of a source file, read without importing it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = ast.get_docstring(ast.parse((ROOT / self.arguments[0]).read_text())) or ""
        return [nodes.literal_block(text, text)]


class Commands(Directive):
    """A section for each command, with its help as the parser prints it."""

    def run(self) -> list[nodes.Node]:
        from app.cli import verb_help
        from app.verbs import VERBS

        found: list[nodes.Node] = []
        for name in VERBS:
            section = nodes.section(ids=[f"kepl-{name}"])
            text = verb_help(name, [])
            section += [nodes.title(text=f"kepl {name}"), nodes.literal_block(text, text)]
            found.append(section)
        return found


def as_written(
    app: object, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Docstrings are plain text: their layout is kept."""
    text = inspect.cleandoc("\n".join(lines)).strip()
    lines[:] = ["::", "", *("    " + line for line in text.splitlines()), ""] if text else []


def setup(app: object) -> None:
    app.add_directive("docstring", Docstring)  # type: ignore[attr-defined]
    app.add_directive("commands", Commands)  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", as_written)  # type: ignore[attr-defined]
