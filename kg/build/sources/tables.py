"""Tables (CSV, TSV, JSON Lines, .xlsx; .gz too) -> KnowledgeGraph, by their usual columns or by the
preset of a vocabulary (--preset hgnc).

    entities     id, name [, type]                          names     id, name [, kind, language,
                                                                      source]
    definitions  id, text                                   triples   head, relation, tail
    equivalences head, tail [, relation]                    pairs that mean the same; they never
                                                            become triples

Every table has a heading (JSON Lines: these keys). CSV is quoted with `"`; in TSV a field that is
in quotes as a whole is. The heading says the delimiter: tab, comma, semicolon or bar. The kind of a
name is one of kg.graph.KINDS, its language a code or an English word; both in upper or lower case.
A folder is searched for entities.csv, names.tsv.gz, … or, where a part has no such file, one of
another usual name (FILES: relations.csv, synonyms.tsv); a single file holds entities or triples, by
its columns. Names of files and columns may be in upper or lower case, in the singular or the
plural; columns that may be left out have other usual names too (COLUMNS: lang). Further files and
columns, hidden files and tables without a row are counted in the manifest; a graph needs one
entity. PyKEEN's and Hetionet's triple files, `h<TAB>r<TAB>t` without a heading, are read with
headerless. Presets: kg/build/layouts.py has what they consist of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from core.choices import nearest
from core.files import InputError
from core.reading import unpacked_name
from kg.build.draft import Draft
from kg.build.layouts import REQUIRED, Layout, Preset, is_json, load_preset
from kg.build.rows import (
    FORMS,
    JSON,
    WORKBOOK,
    Form,
    Problems,
    check_table_encoding,
    form_of,
    parse_delimiter,
    read_heading,
    read_rows,
    tell_sheets,
)
from kg.build.table_reader import Table, TableReader, find_columns, plain_name
from kg.graph import SCHEMAS, KnowledgeGraph

HIDDEN = "hidden files"
PARTS = ("entities", "names", "definitions", "triples", "equivalences")
#: Other names of the files of a part, singular and without their endings.
FILES = {
    "entities": ("entity", "node", "concept", "vertex"),
    "names": ("name", "synonym", "alias", "term"),
    "definitions": ("definition", "description"),
    "triples": ("triple", "relation", "edge", "relationship", "fact"),
    "equivalences": ("equivalence", "equivalent"),
}


def _find_files(folder: Path, parts: Iterable[str]) -> tuple[dict[str, list[Path]], list[Path]]:
    """({part: its files} of `parts` by their names, the other files). Raises InputError where two
    other names are for one part."""
    visible = sorted(
        path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")
    )
    tables = {
        path: plain_name(Path(unpacked_name(path)).stem)
        for path in visible
        if form_of(path) in FORMS
    }
    files_by_part: dict[str, list[Path]] = {}
    for part in parts:
        order = [path for form in FORMS for path in tables if form_of(path) == form]
        files_by_part[part] = [path for path in order if tables[path] == plain_name(part)]
        if files_by_part[part]:
            continue
        others = [path for path in order if tables[path] in FILES[part]]
        if len({tables[path] for path in others}) > 1:
            raise InputError(
                f"{folder}: {' and '.join(p.name for p in others)} could all be {part}. Name which:"
                f" --{part} FILE"
            )
        files_by_part[part] = others
    chosen = set(chain.from_iterable(files_by_part.values()))
    return files_by_part, [path for path in visible if path not in chosen]


def files(path: str | Path) -> list[Path]:
    """Every file that :func:`read` may read: the path itself, or all in the folder. Raises
    InputError for none."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    paths = sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and not _is_hidden(file.relative_to(path))
    )
    if not paths:
        raise InputError(
            f"{path}: an empty folder. Put entities.csv and triples.csv there (.tsv, .jsonl, .gz"
            " too)."
        )
    return paths


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _parse_columns(columns: Sequence[str]) -> dict[str, str]:
    """{ours, or part.ours: theirs} of --columns. Raises InputError for what is no such pair."""
    column_names = {name for schema in SCHEMAS.values() for name in schema.names}
    renamed: dict[str, str] = {}
    for pair in columns:
        ours, equals, theirs = pair.partition("=")
        part, _, column = ours.rpartition(".")
        if not equals or column not in column_names or (part and part not in PARTS):
            raise InputError(
                f"--columns {pair}: expected ours=theirs, ours one of id, name, type, kind,"
                " language, source, text, head, relation, tail, or with its table: names.kind"
            )
        renamed[ours] = theirs
    return renamed


@dataclass(frozen=True, kw_only=True)
class TableFiles:
    """Which files of a folder are which tables.

    Args:
        entities: Files of entities inside the folder. Default: those of that name.
        names: Files of names inside the folder. Default: those of that name.
        definitions: Files of definitions inside the folder. Default: those of that name.
        triples: Files of triples inside the folder. Default: those of that name.
        equivalences: Files of equivalences inside the folder. Default: those of that name.
        headerless: Whether the files of triples have no header line.
    """

    entities: Sequence[str] | None = None
    names: Sequence[str] | None = None
    definitions: Sequence[str] | None = None
    triples: Sequence[str] | None = None
    equivalences: Sequence[str] | None = None
    headerless: bool = False

    @property
    def chosen(self) -> dict[str, Sequence[str] | None]:
        """{part: its files}; None: those of its usual name."""
        return {part: getattr(self, part) for part in PARTS}


@dataclass(frozen=True, kw_only=True)
class Cells:
    """How columns and fields are read.

    Args:
        columns: Columns that have other names, ours=theirs, such as head=source, or those of one
            table, such as names.kind=class; of JSON lines also a path of keys, such as
            name=labels.en.value.
        synonyms: Columns of the entities with further names of theirs, several to a field.
        separator: What parts the names in a field of --synonyms. Default: |
        delimiter: What parts fields: a character, or tab, comma, semicolon, pipe. Default: what the
            heading has.
        sheet: Sheet of a workbook. Default: the first.
        encoding: Encoding of the files; UTF-16 with a mark is noticed.

    Raises InputError for a value that cannot be.
    """

    columns: Sequence[str] = ()
    synonyms: Sequence[str] = ()
    separator: str | None = None
    delimiter: str | None = None
    sheet: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.separator == "":
            raise InputError("--separator: expected at least one character")
        if self.separator is not None and not self.synonyms:
            raise InputError(
                f"--separator {self.separator}: parts the names in columns of --synonyms, and none"
                " is given. Name them, or leave it out; columns are parted by --delimiter."
            )
        check_table_encoding(self.encoding)
        _parse_columns(self.columns)

    @property
    def renamed(self) -> dict[str, str]:
        """{ours, or part.ours: theirs} of the columns."""
        return _parse_columns(self.columns)

    @property
    def form(self) -> Form:
        delimiter = parse_delimiter(self.delimiter) if self.delimiter else ""
        return Form(self.encoding, delimiter, sheet=self.sheet or "")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the graph is from.

    Args:
        language: Language of names that say none.
        source: Source of names that say none.
        version: Version of the graph, for its manifest.
        licence: Licence of the graph, for its manifest.
    """

    language: str = "en"
    source: str = "tables"
    version: str = "not stated"
    licence: str | None = None


def _check_preset_alone(preset: str, table_files: TableFiles, cells: Cells) -> None:
    """Raise InputError where an option is given that a preset decides itself."""
    if table_files != TableFiles() or cells.synonyms:
        raise InputError(
            f"--preset {preset}: names its files and columns itself. Leave --entities, --names,"
            " --definitions, --triples, --equivalences, --synonyms and --headerless out."
        )


def _usual_tables(path: Path, table_files: TableFiles, cells: Cells, draft: Draft) -> list[Table]:
    """The tables of usual names in a folder, or the one file. Raises InputError for none, and for
    no entities."""
    unread: list[Path] = []
    form, renamed = cells.form, cells.renamed
    if path.is_dir():
        files_by_part, unread = _files_in_folder(path, table_files.chosen, draft.left_out)
    else:
        in_folder = [part for part, chosen in table_files.chosen.items() if chosen is not None]
        if in_folder:
            raise InputError(
                f"--{in_folder[0]}: names files in a folder, and {path} is none. Give the folder."
            )
        part = "triples" if table_files.headerless else _part_of_file(path, form, renamed)
        files_by_part = {part: [path]}
    if not any(files_by_part.values()):
        raise InputError(
            f"{path}: no tables here. Put entities.csv and triples.csv there (.tsv, .jsonl, .xlsx,"
            " .gz too), or name files with --entities, --names, --definitions, --triples,"
            " --equivalences."
        )
    if not files_by_part.get("entities") and draft.missing != "add":
        others_too = f"; not read: {', '.join(f.name for f in unread):.200}" if unread else ""
        raise InputError(
            f"{path}: no entities table{others_too}. Expected one with the columns id and name (and"
            " type): name others with --columns id=CODE name=LABEL; a table without a heading, and"
            " another delimiter, are not found. For triples alone take all ids: --missing add"
        )
    bare = Form(form.encoding, form.delimiter, REQUIRED["triples"], sheet=form.sheet)
    tables: list[Table] = []
    for part in PARTS:
        layout = Layout((), form=bare if table_files.headerless and part == "triples" else form)
        synonyms = tuple(cells.synonyms) if part == "entities" else ()
        tables += [
            Table(file, layout, part, renamed, synonyms, cells.separator or "|")
            for file in files_by_part.get(part, [])
        ]
    return tables


def _files_in_folder(
    folder: Path, chosen: Mapping[str, Sequence[str] | None], left_out: Counter[str]
) -> tuple[dict[str, list[Path]], list[Path]]:
    """({part: its files}, the files that are not read), which are counted."""
    files_by_part, others = _find_files(
        folder, [part for part, names in chosen.items() if names is None]
    )
    for part, names in chosen.items():
        if names is not None:
            files_by_part[part] = [folder / name for name in names]
    read_too = set(chain.from_iterable(files_by_part.values()))
    hidden = [path for path in folder.iterdir() if path.name.startswith(".")]
    left_out[HIDDEN] += sum(file not in read_too for file in hidden)
    unread = [file for file in others if file not in read_too]
    if unread:
        listed = ", ".join(file.name for file in unread)
        left_out[f"files that are no table ({listed:.200})"] = len(unread)
    return files_by_part, unread


def _check_columns_used(columns: Mapping[str, str], tables: Sequence[Table]) -> None:
    """Raise InputError for a column of --columns that no table was read for."""
    used: set[str] = set()
    headings: dict[str, None] = {}
    for table in tables:
        for heading, parts in table.parts_by_heading.items():
            headings |= dict.fromkeys(heading)
            for part in parts:
                used |= {*part.fields, *(f"{part.part}.{name}" for name in part.fields)}
    for ours, theirs in columns.items():
        if headings and ours not in used:
            raise InputError(
                f"--columns {ours}={theirs}: no table was read for {ours} with this column. Columns"
                f" are {', '.join(headings):.300}; tables read: "
                f"{', '.join(dict.fromkeys(table.part for table in tables))}."
            )


def _check_cells_used(cells: Cells, tables: Sequence[Table]) -> None:
    """Raise InputError for an option of a kind of file that is not among the tables."""
    kinds = {form_of(table.path) for table in tables}
    delimited = kinds - {*JSON, WORKBOOK}
    wanted = (
        ("sheet", cells.sheet, WORKBOOK in kinds, f"{WORKBOOK} workbook"),
        ("delimiter", cells.delimiter, bool(delimited), "delimited text (.csv, .tsv, .txt)"),
    )
    for option, value, is_used, kind in wanted:
        if value and not is_used:
            listed = ", ".join(dict.fromkeys(table.path.name for table in tables))
            raise InputError(
                f"--{option} {value}: is of {kind}, and none is read ({listed:.200}). Leave it out."
            )


def _part_of_file(path: Path, form: Form, columns: Mapping[str, str]) -> str:
    """The part that a single file has the columns of: triples, unless only those of entities are
    there."""
    if is_json(path):
        heading = tuple(next((row for _, row in read_rows(path, form, Problems())), {}))
    else:
        heading = read_heading(path, form)
    for ours, theirs in columns.items():
        if heading and theirs not in heading and theirs.partition(".")[0] not in heading:
            raise InputError(
                f"{path}: --columns {ours}={theirs}: no column {theirs!r};"
                f" {nearest(theirs, heading)}it has {', '.join(heading):.200}."
                f"{tell_sheets(path, form)}"
            )
    for part in ("triples", "entities"):
        try:
            find_columns(str(path), part, heading, columns, is_json(path))
        except InputError:
            continue
        return part
    return "triples"


def _preset_tables(path: Path, preset: Preset, left_out: Counter[str]) -> list[Table]:
    """The files that a preset has layouts for. Raises InputError for none, and for a file that
    lacks a column."""
    single = not path.is_dir()
    tables: list[Table] = []
    unread: list[str] = []
    for file in files(path):
        layouts = preset.layouts_of(file)
        if single and not layouts:
            layouts = [choice for choice in preset.layouts if not choice.form.columns]
        fitting = []
        lacking: list[str] = []
        heading: tuple[str, ...] = ()
        for layout in layouts:
            if is_json(file):
                fitting.append(layout)
                continue
            heading = read_heading(file, layout.form)
            missed = layout.find_missing(heading)
            if missed and (not lacking or len(missed) < len(lacking)):
                lacking = missed
            fitting += [] if missed else [layout]
        if layouts and not fitting:
            what = f"it has {', '.join(heading):.300}" if heading else "the file is empty"
            raise InputError(
                f"{file}:1: no column {', '.join(lacking)}, which the preset {preset.name} needs;"
                f" {what}. Expected {preset.about}; is it another vocabulary's file? Columns of"
                " another name: --columns name=title."
            )
        used = {column for layout in fitting for column in layout.used_columns()}
        is_only = len(fitting) == 1 and not is_json(file)
        tables += [Table(file, choice, used_by_others=used, is_alone=is_only) for choice in fitting]
        unread += [] if fitting else [file.name]
    if not tables:
        listed = ", ".join(dict.fromkeys(p for choice in preset.layouts for p in choice.files))
        raise InputError(
            f"{path}: no file for the preset {preset.name} ({preset.about}). Expected {listed}; got"
            f" {', '.join(unread):.300}."
        )
    if unread:
        left_out[f"files that the preset does not read ({', '.join(unread):.200})"] = len(unread)
    order = list(preset.layouts)
    return sorted(tables, key=lambda table: order.index(table.layout))


def read(
    path: str | Path,
    preset: str | None = None,
    missing: Literal["error", "add", "drop"] | None = None,
    table_files: TableFiles = TableFiles(),
    cells: Cells = Cells(),
    origin: Origin = Origin(),
) -> KnowledgeGraph:
    """The tables in the folder `path`, or the entities or triples in the file `path`.

    Raises InputError naming path:line for a broken or empty value, a repeated entity or an unknown
    id; the first 20 are in one message.

    Args:
        preset: Layout of a vocabulary's own files (hgnc, loinc, snomed, …), or a .yaml file.
        missing: What an entity id is that the entities lack: an error, a new entity named by its
            id (add), or counted (drop). Default: error; of presets mostly drop.
    """
    if missing not in ("error", "add", "drop", None):
        raise InputError(f"--missing {missing}: expected error, add or drop")
    draft = Draft(origin.language, origin.source, missing or "error")
    if preset is None:
        return _read_usual(Path(path), table_files, cells, draft, origin)
    _check_preset_alone(preset, table_files, cells)
    return _read_preset(Path(path), preset, cells, missing, draft, origin)


def _read_usual(
    path: Path, table_files: TableFiles, cells: Cells, draft: Draft, origin: Origin
) -> KnowledgeGraph:
    """The graph of tables of usual names and columns."""
    manifest = {"source": f"tables in {path.name}", "version": origin.version}
    tables = _usual_tables(path, table_files, cells, draft)
    _check_cells_used(cells, tables)
    TableReader(draft, True).read(tables)
    _check_columns_used(cells.renamed, tables)
    _check_entities(draft, tables, False)
    return draft.graph(manifest | {"licence": origin.licence or "not stated"})


def _read_preset(
    path: Path, name: str, cells: Cells, missing: str | None, draft: Draft, origin: Origin
) -> KnowledgeGraph:
    """The graph of a vocabulary's own files."""
    preset, form = load_preset(name, draft.language), cells.form
    changed = {"delimiter": form.delimiter, "sheet": form.sheet, "encoding": form.encoding}
    preset = preset.with_options(
        {key: value for key, value in changed.items() if value and value != "utf-8"}, cells.renamed
    )
    draft.source = preset.source if draft.source == "tables" else draft.source
    draft.missing, draft.repeated = missing or preset.missing, preset.repeated
    draft.advice = preset.advice
    manifest = {"source": f"{preset.about}: {path.name}", "version": origin.version}
    tables = _preset_tables(path, preset, draft.left_out)
    _check_cells_used(cells, tables)
    TableReader(draft, False).read(tables)
    draft.name_relations(preset.relations)
    _check_entities(draft, tables, True)
    licence = origin.licence or preset.licence or "not stated"
    return draft.graph(manifest | {"licence": licence})


def _check_entities(draft: Draft, tables: Sequence[Table], with_reasons: bool) -> None:
    """Raise InputError where something was wrong, and for tables without an entity, with the
    reasons why rows were left out."""
    draft.problems.check()
    if draft.entities:
        return
    files_read = [table.path for table in tables if table.part in ("", "entities")]
    read_from = ", ".join(map(str, files_read or [table.path for table in tables]))
    reasons = [f"{count:,} {why}" for why, count in draft.left_out.items() if count]
    why = f" Left out: {'; '.join(reasons):.400}." if with_reasons and reasons else ""
    raise InputError(
        f"{read_from:.200}: no entity.{why} Expected a line for each, such as id,name and then"
        " D1,heart attack."
    )
