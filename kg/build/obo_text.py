"""Ontologies in OBO text (.obo): the terms of a file, line by line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from core.files import InputError
from core.reading import excerpt, lines
from kg.build.ontology import (
    SCOPES,
    TYPES,
    UNKNOWN_SCOPE,
    UNKNOWN_TYPE,
    Ontology,
    Term,
    kind_of,
    one_line,
)

#: words that a property_value of the header begins with
LICENCES = (["terms:license"], ["dcterms:license"], ["dc:license"])
ESCAPES = {"n": "\n", "W": " ", "t": "\t"}
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"\s*')
SAID = re.compile(r'(?:"(?:[^"\\]|\\.)*"|\\.|[^!])*')  # a line without its comment
# a property_value
DEPRECATED = re.compile(r'(?:owl:deprecated|\S*owl#deprecated)\s+"?true\b', re.I)
MODIFIERS = re.compile(r'(?<!\\)\{\s*[\w:.-]+="(?:[^"\\]|\\.)*"[^{}]*\}\s*$')


def unescape(text: str) -> str:
    r"""OBO's \" \n \, \: \{ … as the characters they mean."""
    return (
        re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), text)
        if "\\" in text
        else text
    )


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
    pending, start = "", 0
    for number, line in lines(path):
        line = pending + line
        start = start or number
        if line.endswith("\\") and (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        yield start, line
        pending, start = "", 0
    if pending:
        yield start, pending


def parse_obo_text(path: Path) -> Ontology:
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
