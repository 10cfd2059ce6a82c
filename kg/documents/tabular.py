"""Tables: CSV, TSV or Parquet with a row a document, columns id and text, or as named; and rows of
mentions.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.files import InputError
from core.reading import lines, open_bytes, unpacked_name
from kg.build.rows import Form, sheet_rows
from kg.documents.mentions import ATTRIBUTES, BY_LINE, Document, Layout, Source

#: columns that a table's ids and texts may have, where none is named
ID_COLUMNS, TEXT_COLUMNS = ("id", "_id", "pmid", "note_id", "doc_id"), ("text", "note", "note_text")


# --- tables


def table_rows(path: Source, encoding: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path:line, {column: value}) of a CSV (commas, semicolons, tabs, or bars), a TSV, a Parquet
    file or the first sheet of a workbook. Raises InputError for a table without a heading, or a row
    of another length."""
    place = Path(path)
    if place.suffix.lower() == ".xlsx":
        yield from sheet_rows(place, Form())
        return
    if unpacked_name(place).lower().endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(place) as file:
                for batch in file.iter_batches():
                    for number, row in enumerate(batch.to_pylist(), start=1):
                        yield f"{place}: row {number}", row
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{place}: not a Parquet file ({error})") from error
        return
    with open_bytes(place) as handle:
        head = handle.read(1 << 16).decode(encoding, "replace").partition("\n")[0]
    delimiter = max("\t;|,", key=head.count)  # of equal ones the comma comes last, and loses
    delimiter = "," if not head.count(delimiter) else delimiter
    csv.field_size_limit(1 << 27)
    reader = csv.reader((f"{line}\n" for _, line in lines(place, encoding)), delimiter=delimiter)
    columns: list[str] = []
    begun = 1
    try:
        for row in reader:
            if not columns:
                columns = [cell.strip() for cell in row]
                twice = [name for name, times in Counter(columns).items() if name and times > 1]
                if twice:
                    raise InputError(f"{place}:{begun}: the column {twice[0]!r} occurs twice")
            elif row:
                if len(row) != len(columns):
                    raise InputError(
                        f"{place}:{begun}: expected {len(columns)} columns, as the heading has, got"
                        f" {len(row)}"
                    )
                yield f"{place}:{begun}", dict(zip(columns, row, strict=True))
            begun = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{place}:{begun}: not a table ({error})") from error


def table_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """A document a row. Raises InputError for a table without the two columns."""
    ids = (layout.id_field,) if layout.id_field else ID_COLUMNS
    texts = (layout.text_field,) if layout.text_field else TEXT_COLUMNS
    for where, row in table_rows(path, encoding):
        by_name = {str(key).lower(): key for key in row} | {str(key): key for key in row}
        id_key = next((by_name[key] for key in ids if key in by_name), None)
        text_key = next((by_name[key] for key in texts if key in by_name), None)
        if {"id", "start", "end", "entity"} <= set(by_name):
            raise InputError(
                f"{where}: a table of mentions, which does not hold the texts that they are in."
                " Give the file that they were made from (JSON lines, BioC)."
            )
        if id_key is None or text_key is None:
            raise InputError(
                f"{where}: expected a column {' or '.join(ids)} and a column {' or '.join(texts)},"
                f" got {', '.join(map(str, row))}. Name them with --id-field and --text-field."
            )
        name, text = row[id_key], row[text_key]
        if name is None or str(name).strip() == "":
            raise InputError(f"{where}: no id in column {id_key}. Add one.")
        yield Document(str(name), "" if text is None else str(text), (), where)


#: columns of a table of mentions, a row each
MENTION_COLUMNS = (
    "id",
    "start",
    "end",
    "text",
    "type",
    "entity",
    "name",
    "score",
    "part",
    "matched",
    *ATTRIBUTES,
)


def mention_rows(record: dict[str, Any]) -> Iterator[list[Any]]:
    """The rows of a record's mentions, with the columns MENTION_COLUMNS."""
    for m in record["mentions"]:
        surface = m.get("text", record["text"][m["start"] : m["end"]])
        row = {**m, "id": record["id"], "text": surface}
        yield ["" if row.get(name) is None else row[name] for name in MENTION_COLUMNS]
