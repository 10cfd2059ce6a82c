"""YAML files that a user writes: settings, presets, sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from core.files import InputError
from core.reading import excerpt


class _Loader(yaml.SafeLoader):
    """SafeLoader takes the last of two equal keys; what the first one said would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = key_node.value
            line = key_node.start_mark.line + 1
            if lines.setdefault(key, line) != line:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice, in lines {lines[key]} and {line}"
                )
            lines[key] = line
        return super().construct_mapping(node, deep)


class _Words(_Loader):
    """Every plain word is text, as on a command line: no, 007 and 1e-5 are what was written."""


_Words.yaml_implicit_resolvers = {}


def read_yaml(file: str | Path, expected: str, words: bool = False) -> dict[str, Any]:
    """The names and values in a YAML file. Raises InputError for a file that cannot be read, and as
    :func:`parse_yaml`.

    expected: what such a file holds, for messages. words: every plain value is its text, not a
        number, a date, true or false.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{file}: {error.strerror}. Expected a YAML file with {expected}"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 ({error}). Save it as UTF-8.") from error
    return parse_yaml(text, str(file), expected, words)


def parse_yaml(text: str, where: str, expected: str, words: bool = False) -> dict[str, Any]:
    """The names and values that a text says. Raises InputError, which begins with `where`, for what
    is no YAML, has a key twice, or is something else than names with values."""
    try:
        content = (_Words if words else _Loader)(text).get_single_data()
    except (yaml.YAMLError, ValueError) as error:  # 2024-13-40 is no date
        raise InputError(
            f"{where}: not YAML ({' '.join(str(error).split())}). Correct the file."
        ) from error
    if not isinstance(content, dict):
        shown_value = "nothing" if content in (None, "") else excerpt(content)
        raise InputError(f"{where}: expected {expected}, got {shown_value}")
    return content
