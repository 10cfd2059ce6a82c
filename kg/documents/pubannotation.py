"""PubAnnotation: JSON with `text` and `denotations`.

An entity is an attribute `Normalization`, or the denotation's `obj` where that is an id with a
colon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.files import InputError
from core.json_files import json_records
from core.reading import excerpt
from kg.documents.mentions import (
    ATTRIBUTES,
    BY_LINE,
    DISCONTINUOUS,
    Document,
    Layout,
    Source,
    attributes_of,
    checked_mention,
    counted_unless_used,
    make_document,
)

#: {key of a document: what is not read of it}
NOT_READ = {
    "relations": "relations of PubAnnotation",
    "modifications": "modifications of PubAnnotation",
    "tracks": "further tracks of annotations (PubAnnotation)",
}


def pubannotation_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """PubAnnotation's JSON: one document, a list of them, or one a line."""
    left_out = Counter() if left_out is None else left_out
    records = [record for _, record in json_records(Path(path), encoding)]
    stem = layout.name_file(Path(path))
    sources = Counter(str(record.get("sourceid")) for record in records)
    for number, record in enumerate(records, start=1):
        where = f"{path}: document {number}"
        if not isinstance(record.get("text"), str):
            raise InputError(f"{where}: expected an object with a text and denotations")
        text = record["text"]
        ids, attributes_by_id = dict[str, str](), dict[str, dict[str, Any]]()
        for a in _list_objects(record, "attributes", where):
            predicate, subject = str(a.get("pred")).lower(), str(a.get("subj"))
            if predicate.startswith(("norm", "concept")):
                ids[subject] = str(a.get("obj"))
            else:
                attributes_by_id.setdefault(subject, {})[predicate] = a.get("obj")
        for key, reason in NOT_READ.items():
            left_out[reason] += len(_list_objects(record, key, where))
        mentions = []
        noted = set[str]()
        for note in _list_objects(record, "denotations", where):
            with counted_unless_used(left_out, used):
                if (own_id := str(note.get("id") or "")) in noted:
                    raise InputError(
                        f"{where}: a second denotation {own_id!r}. Give each an id of its own."
                    )
                noted |= {own_id} - {""}
                span = note.get("span")
                places: list[Any] = span if isinstance(span, list) and span else [span]
                if not all(isinstance(place, dict) for place in places):
                    raise InputError(
                        f"{where}: expected a span with begin and end, got {excerpt(span)}"
                    )
                left_out[DISCONTINUOUS] += len(places) > 1
                start, end = places[0].get("begin"), places[-1].get("end")
                kind = str(note.get("obj") or "")
                checked = checked_mention(where, text, start, end, "any")
                subject = str(note.get("id"))
                entity = ids.get(subject, kind if ":" in kind else "")
                attributes = attributes_of(attributes_by_id.get(subject, {}))
                mentions.append(checked._replace(entity=entity, type=kind, attributes=attributes))
        source = record.get("sourceid") or record.get("id")
        if record.get("divid") is not None and sources[str(record.get("sourceid"))] > 1:
            source = f"{source}/{record['divid']}"  # divisions of one article
        name = str(source or (stem if len(records) == 1 else f"{stem}:{number}"))
        yield make_document(name, text, mentions, where, left_out)


def _list_objects(record: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """The objects under a key, none where it is missing. Raises InputError for anything else."""
    listed = record.get(key) or []
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise InputError(f"{where}: expected a list of objects under {key}, got {excerpt(listed)}")
    return listed


def pubannotation(record: dict[str, Any]) -> dict[str, Any]:
    """A record as PubAnnotation's JSON."""
    denotations, attributes = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, m in enumerate(record["mentions"], start=1):
        place = {"begin": m["start"], "end": m["end"]}
        denotations.append({"id": f"T{number}", "span": place, "obj": m.get("type") or "Entity"})
        attributes_of_mention = {"Normalization": m["entity"]} if m.get("entity") else {}
        attributes_of_mention |= {name.capitalize(): True for name in ATTRIBUTES if m.get(name)}
        for predicate, value in attributes_of_mention.items():
            name = f"A{len(attributes) + 1}"
            attributes.append({"id": name, "pred": predicate, "subj": f"T{number}", "obj": value})
    return {
        "sourceid": str(record["id"]),
        "text": record["text"],
        "denotations": denotations,
        "attributes": attributes,
    }
