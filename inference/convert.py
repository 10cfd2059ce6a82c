"""kepl convert: annotated texts from one format into another.

A command is a record: its fields are the options, its docstring is their help, `run` does it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from core.files import InputError, atomic_folder, atomic_write
from core.outputs import Output, check_no_input
from inference.ids import IdCounter, warn_of_repeated
from inference.options import InputFormat
from inference.output_formats import format_records
from kg.documents.brat import SETTINGS, is_written_settings, write_brat
from kg.documents.conll import conll_lines
from kg.documents.docbin import docbin_bytes
from kg.documents.formats import annotated_documents, files_in
from kg.documents.mentions import ATTRIBUTES, Document, Layout
from kg.documents.pubannotation import pubannotation
from kg.documents.uima import write_xmi

Target = Literal[
    "jsonl",
    "pubtator",
    "bioc",
    "biocjson",
    "csv",
    "tsv",
    "brat",
    "conll",
    "docbin",
    "pubannotation",
    "xmi",
]


class Format(NamedTuple):
    """A format of annotated texts: the ending of its files, and what it does not hold."""

    ending: str
    loses: str


#: what each format that is written cannot hold
FORMATS: dict[str, Format] = {
    "jsonl": Format(".jsonl", "nothing"),
    "pubtator": Format(".pubtator", "line ends and bars of the text (they become blanks)"),
    "bioc": Format(".xml", "characters that XML does not allow (they become blanks)"),
    "biocjson": Format(".json", "nothing"),
    "csv": Format(".csv", "texts, and documents without a mention"),
    "tsv": Format(".tsv", "texts, and documents without a mention"),
    "brat": Format("", "scores; characters of ids that names of files do not have (they become -)"),
    "conll": Format(
        ".conll",
        "entities, scores, attributes, blanks of the text, nested mentions; a mention over a line"
        " end becomes two",
    ),
    "docbin": Format(".spacy", "scores, attributes, overlapping mentions, places inside a token"),
    "pubannotation": Format(".json", "scores and names"),
    "xmi": Format(
        "",
        "scores, attributes; characters that XML does not allow (they become blanks), and of ids"
        " those that names of files do not have (they become -)",
    ),
}


#: formats whose output is a folder, and what writes it
FOLDERS = {"brat": write_brat, "xmi": write_xmi}


def record_of(document: Document) -> dict[str, Any]:
    """A document as chains and taggers write it."""
    ordered = sorted((*document.mentions, *document.unlinked), key=lambda m: (m.start, m.end))
    mentions = [
        {
            "start": m.start,
            "end": m.end,
            "text": document.text[m.start : m.end],
            "type": m.type or None,
            "entity": m.entity or None,
            "score": m.score if m.entity else None,
        }
        | dict.fromkeys(m.attributes, True)
        for m in ordered
    ]
    return {"id": document.id, "text": document.text, "mentions": mentions}


#: formats without attributes, and without entities
PLAIN = ("conll", "docbin", "xmi")
WITHOUT_ENTITIES = ("conll",)


def count_lost(
    records: Iterable[dict[str, Any]], to: str, lost: Counter[str]
) -> Iterator[dict[str, Any]]:
    """The records; `lost` counts what a format does not hold of their mentions."""
    for record in records:
        for mention in record["mentions"]:
            if to in PLAIN:
                lost["attributes of mentions"] += sum(bool(mention.get(a)) for a in ATTRIBUTES)
            if to in WITHOUT_ENTITIES:
                lost["entities of mentions"] += bool(mention.get("entity"))
        yield record


def count_ids(documents: Iterable[Document], ids: IdCounter) -> Iterator[Document]:
    """The documents, whose ids are counted."""
    for document in documents:
        ids.add(document.id)
        yield document


def write_records(
    records: Iterable[dict[str, Any]], output: Path, to: str, lost: Counter[str] | None = None
) -> int:
    """Write records in a format; returns how many. Some formats are folders. `lost` counts what the
    format does not hold of these."""
    count = 0
    lost = Counter() if lost is None else lost
    records = count_lost(records, to, lost)

    def counting() -> Iterator[dict[str, Any]]:
        nonlocal count
        for record in records:
            count += 1
            yield record

    if to in FOLDERS:
        with atomic_folder(output) as folder:
            return FOLDERS[to](records, folder, lost)
    if to == "docbin":
        with atomic_write(output, "wb") as binary:
            binary.write(docbin_bytes(counting(), lost))
        return count
    with atomic_write(output) as handle:
        if to == "jsonl":
            handle.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in counting())
        elif to == "conll":
            handle.writelines(conll_lines(record, lost) for record in counting())
        elif to == "pubannotation":
            json.dump([pubannotation(r) for r in counting()], handle, ensure_ascii=False, indent=1)
        else:
            handle.writelines(format_records(counting(), to))
    return count


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Annotated texts from one format into another, both ways between annotation tools, linkers and
    tables.

    Args:
        input: File or folder, as --input of `kepl link` reads it.
        output: File, or for brat and xmi a new folder.
        format: Format of the input. Default: by the files' names.
        to: Format of the output. Default: by its name; a name without an ending is brat's folder.
        document: What a document of plain text is.
        id_field: Key of JSON, or column of a table, with ids.
        text_field: Key of JSON, or column of a table, with texts.
        encoding: Encoding of the input.
        fresh: Replace an existing output.

    Examples:
      kepl convert links.jsonl for-brat
      kepl convert annotated/ gold.jsonl
      kepl convert corpus.bioc.xml mentions.csv
    """

    input: Path
    output: Path
    format: InputFormat | None = None
    to: Target | None = None
    document: Literal["file", "paragraph", "line"] = "file"
    id_field: str | None = None
    text_field: str | None = None
    encoding: str = "utf-8"
    fresh: bool = False

    def run(self) -> None:
        for path in (self.input, self.output):
            if str(path) in ("-", "/dev/stdin", "/dev/stdout"):
                raise InputError(
                    f"{path}: convert reads a whole file or folder and writes one; name it. (kepl"
                    " link reads standard input.)"
                )
        to = self.to or format_by_name(self.output)
        if self.output.exists() and not self.fresh:
            raise InputError(f"{self.output}: exists already; give another output, or --fresh")
        if to in FOLDERS:
            check_no_input(self.output, [self.input])
            check_folder_is_own(self.output, to)
        else:
            Output(self.output, [self.input])
        left_out = Counter[str]()
        files = [path.resolve() for path in files_in([self.input], left_out)]
        roots = [self.input] if self.input.is_dir() else []
        layout = Layout(self.document, self.id_field, self.text_field)
        documents = annotated_documents(files, self.format, left_out, roots, layout, self.encoding)
        lost, ids = Counter[str](), IdCounter(str)
        count = write_records(map(record_of, count_ids(documents, ids)), self.output, to, lost)
        print(f"{self.output}: {count:,} documents, {to}")
        if FORMATS[to].loses != "nothing":
            print(f"not held by {to}: {FORMATS[to].loses}")
        warn_of_repeated(self.output, ids.count().repeated)
        for reason, number in (+lost).items():
            print(f"not held by {to}, here: {number:,} {reason}")
        for reason, number in (+left_out).items():
            print(f"left out: {number:,} {reason}")


def check_folder_is_own(folder: Path, form: str) -> None:
    """Raise InputError for a folder with something that no conversion writes, which would be
    deleted with it: other files, and texts without their annotations."""
    for path in sorted(folder.rglob("*")):
        partner = {".txt": ".ann", ".ann": ".txt"}.get(path.suffix)
        if form == "brat" and path == folder / SETTINGS and is_written_settings(path):
            continue
        if form == "xmi":
            is_own = path.suffix in (".xmi", ".xml")
        else:
            is_own = partner is not None and path.with_suffix(partner).is_file()
        if not path.is_dir() and not is_own:
            raise InputError(
                f"{folder}: it has {path.relative_to(folder)}, which no conversion writes; the"
                " folder is left alone. Choose another one."
            )


def format_by_name(output: Path) -> str:
    """The format that an output's name has. Raises InputError for a name without one."""
    name, ending = output.name.lower(), output.suffix.lower()
    if ending == ".json":
        return "biocjson" if "bioc" in name else "pubannotation"
    if not ending:
        return "brat"
    names = {form.ending: key for key, form in FORMATS.items()}
    if ending not in names:
        raise InputError(
            f"{output}: cannot tell the format from this name. Give --to: one of"
            f" {', '.join(FORMATS)}."
        )
    return names[ending]
