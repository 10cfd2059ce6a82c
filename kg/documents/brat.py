"""brat: a folder, or files NAME.txt with NAME.ann.

Read are T lines (type and place), N lines (Reference T1 HP:0001166), A lines (Negated T1). Several
places of one mention are taken from the first to the last character; brat writes a mention over the
end of a line so, which is no gap. Without an N line a type with a colon (CL:0000540, as CRAFT has
it) is the entity.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from core.files import InputError
from core.reading import excerpt, lines, read_text, whole_number
from kg.documents.mentions import (
    ATTRIBUTES,
    BY_LINE,
    DISCONTINUOUS,
    Document,
    Layout,
    Mention,
    Source,
    checked_mention,
    counted_unless_used,
    make_document,
)
from kg.ids import OWN_IDS

#: {first character of a line of brat: what is not read of it}
NOT_READ = {
    "R": "relations of brat",
    "*": "equivalences of brat",
    "E": "events of brat",
    "A": "attributes of brat other than " + ", ".join(map(str.capitalize, ATTRIBUTES)),
    "M": "modifications of brat",
    "#": "notes of annotators (brat)",
}
SECOND = "further entities of a mention that has one (brat)"
OF_NONE = "ids and attributes of a mention that the file does not have (brat)"
NO_ANNOTATIONS = "texts without a .ann file, kept as texts without a mention (brat)"
PLACES = r"(\S+) ([0-9]+ [0-9]+(?:;[0-9]+ [0-9]+)*)"  #: of a mention of brat, after its type
#: an attribute of a mention of brat: its name, the mention
ATTRIBUTE = re.compile(rf"A\S*\t((?i:{'|'.join(ATTRIBUTES)})) (T\S+)")


# --- brat


def brat_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """The text of NAME.txt with the annotations of NAME.ann; `path` is either of them.

    Raises InputError without a text, and for an annotation that does not fit it.
    """
    left_out = Counter() if left_out is None else left_out
    place = Path(path)
    text_file, notes = place.with_suffix(".txt"), place.with_suffix(".ann")
    if not text_file.is_file():
        raise InputError(f"{notes}: its text is missing: expected {text_file.name} beside it")
    text = read_text(text_file, encoding)
    before = _count_mark(text_file, notes, text, encoding)
    mention_by_id: dict[str, Mention] = {}
    entities: dict[str, str] = {}
    attributes: dict[str, list[str]] = {}
    left_out[NO_ANNOTATIONS] += not notes.is_file()
    for number, line in lines(notes, encoding) if notes.is_file() else ():
        if not line.strip():
            continue
        where = f"{notes}:{number}"
        kind, columns = line[0], line.split("\t")
        with counted_unless_used(left_out, used):
            if kind == "T":
                if columns[0] in mention_by_id:
                    raise InputError(
                        f"{where}: a second {columns[0]}. Give every entity a number of its own."
                    )
                mention_by_id[columns[0]] = _brat_mention(where, columns, text, before, left_out)
            elif kind == "N":
                subject, entity = _read_reference(where, line)
                left_out[SECOND] += subject in entities
                entities.setdefault(subject, entity)
            elif shape := ATTRIBUTE.fullmatch(line.rstrip()):
                attributes.setdefault(shape[2], []).append(shape[1].lower())
            elif re.match(r"[REAM#*][^\t]*\t", line):
                left_out[NOT_READ[kind]] += 1
            else:
                raise InputError(
                    f"{where}: expected a line of brat (T, N, R, E, A, M, # or *, a number and a"
                    f" tab), got {excerpt(line)}"
                )
    left_out[OF_NONE] += len((entities.keys() | attributes.keys()) - mention_by_id.keys())
    mentions = []
    for key, mention in mention_by_id.items():
        entity = entities.get(key, mention.type if ":" in mention.type else "")
        values = tuple(attributes.get(key, ()))
        mentions.append(mention._replace(entity=entity, attributes=values))
    yield make_document(layout.name_file(text_file), text, mentions, f"{text_file}:1", left_out)


def _count_mark(text_file: Path, notes: Path, text: str, encoding: str) -> int:
    """1 where the text begins with a byte order mark, which is left out here, and the first
    annotation counts it as a character, as brat does; else 0."""
    with text_file.open("rb") as handle:
        marked = handle.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
    if not marked or not notes.is_file():
        return 0
    for _, line in lines(notes, encoding):
        if shape := re.fullmatch(rf"T\S+\t{PLACES}\t(.*)", line):
            first, last = map(int, re.split("[ ;]", shape[2])[:2])
            mark = shape[3][: last - first]
            return int(text[first:last] != mark and text[max(0, first - 1) : last - 1] == mark)
    return 0


def _read_reference(where: str, line: str) -> tuple[str, str]:
    """An N line: (mention, entity). Raises InputError for another."""
    words = "".join(line.split("\t")[1:2]).split()
    if len(words) != 3:
        raise InputError(
            f"{where}: expected 'Reference T1 ID' in the second column, got {excerpt(line)}"
        )
    return words[1], words[2].removeprefix(OWN_IDS)


def _brat_mention(
    where: str, columns: list[str], text: str, before: int, left_out: Counter[str]
) -> Mention:
    """A T line: its id, "Type start end[;start end]", the text; places count `before` characters
    that the text does not have. Raises InputError for another, and for a text that is not in these
    places."""
    shape = re.fullmatch(PLACES, columns[1]) if len(columns) == 3 else None
    if shape is None:
        raise InputError(
            f"{where}: expected an id, 'Type start end' and the text, with tabs between them, got"
            f" {columns!s:.60}"
        )
    places = []
    for part in shape[2].split(";"):
        first, last = (whole_number(where, "place", digits) - before for digits in part.split())
        places.append((first, last))
    start, end = places[0][0], places[-1][1]
    checked = checked_mention(where, text, start, end, "any")
    # brat writes a line end inside a mention as a blank
    covered = " ".join(text[first:last] for first, last in places)
    if covered.split() != columns[2].split():
        raise InputError(
            f"{where}: [{shape[2]}] covers {excerpt(covered)} in the text, the line says"
            f" {excerpt(columns[2])}. Offsets count characters of the text file."
        )
    gaps = [text[end:start] for (_, end), (start, _) in pairwise(places)]
    left_out[DISCONTINUOUS] += any(gap.strip() for gap in gaps)
    return checked._replace(entity="", type=shape[1])


#: characters that end a line or a column; in brat's files they become blanks
LINE_MARKS = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def brat_type(mention: dict[str, Any]) -> str:
    """A mention's type, in the characters that brat allows."""
    return re.sub(r"\W+", "_", str(mention.get("type") or "Entity")).strip("_") or "Entity"


def brat_lines(record: dict[str, Any]) -> str:
    """The .ann file of a record."""
    text, rows, attributes = record["text"], [], 0
    for number, m in enumerate(record["mentions"], start=1):
        kind = brat_type(m)
        places = list_lines(text, m["start"], m["end"])
        surface = " ".join(LINE_MARKS.sub(" ", text[slice(*place)]) for place in places)
        spans = ";".join(f"{start} {end}" for start, end in places)
        rows.append(f"T{number}\t{kind} {spans}\t{surface}")
        if m.get("entity"):
            entity = str(m["entity"])
            if len(entity.split()) != 1:
                raise InputError(
                    f"document {record['id']}: the id {entity!r} has a blank, which a reference of"
                    " brat cannot have. Write ids without blanks, or choose another format."
                )
            reference = entity if ":" in entity else f"{OWN_IDS}{entity}"
            name = LINE_MARKS.sub(" ", str(m.get("name") or surface))
            rows.append(f"N{number}\tReference T{number} {reference}\t{name}")
        for attribute in ATTRIBUTES:
            if m.get(attribute):
                attributes += 1
                rows.append(f"A{attributes}\t{attribute.capitalize()} T{number}")
    return "".join(f"{row}\n" for row in rows)


def list_lines(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The places of a mention's lines without the blanks around each: brat shows no mention over
    the end of a line, but one of several places."""
    pieces = re.finditer(r"[^\r\n]+", text[start:end])
    lines_ = [piece for piece in pieces if piece[0].strip()]
    if len(lines_) < 2:
        return [(start, end)]
    places = []
    for piece in lines_:
        first = start + piece.start() + len(piece[0]) - len(piece[0].lstrip())
        places.append((first, first + len(piece[0].strip())))
    return [(start, places[0][1]), *places[1:-1], (places[-1][0], end)]


SETTINGS = "annotation.conf"  #: of brat: which types there are
#: files of brat's settings, which hold no texts
SETTINGS_FILES = frozenset((SETTINGS, "visual.conf", "tools.conf", "kb_shortcuts.conf"))


def format_settings(kinds: Iterable[str]) -> str:
    """annotation.conf for types of entities, with the attributes that are written."""
    attributes = [f"{name.capitalize()}\tArg:<ENTITY>" for name in ATTRIBUTES]
    sections = {"entities": sorted(kinds), "relations": [], "events": [], "attributes": attributes}
    parts = ["\n".join([f"[{name}]", *lines, ""]) for name, lines in sections.items()]
    return "\n".join(parts)


def is_written_settings(file: Path) -> bool:
    """Whether an annotation.conf is as :func:`write_brat` writes it: nobody has changed it."""
    content = file.read_text(encoding="utf-8", errors="replace")
    kinds = content.partition("[relations]")[0].split("\n")[1:-2]
    return content == format_settings(kinds)


LONGEST_NAME = 200  #: bytes of a file's name without its ending


def name_places(
    records: Iterable[dict[str, Any]], folder: Path, lost: Counter[str]
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """(where in `folder` a record's files are, without an ending; the record); its id names them.
    `lost` counts the ids that become others. Raises InputError for two ids with one name of a file,
    and for one that is too long."""
    names = dict[str, str]()
    changed: list[str] = []
    for record in records:
        own_id = str(record["id"])
        name = re.sub(r"[^\w.@/-]+", "-", own_id).strip("/")
        parts = [part for part in name.split("/") if part not in ("", ".", "..")]
        # a name that begins with a dot is that of a hidden file
        parts = [f"_{part}" if part.startswith(".") else part for part in parts]
        name = "/".join(parts) or "-"
        if any(len(part.encode()) > LONGEST_NAME for part in parts):
            raise InputError(
                f"document {own_id:.40}…: its id is too long for a file's name (more than"
                f" {LONGEST_NAME} bytes). Give it a shorter one."
            )
        if name in names:
            same = "" if names[name] == own_id else f" and {names[name]!r}, which become {name}"
            raise InputError(
                f"document {own_id!r}: a second one of this id{same}. Give each one of its own;"
                " they name the files."
            )
        names[name] = own_id
        if name != own_id:
            changed.append(f"{own_id} as {name}")
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        yield place, record
    if changed:
        lost[f"ids, written as names of files have them ({changed[0]:.120})"] += len(changed)


def write_brat(records: Iterable[dict[str, Any]], folder: Path, lost: Counter[str]) -> int:
    """Write NAME.txt and NAME.ann of each record into `folder`, and annotation.conf; returns how
    many. `lost` counts as, and InputError is raised as by :func:`name_places`."""
    count = 0
    kinds = set[str]()
    for place, record in name_places(records, folder, lost):
        kinds |= {brat_type(mention) for mention in record["mentions"]}
        place.with_name(f"{place.name}.txt").write_text(record["text"], newline="")
        place.with_name(f"{place.name}.ann").write_text(brat_lines(record), newline="")
        count += 1
    (folder / SETTINGS).write_text(format_settings(kinds), encoding="utf-8")
    return count
