"""Plain tables (CSV, TSV or JSON Lines; .gz too) -> KnowledgeGraph.

    entities     id, name [, type]                          names     id, name [, kind, language,
                                                                      source]
    definitions  id, text                                   triples   head, relation, tail
    equivalences head, tail [, relation]                    pairs that mean the same; they never
                                                            become triples

Every table has a header line (JSON Lines: these keys). CSV is quoted with `"`; in TSV a field that
is in quotes as a whole is. The kind of a name is one of kg.graph.KINDS, its language a code or an
English word; both in upper or lower case. A folder is searched for entities.csv, names.tsv.gz, …
or, where a part has no such file, one of another usual name (FILES: relations.csv, synonyms.tsv); a
single file holds triples. Names of files and columns may be in upper or lower case, in the singular
or the plural; columns that may be left out have other usual names too (COLUMNS: lang). Further
files and columns, hidden files and tables without a row are counted in the manifest; a graph needs
one entity. PyKEEN's and Hetionet's triple files, `h<TAB>r<TAB>t`
without a header, are read with headerless.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from core.files import InputError, check_encoding, json_lines, lines, unpacked_name
from core.settings import nearest
from kg.build.sources.umls import LANGUAGES as ISO_LANGUAGES
from kg.graph import KINDS, SCHEMAS, KnowledgeGraph, table

HIDDEN = "hidden files"
FORMS = (".csv", ".tsv", ".jsonl")
REQUIRED = {
    "entities": ("id", "name"),
    "names": ("id", "name"),
    "definitions": ("id", "text"),
    "triples": ("head", "relation", "tail"),
    "equivalences": ("head", "tail"),
}
#: Other names of the files of a part, singular and without their endings.
FILES = {
    "entities": ("entity", "node", "concept", "vertex"),
    "names": ("name", "synonym", "alias", "term"),
    "definitions": ("definition", "description"),
    "triples": ("triple", "relation", "edge", "relationship", "fact"),
    "equivalences": ("equivalence", "equivalent"),
}
#: Other names of the columns that may be left out.
COLUMNS = {
    "type": ("kind", "category", "semantictype", "entitytype"),
    "kind": ("type", "nametype"),
    "language": ("lang", "lat"),
    "source": ("vocabulary", "sab"),
    "relation": ("predicate",),
}
#: codes of languages by their other codes and words
LANGUAGES = ISO_LANGUAGES | {
    "ENGLISH": "en",
    "ZHO": "zh",
    "CHINESE": "zh",
    "FRA": "fr",
    "DEU": "de",
    "中文": "zh",
    "英文": "en",
}
SAME = "equivalent"  #: the relation of an equivalence that names none

Row = tuple[str, dict[str, str]]  # (path:line, values)


def _form(path: Path) -> str:
    return Path(unpacked_name(path)).suffix.lower()


def _plain(name: str) -> str:
    """A name of a file or column without case, blanks, _ and -, in the singular."""
    name = "".join(c for c in name.lower() if c not in " _-")
    for plural, singular in (("ies", "y"), ("vertices", "vertex"), ("aliases", "alias"), ("s", "")):
        if name.endswith(plural) and not name.endswith(("ss", "alias")):
            return name.removesuffix(plural) + singular
    return name


def _find_files(folder: Path, parts: Iterable[str]) -> tuple[dict[str, list[Path]], list[Path]]:
    """({part: its files} of `parts` by their names, the other files). Raises InputError where two
    other names are for one part."""
    every = sorted(
        path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")
    )
    tables = {
        path: _plain(Path(unpacked_name(path)).stem) for path in every if _form(path) in FORMS
    }
    found: dict[str, list[Path]] = {}
    for part in parts:
        order = [path for form in FORMS for path in tables if _form(path) == form]
        found[part] = [path for path in order if tables[path] == _plain(part)]
        if found[part]:
            continue
        others = [path for path in order if tables[path] in FILES[part]]
        if len({tables[path] for path in others}) > 1:
            raise InputError(
                f"{folder}: {' and '.join(p.name for p in others)} could all be {part}. Name which:"
                f" --{part} FILE"
            )
        found[part] = others
    return found, [path for path in every if not any(path in own for own in found.values())]


def _json_rows(path: Path, encoding: str) -> Iterator[Row]:
    for where, value in json_lines(path, encoding, "Fix the line."):
        yield where, {key: "" if item is None else str(item) for key, item in value.items()}


def _delimited_rows(path: Path, encoding: str, header: tuple[str, ...] | None) -> Iterator[Row]:
    if _form(path) != ".csv":
        yield from _tab_rows(path, encoding, header)
        return
    number = 0

    def text() -> Iterator[str]:
        nonlocal number
        for number, line in lines(path, encoding):  # noqa: B007 - used in errors
            yield line + "\n"

    reader = csv.reader(text(), delimiter=_delimiter(path, encoding), strict=True)
    columns = header
    start = 1
    try:
        for values in reader:
            where, start = f"{path}:{start}", number + 1
            if columns is None:
                columns = _header(where, values)
            else:
                yield where, _row(where, columns, values)
    except csv.Error as error:
        raise InputError(f"{path}:{start}: not valid CSV ({error}). Fix the line.") from error


def _delimiter(path: Path, encoding: str) -> str:
    """What parts the columns of a CSV: a semicolon, as Excel writes it in many countries, where
    the heading has one and no comma."""
    heading = next((line for _, line in lines(path, encoding)), "")
    return ";" if ";" in heading and "," not in heading else ","


def _tab_rows(path: Path, encoding: str, columns: tuple[str, ...] | None) -> Iterator[Row]:
    for number, line in lines(path, encoding):
        where, values = f"{path}:{number}", _fields(line)
        if columns is None:
            columns = _header(where, values)
        else:
            yield where, _row(where, columns, values)


def _fields(line: str) -> list[str]:
    """The fields between tabs; one that is in quotes as a whole loses them. Other quotes are
    characters."""
    if '"' not in line:
        return line.split("\t")
    try:
        return next(csv.reader([line], delimiter="\t", strict=True))
    except csv.Error:  # a quotation mark that is a character of its field
        return line.split("\t")


def _header(where: str, values: Sequence[str]) -> tuple[str, ...]:
    """The columns of a header line. Raises InputError for a name that occurs twice."""
    columns = tuple(value.strip() for value in values)
    twice = next(
        (column for column, times in Counter(columns).items() if column and times > 1), None
    )
    if twice is not None:
        raise InputError(f"{where}: the column {twice!r} occurs twice. Rename one of the two.")
    return columns


def _row(where: str, columns: tuple[str, ...], values: Sequence[str]) -> dict[str, str]:
    if len(values) != len(columns):
        raise InputError(
            f"{where}: expected {len(columns)} columns ({', '.join(columns)}), got {len(values)}."
            " Fix the line."
        )
    return dict(zip(columns, values, strict=True))


def _rows(
    path: Path,
    part: str,
    encoding: str,
    headerless: bool,
    columns: dict[str, str],
    optional: tuple[str, ...],
    left_out: Counter[str],
    more: Sequence[str] = (),
) -> Iterator[Row]:
    """The required (never empty) and optional columns of one table, `columns` being the names the
    file has for them, and the columns `more` under their own names. Raises InputError for one of
    these that the table lacks."""
    header = REQUIRED[part] if headerless else None
    rows = (
        _json_rows(path, encoding)
        if _form(path) == ".jsonl"
        else _delimited_rows(path, encoding, header)
    )
    count = 0
    places: dict[tuple[str, ...], dict[str, str]] = {}
    further: dict[str, None] = {}
    for where, values in rows:
        count += 1
        own = places.get(tuple(values))
        if own is None:
            own = places[tuple(values)] = _places(where, part, tuple(values), columns, optional)
            if lacking := [name for name in more if name not in values]:
                raise InputError(
                    f"{where}: no column {lacking[0]!r}; expected one of {', '.join(values):.200}"
                )
            used = {*own.values(), *more}
            further.update((name, None) for name in values if name not in used)
        row = {}
        for column in REQUIRED[part]:
            value = values[own[column]]
            row[column] = value if column == "text" else " ".join(value.split())
            if not row[column]:
                raise InputError(f"{where}: {column} is empty. Fill it in or take the line out.")
        for column in optional:
            row[column] = values[own[column]].strip() if column in own else ""
        yield where, row | {column: values[column] for column in more}
    if not count:
        left_out[f"{path.name}: a table without a row"] += 1
    if further:
        left_out[
            f"columns of {path.name} that no table of {part} has ({', '.join(further):.200})"
        ] += len(further)


#: what a field says that has no name
NO_NAMES = frozenset({"n/a", "na", "null", "none", "nan", "-", "--"})


def split_names(field: str, separator: str) -> list[str]:
    """The names in a field, each once, without blanks at their ends."""
    names = (" ".join(name.split()) for name in field.split(separator))
    return list(dict.fromkeys(name for name in names if name))


def _places(
    where: str,
    part: str,
    header: tuple[str, ...],
    columns: dict[str, str],
    optional: tuple[str, ...],
) -> dict[str, str]:
    """{our column: its name in `header`}. Raises InputError for a required one that is missing, and
    for two of one name."""
    found: dict[str, str] = {}
    for column in (*REQUIRED[part], *optional):
        named = columns.get(column, column)
        same = [name for name in header if name == named] or [
            name for name in header if _plain(name) == _plain(named)
        ]
        if not same and column in optional and column not in columns:
            free = [
                name
                for name in header
                if name not in columns.values() and _plain(name) not in map(_plain, found)
            ]
            same = [name for name in free if _plain(name) in COLUMNS[column]]
        if len(same) > 1:
            raise InputError(
                f"{where}: {' and '.join(same)} could both be {column}. Say which: --columns"
                f" {column}={same[0]}"
            )
        if same:
            found[column] = same[0]
        elif column in REQUIRED[part]:
            raise InputError(
                f"{where}: expected the columns {', '.join(REQUIRED[part])}, got"
                f" {', '.join(header):.200}. Rename them, say --columns head=source,…, or use"
                " --headerless."
            )
    return found


def _kind(where: str, value: str) -> str:
    """A name's kind in lower case, "synonym" where there is none. Raises InputError for one that no
    graph has."""
    kind = "_".join(value.lower().split()) or "synonym"
    if kind not in KINDS:
        raise InputError(
            f"{where}: no kind of name {value!r}; {nearest(kind, KINDS)}Choose from:"
            f" {', '.join(KINDS)}"
        )
    return kind


def _language(where: str, value: str) -> str:
    """A language's code in lower case: en for en, EN, eng and English. Raises InputError for what
    is no code."""
    code = LANGUAGES.get(value.upper(), value.lower())
    if code and not re.fullmatch(r"[a-z]{2,3}(?:[-_][a-z0-9]{2,8})*", code):
        raise InputError(
            f"{where}: expected the code of a language, such as en or zh, got {value!r:.40}. Fix"
            " the line."
        )
    return code


def files(path: str | Path) -> list[Path]:
    """Every file that :func:`read` may read: the path itself, or all in the folder. Raises
    InputError for none."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    every = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    found = sorted(
        path / file for file in every if not any(part.startswith(".") for part in file.parts)
    )
    if not found:
        raise InputError(
            f"{path}: an empty folder. Put entities.csv and triples.csv there (.tsv, .jsonl, .gz"
            " too)."
        )
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
    synonyms: Sequence[str] = (),
    separator: str = "|",
    encoding: str = "utf-8",
    language: str = "en",
    source: str = "tables",
    version: str = "not stated",
    licence: str = "not stated",
) -> KnowledgeGraph:
    """The tables in the folder `path`, or the triples in the file `path`.

    Raises InputError naming path:line for a broken or empty value, a repeated entity or an unknown
    id.

    Args:
        entities: Files of entities inside the folder. Default: those of that name.
        names: Files of names inside the folder. Default: those of that name.
        definitions: Files of definitions inside the folder. Default: those of that name.
        triples: Files of triples inside the folder. Default: those of that name.
        equivalences: Files of equivalences inside the folder. Default: those of that name.
        columns: Columns that have other names, ours=theirs, such as head=source.
        headerless: Whether the files of triples have no header line.
        missing: What an entity id is that the entities lack: an error, or a new entity named by its
            id (add).
        synonyms: Columns of the entities with further names of theirs, several to a field.
        separator: What parts the names in a field of --synonyms.
        encoding: Encoding of the files.
        language: Language of names that say none.
        source: Source of names that say none.
        version: Version of the graph, for its manifest.
        licence: Licence of the graph, for its manifest.
    """
    path = Path(path)
    if not separator:
        raise InputError("--separator: expected at least one character")
    if missing not in ("error", "add"):
        raise InputError(f"--missing {missing}: expected error or add")
    check_encoding(encoding)
    renamed: dict[str, str] = {}
    for pair in columns:
        ours, equals, theirs = pair.partition("=")
        if not equals or not any(ours in (*schema.names,) for schema in SCHEMAS.values()):
            raise InputError(
                f"--columns {pair}: expected ours=theirs, ours one of id, name, type, kind,"
                " language, source, text, head, relation, tail"
            )
        renamed[ours] = theirs
    given = {
        "entities": entities,
        "names": names,
        "definitions": definitions,
        "triples": triples,
        "equivalences": equivalences,
    }
    left_out: Counter[str] = Counter()
    if path.is_dir():
        by_name, others = _find_files(
            path, [part for part, chosen in given.items() if chosen is None]
        )
        found = {
            part: by_name[part] if chosen is None else [path / one for one in chosen]
            for part, chosen in given.items()
        }
        read_too = {file for own in found.values() for file in own}
        hidden = [one for one in path.iterdir() if one.name.startswith(".")]
        left_out[HIDDEN] += sum(file not in read_too for file in hidden)
        unread = [file for file in others if file not in read_too]
        if unread:
            left_out[
                f"files that are no table ({', '.join(file.name for file in unread):.200})"
            ] = len(unread)
    else:
        found = {part: [] for part in given} | {"triples": [path]}
    if not any(found.values()):
        raise InputError(
            f"{path}: no tables here. Put entities.csv and triples.csv there (.tsv, .jsonl, .gz"
            " too), or name files with --entities, --names, --definitions, --triples,"
            " --equivalences."
        )
    if not found["entities"] and missing == "error":
        others_too = (
            f"; not read: {', '.join(f.name for f in unread):.200}"
            if path.is_dir() and unread
            else ""
        )
        raise InputError(
            f"{path}: no entities table{others_too}. Give one (id, name, type), or take all ids:"
            " --missing add"
        )

    entity: dict[str, tuple[str, str]] = {}
    name_rows: dict[tuple[str, str, str, str, str], None] = {}
    definition_rows: dict[tuple[str, str], None] = {}
    triple_rows: dict[tuple[str, str, str], None] = {}
    equal_rows: dict[tuple[str, str, str], None] = {}

    def require_entity(one: str, where: str) -> str:
        if one not in entity:
            if missing == "error":
                raise InputError(
                    f"{where}: unknown entity id {one!r}. Add it to the entities, or use --missing"
                    " add."
                )
            entity[one] = one, ""
            name_rows[one, one, "preferred", language, source] = None
        return one

    def add(rows: dict[Any, None], part: str, *row: str) -> None:
        left_out[f"rows of {part} that stand there twice"] += row in rows
        rows[row] = None

    for file in found["entities"]:
        optional = ("type",)
        for where, row in _rows(
            file, "entities", encoding, False, renamed, optional, left_out, synonyms
        ):
            if row["id"] in entity:
                raise InputError(
                    f"{where}: entity id {row['id']!r} occurs twice. Take one of them out."
                )
            entity[row["id"]] = row["name"], row["type"]
            name_rows[row["id"], row["name"], "preferred", language, source] = None
            for column in synonyms:
                for name in split_names(row[column], separator):
                    if name.casefold() in NO_NAMES:
                        left_out[f"fields of {column} that say there is no name ({name})"] += 1
                    elif name != row["name"]:
                        add(name_rows, "names", row["id"], name, "synonym", language, source)
    for file in found["names"]:
        for where, row in _rows(
            file, "names", encoding, False, renamed, ("kind", "language", "source"), left_out
        ):
            kind, own_language = (
                _kind(where, row["kind"]),
                _language(where, row["language"]) or language,
            )
            add(
                name_rows,
                "names",
                require_entity(row["id"], where),
                row["name"],
                kind,
                own_language,
                row["source"] or source,
            )
    for file in found["definitions"]:
        for where, row in _rows(file, "definitions", encoding, False, renamed, (), left_out):
            add(
                definition_rows,
                "definitions",
                require_entity(row["id"], where),
                row["text"].strip(),
            )
    for file in found["triples"]:
        for where, row in _rows(file, "triples", encoding, headerless, renamed, (), left_out):
            add(
                triple_rows,
                "triples",
                require_entity(row["head"], where),
                row["relation"],
                require_entity(row["tail"], where),
            )
    for file in found["equivalences"]:
        for where, row in _rows(
            file, "equivalences", encoding, False, renamed, ("relation",), left_out
        ):
            add(
                equal_rows,
                "equivalences",
                require_entity(row["head"], where),
                row["relation"] or SAME,
                require_entity(row["tail"], where),
            )

    if not entity:
        tables = found["entities"] or [file for own in found.values() for file in own]
        raise InputError(
            f"{', '.join(map(str, tables)):.200}: no entity. Expected a line for each, such as"
            " id,name and then D1,heart attack."
        )

    def built(part: str, rows: list[tuple[str, ...]]) -> dict[str, list[str]]:
        return {
            column: [row[place] for row in rows] for place, column in enumerate(SCHEMAS[part].names)
        }

    return KnowledgeGraph(
        entities=table(
            "entities", built("entities", [(one, *rest) for one, rest in entity.items()])
        ),
        names=table("names", built("names", list(name_rows))),
        definitions=table("definitions", built("definitions", list(definition_rows))),
        triples=table("triples", built("triples", list(triple_rows))),
        equivalences=table("equivalences", built("equivalences", list(equal_rows))),
        manifest={
            "source": f"tables in {path.name}",
            "version": version,
            "licence": licence,
            "left_out": dict(+left_out),
        },
    )
