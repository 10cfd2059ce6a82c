"""One-line faults at random places of the product's Python and YAML files.

mutmut 3 changes only what is in functions, and cosmic-ray runs a shell command for each fault of
every operator; neither changes YAML, draws a seeded sample of a room, swaps arguments or axes, or
runs its tests in the processes of tests/preload.py. What is left of them are the operators below,
which are shorter than what would have to be put around either.

Kinds: comparison, boundary, constant, sign, arguments (two swapped), statement (dropped), axis,
logic (and/or/not), slice (off by one), default (of a parameter or a field), yaml (a number or a
flag of a config). A kind is drawn first and then one of its places, so that frequent kinds do not
displace rare ones.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import yaml

from tests.mutants.contexts import ROOMS

COMPARISONS = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
BOUNDARIES = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
SIGNS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "*"}
#: methods and functions whose first whole number is an axis
REDUCTIONS = set(
    "sum mean amax amin argmax argmin max min cumsum softmax log_softmax logsumexp norm"
    " squeeze unsqueeze any all std var sort argsort flip stack cat concatenate".split()
)
AXES = ("dim", "axis")


@dataclass(frozen=True)
class Change:
    """The characters `start` to `end` of a file become `new`."""

    file: str
    kind: str
    start: int
    end: int
    old: str
    new: str
    line: int
    code: str  # the line as it was

    def apply(self, root: Path) -> str:
        """The changed text of the file."""
        text = (root / self.file).read_text()
        return text[: self.start] + self.new + text[self.end :]


@dataclass(frozen=True)
class Place:
    """A node's characters in a text."""

    start: int
    end: int


class Finder:
    """The changes that one Python file allows."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        lines = text.splitlines(keepends=True)
        self.encoded = [line.encode() for line in lines]
        self.lines = lines
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))

    def locate(self, node: ast.AST) -> Place:
        """Where a node is; columns of the syntax tree are bytes."""
        begin = self._offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return Place(begin, self._offset(node.end_lineno, node.end_col_offset))  # type: ignore[attr-defined]

    def _offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.encoded[line - 1][:column].decode())

    def source(self, node: ast.AST) -> str:
        place = self.locate(node)
        return self.text[place.start : place.end]

    def change(self, kind: str, place: Place, new: str) -> Iterator[Change]:
        """The change, if what it leaves is valid."""
        old = self.text[place.start : place.end]
        if old == new:
            return
        line = self.text.count("\n", 0, place.start) + 1
        code = self.lines[line - 1].strip()
        yield Change(self.file, kind, place.start, place.end, old, new, line, code)

    def changes(self) -> Iterator[Change]:
        tree = ast.parse(self.text)
        skipped = self._skipped(tree)
        for node in ast.walk(tree):
            if id(node) not in skipped:
                yield from self._visit_node(node)

    def _skipped(self, tree: ast.Module) -> set[int]:
        """Annotations, what only type checkers read, and guards of scripts."""
        roots: list[ast.AST | None] = []
        for node in ast.walk(tree):
            roots += [getattr(node, "annotation", None), getattr(node, "returns", None)]
            # zip's own check of what the code around it already has
            if isinstance(node, ast.keyword) and node.arg == "strict":
                roots.append(node)
            if isinstance(node, ast.If) and self.source(node.test).startswith(
                ("TYPE_CHECKING", "__name__")
            ):
                roots.append(node)
        return {id(n) for root in roots if root for n in ast.walk(root)}

    def _visit_node(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                between = Place(self.locate(left).end, self.locate(right).start)
                yield from self._operator("comparison", between, COMPARISONS.get(type(op)), node)
                yield from self._operator("boundary", between, BOUNDARIES.get(type(op)), node)
            case ast.BinOp(left=left, op=op, right=right):
                texts = (ast.JoinedStr, ast.Constant)
                if any(isinstance(n, texts) and not is_number(n) for n in (left, right)):
                    return
                between = Place(self.locate(left).end, self.locate(right).start)
                yield from self._operator("sign", between, SIGNS.get(type(op)), node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                yield from self.change("sign", self.locate(node), self.source(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield from self.change("logic", self.locate(node), self.source(operand))
            case ast.BoolOp(op=op, values=values):
                other = "or" if isinstance(op, ast.And) else "and"
                for left, right in pairwise(values):
                    between = Place(self.locate(left).end, self.locate(right).start)
                    yield from self._operator("logic", between, other, node)
            case ast.Constant() if is_number(node):
                yield from self.change("constant", self.locate(node), alter(node.value))
            case ast.Call():
                yield from self._visit_call(node)
            case ast.Slice(lower=lower, upper=upper):
                if lower:
                    new = f"{bracket(lower, self.source(lower))} + 1"
                    yield from self.change("slice", self.locate(lower), new)
                if upper:
                    new = f"{bracket(upper, self.source(upper))} - 1"
                    yield from self.change("slice", self.locate(upper), new)
            case ast.arguments(args=args, defaults=defaults, kw_defaults=keywords):
                for value in [*defaults[-len(args) :], *keywords]:
                    if value and is_number(value):
                        yield from self.change("default", self.locate(value), alter_of(value))
            case ast.ClassDef(body=body):
                fields = [s.value for s in body if isinstance(s, ast.AnnAssign) and s.value]
                for value in filter(is_number, fields):
                    yield from self.change("default", self.locate(value), alter_of(value))
            case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
                yield from self.change("statement", self.locate(node), "pass")
            case ast.Expr(value=ast.Call()):
                yield from self.change("statement", self.locate(node), "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield from self.change("statement", self.locate(node), "pass")

    def _visit_call(self, node: ast.Call) -> Iterator[Change]:
        for left, right in pairwise(node.args):
            starred = isinstance(left, ast.Starred) or isinstance(right, ast.Starred)
            first, second = self.source(left), self.source(right)
            if not starred and first != second:
                place = Place(self.locate(left).start, self.locate(right).end)
                between = self.text[self.locate(left).end : self.locate(right).start]
                yield from self.change("arguments", place, f"{second}{between}{first}")
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        axes = [k.value for k in node.keywords if k.arg in AXES]
        axes += node.args[:2] if name in REDUCTIONS else []
        for value in axes:
            text = self.source(value)
            if text.lstrip("-").isdigit():
                yield from self.change("axis", self.locate(value), "1" if text == "0" else "0")

    def _operator(
        self, kind: str, between: Place, new: str | None, node: ast.AST
    ) -> Iterator[Change]:
        """Another operator between two operands; what is around it (brackets, line ends) stays."""
        if new is None:
            return
        text = self.text[between.start : between.end]
        old = text.strip("() \n\\")
        if "#" in text or not old or text.count(old) != 1:
            return
        start = between.start + text.index(old)
        yield from self.change(kind, Place(start, start + len(old)), new)


def is_number(node: ast.AST) -> bool:
    """A number or a flag."""
    return isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float)


def alter(value: object) -> str:
    """Another value of the same type."""
    if isinstance(value, bool):
        return str(not value)
    return repr(value + 1) if isinstance(value, int) else repr((value or 0.1) * 10)  # type: ignore[operator]


def alter_of(node: ast.AST) -> str:
    return alter(node.value) if isinstance(node, ast.Constant) else ""


def bracket(node: ast.AST, text: str) -> str:
    """An expression that a sum can be made with."""
    simple = ast.Constant | ast.Name | ast.Attribute | ast.Call | ast.Subscript
    return text if isinstance(node, simple) else f"({text})"


def list_yaml_changes(file: str, text: str) -> Iterator[Change]:
    """Numbers and flags of a config."""
    lines = text.splitlines()
    waiting = [node for node in yaml.compose_all(text) if node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            # what a paper's section says of its sources is prose
            waiting += [v for k, v in node.value if k.value not in ("paper", "sources")]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif node.tag.endswith((":int", ":float", ":bool")) and not node.style:
            value = yaml.safe_load(node.value)
            start, end = node.start_mark.index, node.end_mark.index
            line = node.start_mark.line
            new = alter(value).lower() if isinstance(value, bool) else alter(value)
            code = lines[line].strip()
            yield Change(file, "yaml", start, end, text[start:end], new, line + 1, code)


def list_changes(root: Path, file: str) -> list[Change]:
    """Every change of a file that leaves it valid, in the order of their places."""
    text = (root / file).read_text()
    if file.endswith(".yaml"):
        return list(list_yaml_changes(file, text))
    changes = sorted(set(Finder(file, text).changes()), key=lambda c: (c.start, c.end, c.kind))
    # a default and a constant at one place are one change
    defaults = {c.start for c in changes if c.kind in ("default", "axis")}
    return [c for c in changes if c.kind != "constant" or c.start not in defaults]


def is_valid(change: Change, root: Path) -> bool:
    """Whether the changed file is Python, or YAML, and another one than before."""
    text = change.apply(root)
    try:
        if change.file.endswith(".yaml"):
            return bool(yaml.safe_load(text) != yaml.safe_load((root / change.file).read_text()))
        return ast.dump(ast.parse(text)) != ast.dump(ast.parse((root / change.file).read_text()))
    except (SyntaxError, yaml.YAMLError):
        return False


def list_files(root: Path, room: str) -> list[str]:
    found = [p for p in (root / room).rglob("*") if p.suffix in (".py", ".yaml") and p.is_file()]
    return sorted(str(p.relative_to(root)) for p in found)


def draw(root: Path, count: int, seed: int, rooms: tuple[str, ...] = ROOMS) -> list[Change]:
    """So many changes, spread over the rooms and over the kinds; the same for the same seed and
    sources. Raises ValueError when there are fewer."""
    chosen: list[Change] = []
    for number, room in enumerate(rooms):
        share = count // len(rooms) + (number < count % len(rooms))
        generator = random.Random(f"{seed} {room}")
        kinds: dict[str, list[Change]] = {}
        for file in list_files(root, room):
            for change in list_changes(root, file):
                kinds.setdefault(change.kind, []).append(change)
        drawn: list[Change] = []
        while len(drawn) < share:
            left = sorted(kind for kind, places in kinds.items() if places)
            if not left:
                raise ValueError(f"{room}: {len(drawn)} faults at most, expected {share}")
            places = kinds[generator.choice(left)]
            change = places.pop(generator.randrange(len(places)))
            if is_valid(change, root):
                drawn.append(change)
        chosen += drawn
    return chosen
