"""Readers of the Chinese tasks' files: ChineseBLUE (Zhang et al. 2020) and CBLUE / CHIP 2020 (Zhang
et al. 2022).

cMedQANER .txt, DXY-NER            datamodules.formats.bio(tokens=False)
cMedQANER .json                    mentions
CMeEE (cNNER)                      nested
CMeIE (CHIP-RE), DXY-RE            triples
cMedQQ, cMedQNLI, cMedQA, WebMedQA datamodules.formats.pairs
KUAKE-QQR, KUAKE-QTR               queries
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container
from pathlib import Path
from typing import Any

from core.files import InputError
from core.json_files import json_records
from core.reading import excerpt, whole_number
from datamodules.formats import NoLabels, check_label, group, line_id, mark_spans, some, text_at
from datamodules.tasks import Pair, Relation, Tagged

OTHER_CASE = "mentions that differ from their text in upper and lower case"
MOVED = "mentions whose offset is one off, put where the text has them"
REPEATED = "entities or triples that stand twice in one sentence, kept once"
SEVERAL = "pairs with several relations, any of which is right"
NO_SUBJECT = "triples whose subject is not in the text: no marker for it"
NO_OBJECT = "triples whose object is not in the text: no marker for it"
NESTED = "pairs whose subject and object overlap wherever they stand"

S_OPEN, S_CLOSE, O_OPEN, O_CLOSE = MARKERS = ("[S]", "[/S]", "[O]", "[/O]")


def _list(where: str, record: dict[str, Any], key: str) -> list[dict[str, Any]]:
    if key not in record:
        raise NoLabels(
            f"{where}: no {key!r}: this file has no gold labels. Score a split that has them."
        )
    value = record[key]
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise InputError(
            f"{where}: expected a list of objects under {key!r}, got {excerpt(value)}. Fix the"
            " record."
        )
    return value


def mentions(
    path: Path, *, counts: Counter[str] | None = None, encoding: str = "utf-8"
) -> list[Tagged]:
    """cMedQANER's JSON lines: text, mention_data [{mention, type, offset}], offsets as strings.

    The JSON holds more mentions than the BIO file of the same texts (12,625 against 12,490 in
    train): those that are inside another one, which BIO cannot hold. Some are written in another
    case than the text (TCT for tct), and one text's offsets are one too high; both are counted in
    `counts`. A mention that is not within one character of its offset raises InputError.
    """
    counts = Counter() if counts is None else counts
    result = []
    for where, record in json_records(path, encoding):
        text, entities = text_at(where, record, "text"), []
        for mention in _list(where, record, "mention_data"):
            surface, kind = text_at(where, mention, "mention"), text_at(where, mention, "type")
            offset = whole_number(where, f"the offset of {excerpt(surface)}", mention.get("offset"))
            folded = surface.casefold()
            near = [
                s
                for s in (offset, offset - 1, offset + 1)
                if s >= 0 and text[s : s + len(surface)].casefold() == folded
            ]
            if not near:
                raise InputError(
                    f"{where}: the text has {text[offset : offset + len(surface)]!r} at offset"
                    f" {offset}, the record says {surface!r}. Offsets count the characters of text"
                    " from 0; fix the record."
                )
            counts[MOVED] += near[0] != offset
            counts[OTHER_CASE] += text[near[0] : near[0] + len(surface)] != surface
            entities.append((near[0], near[0] + len(surface), kind))
        result.append(_make_tagged(path, where, text, entities, counts))
    return some(result, path)


def _make_tagged(
    path: Path, where: str, text: str, entities: list[tuple[int, int, str]], counts: Counter[str]
) -> Tagged:
    counts[REPEATED] += len(entities) - len(set(entities))
    name = line_id(path, where)
    return Tagged(name, name, text, sorted(set(entities)))


def read_nested(
    path: Path, *, counts: Counter[str] | None = None, encoding: str = "utf-8"
) -> list[Tagged]:
    """CMeEE's JSON list: text, entities [{start_idx, end_idx, type, entity}]; end_idx is the last
    character's place.

    Raises NoLabels for a file without `entities`, and InputError where an entity is not the text
    between its offsets.
    """
    counts = Counter() if counts is None else counts
    result = []
    for where, record in json_records(path, encoding):
        text, entities = text_at(where, record, "text"), []
        for entity in _list(where, record, "entities"):
            start = entity.get("start_idx")
            end = entity.get("end_idx")
            kind = text_at(where, entity, "type")
            if type(start) is not int or type(end) is not int or not 0 <= start <= end < len(text):
                raise InputError(
                    f"{where}: entity ({start!r}, {end!r}) is outside its text of {len(text)}"
                    " characters."
                )
            surface = entity.get("entity", text[start : end + 1])
            if text[start : end + 1] != surface:
                raise InputError(
                    f"{where}: characters {start} to {end}, both included, are"
                    f" {text[start : end + 1]!r}, the record says {surface!r}. Fix the offsets."
                )
            entities.append((start, end + 1, kind))
        result.append(_make_tagged(path, where, text, entities, counts))
    return some(result, path)


def schema(path: Path) -> list[str]:
    """The classes of CMeIE's 53_schemas.json, a line each: `subject type|predicate|object type`."""
    names = ("subject_type", "predicate", "object_type")
    classes = []
    for where, record in json_records(path):
        classes.append("|".join(text_at(where, record, name) for name in names))
    return some(classes, path)


def places(text: str, wanted: str) -> list[int]:
    """Where `wanted` begins in `text`, overlapping ones too."""
    starts, at = [], text.find(wanted)
    while at >= 0:
        starts.append(at)
        at = text.find(wanted, at + 1)
    return starts


def nearest(
    text: str, subject: str, object_: str
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Spans of the two strings: the two that do not overlap and are nearest to each other, the
    first of equals.

    Where all overlap, the first that do; None for a string that is not in the text.
    """
    first = [(s, s + len(subject)) for s in places(text, subject)]
    second = [(s, s + len(object_)) for s in places(text, object_)]
    if not first or not second:
        return (first or [None])[0], (second or [None])[0]  # type: ignore[list-item]
    gaps = [(max(a[0] - b[1], b[0] - a[1]), a, b) for a in first for b in second]
    apart = [gap for gap in gaps if gap[0] >= 0]
    _, a, b = min(apart) if apart else min(gaps, key=lambda gap: gap[1:])
    return a, b


def _value_at(where: str, triple: dict[str, Any], key: str) -> str:
    """A string, or the one under "@value" of an object."""
    value = triple.get(key)
    if isinstance(value, dict):
        return text_at(where, value, "@value")
    return text_at(where, triple, key)


def triples(
    path: Path,
    *,
    counts: Counter[str] | None = None,
    classes: Container[str] | None = None,
    encoding: str = "utf-8",
) -> list[Relation]:
    """CMeIE's JSON lines: text, spo_list [{subject, subject_type, predicate, object, object_type}];
    DXY-RE alike.

    One example per (subject, object) of a sentence: the text with [S][/S] and [O][/O] around the
    two, `gold` all its classes `subject type|predicate|object type` in the file's order, `label`
    the first. The file has strings without places; :func:`nearest` finds them. A string that is not
    in the text has no marker. `object` and `object_type` are strings or {"@value": string}. Raises
    InputError for a class that is not in `classes`.
    """
    counts = Counter() if counts is None else counts
    result = []
    for where, record in json_records(path, encoding):
        text, name = text_at(where, record, "text"), line_id(path, where)
        relations: dict[tuple[str, str], list[str]] = defaultdict(list)
        for triple in _list(where, record, "spo_list"):
            value = triple.get("object")
            extra = set(value) - {"@value"} if isinstance(value, dict) else ()
            if extra:
                raise InputError(
                    f"{where}: expected one '@value' as the object, got also"
                    f" {', '.join(sorted(extra))}."
                )
            object_, kind = (_value_at(where, triple, key) for key in ("object", "object_type"))
            parts = (text_at(where, triple, key) for key in ("subject_type", "predicate"))
            label = "|".join((*parts, kind))
            if classes is not None and label not in classes:
                raise InputError(
                    f"{where}: {label!r} is no class of the schema. Use the schema of the same"
                    " release."
                )
            gold = relations[text_at(where, triple, "subject"), object_]
            counts[REPEATED] += label in gold
            if label not in gold:
                gold.append(label)
        for number, ((subject, object_), gold) in enumerate(relations.items(), 1):
            s, o = nearest(text, subject, object_)
            counts[NO_SUBJECT] += s is None
            counts[NO_OBJECT] += o is None
            counts[NESTED] += s is not None and o is not None and s[0] < o[1] and o[0] < s[1]
            counts[SEVERAL] += len(gold) > 1
            spans = [(*s, S_OPEN, S_CLOSE)] if s else []
            spans += [(*o, O_OPEN, O_CLOSE)] if o else []
            result.append(
                Relation(f"{name}.{number}", name, mark_spans(text, spans), gold[0], gold)
            )
    return some(result, path)


def queries(
    path: Path,
    first: str,
    second: str,
    *,
    labels: Container[str] | None = None,
    counts: Counter[str] | None = None,
    encoding: str = "utf-8",
) -> list[Pair]:
    """KUAKE's JSON: {id, `first`, `second`, label}; QQR has query1 and query2, QTR query and title.

    `document` is of the first text. Raises NoLabels for a file whose records have no label.
    """
    result = []
    for where, record in json_records(path, encoding):
        if record.get("label") in (None, ""):
            raise NoLabels(
                f"{where}: no 'label': this file has no gold labels. Score a split that has them."
            )
        texts = text_at(where, record, first), text_at(where, record, second)
        label = check_label(where, str(record["label"]), labels)
        result.append(Pair(line_id(path, where), group(texts[0]), *texts, label))
    return some(result, path)
