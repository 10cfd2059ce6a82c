"""Formats of outputs: JSON lines, PubTator, BioC in XML and JSON, tables with a row a mention."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from core.choices import list_known
from core.files import InputError
from core.outputs import check_ending
from core.reading import unpacked_name
from core.spreadsheets import CsvWriter
from inference.attributes import describe
from kg.documents.bioc import HEAD, TAIL, bioc_document, biocjson_document
from kg.documents.tabular import MENTION_COLUMNS, mention_rows

FORMATS = ("jsonl", "pubtator", "bioc", "biocjson", "csv", "tsv")
#: of outputs, whose names may also end in .gz, .bz2 or .xz
ENDINGS = (".jsonl", ".ndjson", ".json", ".pubtator", ".xml", ".csv", ".tsv")


def format_of(output: str | Path, format: str | None) -> str:
    """The format of an output file: as given, else by its name. Raises InputError, also for a name
    of another ending."""
    if format is None:
        name = unpacked_name(output).lower()
        ending = Path(name).suffix
        if "pubtator" in name and ending not in (".jsonl", ".ndjson", ".json", ".xml"):
            return "pubtator"
        ending = check_ending(output, ENDINGS, f"give --to: one of {', '.join(FORMATS)}")
        if ending in (".csv", ".tsv"):
            return ending[1:]
        if ending == ".xml":
            return "bioc"
        return "biocjson" if ending == ".json" and "bioc" in name else "jsonl"
    if format not in FORMATS:
        raise InputError(f"no format {format!r}; {list_known(format, FORMATS)}")
    return format


#: no text of PubTator: what parts its lines and columns, for other programs too; each becomes a
#: blank, so that offsets hold
_SEPARATORS = dict.fromkeys(map(ord, "\0\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029|\ufeff"), " ")


#: the same but for the bar, which is between the ids of a composite mention
_SEPARATORS_OF_COLUMNS = {place: " " for place in _SEPARATORS if place != ord("|")}


def _plain(value: Any, separators: dict[int, str] = _SEPARATORS_OF_COLUMNS) -> str:
    """A value without what parts lines and columns of PubTator; - where nothing is left."""
    text = str(value).translate(separators)
    return text if text.strip() else "-"


def plain_id(value: Any) -> str:
    """A document's id without what parts lines, columns and the parts of a title."""
    return _plain(value, _SEPARATORS)


def pubtator(line: dict[str, Any]) -> str:
    """A record as PubTator: the text as title (its line ends as blanks, so that offsets hold) and
    an empty abstract.

    A mention that is linked to nothing has the id -. What else is said of a mention is in a seventh
    column, which readers of PubTator leave out: negated=true; part=breast cancer.
    """
    text = line["text"].translate(_SEPARATORS)
    name = plain_id(line["id"])
    rows = [f"{name}|t|{text}", f"{name}|a|"]
    for m in line["mentions"]:
        surface = text[m["start"] : m["end"]]
        entity = m.get("entity")
        described = [_plain(m["type"] or "-"), _plain("-" if entity is None else entity)]
        note = "; ".join(f"{key}={_plain(value)}" for key, value in describe(m).items())
        rows.append(
            "\t".join(
                [
                    name,
                    str(m["start"]),
                    str(m["end"]),
                    surface,
                    *described,
                    *([note] if note else []),
                ]
            )
        )
    return "\n".join(rows) + "\n\n"


def _infons(mention: dict[str, Any]) -> dict[str, str]:
    """What BioC says of a mention; without an entity it has the identifier -, as PubTator's."""
    values = {
        "type": mention["type"],
        "identifier": mention.get("entity") or "-",
        "name": mention.get("name"),
        "score": mention["score"],
    }
    return {key: str(value) for key, value in values.items() if value is not None} | describe(
        mention
    )


def bioc(lines: Iterable[dict[str, Any]], json_: bool) -> Iterator[str]:
    """Records as the parts of a BioC file, in XML or in JSON."""
    yield (
        '{"source": "KEPL", "date": "", "key": "", "infons": {}, "documents": [\n'
        if json_
        else HEAD
    )
    for number, line in enumerate(lines):
        parts = (
            str(line["id"]),
            line["text"],
            [(m["start"], m["end"], _infons(m)) for m in line["mentions"]],
        )
        if json_:
            yield (",\n" if number else "") + json.dumps(
                biocjson_document(*parts), ensure_ascii=False
            )
        else:
            yield bioc_document(*parts)
    yield "\n]}\n" if json_ else TAIL


def format_records(lines: Iterable[dict[str, Any]], format: str) -> Iterator[str]:
    """Records as the parts of a file of `format`, a key of FORMATS other than jsonl."""
    if format in ("csv", "tsv"):
        return tabular(lines, "," if format == "csv" else "\t")
    return map(pubtator, lines) if format == "pubtator" else bioc(lines, format == "biocjson")


def tabular(lines: Iterable[dict[str, Any]], delimiter: str) -> Iterator[str]:
    """Records as the rows of a table, one a mention, under a heading (MENTION_COLUMNS)."""
    part = io.StringIO(newline="")
    writer = CsvWriter(part, delimiter=delimiter)
    writer.writerow(MENTION_COLUMNS)
    for line in lines:
        for row in mention_rows(line):
            writer.writerow(row)
        yield part.getvalue()
        part.seek(0)
        part.truncate()
    yield part.getvalue()
