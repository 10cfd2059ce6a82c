"""CoNLL: a token and its tag on each line, tabs or blanks between them.

Of more columns the first and the last count; tags first, and a first column of numbers, are
noticed. Blank lines are between sentences; "-DOCSTART-" or "# id =" begins a document; tags are
BIO, BIOES, BILOU, with types or without, or plain types. The text is made: one blank between
tokens, a line end between sentences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from core.files import InputError
from core.reading import excerpt, lines
from kg.documents.brat import LINE_MARKS
from kg.documents.mentions import (
    BY_LINE,
    OVERLAPPING,
    Document,
    Layout,
    Mention,
    Source,
    make_document,
)

#: an entity's tag in front of its type, of BIOES and BILOU as in BIO
BEGINS, INSIDE, ENDS, TAG = "BSU", "IELM", "ESLU", re.compile(r"([BIOESLUM])[-_](.+)")


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
        full_sentences = [sentence for sentence in sentences if sentence]
        groups = [full_sentences] if marked else [[sentence] for sentence in full_sentences]
        for group, line in zip(groups, [begun] if marked else first_lines, strict=True):
            if group:
                count += 1
                text, mentions = _join_sentences(group)
                document_name = name or f"{stem}:{count}"
                yield make_document(document_name, text, mentions, f"{path}:{line}", left_out)

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
        cells = [row[:-1] if ended else row for row in rows]
        cells = [row for row in cells if len(row) > 1]
        first, last = {row[0].strip() for row in cells}, {row[-1].strip() for row in cells}
        word, tag = 0, -1
        if cells and _are_tags(first) and not _are_tags(last):
            word, tag = 1, 0
        elif cells and all(len(row) > 2 for row in cells) and "1" in first and _are_numbers(first):
            word = 1
        tags = first if tag == 0 else last
        lower = "o" in tags and not any(tag_value[:1].isupper() for tag_value in tags)
        bare = {tag_value.upper() for tag_value in tags} <= BARE_TAGS and bool({"B", "I"} & tags)
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
    return any(TAG.fullmatch(value) for value in values) and all(
        value == "O" or TAG.fullmatch(value) for value in values
    )


def _are_numbers(values: set[str]) -> bool:
    """Whether a column numbers the words of each sentence, as CoNLL-U does: 1, 2-3, 2.1."""
    return all(re.fullmatch(r"\d+(?:[-.]\d+)?", value) for value in values)


def _join_sentences(sentences: list[list[tuple[str, str]]]) -> tuple[str, list[Mention]]:
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


PARTED = "mentions over a line end, which become several"


def conll_lines(record: dict[str, Any], lost: Counter[str]) -> str:
    """A record as CoNLL: words and signs with BIO tags; of overlapping mentions the longest. `lost`
    counts the others, and those that a line end parts."""
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
            lost[PARTED] += "\n" in text[m["start"] : m["end"]]
        else:
            lost[OVERLAPPING] += 1
    rows = [f"# id = {LINE_MARKS.sub(' ', str(record['id']))}"]
    last = 0
    for match in re.finditer(r"\w+|[^\w\s]", text):
        if "\n" in text[last : match.start()]:
            rows.append("")
        last = match.end()
        rows.append(f"{match[0]}\t{tags.get(match.start(), 'O')}")
    return "\n".join(rows) + "\n\n"
