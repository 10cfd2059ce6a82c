"""The terms of an ontology, in whatever format it came, and the kinds of their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

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


def kind_of(scope: str, synonym_type: str) -> str:
    """A name's kind from its scope ("exact") and its type ("layperson", "OMO:0003000", ""), which
    goes first."""
    return TYPES.get(synonym_type.lower(), scope)


def one_line(text: str) -> str:
    return " ".join(text.split())


def curie(iri: str) -> str:
    """http://purl.obolibrary.org/obo/HP_0000001 -> HP:0000001; …/doid#has_symptom -> has_symptom;
    else unchanged."""
    if "#" in iri:
        return iri.rsplit("#", 1)[1] or iri
    if not iri.startswith(("http://", "https://")):
        return iri
    prefix, mark, number = iri.rsplit("/", 1)[1].partition("_")
    return f"{prefix}:{number}" if mark and prefix and number else iri
