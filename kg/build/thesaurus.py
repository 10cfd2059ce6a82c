"""Names that mean the same, by entity: kepl graph thesaurus --graph GRAPH [--pairs FILE ...]
--out FOLDER

    thesaurus.parquet   entity (an id of the graph), name, kind; a row for every name of each entity
                        that has two or more
    its manifest        counts

The names of an entity, each with the first kind that has it:
    own          its preferred name
    alias        its other names in the graph
    equivalence  the preferred name of an entity that an equivalence joins to it; kind "brand" where
                 the other is a trade name of it (商品名) and "generic" where it is the generic name
                 (通用名), so that a reader may leave these out
    pair         from a table of the user's: mention and standard term, where one of the two is a
                 name of the entity

Equivalences are followed one step. Longer chains drift: a trade name has the generic name of its
substance, that has all trade names of other makers, and aliases of sources that disagree join what
is only alike. From the generic name all its trade names are one step away; two aliases of one
disease find each other by their own pair or not at all.

Names are compared as kg.build.merge compares them (NFKC, lower case, without blanks); equal ones are one.
Left out and counted: names of one character; ambiguous names, which belong to entities that no
equivalence and no pair joins; pairs without a name of the graph.

--pairs accepts TSV (mention, standard term; several terms between ## make the row no pair) and
CHIP-CDN's JSON (text, normalized_result). Only rows with exactly one term count: of several, none
means what the mention does.
"""  # noqa: E501

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.arrays import read_table
from core.artifact import Artifact
from core.files import InputError
from core.json_files import parse_json
from core.reading import excerpt, lines, read_text
from kg.build.merge import comparison_key
from kg.graph import KnowledgeGraph, fingerprint

FORMAT = 1
THESAURUS = Artifact(
    "thesaurus", "kepl graph thesaurus --help", FORMAT, verified="thesaurus.parquet"
)
SCHEMA = pa.schema([("entity", pa.string()), ("name", pa.string()), ("kind", pa.string())])
OWN, ALIAS, EQUIVALENCE, BRAND, GENERIC, PAIR = (
    "own",
    "alias",
    "equivalence",
    "brand",
    "generic",
    "pair",
)
#: relation -> kind of the tail's name for the head, and of the head's for the tail
TRADE = {"商品名": (BRAND, GENERIC), "通用名": (GENERIC, BRAND)}
Names = dict[str, list[tuple[str, str]]]  # entity -> (name, kind) of each of its names
SEPARATOR = "##"  # between several standard terms


def read_pairs(path: str | Path) -> Iterator[tuple[str, list[str]]]:
    """(mention, standard terms) of each row of a TSV, or of each object of CHIP-CDN's JSON (.json).

    Raises InputError naming the line, or the number of the object from 1.
    """
    path = Path(path)
    if path.name.removesuffix(".gz").endswith(".json"):
        yield from _chip_cdn(path)
        return
    for number, line in lines(path):
        if not line.strip():
            continue
        values = [value.strip() for value in line.split("\t")]
        if len(values) != 2 or not all(values):
            raise InputError(
                f"{path}:{number}: expected a mention and its standard term, separated by a tab,"
                f" got {excerpt(line)}. Fix the line."
            )
        yield values[0], _terms(values[1])


def _terms(text: str) -> list[str]:
    return [term.strip() for term in text.split(SEPARATOR) if term.strip()]


def _chip_cdn(path: Path) -> Iterator[tuple[str, list[str]]]:
    rows = parse_json(read_text(path), str(path))
    if not isinstance(rows, list):
        raise InputError(
            f"{path}: expected a list of objects with text and normalized_result, got"
            f" {type(rows).__name__}."
        )
    for number, row in enumerate(rows, 1):
        fields = row if isinstance(row, dict) else {}
        mention, terms = fields.get("text"), fields.get("normalized_result")
        if (
            not isinstance(mention, str)
            or not isinstance(terms, str)
            or not mention.strip()
            or not terms.strip()
        ):
            raise InputError(
                f"{path}: object {number}: expected strings under text and normalized_result, got"
                f" {excerpt(row)}. Fix it or leave it out."
            )
        yield mention.strip(), _terms(terms)


def rows(
    graph: KnowledgeGraph, pairs: Iterable[tuple[str, list[str]]] = ()
) -> tuple[list[tuple[str, str, str]], dict[str, int]]:
    """((entity, name, kind) of the thesaurus, what was left out), in the graph's order."""
    left_out: Counter[str] = Counter()
    names = _own_names(graph)
    owners = _bearers(names)
    joined: dict[str, set[str]] = defaultdict(set)
    _add_equivalences(graph, names, joined)
    _add_pairs(pairs, owners, names, joined, left_out)
    ambiguous = {
        name
        for name, entities in _bearers(names).items()
        if len(entities) > 1 and not _are_related(entities, owners.get(name), joined)
    }
    new_rows = []
    for entity, own_names in names.items():
        by_form: dict[str, tuple[str, str]] = {}
        for name, kind in own_names:
            by_form.setdefault(comparison_key(name), (name, kind))
        for name in [name for name in by_form if len(name) < 2 or name in ambiguous]:
            left_out["names of one character" if len(name) < 2 else "ambiguous names"] += 1
            del by_form[name]
        if len(by_form) > 1:
            new_rows += [(entity, name, kind) for name, kind in by_form.values()]
    return new_rows, dict(left_out)


def _own_names(graph: KnowledgeGraph) -> Names:
    """The names of each entity in the graph, the preferred one first, in the graph's order."""
    names: Names = {entity: [(name, OWN)] for entity, name in graph.rows("entities", "id", "name")}
    for entity, name in graph.rows("names", "id", "name"):
        names[entity].append((name, ALIAS))
    return names


def _bearers(names: Names) -> dict[str, set[str]]:
    """Name, as it is compared -> the entities that have it."""
    bearers: dict[str, set[str]] = defaultdict(set)
    for entity, own_names in names.items():
        for name, _ in own_names:
            bearers[comparison_key(name)].add(entity)
    return bearers


def _add_equivalences(graph: KnowledgeGraph, names: Names, joined: dict[str, set[str]]) -> None:
    """Add to the names of each entity the preferred ones of its equivalents, and these to what it
    is joined to."""
    for head, relation, tail in graph.rows("equivalences"):
        of_tail, of_head = TRADE.get(relation, (EQUIVALENCE, EQUIVALENCE))
        names[head].append((names[tail][0][0], of_tail))
        names[tail].append((names[head][0][0], of_head))
        joined[head].add(tail)
        joined[tail].add(head)


def _add_pairs(
    pairs: Iterable[tuple[str, list[str]]],
    owners: dict[str, set[str]],
    names: Names,
    joined: dict[str, set[str]],
    left_out: Counter[str],
) -> None:
    """Add each side of a user's pair to the names of the entities that have the other one."""
    for mention, terms in pairs:
        sides = (comparison_key(mention), comparison_key(terms[0])) if len(terms) == 1 else None
        if sides is None:
            left_out["rows with several standard terms or none"] += 1
        elif sides[0] == sides[1]:
            left_out["pairs of equal names"] += 1
        elif not (owners.get(sides[0]) or owners.get(sides[1])):
            left_out["pairs that no name of the graph is in"] += 1
        else:
            here, right = (sorted(owners.get(side, ())) for side in sides)
            for entity in right:
                names[entity].append((mention, PAIR))
                joined[entity].update(here)
            for entity in here:
                names[entity].append((terms[0], PAIR))
                joined[entity].update(right)


def _are_related(entities: set[str], owners: set[str] | None, joined: dict[str, set[str]]) -> bool:
    """Whether one of `entities` (or of those whose own name it is) is joined to all the others by
    an equivalence or a pair.

    So the generic name that many trade names share is not ambiguous: they all lead to the one
    entity that is called so.
    """
    return any(entities - {centre} <= joined[centre] for centre in owners or entities)


class Thesaurus:
    """names(entity): all that it is called, none if there is one only; kinds(entity): how each name
    is known."""

    def __init__(self, table: pa.Table) -> None:
        self._names: dict[str, dict[str, str]] = defaultdict(dict)
        for entity, name, kind in zip(
            *(table[column].to_pylist() for column in SCHEMA.names), strict=True
        ):
            self._names[entity][name] = kind

    @classmethod
    def load(cls, folder: str | Path) -> Thesaurus:
        """The thesaurus in `folder`, which may be empty. Raises InputError when there is none or it
        is not whole."""
        file = Path(folder) / "thesaurus.parquet"
        THESAURUS.read(folder)
        return cls(read_table(file, schema=SCHEMA, again="Make the thesaurus again."))

    def __len__(self) -> int:
        """Entities with two names or more."""
        return len(self._names)

    def names(self, entity: str) -> list[str]:
        """The names of `entity`, its own first unless that is ambiguous; none for one that has no
        other."""
        return list(self._names.get(entity, ()))

    def kinds(self, entity: str) -> dict[str, str]:
        """Name -> kind, as :meth:`names` has them."""
        return dict(self._names.get(entity, {}))


def build_thesaurus(graph: Path, out: Path, pairs: Sequence[Path] = ()) -> None:
    """Collect the names of each entity that mean the same.

    Args:
        graph: Folder of a knowledge graph.
        out: Folder for the thesaurus.
        pairs: Tables of mention and standard term: TSV, or CHIP-CDN's JSON.
    """
    loaded = KnowledgeGraph.load(graph)
    new_rows, left_out = rows(loaded, [row for path in pairs for row in read_pairs(path)])
    types = dict(loaded.rows("entities", "id", "type"))
    table = pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in new_rows], schema=SCHEMA
    )
    entities = list(dict.fromkeys(entity for entity, _, _ in new_rows))
    kinds = dict(Counter(kind for _, _, kind in new_rows).most_common())
    counts = dict(Counter(types[entity] for entity in entities).most_common())
    manifest = {
        "format": FORMAT,
        "graph": fingerprint(graph),
        "pairs": [Path(path).name for path in pairs],
        "entities": len(entities),
        "names": len(new_rows),
        "kinds": kinds,
        "types": counts,
        "left_out": left_out,
    }
    with THESAURUS.create(out, manifest) as folder:
        pq.write_table(table, folder / "thesaurus.parquet", compression="zstd")
    print(f"{out}: {len(entities):,} entities with {len(new_rows):,} names")
    if not entities:
        print(
            "warning: the thesaurus is empty: no entity of this graph has a second name. Nothing"
            " can be replaced by a synonym."
        )
    for what, numbers in (("kind", kinds), ("type", counts)):
        if numbers:
            counts_in_words = (f"{count:,} {name or '(none)'}" for name, count in numbers.items())
            print(f"by {what}: " + ", ".join(counts_in_words))
    for reason, count in left_out.items():
        print(f"left out: {count:,} {reason}")
