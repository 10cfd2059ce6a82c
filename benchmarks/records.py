"""Published numbers: the records in docs/results, the tables that are made of them, and the check
of every document.

    docs/results/<group>.json          what a group of numbers has in common (command, commit,
                                       machine ...), and its records
    docs/results/tables/<name>.md      a table; {group/id} is a number with its deviation and
                                       interval, {group/id.p} one part of it
    docs/results/constants.json        {text with decimal points that is no result: why it is in a
                                       document}

A document shows a table between `<!-- results: name -->` and `<!-- end -->`. Numbers in its prose
come from the groups of its tables and from those that `<!-- numbers: group ... -->` names. `kepl
publish` writes records, `kepl results` writes the tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from core.files import InputError, atomic_write
from core.json_files import read_json

ROOT = Path(__file__).parents[1]
FOLDER = Path("docs", "results")
#: the page of numbers whose runs are not kept
HISTORY = FOLDER / "history.md"
#: the table of the README, whose numbers are those of tables in docs
SHORT = "readme"
TABLE = re.compile(r"(<!-- results: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.S)
GROUPS = re.compile(r"<!-- numbers: ([\w -]+) -->")
PLACE = re.compile(r"\{([\w-]+)/([\w-]+)(?:\.(\w+))?\}")
#: What is no prose: fenced blocks, tables that are generated, comments, inline code, targets of
#: links, numbers of sections.
NO_PROSE = re.compile(
    r"^```.*?^```|<!-- results: .*?<!-- end"
    r" -->|<!--.*?-->|`[^`\n]+`|\]\([^)]*\)|https?://\S+|\bSections? [\d., andto]+\d",
    re.M | re.S,
)
DECIMAL = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*\.\d+(?!\w|\.\d)")


@dataclass(frozen=True, kw_only=True)
class Record:
    """A published number.

    task, model, metric   what was scored; of a difference the metric says from what
    value, sd, interval   the mean over `seeds`, its standard deviation, and the 95 % interval;
                          printed with `digits`, a difference with its sign (`signed`)
    p, p_seeds            of the paired bootstrap of a difference over examples, and of its paired t
                          over seeds
    options               what distinguishes the model from others of its name
    argv, commit          what measured it: the words behind `kepl`, and with which code
    command               that of a number measured before results kept their argv, as it was typed
    data                  {what was read: its checksum}
    machine               where it was measured
    source                where a record comes from that no run wrote; docs/results/history.md alone
                          may show it
    """

    id: str
    value: float
    task: str = ""
    model: str = ""
    metric: str = ""
    digits: int = 3
    signed: bool = False
    unit: str = ""
    sd: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_seeds: float | None = None
    seeds: Sequence[int] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    argv: Sequence[str] = ()
    command: str = ""
    commit: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    source: str = ""

    def part(self, name: str | None) -> str:
        """One part as text: value, sd, interval, p, seeds; None: value, deviation and interval
        together."""
        if name is None:
            spread = "" if self.sd is None else f" ± {self.part('sd')}"
            return f"{self.part('value')}{self.unit}{spread}" + (
                "" if self.interval is None else f" [{self.part('interval')}]"
            )
        value = getattr(self, name, None)
        if value is None or name not in ("value", "sd", "interval", "p", "p_seeds", "seeds"):
            raise InputError(f"record {self.id}: has no part {name!r}")
        if name == "seeds":
            return str(len(self.seeds))
        if name in ("p", "p_seeds"):
            if value < 0.0001:
                return "< 0.0001"
            if value < 0.001:
                return f"{value:.4f}"
            return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"
        sign = "+" if self.signed and name != "sd" else ""
        numbers = value if name == "interval" else (value,)
        return ", ".join(f"{number:{sign},.{self.digits}f}" for number in numbers)


def load_records(root: Path = ROOT) -> dict[str, dict[str, Record]]:
    """{group: {id: record}} of docs/results. Raises InputError for a field that records do not
    have, or an id that repeats."""
    field_names = {entry.name for entry in fields(Record)}
    groups: dict[str, dict[str, Record]] = {}
    for file in sorted((root / FOLDER).glob("*.json")):
        if file.name == "constants.json":
            continue
        common = dict(read_json(file))
        records = common.pop("records")
        group = groups.setdefault(file.stem, {})
        for entry in records:
            values = common | entry
            if unknown := sorted(set(values) - field_names):
                raise InputError(
                    f"{file}: {entry.get('id')}: expected fields of a record, got"
                    f" {', '.join(unknown)}"
                )
            if values["id"] in group:
                raise InputError(f"{file}: two records with the id {values['id']!r}")
            group[values["id"]] = Record(**values)
    return groups


def save_records(group: str, records: Iterable[Record], root: Path = ROOT) -> Path:
    """Add records to a group, in place of those of the same id; a line each. Returns the file."""
    file = root / FOLDER / f"{group}.json"
    before = dict(read_json(file)) if file.is_file() else {"records": []}
    common = {k: v for k, v in before.items() if k != "records"}
    entries = {entry["id"]: entry for entry in before["records"]}
    empty = {entry.name: entry.default for entry in fields(Record)} | {"options": {}, "data": {}}
    for record in records:
        values = {entry.name: getattr(record, entry.name) for entry in fields(Record)}
        entries[record.id] = {k: v for k, v in values.items() if v != common.get(k, empty[k])}
    head = "".join(
        f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)},\n" for k, v in common.items()
    )
    lines = ",\n".join("  " + json.dumps(entry, ensure_ascii=False) for entry in entries.values())
    with atomic_write(file) as handle:
        handle.write(f'{{\n{head} "records": [\n{lines}\n ]\n}}\n')
    return file


def render(name: str, records: Mapping[str, Mapping[str, Record]], root: Path = ROOT) -> str:
    """The table docs/results/tables/<name>.md with its numbers. Raises InputError for a record that
    does not exist."""
    file = root / FOLDER / "tables" / f"{name}.md"
    if not file.is_file():
        raise InputError(f"{file}: no such table")

    def number(match: re.Match[str]) -> str:
        group, key, part = match.groups()
        if key not in records.get(group, {}):
            raise InputError(f"{file}: no record {group}/{key}")
        return records[group][key].part(part)

    text = PLACE.sub(number, file.read_text().strip()) + "\n"
    return text + superseded_line(shown_records(name, records, root)) if name != SHORT else text


def superseded_line(records: Iterable[Record]) -> str:
    """A line below a table that says with which commits those of its numbers were measured that do
    not keep their command; nothing where all do."""
    older = [record for record in records if not record.argv and not record.source]
    if not older:
        return ""
    commits = dict.fromkeys(c[:7] for r in older for c in re.findall("[0-9a-f]{7,40}", r.commit))
    plural = "s" if len(commits) > 1 else ""
    where = f"commit{plural} {', '.join(commits)}" if commits else "a commit that is not on record"
    return f"\n*Measured at {where}, before results kept their command.*\n"


def documents(root: Path = ROOT) -> list[Path]:
    """The README and every page of docs/, without what is built and without templates of tables."""
    pages = (
        p
        for p in sorted((root / "docs").rglob("*.md"))
        if not {"_build", "tables"} & set(p.relative_to(root).parts)
    )
    return [
        p
        for p in (root / "README.md", root / "CHANGELOG.md", root / "CONTRIBUTING.md", *pages)
        if p.is_file()
    ]


def shown_records(
    name: str, records: Mapping[str, Mapping[str, Record]], root: Path = ROOT
) -> list[Record]:
    """The records that the table docs/results/tables/<name>.md shows."""
    template = (root / FOLDER / "tables" / f"{name}.md").read_text()
    places = {(match[1], match[2]) for match in PLACE.finditer(template)}
    table_places = sorted(place for place in places if place[1] in records.get(place[0], {}))
    return [records[group][key] for group, key in table_places]


def count_complete(root: Path = ROOT) -> str:
    """How many records say all that measures them again, as a line."""
    records = [r for group in load_records(root).values() for r in group.values()]
    complete = sum(bool(r.argv and r.commit and r.data) for r in records)
    without_data = sum(bool(r.argv and r.commit and not r.data) for r in records)
    copied = sum(bool(r.source) for r in records)
    return (
        f"{len(records):,} records: {complete:,} with their command's words, commit and checksums"
        f" of data; {without_data:,} with command and commit alone;"
        f" {len(records) - complete - without_data - copied:,} measured before results kept them;"
        f" {copied:,} copied from earlier documents, in {HISTORY} alone"
    )


def write_tables(root: Path = ROOT) -> list[Path]:
    """Write the tables into the documents; returns those that changed."""
    records, changed = load_records(root), []
    for page in documents(root):
        text = page.read_text()
        new = TABLE.sub(lambda m: m[1] + render(m[2], records, root) + m[4], text)
        if new != text:
            with atomic_write(page) as handle:
                handle.write(new)
            changed.append(page)
    return changed


def problems(root: Path = ROOT) -> list[str]:
    """A line for every table that differs from its records, and for every number with a decimal
    point that is in no record."""
    records = load_records(root)
    constants: dict[str, str] = read_json(root / FOLDER / "constants.json")
    messages, used = [], set()
    for page in documents(root):
        text, name = page.read_text(), page.relative_to(root)
        groups = set(" ".join(GROUPS.findall(text)).split())
        for _, table, numbers, _ in TABLE.findall(text):
            copied = [r.id for r in shown_records(table, records, root) if r.source]
            if copied and name != HISTORY:
                messages.append(
                    f"{name}: the table {table} shows {copied[0]}, copied from earlier documents;"
                    f" measure it again, or move it to {HISTORY}"
                )
            if render(table, records, root) != numbers:
                messages.append(
                    f"{name}: the table {table} differs from its records; write it: make results"
                )
            template = (root / FOLDER / "tables" / f"{table}.md").read_text()
            groups |= {place[1] for place in PLACE.finditer(template)}
        if unknown := sorted(groups - set(records)):
            messages.append(f"{name}: no group of records {', '.join(unknown)}")
        prose = NO_PROSE.sub(_blank, text)
        for phrase in sorted(constants, key=len, reverse=True):
            if phrase in prose:
                used.add(phrase)
                prose = prose.replace(phrase, " " * len(phrase))
        published = [
            record
            for group in groups
            for record in records.get(group, {}).values()
            if name == HISTORY or not record.source
        ]
        forms = list_printed_forms(published)
        for match in DECIMAL.finditer(prose):
            if plain(match[0]) not in forms:
                line = prose.count("\n", 0, match.start()) + 1
                messages.append(
                    f"{name}:{line}: {match[0]} is in no record of"
                    f" {', '.join(sorted(groups)) or 'this page'}"
                )
    messages += [
        f"{FOLDER / 'constants.json'}: {phrase!r} is in no document"
        for phrase in sorted(set(constants) - used)
    ]
    return messages


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])  # line numbers stay


def plain(number: str) -> str:
    """A number as text without sign and thousands separators."""
    return number.lstrip("+-−").replace(",", "")


def list_printed_forms(records: Iterable[Record]) -> set[str]:
    """Every way in which the numbers of records may be printed: with their digits, and rounded to
    fewer."""
    forms = set()
    for record in records:
        for value in (record.value, record.sd, *(record.interval or ())):
            if value is not None:
                forms |= {f"{abs(value):.{digits}f}" for digits in range(1, record.digits + 1)}
        forms |= {
            record.part(name) for name in ("p", "p_seeds") if getattr(record, name) is not None
        }
    return forms
