"""Arguments of the functions that users call from Python, checked against their annotations.

@typed
def link_files(pipeline: Pipeline, inputs: Sequence[str | Path], ...) -> Counts: ...

link_files(p, "notes")      TypeError: link_files: inputs: expected a sequence of str or Path,
                            got str ('notes')
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from core.files import InputError
from core.reading import excerpt

P = ParamSpec("P")
R = TypeVar("R")
UNIONS = (Union, types.UnionType)
NUMBERS: dict[Any, type] = {int: Integral, float: Real}


def check_types(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which raises TypeError for an argument that its annotation does not allow."""
    signature = inspect.signature(function)
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)

    @wraps(function)
    def check_and_call(*args: P.args, **kwargs: P.kwargs) -> R:
        name = function.__qualname__.removesuffix(".__init__")
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        for parameter, value in bound.items():
            declared = signature.parameters[parameter]
            if declared.kind not in several and declared.annotation is not inspect.Parameter.empty:
                check(
                    f"{name}: {parameter}",
                    value,
                    _resolve_annotation(declared.annotation, function),
                )
        return function(*args, **kwargs)

    return check_and_call


def check_fields(record: Any) -> None:
    """Raise TypeError for a field of a dataclass that its annotation does not allow."""
    for field in dataclasses.fields(record):
        kinds = type(record).__mro__
        owner = next(k for k in kinds if field.name in vars(k).get("__annotations__", ()))
        hint = _resolve_annotation(field.type, check_fields, owner.__module__)
        check(f"{type(record).__name__}: {field.name}", getattr(record, field.name), hint)


def check(what: str, value: Any, hint: Any) -> None:
    """Raise TypeError, which begins with `what`, for a value that `hint` does not allow; InputError
    for a string that is not one of those in `hint`."""
    if not fits(value, hint):
        parts = get_args(hint) if get_origin(hint) in UNIONS else (hint,)
        chosen = isinstance(value, str) and any(get_origin(part) is Literal for part in parts)
        error = InputError if chosen else TypeError
        raise error(
            f"{what}: expected {describe(hint)}, got {type(value).__name__} ({excerpt(value)})"
        )


def _resolve_annotation(annotation: Any, function: Callable[..., Any], module: str = "") -> Any:
    """An annotation as types; the names in it where they are imported for type checkers alone."""
    if not isinstance(annotation, str):
        return annotation
    space = vars(sys.modules[module]) if module else function.__globals__
    holder = types.SimpleNamespace(__annotations__={"value": annotation})
    try:
        return get_type_hints(holder, space)["value"]
    except NameError:
        return annotation


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, as far as that can be seen without changing the value."""
    origin, parts = get_origin(hint), get_args(hint)
    if isinstance(hint, str):  # names alone
        if inner := re.fullmatch(r"Sequence\[(.*)\]", hint):
            return _fits_container(value, Sequence, (inner[1],))
        named = {part.strip() for part in hint.split("|")}
        return any(base.__name__ in named for base in type(value).__mro__)
    if hint in (None, type(None)):
        return value is None
    if origin in UNIONS:
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if hint in NUMBERS:
        return isinstance(value, NUMBERS[hint]) and not isinstance(value, bool)
    if origin is not None and isinstance(origin, type):
        return _fits_container(value, origin, parts)
    return hint is Any or not isinstance(hint, type) or isinstance(value, hint)


def _fits_container(value: Any, origin: type, parts: tuple[Any, ...]) -> bool:
    if isinstance(value, (str, bytes)) and issubclass(origin, Iterable):
        return False
    if not isinstance(value, origin):
        return False
    if (
        isinstance(value, tuple)
        and issubclass(origin, tuple)
        and not (len(parts) == 2 and parts[1] is Ellipsis)
    ):
        return len(value) == len(parts) and all(map(fits, value, parts))
    if isinstance(value, Mapping) or len(parts) != 1:
        return True
    if isinstance(value, Collection) and issubclass(origin, Iterable):
        return all(fits(item, parts[0]) for item in value)
    return True


def describe(hint: Any) -> str:
    """A type in words: "a sequence of str or Path"."""
    origin, parts = get_origin(hint), get_args(hint)
    if isinstance(hint, str):
        if inner := re.fullmatch(r"Sequence\[(.*)\]", hint):
            return f"a sequence of {describe(inner[1])}"
        return " or ".join(part.strip() for part in hint.split("|"))
    if hint in (None, type(None)):
        return "None"
    if origin in UNIONS:
        return " or ".join(map(describe, parts))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        return f"a tuple of {', '.join('…' if p is Ellipsis else describe(p) for p in parts)}"
    if origin is not None and issubclass(origin, Sequence):
        return f"a sequence of {describe(parts[0])}"
    if origin is not None and issubclass(origin, Mapping):
        return "a mapping"
    if origin is not None and issubclass(origin, Iterable) and len(parts) == 1:
        return f"an iterable of {describe(parts[0])}"
    if origin is not None:
        return "an iterable" if issubclass(origin, Iterable) else "a function"
    return getattr(hint, "__name__", str(hint))
