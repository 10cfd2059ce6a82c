"""Ontologies in OBO-graph JSON (.json): the terms of a file, node by node."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from core.files import InputError
from core.json_files import parse_json
from core.reading import read_text
from kg.build.ontology import (
    SCOPES,
    TYPES,
    UNKNOWN_SCOPE,
    UNKNOWN_TYPE,
    Ontology,
    Term,
    curie,
    kind_of,
    one_line,
)

#: parts of a graph that are not read
AXIOMS = (
    "equivalentNodesSets",
    "logicalDefinitionAxioms",
    "domainRangeAxioms",
    "propertyChainAxioms",
)


def _part(value: Any, key: str, kind: type, where: str) -> Any:
    """value[key] of the wanted JSON type, or that type's empty value when the key is absent or
    null."""
    if not isinstance(value, dict):
        raise InputError(
            f"{where}: expected an object with the key {key!r}, got {type(value).__name__}. Fix the"
            " file."
        )
    part = value.get(key)
    if part is None:
        return kind()
    if not isinstance(part, kind):
        raise InputError(
            f"{where}: expected {kind.__name__} under {key!r}, got {type(part).__name__}. Fix the"
            " file."
        )
    return part


def _require_value(value: Any, key: str, where: str) -> str:
    text = _part(value, key, str, where)
    if not text:
        raise InputError(f"{where}: the key {key!r} is missing or empty. Fix the file.")
    return text


def _pairs(meta: Any, where: str) -> list[tuple[str, str]]:
    pairs = _part(meta, "basicPropertyValues", list, where)
    return [
        (curie(_require_value(pair, "pred", where)), str(pair.get("val", ""))) for pair in pairs
    ]


def _properties(meta: Any, where: str) -> dict[str, str]:
    return dict(_pairs(meta, where))


def _term_of(node: dict[str, Any], name: str, where: str, left_out: Counter[str]) -> Term:
    meta = _part(node, "meta", dict, where)
    term = Term(
        name,
        one_line(_part(node, "lbl", str, where)),
        obsolete=_part(meta, "deprecated", bool, where),
    )
    properties = _properties(meta, where)
    term.namespace = properties.pop("hasOBONamespace", "")
    term.obsolete |= properties.pop("deprecated", "").lower() == "true"
    left_out["properties of terms"] += len(properties.keys() - {"hasAlternativeId", "IAO:0100001"})
    left_out["subsets of terms"] += len(_part(meta, "subsets", list, where))
    term.definition = _part(_part(meta, "definition", dict, where), "val", str, where).strip()
    term.comments = [str(comment).strip() for comment in _part(meta, "comments", list, where)]
    for predicate, value in _pairs(meta, where):
        if predicate == "hasAlternativeId":
            term.alternatives.append(curie(value))
        elif predicate == "IAO:0100001":  # term replaced by
            term.replaced_by.append(curie(value))
    term.xrefs = [_require_value(xref, "val", where) for xref in _part(meta, "xrefs", list, where)]
    for synonym in _part(meta, "synonyms", list, where):
        predicate = curie(_require_value(synonym, "pred", where))
        scope = SCOPES.get(predicate.removeprefix("has").removesuffix("Synonym").upper())
        if scope is None:
            scope = "related"
            left_out[UNKNOWN_SCOPE.format(predicate)] += 1
        synonym_type = curie(_part(synonym, "synonymType", str, where))
        if synonym_type and synonym_type.lower() not in TYPES:
            left_out[UNKNOWN_TYPE.format(synonym_type)] += 1
        term.names.append(
            (one_line(_require_value(synonym, "val", where)), kind_of(scope, synonym_type))
        )
    return term


def parse_obo_json(path: Path) -> Ontology:
    content = parse_json(read_text(path), str(path), "Fetch the file again.")
    graphs = _part(content, "graphs", list, str(path))
    if not graphs:
        raise InputError(f"{path}: no `graphs` in the file. Give an ontology in OBO-graph JSON.")
    terms: dict[str, Term] = {}
    predicates: dict[str, str] = {}
    edges: list[tuple[str, str, str]] = []
    left_out: Counter[str] = Counter()
    for number, graph in enumerate(graphs):
        here = f"{path}: graphs[{number}]"
        properties = _properties(_part(graph, "meta", dict, here), f"{here}.meta")
        namespace = properties.get("default-namespace", "")
        seen: set[str] = set()
        for place, node in enumerate(_part(graph, "nodes", list, here)):
            iri = _require_value(node, "id", f"{here}.nodes[{place}]")
            where = f"{path}: node {iri}"
            if iri in seen:
                raise InputError(
                    f"{where}: the id occurs twice in graphs[{number}]. Take one of them out."
                )
            seen.add(iri)
            kind = _part(node, "type", str, where)
            if kind == "PROPERTY":
                predicates[iri] = _part(node, "lbl", str, where) or predicates.get(iri, "")
            elif kind in ("CLASS", ""):
                name = curie(iri)
                # A term that several graphs of the file name is taken from the first that labels
                # it.
                if name not in terms or not terms[name].label:
                    terms[name] = _term_of(node, name, where, left_out)
                    terms[name].namespace = terms[name].namespace or namespace
            else:
                left_out[f"nodes of type {kind}"] += 1
        for key in AXIOMS:
            left_out[key] += len(_part(graph, key, list, here))
        for place, edge in enumerate(_part(graph, "edges", list, here)):
            where = f"{here}.edges[{place}]"
            head, predicate, tail = (_require_value(edge, k, where) for k in ("sub", "pred", "obj"))
            edges.append((head, predicate, tail))
    if not terms:
        raise InputError(f"{path}: no CLASS nodes in the file. Give an ontology in OBO-graph JSON.")
    for head, predicate, tail in edges:
        if head in predicates or predicate == "subPropertyOf":
            left_out["edges between relations"] += 1
            continue
        label = "_".join(predicates.get(predicate, "").split()) or curie(predicate)
        terms.setdefault(curie(head), Term(curie(head))).edges.append((label, curie(tail)))
    meta = _part(graphs[0], "meta", dict, f"{path}: graphs[0]")
    header = _properties(meta, f"{path}: graphs[0].meta")
    stated = header.get("versionInfo") or _part(meta, "version", str, str(path))
    version = stated or header.get("date", "")
    return Ontology(terms, version, _find_licence(header), left_out=left_out)


def _find_licence(header: dict[str, str]) -> str:
    """The property of that name, else one whose value speaks of a licence."""
    by_predicate = (v for key, v in header.items() if key.rpartition("/")[2] == "license")
    return next(by_predicate, "") or next((v for v in header.values() if "licen" in v.lower()), "")
