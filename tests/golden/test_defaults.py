"""Defaults of functions and dataclasses, constants of numbers, and numbers and flags of YAML files,
against defaults.json: what is left out means what it says. A default that was changed on purpose is
written again, and its effect belongs in CHANGELOG.md.

    python -m tests.golden.test_defaults      writes defaults.json again
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("defaults.json")
ROOT = Path(__file__).resolve().parents[2]
ROOMS = "core kg datamodules models experiments inference benchmarks app".split()


def list_arguments(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """(name, default) of the arguments that have one."""
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults = function.args.defaults
    for argument, value in zip(
        positional[len(positional) - len(defaults) :], defaults, strict=True
    ):
        yield argument.arg, ast.unparse(value)
    for argument, own in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if own is not None:
            yield argument.arg, ast.unparse(own)


def is_number(node: ast.expr) -> bool:
    """Whether an expression is made of numbers alone: 1 << 20, (0.5, 2)."""
    parts = [part for part in ast.walk(node) if not isinstance(part, ast.operator | ast.unaryop)]
    allowed = ast.Constant | ast.BinOp | ast.UnaryOp | ast.Tuple | ast.expr_context
    numbers = [part for part in parts if isinstance(part, ast.Constant)]
    return (
        bool(numbers)
        and all(isinstance(part, allowed) for part in parts)
        and all(type(part.value) in (int, float) for part in numbers)
    )


def is_literal(node: ast.expr) -> bool:
    """Whether an expression is a literal with a number in it: {"units": (0x3380, 0x33d5)}."""
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return any(
        isinstance(p, ast.Constant) and type(p.value) in (int, float) for p in ast.walk(node)
    )


def list_constants(node: ast.expr, place: str) -> Iterator[tuple[str, str]]:
    """(dotted name, source) of a constant of numbers, of a dictionary by its keys."""
    if isinstance(node, ast.Dict) and is_literal(node):
        for key, value in zip(node.keys, node.values, strict=True):
            assert key is not None
            yield from list_constants(value, f"{place}[{ast.unparse(key)}]")
    elif is_number(node) or is_literal(node):
        yield place, ast.unparse(node)


def list_defaults(body: list[ast.stmt], place: str, fields: bool) -> Iterator[tuple[str, str]]:
    """(dotted name, source) of every default and numeric constant in a module or class."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            for name, value in list_arguments(node):
                yield f"{place}.{node.name}({name})", value
        elif isinstance(node, ast.ClassDef):
            yield from list_defaults(node.body, f"{place}.{node.name}", True)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            name = f"{place}.{ast.unparse(node.target)}"
            if fields:
                yield name, ast.unparse(node.value)
            else:
                yield from list_constants(node.value, name)
        elif isinstance(node, ast.Assign):
            yield from list_constants(node.value, f"{place}.{ast.unparse(node.targets[0])}")


def list_settings(value: object, place: str) -> Iterator[tuple[str, str]]:
    """(dotted name, number or flag) of all that YAML says; notes on its origin are words."""
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in parts:
            yield from list_settings(part, f"{place}.{name}")
    elif isinstance(value, bool | int | float):
        yield place, repr(value)


def describe_defaults() -> dict[str, str]:
    found: dict[str, str] = {}
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.yaml")):
            content = yaml.CSafeLoader(file.read_text("utf-8")).get_single_data()
            found |= list_settings(content, file.relative_to(ROOT).as_posix())
        for file in sorted((ROOT / room).rglob("*.py")):
            module = file.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            found |= list_defaults(ast.parse(file.read_text("utf-8")).body, module, False)
    return found


def test_defaults_and_constants_are_those_of_the_table() -> None:
    known = json.loads(FILE.read_text())
    found = describe_defaults()
    changed = {name for name in known.keys() | found.keys() if known.get(name) != found.get(name)}
    assert not changed, (
        f"changed: {', '.join(sorted(changed))}. Meant so? python -m tests.golden.test_defaults"
    )


def test_defaults_and_constants_are_found() -> None:
    text = (
        "SIZE, LEAST = 100, 5\nNAME = 'x'\n_LIMIT: int = 1 << 20\n"
        "def f(a, b=1, *, c, d=None): ...\n"
        "class A:\n    size: int = 3\n    def g(self, h=-0.5): ...\n"
    )
    assert dict(list_defaults(ast.parse(text).body, "m", False)) == {
        "m.(SIZE, LEAST)": "(100, 5)",
        "m._LIMIT": "1 << 20",
        "m.f(b)": "1",
        "m.f(d)": "None",
        "m.A.size": "3",
        "m.A.g(h)": "-0.5",
    }


def test_numbers_and_flags_of_yaml_are_found() -> None:
    content = {"a": [{"b": 1, "c": "x"}, True], "d": None, "e": 1e-5}
    assert dict(list_settings(content, "f")) == {"f.a.0.b": "1", "f.a.1": "True", "f.e": "1e-05"}


if __name__ == "__main__":
    FILE.write_text(f"{json.dumps(describe_defaults(), indent=0, sort_keys=True)}\n")
