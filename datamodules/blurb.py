"""Readers of BLURB's tasks (Gu et al. 2021) from the original corpora, since BLURB's own archive is
not public.

    BC5-chem, BC5-disease, NCBI, BC2GM, JNLPBA  datamodules.formats.bio(tokens=True, merged=…)
    ChemProt                                    chemprot
    DDI                                         ddi, split_documents
    GAD                                         gad, split_last

The two entities of a pair are replaced by their types, as BLURB does: @CHEMICAL$ and @GENE$, @DRUG$
twice, @GENE$ and @DISEASE$; two that overlap become one, @CHEM-GENE$ or @DRUG-DRUG$. Other entities
stay text.
"""

from __future__ import annotations

import bisect
import lzma
import random
import re
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar
from xml.parsers import expat

from core.files import InputError, explain_error
from core.reading import excerpt, lines, whole_number
from datamodules.formats import line_id, some, table
from datamodules.tasks import Pair, Relation, Tagged

NEGATIVE = "false"
CROSS = "gold relations between two sentences, which no example holds (BLURB leaves them out too)"
SEVERAL = "pairs with several relations, any of which is right"
MERGED = "entities that a sentence end would have cut: the two sentences were joined"
OVERLAPPING = "pairs whose entities overlap, replaced as one"
SPLIT = "pairs with a discontinuous entity, whose marker takes the place of its first part"
MISPLACED = "entities that are not the text between their offsets, taken by their offsets"
UNTYPED = "interactions without a type, taken as int"
MARKER = "sentences in which a marker does not stand exactly once"

CHEMPROT_MARKERS = ("@CHEMICAL$", "@GENE$", "@CHEM-GENE$")
DDI_MARKERS = ("@DRUG$", "@DRUG-DRUG$")
GAD_MARKERS = ("@GENE$", "@DISEASE$")
CHEMPROT_CLASSES = ("CPR:3", "CPR:4", "CPR:5", "CPR:6", "CPR:9")
DDI_CLASSES = ("advise", "effect", "int", "mechanism")
T = TypeVar("T", Tagged, Pair, Relation)


# sentences

#: A full stop after one of these, or after a single capital letter, does not end a sentence.
ABBREVIATIONS = (
    "al",
    "vs",
    "e.g",
    "i.e",
    "i.v",
    "i.p",
    "s.c",
    "i.c.v",
    "p.o",
    "approx",
    "ca",
    "Fig",
    "sp",
    "spp",
    "cv",
    "No",
    "no",
    "St",
    "Dr",
    "resp",
    "cf",
)
_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][)\]\"]))"
    + "".join(rf"(?<!\b{re.escape(word)}\.)" for word in ABBREVIATIONS)
    + r"(?<![\s(][A-Z]\.)\s+"
)


def sentence_starts(text: str) -> list[int]:
    """Where sentences begin: after . ! or ?, also one closing bracket or quotation mark, and white
    space.

    Not after ABBREVIATIONS. Of the splitters tried (spaCy's sentencizer, pysbd, patterns that ask
    for a capital letter next) this one comes nearest to the number of ChemProt pairs that BLURB
    prints.
    """
    return [0, *(match.end() for match in _END.finditer(text))]


# ChemProt


class _Entity(NamedTuple):
    type: str
    start: int
    end: int


def chemprot(
    abstracts: Path,
    entities: Path,
    gold: Path,
    *,
    counts: Counter[str] | None = None,
    mentions: dict[tuple[str, str], str] | None = None,
    encoding: str = "utf-8",
) -> list[Relation]:
    """ChemProt's three tables: an example for each chemical and gene of one sentence.

    abstracts: id, title, abstract. entities: id, T<n>, CHEMICAL | GENE-Y | GENE-N, start, end,
    text; offsets in "title<one character>abstract". gold: id, CPR:<n>, Arg1:T<n> (the chemical),
    Arg2:T<n> (the gene). The title is a sentence of its own; a sentence end inside an entity is
    none. A pair without a gold relation is "false". Gold relations across sentences are counted in
    `counts`. `mentions` gets {(document, entity): its text} of the entities that are in an example.
    """
    counts = Counter() if counts is None else counts
    texts = _chemprot_texts(abstracts, encoding)
    inside = _chemprot_entities(entities, texts, abstracts.name, encoding)
    relations = _chemprot_gold(gold, inside, entities.name, encoding)
    result: list[Relation] = []
    for name, (title, abstract) in texts.items():
        pairs = list(_chemprot_pairs(name, title, abstract, inside[name], relations[name], counts))
        if mentions is not None:
            keys: set[str] = set()
            for pair in pairs:
                keys.update(pair.id.removeprefix(f"{name}.").split("."))
            text = f"{title} {abstract}"
            for key in sorted(keys):
                entity = inside[name][key]
                mentions[name, key] = text[entity.start : entity.end]
        result += pairs
    return some(result, abstracts)


def _chemprot_texts(abstracts: Path, encoding: str) -> dict[str, tuple[str, str]]:
    """{document: its title and abstract}. Raises InputError for an id that occurs twice."""
    texts: dict[str, tuple[str, str]] = {}
    for where, (name, title, abstract) in table(abstracts, 3, "id, title, abstract", encoding):
        if name in texts or not name:
            raise InputError(
                f"{where}: expected an id that occurs once, got {name!r}. Remove one of the two"
                " lines."
            )
        texts[name] = title, abstract
    some(list(texts), abstracts)
    return texts


def _chemprot_entities(
    entities: Path, texts: dict[str, tuple[str, str]], source: str, encoding: str
) -> dict[str, dict[str, _Entity]]:
    """{document: {T<n>: entity}}. Raises InputError for one that is not its text. source: the file
    of the texts."""
    inside: dict[str, dict[str, _Entity]] = defaultdict(dict)
    for where, (name, key, kind, start, end, surface) in table(
        entities, 6, "id, T<n>, type, start, end, text", encoding
    ):
        if name not in texts:
            raise InputError(
                f"{where}: document {name!r} is not in {source}. Take files of one release."
            )
        text = " ".join(texts[name])
        if kind not in ("CHEMICAL", "GENE", "GENE-Y", "GENE-N"):
            raise InputError(f"{where}: expected CHEMICAL, GENE-Y or GENE-N, got {kind!r}.")
        first, last = whole_number(where, "start", start), whole_number(where, "end", end)
        if text[first:last] != surface or not surface:
            raise InputError(
                f"{where}: [{start}, {end}) of document {name} is not {excerpt(surface)}. Offsets"
                " count characters of title, one blank, abstract."
            )
        inside[name][key] = _Entity("CHEMICAL" if kind == "CHEMICAL" else "GENE", first, last)
    return inside


def _chemprot_gold(
    gold: Path, inside: dict[str, dict[str, _Entity]], source: str, encoding: str
) -> dict[str, dict[tuple[str, str], list[str]]]:
    """{document: {(chemical, gene): its classes}}. Raises InputError for other classes and
    entities. source: the file of the entities."""
    relations: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for where, (name, label, first, two) in table(
        gold, 4, "id, CPR:<n>, Arg1:T<n>, Arg2:T<n>", encoding
    ):
        chemical, gene = first.removeprefix("Arg1:"), two.removeprefix("Arg2:")
        kinds = [inside.get(name, {}).get(key, _Entity("", 0, 0)).type for key in (chemical, gene)]
        if label not in CHEMPROT_CLASSES or kinds != ["CHEMICAL", "GENE"]:
            raise InputError(
                f"{where}: expected one of {', '.join(CHEMPROT_CLASSES)} from a chemical (Arg1) to"
                f" a gene (Arg2) of {source}, got {label!r}, {first!r}, {two!r}."
            )
        if label not in relations[name][chemical, gene]:
            relations[name][chemical, gene].append(label)
    return relations


def _chemprot_pairs(
    name: str,
    title: str,
    abstract: str,
    entities: dict[str, _Entity],
    gold: dict[tuple[str, str], list[str]],
    counts: Counter[str],
) -> Iterator[Relation]:
    text, shift = f"{title} {abstract}", len(title) + 1
    starts = sorted({*sentence_starts(title), *(shift + s for s in sentence_starts(abstract))})
    uncut = []
    for start in starts:
        if not any(entity.start < start < entity.end for entity in entities.values()):
            uncut.append(start)
    counts[MERGED] += len(starts) - len(uncut)
    starts = uncut
    ends = [*starts[1:], len(text)]
    sentence = {key: bisect.bisect_right(starts, e.start) - 1 for key, e in entities.items()}
    missing = set(gold)
    for first, chemical in entities.items():
        for two, gene in entities.items():
            if (chemical.type, gene.type) != ("CHEMICAL", "GENE"):
                continue
            if sentence[first] != sentence[two]:
                continue
            start, end = starts[sentence[first]], ends[sentence[first]]
            spans = (
                [(chemical.start - start, chemical.end - start)],
                [(gene.start - start, gene.end - start)],
            )
            replaced, overlap = replace(text[start:end], *spans, *CHEMPROT_MARKERS)
            labels = gold.get((first, two), [NEGATIVE])
            counts[OVERLAPPING] += overlap
            counts[SEVERAL] += len(labels) > 1
            missing.discard((first, two))
            yield Relation(f"{name}.{first}.{two}", name, replaced.strip(), labels[0], labels)
    counts[CROSS] += sum(len(gold[pair]) for pair in missing)


def replace(
    text: str,
    ones: Sequence[tuple[int, int]],
    two: Sequence[tuple[int, int]],
    first: str,
    second: str,
    both: str,
) -> tuple[str, bool]:
    """(`text` with the entities `ones` and `two` replaced by `first` and `second`,
    whether they overlap).

    An entity is one or more spans; its marker replaces the first, the others go. Entities that
    share a character become `both`, in place of everything from their first to their last
    character.
    """
    if any(a[0] < b[1] and b[0] < a[1] for a in ones for b in two):
        start, end = (
            min(s for s, _ in (*ones, *two)),
            max(e for _, e in (*ones, *two)),
        )
        return text[:start] + both + text[end:], True
    marks = []
    for spans, marker in ((ones, first), (two, second)):
        (start, end), *others = sorted(spans)
        marks.append((start, end, marker))
        marks += [(start, end, "") for start, end in others]
    for start, end, marker in sorted(marks, reverse=True):
        text = text[:start] + marker + text[end:]
    return text, False


# DDI

MOST = 512 << 20  # bytes that an archive may hold unpacked


def _members(path: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    """(name for messages, content) of the XML files in `folder` of a zip archive or of the folder
    `path`."""
    if path.is_dir():
        for file in sorted((path / folder).rglob("*.xml")):
            try:
                yield str(file), file.read_bytes()
            except OSError as error:
                raise explain_error(error, file) from error
        return
    try:
        with zipfile.ZipFile(path) as archive:
            inside = sorted(
                (
                    i
                    for i in archive.infolist()
                    if i.filename.startswith(folder + "/") and i.filename.endswith(".xml")
                ),
                key=lambda i: i.filename,
            )
            if sum(i.file_size for i in inside) > MOST:
                raise InputError(
                    f"{path}: more than {MOST >> 20} MB unpacked. Fetch the original archive."
                )
            # as much memory would be asked for at once
            if any(i.compress_size > path.stat().st_size for i in inside):
                raise zipfile.BadZipFile("a file in it is larger than the archive")
            for info in inside:
                yield f"{path}!{info.filename}", archive.read(info)
    except OSError as error:
        raise explain_error(error, path) from error
    except (
        zipfile.BadZipFile,
        RuntimeError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        ValueError,
        OverflowError,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a whole zip archive ({error}). Fetch it again.") from error


class _Element(NamedTuple):
    where: str
    name: str
    values: dict[str, str]


def _elements(name: str, content: bytes) -> list[_Element]:
    """The elements of an XML file in order; entity declarations are refused."""
    result: list[_Element] = []
    parser = expat.ParserCreate()

    def start(tag: str, values: dict[str, str]) -> None:
        result.append(_Element(f"{name}:{parser.CurrentLineNumber}", tag, values))

    def refuse_declaration(entity: str, *_: object) -> None:
        raise InputError(
            f"{name}:{parser.CurrentLineNumber}: the file declares the XML entity {entity!r}."
            " Remove it."
        )

    parser.StartElementHandler = start
    parser.EntityDeclHandler = refuse_declaration
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise InputError(
            f"{name}:{error.lineno}: broken XML ({expat.ErrorString(error.code)}). "
            "The file may be cut; fetch it again."
        ) from error
    except InputError:
        raise
    except (LookupError, ValueError) as error:  # of the encoding that the file names
        raise InputError(
            f"{name}: the XML's encoding cannot be read ({error}). Convert the file to UTF-8."
        ) from error
    return result


def ddi(
    path: Path,
    folder: str,
    *,
    counts: Counter[str] | None = None,
    mentions: dict[tuple[str, str], str] | None = None,
) -> list[Relation]:
    """The DDI corpus 2013: an example for each <pair> of the XML files in `folder` of the zip
    archive (or folder) `path`.

    charOffset counts characters from 0, its end included; "23-31;40-49" is a discontinuous entity.
    `document` is the <document>'s id. Classes: the pair's type, "false" for ddi="false". What is
    odd in the corpus is counted in `counts`: four entities that are not their text, one true pair
    without a type (taken as int, the type for an interaction of which nothing more is said).
    `mentions` gets {(document, entity): its text, the parts joined by a blank} of the entities that
    are in an example.
    """
    counts = Counter() if counts is None else counts
    result: list[Relation] = []
    for name, content in _members(path, folder):
        document, text = "", ""
        entities: dict[str, list[tuple[int, int]]] = {}
        for where, tag, values in _elements(name, content):
            wanted = {
                "document": ("id",),
                "sentence": ("id", "text"),
                "entity": ("id", "charOffset", "text"),
                "pair": ("id", "e1", "e2", "ddi"),
            }.get(tag, ())
            if missing := [key for key in wanted if key not in values]:
                raise InputError(
                    f"{where}: expected <{tag} {'=… '.join(wanted)}=…>, got none of"
                    f" {', '.join(missing)}."
                )
            if tag == "document":
                document = values["id"]
            elif tag == "sentence":
                text, entities = values["text"], {}
            elif tag == "entity":
                spans = _ddi_spans(where, values["charOffset"], text)
                counts[MISPLACED] += "".join(
                    "".join(text[s:e] for s, e in spans).split()
                ) != "".join(values["text"].split())
                entities[values["id"]] = spans
            elif tag == "pair":
                result.append(_ddi_pair(where, document, text, entities, values, counts))
                if mentions is not None:
                    for key in (values["e1"], values["e2"]):
                        mentions[document, key] = " ".join(text[s:e] for s, e in entities[key])
    return some(result, path / folder)


def _ddi_spans(where: str, offsets: str, text: str) -> list[tuple[int, int]]:
    """The places [start, end) of an entity. Raises InputError for others than 23-31;40-49, and
    outside its sentence."""
    if not re.fullmatch(r"\d+-\d+(;\d+-\d+)*", offsets):
        raise InputError(f"{where}: expected charOffset like 23-31;40-49, got {offsets!r}.")
    spans = []
    for part in offsets.split(";"):
        first, last = (whole_number(where, "charOffset", digits) for digits in part.split("-"))
        spans.append((first, last + 1))
    if any(not start < end <= len(text) for start, end in spans):
        raise InputError(
            f"{where}: charOffset {offsets} is outside its sentence of {len(text)} characters."
        )
    return spans


def _ddi_pair(
    where: str,
    document: str,
    text: str,
    entities: dict[str, list[tuple[int, int]]],
    values: dict[str, str],
    counts: Counter[str],
) -> Relation:
    if unknown := [values[key] for key in ("e1", "e2") if values[key] not in entities]:
        raise InputError(f"{where}: pair of {unknown[0]!r}, which is no entity of its sentence.")
    label = values.get("type", "int") if values["ddi"] == "true" else NEGATIVE
    if values["ddi"] not in ("true", "false") or label not in (*DDI_CLASSES, NEGATIVE):
        raise InputError(
            f"{where}: expected ddi=false, or ddi=true with a type of {', '.join(DDI_CLASSES)}; got"
            f" ddi={values['ddi']!r}, type={values.get('type')!r}."
        )
    counts[UNTYPED] += values["ddi"] == "true" and "type" not in values
    first, two = entities[values["e1"]], entities[values["e2"]]
    replaced, overlap = replace(text, first, two, DDI_MARKERS[0], DDI_MARKERS[0], DDI_MARKERS[1])
    counts[OVERLAPPING] += overlap
    counts[SPLIT] += not overlap and (len(first) > 1 or len(two) > 1)
    return Relation(values["id"], document, replaced, label, [label])


def split_documents(examples: Sequence[T], size: int, seed: int = 0) -> tuple[list[T], list[T]]:
    """(the rest, about `size` examples of whole documents): documents in a seeded order, taken
    while they fit.

    The order of the examples is kept. Which documents BLURB used is not printed.
    """
    sizes = Counter(e.document for e in examples)
    names = sorted(sizes)
    random.Random(seed).shuffle(names)
    taken, room = set(), size
    for name in names:
        if sizes[name] <= room:
            taken.add(name)
            room -= sizes[name]
    return [e for e in examples if e.document not in taken], [
        e for e in examples if e.document in taken
    ]


# GAD


def gad(
    path: Path, *, counts: Counter[str] | None = None, encoding: str = "utf-8"
) -> list[Relation]:
    """GAD in BioBERT's form: sentence, label 0 or 1; or, under a line index, sentence, label, with
    an index before.

    A sentence is its own document.
    """
    counts = Counter() if counts is None else counts
    first = next(lines(path, encoding), (0, ""))[1]
    indexed = first.split("\t") == ["index", "sentence", "label"]
    result = []
    what = "index, sentence, label" if indexed else "sentence, label 0 or 1"
    for where, values in table(path, 2 + indexed, what, encoding):
        number = where.rpartition(":")[2]
        if indexed and number == "1":
            continue
        text, label = values[-2:]
        if label not in ("0", "1") or not text.strip():
            raise InputError(
                f"{where}: expected {what}, got {excerpt(values)}. Fix the line or fetch the file"
                " again."
            )
        counts[MARKER] += any(text.count(marker) != 1 for marker in GAD_MARKERS)
        name = line_id(path, where)
        result.append(Relation(name, name, text, label, [label]))
    return some(result, path)


def split_last(examples: Sequence[T], size: int) -> tuple[list[T], list[T]]:
    """(the rest, the last `size` examples), in order."""
    return list(examples[:-size]), list(examples[-size:])
