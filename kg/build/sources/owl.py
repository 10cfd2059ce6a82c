"""Ontologies in OWL and thesauri in SKOS, as RDF/XML (.owl, .rdf, .xml), Turtle (.ttl) or N-Triples
(.nt), plain or .gz -> KnowledgeGraph.

    names       rdfs:label or skos:prefLabel of --language as `preferred` (else one that says no
                language, else any); those of other languages, skos:altLabel and synonyms by scope
                (oboInOwl:hasExactSynonym, …)
    triples     subClassOf as is_a; `relation some class` under the relation's label, blanks as `_`;
                skos:broader and skos:related (skos:narrower the other way round)
    alternatives  in the manifest, {id: [other id, …]}: oboInOwl:hasAlternativeId, skos:notation
    equivalences  skos:exactMatch, owl:equivalentClass and xrefs between two terms of the file
    left out    deprecated terms, terms without a label and other axioms, as obo has them

rdflib reads a file as a whole: 15,000 statements a second, 1.5 kB of memory each. Nothing is
fetched: neither imports nor external entities. For OWL in other syntaxes, and for the largest
files, `robot convert --input x.owl --output x.obo` makes what the source obo reads.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from rdflib import OWL, RDF, RDFS, SKOS, BNode, Graph, Literal, Namespace, URIRef
from rdflib.term import Node

from core.files import InputError
from core.reading import read_bytes, unpacked_name
from kg.build.draft import parse_language
from kg.build.ontology import Ontology, Term, curie, one_line
from kg.build.sources import obo
from kg.graph import KnowledgeGraph

OBO = Namespace("http://purl.obolibrary.org/obo/")
OIO = Namespace("http://www.geneontology.org/formats/oboInOwl#")
DCT = Namespace("http://purl.org/dc/terms/")
SYNTAXES = {".owl": "xml", ".rdf": "xml", ".xml": "xml", ".ttl": "turtle", ".nt": "nt"}
LABELS = (RDFS.label, SKOS.prefLabel)
SYNONYMS = {
    OIO.hasExactSynonym: "exact",
    OIO.hasNarrowSynonym: "narrow",
    OIO.hasBroadSynonym: "broad",
    OIO.hasRelatedSynonym: "related",
    OBO.IAO_0000118: "synonym",
    SKOS.altLabel: "synonym",
    SKOS.hiddenLabel: "related",
}
DEFINITIONS = (OBO.IAO_0000115, SKOS.definition)
SAME = (SKOS.exactMatch, OWL.equivalentClass, OIO.hasDbXref)
#: A declaration of an entity that uses another one.
NESTED = re.compile(rb"""<!ENTITY\s+(\S+)\s+(?:"[^"]*&\w[^"]*"|'[^']*&\w[^']*')""")
ROBOT = "Convert it: robot convert --input x.owl --output x.obo; the source obo reads that."


def _parse(path: Path) -> Graph:
    """The statements of a file. Raises InputError for a file that is not RDF."""
    syntax = SYNTAXES.get(Path(unpacked_name(path)).suffix.lower())
    if syntax is None:
        raise InputError(f"{path}: expected one of {', '.join(SYNTAXES)} (.gz too). {ROBOT}")
    content = read_bytes(path)
    nested = NESTED.search(content) if syntax == "xml" else None
    if nested is not None:  # rdflib takes minutes for what expat then refuses
        name = nested[1].decode("utf-8", "replace")
        raise InputError(
            f"{path}: the entity {name:.40} consists of other entities, which may grow without end."
            f" Write its text out. {ROBOT}"
        )
    logging.getLogger("rdflib.term").setLevel(logging.ERROR)  # of odd literals
    graph = Graph()
    try:
        graph.parse(data=content, format=syntax)
    except Exception as error:
        raise InputError(
            f"{path}: not {syntax} that can be read ({error!s:.200}). {ROBOT}"
        ) from error
    return graph


class _Reader:
    """The terms of a graph of statements."""

    def __init__(self, graph: Graph, language: str) -> None:
        self.graph, self.language = graph, language
        self.left_out: Counter[str] = Counter()
        self.languages: dict[tuple[str, str, str], str] = {}  # of names: id, text, kind
        self.ids: dict[Node, str] = {}
        taken: set[str] = set()
        kinds = (OWL.Class, RDFS.Class, SKOS.Concept)
        subjects = {s for kind in kinds for s in graph.subjects(RDF.type, kind)}
        for subject in sorted((s for s in subjects if isinstance(s, URIRef)), key=str):
            short = curie(str(subject))
            self.ids[subject] = str(subject) if short in taken else short
            taken.add(self.ids[subject])

    def read(self) -> dict[str, Term]:
        terms = {self.ids[subject]: self._term(subject) for subject in self.ids}
        for subject in self.ids:
            for other in self.graph.objects(subject, SKOS.narrower):
                if other in self.ids:
                    terms[self.ids[other]].edges.append(("broader", self.ids[subject]))
        return terms

    def _texts(self, subject: Node, predicate: URIRef) -> list[tuple[str, str]]:
        """(text, code of its language or "") of a property."""
        literals = [o for o in self.graph.objects(subject, predicate) if isinstance(o, Literal)]
        texts = [(one_line(str(o)), parse_language(o.language or "") or "") for o in literals]
        return sorted(pair for pair in texts if pair[0])

    def _choose(self, texts: list[tuple[str, str]]) -> tuple[str, str]:
        """The text of the language, else one of no language, else any; with its language."""
        order = {self.language: 0, "": 1}
        return min(texts, key=lambda pair: order.get(pair[1], 2)) if texts else ("", "")

    def _first(self, texts: list[tuple[str, str]]) -> str:
        return self._choose(texts)[0]

    def _set_language(self, term: str, text: str, kind: str, code: str) -> None:
        """Keep the language of a name; of a text in several, the graph's, else the first."""
        code = code or self.language
        key = (term, text, kind)
        if key not in self.languages or code == self.language:
            self.languages[key] = code

    def _values(self, subject: Node, predicate: URIRef) -> list[str]:
        """Ids and texts of a property."""
        objects = self.graph.objects(subject, predicate)
        values = sorted((o for o in objects if not isinstance(o, BNode)), key=str)
        return [self.ids.get(o) or curie(str(o)) for o in values]

    def _term(self, subject: Node) -> Term:
        term_id = self.ids[subject]
        labels = [pair for predicate in LABELS for pair in self._texts(subject, predicate)]
        label, spoken = self._choose(labels)
        term = Term(term_id, label)
        self._set_language(term_id, label, "preferred", spoken)
        names = [(text, code, "synonym") for text, code in labels if text != term.label]
        for predicate, kind in SYNONYMS.items():
            names += [(text, code, kind) for text, code in self._texts(subject, predicate)]
        for text, code, kind in names:
            term.names.append((text, kind))
            self._set_language(term_id, text, kind, code)
        definitions = [pair for p in DEFINITIONS for pair in self._texts(subject, p)]
        term.definition = self._first(definitions)
        namespaces = self._texts(subject, OIO.hasOBONamespace)
        plain = "concept" if (subject, RDF.type, SKOS.Concept) in self.graph else "class"
        namespace = "" if ":" in term_id and not term_id.startswith("http") else plain
        term.namespace = namespaces[0][0] if namespaces else namespace
        deprecated = self._texts(subject, OWL.deprecated)
        term.obsolete = any(text.lower() in ("true", "1") for text, _ in deprecated)
        term.replaced_by = self._values(subject, OBO.IAO_0100001)
        codes = [str(code).strip() for code in self.graph.objects(subject, SKOS.notation)]
        others = [*self._values(subject, OIO.hasAlternativeId), *sorted(filter(None, codes))]
        term.alternatives = [other for other in dict.fromkeys(others) if other != term_id]
        term.xrefs = [other for predicate in SAME for other in self._values(subject, predicate)]
        term.edges = list(self._edges(subject))
        return term

    def _edges(self, subject: Node) -> Iterator[tuple[str, str]]:
        for other in sorted(self.graph.objects(subject, RDFS.subClassOf), key=str):
            if isinstance(other, URIRef):
                yield "is_a", self.ids.get(other) or curie(str(other))
                continue
            relation = self.graph.value(other, OWL.onProperty)
            target = self.graph.value(other, OWL.someValuesFrom)
            if isinstance(relation, URIRef) and isinstance(target, URIRef):
                label = self._first(self._texts(relation, RDFS.label))
                name = "_".join(label.split()) or curie(str(relation))
                yield name, self.ids.get(target) or curie(str(target))
            else:
                self.left_out["axioms that are no triple"] += 1
        for predicate in (SKOS.broader, SKOS.related):
            for other_id in self._values(subject, predicate):
                yield predicate.rsplit("#", 1)[1], other_id


def files(path: str | Path) -> list[Path]:
    """The files that :func:`read` reads."""
    return [Path(path)]


def read(path: str | Path, language: str = "en", type: str | None = None) -> KnowledgeGraph:
    """The ontology or thesaurus in `path`.

    Raises InputError for a file that is missing, broken, or has no class and no concept.

    Args:
        language: Language of preferred names where a term has one, and of names that say none.
        type: Type of every entity. Default: a term's namespace, or its id's prefix.
    """
    path = Path(path)
    statements = _parse(path)
    reader = _Reader(statements, language)
    terms = reader.read()
    if not terms:
        raise InputError(f"{path}: no owl:Class and no skos:Concept in the file. {ROBOT}")

    def header(*predicates: URIRef) -> str:
        about = [*statements.subjects(RDF.type, OWL.Ontology)]
        about += statements.subjects(RDF.type, SKOS.ConceptScheme)
        for subject in about:
            for predicate in predicates:
                for value in statements.objects(subject, predicate):
                    return str(value)
        return ""

    version = header(OWL.versionInfo, OWL.versionIRI)
    ontology = Ontology(terms, version, header(DCT.license), left_out=reader.left_out)
    types = dict.fromkeys(terms, type) if type else None
    graph = obo.graph(ontology, f"RDF file {path.name}", types)
    names = graph.rows("names", "id", "name", "kind")
    codes = [reader.languages.get(name, language) for name in names]
    place = graph.names.column_names.index("language")
    graph.names = graph.names.set_column(place, "language", pa.array(codes, pa.string()))
    return graph
