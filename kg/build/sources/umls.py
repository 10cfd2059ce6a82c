"""The UMLS Metathesaurus in Rich Release Format -> KnowledgeGraph.

Bodenreider 2004. Columns: UMLS Reference Manual, chapter 3,
    https://www.ncbi.nlm.nih.gov/books/NBK9685/. The folder is
a release's META folder; each file may be plain or .gz:

    MRCONSO.RRF   names. Preferred: TS=P, STT=PF, ISPREF=Y (the nearest to it when a filter drops
                  that row)
    MRSTY.RRF     entity type: the semantic types' names in TUI order, joined by `|`
    MRREL.RRF     triples. RELA (and REL) say what the SECOND concept is to the FIRST: a row is
                  (CUI2, RELA, CUI1)
    MRDEF.RRF     definitions, of the sources that have names in a kept language
    MRCUI.RRF     ids of earlier releases, where the folder has it: those that mean the same as a
                  kept concept (REL SY) are its `alternatives` in the manifest, all others are
                  counted

Everything is streamed: concepts are their numbers and relations small integers until the end, so
memory grows with what is kept, not with the files. Measured on tests/fakes/umls.py's write_large:
0.3 GB + 150 bytes per name row kept (38 characters each) + 35 bytes per relation row kept, 1.8 us
per name row and 0.8 us per relation row on one core; so about 5 GB and 1.5 minutes, by
extrapolation, for a full release (16 M names, 62 M relation rows) with nothing filtered.
tests/kg/test_umls.py::test_memory (slow) holds it to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.files import InputError
from kg.build.rrf import (
    COLUMNS,
    CONCEPTS,
    USED,
    Codes,
    broken_row,
    build_column,
    decode_labels,
    format_cuis,
    is_among,
    parse_ids,
    read_batches,
)
from kg.build.semantic_types import ConceptTypes, read_semantic_types
from kg.graph import SCHEMAS, KnowledgeGraph

HOLDS = {"MRCONSO": "names", "MRSTY": "semantic types", "MRREL": "triples", "MRDEF": "definitions"}
OPTIONAL = ("MRSTY", "MRREL", "MRDEF")  #: files that a graph can do without
#: Term types,
#: https://www.nlm.nih.gov/research/umls/knowledge_sources/metathesaurus/release/abbreviations.html
#: (TTY).
ABBREVIATIONS = ("AA", "AB", "ABX", "ACR", "QAB", "RAB", "SSN", "VAB")
OBSOLETE = (
    "IS",
    "LO",
    "OA",
    "OAF",
    "OAM",
    "OAP",
    "OAS",
    "OET",
    "OF",
    "OL",
    "OLC",
    "OM",
    "ONP",
    "OOSN",
    "OP",
    "OPN",
)
KIND_LABELS = ("preferred", "synonym", "abbreviation", "obsolete")
#: LAT -> ISO 639-1, the language codes of every graph here.
LANGUAGES = {
    "BAQ": "eu",
    "CHI": "zh",
    "CZE": "cs",
    "DAN": "da",
    "DUT": "nl",
    "ENG": "en",
    "EST": "et",
    "FIN": "fi",
    "FRE": "fr",
    "GER": "de",
    "GRE": "el",
    "HEB": "he",
    "HUN": "hu",
    "ITA": "it",
    "JPN": "ja",
    "KOR": "ko",
    "LAV": "lv",
    "NOR": "no",
    "POL": "pl",
    "POR": "pt",
    "RUS": "ru",
    "SCR": "hr",
    "SPA": "es",
    "SWE": "sv",
    "TUR": "tr",
    "UKR": "uk",
}
HEAD, RELATION = 38, 23  # bits: 23 for the head, 15 for the relation, 23 for the tail
MERGE = 1 << 25  # triples waiting before duplicates are dropped


def files(folder: str | Path) -> list[Path]:
    """The RRF files that the folder has, MRCONSO first. Raises InputError when there is no
    MRCONSO.RRF."""
    paths = [_file(Path(folder), name) for name in COLUMNS]
    paths_present = [path for path in paths if path]
    if not paths_present or not paths_present[0].name.startswith("MRCONSO"):
        raise InputError(
            f"{folder}/MRCONSO.RRF: missing (the names). Give the META folder of a UMLS release."
        )
    return paths_present


def _file(folder: Path, name: str) -> Path | None:
    paths = (folder / f"{name}{end}" for end in (".RRF", ".RRF.gz"))
    return next(filter(Path.is_file, paths), None)


def _require_file(folder: Path, name: str, skip: Sequence[str]) -> Path | None:
    if name in skip:
        return None
    path = _file(folder, name)
    if path is None:
        raise InputError(
            f"{folder}/{name}.RRF: missing (the {HOLDS[name]}). Put it there, or leave it: --skip"
            f" {name}"
        )
    return path


def _check_skip(skip: Sequence[str]) -> None:
    """Raise InputError for a file that no graph can do without."""
    for name in skip:
        if name not in OPTIONAL:
            raise InputError(f"--skip {name}: expected MRSTY, MRREL or MRDEF")


class _Names(NamedTuple):
    """Kept names by concept, the preferred one first, then in file order."""

    cui: np.ndarray
    text: pa.ChunkedArray
    kind: np.ndarray
    language: np.ndarray
    source: np.ndarray
    preferred: np.ndarray  # (concepts,) row of each concept's preferred name
    languages: list[str]
    sources: list[str]
    rows: int  # in the file
    speaking: list[str]  # sources that have names in a kept language


def _names(
    path: Path,
    allowed: np.ndarray,
    languages: Sequence[str],
    sources: Sequence[str] | None,
    suppress: Sequence[str],
    term_types: Sequence[str] | None,
) -> _Names:
    parts: list[tuple[np.ndarray, ...]] = []
    texts: list[pa.Array] = []
    lat, sab, heard, speaking, rows = Codes(), Codes(), Codes(), Codes(), 0
    for batch in read_batches(path, "MRCONSO"):
        rows += batch.num_rows
        number = parse_ids(batch["CUI"], "C", path, "MRCONSO")
        heard.encode(batch["LAT"])
        spoken = is_among(batch["LAT"], languages)
        speaking.encode(batch["SAB"].filter(pa.array(spoken)))
        keep = spoken & is_among(batch["SUPPRESS"], suppress) & is_among(batch["SAB"], sources)
        keep &= is_among(batch["TTY"], term_types) & allowed[number]
        keep &= pc.not_equal(batch["STR"], "").to_numpy(False)
        if not keep.any():
            continue
        batch = batch.filter(pa.array(keep))
        sui = _string_numbers(batch["SUI"], path)
        language = lat.encode(batch["LAT"])
        priority = [len(languages) - languages.index(code) for code in lat]
        rank = _ranks(batch, np.array(priority, np.int8)[language])
        kind, source = _name_kinds(batch), sab.encode(batch["SAB"])
        parts.append((number[keep], sui, rank, kind, language.astype(np.int8), source))
        texts.append(batch["STR"].cast(pa.large_string()))
    if not parts:
        raise InputError(
            f"{path}: no name is left: languages {', '.join(languages)}, sources"
            f" {sources or 'all'}, suppress {', '.join(suppress)}, term types"
            f" {term_types or 'all'}. The file's languages are"
            f" {', '.join(sorted(heard)) or 'none (it is empty)'}."
        )
    cui, sui, rank, kind, language, source = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    del parts
    order = _distinct_names(cui, sui, rank)
    del sui
    cui, kind, language, source = cui[order], kind[order], language[order], source[order]
    preferred = np.flatnonzero(np.diff(cui, prepend=-1))
    kind[preferred] = 0
    joined = pa.chunked_array(texts).combine_chunks()
    texts.clear()
    text = build_column(order, lambda part: joined.take(pa.array(part)).cast(pa.string()))
    return _Names(
        cui, text, kind, language, source, preferred, list(lat), list(sab), rows, list(speaking)
    )


def _string_numbers(column: pa.Array, path: Path) -> np.ndarray:
    """(rows,) int64: the number in SUIs like S0000005. Raises InputError naming the first wrong
    line."""
    try:
        sui = pc.cast(pc.utf8_slice_codeunits(column, 1), pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise broken_row(path, "MRCONSO", str(error)) from error
    if len(sui) and not 0 <= sui.min() <= sui.max() < 1 << 32:
        raise broken_row(path, "MRCONSO", "a SUI that is none")
    return np.asarray(sui)


def _name_kinds(batch: pa.RecordBatch) -> np.ndarray:
    """(rows,) int8: the place of each name's kind in KIND_LABELS; none is preferred yet."""
    kind = np.ones(len(batch), np.int8)
    kind[is_among(batch["TTY"], ABBREVIATIONS)] = 2
    kind[is_among(batch["TTY"], OBSOLETE) | is_among(batch["SUPPRESS"], ["O"])] = 3
    return kind


def _ranks(batch: pa.RecordBatch, priority: np.ndarray) -> np.ndarray:
    """(rows,) int16: how near each name is to its concept's preferred one: by its language first,
    then by TS, STT and ISPREF."""
    rank = (
        8 * priority
        + 4 * is_among(batch["TS"], ["P"])
        + 2 * is_among(batch["STT"], ["PF"])
        + is_among(batch["ISPREF"], ["Y"])
    )
    return rank.astype(np.int16)


def _distinct_names(cui: np.ndarray, sui: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Rows of names by concept, the best-ranked first, then in file order. One row per concept and
    string (a SUI is one string in one language): the best-ranked, then the first."""
    string = (cui.astype(np.int64) << 32) | sui
    order = np.lexsort((-rank, string))
    first = np.ones(len(order), bool)
    first[1:] = string[order[1:]] != string[order[:-1]]
    order = order[first]
    return order[np.lexsort((order, -rank[order], cui[order]))]


class _Triples(NamedTuple):
    packed: np.ndarray  # (triples,) int64, sorted: head << HEAD | relation << RELATION | tail
    labels: list[str]
    left_out: dict[str, int]


def _triples(
    path: Path,
    index: np.ndarray,
    sources: Sequence[str] | None,
    suppress: Sequence[str],
    relations: Sequence[str] | None,
    include_rel: bool,
) -> _Triples:
    parts: list[np.ndarray] = [np.zeros(0, np.int64)]
    waiting = 0
    codes = Codes()
    left_out = dict.fromkeys(
        (
            "MRREL rows by source or suppression",
            "MRREL rows without RELA or by relation",
            "MRREL rows of concepts left out",
            "MRREL self loops",
            "MRREL repeated",
        ),
        0,
    )
    count = 0

    def drop(reason: str, keep: np.ndarray, also: np.ndarray) -> np.ndarray:
        left_out[reason] += int((keep & ~also).sum())
        return keep & also

    for batch in read_batches(path, "MRREL"):
        tail = index[parse_ids(batch["CUI1"], "C", path, "MRREL")]
        head = index[parse_ids(batch["CUI2"], "C", path, "MRREL")]
        label = batch["RELA"]
        if include_rel:
            label = pc.if_else(pc.equal(label, ""), batch["REL"], label)
        keep = is_among(batch["SUPPRESS"], suppress) & is_among(batch["SAB"], sources)
        left_out["MRREL rows by source or suppression"] += int((~keep).sum())
        labelled = pc.not_equal(label, "").to_numpy(False) & is_among(label, relations)
        keep = drop("MRREL rows without RELA or by relation", keep, labelled)
        keep = drop("MRREL rows of concepts left out", keep, (head >= 0) & (tail >= 0))
        keep = drop("MRREL self loops", keep, head != tail)
        relation = codes.encode(label.filter(pa.array(keep)))
        part = (
            (head[keep].astype(np.int64) << HEAD)
            | (relation.astype(np.int64) << RELATION)
            | tail[keep]
        )
        count += len(part)
        waiting += len(part)
        parts.append(part)
        if waiting > MERGE:
            parts, waiting = [np.unique(np.concatenate(parts))], 0
    packed = np.unique(np.concatenate(parts))
    left_out["MRREL repeated"] = count - len(packed)
    return _Triples(packed, list(codes), left_out)


def _definitions(
    path: Path,
    index: np.ndarray,
    sources: Sequence[str] | None,
    suppress: Sequence[str],
    speaking: Sequence[str],
) -> pa.Table:
    parts = []
    for batch in read_batches(path, "MRDEF"):
        number = parse_ids(batch["CUI"], "C", path, "MRDEF")
        keep = (
            (index[number] >= 0)
            & is_among(batch["SUPPRESS"], suppress)
            & is_among(batch["SAB"], sources)
        )
        keep &= is_among(batch["SAB"], speaking) & pc.not_equal(batch["DEF"], "").to_numpy(False)
        parts.append(batch.select(["CUI", "DEF"]).filter(pa.array(keep)))
    if not parts:
        return SCHEMAS["definitions"].empty_table()
    whole = pa.Table.from_batches(parts).rename_columns(["id", "text"])
    # Several sources have the same text; the first is kept, in file order.
    rows = np.arange(len(whole))
    numbered = whole.append_column("row", pa.array(rows))
    first = numbered.group_by(["id", "text"]).aggregate([("row", "min")])["row_min"].to_numpy()
    return whole.take(pa.array(np.sort(first)))


def _version(folder: Path) -> str:
    release = folder / "release.dat"
    if release.is_file():
        for line in release.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("umls.release.name="):
                return line.split("=", 1)[1].strip()
    return "not stated in the folder (release.dat is missing)"


def _alternatives(path: Path, concepts: set[str]) -> tuple[dict[str, list[str]], int]:
    """({concept: ids of earlier releases that mean the same}, how many mean no kept concept)."""
    earlier: dict[str, str] = {}
    retired: set[str] = set()
    for batch in read_batches(path, "MRCUI"):
        columns = [batch[column].to_pylist() for column in USED["MRCUI"]]
        for old, relation, new in zip(*columns, strict=True):
            retired.add(old)
            if relation == "SY" and new and old not in concepts:
                earlier[old] = new
    alternatives: dict[str, list[str]] = {}
    for old, new in sorted(earlier.items()):
        for _ in range(len(earlier)):  # an id may have been replaced several times
            if new in concepts or new not in earlier or new == old:
                break
            new = earlier[new]
        if new in concepts:
            alternatives.setdefault(new, []).append(old)
    return alternatives, len(retired - concepts) - sum(map(len, alternatives.values()))


def read(
    folder: str | Path,
    languages: Sequence[str] = ("ENG",),
    sources: Sequence[str] | None = None,
    suppress: Sequence[str] = ("N",),
    semantic_types: Sequence[str] | None = None,
    term_types: Sequence[str] | None = None,
    relations: Sequence[str] | None = None,
    include_rel: bool = False,
    skip: Sequence[str] = (),
) -> KnowledgeGraph:
    """The concepts that keep a name, their names, definitions and triples.

    Raises InputError naming path:line for a broken row, the file for a missing one, and the filter
    that leaves nothing.

    Args:
        languages: LAT codes of names that are kept; the first of them has the preferred name.
        sources: SABs of names, definitions and relations that are kept. Default: all.
        suppress: Values of SUPPRESS that are kept (N, E, O, Y).
        semantic_types: TUIs or names of semantic types, of which a concept needs one. Default: all.
        term_types: TTYs of names that are kept. Default: all.
        relations: Labels of relations that are kept. Default: all.
        include_rel: Whether a row without RELA has its REL (RO, PAR, …) as label.
        skip: Files to go without, of MRSTY, MRREL and MRDEF.
    """
    folder = Path(folder)
    _check_skip(skip)
    conso = files(folder)[0]
    sty, rel, definition = (_require_file(folder, name, skip) for name in OPTIONAL)
    types = read_semantic_types(sty, semantic_types)
    names = _names(conso, types.allowed, languages, sources, suppress, term_types)
    concepts = names.cui[names.preferred]
    index = _index(concepts, conso)
    entities, name_table = _entity_table(concepts, names, types), _name_table(names)
    left_out = {"MRCONSO rows by filter or repeated": names.rows - len(names.cui)}
    speaking = names.speaking
    del names, types
    definitions = SCHEMAS["definitions"].empty_table()
    triples = SCHEMAS["triples"].empty_table()
    if definition:
        definitions = _definitions(definition, index, sources, suppress, speaking)
    if rel:
        read_triples = _triples(rel, index, sources, suppress, relations, include_rel)
        left_out |= read_triples.left_out
        triples = _triple_table(read_triples, concepts)
        del read_triples
    manifest: dict[str, Any] = {
        "source": "UMLS Metathesaurus",
        "version": _version(folder),
        "licence": "UMLS Metathesaurus License: not to be passed on",
        "left_out": left_out,
    }
    if retired := _file(folder, "MRCUI"):
        concept_ids = set(entities["id"].to_pylist())
        manifest["alternatives"], others = _alternatives(retired, concept_ids)
        left_out["ids of MRCUI that mean no kept concept"] = others
    return KnowledgeGraph(entities, name_table, definitions, triples, manifest)


def _index(concepts: np.ndarray, path: Path) -> np.ndarray:
    """(CONCEPTS,) int32: the place of each concept, -1 of those that are not kept. Raises
    InputError for more than a triple has bits for."""
    if len(concepts) >= 1 << RELATION:
        raise InputError(
            f"{path}: {len(concepts):,} concepts are kept, {(1 << RELATION) - 1:,} at most. Filter"
            " them."
        )
    index = np.full(CONCEPTS, -1, np.int32)
    index[concepts] = np.arange(len(concepts), dtype=np.int32)
    return index


def _entity_table(concepts: np.ndarray, names: _Names, types: ConceptTypes) -> pa.Table:
    """The concepts with their preferred names and semantic types."""
    columns = {
        "id": build_column(concepts, format_cuis),
        "name": names.text.take(pa.array(names.preferred)),
        "type": decode_labels(types.label[concepts], types.labels),
    }
    return pa.table(columns, SCHEMAS["entities"])


def _name_table(names: _Names) -> pa.Table:
    """The kept names."""
    languages = [LANGUAGES.get(language, language.lower()) for language in names.languages]
    columns = {
        "id": build_column(names.cui, format_cuis),
        "name": names.text,
        "kind": decode_labels(names.kind, KIND_LABELS),
        "language": decode_labels(names.language, languages),
        "source": decode_labels(names.source, names.sources),
    }
    return pa.table(columns, SCHEMAS["names"])


def _triple_table(read_rows: _Triples, concepts: np.ndarray) -> pa.Table:
    """The triples, unpacked."""
    tail, relation = (1 << RELATION) - 1, (1 << HEAD - RELATION) - 1  # masks of their bits
    labels = pa.array(read_rows.labels, pa.string())
    columns = {
        "head": build_column(read_rows.packed, lambda part: format_cuis(concepts[part >> HEAD])),
        "relation": build_column(
            read_rows.packed, lambda part: labels.take(pa.array((part >> RELATION) & relation))
        ),
        "tail": build_column(read_rows.packed, lambda part: format_cuis(concepts[part & tail])),
    }
    return pa.table(columns, SCHEMAS["triples"])
