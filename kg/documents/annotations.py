"""Annotated texts as annotation tools and other libraries have them: brat, CoNLL, spaCy's DocBin,
PubAnnotation, tables.

    brat            a folder, or files NAME.txt with NAME.ann: T lines (type and place), N lines
                    (Reference T1 HP:0001166), A lines (Negated T1); several places of one mention
                    are taken from the first to the last character; without an N line a type with a
                    colon (CL:0000540, as CRAFT has it) is the entity
    CoNLL           a token and its tag on each line, tabs or blanks between them (of more columns
                    the first and the last; tags first, and a first column of numbers, are
                    noticed), blank lines between sentences; "-DOCSTART-" or "# id =" begins a
                    document; tags are BIO, BIOES, BILOU, with types or without, or plain types.
                    The text is made: one blank between tokens, a line end between sentences
    DocBin          what spaCy saves (.spacy): doc.ents and doc.spans, their labels and kb_ids
    PubAnnotation   JSON with `text` and `denotations`; an entity is an attribute `Normalization`,
                    or the denotation's `obj` where that is an id with a colon
    table           CSV, TSV or Parquet with a row a document; columns id and text, or as named

Each reader yields Documents (kg.documents.mentions); each writer is given records as chains and
taggers make them ({id, text, mentions [{start, end, type, entity, name, …}]}).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from core.files import InputError
from core.json_files import json_records
from core.reading import Span, excerpt, lines, opened, read_text, unpacked_name, whole_number
from kg.build.rows import Form, sheet_rows
from kg.documents.bioc import DISCONTINUOUS, NO_ENTITY
from kg.documents.mentions import (
    ATTRIBUTES,
    BY_LINE,
    Document,
    Layout,
    Mention,
    attributes_of,
    checked_mention,
    counted_unless_used,
)

Source = Path | Span
OWN_IDS = "KEPL:"  #: before ids without a vocabulary's name, which brat wants
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
#: columns that a table's ids and texts may have, where none is named
ID_COLUMNS, TEXT_COLUMNS = ("id", "_id", "pmid", "note_id", "doc_id"), ("text", "note", "note_text")
#: an entity's tag in front of its type, of BIOES and BILOU as in BIO
BEGINS, INSIDE, ENDS, TAG = "BSU", "IELM", "ESLU", re.compile(r"([BIOESLUM])[-_](.+)")


def make_document(
    name: str, text: str, found: Iterable[Mention], where: str, left_out: Counter[str]
) -> Document:
    """A document with its mentions, those without an entity apart and counted."""
    given = sorted(found, key=lambda m: (m.start, m.end))
    unlinked = tuple(m for m in given if not m.entity)
    left_out[NO_ENTITY] += len(unlinked)
    return Document(name, text, tuple(m for m in given if m.entity), where, unlinked)


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
    found: dict[str, Mention] = {}
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
                if columns[0] in found:
                    raise InputError(
                        f"{where}: a second {columns[0]}. Give every entity a number of its own."
                    )
                found[columns[0]] = _brat_mention(where, columns, text, left_out)
            elif kind == "N":
                words = columns[1].split() if len(columns) > 1 else []
                if len(words) != 3:
                    raise InputError(
                        f"{where}: expected 'Reference T1 ID' in the second column, got"
                        f" {excerpt(line)}"
                    )
                left_out[SECOND] += words[1] in entities
                entities.setdefault(words[1], words[2].removeprefix(OWN_IDS))
            elif shape := ATTRIBUTE.fullmatch(line.rstrip()):
                attributes.setdefault(shape[2], []).append(shape[1].lower())
            elif re.match(r"[REAM#*][^\t]*\t", line):
                left_out[NOT_READ[kind]] += 1
            else:
                raise InputError(
                    f"{where}: expected a line of brat (T, N, R, E, A, M, # or *, a number and a"
                    f" tab), got {excerpt(line)}"
                )
    left_out[OF_NONE] += len((entities.keys() | attributes.keys()) - found.keys())
    mentions = [
        m._replace(
            entity=entities.get(key, m.type if ":" in m.type else ""),
            attributes=tuple(attributes.get(key, ())),
        )
        for key, m in found.items()
    ]
    yield make_document(layout.name_file(text_file), text, mentions, f"{text_file}:1", left_out)


def _brat_mention(where: str, columns: list[str], text: str, left_out: Counter[str]) -> Mention:
    """A T line: its id, "Type start end[;start end]", the text. Raises InputError for another, and
    for a text that is not in these places."""
    shape = re.fullmatch(PLACES, columns[1]) if len(columns) == 3 else None
    if shape is None:
        raise InputError(
            f"{where}: expected an id, 'Type start end' and the text, with tabs between them, got"
            f" {columns!s:.60}"
        )
    numbers = [
        [whole_number(where, "place", digits) for digits in part.split()]
        for part in shape[2].split(";")
    ]
    start, end = numbers[0][0], numbers[-1][1]
    checked = checked_mention(where, text, start, end, "any")
    # brat writes a line end inside a mention as a blank
    covered = " ".join(text[first:last] for first, last in numbers)
    if covered.split() != columns[2].split():
        raise InputError(
            f"{where}: [{shape[2]}] covers {excerpt(covered)} in the text, the line says"
            f" {excerpt(columns[2])}. Offsets count characters of the text file."
        )
    left_out[DISCONTINUOUS] += len(numbers) > 1
    return checked._replace(entity="", type=shape[1])


#: characters that end a line or a column; in brat's files they become blanks
LINE_MARKS = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def brat_lines(record: dict[str, Any]) -> str:
    """The .ann file of a record."""
    text, rows, attributes = record["text"], [], 0
    for number, m in enumerate(record["mentions"], start=1):
        kind = re.sub(r"\W+", "_", str(m.get("type") or "Entity")).strip("_") or "Entity"
        surface = LINE_MARKS.sub(" ", text[m["start"] : m["end"]])
        rows.append(f"T{number}\t{kind} {m['start']} {m['end']}\t{surface}")
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


# --- CoNLL


def conll_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """Documents of tokens with tags, in the columns and the scheme that :class:`_Columns` finds. A
    file without marks of documents is one for each sentence.

    Raises InputError for a line without a tag, and for the number 0 as a tag.
    """
    left_out = Counter() if left_out is None else left_out
    stem = layout.name_file(Path(path))
    form = _Columns.find([columns for _, _, columns in islice(_rows(path, encoding), PEEKED)])
    sentences: list[list[tuple[str, str]]] = [[]]
    first_lines: list[int] = []  # of the sentences that have a token
    name, begun, marked, count = "", 1, False, 0

    def finish(name: str, begun: int) -> Iterator[Document]:
        nonlocal count
        kept = [sentence for sentence in sentences if sentence]
        groups = [kept] if marked else [[sentence] for sentence in kept]
        for group, line in zip(groups, [begun] if marked else first_lines, strict=True):
            if group:
                count += 1
                text, mentions = _joined(group)
                own = name or f"{stem}:{count}"
                yield make_document(own, text, mentions, f"{path}:{line}", left_out)

    for number, line, columns in _rows(path, encoding, with_others=True):
        if columns:
            first_lines += [] if sentences[-1] else [number]
            sentences[-1].append(form.token(f"{path}:{number}", line, columns))
        elif not line.strip():
            sentences.append([])
        else:
            yield from finish(name, begun)
            named = NAMED.fullmatch(line.strip())
            sentences, name, begun, marked = [[]], named[1] if named else "", number, True
            first_lines = []
    yield from finish(name, begun)


NAMED = re.compile(r"#\s*(?:newdoc )?id\s*=\s*(.+)")  #: a line that names a document
PEEKED = 2000  #: tokens by which the columns of a file are known


def _rows(
    path: Source, encoding: str, with_others: bool = False
) -> Iterator[tuple[int, str, list[str]]]:
    """(number, line, columns) of the lines with tokens; with_others: of those that end a sentence
    or begin a document, too, without columns."""
    for number, line in lines(path, encoding):
        is_mark = NAMED.fullmatch(line.strip()) or line.startswith("-DOCSTART-")
        if is_mark or not line.strip():
            if with_others:
                yield number, line, []
        elif not line.startswith("# "):
            yield number, line, line.split("\t") if "\t" in line else line.split()


class _Columns(NamedTuple):
    """Where a file of tokens has its words and its tags, and how the tags are written.

    bare: whether the tags are B, I, O alone, without types. lower: whether they are in lower case.
    ended: whether a tab ends each line.
    """

    word: int = 0
    tag: int = -1
    bare: bool = False
    lower: bool = False
    ended: bool = False

    @classmethod
    def find(cls, rows: Sequence[list[str]]) -> _Columns:
        """The columns of a file by its first rows: words first and tags last, but where the first
        column has tags and the last has none, or where the first one numbers the words."""
        ended = bool(rows) and all(len(row) > 2 and not row[-1].strip() for row in rows)
        own = [row[:-1] if ended else row for row in rows]
        own = [row for row in own if len(row) > 1]
        first, last = ({row[place].strip() for row in own} for place in (0, -1))
        word, tag = 0, -1
        if own and _are_tags(first) and not _are_tags(last):
            word, tag = 1, 0
        elif own and all(len(row) > 2 for row in own) and "1" in first and _are_numbers(first):
            word = 1
        tags = first if tag == 0 else last
        lower = "o" in tags and not any(one[:1].isupper() for one in tags)
        bare = {one.upper() for one in tags} <= BARE_TAGS and bool({"B", "I"} & tags)
        return cls(word, tag, bare, lower, ended)

    def token(self, where: str, line: str, columns: list[str]) -> tuple[str, str]:
        """(word, tag) of a line. Raises InputError for one without a tag."""
        if self.ended:
            columns = columns[:-1]
        tag = columns[self.tag].strip() if len(columns) > 1 else ""
        if self.lower:
            tag = tag[:1].upper() + tag[1:]
        if not tag:
            raise InputError(
                f"{where}: expected a token and its tag, got {excerpt(line)}. Put a tab between"
                " them."
            )
        if tag == "0":
            raise InputError(f"{where}: the tag 0; expected the letter O where there is no entity.")
        if tag in ("B-", "I-"):
            raise InputError(f"{where}: expected a type behind {tag}. Fix the tag.")
        if self.bare and tag in BARE_TAGS - {"O"}:
            tag = f"{tag}-{UNTYPED}"
        return columns[self.word], tag


BARE_TAGS = frozenset("BIOESLU")  #: tags of entities that have no type
UNTYPED = "Entity"  #: the type of an entity without one


def _are_tags(values: set[str]) -> bool:
    """Whether all values of a column are tags such as B-Disease and O."""
    return any(TAG.fullmatch(one) for one in values) and all(
        one == "O" or TAG.fullmatch(one) for one in values
    )


def _are_numbers(values: set[str]) -> bool:
    """Whether a column numbers the words of each sentence, as CoNLL-U does: 1, 2-3, 2.1."""
    return all(re.fullmatch(r"\d+(?:[-.]\d+)?", one) for one in values)


def _joined(sentences: list[list[tuple[str, str]]]) -> tuple[str, list[Mention]]:
    """The text of some sentences, and their entities."""
    text, mentions = "", list[Mention]()
    for sentence in sentences:
        text += "\n" if text else ""
        open_: tuple[int, str] | None = None
        end = len(text)
        for token, tag in sentence:
            start = len(text) if not text or text.endswith("\n") else len(text) + 1
            shape = TAG.fullmatch(tag)
            place, kind = (shape[1], shape[2]) if shape else ("I", tag)
            inside = tag != "O" and tag != "_"
            continued = inside and open_ is not None and place in INSIDE and open_[1] == kind
            if open_ is not None and not continued:
                mentions.append(Mention(open_[0], end, "", 1.0, open_[1]))
                open_ = None
            if inside and not continued:
                open_ = start, kind
            text += (" " if start > len(text) else "") + token
            end = len(text)
            if open_ is not None and shape and place in ENDS:
                mentions.append(Mention(open_[0], end, "", 1.0, open_[1]))
                open_ = None
        if open_ is not None:
            mentions.append(Mention(open_[0], end, "", 1.0, open_[1]))
    return text, mentions


def conll_lines(record: dict[str, Any]) -> str:
    """A record as CoNLL: words and signs with BIO tags; of overlapping mentions the longest."""
    text = record["text"]
    longest = sorted(record["mentions"], key=lambda m: (m["start"] - m["end"], m["start"]))
    tags: dict[int, str] = {}  # character: tag of the token that begins there
    taken: set[int] = set()
    for m in longest:
        place = range(m["start"], m["end"])
        if taken.isdisjoint(place):
            taken |= set(place)
            kind = str(m.get("type") or UNTYPED)
            tags |= {at: f"{'B' if at == m['start'] else 'I'}-{kind}" for at in place}
    rows = [f"# id = {LINE_MARKS.sub(' ', str(record['id']))}"]
    last = 0
    for match in re.finditer(r"\w+|[^\w\s]", text):
        if "\n" in text[last : match.start()]:
            rows.append("")
        last = match.end()
        rows.append(f"{match[0]}\t{tags.get(match.start(), 'O')}")
    return "\n".join(rows) + "\n\n"


# --- DocBin


def docbin_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """The documents of a spaCy DocBin, in its own order; ids are user_data["id"], or numbers.

    Raises InputError for a file that is none.
    """
    import spacy
    from spacy.tokens import DocBin

    left_out = Counter() if left_out is None else left_out
    stem = layout.name_file(Path(path))
    try:
        docs = list(DocBin().from_bytes(Path(path).read_bytes()).get_docs(spacy.blank("xx").vocab))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise InputError(f"{path}: not a DocBin of spaCy ({reason})") from error
    for number, doc in enumerate(docs, start=1):
        spans = [*doc.ents, *(span for group in doc.spans.values() for span in group)]
        every = [Mention(e.start_char, e.end_char, e.kb_id_, 1.0, e.label_) for e in spans]
        found = list(dict.fromkeys(every))
        name = str(doc.user_data.get("id") or f"{stem}:{number}")
        yield make_document(name, doc.text, found, f"{path}: document {number}", left_out)


def docbin_bytes(records: Iterable[dict[str, Any]]) -> bytes:
    """Records as a DocBin; of overlapping mentions the longest, widened to whole tokens."""
    import spacy
    from spacy.tokens import DocBin
    from spacy.util import filter_spans

    nlp, made = spacy.blank("xx"), DocBin(store_user_data=True)
    for record in records:
        doc = nlp(record["text"])
        doc.user_data["id"] = str(record["id"])
        spans = [
            doc.char_span(
                m["start"],
                m["end"],
                label=str(m.get("type") or "ENTITY"),
                kb_id=str(m.get("entity") or ""),
                alignment_mode="expand",
            )
            for m in record["mentions"]
        ]
        doc.ents = filter_spans([span for span in spans if span is not None])
        made.add(doc)
    content: bytes = made.to_bytes()
    return content


# --- PubAnnotation


def pubannotation_documents(
    path: Source,
    encoding: str = "utf-8",
    left_out: Counter[str] | None = None,
    used: bool = True,
    layout: Layout = BY_LINE,
) -> Iterator[Document]:
    """PubAnnotation's JSON: one document, a list of them, or one a line."""
    left_out = Counter() if left_out is None else left_out
    records = [record for _, record in json_records(Path(path), encoding)]
    stem = layout.name_file(Path(path))
    for number, record in enumerate(records, start=1):
        where = f"{path}: document {number}"
        if not isinstance(record.get("text"), str):
            raise InputError(f"{where}: expected an object with a text and denotations")
        text = record["text"]
        ids, said = dict[str, str](), dict[str, dict[str, Any]]()
        for a in _list_objects(record, "attributes", where):
            predicate, subject = str(a.get("pred")).lower(), str(a.get("subj"))
            if predicate.startswith(("norm", "concept")):
                ids[subject] = str(a.get("obj"))
            else:
                said.setdefault(subject, {})[predicate] = a.get("obj")
        found = []
        noted = set[str]()
        for note in _list_objects(record, "denotations", where):
            with counted_unless_used(left_out, used):
                if (own_id := str(note.get("id") or "")) in noted:
                    raise InputError(
                        f"{where}: a second denotation {own_id!r}. Give each an id of its own."
                    )
                noted |= {own_id} - {""}
                span = note.get("span")
                places: list[Any] = span if isinstance(span, list) and span else [span]
                if not all(isinstance(place, dict) for place in places):
                    raise InputError(
                        f"{where}: expected a span with begin and end, got {excerpt(span)}"
                    )
                left_out[DISCONTINUOUS] += len(places) > 1
                start, end = places[0].get("begin"), places[-1].get("end")
                kind = str(note.get("obj") or "")
                checked = checked_mention(where, text, start, end, "any")
                entity = ids.get(str(note.get("id")), kind if ":" in kind else "")
                own = attributes_of(said.get(str(note.get("id")), {}))
                found.append(checked._replace(entity=entity, type=kind, attributes=own))
        source = record.get("sourceid") or record.get("id")
        name = str(source or (stem if len(records) == 1 else f"{stem}:{number}"))
        yield make_document(name, text, found, where, left_out)


def _list_objects(record: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """The objects under a key, none where it is missing. Raises InputError for anything else."""
    listed = record.get(key) or []
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise InputError(f"{where}: expected a list of objects under {key}, got {excerpt(listed)}")
    return listed


def pubannotation(record: dict[str, Any]) -> dict[str, Any]:
    """A record as PubAnnotation's JSON."""
    denotations, attributes = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, m in enumerate(record["mentions"], start=1):
        place = {"begin": m["start"], "end": m["end"]}
        denotations.append({"id": f"T{number}", "span": place, "obj": m.get("type") or "Entity"})
        said = {"Normalization": m["entity"]} if m.get("entity") else {}
        said |= {name.capitalize(): True for name in ATTRIBUTES if m.get(name)}
        for predicate, value in said.items():
            name = f"A{len(attributes) + 1}"
            attributes.append({"id": name, "pred": predicate, "subj": f"T{number}", "obj": value})
    return {
        "sourceid": str(record["id"]),
        "text": record["text"],
        "denotations": denotations,
        "attributes": attributes,
    }


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
    with opened(place) as handle:
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


LONGEST_NAME = 200  #: bytes of a file's name without its ending


def name_places(
    records: Iterable[dict[str, Any]], folder: Path
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """(where in `folder` a record's files are, without an ending; the record); its id names them.
    Raises InputError for two ids with one name of a file, and for one that is too long."""
    names = dict[str, str]()
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
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        yield place, record


def write_brat(records: Iterable[dict[str, Any]], folder: Path) -> int:
    """Write NAME.txt and NAME.ann of each record into `folder`; returns how many. Raises InputError
    as :func:`name_places`."""
    count = 0
    for place, record in name_places(records, folder):
        place.with_name(f"{place.name}.txt").write_text(record["text"], newline="")
        place.with_name(f"{place.name}.ann").write_text(brat_lines(record), newline="")
        count += 1
    return count
