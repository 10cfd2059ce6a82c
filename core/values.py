"""The texts of settings as values: numbers, lists, truth, paths."""

from __future__ import annotations

import inspect
import re
import shlex
import types
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from core.files import InputError

TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def several(value: str) -> list[str]:
    """The words of a setting that may hold several, quoted as in a shell; a path that exists as it
    is written is one word."""
    if Path(value).exists():
        return [value]
    words = shlex.shlex(value, posix=True)
    # a backslash stays as it is typed
    words.whitespace_split, words.commenters, words.escape = True, "", ""
    try:
        return list(words)
    except ValueError as error:
        raise InputError(f"{value!r}: {error}; quote a word with blanks, as in a shell") from error


def split_commas(words: Sequence[str]) -> list[str]:
    """The words of a list, each of which may be several with commas between them."""
    return [part.strip() for word in words for part in word.split(",") if part.strip()]


def holds_numbers(kind: Any) -> bool:
    return any(get_args(t) == (int,) for t in _parts(kind))


def split_list(value: str, kind: Any) -> list[Any]:
    """The parts of a list's text: numbers with commas (0,2), or words."""
    if holds_numbers(kind):
        parts = [part for part in re.split(r"[,\s]+", value) if part]
        return [int(part) if part.isdigit() else part for part in parts]
    return several(value)


def split_lists(texts: Iterable[Any], kind: Any) -> list[Any]:
    return list(chain.from_iterable(split_list(text, kind) for text in texts))


def _parts(kind: Any) -> tuple[Any, ...]:
    """The types of a union without None; of another type itself."""
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(t for t in get_args(kind) if t is not type(None))
    return (kind,)


def is_list(kind: Any) -> bool:
    return any(get_origin(t) in (list, Sequence) for t in _parts(kind))


def is_mapping(kind: Any) -> bool:
    return any(t is dict or get_origin(t) in (dict, Mapping) for t in _parts(kind))


def is_bool(kind: Any) -> bool:
    return _parts(kind) == (bool,)


def describe_type(kind: Any) -> str:
    """What values a type accepts, in words."""
    parts = []
    for t in _parts(kind):
        name = getattr(t, "__name__", str(t))
        if get_origin(t) is Literal:
            parts.append("one of " + ", ".join(map(str, get_args(t))))
        elif is_list(t):
            parts.append(
                "whole numbers, with commas" if holds_numbers(t) else "one or several words"
            )
        else:
            parts.append(
                {
                    "int": "a whole number",
                    "PositiveInt": "a whole number, 1 or more",
                    "NonNegativeInt": "a whole number, 0 or more",
                    "float": "a number",
                    "PositiveFloat": "a number above 0",
                    "bool": "yes or no",
                    "Path": "a path",
                    "str": "a text",
                    "ClosedUnitInterval": "a number from 0 to 1",
                }.get(name, name)
            )
    return " or ".join(parts)


def format_default(value: Any) -> str:
    """A default in help."""
    if value is None or value == () or value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool):
        return " (default: yes)" if value else " (default: no)"
    return f" (default: {' '.join(map(str, value)) if isinstance(value, (list, tuple)) else value})"
