"""PubTator: title and abstract of each document, and its annotations on lines of their own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from core.files import InputError
from core.reading import excerpt, lines, whole_number
from kg.documents.mentions import (
    BY_LINE,
    NO_ENTITY,
    Document,
    Layout,
    Mention,
    Source,
    attributes_of,
    checked_mention,
    counted_unless_used,
)
from kg.ids import is_no_concept

RELATIONS = "relation lines"


_HEAD = re.compile(r"[^|\t]*\|[ta]\|")  # of a document of PubTator


class Annotation(NamedTuple):
    """A mention as PubTator has it: `text[start:end]` is `surface`; `entity` may say that there is
    none (kg.ids)."""

    where: str
    start: int
    end: int
    surface: str
    type: str
    entity: str
    attributes: tuple[str, ...] = ()


def pubtator_annotations(
    path: Source, encoding: str = "utf-8", left_out: Counter[str] | None = None, used: bool = True
) -> Iterator[tuple[str, str, str, list[Annotation]]]:
    """(file and line, id, text, annotations) of each document of a PubTator file.

    PubTator: `id|t|title`, `id|a|abstract`, then lines id, start, end, mention, type, entity; a
    blank line. The text is title, line end, abstract, to which the offsets fit. Relation lines (id,
    a name of a relation, ids) are counted in `left_out`. Raises InputError for any other line, and
    for offsets that do not fit the text; where the annotations are not `used`, those are counted
    instead.
    """
    left_out = Counter() if left_out is None else left_out
    block: list[tuple[int, str]] = []
    for number, line in lines(path, encoding):
        if line.strip():
            block.append((number, line))
        elif block:
            yield _parse_block(path, block, left_out, used)
            block = []
    if block:
        yield _parse_block(path, block, left_out, used)


def _parse_block(
    path: Source, block: list[tuple[int, str]], left_out: Counter[str], used: bool
) -> tuple[str, str, str, list[Annotation]]:
    where = f"{path}:{block[0][0]}"
    head = [line.split("|", 2) for _, line in block[:2]]
    if [(len(part), *part[1:2]) for part in head] != [(3, "t"), (3, "a")] or head[0][0] != head[1][
        0
    ]:
        raise InputError(
            f"{where}: expected a line 'id|t|title' and then 'id|a|abstract' of one id, got "
            f"{excerpt(block[0][1])}. Put a blank line between documents."
        )
    name, title, abstract = head[0][0], head[0][2], head[1][2]
    text, annotations = f"{title}\n{abstract}" if title or abstract else "", []
    for number, line in block[2:]:
        part = line.split("\t")
        if part[0] != name and (used or _HEAD.match(line)):
            raise InputError(
                f"{path}:{number}: expected an annotation of document {name}, got {excerpt(line)}. "
                "Put a blank line between documents."
            )
        if len(part) >= 4 and part[1][:1].isalpha():
            left_out[RELATIONS] += 1
            continue
        with counted_unless_used(left_out, used):
            annotations.append(_annotation(f"{path}:{number}", line, name, text))
    return where, name, text, annotations


def _annotation(at: str, line: str, name: str, text: str) -> Annotation:
    """An annotation of the document `name`. Raises InputError for one that does not fit its
    text."""
    part = line.split("\t")
    if len(part) < 5 or part[0] != name:
        raise InputError(
            f"{at}: expected id, start, end, mention, type, entity, got {excerpt(line)}. Put tabs"
            " between them."
        )
    start, end = whole_number(at, "start", part[1]), whole_number(at, "end", part[2])
    checked_mention(at, text, start, end, "any", part[3])
    entity = part[5].strip() if len(part) > 5 else ""
    attributes = dict(word.split("=", 1) for word in "".join(part[6:7]).split("; ") if "=" in word)
    return Annotation(at, start, end, part[3], part[4], entity, attributes_of(attributes))


def pubtator_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """PubTator, as :func:`pubtator_annotations` reads it. Mentions without an entity are counted in
    `left_out` as well."""
    left_out = Counter() if left_out is None else left_out
    for where, name, text, marks in pubtator_annotations(path, encoding, left_out, used):
        named = [a for a in marks if not is_no_concept(a.entity)]
        left_out[NO_ENTITY] += len(marks) - len(named)
        linked = tuple(Mention(a.start, a.end, a.entity, 1.0, a.type, a.attributes) for a in named)
        others = [a for a in marks if is_no_concept(a.entity)]
        unlinked = tuple(Mention(a.start, a.end, "", 1.0, a.type, a.attributes) for a in others)
        yield Document(name, text, linked, where, unlinked)
