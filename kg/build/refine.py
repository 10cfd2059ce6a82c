"""From a source's graph to the one that is trained on: entities with types, relations between
entities, equivalences apart.

    kepl graph refine GRAPH --out FOLDER [--types GRAPH,GRAPH]

Readers keep what their format says; every decision about it is made here, counted, printed and kept
in the manifest under `refined`. The rules are made for Chinese graphs (CMeKG first of all) and go
in this order.

Types
    An entity keeps its own type. One without has the type that most of its triples say, where a
    relation says a type of its heads (tails) if more than `share` of its triples have it there; two
    types that draw say nothing. Then that of the first graph in `types` that has an entity of its
    name, or one entity of which it is another name; then that of most of its equivalents; then
    "未知". A type "value" of another graph is no type.
Triples, each counted under the first rule that drops it
    Self-loops; duplicates; triples of an equivalence relation (`equivalent`), which become
    equivalences; then those of which one side is no entity:
      value        its type is "value" ("口服，一次2片")
      script       no Chinese character in its name ("heterozygous familial hypercholesterolaemia");
                   `foreign` keeps these
      list         、 or / between or a clause mark in its name (，。；：？！… or a comma that is not
                   between digits), or < > =
      dose         a digit with a unit or a percent sign in its name
      wording      its name begins, ends or has in it what names do not have (BEGINS, ENDS, WITHIN)
      length       its name has more than `longest` characters, a run of letters or digits counting
                   as one
    The last four do not apply to what heads a triple of its own, for a source has a page on it;
    only 。；！？ do. Then those between the two sides of an equivalence; those of a relation that leads
    to no medical entities (`without`); those of a relation that leads to free text, where more than
    `loose` of the tails head nothing, occur once and have no type by anything said above; the other
    triples with such a tail; those of a relation seen fewer than `least` times.
Equivalences
    undirected (the entity that comes first in the graph is the head), one row a pair, of the
    relation that comes first; both sides must be entities by the rules above and be written in
    Chinese, whatever `foreign` says. Two sides that differ in case and white space alone are one
    name to a dictionary and no pair.
Entities
    that are in no triple and no equivalence any more are left out.
Names
    Every entity keeps its own. Others are left out where they are not Chinese, or where an
    equivalent entity has the
    name for its own: a dictionary would link one by the name of the other, which an evaluation of
        equivalences asks for.
    Names of one character stay; kg.linking never matches them.
"""  # noqa: E501

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence, Sized
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from core.files import InputError
from core.outputs import check_no_input
from core.values import split_commas
from kg.build.entity_rules import (
    UNKNOWN,
    Triple,
    count_votes,
    is_chinese,
    loose_tails,
    no_entity,
    types_by_name,
    vote_types,
)
from kg.graph import GRAPH, KnowledgeGraph, fingerprint
from kg.linking.normal import comparable

#: Relations of CMeKG whose two sides mean the same. 中文学名 (the plant of a part) and 中医病名 (one of  # noqa: E501
#: several) do not.
EQUIVALENT = ("别称", "又称", "同义词", "别名", "其他名称", "中文名", "商品名", "通用名")
#: Relations of CMeKG that lead to places, groups of people and properties.
WITHOUT = tuple(
    "分布区域 分布 产地 多发地区 多发群体 发病人群 发病性别倾向 是否进入医保 传染性 性味 性味归经"
    " 采集时间 采收时间 "
    "透明度 晶系 光泽 硬度 条痕 颜色 阶段 手术_输血 手术_输血及血液制品".split()
)
FACTS = ("source", "version", "licence")  #: of the manifest that a refined graph keeps


@dataclass(frozen=True, kw_only=True)
class Refining:
    """What is dropped, and what decides a type.

    Args:
        equivalent: Equivalence relations, with commas.
        without: Relations that are left out, with commas.
        longest: Most characters of a name that heads nothing.
        loose: Share of free text that drops a relation.
        least: Fewest triples of a relation.
        share: Share of its triples that decides a relation's type.
        foreign: Keep entities without a Chinese character.

    Raises InputError for a setting out of its range.
    """

    equivalent: Sequence[str] = EQUIVALENT
    without: Sequence[str] = WITHOUT
    longest: int = 15
    loose: float = 0.3
    least: int = 2
    share: float = 0.5
    foreign: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "equivalent", split_commas(self.equivalent))
        object.__setattr__(self, "without", split_commas(self.without))
        shares = (self.loose, self.share)
        if self.longest < 1 or self.least < 1 or not all(0 <= share <= 1 for share in shares):
            raise InputError(
                "expected longest and least of 1 or more, loose and share in [0, 1], got"
                f" {self.longest}, {self.least}, {self.loose} and {self.share}"
            )


def refine_graph(
    graph: KnowledgeGraph,
    types: Sequence[tuple[str, KnowledgeGraph]] = (),
    rules: Refining = Refining(),
) -> KnowledgeGraph:
    """`graph` by the rules of this module; `types` are (name, graph) pairs that have more types,
    first ones first.

    The manifest has under `refined` what each rule did: `triples`, `equivalences`, `entities`,
    `names` and `types` are counts by rule. Raises InputError for a setting out of its range, and
    when no triple is left.
    """
    split = _split_triples(graph, rules.equivalent)
    types_found, verdict = _judge_entities(graph, split.triples, types, rules)
    name = dict(graph.rows("entities", "id", "name"))
    pairs, apart = _equivalent_pairs(split.same, name, verdict)
    entity_triples = _between_entities(split, verdict, pairs)
    remaining = _without_relations(entity_triples, split.dropped, types_found, rules)
    if not remaining.triples:
        raise InputError(
            f"no triple is left of {len(graph.triples):,}: {dict(split.dropped)}. Give a graph of"
            " Chinese entities, or loosen the rules (--foreign, --longest, --loose, --least)."
        )
    linked = _linked_entities(remaining.triples)
    stay = linked.union(*pairs)
    entities = [entity for entity in name if entity in stay]
    kinds, coverage = _type_entities(entities, types_found, [source for source, _ in types], pairs)
    names, unnamed = _names(graph, entities, name, pairs)
    about_entities = _count(name, _gone(stay, split.linked, verdict), entities) | {
        "kept for an equivalence alone": len(stay) - len(linked),
        "with a name of one character": sum(len(name[entity]) == 1 for entity in entities),
    }
    report = {
        "triples": _count(graph.triples, split.dropped, remaining.triples),
        "relations": {"given": len(graph.relations)} | remaining.list_relations(),
        "equivalences": _count(split.same, apart, pairs),
        "entities": about_entities,
        "names": _count(graph.names, unnamed, names),
        "types": coverage,
    }
    manifest = {key: graph.manifest.get(key, "not stated") for key in FACTS}
    return KnowledgeGraph.from_rows(
        {
            "entities": [(entity, name[entity], kinds[entity]) for entity in entities],
            "names": names,
            "definitions": [row for row in graph.rows("definitions") if row[0] in stay],
            "triples": remaining.triples,
            "equivalences": [(a, relation, b) for (a, b), relation in pairs.items()],
        },
        manifest | {"refined": report},
    )


def _judge_entities(
    graph: KnowledgeGraph,
    triples: Sequence[Triple],
    types: Sequence[tuple[str, KnowledgeGraph]],
    rules: Refining,
) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """(entity -> its type and what said it, entity -> the rule by which it is none or "")."""
    name = dict(graph.rows("entities", "id", "name"))
    types_given = graph.rows("entities", "id", "type")
    own_types = {entity: "" if kind == UNKNOWN else kind for entity, kind in types_given}
    types_found = _known_types(name, own_types, vote_types(triples, own_types, rules.share), types)
    heads = {head for head, _, _ in triples}
    verdict = {
        entity: no_entity(
            entity_name, types_found[entity][0], entity in heads, rules.longest, rules.foreign
        )
        for entity, entity_name in name.items()
    }
    return types_found, verdict


def _count(rows: Sized, dropped: Counter[str], remaining: Sized) -> dict[str, Any]:
    """What the rules did to a part, for the report."""
    return {"given": len(rows), "dropped": dict(dropped), "kept": len(remaining)}


class _Split(NamedTuple):
    """The triples of a graph, each once, and its equivalences; the entities that are in any, and
    the triples that are dropped, by reason."""

    triples: list[Triple]
    same: list[Triple]
    linked: set[str]
    dropped: Counter[str]


def _split_triples(graph: KnowledgeGraph, equivalent: Sequence[str]) -> _Split:
    """The triples of a graph without self-loops and duplicates; those of equivalence relations
    become equivalences."""
    rows: dict[Triple, None] = {}
    same: list[Triple] = list(graph.rows("equivalences"))
    dropped: Counter[str] = Counter()
    wanted = set(equivalent)
    for row in graph.rows("triples"):
        if row[0] == row[2]:
            dropped["self-loops"] += 1
        elif row in rows:
            dropped["duplicates"] += 1
        elif row[1] in wanted:
            dropped["of an equivalence relation"] += 1
            same.append(row)
        else:
            rows[row] = None
    linked = _linked_entities(graph.rows("triples")) | _linked_entities(same)
    return _Split(list(rows), same, linked, dropped)


def _linked_entities(triples: Iterable[Triple]) -> set[str]:
    """The heads and tails of triples."""
    linked: set[str] = set()
    for head, _, tail in triples:
        linked.update((head, tail))
    return linked


def _equivalent_pairs(
    same: Sequence[Triple], name: dict[str, str], verdict: dict[str, str]
) -> tuple[dict[tuple[str, str], str], Counter[str]]:
    """({(first, second): relation} of two entities, in the graph's order; what is dropped)."""
    order = {entity: place for place, entity in enumerate(name)}
    pairs: dict[tuple[str, str], str] = {}
    dropped: Counter[str] = Counter()
    for head, relation, tail in same:
        first, second = sorted((head, tail), key=order.__getitem__)
        broken = verdict[first] or verdict[second]
        if comparable(name[first]) == comparable(name[second]):
            dropped["of a name with itself, as linking compares them"] += 1
        elif broken:
            dropped[f"with a side that is no entity: {broken}"] += 1
        elif not (is_chinese(name[first]) and is_chinese(name[second])):
            dropped["with a side that is no entity: script"] += 1
        elif (first, second) in pairs:
            dropped["that stand there twice, in either direction"] += 1
        else:
            pairs[first, second] = relation
    return pairs, dropped


def _between_entities(
    split: _Split, verdict: dict[str, str], pairs: Collection[tuple[str, str]]
) -> list[Triple]:
    """The triples of two entities that are not equivalent; the others are counted as dropped."""
    remaining: list[Triple] = []
    for head, relation, tail in split.triples:
        if broken := verdict[head] or verdict[tail]:
            split.dropped[f"with a side that is no entity: {broken}"] += 1
        elif (head, tail) in pairs or (tail, head) in pairs:
            split.dropped["between the two sides of an equivalence"] += 1
        else:
            remaining.append((head, relation, tail))
    return remaining


class _Kept(NamedTuple):
    """The triples that stay; the relations that lead to free text, and those seen too rarely."""

    triples: list[Triple]
    text: set[str]
    rare: set[str]

    def list_relations(self) -> dict[str, list[str]]:
        """The relations that are dropped, for the report."""
        return {"free text": sorted(self.text), "seen too rarely": sorted(self.rare)}


def _without_relations(
    triples: list[Triple],
    dropped: Counter[str],
    types_found: dict[str, tuple[str, str]],
    rules: Refining,
) -> _Kept:
    """The triples of relations between entities that are seen often enough; `dropped` counts the
    others."""
    seen = Counter(relation for _, relation, _ in triples)
    named_out = set(rules.without)
    dropped["of a relation that leads to no medical entities"] = sum(
        seen[relation] for relation in named_out
    )
    remaining = [row for row in triples if row[1] not in named_out]
    singles = loose_tails(remaining, {entity: kind for entity, (kind, _) in types_found.items()})
    once = Counter(relation for _, relation, tail in remaining if tail in singles)
    text = {relation for relation, count in once.items() if count > rules.loose * seen[relation]}
    dropped["of a relation that leads to free text"] = sum(seen[relation] for relation in text)
    remaining = [row for row in remaining if row[1] not in text]
    dropped["with a tail of no type that stands there once"] = sum(
        tail in singles for _, _, tail in remaining
    )
    remaining = [row for row in remaining if row[2] not in singles]
    seen = Counter(relation for _, relation, _ in remaining)
    rare = {relation for relation, count in seen.items() if count < rules.least}
    dropped["of a relation seen too rarely"] = sum(seen[relation] for relation in rare)
    return _Kept([row for row in remaining if row[1] not in rare], text, rare)


def _gone(stay: set[str], linked: set[str], verdict: dict[str, str]) -> Counter[str]:
    """Entities that are left out, by reason."""
    gone: Counter[str] = Counter()
    for entity, broken in verdict.items():
        if entity in stay:
            continue
        if entity not in linked:
            gone["isolated in the source"] += 1
        else:
            gone[f"no entity: {broken}" if broken else "isolated by the rules"] += 1
    return gone


def _names(
    graph: KnowledgeGraph,
    entities: Sequence[str],
    name: dict[str, str],
    pairs: Iterable[tuple[str, str]],
) -> tuple[list[tuple[str, ...]], Counter[str]]:
    """(rows of the names that entities keep, their own behind those of the graph; what is
    dropped)."""
    stay, equals = set(entities), defaultdict[str, set[str]](set)
    for first, second in pairs:
        equals[first].add(comparable(name[second]))
        equals[second].add(comparable(name[first]))
    named: dict[tuple[str, str], tuple[str, ...]] = {}
    dropped: Counter[str] = Counter()
    for row in graph.rows("names"):
        entity, text = row[0], row[1]
        if entity not in stay:
            dropped["of entities that are left out"] += 1
        elif text != name[entity] and not is_chinese(text):
            dropped["of another script"] += 1
        elif text != name[entity] and comparable(text) in equals[entity]:
            dropped["that an equivalent entity has for its own"] += 1
        elif (entity, text) in named:
            dropped["that stand there twice"] += 1
        else:
            named[entity, text] = row
    preferred = ((entity, name[entity]) for entity in entities)
    own_rows = [
        (entity, text, "preferred", "zh" if is_chinese(text) else "en", "kg.refine")
        for entity, text in preferred
        if (entity, text) not in named
    ]
    return [*named.values(), *own_rows], dropped


def _known_types(
    name: dict[str, str],
    own_types: dict[str, str],
    by_relation: dict[str, str],
    types: Sequence[tuple[str, KnowledgeGraph]],
) -> dict[str, tuple[str, str]]:
    """entity -> (type, what said it), the first that says something; ("", "") where nothing
    does."""
    types_found = {entity: (kind, "their own") for entity, kind in own_types.items() if kind}
    types_found |= {entity: (kind, "relations") for entity, kind in by_relation.items()}
    for source, graph in types:
        kinds = types_by_name(graph)
        types_found |= {
            entity: (kinds[entity_name], source)
            for entity, entity_name in name.items()
            if entity not in types_found and entity_name in kinds
        }
    return {entity: types_found.get(entity, ("", "")) for entity in name}


def _type_entities(
    entities: Sequence[str],
    types_found: dict[str, tuple[str, str]],
    sources: Sequence[str],
    pairs: dict[tuple[str, str], str],
) -> tuple[dict[str, str], dict[str, int]]:
    """(type of each entity, entities by what said it, in the order in which it is asked)."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        for first, other in (pair, pair[::-1]):
            if types_found[other][0] and not types_found[first][0]:
                votes[first][types_found[other][0]] += 1
    by_equivalents = count_votes(votes)
    kinds: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for entity in entities:
        kind, source = types_found[entity]
        if not kind and entity in by_equivalents:
            kind, source = by_equivalents[entity], "equivalents"
        kinds[entity] = kind or UNKNOWN
        counts[source if kind else UNKNOWN] += 1
    order = ["their own", "relations", *sources, "equivalents", UNKNOWN]
    return kinds, {source: counts[source] for source in order}


def format_report(report: dict[str, Any]) -> str:
    """The report of a refined graph's manifest as lines."""
    lines = []
    for part in ("triples", "equivalences", "entities", "names"):
        rows = report[part]
        lines.append(f"{part}: {rows['kept']:,} of {rows['given']:,}")
        lines += [
            f"  left out: {count:,} {reason}" for reason, count in rows["dropped"].items() if count
        ]
        lines += [
            f"  {count:,} {what}"
            for what, count in rows.items()
            if what not in ("given", "dropped", "kept")
        ]
    relations = report["relations"]
    lines.append(
        f"relations: {len(relations['free text'])} lead to free text,"
        f" {len(relations['seen too rarely'])} were seen too rarely, of {relations['given']} and"
        " what became equivalences"
    )
    total = max(sum(report["types"].values()), 1)
    lines.append("types, by what said them:")
    lines += [
        f"  {count:,} ({100 * count / total:.1f} %) {source}"
        for source, count in report["types"].items()
    ]
    return "\n".join(lines)


def refine(
    graph: Path,
    out: Path,
    types: Sequence[Path] = (),
    fresh: bool = False,
    rules: Refining = Refining(),
) -> KnowledgeGraph:
    """Prepare a Chinese graph for training: types, relations between entities, equivalences apart.

    Args:
        graph: Folder of a knowledge graph.
        out: Folder for the refined graph.
        types: Graphs that have more types, with commas.
        fresh: Refine again even if the same graph is there.
    """
    folders = split_commas(list(map(str, types)))
    others = [Path(folder) for folder in folders]
    check_no_input(out, [graph, *others])
    recipe = {
        "reader": "kg.refine",
        "options": asdict(rules),
        "inputs": {
            "graph": fingerprint(graph),
            "types": [fingerprint(folder) for folder in others],
        },
    }
    if GRAPH.is_kept(out, recipe, fresh):
        result = KnowledgeGraph.load(out)
    else:
        typed = [(folder.name, KnowledgeGraph.load(folder)) for folder in others]
        result = refine_graph(KnowledgeGraph.load(graph), typed, rules)
        result.manifest |= recipe
        result.save(out)
    print(format_report(result.manifest["refined"]))
    print(f"{out}: " + ", ".join(f"{count:,} {part}" for part, count in result.counts().items()))
    return result
