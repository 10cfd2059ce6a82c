"""Entity linking on disk, whatever format it came in.

A folder holds ``dictionary.parquet``, ``train.jsonl``, ``dev.jsonl``, ``test.jsonl``,
``documents.jsonl``, ``annotated.jsonl`` and a manifest.

    dictionary   id, name, alternatives [id, …], broader [id, …], type, definition     one row per name; all but the
                 name are the concept's
    mentions     id, document, start, end, mention, parts, gold, kind
    documents    id, text
    annotated    split, document, without_concept [[start, end], …]     every document of a split,
                                                                        also one without a mention;
                 where its mentions without a concept are

`parts` are the strings to link: the mention itself, or what its source made of a composite one
("retinal tumours|pineal tumours"). `gold` holds a list of ids for each concept that the mention
means, any of which is right. `start` and `end` are offsets in the document's text, null where the
source has no text.

    formats     the readers of the real formats
    layperson   HPO-EL: patient words -> HPO term;  kepl data held-out FILE  its
                dev and test queries
"""  # noqa: E501

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from core.arrays import read_table
from core.artifact import Artifact
from core.files import InputError, atomic_write
from core.json_files import json_lines
from datamodules.contexts import mark_mention
from kg.linking.homonyms import Description

SPLITS = ("train", "dev", "test")
LINKING = Artifact("linking task", "kepl data --help", keys=("name", "dictionary", "splits"))
_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("alternatives", pa.list_(pa.string())),
        ("broader", pa.list_(pa.string())),
        ("type", pa.string()),
        ("definition", pa.string()),
    ]
)


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
    """Names to link to: parallel lists of ids and names, a concept's preferred name before its
    others; a concept's other ids, its parents, its type and its definition, where they are known;
    the kind of each name (kg.graph.KINDS) and the number of a concept's triples, where the names
    are a graph's."""

    ids: list[str]
    names: list[str]
    alternatives: dict[str, list[str]] = field(default_factory=dict)
    broader: dict[str, list[str]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    kinds: list[str] | None = None
    triples: dict[str, int] = field(default_factory=dict)

    @cached_property
    def concepts_by_id(self) -> dict[str, frozenset[str]]:
        """{id, alternative or not: the concepts (by first id) that it stands for}."""
        by_id: dict[str, set[str]] = defaultdict(set)
        for concept in dict.fromkeys(self.ids):
            for identifier in (concept, *self.alternatives.get(concept, ())):
                by_id[identifier].add(concept)
        return {identifier: frozenset(concepts) for identifier, concepts in by_id.items()}

    @cached_property
    def names_of(self) -> dict[str, list[str]]:
        """{concept: its names, the preferred one first}."""
        names: dict[str, list[str]] = defaultdict(list)
        for concept, name in zip(self.ids, self.names, strict=True):
            names[concept].append(name)
        return dict(names)

    def describe(self, concepts: Collection[str]) -> dict[str, Description]:
        """What distinguishes concepts that share a name (kg.linking.homonyms); a parent is
        described by its preferred name."""
        names = self.names_of
        descriptions = {}
        for concept in concepts:
            parents = [parent for parent in self.broader.get(concept, ()) if parent in names]
            descriptions[concept] = Description(
                self.types.get(concept, ""),
                " ".join(sorted(names[parent][0] for parent in parents)),
                self.definitions.get(concept, ""),
                tuple(dict.fromkeys(names.get(concept, ()))),
            )
        return descriptions

    @cached_property
    def digest(self) -> str:
        """A name of the content, whatever the order of its rows."""
        total = hashlib.sha256()
        for concept, name in sorted(set(zip(self.ids, self.names, strict=True))):
            total.update(
                "\0".join((concept, name, *sorted(self.alternatives.get(concept, ())))).encode()
                + b"\n"
            )
        return total.hexdigest()

    def concepts_of(self, gold: Iterable[str]) -> frozenset[str]:
        """The concepts that any of these ids stands for; empty when none is in the dictionary."""
        return frozenset().union(
            *(self.concepts_by_id.get(identifier, frozenset()) for identifier in gold)
        )

    def with_names(self, pairs: Iterable[tuple[str, str]]) -> Dictionary:
        """This dictionary and more (id, name) rows; an alternative id means its concept, an unknown
        id is left out."""
        ids, names = list(self.ids), list(self.names)
        for concept_id, name in pairs:
            for concept in sorted(self.concepts_by_id.get(concept_id, ())):
                ids.append(concept)
                names.append(name)
        kinds = self.kinds
        if kinds is not None:
            kinds = kinds + ["synonym"] * (len(ids) - len(self.ids))
        return replace(self, ids=ids, names=names, kinds=kinds)


def split_by_hash(key: str, shares: Sequence[tuple[str, int]]) -> str:
    """The split of a term or text by sha256(key) mod 100. shares: (split, percent, cumulated)."""
    place = int(hashlib.sha256(key.encode()).hexdigest(), 16) % 100
    return next(split for split, below in shares if place < below)


#: {document: the places of its mentions without a concept}
Spans = dict[str, list[tuple[int, int]]]


class Linking(NamedTuple):
    """A linking task as a folder contains it. `annotated` names every document of a split, in
    order."""

    folder: Path
    manifest: dict[str, Any]
    dictionary: Dictionary
    splits: dict[str, list[Mention]]
    documents: dict[str, str]
    annotated: dict[str, Spans]


def context_of(mention: Mention, documents: Mapping[str, str]) -> str | None:
    """The mention's text with the words START and END around it; None where there is none."""
    text = documents.get(mention.document)
    if text is None or mention.start is None or mention.end is None:
        return None
    return mark_mention(text, mention.start, mention.end)


# on disk


def _check_mention(name: str, split: str, mention: Mention, documents: Mapping[str, str]) -> None:
    where = f"{name}, {split}, mention {mention.id!r}"
    if not mention.parts or not all(p.strip() for p in mention.parts):
        raise InputError(f"{where}: an empty mention. Fix the line in the source, or remove it.")
    if not mention.gold or not all(mention.gold):
        raise InputError(
            f"{where}: no gold concept. Leave mentions without one out, and count them."
        )
    text = documents.get(mention.document)
    if mention.start is not None and (
        text is None or mention.end is None or not 0 <= mention.start < mention.end <= len(text)
    ):
        raise InputError(
            f"{where}: [{mention.start}, {mention.end}) is not a place in document"
            f" {mention.document!r}."
        )


def warnings(dictionary: Dictionary, splits: Mapping[str, Sequence[Mention]]) -> dict[str, int]:
    """{what is odd: how often}; none of it is dropped."""
    owners: dict[str, set[str]] = defaultdict(set)
    concepts: dict[str, set[str]] = defaultdict(set)
    for concept, name in zip(dictionary.ids, dictionary.names, strict=True):
        owners[name].add(concept)
        concepts[concept].add(name)
    counts = {
        "dictionary: names that several concepts have": sum(len(c) > 1 for c in owners.values()),
        "dictionary: concepts with one name": sum(len(n) == 1 for n in concepts.values()),
        "dictionary: ids that stand for several concepts": sum(
            len(c) > 1 for c in dictionary.concepts_by_id.values()
        ),
    }
    for split, mentions in splits.items():
        counts[f"{split}: mentions none of whose ids is in the dictionary"] = sum(
            not any(map(dictionary.concepts_of, m.gold)) for m in mentions
        )
        counts[f"{split}: composite mentions, of several strings"] = sum(
            len(m.parts) > 1 for m in mentions
        )
        counts[f"{split}: mentions of one string and several concepts"] = sum(
            len(m.gold) > 1 and len(m.parts) == 1 for m in mentions
        )
    return {k: v for k, v in counts.items() if v}


def save_linking(
    folder: str | Path,
    dictionary: Dictionary,
    splits: Mapping[str, Sequence[Mention]],
    documents: Mapping[str, str] | None = None,
    annotated: Mapping[str, Spans] | None = None,
    **manifest: Any,
) -> dict[str, Any]:
    """Write a task and return its manifest: `manifest` (at least name) with counts, warnings and
    sums added.

    annotated: {split: its documents, with the places of their mentions without a concept}; those of
    a split that it lacks are the documents of its mentions.

    Raises InputError for an empty dictionary, neither dev nor test, an empty mention, one without
    gold ids, two of one id, and offsets outside their document.
    """
    documents = documents or {}
    check_task(manifest["name"], dictionary, splits, documents)
    annotated = dict(annotated or {})
    for split, mentions in splits.items():
        annotated[split] = annotated.get(split) or {m.document: [] for m in mentions}
    saved = [split for split in SPLITS if split in splits]
    counts = {}
    for split in saved:
        read_documents = {mention.document for mention in splits[split]}
        counts[split] = {"mentions": len(splits[split]), "documents": len(read_documents)}
    manifest |= {
        "dictionary": {
            "names": len(dictionary.names),
            "strings": len(set(dictionary.names)),
            "concepts": len(set(dictionary.ids)),
            "ids": len(dictionary.concepts_by_id),
            "digest": dictionary.digest,
        },
        "splits": counts,
        "warnings": warnings(dictionary, splits),
    }
    with LINKING.create(folder, manifest) as partial:
        pq.write_table(table_of(dictionary), partial / "dictionary.parquet", compression="zstd")
        records: dict[str, list[dict[str, Any]]] = {}
        places: list[dict[str, Any]] = []
        for split in saved:
            records[split] = [mention._asdict() for mention in splits[split]]
            places += [
                {"split": split, "document": document, "without_concept": spans}
                for document, spans in annotated[split].items()
            ]
        records["annotated"] = places
        records["documents"] = [{"id": i, "text": t} for i, t in documents.items()]
        for part, values in records.items():
            with atomic_write(partial / f"{part}.jsonl") as handle:
                handle.writelines(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    return manifest


def check_task(
    name: str,
    dictionary: Dictionary,
    splits: Mapping[str, Sequence[Mention]],
    documents: Mapping[str, str],
) -> None:
    """Raise InputError for what cannot be a task, as :func:`save_linking` says."""
    if not dictionary.ids:
        raise InputError(f"{name}: no names in its dictionary. Check the files it came from.")
    if not any(splits.get(s) for s in ("dev", "test")):
        raise InputError(
            f"{name}: neither a dev nor a test split with mentions, so there is nothing to score."
        )
    for split, mentions in splits.items():
        for mention in mentions:
            _check_mention(name, split, mention, documents)
        ids = Counter(mention.id for mention in mentions)
        if twice := [i for i, count in ids.items() if count > 1]:
            raise InputError(
                f"{name}: id {twice[0]!r} occurs twice in {split}. Give every mention its own."
            )


def table_of(dictionary: Dictionary) -> pa.Table:
    """A row for each name of a dictionary."""
    rows = {
        "id": dictionary.ids,
        "name": dictionary.names,
        "alternatives": [dictionary.alternatives.get(i, []) for i in dictionary.ids],
        "broader": [dictionary.broader.get(i, []) for i in dictionary.ids],
        "type": [dictionary.types.get(i, "") for i in dictionary.ids],
        "definition": [dictionary.definitions.get(i, "") for i in dictionary.ids],
    }
    return pa.table(rows, schema=_SCHEMA)


def load_linking(folder: str | Path) -> Linking:
    """The task in `folder`. Raises InputError when it is missing, broken, or not what its manifest
    describes."""
    folder = Path(folder)
    manifest = LINKING.read(folder)
    if not isinstance(manifest["splits"], dict | list):
        raise InputError(f"{folder}: expected an object under splits. Build the task again.")
    table = read_table(
        folder / "dictionary.parquet", _SCHEMA.names, again="Build the task again."
    ).to_pydict()

    def read_column(column: str) -> dict[str, Any]:
        values = zip(table["id"], table[column], strict=True)
        return {concept: value for concept, value in values if value}

    splits: dict[str, list[Mention]] = {}
    for split in manifest["splits"]:
        splits[split] = []
        for where, record in json_lines(folder / f"{split}.jsonl", advice="Build the task again."):
            try:
                splits[split].append(Mention(**record))
            except TypeError as error:
                raise InputError(
                    f"{where}: expected the fields {', '.join(Mention._fields)} ({error})"
                ) from error
    annotated: dict[str, Spans] = {split: {} for split in splits}
    for where, record in json_lines(folder / "annotated.jsonl", advice="Build the task again."):
        try:
            spans = [(int(start), int(end)) for start, end in record["without_concept"]]
            annotated[record["split"]][record["document"]] = spans
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{where}: expected split, document and without_concept. Build the task again."
            ) from error
    documents: dict[str, str] = {}
    for where, record in json_lines(folder / "documents.jsonl", advice="Build the task again."):
        if not isinstance(record.get("id"), str) or not isinstance(record.get("text"), str):
            raise InputError(f"{where}: expected strings under id and text. Build the task again.")
        documents[record["id"]] = record["text"]
    dictionary = Dictionary(
        table["id"],
        table["name"],
        read_column("alternatives"),
        read_column("broader"),
        read_column("type"),
        read_column("definition"),
    )
    return Linking(folder, manifest, dictionary, splits, documents, annotated)
