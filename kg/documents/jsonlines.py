"""Documents in JSON: lines or an array of objects (PubMedDS's layout too)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.files import InputError
from core.json_files import json_lines, json_records
from core.reading import excerpt
from kg.documents.mentions import (
    ATTRIBUTES,
    BY_LINE,
    NO_ENTITY,
    NOT_FITTING,
    Document,
    Layout,
    Mention,
    Source,
    attributes_of,
    checked_mention,
    counted_unless_used,
)
from kg.ids import is_no_concept


def _first(record: dict[str, Any], *keys: str) -> Any:
    return next((record[key] for key in keys if record.get(key) is not None), None)


def json_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """JSON lines with `id`, `_id` or `pmid`; `text`; optionally `title`, put before the text with a
    line end between.

    `mentions` is a list of objects: `start` or `start_offset`, `end` or `end_offset` (both counted
    in `text`), `entity` or `link_id`; optionally `mention` (what the text says there) and `score`.
    """
    left_out = Counter() if left_out is None else left_out
    for where, record in json_lines(path, encoding):
        yield _json_document(where, record, left_out, used, layout)


def json_array_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """A JSON array of objects as :func:`json_documents` reads them."""
    left_out = Counter() if left_out is None else left_out
    for number, (_, record) in enumerate(json_records(Path(path), encoding, ()), start=1):
        yield _json_document(f"{path}: document {number}", record, left_out, used, layout)


def _json_document(
    where: str, record: dict[str, Any], left_out: Counter[str], used: bool, layout: Layout
) -> Document:
    """A document of an object. Raises InputError where id or text are missing."""
    if "id" not in record and ("documents" in record or "PubTator3" in record):
        raise InputError(
            f"{where}: this is BioC in JSON. Give {FORMAT_OPTION} biocjson, or put bioc into"
            " the file's name."
        )
    if "denotations" in record and "mentions" not in record:
        raise InputError(
            f"{where}: this is PubAnnotation's JSON. Give {FORMAT_OPTION} pubannotation."
        )
    ids = (layout.id_field,) if layout.id_field else ("id", "_id", "pmid")
    name = _first(record, *ids)
    if type(name) not in (str, int) or name == "":
        raise InputError(
            f"{where}: expected an id under {' or '.join(ids)}, got {name!r}. Add one, or name the"
            " key with --id-field."
        )
    key = layout.text_field or "text"
    text, title = record.get(key), record.get("title") or ""
    title = "" if layout.text_field else title
    if not isinstance(text, str) or not isinstance(title, str):
        raise InputError(
            f"{where}: expected a string under {key} (and title, if any), got {excerpt(text)}. Name"
            " the key with --text-field."
        )
    mentions = list(_json_mentions(where, text, record.get("mentions") or [], left_out, used))
    if title:
        shift = len(title) + 1
        mentions = [m._replace(start=m.start + shift, end=m.end + shift) for m in mentions]
        text = f"{title}\n{text}" if text else title
    linked = tuple(m for m in mentions if m.entity)
    unlinked = tuple(m for m in mentions if not m.entity)
    left_out[NO_ENTITY] += len(unlinked)
    return Document(str(name), text, linked, where, unlinked)


#: the option that names a format, as commands have it
FORMAT_OPTION = "--format (of annotated texts --gold-format, --linking-format or --data-format)"
#: keys of a mention in JSON
READ_OF_MENTIONS = {
    *("start", "end", "start_offset", "end_offset", "entity", "link_id", "type", "score"),
    *("mention", "text", *ATTRIBUTES),
}


def _json_mentions(
    where: str, text: str, entries: Any, left_out: Counter[str], used: bool
) -> Iterator[Mention]:
    """The mentions of a line of JSON. Raises InputError for one that does not fit the text, where
    they are used."""
    listed = entries if isinstance(entries, list) else [entries]
    for m in listed:
        if isinstance(entries, list) and isinstance(m, dict):
            with counted_unless_used(left_out, used):
                start, end = _first(m, "start", "start_offset"), _first(m, "end", "end_offset")
                entity, kind = _first(m, "entity", "link_id"), m.get("type")
                typed = entity is None and isinstance(kind, str)  # found, and linked to nothing
                score = m.get("score")
                checked = checked_mention(
                    where,
                    text,
                    start,
                    end,
                    "none" if typed else entity,
                    _first(m, "mention", "text"),
                    1.0 if score is None or typed else score,
                )
                entity_id = "" if typed or is_no_concept(checked.entity) else checked.entity
                for key in sorted(m.keys() - READ_OF_MENTIONS):
                    if used and m[key] not in (None, "", [], False):
                        left_out[f"fields of mentions that are not read ({key})"] += 1
                yield checked._replace(
                    entity=entity_id,
                    type=kind if isinstance(kind, str) else "",
                    attributes=attributes_of(m),
                )
        elif used:
            raise InputError(f"{where}: expected a list of objects under mentions.")
        else:
            left_out[NOT_FITTING] += 1
