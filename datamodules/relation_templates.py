"""Templates of relations, and whether a text contains a name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain

from core.files import InputError
from core.reading import excerpt

MASK = "[MASK]"
TEXT = "relation"  #: --prompts: the relation's name
_WORD = re.compile(r"[A-Za-z0-9]")
Row = tuple[str, str, dict[str, str]]  # path, path:line, values


def phrase(relation: str) -> str:
    """A relation's name as the words of a sentence."""
    words = relation.replace("_", " ").split()
    if "".join(words).lower() == "isa":
        return "is a"
    if words and words[-1].lower() in ("of", "as", "by") and words[0].lower() != "is":
        words = ["is", *words]
    return " ".join(words)


def template_of(relation: str) -> str:
    """The template that a relation's own name makes."""
    return f"[X] {phrase(relation)} [Y]."


def fill_template(template: str, head: str, tail: str) -> str:
    """The template with head in the place of [X] and tail in that of [Y]; white space is one space,
    none before the full stop."""
    text = re.sub(r"\[[XY]\]", lambda place: head if place.group() == "[X]" else tail, template)
    return re.sub(r"\s+\.$", ".", " ".join(text.split()))


def contains_name(text: str, name: str) -> bool:
    """Whether a name is in a text, both in lower case, as the module's docstring says."""
    start = text.find(name) if name else -1
    while start >= 0:
        end = start + len(name)
        joined_before = start > 0 and _WORD.match(text[start - 1]) and _WORD.match(name[0])
        joined_behind = end < len(text) and _WORD.match(text[end]) and _WORD.match(name[-1])
        if not joined_before and not joined_behind:
            return True
        start = text.find(name, start + 1)
    return False


def answered_within(text: str, names: Iterable[Iterable[str]]) -> bool:
    """Whether a query is of Type 1."""
    low = text.replace(MASK, " ").lower()
    every_name = chain.from_iterable(names)
    return any(contains_name(low, name.lower().strip()) for name in every_name)


def read_templates(rows: Iterable[Row], path: str, column: str) -> dict[str, str]:
    """{relation: template} of a table with the columns pid and `column`. Raises InputError
    path:line for a broken one."""
    templates_read: dict[str, str] = {}
    for _, where, row in rows:
        if "pid" not in row or column not in row:
            raise InputError(
                f"{where}: expected the columns pid and {column}, got {', '.join(row)}. Choose"
                f" --prompts from its columns, or '{TEXT}' for the relations' names."
            )
        text = row[column]
        if text.count("[X]") != 1 or text.count("[Y]") != 1 or not row["pid"]:
            raise InputError(
                f"{where}: expected a relation and a template with one [X] and one [Y], got"
                f" {excerpt(text)}. Fix the line."
            )
        templates_read[row["pid"]] = text
    if not templates_read:
        raise InputError(f"{path}: no template in this file; expected a line for each relation.")
    return templates_read


def find_template(relation: str, templates_read: Mapping[str, str] | None, where: str) -> str:
    """The template of a relation: its name's, or that of a table. Raises InputError when the table
    has none."""
    if templates_read is None:
        return template_of(relation)
    if relation not in templates_read:
        raise InputError(
            f"{where}: no template for the relation {relation!r}. Add a line for it, or leave"
            " --prompts out."
        )
    return templates_read[relation]
