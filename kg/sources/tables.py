"""Plain tables (CSV, TSV or JSON Lines; .gz too) -> KnowledgeGraph.

    entities     id, name [, type]                          names     id, name [, kind, language, source]
    definitions  id, text                                   triples   head, relation, tail
    equivalences head, tail [, relation]                    pairs that mean the same; they never become triples

Every table has a header line (JSON Lines: these keys); further columns are ignored. CSV is quoted with `"`, TSV is not
quoted. A folder is searched for entities.csv, names.tsv.gz, …; a single file holds triples. PyKEEN's and Hetionet's
triple files, `h<TAB>r<TAB>t` without a header, are read with headerless.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from core.files import InputError, lines
from kg.graph import SCHEMAS, KnowledgeGraph, table

FORMS = (".csv", ".tsv", ".jsonl")
REQUIRED = {
    "entities": ("id", "name"),
    "names": ("id", "name"),
    "definitions": ("id", "text"),
    "triples": ("head", "relation", "tail"),
    "equivalences": ("head", "tail"),
}
SAME = "equivalent"  #: the relation of an equivalence that names none  # fmt: skip

Row = tuple[str, dict[str, str]]  # (path:line, values)


def _form(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix


def _found(folder: Path, part: str) -> list[Path]:
    return [path for form in FORMS for end in ("", ".gz") if (path := folder / f"{part}{form}{end}").is_file()]


def _json_rows(path: Path, encoding: str) -> Iterator[Row]:
    for number, line in lines(path, encoding):
        where = f"{path}:{number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{where}: wanted a JSON object, got {line[:60]!r}. Mend the line.") from error
        if not isinstance(value, dict):
            raise InputError(f"{where}: wanted a JSON object, got {line[:60]!r}. Mend the line.")
        yield where, {key: "" if item is None else str(item) for key, item in value.items()}


def _delimited_rows(path: Path, encoding: str, header: tuple[str, ...] | None) -> Iterator[Row]:
    comma = _form(path) == ".csv"
    number = 0

    def text() -> Iterator[str]:
        nonlocal number
        for number, line in lines(path, encoding):
            yield (line.removeprefix("\ufeff") if number == 1 else line) + "\n"

    reader = csv.reader(text(), delimiter="," if comma else "\t", strict=comma,
                        quoting=csv.QUOTE_MINIMAL if comma else csv.QUOTE_NONE)  # fmt: skip
    columns = header
    start = 1
    try:
        for values in reader:
            where, start = f"{path}:{start}", number + 1
            if columns is None:
                columns = tuple(value.strip() for value in values)
                continue
            if len(values) != len(columns):
                raise InputError(f"{where}: wanted {len(columns)} columns ({', '.join(columns)}), got {len(values)}. "
                                 "Mend the line.")  # fmt: skip
            yield where, dict(zip(columns, values, strict=True))
    except csv.Error as error:
        raise InputError(f"{path}:{start}: not valid CSV ({error}). Mend the line.") from error


def _rows(
    path: Path, part: str, encoding: str, headerless: bool, columns: dict[str, str], optional: tuple[str, ...] = ()
) -> Iterator[Row]:
    """The required (never empty) and optional columns of one table, `columns` being the names the file has for them."""
    header = REQUIRED[part] if headerless else None
    rows = _json_rows(path, encoding) if _form(path) == ".jsonl" else _delimited_rows(path, encoding, header)
    for where, values in rows:
        row = {}
        for column in REQUIRED[part]:
            value = values.get(columns.get(column, column))
            if value is None:
                raise InputError(f"{where}: wanted the columns {', '.join(REQUIRED[part])}, got {', '.join(values)}. "
                                 "Rename them, say --columns head=source,…, or use --headerless.")  # fmt: skip
            row[column] = value if column == "text" else " ".join(value.split())
            if not row[column]:
                raise InputError(f"{where}: {column} is empty. Fill it in or take the line out.")
        for column in optional:
            row[column] = values.get(columns.get(column, column), "").strip()
        yield where, row


def files(path: str | Path) -> list[Path]:
    """Every file that :func:`read` may read: the path itself, or all in the folder. Raises InputError for none."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.is_file())
    if not found:
        raise InputError(f"{path}: an empty folder. Put entities.csv and triples.csv there (.tsv, .jsonl, .gz too).")
    return found


def read(
    path: str | Path,
    entities: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    definitions: Sequence[str] | None = None,
    triples: Sequence[str] | None = None,
    equivalences: Sequence[str] | None = None,
    columns: Sequence[str] = (),
    headerless: bool = False,
    missing: Literal["error", "add"] = "error",
    encoding: str = "utf-8",
    language: str = "en",
    source: str = "tables",
    version: str = "not stated",
    licence: str = "not stated",
) -> KnowledgeGraph:
    """The tables in the folder `path`, or the triples in the file `path`.

    Raises InputError naming path:line for a broken or empty value, a repeated entity or an unknown id.

    Args:
        entities: Files of entities inside the folder. Default: those of that name.
        names: Files of names inside the folder. Default: those of that name.
        definitions: Files of definitions inside the folder. Default: those of that name.
        triples: Files of triples inside the folder. Default: those of that name.
        equivalences: Files of equivalences inside the folder. Default: those of that name.
        columns: Columns that have other names, ours=theirs, such as head=source.
        headerless: Whether the files of triples have no header line.
        missing: What an entity id is that the entities lack: an error, or a new entity named by its id (add).
        encoding: Encoding of the files.
        language: Language of names that say none.
        source: Source of names that say none.
        version: Version of the graph, for its manifest.
        licence: Licence of the graph, for its manifest.
    """
    path = Path(path)
    if missing not in ("error", "add"):
        raise InputError(f"--missing {missing}: wanted error or add")
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise InputError(f"--encoding {encoding}: no such encoding; try utf-8, gb18030 or latin-1") from error
    renamed: dict[str, str] = {}
    for pair in columns:
        ours, equals, theirs = pair.partition("=")
        if not equals or not any(ours in (*schema.names,) for schema in SCHEMAS.values()):
            raise InputError(f"--columns {pair}: wanted ours=theirs, ours one of id, name, type, kind, language, "
                             "source, text, head, relation, tail")  # fmt: skip
        renamed[ours] = theirs
    given = {"entities": entities, "names": names, "definitions": definitions, "triples": triples,
             "equivalences": equivalences}  # fmt: skip
    if path.is_dir():
        found = {part: [path / one for one in chosen] if chosen is not None else _found(path, part)
                 for part, chosen in given.items()}  # fmt: skip
    else:
        found = {part: [] for part in given} | {"triples": [path]}
    if not any(found.values()):
        raise InputError(f"{path}: no tables here. Put entities.csv and triples.csv there (.tsv, .jsonl, .gz too), or "
                         "name files with --entities, --names, --definitions, --triples, --equivalences.")  # fmt: skip
    if not found["entities"] and missing == "error":
        raise InputError(f"{path}: no entities table. Give one (id, name, type), or take all ids: --missing add")

    entity: dict[str, tuple[str, str]] = {}
    name_rows: dict[tuple[str, str, str, str, str], None] = {}
    definition_rows: dict[tuple[str, str], None] = {}
    triple_rows: dict[tuple[str, str, str], None] = {}
    equal_rows: dict[tuple[str, str, str], None] = {}

    def known(one: str, where: str) -> str:
        if one not in entity:
            if missing == "error":
                raise InputError(f"{where}: unknown entity id {one!r}. Add it to the entities, or use --missing add.")
            entity[one] = one, ""
            name_rows[one, one, "preferred", language, source] = None
        return one

    for file in found["entities"]:
        for where, row in _rows(file, "entities", encoding, False, renamed, ("type",)):
            if row["id"] in entity:
                raise InputError(f"{where}: entity id {row['id']!r} stands there twice. Take one of them out.")
            entity[row["id"]] = row["name"], row["type"]
            name_rows[row["id"], row["name"], "preferred", language, source] = None
    for file in found["names"]:
        for where, row in _rows(file, "names", encoding, False, renamed, ("kind", "language", "source")):
            name_rows[known(row["id"], where), row["name"], row["kind"] or "synonym", row["language"] or language,
                      row["source"] or source] = None  # fmt: skip
    for file in found["definitions"]:
        for where, row in _rows(file, "definitions", encoding, False, renamed):
            definition_rows[known(row["id"], where), row["text"].strip()] = None
    for file in found["triples"]:
        for where, row in _rows(file, "triples", encoding, headerless, renamed):
            triple_rows[known(row["head"], where), row["relation"], known(row["tail"], where)] = None
    for file in found["equivalences"]:
        for where, row in _rows(file, "equivalences", encoding, False, renamed, ("relation",)):
            equal_rows[known(row["head"], where), row["relation"] or SAME, known(row["tail"], where)] = None

    def built(part: str, rows: list[tuple[str, ...]]) -> dict[str, list[str]]:
        return {column: [row[place] for row in rows] for place, column in enumerate(SCHEMAS[part].names)}

    return KnowledgeGraph(
        entities=table("entities", built("entities", [(one, *rest) for one, rest in entity.items()])),
        names=table("names", built("names", list(name_rows))),
        definitions=table("definitions", built("definitions", list(definition_rows))),
        triples=table("triples", built("triples", list(triple_rows))),
        equivalences=table("equivalences", built("equivalences", list(equal_rows))),
        manifest={"source": f"tables in {path.name}", "version": version, "licence": licence},
    )
