"""Ontologies in OBO text (.obo) and OBO-graph JSON (.json), plain or .gz -> KnowledgeGraph.

Formats: OBO Flat File Format 1.4, https://owlcollab.github.io/oboformat/doc/GO.format.obo-1_4.html,
and OBO Graphs, https://github.com/geneontology/obographs. OBO 1.0's `exact_synonym:` tags are read
too.

    names       the label as `preferred`; synonyms by scope (exact, narrow, broad, related) unless
                their type says more (layperson, abbreviation, plural, uk_spelling, obsolete). A
                synonym without a scope is `related`
    alternatives  in the manifest, {id: [alternative id, …]}: alt_id, and the id of an obsolete term
    with one replaced_by equivalences  xrefs between two terms of the file; other xrefs are counted
    triples     is_a, and each relationship under the name of its [Typedef] or, in JSON, its
                predicate's label, with blanks as `_`; without one, under its id
    left out    obsolete terms, terms without a label, edges to terms that are not (or no longer) in
                the file, and every line or value of a kind that is not read (xref, subset,
                intersection_of, …): counted under `left_out` in the manifest

A line may end with a comment that begins with an unescaped `!` outside of quotes. A term is
obsolete by `is_obsolete: true` or by the property owl:deprecated. A synonym of another scope or
predicate (hasAbbreviation) is `related`, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.files import InputError
from core.reading import unpacked_name
from kg.build.obo_json import parse_obo_json
from kg.build.obo_text import parse_obo_text
from kg.build.ontology import Ontology, Term
from kg.graph import KnowledgeGraph


def parse_terms(path: str | Path) -> Ontology:
    """Every term of an .obo, .obo.gz, .json or .json.gz file, obsolete ones included.

    Raises InputError naming path:line (JSON: path and node) when the file is missing or broken.
    """
    path = Path(path)
    form = Path(unpacked_name(path)).suffix.lower()
    if form not in (".obo", ".json"):
        raise InputError(
            f"{path}: expected an .obo or .json file (.gz too). Rename it, or choose another"
            " source."
        )
    return parse_obo_text(path) if form == ".obo" else parse_obo_json(path)


def alternatives_of(ontology: Ontology) -> dict[str, list[str]]:
    """{kept term: its other ids}: its alt_ids, and the obsolete terms that it replaces, directly or
    through others."""
    current = {term.id for term in ontology.current_terms()}
    alternatives: dict[str, dict[str, None]] = {}
    for term in ontology.terms.values():
        if term.id in current:
            means, ids = term.id, term.alternatives
        else:
            means, ids = _replacement(term, ontology, current), [term.id, *term.alternatives]
        if means:
            alternatives.setdefault(means, {}).update(
                (old_id, None) for old_id in ids if old_id not in current
            )
    return {term: list(ids) for term, ids in alternatives.items() if ids}


def _replacement(term: Term, ontology: Ontology, current: set[str]) -> str:
    """The kept term that an obsolete one is replaced by, or nothing: where there are two, neither
    is the same."""
    seen = {term.id}
    while len(term.replaced_by) == 1:
        other = term.replaced_by[0]
        if other in current:
            return other
        if other in seen or other not in ontology.terms:
            break
        seen.add(other)
        term = ontology.terms[other]
    return ""


def graph(ontology: Ontology, source: str, types: dict[str, str] | None = None) -> KnowledgeGraph:
    """The kept terms as a graph. `types` has entity types by id; a term it lacks has its namespace
    as type, or the file's default namespace, or its id's prefix."""
    current = {term.id: term for term in ontology.current_terms()}
    edges, dangling = _edges(current)
    same, xrefs = _same(current)
    own_types, fallback = types or {}, ontology.namespace
    terms = ontology.terms.values()
    left_out = {
        "obsolete terms": sum(term.obsolete for term in terms),
        "terms without a label": sum(not term.label and not term.obsolete for term in terms),
        "edges to terms left out": dangling,
        "xrefs to other vocabularies": xrefs,
    }
    return KnowledgeGraph.from_rows(
        {
            "entities": [
                (i, t.label, own_types.get(i) or t.namespace or fallback or i.split(":")[0])
                for i, t in current.items()
            ],
            "names": _name_rows(current),
            "definitions": [(i, t.definition) for i, t in current.items() if t.definition],
            "triples": edges,
            "equivalences": [(term_id, "xref", other) for term_id, other in same],
        },
        manifest={
            "source": source,
            "version": ontology.version or "not stated in the file",
            "licence": ontology.licence or "not stated in the file",
            "alternatives": alternatives_of(ontology),
            "left_out": left_out | dict(+ontology.left_out),
        },
    )


def _name_rows(current: dict[str, Term]) -> dict[tuple[str, ...], None]:
    """Rows of names, each once: the label of a term, then its synonyms. The source of a name is the
    prefix of its term's id."""
    rows: dict[tuple[str, ...], None] = {}
    for i, term in current.items():
        origin = ("en", i.split(":")[0])
        rows[i, term.label, "preferred", *origin] = None
        rows.update(((i, name, kind, *origin), None) for name, kind in term.names if name)
    return rows


def _edges(current: dict[str, Term]) -> tuple[dict[tuple[str, str, str], None], int]:
    """(edges between kept terms, each once; how many lead to others)."""
    triples: dict[tuple[str, str, str], None] = {}
    dangling = 0
    for i, term in current.items():
        for relation, other in term.edges:
            if other in current:
                triples[i, relation, other] = None
            else:
                dangling += 1
    return triples, dangling


def _same(current: dict[str, Term]) -> tuple[dict[tuple[str, str], None], int]:
    """(pairs of kept terms that an xref joins, each once; how many xrefs lead to others)."""
    same: dict[tuple[str, str], None] = {}
    others = 0
    for i, term in current.items():
        for other in term.xrefs:
            if other in current and other != i:
                same[min(i, other), max(i, other)] = None
            else:
                others += 1
    return same, others


def files(path: str | Path) -> list[Path]:
    """The files that :func:`read` reads."""
    return [Path(path)]


def read(path: str | Path, type: str | None = None) -> KnowledgeGraph:
    """The ontology in `path`.

    Raises InputError naming path:line (JSON: path and node) when the file is missing or broken.

    Args:
        type: Type of every entity. Default: a term's namespace.
    """
    ontology = parse_terms(path)
    types = {term.id: type for term in ontology.current_terms()} if type else None
    return graph(ontology, f"OBO file {Path(path).name}", types)


def texts_of(ontology: Ontology) -> Iterator[tuple[str, str, str]]:
    """(id, "definition" or "comment", text) of the kept terms."""
    for term in ontology.current_terms():
        if term.definition:
            yield term.id, "definition", term.definition
        yield from ((term.id, "comment", comment) for comment in term.comments if comment)


def texts(path: str | Path) -> Iterator[tuple[str, str, str]]:
    """(id, kind, text) of every definition and comment, kind "definition" or "comment". Raises
    InputError as read."""
    return texts_of(parse_terms(path))
