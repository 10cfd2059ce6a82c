"""Queries that ask a masked language model for what a graph says, as KeBioLM's authors probe with
UMLS (Section 4.6.1).

    kepl data queries --graph GRAPH --out FOLDER [--most 200 --seed 0]
    kepl data medlama PATH --out FOLDER        MedLAMA's files: a folder or the archive of them

Of a triple (s, r, o), "s r [MASK]." asks for the tail and "[MASK] r o." for the head; s and o are
preferred names. A relation is its name without underscores; one that ends in the word of, as or by
has "is" before it, isa and is_a are "is a". Queries of one text are one query, and its answers are
the set of all entities that they ask for, each with all of its names. At most 200 queries of a
relation are drawn, both directions together. Templates ([X] may treat [Y] .) can replace the
relations' names: a CSV table with the columns pid (the relation) and --prompts, as in MedLAMA's
prompts.csv.

A query is of Type 1 when a name of an answer is in it, of Type 2 otherwise. Letters' case does not
count, and a name that begins or ends with a letter or digit of ASCII does so as a word: `ant` is
not in `antigen`.

MedLAMA's files ask for tails only and name each answer once. `--hard` selects the queries whose
answers its authors found to look unlike their heads.

On disk: queries.parquet, one row a query (:class:`Query`), and its manifest (settings, counts,
    digests).
"""

from __future__ import annotations

import csv
import io
import re
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from core.arrays import read_table
from core.artifact import Artifact
from core.files import InputError, explain_error
from core.json_files import digest
from datamodules.relation_templates import (
    MASK,
    TEXT,
    Row,
    answered_within,
    fill_template,
    find_template,
    read_templates,
)
from kg.graph import KnowledgeGraph, fingerprint

FORMAT = 1
FILE = "queries.parquet"
QUERIES = Artifact("queries", "kepl data queries --help", FORMAT, ("settings",), FILE)
JOINED = " || "  #: between the answers in a field of MedLAMA's tables
MEDLAMA = ("head_cui", "head_name", "rel", "tail_names", "tail_cuis")
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("relation", pa.string()),
        ("asked", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("names", pa.list_(pa.list_(pa.string()))),
        ("within", pa.bool_()),
    ]
)


class Query(NamedTuple):
    """One query: `text` holds one [MASK]."""

    text: str
    relation: str
    asked: str  # "tail" or "head", what [MASK] replaces
    answers: list[str]  # entity ids, any of which is right
    names: list[list[str]]  # all names of each
    within: bool  # Type 1: a name of an answer is in the text


def draw_places(size: int, most: int | None, seed: int, relation: str) -> np.ndarray:
    """Sorted places of the queries of one relation that are taken; other relations do not change
    them."""
    if most is None or size <= most:
        return np.arange(size)
    rng = np.random.default_rng([seed, *relation.encode()])
    return np.sort(rng.choice(size, most, replace=False))


def _wordings(
    relations: Sequence[str], prompts: Mapping[str, str] | None
) -> tuple[dict[str, str], np.ndarray]:
    """({template: the first relation that has it}, the number of each relation's template)."""
    templates = [find_template(relation, prompts, "the graph") for relation in relations]
    wording: dict[str, str] = {}
    for template, relation in zip(templates, relations, strict=True):
        wording.setdefault(template, relation)
    place = {text: i for i, text in enumerate(wording)}
    return wording, np.array([place[template] for template in templates])


def queries(
    graph: KnowledgeGraph,
    most: int | None = 200,
    seed: int = 0,
    prompts: Mapping[str, str] | None = None,
) -> tuple[list[Query], Counter[str]]:
    """(the queries of a graph, what was left out and why).

    most: queries at most of a relation, drawn by `seed`; None: all. prompts: {relation: template}
        in place of the names.
    Raises InputError when there is no triple, or a relation has no template.
    """
    if not len(graph.triples):
        raise InputError("this graph has no triples, so there is nothing to ask for")
    names_of_entities = [" ".join(name.split()) for name in graph.entities["name"].to_pylist()]
    labels, name_of = np.unique(np.array(names_of_entities, dtype=object), return_inverse=True)
    wording, text_of = _wordings(graph.relations, prompts)
    texts = list(wording)
    head, relation_index, tail = graph.triple_indices().T
    # A query is (template, what is asked for, the name in it); entities of one name ask as one.
    keys, asked_for = [], []
    for way, (named, answer) in enumerate(((head, tail), (tail, head))):
        keys.append((text_of[relation_index] * 2 + way) * len(labels) + name_of[named])
        asked_for.append(answer)
    key, answer = np.concatenate(keys), np.concatenate(asked_for)
    nameless = np.isin(key % len(labels), np.flatnonzero(labels == ""))
    left_out: Counter[str] = Counter()
    if nameless.any():
        left_out["queries about an entity without a name"] = len(np.unique(key[nameless]))
        key, answer = key[~nameless], answer[~nameless]
    distinct = np.unique(key)
    relation_of_key = distinct // (2 * len(labels))
    chosen = []
    for i, text in enumerate(texts):
        keys_of_relation = distinct[relation_of_key == i]
        taken = keys_of_relation[draw_places(len(keys_of_relation), most, seed, wording[text])]
        left_out[f"queries beyond {most} of a relation"] += len(keys_of_relation) - len(taken)
        chosen.append(taken)
    taken = np.concatenate(chosen)
    rows = np.isin(key, taken)
    answers: dict[int, list[int]] = defaultdict(list)
    for k, a in np.unique(np.stack([key[rows], answer[rows]], axis=1), axis=0).tolist():
        answers[k].append(a)
    names = names_of(graph, np.unique(answer[rows]))
    ids = graph.ids.to_pylist()
    by_text: dict[str, Query] = {}
    for k in taken.tolist():
        template, way = texts[k // (2 * len(labels))], k // len(labels) % 2
        name = str(labels[k % len(labels)])
        text = fill_template(template, *((name, MASK) if way == 0 else (MASK, name)))
        several = [ids[a] for a in answers[k]]
        if text in by_text:  # two relations and names whose words run into each other
            several += [a for a in by_text[text].answers if a not in several]
        side = ("tail", "head")[way]
        answer_names = [names[a] for a in several]
        by_text[text] = Query(text, wording[template], side, several, answer_names, False)
    return [
        q._replace(within=answered_within(q.text, q.names)) for q in by_text.values()
    ], +left_out


def names_of(graph: KnowledgeGraph, entities: np.ndarray) -> dict[str, list[str]]:
    """{id: its names, the preferred one first, each once} of entities by index."""
    ids = graph.ids.take(pa.array(entities))
    preferred = graph.entities.take(pa.array(entities))
    others = graph.names.filter(pc.is_in(graph.names["id"], value_set=ids))
    names: dict[str, dict[str, None]] = {entity: {} for entity in ids.to_pylist()}
    for table in (preferred, others):
        for entity, name in zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True):
            if name:
                names[entity][name] = None
    return {entity: list(several) for entity, several in names.items()}


def _rows(name: str, stream: Iterable[bytes]) -> Iterator[Row]:
    """The rows of a CSV table with a header, each with path:line of where it ends."""
    number = 0

    def text() -> Iterator[str]:
        nonlocal number
        for number, raw in enumerate(stream, 1):
            try:
                yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{name}:{number}: not UTF-8 text ({error.reason}). Convert the file."
                ) from error

    reader = csv.reader(text(), strict=True)
    try:
        header = next(reader, [])
        for values in reader:
            if len(values) != len(header):
                raise InputError(
                    f"{name}:{number}: expected {len(header)} columns ({', '.join(header)[:60]}),"
                    f" got {len(values)}. Fix the line or fetch the file again."
                )
            yield name, f"{name}:{number}", dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise InputError(
            f"{name}:{number}: not a CSV table ({error}). Fix the line or fetch the file again."
        ) from error


def csv_files(path: Path) -> dict[str, Callable[[], Iterator[Row]]]:
    """{name: its rows} of every .csv below a folder or in a .tar.gz, in order of name. Raises
    InputError for anything else."""
    if path.is_dir():
        files = sorted(path.rglob("*.csv"))

        def rows_in(file: Path) -> Iterator[Row]:
            with open(file, "rb") as handle:
                yield from _rows(str(file), handle)

        return {str(file): lambda file=file: rows_in(file) for file in files}  # type: ignore[misc]
    try:
        with tarfile.open(path) as archive:
            members = sorted(
                (m for m in archive.getmembers() if m.isfile() and m.name.endswith(".csv")),
                key=lambda m: m.name,
            )
            contents = {f"{path}!{m.name}": archive.extractfile(m).read() for m in members}  # type: ignore[union-attr]
    except OSError as error:
        raise explain_error(error, path) from error
    except (tarfile.TarError, EOFError) as error:
        raise InputError(
            f"{path}: neither a folder nor a whole .tar archive ({error}). Fetch it again."
        ) from error
    return {name: partial(_rows_of, name, data) for name, data in contents.items()}


def _rows_of(name: str, data: bytes) -> Iterator[tuple[str, str, dict[str, str]]]:
    return _rows(name, io.BytesIO(data))


def medlama_path(path: Path) -> Path:
    """`path` itself, or the archive medlama*.tar.gz below it when it is a folder without MedLAMA's
    tables."""
    if path.is_dir() and not any(path.rglob("*_1000.csv")):
        return min(path.rglob("medlama*.tar.gz"), default=path)
    return path


def find_prompts(files: Iterable[str], path: Path) -> str:
    """The file of templates among MedLAMA's. Raises InputError without one."""
    where = next((name for name in files if Path(name).name == "prompts.csv"), "")
    if not where:
        raise InputError(
            f"{path}: no prompts.csv here; leave --prompts out to ask with the relations' names"
        )
    return where


def medlama_queries(
    path: Path, prompts: str = TEXT, hard: bool = False
) -> tuple[list[Query], Counter[str]]:
    """(the queries of MedLAMA's files, what was left out and why): <relation>_1000.csv, or
    <relation>_<n>_hard.csv.

    prompts: the relations' names, or default_prompt or human_prompt of prompts.csv. Raises
        InputError file:line.
    """
    files = csv_files(medlama_path(path))
    wanted = re.compile(r"_\d+_hard\.csv$" if hard else r"_\d+\.csv$")
    tables = [name for name in files if wanted.search(name)]
    if not tables:
        what = "<relation>_<n>_hard.csv" if hard else "<relation>_1000.csv"
        raise InputError(
            f"{path}: no file {what} here, in a folder or an archive; expected MedLAMA's"
            " data/medlama."
        )
    templates_read, where = None, ""
    if prompts != TEXT:
        where = find_prompts(files, path)
        templates_read = read_templates(files[where](), where, prompts)
    left_out: Counter[str] = Counter()
    by_text: dict[str, tuple[str, dict[str, str]]] = {}  # text: relation, {answer: its name}
    for name in tables:
        for _, place, row in files[name]():
            if missing := [column for column in MEDLAMA if column not in row]:
                raise InputError(
                    f"{place}: no column {missing[0]!r}; expected {', '.join(MEDLAMA)}. Fetch the"
                    " file again."
                )
            ids, names = row["tail_cuis"].split(JOINED), row["tail_names"].split(JOINED)
            if (
                len(ids) != len(names)
                or not all(ids)
                or not all(names)
                or not row["head_name"].strip()
            ):
                raise InputError(
                    f"{place}: expected a head_name, and as many tail_names as tail_cuis, joined by"
                    f" {JOINED!r}; got {len(names)} and {len(ids)}. Fix the line or fetch the file"
                    " again."
                )
            text = fill_template(
                find_template(row["rel"], templates_read, where), row["head_name"], MASK
            )
            if text in by_text:
                left_out[
                    "rows whose query stands there already; their answers were added to it"
                ] += 1
            _, answers = by_text.setdefault(text, (row["rel"], {}))
            for i, answer in zip(ids, names, strict=True):
                answers.setdefault(i, answer)
    result = []
    for text, (relation, answers) in by_text.items():
        each = [[name] for name in answers.values()]
        result.append(
            Query(text, relation, "tail", list(answers), each, answered_within(text, each))
        )
    return result, left_out


def counts_of(probes: Sequence[Query]) -> dict[str, float]:
    """What Table 5 counts, and the two types."""
    within = sum(q.within for q in probes)
    return {
        "queries": len(probes),
        "relations": len({q.relation for q in probes}),
        "answers a query": round(sum(len(q.answers) for q in probes) / len(probes), 2),
        "type 1": within,
        "type 2": len(probes) - within,
    }


def _save(
    folder: Path, settings: Mapping[str, Any], probes: Sequence[Query], left_out: Mapping[str, int]
) -> Path:
    queries = pa.Table.from_pylist([query._asdict() for query in probes], schema=SCHEMA)
    manifest = {"settings": settings, "counts": counts_of(probes), "left_out": left_out}
    with QUERIES.create(folder, manifest) as partial:
        pq.write_table(queries, partial / FILE, compression="zstd")
    return folder


def build_queries(
    graph: str,
    out: str,
    most: int = 200,
    seed: int = 0,
    templates: str | None = None,
    prompts: str = TEXT,
    fresh: bool = False,
) -> Path:
    """Make fill-in queries of a graph's triples; existing ones of the same settings are kept.

    Args:
        graph: Folder of a knowledge graph.
        out: Folder for the queries.
        most: Queries of a relation at most.
        seed: Seed of what is drawn.
        templates: CSV table of templates.
        prompts: The table's column. Default: the relations' names.
        fresh: Build again even if the same are there.

    Raises InputError as :func:`queries` does, and when `prompts` names templates and no file of
    them was given.
    """
    if (templates is None) != (prompts == TEXT):
        raise InputError(
            "--templates FILE and --prompts COLUMN are given together: a CSV table with pid and"
            " that column"
        )
    if most < 1:
        raise InputError(f"--most {most}: expected at least 1")
    templates_read = None
    if templates is not None:
        try:
            with open(templates, "rb") as handle:
                templates_read = read_templates(_rows(templates, handle), templates, prompts)
        except OSError as error:
            raise explain_error(error, Path(templates)) from error
    settings = {
        "format": FORMAT,
        "of": "graph",
        "graph": fingerprint(graph),
        "most": most,
        "seed": seed,
        "prompts": prompts,
        "templates": None if templates_read is None else digest(templates_read),
    }
    folder = Path(out)
    if QUERIES.is_kept(folder, {"settings": settings}, fresh):
        return folder
    try:
        probes, left_out = queries(KnowledgeGraph.load(graph), most, seed, templates_read)
    except InputError as error:
        raise InputError(f"{graph}: {error}") from error
    return _save(folder, settings, probes, left_out)


def medlama(
    path: str, out: str, prompts: str = TEXT, hard: bool = False, fresh: bool = False
) -> Path:
    """Make fill-in queries of MedLAMA's files; existing ones of the same settings are kept.

    Args:
        path: The files' folder, or an archive of it.
        out: Folder for the queries.
        prompts: Column of prompts.csv: default_prompt or human_prompt. Default: the relations'
            names.
        hard: Take the hard subsets.
        fresh: Build again even if the same are there.

    Raises InputError for files that are not MedLAMA's.
    """
    source, folder = medlama_path(Path(path)), Path(out)
    if not source.exists():
        raise InputError(
            f"{source}: no such folder or archive; expected MedLAMA's data/medlama, or an archive"
            " of it"
        )
    probes, left_out = medlama_queries(source, prompts, hard)
    settings = {
        "format": FORMAT,
        "of": "MedLAMA",
        "prompts": prompts,
        "hard": hard,
        "content": digest([q._asdict() for q in probes]),
    }
    if QUERIES.is_kept(folder, {"settings": settings}, fresh):
        return folder
    return _save(folder, settings, probes, left_out)


def load_queries(folder: str | Path) -> list[Query]:
    """The queries in `folder`. Raises InputError when there are none, or the file is not what the
    manifest says."""
    QUERIES.read(folder)
    return [Query(**row) for row in read_table(Path(folder) / FILE, Query._fields).to_pylist()]
