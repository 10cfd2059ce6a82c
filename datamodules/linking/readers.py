"""The readers of entity linking's real formats.

    biosyn_dictionary  id||name, alternative ids after |           biosyn_mentions
                                                                   pmid||start|end||type||mention||id
    medic              CTD's table, or id[|id]||name|synonym        pubtator_mentions  PubTator with
                                                                    MeSH, OMIM or UMLS ids
    mesh               id, label, synonym|synonym                  cometa  eight columns, no quoting
    phrases            concept, term, phrase (AskAPatient, TwADR-L; latin-1)
    graph_dictionary   any KnowledgeGraph

A broken line raises InputError `path:line: what was wanted`; what is odd or left out is counted in
`found`.
"""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from core.files import InputError, explain_error
from core.reading import excerpt, lines, whole_number
from datamodules.linking import Dictionary, Mention
from kg.build.sources import medic as medic_source
from kg.build.sources import mesh as mesh_source
from kg.documents.pubtator import pubtator_annotations
from kg.graph import KnowledgeGraph
from kg.ids import BareIds, alternatives_of, bare, split_ids

NO_ID = "mentions without a concept in their source: not linked, spans of detection alone"
DUPLICATE_ROWS = "dictionary lines left out: the same id and name occur before"
TWICE = "documents that occur twice, whose mentions count again"
OTHER_TYPE = "mentions left out: of another type"
LARGEST = 1 << 30  # bytes that an archive may unpack to


def gold_of(identifiers: str) -> list[list[str]]:
    """[[id], …] of a field of ids, read as kg.ids does; empty where a source says that there is
    none (-1, -, CUI-less, nothing)."""
    return [[identifier] for identifier in dict.fromkeys(map(bare, split_ids(identifiers)))]


class Rows:
    """Collects a dictionary's rows, one at a time, leaving out and counting what occurred
    before."""

    def __init__(self, counts: Counter[str] | None) -> None:
        self.counts = Counter() if counts is None else counts
        self.seen: set[tuple[str, str]] = set()
        self.result = Dictionary([], [])

    def add(self, where: str, ids: Sequence[str], name: str) -> None:
        if not ids or not all(ids):
            raise InputError(
                f"{where}: a dictionary line without an id. Add the concept's id, or remove the"
                " line."
            )
        if not name.strip():
            raise InputError(
                f"{where}: concept {ids[0]!r} with an empty name. Add the name, or remove the line."
            )
        if (ids[0], name) in self.seen:
            self.counts[DUPLICATE_ROWS] += 1
            return
        self.seen.add((ids[0], name))
        self.result.ids.append(ids[0])
        self.result.names.append(name)
        if ids[1:]:
            others = self.result.alternatives.setdefault(ids[0], [])
            others += [i for i in ids[1:] if i not in others and i != ids[0]]

    def whole(self, path: str | Path) -> Dictionary:
        if not self.result.ids:
            raise InputError(
                f"{path}: no names in this dictionary. The file may be cut: fetch it again."
            )
        return self.result


def contents(place: Path) -> dict[str, bytes]:
    """{path below its top folder: content} of a .tar.gz, or of a folder as it is. Links are not
    followed."""
    result: dict[str, bytes] = {}
    if place.is_dir():
        return {
            p.relative_to(place).as_posix(): p.read_bytes()
            for p in sorted(place.rglob("*"))
            if p.is_file()
        }
    try:
        with tarfile.open(place, "r:*") as tar:
            room = LARGEST
            for member in tar:
                if not member.isreg():
                    continue
                room -= member.size
                if room < 0:
                    raise InputError(
                        f"{place}: more than {LARGEST:,} bytes unpacked. Is this the right archive?"
                    )
                stream = tar.extractfile(member)
                assert stream is not None
                result[member.name.removeprefix("./").partition("/")[2] or member.name] = (
                    stream.read()
                )
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        ValueError,
        OverflowError,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{place}: not a whole tar archive ({error}). Fetch it again.") from error
    except OSError as error:
        if error.errno is None:
            raise InputError(
                f"{place}: the archive is cut or broken ({error}). Fetch it again."
            ) from error
        raise explain_error(error, place) from error
    return dict(sorted(result.items()))


def _decode(where: str, content: bytes) -> Iterator[tuple[str, str]]:
    for number, raw in enumerate(content.split(b"\n"), 1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{where}:{number}: not utf-8 text ({error.reason}). Fetch the file again."
            ) from error
        if line.strip():
            yield f"{where}:{number}", line


# BioSyn's folders


def biosyn_dictionary(place: Path, name: str, counts: Counter[str] | None = None) -> Dictionary:
    """The dictionary `name` (test_dictionary.txt) in BioSyn's folder or archive `place`:
    id[|id]||name.

    BioSyn joins the ids of all concepts that have a name by |, so what is ranked, its concept, is
    that whole id ("D016063|D019106"), and each of its parts is an alternative id: any of them is
    right.
    """
    files = contents(place)
    if name not in files:
        raise InputError(
            f"{place}: no {name} in it; expected BioSyn's folder with processed_train and"
            " dictionaries."
        )
    rows = Rows(counts)
    for where, line in _decode(f"{place}!{name}", files[name]):
        part = line.split("||")
        if len(part) != 2:
            raise InputError(f"{where}: expected id||name, got {excerpt(line)}")
        ids = [i.strip() for i in part[0].replace("+", "|").split("|")]
        if not all(ids):
            rows.add(where, [], part[1])  # tells the line
        rows.add(where, ids if len(ids) == 1 else [part[0], *ids], part[1])
    return rows.whole(f"{place}!{name}")


def biosyn_mentions(
    place: Path, folder: str, documents: Mapping[str, str], counts: Counter[str] | None = None
) -> list[Mention]:
    """The mentions in BioSyn's `folder` (processed_test), in order of file names:
    pmid||start|end||type||mention||id.

    A | or + in the mention separates the strings of a composite one. Offsets are kept where
    `documents` has the text.
    """
    counts = Counter() if counts is None else counts
    result = []
    for name, content in contents(place).items():
        if not name.startswith(f"{folder}/") or not name.endswith(".concept"):
            continue
        for where, line in _decode(f"{place}!{name}", content):
            part = line.split("||")
            span = part[1].split("|") if len(part) == 5 else []
            if len(span) != 2 or not all(s.isdecimal() for s in span):
                raise InputError(
                    f"{where}: expected pmid||start|end||type||mention||id, got {excerpt(line)}"
                )
            parts = [p.strip() for p in part[3].replace("+", "|").split("|") if p.strip()]
            if not parts:
                raise InputError(f"{where}: an empty mention. Fix the line, or remove it.")
            gold = gold_of(part[4])
            if not gold:
                counts[NO_ID] += 1
                continue
            start, end = (whole_number(where, "offset", s) for s in span)
            is_inside = 0 <= start < end <= len(documents.get(part[0], ""))
            number = where.rpartition(":")[2]
            result.append(
                Mention(
                    f"{part[0]}:{number}",
                    part[0],
                    start if is_inside else None,
                    end if is_inside else None,
                    part[3],
                    parts,
                    gold,
                    part[2],
                )
            )
    if not result:
        raise InputError(
            f"{place}: no mentions in {folder}/*.concept. Expected BioSyn's processed folders."
        )
    return result


# other mentions


class PubTator(NamedTuple):
    """A PubTator file: its mentions, the text of every document, and where mentions are that have
    no concept."""

    mentions: list[Mention]
    documents: dict[str, str]
    without_concept: dict[str, list[tuple[int, int]]]


def pubtator_mentions(
    path: Path, types: Sequence[str] = (), counts: Counter[str] | None = None
) -> PubTator:
    """A PubTator file; only mentions of `types` where some are given, and all documents, also those
    without a mention."""
    counts = Counter() if counts is None else counts
    result: list[Mention] = []
    documents: dict[str, str] = {}
    without: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for where, name, text, marks in pubtator_annotations(path, left_out=counts):
        if documents.get(name, text) != text:
            raise InputError(
                f"{where}: document {name} occurred before with another text. Remove one."
            )
        counts[TWICE] += name in documents
        documents[name] = text
        for a in marks:
            if not a.surface.strip():
                raise InputError(f"{a.where}: an empty mention. Fix the line, or remove it.")
            if types and a.type not in types:
                counts[OTHER_TYPE] += 1
            elif not (gold := gold_of(a.entity)):
                counts[NO_ID] += 1
                without[name].append((a.start, a.end))
            else:
                line = a.where.rpartition(":")[2]
                result.append(
                    Mention(
                        f"{name}:{line}", name, a.start, a.end, a.surface, [a.surface], gold, a.type
                    )
                )
    if not result:
        raise InputError(
            f"{path}: no mentions with concepts{' of type ' + ', '.join(types) if types else ''}."
        )
    return PubTator(result, documents, dict(without))


COMETA_COLUMNS = (
    "ID",
    "Term",
    "General SNOMED Label",
    "General SNOMED ID",
    "Specific SNOMED Label",
    "Specific SNOMED ID",
    "Example",
    "Subreddit",
)


class CometaRow(NamedTuple):
    """A COMETA line: its mention, and the label of its general concept."""

    mention: Mention
    label: str


def cometa(
    path: Path, documents: dict[str, str], counts: Counter[str] | None = None
) -> list[CometaRow]:
    """COMETA's rows, linked to their general SNOMED id. Quotation marks are text (csv.QUOTE_NONE).

    The example sentence becomes the document where it contains the term, and is added to
    `documents`.
    """
    counts = Counter() if counts is None else counts
    result = []
    for number, line in lines(path):
        part = line.split("\t")
        where = f"{path}:{number}"
        if number == 1:
            if tuple(part) != COMETA_COLUMNS:
                raise InputError(
                    f"{where}: expected the columns {', '.join(COMETA_COLUMNS)}, got"
                    f" {excerpt(line)}"
                )
            continue
        if len(part) != len(COMETA_COLUMNS):
            raise InputError(
                f"{where}: expected {len(COMETA_COLUMNS)} columns, tabs between them, got"
                f" {len(part)}"
            )
        term, label, concept, example = part[1].strip(), part[2].strip(), part[3].strip(), part[6]
        if not term:
            raise InputError(f"{where}: an empty mention. Fix the line, or remove it.")
        if not concept or not label:
            raise InputError(
                f"{where}: expected a general SNOMED id and its label, got {concept!r} and"
                f" {label!r}"
            )
        start = example.find(term)
        if start < 0:
            counts["terms that their example sentence lacks: no context"] += 1
        document = f"{Path(path).name.partition('.')[0]}:{part[0]}"
        if start >= 0:
            documents[document] = example
        first, last = (start, start + len(term)) if start >= 0 else (None, None)
        result.append(
            CometaRow(
                Mention(f"{number}", document, first, last, term, [term], [[concept]], part[7]),
                label,
            )
        )
    if not result:
        raise InputError(f"{path}: no rows below its header. The file may be cut: fetch it again.")
    return result


class Phrase(NamedTuple):
    """A line of AskAPatient or TwADR-L: its mention, and the term of its concept."""

    mention: Mention
    term: str


def phrases(path: Path, counts: Counter[str] | None = None) -> list[Phrase]:
    """Rows concept, term, phrase; latin-1."""
    result = []
    for number, line in lines(path, "latin-1"):
        if not line.strip():
            continue
        part = line.split("\t")
        if len(part) != 3:
            raise InputError(
                f"{path}:{number}: expected concept, term, phrase, tabs between them, got"
                f" {excerpt(line)}"
            )
        concept, term, phrase = (p.strip() for p in part)
        if not concept or not term:
            raise InputError(
                f"{path}:{number}: expected a concept's id and its term, got {concept!r} and"
                f" {term!r}"
            )
        if not phrase:
            raise InputError(f"{path}:{number}: an empty mention. Fix the line, or remove it.")
        result.append(
            Phrase(
                Mention(f"{number}", f"{number}", None, None, phrase, [phrase], [[concept]]), term
            )
        )
    if not result:
        raise InputError(f"{path}: no phrases in it. The file may be cut: fetch it again.")
    return result


# other dictionaries


def medic(path: Path, counts: Counter[str] | None = None) -> Dictionary:
    """MEDIC as CTD or BioSyn keeps it (:mod:`kg.build.sources.medic`)."""
    rows = Rows(counts)
    for concept in medic_source.concepts(path):
        for name in concept.names:
            rows.add(concept.where, [concept.id, *concept.alternatives], name)
    return rows.whole(path)


def mesh(path: Path, counts: Counter[str] | None = None) -> Dictionary:
    """MeSH as a table: id, label, synonym|synonym."""
    rows = Rows(counts)
    for where, identifier, names in mesh_source.table_rows(path):
        for name in names:
            rows.add(where, [bare(identifier)], name)
    return rows.whole(path)


def terms_dictionary(rows: Iterable[tuple[str, str]], source: str | Path) -> Dictionary:
    """A dictionary of (id, name) pairs; the same pair again is kept once."""
    collected = Rows(None)
    for identifier, name in rows:
        collected.add(str(source), [identifier], name)
    return collected.whole(source)


def graph_dictionary(folder: str | Path, language: str | None = "en") -> Dictionary:
    """The names of one language, or of all (None), of a KnowledgeGraph folder (UMLS, MeSH, …), ids
    as :class:`kg.ids.BareIds` has them.

    A graph that knows alternative ids of its concepts (MEDIC) has them in its manifest.
    """
    graph = KnowledgeGraph.load(folder)
    rows = Rows(None)
    others = alternatives_of(graph)
    bare = BareIds(graph.ids.to_pylist()).shorten
    names = graph.preferred_first()
    columns = [names[c].to_pylist() for c in ("id", "name", "language")]
    for identifier, name, spoken in zip(*columns, strict=True):
        if language is None or spoken == language:
            rows.add(str(folder), [bare(identifier), *map(bare, others.get(identifier, ()))], name)
    broader: dict[str, list[str]] = defaultdict(list)
    heads, relations, tails = (graph.triples[c].to_pylist() for c in ("head", "relation", "tail"))
    for head, relation, tail in zip(heads, relations, tails, strict=True):
        if relation == "is_a":
            broader[bare(head)].append(bare(tail))
    rows.result.broader = dict(broader)
    types = zip(graph.entities["id"].to_pylist(), graph.entities["type"].to_pylist(), strict=True)
    rows.result.types = {bare(concept): kind for concept, kind in types if kind}
    texts = zip(
        graph.definitions["id"].to_pylist(), graph.definitions["text"].to_pylist(), strict=True
    )
    definitions = rows.result.definitions = {}
    for concept, text in texts:  # the graph's own comes before a translation
        definitions.setdefault(bare(concept), text)
    return rows.whole(folder)
