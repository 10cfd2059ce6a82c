"""Tables of a graph and their rows: the columns of a heading, and what a row adds to a draft."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.files import InputError
from kg.build.draft import NO_NAMES, SAME, Draft, split_names
from kg.build.layouts import (
    OPTIONAL,
    REQUIRED,
    Layout,
    Part,
    fill_template,
    is_json,
    passes,
    template_of,
)
from kg.build.rows import read_heading, read_rows

DATE = re.compile(r"\d{4}-\d\d-\d\d 00:00:00")  #: a date as a workbook has it
#: Other names of the columns that may be left out.
COLUMNS = {
    "type": ("kind", "category", "semantictype", "entitytype"),
    "kind": ("type", "nametype"),
    "language": ("lang", "lat"),
    "source": ("vocabulary", "sab"),
    "relation": ("predicate",),
}


def plain_name(name: str) -> str:
    """A name of a file or column without case, blanks, _ and -, in the singular."""
    name = "".join(c for c in name.lower() if c not in " _-")
    for plural, singular in (("ies", "y"), ("vertices", "vertex"), ("aliases", "alias"), ("s", "")):
        if name.endswith(plural) and not name.endswith(("ss", "alias")):
            return name.removesuffix(plural) + singular
    return name


@dataclass
class Table:
    """A file and how its rows are read: by the layout of a preset, or by usual columns, which are
    looked up in each heading (`part`)."""

    path: Path
    layout: Layout
    part: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    synonyms: tuple[str, ...] = ()
    separator: str = "|"
    used_by_others: set[str] = field(default_factory=set)  # columns, by layouts of the same file
    is_alone: bool = False  # whether no other layout of the preset reads the file
    parts_by_heading: dict[tuple[str, ...], tuple[Part, ...]] = field(default_factory=dict)

    @property
    def stages(self) -> set[int]:
        """When the table is read (Part.stage)."""
        if self.part:
            return {1 if self.part == "entities" else 2}
        return {part.stage for part in self.layout.parts}

    def parts_of(self, where: str, row: Mapping[str, Any]) -> tuple[Part, ...]:
        """The parts that rows with these columns are read for. Raises InputError for a required
        column that is lacking."""
        if not self.part:
            return self.layout.parts
        heading = tuple(row)
        if heading not in self.parts_by_heading:
            self.parts_by_heading[heading] = self._usual_parts(where, heading)
        return self.parts_by_heading[heading]

    def _usual_parts(self, where: str, heading: tuple[str, ...]) -> tuple[Part, ...]:
        where = where if is_json(self.path) else f"{self.path}:1"  # the heading
        places = find_columns(where, self.part, heading, self.columns, is_json(self.path))
        fields = {name: template_of(column) for name, column in places.items()}
        for column in self.synonyms:
            if column not in heading and "." not in column:
                raise InputError(
                    f"{where}: no column {column!r}; expected one of {', '.join(heading):.200}"
                )
        named = [
            Part("names", {"name": template_of(column)}, self.separator) for column in self.synonyms
        ]
        return Part(self.part, fields), *named

    def used_columns(self) -> set[str]:
        """The columns that were read so far."""
        parts = [part for several in self.parts_by_heading.values() for part in several]
        return Layout(tuple(parts)).used_columns() if self.part else self.layout.used_columns()


def find_columns(
    where: str, part: str, header: tuple[str, ...], columns: Mapping[str, str], paths: bool
) -> dict[str, str]:
    """{our column: its name in `header`}. paths: a named column may be a path of keys. Raises
    InputError for a required one that is missing, and for two of one name."""
    column_of: dict[str, str] = {}
    for column in (*REQUIRED[part], *OPTIONAL[part]):
        chosen = columns.get(f"{part}.{column}", columns.get(column))
        named = chosen or column
        same = [name for name in header if name == named] or [
            name for name in header if plain_name(name) == plain_name(named)
        ]
        if not same and paths and chosen and chosen.partition(".")[0] in header:
            same = [chosen]
        if not same and column in OPTIONAL[part] and chosen is None:
            free = [
                name
                for name in header
                if name not in columns.values()
                and plain_name(name) not in map(plain_name, column_of)
            ]
            same = [name for name in free if plain_name(name) in COLUMNS[column]]
        if len(same) > 1:
            raise InputError(
                f"{where}: {' and '.join(same)} could both be {column}. Say which: --columns"
                f" {column}={same[0]}"
            )
        if same:
            column_of[column] = same[0]
        elif column in REQUIRED[part]:
            raise InputError(
                f"{where}: expected the columns {', '.join(REQUIRED[part])}, got"
                f" {', '.join(header):.200}. Rename them, say --columns head=source,…, or use"
                " --headerless."
            )
    return column_of


def fill_field(part: Part, row: Mapping[str, Any], name: str) -> str:
    """A field with its white space normalised; of a type that says there is none (N/A) nothing."""
    template = part.fields.get(name)
    values = fill_template(template, row) if template else []
    value = " ".join(values[0].split()) if values else ""
    return "" if name == "type" and value in NO_NAMES else value


class TableReader:
    """Adds the rows of tables to a draft. strict: an empty field is an error, else counted."""

    def __init__(self, draft: Draft, strict: bool) -> None:
        self.draft, self.strict = draft, strict

    def read(self, tables: Sequence[Table]) -> None:
        """Read the entities of all tables first, then what refers to them."""
        for stage in range(3):
            for table in tables:
                if stage in table.stages:
                    self._read_table(table, stage)
            self.draft.problems.check()

    def _read_table(self, table: Table, stage: int) -> None:
        """Add what one stage reads of a table."""
        draft, count = self.draft, 0
        heading: dict[str, None] = {}
        is_first = stage == min(table.stages)
        for where, raw in read_rows(table.path, table.layout.form, draft.problems):
            count += 1
            heading.update(dict.fromkeys(raw))
            rows = list(table.layout.prepare(raw))
            for row in rows:
                self._add_row(where, row, table.parts_of(where, row), stage)
            if is_first and table.is_alone and not table.layout.uses_any(rows):
                what = "that the preset's conditions leave out"
                draft.left_out[f"rows of {table.path.name} {what}"] += 1
        if is_first:
            self._count_unread(table, heading, count)

    def _count_unread(self, table: Table, heading: Iterable[str], count: int) -> None:
        name, left_out = table.path.name, self.draft.left_out
        if not count:
            left_out[f"{name}: a table without a row"] += 1
            if not is_json(table.path):  # its heading may be wrong, too
                heading = read_heading(table.path, table.layout.form)
                if heading and table.part:
                    table.parts_of(f"{table.path}:1", dict.fromkeys(heading, ""))
        if is_json(table.path) and not table.part:
            return
        used = table.used_columns()
        used |= {column.partition(".")[0] for column in used} | table.used_by_others
        further = [c for c in heading if table.layout.rename_column(c) not in used]
        if further:
            what = f"that no table of {table.part} has" if table.part else "that the preset leaves"
            listed = f"{', '.join(further):.200}"
            left_out[f"columns of {name} {what} ({listed})"] = len(further)

    def _add_row(
        self, where: str, row: Mapping[str, Any], parts: Sequence[Part], stage: int
    ) -> None:
        entity = ""
        for part in parts:
            if part.stage != stage:
                continue
            if part.inherits and not entity:
                continue
            if not passes(row, part.where, part.unless):
                continue
            if part.part == "entities":
                entity = self._add_entity(where, row, part) or entity
            elif part.part == "retired":
                self.draft.retired.add(fill_field(part, row, "id"))
            else:
                self._add_part(where, row, part, entity)

    def _require_field(self, where: str, row: Mapping[str, Any], part: Part, name: str) -> str:
        """A field; an empty one is an error, or counted."""
        value = fill_field(part, row, name)
        if name in ("id", "name") and DATE.fullmatch(value):
            self.draft.problems.add(
                f"{where}: {name} is the date {value}; Excel makes dates of names such as SEPT2."
                " Write the name again in a column of text."
            )
        if not value and self.strict:
            self.draft.problems.add(f"{where}: {name} is empty. Fill it in or take the line out.")
        elif not value:
            self.draft.left_out[f"rows of {part.part} whose {name} is empty"] += 1
        return value

    def _add_entity(self, where: str, row: Mapping[str, Any], part: Part) -> str:
        entity = self._require_field(where, row, part, "id")
        name = self._require_field(where, row, part, "name") if entity else ""
        added = name and self.draft.add_entity(where, entity, name, fill_field(part, row, "type"))
        return entity if added else ""

    def _add_part(self, where: str, row: Mapping[str, Any], part: Part, entity: str) -> None:
        draft = self.draft
        if part.part in ("triples", "equivalences"):
            names = REQUIRED[part.part]
            values = {name: self._require_field(where, row, part, name) for name in names}
            relation = values.get("relation") or fill_field(part, row, "relation") or SAME
            if all(values.values()):
                draft.add_pair(where, part.part, values["head"], relation, values["tail"])
            return
        part_id = entity if part.inherits else self._require_field(where, row, part, "id")
        if not part_id:
            return
        name = REQUIRED[part.part][1]
        texts = fill_template(part.fields[name], row)
        if not texts and not part.inherits:
            self._require_field(where, row, part, name)
        for text in texts:
            if part.part == "definitions":
                draft.add_definition(where, part_id, text.strip())
            elif part.part == "alternatives":
                for other in split_names(text, part.separator):
                    draft.add_alternative(part_id, other)
            else:
                self._add_names(where, row, part, part_id, split_names(text, part.separator))

    def _add_names(
        self, where: str, row: Mapping[str, Any], part: Part, entity: str, names: Sequence[str]
    ) -> None:
        kind, language = fill_field(part, row, "kind"), fill_field(part, row, "language")
        source = fill_field(part, row, "source") or self.draft.source
        preferred = self.draft.entities.get(entity, ("", ""))[0] if self._skips(part) else ""
        column = next(iter(part.fields["name"][0][1::2]), "names")
        for name in names:
            if name != preferred:
                self.draft.add_name(where, entity, name, kind, language, source, column)

    def _skips(self, part: Part) -> bool:
        """Whether a name that is the preferred one is left out: in a table of names it is not."""
        return part.inherits or not self.strict
