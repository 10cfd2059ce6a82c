"""Several graphs as one, by name and alias.   kepl graph merge GRAPH GRAPH … --out FOLDER

The first graph stays as it is; each of the others is united with what exists by then, in the order
given.

Which entities are one
    by name   the same preferred name, when only one entity in each of the two has it
    by alias  a name that only one entity in each of the two has, whatever its rank among preferred,
              exact and synonym; only for entities that are not joined by name, and only where all
              such names of the one lead to the same other, and the other way round. Else both stay
              apart, and are counted as ambiguous.
    Names are compared in their normal form (kg.linking.normal), lower case and without white space
    ("Ⅱ型 糖尿病" is "ii型糖尿病"). A short form joins nothing as an alias: "DM" is dermatomyositis and
    diabetes mellitus. An entity is joined with at most one of another graph, so no graph's own
    entities ever become one.
What comes of them
    The id, name and type are those of the first graph; a type that says nothing ("", "未知", "value")
    is replaced by a later one that does, other types that differ are counted as conflicts. A later
    entity keeps its id, or gets "<id>#2" where the id is taken by another. Alternative ids are
    united, too; the id of a joined entity becomes one of the entity that it is. Names, definitions,
    triples and equivalences are united; rows that exist already are dropped and counted (an
    equivalence in either direction). The preferred name of a joined entity becomes a synonym if it
    differs.
"""  # noqa: E501

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from core.files import InputError
from core.outputs import check_no_input
from kg.graph import GRAPH, SCHEMAS, KnowledgeGraph, fingerprint
from kg.ids import alternatives_of
from kg.linking.matchable import needs_exact_case
from kg.linking.normal import normal_text
from kg.linking.tokens import fold_case, space_words

KINDS = ("preferred", "exact", "synonym")  #: of the names that may join two entities
#: entities of the second graph whose id the first one has for something else
NEW_IDS = "ids that mean something else in the first graph, now with #2"
Row = tuple[str, ...]
NO_TYPE = ("", "未知", "value")


def comparison_key(name: str) -> str:
    """What of a name decides whether it is another's."""
    return "".join(fold_case(normal_text(name)).split())


def _is_short_form(name: str) -> bool:
    """Whether a name of letters that have a case is too short, or in capitals, to be an entity's
    alone."""
    return name.lower() != name.upper() and needs_exact_case(space_words(normal_text(name)))


def _only(names: dict[str, set[str]]) -> dict[str, str]:
    """Name -> its entity, for names that one entity has."""
    return {name: next(iter(ids)) for name, ids in names.items() if len(ids) == 1}


def _keys(graph: KnowledgeGraph) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """(preferred name -> ids, any name that may join -> ids), as they are compared, in the graph's
    order."""
    preferred: dict[str, set[str]] = defaultdict(set)
    keys: dict[str, set[str]] = defaultdict(set)
    for entity, name in graph.rows("entities", "id", "name"):
        preferred[comparison_key(name)].add(entity)
        keys[comparison_key(name)].add(entity)
    for entity, name, kind in graph.rows("names", "id", "name", "kind"):
        if kind.lower() in KINDS and not _is_short_form(name):
            keys[comparison_key(name)].add(entity)
    for names in (preferred, keys):
        names.pop("", None)
    return preferred, keys


def match_entities(
    first: KnowledgeGraph, other: KnowledgeGraph
) -> tuple[dict[str, str], dict[str, int]]:
    """(id in `other` -> the id in `first` that it is, counts of how, and of what was ambiguous)."""
    (ours, our_every), (theirs, their_every) = _keys(first), _keys(other)
    our_id, another = _only(ours), _only(theirs)
    by_name = {entity: our_id[name] for name, entity in another.items() if name in our_id}
    ambiguous_names = sum(
        name in ours and (name not in our_id or name not in another) for name in theirs
    )

    taken = set(by_name.values())
    ahead: dict[str, set[str]] = defaultdict(set)  # id in other -> ids in first
    back: dict[str, set[str]] = defaultdict(set)
    ambiguous: set[str] = set()
    for name, ids in their_every.items():
        mine = our_every.get(name, set())
        open_ids = sorted(ids - by_name.keys())
        if not mine or not open_ids:
            continue
        if len(ids) > 1 or len(mine) > 1 or mine <= taken:
            ambiguous.update(open_ids)
            continue
        (entity,), (target,) = ids, mine
        ahead[entity].add(target)
        back[target].add(entity)
    by_alias = {}
    for entity, targets in ahead.items():
        target = next(iter(targets))
        if len(targets) == 1 and len(back[target]) == 1 and entity not in ambiguous:
            by_alias[entity] = target
        else:
            ambiguous.add(entity)
    return by_name | by_alias, {
        "joined by name": len(by_name),
        "joined by alias": len(by_alias),
        "ambiguous names, left apart": ambiguous_names,
        "entities with ambiguous aliases, left apart": len(ambiguous),
    }


def _free(entity: str, used: set[str] | dict[str, Any]) -> str:
    number = 2
    while f"{entity}#{number}" in used:
        number += 1
    return f"{entity}#{number}"


def unite_graphs(
    first: KnowledgeGraph, other: KnowledgeGraph
) -> tuple[KnowledgeGraph, dict[str, int]]:
    """(both graphs as one by the rules of this module, counts of what happened)."""
    same, counts = match_entities(first, other)
    entities, ids = _unite_entities(first, other, same, counts)
    names = _unite_names(first, other, same, ids)
    counts["names added"] = len(names) - len(first.names)
    parts: dict[str, list[Row]] = {
        "entities": [(entity, *rest) for entity, rest in entities.items()],
        "names": names,
    }
    for part in ("definitions", "triples", "equivalences"):
        parts[part], twice = _unite_rows(part, first, other, ids)
        counts[f"{part} added"] = len(parts[part]) - len(getattr(first, part))
        counts[f"{part} that stand there already, dropped"] = twice
    alternatives = _unite_alternatives(first, other, ids, entities)
    manifest = {"alternatives": alternatives} if alternatives else {}
    return KnowledgeGraph.from_rows(parts, manifest), counts


def _unite_entities(
    first: KnowledgeGraph, other: KnowledgeGraph, same: dict[str, str], counts: dict[str, int]
) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """({id: (name, type)} of both graphs, {id in `other`: its id in the result}); `counts` gets
    what happened."""
    entities = {entity: (name, kind) for entity, name, kind in first.rows("entities")}
    theirs = {entity: (name, kind) for entity, name, kind in other.rows("entities")}
    taken = entities.keys() | (theirs.keys() - same.keys())
    conflicts = "conflicts of type (the first is kept)"
    counts |= dict.fromkeys(("new entities", NEW_IDS, "types given", conflicts), 0)
    ids: dict[str, str] = {}
    for entity, (name, kind) in theirs.items():
        if entity in same:
            ids[entity] = target = same[entity]
            name, was = entities[target]
            if was in NO_TYPE and kind not in NO_TYPE:
                entities[target] = name, kind
                counts["types given"] += 1
            elif kind not in NO_TYPE and kind != was:
                counts[conflicts] += 1
            continue
        ids[entity] = entity
        if entity in entities:
            ids[entity] = _free(entity, taken)
            taken.add(ids[entity])
            counts[NEW_IDS] += 1
        entities[ids[entity]] = name, kind
        counts["new entities"] += 1
    return entities, ids


def _unite_names(
    first: KnowledgeGraph, other: KnowledgeGraph, same: dict[str, str], ids: dict[str, str]
) -> list[Row]:
    """The names of the first graph and those that are new; the preferred name of a joined entity is
    a synonym."""
    rows: list[Row] = list(first.rows("names"))
    keys = {row[:2] for row in rows}
    for entity, name, kind, *rest in other.rows("names"):
        if (ids[entity], name) in keys:
            continue
        keys.add((ids[entity], name))
        kind = "synonym" if entity in same and kind == "preferred" else kind
        rows.append((ids[entity], name, kind, *rest))
    return rows


def _unite_rows(
    part: str, first: KnowledgeGraph, other: KnowledgeGraph, ids: dict[str, str]
) -> tuple[list[Row], int]:
    """(the rows of the first graph and those that are new, how many exist already)."""
    refers = [column in ("id", "head", "tail") for column in SCHEMAS[part].names]
    rows = list(first.rows(part))
    key_of: Callable[[Row], Row] = _sort_ends if part == "equivalences" else tuple
    keys = {key_of(row) for row in rows}
    twice = 0
    for values in other.rows(part):
        row = tuple(ids[v] if refer else v for v, refer in zip(values, refers, strict=True))
        key = key_of(row)
        if key in keys:
            twice += 1
        else:
            keys.add(key)
            rows.append(row)
    return rows, twice


def _unite_alternatives(
    first: KnowledgeGraph, other: KnowledgeGraph, ids: dict[str, str], entities: Collection[str]
) -> dict[str, list[str]]:
    """{entity: its other ids}, with the id that a joined entity had."""
    united_ids: dict[str, dict[str, None]] = defaultdict(dict)
    for entity, others in alternatives_of(first).items():
        united_ids[entity].update(dict.fromkeys(others))
    for entity, others in alternatives_of(other).items():
        united_ids[ids[entity]].update(dict.fromkeys(others))
    for entity, target in ids.items():
        if entity != target and entity not in entities:
            united_ids[target][entity] = None
    return {entity: list(others) for entity, others in united_ids.items()}


def _sort_ends(row: Row) -> Row:
    return tuple(sorted((row[0], row[2])))


def merge_graphs(graphs: Sequence[tuple[str, KnowledgeGraph]]) -> KnowledgeGraph:
    """One graph of all (name, graph), in this order. The manifest has under `merged` what each of
    them brought.

    Raises InputError for fewer than two graphs.
    """
    if len(graphs) < 2:
        raise InputError(f"expected two or more graphs to merge, got {len(graphs)}")
    whole = graphs[0][1]
    report: list[dict[str, Any]] = [{"graph": graphs[0][0], "given": whole.counts()}]
    for name, graph in graphs[1:]:
        sizes = graph.counts()
        whole, counts = unite_graphs(whole, graph)
        report.append({"graph": name, "given": sizes, **counts})
    for key in ("source", "version", "licence"):
        facts = [str(graph.manifest.get(key, "not stated")) for _, graph in graphs]
        whole.manifest[key] = "; ".join(dict.fromkeys(facts))
    whole.manifest["merged"] = report
    return whole


def merge(graphs: Sequence[Path], out: Path, fresh: bool = False) -> KnowledgeGraph:
    """Merge graphs by names and aliases; the first one wins.

    Args:
        graphs: Folders of knowledge graphs, the first one wins.
        out: Folder for the graph.
        fresh: Merge again even if the same graph is there.
    """
    check_no_input(out, graphs)
    recipe = {
        "reader": "kg.merge",
        "options": {},
        "inputs": [fingerprint(folder) for folder in graphs],
    }
    if GRAPH.is_kept(out, recipe, fresh):
        graph = KnowledgeGraph.load(out)
    else:
        graph = merge_graphs([(folder.name, KnowledgeGraph.load(folder)) for folder in graphs])
        graph.manifest |= recipe
        graph.save(out)
    print(format_report(graph.manifest["merged"]))
    print(f"{out}: " + ", ".join(f"{count:,} {part}" for part, count in graph.counts().items()))
    return graph


def format_report(report: Sequence[dict[str, Any]]) -> str:
    """The report of a merged graph's manifest as lines."""
    lines = []
    for part in report:
        sizes = ", ".join(f"{count:,} {what}" for what, count in part["given"].items())
        lines.append(f"{part['graph']}: {sizes}")
        lines += [
            f"  {count:,} {what}" for what, count in part.items() if what not in ("graph", "given")
        ]
    return "\n".join(lines)
