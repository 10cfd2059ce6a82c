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

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.files import InputError
from core.json_files import parse_json
from core.reading import excerpt, lines, read_text, unpacked_name
from kg.graph import KnowledgeGraph

SCOPES = {"EXACT": "exact", "NARROW": "narrow", "BROAD": "broad", "RELATED": "related"}
#: Synonym types that say more than the scope does. HPO's own names, and the OBO Metadata
#: Ontology's numbers for them.
TYPES = {
    "layperson": "layperson",
    "abbreviation": "abbreviation",
    "acronym": "abbreviation",
    "plural_form": "plural",
    "uk_spelling": "uk_spelling",
    "obsolete_synonym": "obsolete",
    "omo:0003000": "abbreviation",
    "omo:0003003": "layperson",
    "omo:0003004": "plural",
    "omo:0003005": "uk_spelling",
    "omo:0003012": "abbreviation",
}
UNKNOWN_SCOPE = "synonyms of an unknown scope, taken as related ({})"
UNKNOWN_TYPE = "types of synonyms that are not used ({})"
#: words that a property_value of the header begins with
LICENCES = (["terms:license"], ["dcterms:license"], ["dc:license"])
ESCAPES = {"n": "\n", "W": " ", "t": "\t"}
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"\s*')
SAID = re.compile(r'(?:"(?:[^"\\]|\\.)*"|\\.|[^!])*')  # a line without its comment
# a property_value
DEPRECATED = re.compile(r'(?:owl:deprecated|\S*owl#deprecated)\s+"?true\b', re.I)
MODIFIERS = re.compile(r'(?<!\\)\{\s*[\w:.-]+="(?:[^"\\]|\\.)*"[^{}]*\}\s*$')


@dataclass(slots=True)
class Term:
    """One term; `names` holds (name, kind) without the label, `edges` (relation, other id)."""

    id: str
    label: str = ""
    namespace: str = ""
    definition: str = ""
    comments: list[str] = field(default_factory=list)
    names: list[tuple[str, str]] = field(default_factory=list)
    edges: list[tuple[str, str]] = field(default_factory=list)
    obsolete: bool = False
    alternatives: list[str] = field(default_factory=list)  # other ids of the same term
    replaced_by: list[str] = field(default_factory=list)  # of an obsolete term
    xrefs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Ontology:
    """Every term of a file, obsolete ones included, and what its header says."""

    terms: dict[str, Term]
    version: str
    licence: str
    namespace: str = ""
    left_out: Counter[str] = field(default_factory=Counter)  # lines and values that are not read

    def current_terms(self) -> Iterator[Term]:
        """The terms that become entities: labelled and not obsolete."""
        return (term for term in self.terms.values() if term.label and not term.obsolete)


def unescape(text: str) -> str:
    r"""OBO's \" \n \, \: \{ … as the characters they mean."""
    return (
        re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), text)
        if "\\" in text
        else text
    )


def kind_of(scope: str, synonym_type: str) -> str:
    """A name's kind from its scope ("exact") and its type ("layperson", "OMO:0003000", ""), which
    goes first."""
    return TYPES.get(synonym_type.lower(), scope)


def one_line(text: str) -> str:
    return " ".join(text.split())


# OBO text


def _split_quoted(value: str, where: str, tag: str) -> tuple[str, str]:
    """(text between the quotes, rest of the line)."""
    match = QUOTED.match(value)
    if not match:
        raise InputError(
            f'{where}: expected `{tag}: "text" …` with both quotes, got {excerpt(value)}. Fix the'
            " line."
        )
    return unescape(match[1]).strip(), value[match.end() :]


def _synonym(value: str, where: str, scope: str | None, left_out: Counter[str]) -> tuple[str, str]:
    text, rest = _split_quoted(value, where, "synonym")
    words = MODIFIERS.sub("", rest.split("[", 1)[0]).split()
    if scope is None:
        scope = "related"  # the format's default
        if words and words[0].upper() in SCOPES:
            scope = SCOPES[words.pop(0).upper()]
        elif words and words[0].lower() not in TYPES:
            left_out[UNKNOWN_SCOPE.format(words.pop(0))] += 1
    if words and words[0].lower() not in TYPES:
        left_out[UNKNOWN_TYPE.format(words[0])] += 1
    return one_line(text), kind_of(scope, words[0] if words else "")


def _edge(tag: str, value: str, where: str, line: str) -> tuple[str, str]:
    """(relation, other id) of an is_a or relationship line. Raises InputError for another shape."""
    wanted = 1 if tag == "is_a" else 2
    words = re.split(r"(?<!\\)[!{]", value)[0].split()
    if len(words) != wanted:
        shape = "is_a: ID ! name" if wanted == 1 else "relationship: RELATION ID ! name"
        raise InputError(f"{where}: expected `{shape}`, got {excerpt(line)}. Fix the line.")
    return "is_a" if wanted == 1 else words[0], unescape(words[-1])


def _without_comment(line: str) -> str:
    match = SAID.match(line) if "!" in line else None
    return match[0] if match else line


def _logical_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their number; a line that ends in a single backslash continues in the next one."""
    held, start = "", 0
    for number, line in lines(path):
        line = held + line
        start = start or number
        if line.endswith("\\") and (len(line) - len(line.rstrip("\\"))) % 2:
            held = line[:-1]
            continue
        yield start, line
        held, start = "", 0
    if held:
        yield start, held


def _from_text(path: Path) -> Ontology:
    file = _TextFile(path)
    for number, line in _logical_lines(path):
        line = _without_comment(line).strip()
        if line.startswith("["):
            file.open_stanza(line, number)
        elif line:
            file.add_line(line, f"{path}:{number}")
    return file.ontology()


class _TextFile:
    """What the lines of an OBO file have said so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, str] = {}
        self.licence = ""
        self.terms: dict[str, Term] = {}
        self.left_out: Counter[str] = Counter()
        self.stanza, self.opened_at = "header", 0
        self.term: Term | None = None  # None inside [Term] until its id has been read
        self.relation, self.relations = "", dict[str, str]()  # names of relations, by id

    def open_stanza(self, line: str, number: int) -> None:
        """Begin [Term], [Typedef] or another stanza. Raises InputError where the last [Term] has no
        id, and for a broken line."""
        if self.stanza == "Term" and self.term is None:
            raise self._nameless("Add it or take the stanza out.", "")
        if not line.endswith("]"):
            raise InputError(
                f"{self.path}:{number}: expected a stanza like [Term], got {excerpt(line)}. Fix the"
                " line."
            )
        self.stanza, self.opened_at, self.term = line[1:-1], number, None
        self.left_out[f"[{self.stanza}] stanzas"] += self.stanza not in ("Term", "Typedef")

    def _nameless(self, fix: str, cause: str) -> InputError:
        where = f"{self.path}:{self.opened_at}"
        return InputError(f"{where}: this [Term] has no `id:` line{cause}. {fix}")

    def add_line(self, line: str, where: str) -> None:
        """Add what a line says. Raises InputError for one that is not `tag: value`."""
        tag, colon, value = line.partition(":")
        value = value.strip()
        if not colon or not tag or " " in tag:
            raise InputError(
                f"{where}: expected `tag: value`, got {excerpt(line)}. Fix the line, or give an"
                " .obo file."
            )
        if self.stanza == "header":
            self._add_to_header(tag, value)
        elif self.stanza == "Typedef" and tag in ("id", "name"):
            words = unescape(MODIFIERS.sub("", value)).split()
            if tag == "id":
                self.relation = " ".join(words)
            self.relations[self.relation] = "_".join(words)
        elif self.stanza == "Term" and tag == "id":
            self._open_term(value, where)
        elif self.stanza == "Term":
            if self.term is None:
                raise InputError(
                    f"{where}: expected the term's `id:` line first, got {excerpt(line)}. Fix the"
                    " stanza."
                )
            _add_to_term(self.term, line, tag, value, where, self.left_out)

    def _add_to_header(self, tag: str, value: str) -> None:
        self.header.setdefault(tag, value)
        words = value.split()
        if tag == "property_value" and words[:1] in LICENCES:
            self.licence = unescape(" ".join(words[1:2])).strip('"')
        elif tag == "remark" and "licen" in value.lower():
            self.licence = self.licence or one_line(unescape(value))

    def _open_term(self, value: str, where: str) -> None:
        if not value or value in self.terms or self.term is not None:
            raise InputError(
                f"{where}: expected one new id a term, got {value!r} (empty or repeated). Fix it."
            )
        self.term = self.terms[value] = Term(value.split()[0])

    def ontology(self) -> Ontology:
        """The terms of the whole file, their relations by name. Raises InputError for a file that
        is cut or has no terms."""
        if self.stanza == "Term" and self.term is None:
            raise self._nameless("Fetch it again.", ": the file is cut")
        if not self.terms:
            raise InputError(
                f"{self.path}:1: no [Term] stanza in the file. Give an ontology in OBO format."
            )
        names, header = self.relations, self.header
        for term in self.terms.values():
            term.edges = [(names.get(relation, relation), tail) for relation, tail in term.edges]
        version = header.get("data-version") or header.get("date", "")
        namespace = header.get("default-namespace", "")
        return Ontology(self.terms, version, self.licence, namespace, self.left_out)


def _add_to_term(
    term: Term, line: str, tag: str, value: str, where: str, left_out: Counter[str]
) -> None:
    """Add to a term what a line of its stanza says; a tag that is not read is counted."""
    if tag == "name":
        term.label = one_line(unescape(MODIFIERS.sub("", value)))
    elif tag == "namespace":
        term.namespace = value
    elif tag == "def":
        term.definition = _split_quoted(value, where, tag)[0]
    elif tag == "comment":
        term.comments.append(unescape(MODIFIERS.sub("", value)).strip())
    elif tag == "synonym":
        term.names.append(_synonym(value, where, None, left_out))
    elif tag in ("exact_synonym", "narrow_synonym", "broad_synonym", "related_synonym"):
        term.names.append(_synonym(value, where, tag.split("_")[0], left_out))
    elif tag in ("is_a", "relationship"):
        term.edges.append(_edge(tag, value, where, line))
    elif tag == "is_obsolete":
        term.obsolete |= value.lower().startswith("true")
    elif tag == "property_value" and DEPRECATED.match(value):
        term.obsolete = True
    elif tag in ("alt_id", "replaced_by", "xref") and value:
        ids = {
            "alt_id": term.alternatives,
            "replaced_by": term.replaced_by,
            "xref": term.xrefs,
        }[tag]
        ids.append(unescape(re.split(r"(?<!\\)\s", value)[0]))
    else:
        left_out[f"{tag} lines"] += 1


# OBO-graph JSON

#: parts of a graph that are not read
AXIOMS = (
    "equivalentNodesSets",
    "logicalDefinitionAxioms",
    "domainRangeAxioms",
    "propertyChainAxioms",
)


def curie(iri: str) -> str:
    """http://purl.obolibrary.org/obo/HP_0000001 -> HP:0000001; …/doid#has_symptom -> has_symptom;
    else unchanged."""
    if "#" in iri:
        return iri.rsplit("#", 1)[1] or iri
    if not iri.startswith(("http://", "https://")):
        return iri
    prefix, mark, number = iri.rsplit("/", 1)[1].partition("_")
    return f"{prefix}:{number}" if mark and prefix and number else iri


def _json(path: Path) -> Any:
    return parse_json(read_text(path), str(path), "Fetch the file again.")


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


def _from_json(path: Path) -> Ontology:
    graphs = _part(_json(path), "graphs", list, str(path))
    if not graphs:
        raise InputError(f"{path}: no `graphs` in the file. Give an ontology in OBO-graph JSON.")
    terms: dict[str, Term] = {}
    predicates: dict[str, str] = {}
    edges: list[tuple[str, str, str]] = []
    left_out: Counter[str] = Counter()
    for number, graph in enumerate(graphs):
        here = f"{path}: graphs[{number}]"
        own = _properties(_part(graph, "meta", dict, here), f"{here}.meta").get(
            "default-namespace", ""
        )
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
                    terms[name].namespace = terms[name].namespace or own
            else:
                left_out[f"nodes of type {kind}"] += 1
        for key in AXIOMS:
            left_out[key] += len(_part(graph, key, list, here))
        for place, edge in enumerate(_part(graph, "edges", list, here)):
            where = f"{here}.edges[{place}]"
            edges.append(
                (
                    _require_value(edge, "sub", where),
                    _require_value(edge, "pred", where),
                    _require_value(edge, "obj", where),
                )
            )
    if not terms:
        raise InputError(f"{path}: no CLASS nodes in the file. Give an ontology in OBO-graph JSON.")
    for head, predicate, tail in edges:
        if head in predicates or predicate == "subPropertyOf":
            left_out["edges between relations"] += 1
            continue
        label = "_".join(predicates.get(predicate, "").split()) or curie(predicate)
        terms.setdefault(curie(head), Term(curie(head))).edges.append((label, curie(tail)))
    meta = _part(graphs[0], "meta", dict, f"{path}: graphs[0]")
    said = _properties(meta, f"{path}: graphs[0].meta")
    version = (
        said.get("versionInfo") or _part(meta, "version", str, str(path)) or said.get("date", "")
    )
    return Ontology(terms, version, _find_licence(said), left_out=left_out)


def _find_licence(said: dict[str, str]) -> str:
    """The property of that name, else one whose value speaks of a licence."""
    by_predicate = (v for key, v in said.items() if key.rpartition("/")[2] == "license")
    return next(by_predicate, "") or next((v for v in said.values() if "licen" in v.lower()), "")


# KnowledgeGraph


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
    return _from_text(path) if form == ".obo" else _from_json(path)


def alternatives_of(ontology: Ontology) -> dict[str, list[str]]:
    """{kept term: its other ids}: its alt_ids, and the obsolete terms that it replaces, directly or
    through others."""
    kept = {term.id for term in ontology.current_terms()}
    found: dict[str, dict[str, None]] = {}
    for term in ontology.terms.values():
        if term.id in kept:
            means, ids = term.id, term.alternatives
        else:
            means, ids = _replacement(term, ontology, kept), [term.id, *term.alternatives]
        if means:
            found.setdefault(means, {}).update((one, None) for one in ids if one not in kept)
    return {term: list(ids) for term, ids in found.items() if ids}


def _replacement(term: Term, ontology: Ontology, kept: set[str]) -> str:
    """The kept term that an obsolete one is replaced by, or nothing: where there are two, neither
    is the same."""
    seen = {term.id}
    while len(term.replaced_by) == 1:
        other = term.replaced_by[0]
        if other in kept:
            return other
        if other in seen or other not in ontology.terms:
            break
        seen.add(other)
        term = ontology.terms[other]
    return ""


def graph(ontology: Ontology, source: str, types: dict[str, str] | None = None) -> KnowledgeGraph:
    """The kept terms as a graph. `types` has entity types by id; a term it lacks has its namespace
    as type, or the file's default namespace, or its id's prefix."""
    kept = {term.id: term for term in ontology.current_terms()}
    edges, dangling = _edges(kept)
    same, xrefs = _same(kept)
    own_types, fallback = types or {}, ontology.namespace
    every = ontology.terms.values()
    left_out = {
        "obsolete terms": sum(term.obsolete for term in every),
        "terms without a label": sum(not term.label and not term.obsolete for term in every),
        "edges to terms left out": dangling,
        "xrefs to other vocabularies": xrefs,
    }
    return KnowledgeGraph.from_rows(
        {
            "entities": [
                (i, t.label, own_types.get(i) or t.namespace or fallback or i.split(":")[0])
                for i, t in kept.items()
            ],
            "names": _name_rows(kept),
            "definitions": [(i, t.definition) for i, t in kept.items() if t.definition],
            "triples": edges,
            "equivalences": [(one, "xref", other) for one, other in same],
        },
        manifest={
            "source": source,
            "version": ontology.version or "not stated in the file",
            "licence": ontology.licence or "not stated in the file",
            "alternatives": alternatives_of(ontology),
            "left_out": left_out | dict(+ontology.left_out),
        },
    )


def _name_rows(kept: dict[str, Term]) -> dict[tuple[str, ...], None]:
    """Rows of names, each once: the label of a term, then its synonyms. The source of a name is the
    prefix of its term's id."""
    rows: dict[tuple[str, ...], None] = {}
    for i, term in kept.items():
        origin = ("en", i.split(":")[0])
        rows[i, term.label, "preferred", *origin] = None
        rows.update(((i, name, kind, *origin), None) for name, kind in term.names if name)
    return rows


def _edges(kept: dict[str, Term]) -> tuple[dict[tuple[str, str, str], None], int]:
    """(edges between kept terms, each once; how many lead to others)."""
    triples: dict[tuple[str, str, str], None] = {}
    dangling = 0
    for i, term in kept.items():
        for relation, other in term.edges:
            if other in kept:
                triples[i, relation, other] = None
            else:
                dangling += 1
    return triples, dangling


def _same(kept: dict[str, Term]) -> tuple[dict[tuple[str, str], None], int]:
    """(pairs of kept terms that an xref joins, each once; how many xrefs lead to others)."""
    same: dict[tuple[str, str], None] = {}
    others = 0
    for i, term in kept.items():
        for other in term.xrefs:
            if other in kept and other != i:
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
