"""Names added to a graph, and names taken out of it.

    kepl graph add GRAPH names.csv --out NEW        one's own synonyms: id, name [, kind, language]
    kepl graph stop GRAPH words.txt --out NEW       names that no text is linked by

Both write another graph; that of the input stays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from core.choices import list_known
from core.files import InputError
from core.outputs import check_no_input
from core.reading import excerpt, lines, sha256
from kg.build.draft import NO_NAMES, parse_kind, parse_language, split_names, warn_of_bars
from kg.build.lookup import search_key
from kg.build.rows import Form, Problems, parse_delimiter, read_rows
from kg.graph import GRAPH, KINDS, KnowledgeGraph, fingerprint
from kg.ids import Ids

OWN = "own"  #: the source of names that a person adds
KNOWN = "names that their entity has already"
NO_NAME = "words that are no name of the graph"


def add_names(
    graph: Path,
    names: Path,
    out: Path,
    language: str = "en",
    delimiter: str = "",
    separator: str = "",
    fresh: bool = False,
) -> str:
    """Add names to the entities of a graph.

    Args:
        graph: Folder of the graph.
        names: Table (CSV, TSV, .xlsx, JSON lines) with id and name, and with kind and language
            where it has them. An id is written as links accept it.
        out: Folder for the new graph.
        language: Language of names that say none.
        delimiter: What parts fields: a character, or tab, comma, semicolon, pipe. Default: what the
            heading has.
        separator: What parts several names in a field. Default: nothing.
        fresh: Build again even if the same graph is there.

    Examples:
      kepl graph add graph my_synonyms.csv --out graph-mine
    """
    check_no_input(out, [graph, names])
    recipe = {
        "reader": "kg.edit",
        "options": {"language": language, "separator": separator},
        "inputs": [fingerprint(graph), sha256(names)],
    }
    if not GRAPH.is_kept(out, recipe, fresh):
        loaded, counts = KnowledgeGraph.load(graph), Counter[str]()
        form = Form(delimiter=parse_delimiter(delimiter))
        rows = _read_new_names(loaded, names, form, (language, separator), counts)
        if not rows:
            raise InputError(
                f"{names}: no name that is new to the graph in the rows below its heading, which"
                " needs the columns id and name"
            )
        facts = recipe | {"added": len(rows), "left_out": dict(counts)}
        loaded.with_rows({"names": rows}, facts).save(out)
    return _report(out, "added")


READ = frozenset(("id", "name", "kind", "language"))  #: columns of a table of new names


def _read_new_names(
    graph: KnowledgeGraph, names: Path, form: Form, usual: tuple[str, str], counts: Counter[str]
) -> list[tuple[str, ...]]:
    """Rows of the names in a table that their entity has not; the others are counted. usual: the
    language of names that say none, and what parts the names of a field. Raises InputError for rows
    that are wrong."""
    language, separator = usual
    ids, names_by_entity = Ids.from_graph(graph), _names_by_entity(graph)
    rows: list[tuple[str, ...]] = []
    problems = Problems()
    unread: dict[str, None] = {}
    for where, row in read_rows(names, form, problems):
        unread |= dict.fromkeys(key for key in row if key.lower() not in READ)
        values = {key.lower(): str(value or "").strip() for key, value in row.items()}
        if not values.keys() >= {"id", "name"}:
            raise InputError(
                f"{where}: expected the columns id and name (and kind, language), got"
                f" {', '.join(row)}. The first line of a table is its heading."
            )
        entity = ids.entity(values.get("id", ""))
        kind_text = values.get("kind", "")
        kind, spoken = parse_kind(kind_text), parse_language(values.get("language", "") or language)
        added = split_names(values.get("name", ""), separator)
        if entity is None or not added:
            wanted = "a name" if entity is not None else "an id of the graph"
            problems.add(f"{where}: expected {wanted} under id and name, got {excerpt(row)}")
        elif kind is None:
            problems.add(f"{where}: no kind of name {kind_text!r}; {list_known(kind_text, KINDS)}")
        elif spoken is None:
            problems.add(
                f"{where}: language {values['language']!r}; expected a code, such as en"
                if values.get("language")
                else f"--language {language!r}: expected a code, such as en"
            )
        else:
            for name in added:
                if name in names_by_entity[entity]:
                    counts[KNOWN] += 1
                elif name in NO_NAMES:
                    counts[f"fields of name that say there is no name ({name})"] += 1
                else:
                    names_by_entity[entity].add(name)
                    rows.append((entity, name, kind, spoken, OWN))
    problems.check()
    warn_of_bars(name for _, name, *_ in rows)
    if unread:
        counts[f"columns that are not read ({', '.join(unread):.200})"] = len(unread)
    return rows


def _names_by_entity(graph: KnowledgeGraph) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {entity_id: set() for entity_id in graph.ids.to_pylist()}
    for entity_id, name in graph.rows("names", "id", "name"):
        names[entity_id].add(name)
    return names


def stop_names(graph: Path, words: Path, out: Path, fresh: bool = False) -> str:
    """Take names out of a graph, whatever their case, accents and punctuation: "all", "not" and
    other words of a text that are a name, too.

    An entity keeps its title, its other names and its triples.

    Args:
        graph: Folder of the graph.
        words: Text file, a name a line.
        out: Folder for the new graph.
        fresh: Build again even if the same graph is there.

    Examples:
      kepl graph stop graph stop_words.txt --out graph-clean
    """
    check_no_input(out, [graph, words])
    recipe = {
        "reader": "kg.edit",
        "options": {},
        "inputs": [fingerprint(graph), sha256(words)],
    }
    if not GRAPH.is_kept(out, recipe, fresh):
        loaded = KnowledgeGraph.load(graph)
        wanted = {search_key(line): line.strip() for _, line in lines(words) if line.strip()}
        keys = [search_key(name) for name in loaded.names["name"].to_pylist()]
        stopped = [key in wanted for key in keys]
        if not any(stopped):
            raise InputError(f"{words}: none of its {len(wanted):,} lines is a name of the graph")
        unknown = len(wanted.keys() - set(keys))
        manifest = loaded.manifest | recipe
        manifest |= {"stopped": sum(stopped), "left_out": {NO_NAME: unknown}}
        remaining = loaded.names.filter(pc.invert(pa.array(stopped)))
        replace(loaded, names=remaining, manifest=manifest).save(out)
    return _report(out, "stopped")


def _report(out: Path, what: str) -> str:
    graph = KnowledgeGraph.load(out)
    lines_ = [f"{out}: {graph.manifest[what]:,} names {what}, {len(graph.names):,} names"]
    left_out = graph.manifest["left_out"].items()
    return "\n".join([*lines_, *(f"left out: {n:,} {reason}" for reason, n in left_out if n)])
