"""Layouts of tables: which columns of a row make an entity, a name, a definition, a triple.

A preset is a file of layouts, kg/build/presets/<name>.yaml, or one of the user's own:

    about: HGNC's complete set (hgnc_complete_set.txt)
    source: HGNC
    tables:
    - files: ["*hgnc*.txt"]
      where: {status: Approved}
      entities: {id: "{hgnc_id}", name: "{symbol}", type: gene}
      names:
      - {name: "{alias_symbol}", separator: "|", kind: symbol}

In a field, `{column}` is the row's field of that column; of JSON also a path of keys, `{a.b}`, in
which `*` is every key or item. A list of such texts is the first that is not empty. `$language` is
--language. Names and definitions without an id are the entity's of the same row.

    where, unless   the rows that a table, or one of its parts, is read from and not read from
    match           {column: pattern}; the pattern's named groups become columns
    rename          [[pattern, name], …] of headings
    columns, delimiter, comment, quotes, ended, encoding, sheet     kg.build.rows.Form
    null            fields that mean an empty one
    each            a path of JSON: a row for each object there, with the plain values around it
    retired         ids that become no entity, such as inactive concepts
    missing         drop (ids that no entity has are counted) or add
    advice          what to do about an id that occurs twice
    repeated        synonym (a later row of an entity has further names) or error
    relations       {id: name} of relations; others are named by the entity of that id
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.choices import list_known
from core.files import InputError
from core.reading import read_text
from core.yaml_files import parse_yaml
from kg.build.rows import JSON, Form, form_of, parse_delimiter
from kg.graph import KINDS

PRESETS = Path(__file__).parent / "presets"
REQUIRED = {
    "retired": ("id",),
    "entities": ("id", "name"),
    "names": ("id", "name"),
    "definitions": ("id", "text"),
    "triples": ("head", "relation", "tail"),
    "equivalences": ("head", "tail"),
    "alternatives": ("id", "other"),
}
OPTIONAL = {
    "retired": (),
    "entities": ("type",),
    "names": ("kind", "language", "source"),
    "definitions": (),
    "triples": (),
    "equivalences": ("relation",),
    "alternatives": (),
}
INHERITING = ("names", "definitions", "alternatives")  #: parts whose id may be the row's entity's
PIECES = re.compile(r"\{([^{}]+)\}")
FORM = {"delimiter", "columns", "comment", "quotes", "ended", "encoding", "sheet"}
TABLE = {*REQUIRED, *FORM, "files", "where", "unless", "match", "rename", "null", "each"}
PRESET = {"about", "source", "licence", "missing", "repeated", "advice", "relations", "tables"}


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_pattern(value: object) -> bool:
    try:
        re.compile(value)  # type: ignore[call-overload]
    except (re.error, TypeError):
        return False
    return True


def _are_patterns(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_pattern, value.values()))


def _are_renamings(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and _is_pattern(pair[0]) and _is_text(pair[1])
        for pair in value
    )


#: {key of a table: (whether a value can be its, what it is)}
SHAPES: dict[str, tuple[Callable[[object], bool], str]] = {
    "files": (_are_texts, "a list of names of files"),
    "columns": (_are_texts, "a list of names of columns"),
    "null": (_are_texts, "a list of texts"),
    "match": (_are_patterns, "columns and their regular expressions"),
    "rename": (_are_renamings, "a list of [regular expression, name]"),
    "each": (_is_text, "a path of keys, such as labels.en"),
    **dict.fromkeys(("delimiter", "comment", "encoding", "sheet"), (_is_text, "a text")),
    **dict.fromkeys(("quotes", "ended"), (lambda value: isinstance(value, bool), "true or false")),
}

Template = tuple[tuple[str, ...], ...]  #: alternatives; of each, text and columns in turn
Rule = dict[str, frozenset[str]]  #: {column: values}


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        text = value
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
        return
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = "" if value is None or isinstance(value, dict) else str(value)
    if text:
        yield text


def _walk(value: Any, keys: Sequence[str]) -> Iterator[Any]:
    """Every value at a path of keys; `*` is every key or item."""
    if not keys:
        yield value
        return
    key, *rest = keys
    if key == "*" and isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _walk(item, rest)
    elif isinstance(value, dict) and key in value:
        yield from _walk(value[key], rest)


def values_of(row: Mapping[str, Any], column: str) -> list[str]:
    """The texts of a column, or at a path of JSON; none where it is empty or lacking."""
    value = row.get(column)
    if isinstance(value, str):
        return [value] if value else []
    if value is None and "." in column:
        return [text for leaf in _walk(row, column.split(".")) for text in _leaves(leaf)]
    return list(_leaves(value))


def parse_template(texts: object, where: str) -> Template:
    """A field of a layout. Raises InputError for one that is no text and no list of texts."""
    several = texts if isinstance(texts, list) else [texts]
    if not several or not all(isinstance(text, str | int) for text in several):
        raise InputError(f"{where}: expected a text such as {{column}}, or a list of such texts")
    return tuple(tuple(PIECES.split(str(text))) for text in several)


def template_of(column: str) -> Template:
    """A field of a layout that is a column as it is."""
    return (("", column, ""),)


def fill_template(template: Template, row: Mapping[str, Any]) -> list[str]:
    """The texts of the first alternative that has one. A column alone may have several."""
    for pieces in template:
        if len(pieces) == 3 and not pieces[0] and not pieces[2]:
            values = values_of(row, pieces[1])
        else:
            parts = [
                (values_of(row, piece)[:1] or [""])[0] if place % 2 else piece
                for place, piece in enumerate(pieces)
            ]
            values = ["".join(parts)] if all(parts[1::2]) and any(parts) else []
        if values:
            return values
    return []


def columns_in(template: Template) -> list[set[str]]:
    """The columns of each alternative."""
    return [set(pieces[1::2]) for pieces in template]


@dataclass(frozen=True)
class Part:
    """What rows add to one part of a graph."""

    part: str
    fields: dict[str, Template]
    separator: str = ""
    where: Rule = field(default_factory=dict)
    unless: Rule = field(default_factory=dict)

    @property
    def stage(self) -> int:
        """When it is read: ids that become no entity, entities and what their rows say of them, and
        then what refers to entities."""
        if self.part == "retired":
            return 0
        return 1 if self.part == "entities" or self.inherits else 2

    @property
    def inherits(self) -> bool:
        """Whether its id is that of the entity in the same row."""
        return self.part in INHERITING and "id" not in self.fields


@dataclass(frozen=True)
class Layout:
    """How one table is read."""

    parts: tuple[Part, ...]
    files: tuple[str, ...] = ("*",)
    form: Form = field(default_factory=Form)
    where: Rule = field(default_factory=dict)
    unless: Rule = field(default_factory=dict)
    match: dict[str, re.Pattern[str]] = field(default_factory=dict)
    rename: tuple[tuple[re.Pattern[str], str], ...] = ()
    null: frozenset[str] = frozenset()
    each: tuple[str, ...] = ()

    def has_file(self, name: str) -> bool:
        """Whether one of the patterns of `files` fits a name in lower case."""
        return any(fnmatch.fnmatch(name, pattern.lower()) for pattern in self.files)

    def rename_column(self, column: str) -> str:
        """The name of a heading's column by the rules of `rename`."""
        for pattern, name in self.rename:
            if match := pattern.fullmatch(column):
                return match.expand(name)
        return column

    def find_missing(self, columns: Sequence[str]) -> list[str]:
        """The columns that the table cannot do without and does not have."""
        have = {self.rename_column(column) for column in columns}
        matched = [pattern for column, pattern in self.match.items() if column in have]
        groups = {name for pattern in matched for name in pattern.groupindex}
        needed = [{column} for column in self.where]
        for part in self.parts:
            if part.inherits:
                continue  # such as a column of aliases that an older release lacks
            needed += [{column} for column in part.where if column not in groups]
            for name in REQUIRED[part.part]:
                alternatives = columns_in(part.fields[name])
                if not any(group <= have | groups for group in alternatives):
                    needed.append(set().union(*map(self._sources, alternatives[0])))
        lacking = [column for group in needed for column in sorted(group - have - groups)]
        return list(dict.fromkeys(lacking))

    def _sources(self, column: str) -> set[str]:
        """The column of the file that a column, or a group of `match`, comes from."""
        from_match = {
            field for field, pattern in self.match.items() if column in pattern.groupindex
        }
        return from_match or {column}

    def used_columns(self) -> set[str]:
        """Every column that is read, by its renamed name."""
        used = {*self.where, *self.unless, *self.match}
        for part in self.parts:
            used |= {*part.where, *part.unless}
            for template in part.fields.values():
                used |= set().union(*columns_in(template))
        return used

    def uses_any(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a part is read from one of the prepared rows; of a table that only says which
        ids become no entity, every row is."""
        if {part.part for part in self.parts} == {"retired"}:
            return True
        return any(passes(row, part.where, part.unless) for row in rows for part in self.parts)

    def prepare(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows that the parts are read from: renamed, without nulls, one for `each` object, and
        with the groups of `match`."""
        for part in self._expand(row):
            if self.rename:
                part = {self.rename_column(column): value for column, value in part.items()}
            if self.null:
                part = {k: "" if _is_among(v, self.null) else v for k, v in part.items()}
            if not passes(part, self.where, self.unless):
                continue
            for column, pattern in self.match.items():
                text = next(iter(values_of(part, column)), "")
                match = pattern.fullmatch(text)
                groups = match.groupdict() if match else dict.fromkeys(pattern.groupindex, "")
                part |= {name: value or "" for name, value in groups.items()}
            yield part

    def _expand(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if not self.each:
            yield dict(row)
            return
        plain = {key: v for key, v in row.items() if not isinstance(v, dict | list)}
        for item in _walk(row, self.each):
            if isinstance(item, dict):
                yield item | plain


def _is_among(value: Any, words: frozenset[str]) -> bool:
    return isinstance(value, str) and value.strip() in words


def passes(row: Mapping[str, Any], where: Rule, unless: Rule) -> bool:
    """Whether a row has one of the values of every column of `where`, and none of `unless`."""
    return all(
        not wanted.isdisjoint(values_of(row, column) or [""]) for column, wanted in where.items()
    ) and all(
        unwanted.isdisjoint(values_of(row, column) or [""]) for column, unwanted in unless.items()
    )


@dataclass(frozen=True)
class Preset:
    """The layouts of a vocabulary's files."""

    name: str
    about: str
    layouts: tuple[Layout, ...]
    source: str = "tables"
    licence: str = "not stated"
    missing: str = "drop"
    repeated: str = "error"
    advice: str = "Take one of them out."
    relations: dict[str, str] = field(default_factory=dict)

    def layouts_of(self, path: Path) -> list[Layout]:
        """The layouts whose `files` have a file's name."""
        name = path.name.lower()
        return [layout for layout in self.layouts if layout.has_file(name)]

    def with_options(self, form: Mapping[str, Any], columns: Mapping[str, str]) -> Preset:
        """The preset with another delimiter, encoding or sheet, and with columns that are named
        otherwise: {field: column}, the field with or without its part, names.kind."""
        layouts = []
        for layout in self.layouts:
            parts = tuple(_with_columns(part, columns) for part in layout.parts)
            layouts.append(replace(layout, form=replace(layout.form, **form), parts=parts))
        return replace(self, layouts=tuple(layouts))


def _with_columns(part: Part, columns: Mapping[str, str]) -> Part:
    fields = dict(part.fields)
    for name in (*REQUIRED[part.part], *OPTIONAL[part.part]):
        qualified = f"{part.part}.{name}"
        if qualified in columns:
            fields[name] = template_of(columns[qualified])
        elif name in columns and name in fields:
            fields[name] = template_of(columns[name])
    return replace(part, fields=fields)


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_preset(name: str, language: str = "en") -> Preset:
    """The preset of that name, or in a file of the user's own. Raises InputError for none, and for
    a file that is no preset."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else PRESETS / f"{name}.yaml"
    if not path.is_file():
        raise InputError(
            f"--preset {name}: no such preset; {list_known(name, preset_names())},"
            " or give a .yaml file of your own"
        )
    text = read_text(path).replace("$language", language)
    content = parse_yaml(text, str(path), ", ".join(sorted(PRESET)))
    _check_keys(content, PRESET, str(path))
    tables = content.get("tables")
    if not isinstance(tables, list) or not tables:
        raise InputError(f"{path}: expected a list of tables under `tables`")
    for key, choices in (("missing", ("drop", "add")), ("repeated", ("synonym", "error"))):
        if content.get(key, choices[0]) not in choices:
            raise InputError(f"{path}: {key}: expected {' or '.join(choices)}")
    layouts = [_layout(table, f"{path}: tables[{n}]") for n, table in enumerate(tables)]
    plain = {key: content[key] for key in PRESET - {"tables"} if key in content}
    return Preset(path.stem, plain.pop("about", path.name), tuple(layouts), **plain)


def _check_keys(value: object, allowed: set[str], where: str) -> None:
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected keys and values, got {type(value).__name__}")
    for key in value:
        if key not in allowed:
            choices = list_known(str(key), allowed)
            raise InputError(f"{where}: no key {key!r}; {choices}")


def _layout(table: dict[str, Any], where: str) -> Layout:
    _check_keys(table, TABLE, where)
    for key, value in table.items():
        if key in SHAPES and not SHAPES[key][0](value):
            raise InputError(f"{where}: {key}: expected {SHAPES[key][1]}, got {value!r:.80}")
    form = {key: table[key] for key in FORM if key in table}
    if "delimiter" in form:
        form["delimiter"] = parse_delimiter(form["delimiter"])
    if "columns" in form:
        form["columns"] = tuple(form["columns"])
    parts = []
    for part in REQUIRED:
        several = table.get(part, [])
        for entry in several if isinstance(several, list) else [several]:
            parts.append(_part(part, entry, f"{where}: {part}"))
    if not parts:
        raise InputError(f"{where}: expected one of {', '.join(REQUIRED)}")
    return Layout(
        tuple(parts),
        tuple(table.get("files", ["*"])),
        Form(**form),
        parse_rule(table.get("where", {}), where),
        parse_rule(table.get("unless", {}), where),
        {column: re.compile(pattern) for column, pattern in table.get("match", {}).items()},
        tuple((re.compile(pattern), name) for pattern, name in table.get("rename", [])),
        frozenset(table.get("null", [])),
        tuple(table["each"].split(".")) if "each" in table else (),
    )


def _part(part: str, rule: dict[str, Any], where: str) -> Part:
    columns = (*REQUIRED[part], *OPTIONAL[part])
    _check_keys(rule, {*columns, "separator", "where", "unless"}, where)
    for name in REQUIRED[part]:
        if name not in rule and not (name == "id" and part in INHERITING):
            raise InputError(f"{where}: expected the key {name}")
    kind = str(rule.get("kind", ""))
    if part == "names" and "{" not in kind and kind and kind not in KINDS:
        raise InputError(f"{where}: no kind of name {kind!r}; {list_known(kind, KINDS)}")
    fields = {name: parse_template(rule[name], where) for name in columns if name in rule}
    rules = (parse_rule(rule.get(key, {}), where) for key in ("where", "unless"))
    return Part(part, fields, str(rule.get("separator", "")), *rules)


def parse_rule(rule: object, where: str) -> Rule:
    """{column: values} of a rule of a layout."""
    if not isinstance(rule, dict):
        raise InputError(f"{where}: expected columns and their values under where and unless")
    rules = {}
    for column, values in rule.items():
        several = values if isinstance(values, list) else [values]
        for value in several:
            if isinstance(value, bool | None | list | dict):
                raise InputError(
                    f"{where}: where and unless: {column}: expected texts, got {value!r:.80}. Put"
                    ' words such as on, yes and null in quotes: "on".'
                )
        rules[str(column)] = frozenset(map(str, several))
    return rules


def is_json(path: Path) -> bool:
    return form_of(path) in JSON
