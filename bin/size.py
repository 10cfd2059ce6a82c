"""Print how large and how dense the code of each room is: ``python -P -m bin.size``.

Code tokens leave out comments, docstrings and line breaks; a line of code is one with a code token.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("core", "kg", "datamodules", "models", "experiments", "inference", "benchmarks", "app")
LONG = 60  #: lines above which a function is counted as long
MANY = 12  #: parameters from which a function is counted as having many
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Size:
    """What is counted of one file or one room."""

    tokens: int = 0
    lines: int = 0
    long_functions: int = 0
    many_parameters: int = 0

    def __iadd__(self, other: Size) -> Size:
        self.tokens += other.tokens
        self.lines += other.lines
        self.long_functions += other.long_functions
        self.many_parameters += other.many_parameters
        return self


def docstring_lines(tree: ast.Module) -> set[int]:
    """The lines at which the docstrings of a module begin."""
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *Function)) and ast.get_docstring(node):
            lines.add(node.body[0].lineno)
    return lines


def measure(text: str) -> Size:
    """The size of one Python file."""
    tree = ast.parse(text)
    docstrings = docstring_lines(tree)
    size = Size()
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type in NOT_CODE or (token.type == tokenize.STRING and line in docstrings):
            continue
        size.tokens += 1
        lines.add(line)
    size.lines = len(lines)
    for node in ast.walk(tree):
        if isinstance(node, Function):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            size.long_functions += length > LONG
            size.many_parameters += len(arguments) >= MANY
    return size


def main() -> None:
    """Print one line for each room, for all rooms together, and for the tests."""
    sizes: defaultdict[str, Size] = defaultdict(Size)
    for room in (*ROOMS, "tests"):
        for path in sorted((ROOT / room).rglob("*.py")):
            size = measure(path.read_text())
            sizes[room] += size
            if room != "tests":
                sizes["all rooms"] += size
    long, many = f"over {LONG} lines", f"{MANY}+ parameters"
    print(f"{'room':12} {'tokens':>8} {'a line':>7} {long:>14} {many:>15}")
    for name in (*ROOMS, "all rooms", "tests"):
        size = sizes[name]
        density = size.tokens / max(size.lines, 1)
        print(
            f"{name:12} {size.tokens:8,} {density:7.1f} {size.long_functions:14}"
            f" {size.many_parameters:15}"
        )


if __name__ == "__main__":
    main()
